"""The reader of a score log: a run's samples batch by batch, each once, while it grows too.

**Which rows count.** Rows of one key are one sample.  The trainer's row counts before the server's;
of several rows of the server (a request that was sent again) the first that has a verdict counts.
Of a run that was started again in the same folder, steps that a later start has done again do not
count (:class:`Starts`).

**How it reads.** A first pass reads the columns that decide this, 50 bytes a row in memory.  A
second pass reads the rows that count, batch by batch.

**While it grows.** :meth:`LogReader.read` yields what has come since the last call.  Where both
sides write, a server's row waits until its trainer's row is there or :data:`HOLD_S` have passed.
A row without a verdict waits as long.  Rows that were yielded and no longer count are in
:attr:`LogReader.withdrawn`.

**The place of a row** is its writer and its number there, which stay the same when files are
merged.  :meth:`LogReader.rows_at` reads rows by their places.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.errors import DataError, InputError
from consensuspr.score_log.files import (
    GROUP_ROWS,
    SCORES,
    LogFile,
    begun_us,
    log_files,
    open_parquet,
    reason_of,
    rows_of_parquet,
    side_of,
)
from consensuspr.score_log.schema import SCHEMA
from consensuspr.scoring.types import LOAD_METHODS, Status

logger = logging.getLogger(__name__)

# How long a server's row waits for its trainer's, which comes in a file of its own.
HOLD_S: Final = 60.0
# Less than any trainer takes from its end to the first sample of its next start, in microseconds.
RESTART_US: Final = 5_000_000
# Columns without which a row does not count as a sample.
_REQUIRED: Final = ("key", "time", "status")
# Larger numbers are not exact in JSON, charts and means.
MAX_NUMBER: Final = 2**53
# The columns that decide which rows count.
_DECIDING = ("key", "time", "status", "answer_method", "step", "split")
# Of a row: who wrote it, and its number there.
PLACE: Final = pa.schema([("writer", pa.string()), ("row", pa.int64())])

# What decides about a row: its place (the writer by number), a hash of the sample's key, who made
# the sample, its step (-1: unknown), the number of its split, when it was scored in microseconds,
# whose row it is; and whether it was yielded.
_ROW = np.dtype(
    [("writer", "i4"), ("row", "i8"), ("sample", "u8"), ("maker", "u8"), ("step", "i8"),
     ("split", "i4"), ("time", "i8"), ("rank", "u1"), ("yielded", "?")]
)  # fmt: skip
_TRAINER, _VERDICT, _NO_VERDICT = range(3)  # ranks: the lowest of a sample counts

Rows: TypeAlias = npt.NDArray[np.void]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class LogReader:
    """Reads the score log of a run.

    Args:
        run: its folder, or the ``scores`` in it.
        columns: to read (:data:`~consensuspr.score_log.schema.COLUMNS`); None: all.
        following: whether :meth:`read` will be called again: a server's row then waits for its
            trainer's.
        places: whether each row has its place too, in the columns of :data:`PLACE`.

    Attributes:
        left_out: sentences about files that could not be read, by their names; they are logged
            too.
        withdrawn: by writer, the numbers of rows that an earlier :meth:`read` yielded and that the
            last one found not to count any more.

    Raises:
        InputError: there is no score log, or no column of such a name.
    """

    def __init__(
        self,
        run: Path,
        columns: Sequence[str] | None = None,
        *,
        following: bool = False,
        places: bool = False,
    ) -> None:
        self.run = run.parent if run.name == SCORES and not (run / SCORES).exists() else run
        unknown = [name for name in columns or () if name not in SCHEMA.names]
        if unknown:
            raise InputError(
                f"a score log has no column {unknown[0]!r}; it has {', '.join(SCHEMA.names)}"
            )
        self.left_out: dict[str, str] = {}
        self.withdrawn: dict[str, Numbers] = {}
        if not following and not log_files(self.run):
            empty = "holds no score log (scores/*.parquet)"
            raise InputError(f"{run}: {empty if run.exists() else 'no such file or directory'}")
        self._columns = list(columns or SCHEMA.names)
        self._following = following
        self._places = places
        self._at: dict[str, int] = {}  # by writer, how many rows were looked at
        self._writers: list[str] = []
        self._rows = np.zeros(0, _ROW)
        self._starts = Starts()
        self._waiting = False  # whether rows wait for HOLD_S

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield what has come since the last call, in batches of at least one row."""
        found = log_files(self.run)
        # Trainers come first.
        writers = sorted(found, key=lambda name: (side_of(name) == "server", name))
        looked_at = [rows for writer in writers for rows in self._look_at(writer, found[writer])]
        self.withdrawn = {}
        if not looked_at and not self._waiting:
            return
        if looked_at:
            self._rows = np.concatenate([self._rows, *looked_at])
        rows, counted = self._rows, self._counted()
        withdrawn = rows["yielded"] & ~counted
        self.withdrawn = {
            writer: rows["row"][at] for writer, at in self._by_writer(withdrawn).items()
        }
        rows["yielded"] &= counted
        for writer, at in self._by_writer(counted & ~rows["yielded"]).items():
            numbers = rows["row"][at]
            files = log_files(self.run).get(writer, [])
            for low, high, batch in self._read(writer, files, numbers):
                # What a disk does not give now is read with the next rows.
                rows["yielded"][at[low:high]] = True
                yield batch

    def _by_writer(self, mask: Mask) -> dict[str, Numbers]:
        """Return the places of some rows by writer."""
        chosen = np.flatnonzero(mask)
        writers = self._rows["writer"][chosen]
        return {
            self._writers[number]: chosen[writers == number]
            for number in np.unique(writers).tolist()
        }

    @property
    def read_share(self) -> float:
        """Which part of the files on disk has been read, from 0 to 1."""
        files = [file for of_writer in log_files(self.run).values() for file in of_writer]
        read = [self._at.get(file.writer, 0) >= file.end for file in files]
        return sum(read) / len(read) if read else 1.0

    def rows_at(self, writer: str, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return rows of a writer by their numbers, which ascend.  In any thread.

        Raises:
            DataError: a file is gone or damaged, or has no such row.
        """
        for _ in range(3):  # files may be merged between the look and the read
            found, left = [], list(rows)
            try:
                for file in log_files(self.run).get(writer, []):
                    here = [row - file.first for row in left if file.first <= row < file.end]
                    if here:
                        found.append(rows_of_parquet(file.path, here, columns))
                        left = left[len(here) :]
            except FileNotFoundError:
                continue
            except OSError as error:
                raise DataError(writer, None, f"cannot be read: {reason_of(error)}") from None
            if not left:
                return pa.concat_tables(found)
            break
        raise DataError(str(self.run / SCORES), None, f"{writer} has no row {left[0]}")

    def _look_at(self, writer: str, files: Sequence[LogFile]) -> Iterator[Rows]:
        """Yield what decides about the rows behind those that were looked at."""
        if writer not in self._writers:
            self._writers.append(writer)
        for first, batch in self._batches(writer, files, _DECIDING):
            rows = self._starts.noted(batch, writer)
            rows["writer"] = self._writers.index(writer)
            rows["row"] = np.arange(first, first + batch.num_rows)
            self._at[writer] = first + batch.num_rows
            yield rows

    def _counted(self) -> Mask:
        """Return which rows count now."""
        rows, self._waiting = self._rows, False
        counted = self._starts.counted(rows)
        servers = rows["rank"] != _TRAINER
        if servers.any():
            # The first of each sample, by rank and then in the order in which they came.
            order = np.argsort(rows["rank"], kind="stable")
            first = np.zeros(len(rows), bool)
            first[order[np.unique(rows["sample"][order], return_index=True)[1]]] = True
            counted &= first
            if self._following:
                waits = rows["rank"] == _NO_VERDICT if servers.all() else servers
                waits = waits & (rows["time"] > (time.time() - HOLD_S) * 1e6) & ~rows["yielded"]
                self._waiting = bool((counted & waits).any())
                counted &= ~waits
        return counted

    def _read(
        self, writer: str, files: Sequence[LogFile], numbers: Numbers
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Yield rows of a writer by their numbers, which ascend, with their places among these."""
        files = [f for f in files if ((numbers >= f.first) & (numbers < f.end)).any()]
        for first, batch in self._batches(writer, files, self._columns, int(numbers[0])):
            low, high = np.searchsorted(numbers, (first, first + batch.num_rows))
            here = numbers[low:high]
            if len(here) < batch.num_rows:
                batch = batch.take(pa.array(here - first))
            if batch.num_rows:
                yield int(low), int(high), _placed(batch, writer, here) if self._places else batch

    def _batches(
        self,
        writer: str,
        files: Sequence[LogFile],
        columns: Sequence[str],
        start: int | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of a writer, and the number of the first row of each batch.

        From the row ``start`` on; None: behind those that were looked at.
        """
        looking = start is None
        at = self._at.get(writer, 0) if start is None else start
        for file in files:
            at = max(at, file.first)
            if file.end <= at:
                continue
            try:
                for batch in _of_file(file, at - file.first, columns):
                    yield at, batch
                    at += batch.num_rows
            except FileNotFoundError:
                again = log_files(self.run).get(writer, [])
                if file not in again:  # merged since they were listed
                    yield from self._batches(writer, again, columns, None if looking else at)
                    return
                reason = "is gone"
            except DataError as error:
                reason = error.reason
            except (pa.ArrowException, OSError) as error:
                reason = f"cannot be read: {reason_of(error)}"
            else:
                if looking:
                    if self.left_out.pop(file.path.name, ""):  # it was still being copied
                        logger.warning("%s: can be read now", file.path)
                    self._at[writer] = file.end
                continue
            rows = f"its rows after row {at - file.first} are" if at > file.first else "it is"
            self._leave_out(file.path.name, f"{file.path}: {reason}; {rows} left out")
            if looking and file != files[-1]:  # the last may still be being copied
                self._at[writer] = file.end

    def _leave_out(self, name: str, sentence: str) -> None:
        if name not in self.left_out:
            logger.warning("%s", sentence)
        self.left_out[name] = sentence


def _of_file(file: LogFile, skip: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file behind the first few, checked."""
    parquet = open_parquet(file.path)
    known = [name for name in columns if name in parquet.schema_arrow.names]
    groups: list[int] = []
    for group in range(parquet.metadata.num_row_groups):
        size = parquet.metadata.row_group(group).num_rows
        if not groups and skip >= size:
            skip -= size
        else:
            groups.append(group)
    fields = [SCHEMA.field(name) for name in columns]
    for batch in parquet.iter_batches(GROUP_ROWS, row_groups=groups, columns=known):
        first, skip = min(skip, batch.num_rows), max(0, skip - batch.num_rows)
        if first == batch.num_rows:
            continue
        try:
            arrays = [_column(batch.slice(first), field) for field in fields]
        except ValueError as error:
            raise DataError(str(file.path), None, str(error)) from None
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


def _placed(batch: pa.RecordBatch, writer: str, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
    names = pa.repeat(pa.scalar(writer), batch.num_rows)
    fields = [*batch.schema, *PLACE]
    arrays = [*batch.columns, names, pa.array(numbers)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


# First or last steps by the number of the split.
Steps: TypeAlias = dict[int, int]


@dataclass(slots=True)
class _Maker:
    """A process that made samples: from when to when, and its first and last step of each split."""

    began: int
    ended: int
    first_steps: Steps = field(default_factory=dict)
    last_steps: Steps = field(default_factory=dict)


class Starts:
    """The starts of a run, and which steps a later one has done again.

    Processes of one start make samples at the same time; one that begins after all before it
    have ended belongs to a later start.  A trainer's process begins when it opens its log, which it
    does before its first sample: two of one start may score a few samples one after the other.  Of
    one whose samples only a server has logged, it is the first sample, less :data:`RESTART_US`.
    """

    def __init__(self) -> None:
        self._makers: dict[int, _Maker] = {}
        self._splits: dict[str | None, int] = {}

    def noted(self, batch: pa.RecordBatch, writer: str) -> Rows:
        """Return what decides which rows of a batch count; note who made them, and when."""
        rows = np.zeros(batch.num_rows, _ROW)
        keys = np.frombuffer(b"".join(batch.column("key").to_pylist()), ">u8").reshape(-1, 2)
        makers, numbers = (keys[:, at].astype(np.uint64) for at in (0, 1))
        rows["maker"] = makers
        # That two of ten million samples share one has odds of 1 to 100,000.
        rows["sample"] = makers * np.uint64(0x9E3779B97F4A7C15) + numbers
        rows["step"] = pc.fill_null(batch.column("step"), -1)
        rows["time"] = batch.column("time").cast(pa.int64())
        splits = batch.column("split").dictionary_encode("encode")
        known = [
            self._splits.setdefault(n, len(self._splits)) for n in splits.dictionary.to_pylist()
        ]
        rows["split"] = np.array(known, np.int32)[splits.indices.to_numpy()]
        if side_of(writer) == "server":
            # Asking again could change nothing about a row with a verdict.
            failed = pc.equal(batch.column("status"), Status.INTERNAL.value)
            busy = pc.is_in(batch.column("answer_method"), pa.array(sorted(LOAD_METHODS)))
            open_rows = pc.or_(failed, busy).to_numpy(zero_copy_only=False)
            rows["rank"] = np.where(open_rows, _NO_VERDICT, _VERDICT)
        self._note(rows, None if side_of(writer) == "server" else begun_us(writer))
        return rows

    def _note(self, rows: Rows, opened_us: int | None) -> None:
        table = pa.table({name: rows[name] for name in ("maker", "split", "step", "time")})
        bounds = table.filter(pc.greater_equal(table["step"], 0)).group_by(["maker", "split"])
        functions = [(name, how) for name in ("time", "step") for how in ("min", "max")]
        for row in bounds.aggregate(functions).to_pylist():
            first_us = row["time_min"]
            began = first_us - RESTART_US if opened_us is None else min(opened_us, first_us)
            maker = self._makers.setdefault(row["maker"], _Maker(began, 0))
            maker.began = min(maker.began, began)
            maker.ended = max(maker.ended, row["time_max"])
            split, first, last = row["split"], row["step_min"], row["step_max"]
            maker.first_steps[split] = min(first, maker.first_steps.get(split, first))
            maker.last_steps[split] = max(last, maker.last_steps.get(split, last))

    def counted(self, rows: Rows) -> Mask:
        """Return which rows count: those whose step was not done again."""
        counted = np.ones(len(rows), bool)
        for number, split, end in self._done_again():
            counted &= ~(
                (rows["maker"] == number) & (rows["split"] == split) & (rows["step"] >= end)
            )
        return counted

    def _done_again(self) -> Iterator[tuple[int, int, int]]:
        """Yield maker, split and the first step that a later start has done again."""
        starts: list[list[tuple[int, _Maker]]] = []
        ended = -1
        for number, maker in sorted(self._makers.items(), key=lambda item: item[1].began):
            if not starts or maker.began > ended:
                starts.append([])
            starts[-1].append((number, maker))
            ended = max(ended, maker.ended)
        ends: Steps = {}
        for start in reversed(starts):
            for number, maker in start:
                for split, end in ends.items():
                    if end <= maker.last_steps.get(split, end - 1):
                        yield number, split, end
            for _, maker in start:
                for split, step in maker.first_steps.items():
                    ends[split] = min(step, ends.get(split, step))
