"""The reader of a score log: a run's samples batch by batch, each once, while it grows too.

**Each sample once.** Rows of one key are one sample.  Rows of the trainer's side come first and
count; of the server's side those whose key is new, and of several (a request that was sent
again) the first that has a verdict: where the server failed or was too busy, the trainer asks
again.  So only a log that a server wrote costs memory while it is read, eight bytes a sample; rows
come batch by batch.

**While it grows.** :meth:`LogReader.read` yields what has come since the last call.  Where both
sides write, a server's row waits until its trainer's row is there or :data:`HOLD_S` have passed.
A row without a verdict waits as long for one with a verdict.

**The place of a row** is its writer and its number there, which stay the same when files are
merged.  Who keeps places keeps no texts: :meth:`LogReader.rows_at` reads them later.

**A run that was started again** in the same folder does some steps again: those of the earlier
start do not count (:class:`Starts`).  Where that happens to rows which a following reader has
yielded already, it says so (:attr:`LogReader.redone`): they cannot be taken back.  So it does where
a sample gets its verdict after its row without one was yielded.
"""

from __future__ import annotations

import logging
import math
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
    earlier_files,
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

Keys: TypeAlias = npt.NDArray[np.uint64]

# Columns without which a row does not count as a sample.
_REQUIRED: Final = ("key", "time", "status")
# Larger numbers are not exact in JSON, charts and means.
MAX_NUMBER: Final = 2**53
# Read besides what is asked for, to tell the rows of one sample.
_TO_TELL = ("key", "side", "time", "status", "answer_method", "step", "split")
# Of a row: who wrote it, and its number there.
PLACE: Final = pa.schema([("writer", pa.string()), ("row", pa.int64())])


class LogReader:
    """Reads the score log of a run.

    Args:
        run: its folder, or the ``scores`` in it.
        columns: to read (:data:`~consensuspr.score_log.schema.COLUMNS`); None: all.
        following: whether :meth:`read` will be called again: a server's row then waits for its
            trainer's.
        places: whether each row tells where it lies, in the columns of :data:`PLACE`.

    Attributes:
        left_out: sentences about files that could not be read, by their names; they are logged
            too.
        redone: whether, since an earlier :meth:`read`, a later start has done steps again (or it
            turned out that it had not), or a sample has got a verdict, so that another reader
            would have yielded others by now.

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
        earlier = earlier_files(self.run)
        if not following and not log_files(self.run):
            what = "holds no score log (scores/*.parquet)"
            reason = what if run.exists() else "no such file or directory"
            raise InputError(earlier or f"{run}: {reason}")
        if earlier:
            self._leave_out("", earlier)
        self._columns = list(columns or SCHEMA.names)
        # Of each writer, the rows that were read.
        self._at: dict[str, int] = {}
        self._following = following
        self._places = places
        self._seen = _Seen()
        # Rows without a verdict: those that wait for one, and the keys of those that were yielded.
        self._waiting: list[pa.RecordBatch] = []
        self._undecided = _Seen()
        self._starts: Starts | None = None
        self.redone = False

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield what has come since the last call, in batches of at least one row."""
        found = log_files(self.run)
        if self._starts is None:
            self._starts = Starts()
            self._look_at(found, self._starts)
            self._starts.settle()
        starts = self._starts
        of_servers = [writer for writer in sorted(found) if side_of(writer) == "server"]
        of_trainers = [writer for writer in sorted(found) if side_of(writer) != "server"]
        needed = list(dict.fromkeys((*self._columns, *_TO_TELL)))
        for writer in of_trainers:
            for batch in self._batches(found[writer], needed):
                if self._following:
                    starts.look(batch, writer)
                if of_servers or self._following:
                    self._seen.add(_hashes(batch))
                yield from self._shown(batch)
        until = int((time.time() - HOLD_S) * 1e6) if self._following else None
        for writer in of_servers:
            for batch in self._batches(found[writer], needed, until if of_trainers else None):
                if self._following:
                    starts.look(batch, writer)
                verdict = _has_verdict(batch)
                self._waiting.append(batch.filter(pc.invert(verdict)))
                batch = self._new(batch.filter(verdict))
                self.redone |= bool(self._undecided.has(_hashes(batch)).any())
                yield from self._shown(batch)
        waiting, self._waiting = self._waiting, []
        for batch in waiting:
            if until is not None:
                waits = pc.greater(batch.column("time").cast(pa.int64()), until)
                if pc.any(waits).as_py():
                    self._waiting.append(batch.filter(waits))
                batch = batch.filter(pc.invert(waits))
            hashes = _hashes(batch)
            new = ~self._seen.has(hashes) & self._undecided.add(hashes)
            yield from self._shown(batch.filter(pa.array(new)))
        if self._following:
            self.redone |= starts.settle()

    def _look_at(self, found: dict[str, list[LogFile]], starts: Starts) -> None:
        """Show all rows to what tells starts, without moving the position."""
        for writer, files in found.items():
            for batch in self._batches(files, ("key", "time", "step", "split")):
                starts.look(batch, writer)
        self._at.clear()

    def _new(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of samples that were not seen yet."""
        return batch.filter(pa.array(self._seen.add(_hashes(batch))))

    def _shown(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._starts is not None:
            batch = self._starts.counted(batch)
        if batch.num_rows:
            yield batch.select(self._columns + (PLACE.names if self._places else []))

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

    def _batches(
        self, files: Sequence[LogFile], columns: Sequence[str], until: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a writer behind the position, which moves behind them.

        With ``until``, in microseconds, up to the first batch with a later row.
        """
        for file in files:
            at = max(self._at.get(file.writer, 0), file.first)
            if file.end <= at:
                continue
            try:
                for batch in self._of_file(file, at - file.first, columns):
                    if until is not None and pc.max(batch.column("time")).value > until:
                        return
                    first, at = at, at + batch.num_rows
                    self._at[file.writer] = at
                    yield _placed(batch, file.writer, first) if self._places else batch
            except FileNotFoundError:
                again = log_files(self.run).get(file.writer, [])
                if file not in again:  # merged since they were listed
                    yield from self._batches(again, columns, until)
                    return
                reason = "is gone"
            except DataError as error:
                reason = error.reason
            except (pa.ArrowException, OSError) as error:
                reason = f"cannot be read: {reason_of(error)}"
            else:
                if self.left_out.pop(file.path.name, ""):  # it was still being copied
                    logger.warning("%s: can be read now", file.path)
                self._at[file.writer] = file.end
                continue
            what = f"its rows after row {at - file.first} are" if at > file.first else "it is"
            self._leave_out(file.path.name, f"{file.path}: {reason}; {what} left out")
            if file != files[-1]:  # the last may still be being copied
                self._at[file.writer] = file.end

    def _leave_out(self, what: str, sentence: str) -> None:
        if what not in self.left_out:
            logger.warning("%s", sentence)
        self.left_out[what] = sentence

    def _of_file(
        self, file: LogFile, skip: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
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
        for batch in parquet.iter_batches(GROUP_ROWS, row_groups=groups, columns=known):
            first, skip = min(skip, batch.num_rows), max(0, skip - batch.num_rows)
            if first < batch.num_rows:
                yield _with_columns(batch.slice(first), columns, file.path)


def _with_columns(batch: pa.RecordBatch, columns: Sequence[str], path: Path) -> pa.RecordBatch:
    """Return the columns of a batch; null where it is older than one of them.

    Raises:
        DataError: a value is damaged, is missing or has another type.
    """
    fields = [SCHEMA.field(name) for name in columns]
    try:
        arrays = [_column(batch, field) for field in fields]
    except ValueError as error:
        raise DataError(str(path), None, str(error)) from None
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Return a column, or raise ValueError with the reason."""
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


def _placed(batch: pa.RecordBatch, writer: str, first: int) -> pa.RecordBatch:
    rows = pa.array(np.arange(first, first + batch.num_rows))
    names = pa.repeat(pa.scalar(writer), batch.num_rows)
    fields = [*batch.schema, *PLACE]
    return pa.RecordBatch.from_arrays([*batch.columns, names, rows], schema=pa.schema(fields))


def _has_verdict(batch: pa.RecordBatch) -> pa.Array:
    """Say of each row whether asking again could change nothing."""
    failed = pc.equal(batch.column("status"), Status.INTERNAL.value)
    busy = pc.is_in(batch.column("answer_method"), pa.array(sorted(LOAD_METHODS)))
    return pc.invert(pc.or_(failed, busy))


def _halves(batch: pa.RecordBatch) -> tuple[Keys, Keys]:
    """Return the keys of the rows in two numbers: who made them, and which one it is."""
    raw = b"".join(batch.column("key").to_pylist())
    both = np.frombuffer(raw, ">u8").astype(np.uint64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _hashes(batch: pa.RecordBatch) -> Keys:
    """Return a number for each key; that two of ten million share one has odds of 1 to 100,000."""
    makers, numbers = _halves(batch)
    return makers * np.uint64(0x9E3779B97F4A7C15) + numbers


class _Seen:
    """Which keys there were: sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._sorted: list[Keys] = []

    def has(self, hashes: Keys) -> npt.NDArray[np.bool_]:
        """Return which keys there were."""
        found = np.zeros(len(hashes), bool)
        for known in self._sorted:
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            found |= known[at] == hashes
        return found

    def add(self, hashes: Keys) -> npt.NDArray[np.bool_]:
        """Add keys; return which of them were new, of equal ones the first."""
        first = np.zeros(len(hashes), bool)
        first[np.unique(hashes, return_index=True)[1]] = True
        first &= ~self.has(hashes)
        added = np.sort(hashes[first])
        if len(added):
            self._sorted.append(added)
        while len(self._sorted) > 1 and 2 * len(self._sorted[-1]) > len(self._sorted[-2]):
            last = self._sorted.pop()
            self._sorted[-1] = np.sort(np.concatenate([self._sorted[-1], last]))
        return first


# First steps by split.
Steps: TypeAlias = dict[str | None, int]


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
    one whose samples only a server has logged, the first sample tells, less :data:`RESTART_US`.
    """

    def __init__(self) -> None:
        self._makers: dict[int, _Maker] = {}
        self._ends: dict[int, Steps] = {}

    def look(self, batch: pa.RecordBatch, writer: str) -> None:
        """Look at key, time, step and split of some rows; they may be shown more than once."""
        opened = None if side_of(writer) == "server" else begun_us(writer)
        with_step = batch.filter(pc.is_valid(batch.column("step")))
        table = pa.table(
            {
                "maker": _halves(with_step)[0],
                "split": with_step.column("split"),
                "step": with_step.column("step"),
                "time": with_step.column("time").cast(pa.int64()),
            }
        )
        sums = table.group_by(["maker", "split"]).aggregate(
            [("time", "min"), ("time", "max"), ("step", "min"), ("step", "max")]
        )
        for row in sums.to_pylist():
            first_us = row["time_min"]
            began = first_us - RESTART_US if opened is None else min(opened, first_us)
            maker = self._makers.setdefault(row["maker"], _Maker(began, 0))
            maker.began = min(maker.began, began)
            maker.ended = max(maker.ended, row["time_max"])
            split, first, last = row["split"], row["step_min"], row["step_max"]
            maker.first_steps[split] = min(first, maker.first_steps.get(split, first))
            maker.last_steps[split] = max(last, maker.last_steps.get(split, last))

    def settle(self) -> bool:
        """Decide which steps count, of all that was looked at; say whether that is new."""
        starts: list[list[tuple[int, _Maker]]] = []
        ended = -1
        for number, maker in sorted(self._makers.items(), key=lambda item: item[1].began):
            if not starts or maker.began > ended:
                starts.append([])
            starts[-1].append((number, maker))
            ended = max(ended, maker.ended)
        before, self._ends = self._ends, {}
        ends: Steps = {}
        for start in reversed(starts):
            for number, maker in start:
                done_again = {
                    split: end
                    for split, end in ends.items()
                    if end <= maker.last_steps.get(split, end - 1)
                }
                if done_again:
                    self._ends[number] = done_again
            for _, maker in start:
                for split, step in maker.first_steps.items():
                    ends[split] = min(step, ends.get(split, step))
        return self._ends != before

    def counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose step was not done again."""
        if not self._ends:
            return batch
        makers = _halves(batch)[0]
        if not np.isin(makers, np.fromiter(self._ends, np.uint64, len(self._ends))).any():
            return batch
        rows = zip(
            makers.tolist(), batch["step"].to_pylist(), batch["split"].to_pylist(), strict=True
        )
        kept = [
            step is None or step < self._ends.get(maker, {}).get(split, math.inf)
            for maker, step, split in rows
        ]
        return batch.filter(pa.array(kept, pa.bool_()))
