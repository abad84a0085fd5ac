"""The files of a score log.

::

    RUN/scores/WRITER-FIRST-END.parquet    rows FIRST up to END of one writer (BEGUN-SIDE-TOKEN)
    RUN/datasets/HEX.index                 each dataset once, as a prepared dataset, by its digest

A writer numbers its rows.  It merges small files into larger ones and removes the small ones
afterwards, so a file whose rows another file holds as well does not count.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from consensuspr.console import one_line
from consensuspr.data.writers import atomic_file
from consensuspr.errors import DataError
from consensuspr.score_log.schema import SCHEMA, TEXT_COLUMNS, Side

SCORES, DATASETS = "scores", "datasets"
# They hold responses: other users may not read them, even if the umask allows it.
FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750

# Of a Parquet file's row groups: what a reader holds at a time.
GROUP_BYTES = 16 << 20
GROUP_ROWS = 8192
# A temporary file without changes for so long has no writer any more.
_LEFTOVER_S: Final = 3600.0

# Columns whose values repeat, which dictionaries make smaller.
_REPEATED: Final = [name for name in SCHEMA.names if name not in ("key", *TEXT_COLUMNS)]
_NAME: Final = re.compile(r"(\d{8}T\d{12}-[a-z]+-.+)-(\d{10})-(\d{10})")
_BEGUN: Final = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True, slots=True)
class LogFile:
    """Rows ``first`` up to ``end`` of a writer, in one file."""

    writer: str
    first: int
    end: int
    path: Path

    @classmethod
    def of_path(cls, path: Path) -> LogFile | None:
        """Return what the name of a file says, None if it is no file of a score log."""
        found = _NAME.fullmatch(path.stem)
        return found and cls(found[1], int(found[2]), int(found[3]), path)


def new_writer(side: Side) -> str:
    """Return a name that no other writer has; names sort by time."""
    return f"{datetime.now(UTC).strftime(_BEGUN)}-{side}-{secrets.token_hex(4)}"


def side_of(writer: str) -> str:
    """Return the side of a writer: ``trainer`` or ``server``."""
    return writer.split("-")[1]


def begun_us(writer: str) -> int:
    """Return when a writer began, in microseconds since 1970."""
    begun = datetime.strptime(writer.partition("-")[0], _BEGUN)
    return round(begun.replace(tzinfo=UTC).timestamp() * 1e6)


def path_of(run: Path, writer: str, first: int, end: int) -> Path:
    """Return the path of a writer's rows."""
    return run / SCORES / f"{writer}-{first:010}-{end:010}.parquet"


def log_files(run: Path) -> dict[str, list[LogFile]]:
    """Return the files of each writer of a run that count, in the order of their rows."""
    return _sorted(run)[0]


def _sorted(run: Path) -> tuple[dict[str, list[LogFile]], list[LogFile]]:
    """Return the files that count by writer, and those whose rows another file holds as well."""
    paths = [path for path in _entries(run) if path.suffix == ".parquet"]
    files = [file for path in paths if (file := LogFile.of_path(path))]
    counted: defaultdict[str, list[LogFile]] = defaultdict(list)
    merged: list[LogFile] = []
    for file in sorted(files, key=lambda file: (file.writer, file.first, -file.end)):
        before = counted[file.writer]
        (merged if before and file.end <= before[-1].end else before).append(file)
    return dict(counted), merged


def _entries(run: Path) -> list[Path]:
    try:
        return list((run / SCORES).iterdir())
    except FileNotFoundError:
        return []


def remove_leftovers(run: Path) -> None:
    """Remove what killed writers have left: merged files, and temporary ones without changes."""
    oldest = time.time() - _LEFTOVER_S
    leftovers = [file.path for file in _sorted(run)[1]]
    leftovers += [path for path in _entries(run) if path.name.startswith(".")]
    for path in leftovers:
        with contextlib.suppress(OSError):  # another process has removed it
            if path.suffix == ".parquet" or (
                path.suffix == ".tmp" and path.stat().st_mtime < oldest
            ):
                path.unlink()


def reason_of(error: Exception) -> str:
    """Return an error in a line, printable, because Arrow may quote the file's content."""
    return one_line(str(error).strip().partition("\n")[0], 300)


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file of a score log.

    Raises:
        DataError: it is none.
        OSError: it cannot be opened.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # to open a FIFO would block
        raise DataError(str(path), None, "is not a regular file")
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        reason = f"is not a file of a score log: {reason_of(error)}"
        raise DataError(str(path), None, reason) from None


def _with_all_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with all columns; null if it has none of that name."""
    arrays = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def write_parquet(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write batches, small ones together; return the number of rows.

    Raises:
        InputError: the file cannot be written.
    """
    rows, held, held_bytes, held_rows = 0, [], 0, 0
    with (
        atomic_file(path, FILE_MODE) as target,
        pq.ParquetWriter(target, SCHEMA, compression="zstd", use_dictionary=_REPEATED) as out,
    ):
        for batch in batches:
            held.append(_with_all_columns(batch))
            held_bytes += batch.nbytes
            held_rows += batch.num_rows
            rows += batch.num_rows
            if held_bytes >= GROUP_BYTES or held_rows >= GROUP_ROWS:
                out.write_table(pa.Table.from_batches(held, SCHEMA))
                held, held_bytes, held_rows = [], 0, 0
        if held:
            out.write_table(pa.Table.from_batches(held, SCHEMA))
    return rows


def merge(files: Sequence[LogFile], run: Path) -> LogFile:
    """Put adjacent files of one writer into one; return it.

    Raises:
        DataError: one of them is damaged; all stay.
        InputError: the file cannot be written; all stay.
        OSError: one of them cannot be read; all stay.
    """
    first, end = files[0].first, files[-1].end

    def rows() -> Iterator[pa.RecordBatch]:
        found = 0
        for file in files:
            for batch in open_parquet(file.path).iter_batches(batch_size=GROUP_ROWS):
                found += batch.num_rows
                yield batch
        if found != end - first:
            raise DataError(str(files[0].path), None, f"and later files have {found} rows")

    merged = LogFile(files[0].writer, first, end, path_of(run, files[0].writer, first, end))
    write_parquet(merged.path, rows())
    for file in files:
        file.path.unlink(missing_ok=True)
    return merged


def forget_texts(path: Path) -> int:
    """Take the texts out of a file; return how many there were.

    Raises:
        InputError: it cannot be written.
        DataError: it is not a file of a score log.
    """
    file = open_parquet(path)
    at = file.schema_arrow.get_field_index("response")
    groups = range(file.metadata.num_row_groups)
    chunks = [file.metadata.row_group(group).column(at) for group in groups]
    if all(
        chunk.statistics and chunk.statistics.null_count == chunk.num_values for chunk in chunks
    ):
        return 0
    forgotten = 0

    def without_text() -> Iterator[pa.RecordBatch]:
        nonlocal forgotten
        for batch in file.iter_batches(batch_size=GROUP_ROWS):
            forgotten += batch.num_rows - batch.column("response").null_count
            yield batch.drop_columns(list(TEXT_COLUMNS))

    write_parquet(path, without_text())
    return forgotten


def rows_of_parquet(path: Path, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Return rows of a file by their numbers, which ascend; only their row groups are read.

    Raises:
        DataError: it cannot be read, or has no such row.
        OSError: it cannot be opened.
    """
    file = open_parquet(path)
    known = [name for name in columns if name in file.schema_arrow.names]
    found, first, left = [], 0, list(rows)
    for group in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        here = [row - first for row in left if row < first + size]
        if here:
            try:
                read = file.read_row_group(group, columns=known)
            except (pa.ArrowException, OSError) as error:
                raise DataError(str(path), None, f"cannot be read: {reason_of(error)}") from None
            found.append(read.take(pa.array(here)))
            left = left[len(here) :]
        first += size
    if left:
        raise DataError(str(path), None, f"has no row {left[0]}")
    return pa.concat_tables(found)
