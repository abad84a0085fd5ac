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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from consensuspr.console import one_line
from consensuspr.data.writers import atomic_file
from consensuspr.errors import DataError
from consensuspr.score_log.schema import SCHEMA, TEXT_COLUMNS, Side

SCORES, DATASETS = "scores", "datasets"
# They hold responses: other users may not read them, even if the umask allows it.
FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750

# Limits of a row group, which a reader holds in memory.
GROUP_BYTES = 16 << 20
GROUP_ROWS = 8192
# Larger numbers are not exact in JSON, charts and means.
MAX_NUMBER: Final = 2**53
# A temporary file without changes for so long has no writer any more.
_LEFTOVER_S: Final = 3600.0

# Columns whose values repeat, which dictionaries make smaller.
_REPEATED: Final = [name for name in SCHEMA.names if name not in ("key", *TEXT_COLUMNS)]
# Columns without which a row does not count as a sample.
_REQUIRED: Final = ("key", "time", "status")
_NAME: Final = re.compile(r"(\d{8}T\d{12}-[a-z]+-.+)-(\d{10})-(\d{10})")
_BEGUN: Final = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True, slots=True)
class LogFile:
    """Rows ``first`` up to ``end`` of a writer, in one file."""

    writer: str
    first: int
    end: int
    path: Path


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
    files = [
        LogFile(found[1], int(found[2]), int(found[3]), path)
        for path in _entries(run)
        if path.suffix == ".parquet" and (found := _NAME.fullmatch(path.stem))
    ]
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
    leftovers += [p for p in _entries(run) if p.name.startswith(".") and p.suffix == ".tmp"]
    for path in leftovers:
        with contextlib.suppress(OSError):  # another process has removed it
            if path.suffix == ".parquet" or path.stat().st_mtime < oldest:
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


def read_parquet(path: Path, skip: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file behind the first ``skip``, checked; null in columns it lacks.

    Raises:
        DataError: it is not a file of a score log, or a column is damaged.
        OSError, pa.ArrowException: it cannot be read.
    """
    file = open_parquet(path)
    sizes = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
    first_group = 0
    while first_group < len(sizes) and skip >= sizes[first_group]:
        skip -= sizes[first_group]
        first_group += 1
    known = [name for name in columns if name in file.schema_arrow.names]
    fields = [SCHEMA.field(name) for name in columns]
    groups = range(first_group, len(sizes))
    for batch in file.iter_batches(GROUP_ROWS, row_groups=groups, columns=known):
        first, skip = min(skip, batch.num_rows), max(0, skip - batch.num_rows)
        if first < batch.num_rows:
            try:
                arrays = [_column(batch.slice(first), field) for field in fields]
            except ValueError as error:
                raise DataError(str(path), None, str(error)) from None
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Return a column, null if the batch is older than it, or raise ValueError with the reason."""
    column = pa.nulls(batch.num_rows, field.type)
    if field.name in batch.schema.names:
        column = batch.column(field.name)
    try:
        column.validate(full=True)
        column = column.cast(field.type)
    except pa.ArrowException as error:
        reason = reason_of(error)
        raise ValueError(f"column {field.name} cannot be read: {reason}") from None
    if column.null_count and field.name in _REQUIRED:
        raise ValueError(f"has rows without {field.name}")
    check_range(column, field)
    return column


def check_range(column: pa.Array, field: pa.Field) -> None:
    """Check that JSON, charts and means can hold the whole numbers of a column.

    Raises:
        ValueError: one of them is beyond :data:`MAX_NUMBER`.
    """
    if pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type):
        for value in pc.min_max(column.cast(pa.int64())).as_py().values():
            if value is not None and abs(value) > MAX_NUMBER:
                raise ValueError(f"{field.name} is {value}, the limit is {MAX_NUMBER}")


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


def write_parquet(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write batches, small ones together; a column that they lack is null.

    Raises:
        InputError: the file cannot be written.
    """
    held: list[pa.RecordBatch] = []
    with (
        atomic_file(path, FILE_MODE) as target,
        pq.ParquetWriter(target, SCHEMA, compression="zstd", use_dictionary=_REPEATED) as out,
    ):
        for batch in batches:
            arrays = [
                batch.column(field.name)
                if field.name in batch.schema.names
                else pa.nulls(batch.num_rows, field.type)
                for field in SCHEMA
            ]
            held.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
            rows = sum(one.num_rows for one in held)
            if rows >= GROUP_ROWS or sum(one.nbytes for one in held) >= GROUP_BYTES:
                out.write_table(pa.Table.from_batches(held, SCHEMA))
                held = []
        if held:
            out.write_table(pa.Table.from_batches(held, SCHEMA))


def merge(files: Sequence[LogFile], run: Path) -> LogFile:
    """Put adjacent files of one writer into one; return it.

    Raises:
        DataError: one of them is damaged; all stay.
        InputError: the file cannot be written; all stay.
        OSError: one of them cannot be read; all stay.
    """
    writer, first, end = files[0].writer, files[0].first, files[-1].end

    def rows() -> Iterator[pa.RecordBatch]:
        found = 0
        for file in files:
            for batch in open_parquet(file.path).iter_batches(batch_size=GROUP_ROWS):
                found += batch.num_rows
                yield batch
        if found != end - first:
            raise DataError(str(files[0].path), None, f"and later files have {found} rows")

    merged = LogFile(writer, first, end, path_of(run, writer, first, end))
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
    forgotten = 0
    for group in range(file.metadata.num_row_groups):
        chunk = file.metadata.row_group(group).column(at)
        nulls = chunk.statistics.null_count if chunk.statistics else 0
        forgotten += chunk.num_values - nulls
    if forgotten:
        batches = file.iter_batches(batch_size=GROUP_ROWS)
        write_parquet(path, (batch.drop_columns(list(TEXT_COLUMNS)) for batch in batches))
    return forgotten
