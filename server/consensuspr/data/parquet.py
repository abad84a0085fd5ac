"""Rows of a Parquet file, in bounded memory, through pyarrow (imported on first use).

Row groups written by dataframe libraries hold a whole data set, so that pages are read as
they are needed and rows turn into Python objects a batch at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from consensuspr.data.schema import Row
from consensuspr.errors import DataError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# A batch of rollouts of 1 MB each is 256 MB of Python strings; of the usual 10 KB, 2.5 MB.
BATCH_ROWS = 256

# Field metadata of a column whose values are JSON text because Arrow has no type for them.
JSON_MARK = {b"consensuspr": b"json"}


def read_parquet(
    stream: BinaryIO, path: str, required: Sequence[str]
) -> Iterator[tuple[int, Row | DataError]]:
    """Yield ``(row number counted from 1, row)``.

    Raises:
        DataError: pyarrow is missing, the file is damaged or lacks a required column.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(path, None, "is Parquet, and pyarrow is not installed") from None
    number = 0
    try:
        with pq.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20) as file:
            _check_columns(file, path, required)
            encoded = [f.name for f in file.schema_arrow if f.metadata and _is_json(f.metadata)]
            # Threads would each keep memory of their own, for columns that decode in no time.
            for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    for name in encoded:
                        if row[name] is not None:
                            row[name] = json.loads(row[name])
                    yield number, row
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(path, None, f"is not readable Parquet: {reason}") from error
    finally:
        # Arrow keeps what it has freed, several times the size of a batch.
        pa.default_memory_pool().release_unused()


def _check_columns(file: pq.ParquetFile, path: str, required: Sequence[str]) -> None:
    columns: list[str] = file.schema_arrow.names
    for name in required:
        if name not in columns:
            shown = ", ".join(columns[:12]) + (", …" if len(columns) > 12 else "")
            raise DataError(path, None, f"has no column {name!r}; its columns are {shown}")


def _is_json(metadata: dict[Any, Any]) -> bool:
    return all(metadata.get(key) == value for key, value in JSON_MARK.items())
