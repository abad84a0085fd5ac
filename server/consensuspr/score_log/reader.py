"""The reader of a score log: a run's samples batch by batch, each once, while it grows too.

**Which rows count.** Rows of one key are one sample.  The trainer's row counts before the server's.
Of several rows of the server (a request that was sent again) the first with a verdict counts.  Of a
run that was started again in the same folder, steps that a later start repeated do not count
(:class:`Starts`).

**How it reads.** A first pass reads the columns that decide this, 40 bytes a row in memory.  A
second pass reads the rows that count, batch by batch.  :meth:`LogReader.read` yields the rows that
came since the last call; :attr:`LogReader.withdrawn` has the earlier ones that no longer count.

**The place of a row** is its writer and its number there, which stay the same when files are
merged.  :meth:`LogReader.rows_at` reads rows by their places.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.errors import DataError, InputError, no_such_path
from consensuspr.score_log.files import (
    SCORES,
    LogFile,
    begun_us,
    log_files,
    read_parquet,
    reason_of,
    rows_of_parquet,
    side_of,
)
from consensuspr.score_log.schema import SCHEMA
from consensuspr.scoring.types import LOAD_METHODS, Status

logger = logging.getLogger(__name__)

# Less than any trainer takes from its end to the first sample of its next start, in microseconds.
RESTART_US: Final = 5_000_000
# The columns that decide which rows count.
_DECIDING = ("key", "time", "status", "answer_method", "step", "split")
# Of a row: who wrote it, and its number there.
PLACE: Final = pa.schema([("writer", pa.string()), ("row", pa.int64())])

# What decides about a row: its place (the writer by number), a hash of the sample's key, who made
# the sample, its step (-1: unknown), the number of its split, whose row it is; and whether it was
# yielded.
_ROW = np.dtype(
    [("writer", "i4"), ("row", "i8"), ("sample", "u8"), ("maker", "u8"), ("step", "i8"),
     ("split", "i4"), ("rank", "u1"), ("yielded", "?")]
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
        following: whether the log may begin later, and :meth:`read` will be called again.
        places: whether each row has its place too, in the columns of :data:`PLACE`.

    Attributes:
        left_out: by name of a file, the sentence why it could not be read; logged too.
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
        if run.is_file():
            raise InputError(
                f"{run} is a file, and a score log is a folder; for a file of scored rollouts run"
                f" consensuspr watch {run}"
            )
        self.run = run.parent if run.name == SCORES and not (run / SCORES).exists() else run
        unknown = [name for name in columns or () if name not in SCHEMA.names]
        if unknown:
            raise InputError(
                f"a score log has no column {unknown[0]!r}; it has {', '.join(SCHEMA.names)}"
            )
        if not following and not log_files(self.run):
            empty = f"{run}: has no score log (scores/*.parquet)"
            raise InputError(empty if run.exists() else no_such_path(run))
        self.left_out: dict[str, str] = {}
        self.withdrawn: dict[str, Numbers] = {}
        self._columns = list(columns or SCHEMA.names)
        self._places = places
        self._at: dict[str, int] = {}  # by writer, the rows of the first pass so far
        self._writers: list[str] = []
        self._rows = np.zeros(0, _ROW)
        self._starts = Starts()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that came since the last call, in batches of at least one row."""
        found = log_files(self.run)
        # Trainers come first.
        writers = sorted(found, key=lambda name: (side_of(name) == "server", name))
        fresh = [rows for writer in writers for rows in self._look_at(writer, found[writer])]
        self.withdrawn = {}
        if not fresh:
            return
        rows = self._rows = np.concatenate([self._rows, *fresh])
        counted = self._counted()
        withdrawn = self._by_writer(rows["yielded"] & ~counted)
        self.withdrawn = {writer: rows["row"][at] for writer, at in withdrawn.items()}
        rows["yielded"] &= counted
        for writer, at in self._by_writer(counted & ~rows["yielded"]).items():
            numbers = rows["row"][at]
            for low, high, batch in self._read(writer, numbers):
                # Rows that a disk does not return now are read with the next ones.
                rows["yielded"][at[low:high]] = True
                yield batch

    def _by_writer(self, mask: Mask) -> dict[str, Numbers]:
        """Return the indexes of some rows by writer."""
        chosen = np.flatnonzero(mask)
        numbers = self._rows["writer"][chosen]
        return {self._writers[number]: chosen[numbers == number] for number in np.unique(numbers)}

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
        for _ in range(3):  # files may be merged between the listing and the read
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
        """Yield what decides about the rows that the first pass has not read yet."""
        if writer not in self._writers:
            self._writers.append(writer)
        for first, batch in self._batches(files, self._at.get(writer, 0), _DECIDING):
            rows = self._starts.noted(batch, writer)
            rows["writer"] = self._writers.index(writer)
            rows["row"] = np.arange(first, first + batch.num_rows)
            self._at[writer] = first + batch.num_rows
            yield rows

    def _counted(self) -> Mask:
        """Return which rows count now."""
        rows = self._rows
        counted = self._starts.counted(rows)
        if (rows["rank"] != _TRAINER).any():
            # The first of each sample, by rank and then in the order in which they came.
            order = np.argsort(rows["rank"], kind="stable")
            first = np.zeros(len(rows), bool)
            first[order[np.unique(rows["sample"][order], return_index=True)[1]]] = True
            counted &= first
        return counted

    def _read(self, writer: str, numbers: Numbers) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Yield rows of a writer by their numbers, which ascend, with their range among these."""
        files = [
            file
            for file in log_files(self.run).get(writer, [])
            if ((numbers >= file.first) & (numbers < file.end)).any()
        ]
        for first, batch in self._batches(files, int(numbers[0]), self._columns):
            low, high = np.searchsorted(numbers, (first, first + batch.num_rows))
            here = numbers[low:high]
            if len(here) < batch.num_rows:
                batch = batch.take(pa.array(here - first))
            if batch.num_rows:
                if self._places:
                    batch = batch.append_column("writer", pa.array([writer] * batch.num_rows))
                    batch = batch.append_column("row", pa.array(here))
                yield int(low), int(high), batch

    def _batches(
        self, files: Sequence[LogFile], start: int, columns: Sequence[str]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of a writer from ``start`` on, each batch with its first row's number.

        A damaged file is left out.  The next call reads the last one again: it may still be copied.
        """
        at = start
        for file in files:
            at = max(at, file.first)
            if at >= file.end:
                continue
            try:
                for batch in read_parquet(file.path, at - file.first, columns):
                    yield at, batch
                    at += batch.num_rows
                if columns is _DECIDING:  # it was still being copied
                    self.left_out.pop(file.path.name, None)
                continue
            except FileNotFoundError:
                again = log_files(self.run).get(file.writer, [])
                if file not in again:  # merged since they were listed
                    yield from self._batches(again, at, columns)
                    return
                reason = "is gone"
            except DataError as error:
                reason = error.reason
            except (pa.ArrowException, OSError) as error:
                reason = f"cannot be read: {reason_of(error)}"
            rows = f"its rows after row {at - file.first} are" if at > file.first else "it is"
            sentence = f"{file.path}: {reason}; {rows} left out"
            if file.path.name not in self.left_out:
                logger.warning("%s", sentence)
            self.left_out[file.path.name] = sentence


class _Maker:
    """A process that made samples: from when to when, and its first and last step by split."""

    def __init__(self, began: int) -> None:
        self.began, self.ended = began, 0
        self.steps: dict[int, tuple[int, int]] = {}


class Starts:
    """The starts of a run, and which steps a later one repeated.

    Processes of one start make samples at the same time; one that begins after all before it
    have ended belongs to a later start.  A trainer's process begins when it opens its log, which it
    does before its first sample: two of one start may score a few samples one after the other.  If
    only a server logged its samples, it begins :data:`RESTART_US` before its first sample.
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
        splits = batch.column("split").dictionary_encode("encode")
        known = [
            self._splits.setdefault(name, len(self._splits))
            for name in splits.dictionary.to_pylist()
        ]
        rows["split"] = np.array(known, np.int32)[splits.indices.to_numpy()]
        opened_us = None
        if side_of(writer) == "server":
            # Asking again could change nothing about a row with a verdict.
            failed = pc.equal(batch.column("status"), Status.INTERNAL.value)
            busy = pc.is_in(batch.column("answer_method"), pa.array(sorted(LOAD_METHODS)))
            open_rows = pc.or_(failed, busy).to_numpy(zero_copy_only=False)
            rows["rank"] = np.where(open_rows, _NO_VERDICT, _VERDICT)
        else:
            opened_us = begun_us(writer)
        table = pa.table({name: rows[name] for name in ("maker", "split", "step")})
        self._note(table.append_column("time", batch.column("time").cast(pa.int64())), opened_us)
        return rows

    def _note(self, table: pa.Table, opened_us: int | None) -> None:
        bounds = table.filter(pc.greater_equal(table["step"], 0)).group_by(["maker", "split"])
        functions = [(name, how) for name in ("time", "step") for how in ("min", "max")]
        for row in bounds.aggregate(functions).to_pylist():
            first_us, split = row["time_min"], row["split"]
            began = first_us - RESTART_US if opened_us is None else min(opened_us, first_us)
            maker = self._makers.setdefault(row["maker"], _Maker(began))
            maker.began = min(maker.began, began)
            maker.ended = max(maker.ended, row["time_max"])
            first, last = row["step_min"], row["step_max"]
            before = maker.steps.get(split, (first, last))
            maker.steps[split] = min(first, before[0]), max(last, before[1])

    def counted(self, rows: Rows) -> Mask:
        """Return which rows count: those whose step was not repeated."""
        counted = np.ones(len(rows), bool)
        for number, split, end in self._repeated():
            counted &= ~(
                (rows["maker"] == number) & (rows["split"] == split) & (rows["step"] >= end)
            )
        return counted

    def _repeated(self) -> Iterator[tuple[int, int, int]]:
        """Yield maker, split and the first step that a later start repeated."""
        starts: list[list[tuple[int, _Maker]]] = []
        ended = -1
        for number, maker in sorted(self._makers.items(), key=lambda item: item[1].began):
            if not starts or maker.began > ended:
                starts.append([])
            starts[-1].append((number, maker))
            ended = max(ended, maker.ended)
        ends: dict[int, int] = {}  # first step of later starts by split
        for start in reversed(starts):
            for number, maker in start:
                for split, (_, last) in maker.steps.items():
                    if split in ends and ends[split] <= last:
                        yield number, split, ends[split]
            for _, maker in start:
                for split, (first, _) in maker.steps.items():
                    ends[split] = min(first, ends.get(split, first))
