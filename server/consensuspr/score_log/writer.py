"""The writer of a score log, which never holds up a reward.

``put`` appends to a queue in memory.  A thread writes the queue to a Parquet file of its own, under
a temporary name that it renames: after :data:`FILE_ROWS` rows or :data:`FILE_S` seconds.  A process
that is killed loses the rows that are not in a file yet.

A trainer's reward awaits :meth:`ScoreLog.written`, because Ray kills the workers of a trainer at
its end and lets none of them close its log.  Then files follow each other faster.

If the queue is full, rows go in without their texts; if it is twice as full, they are dropped.  A
file that cannot be written is tried without texts, then dropped.  Both are counted, logged and
reported to ``on_drop``.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from consensuspr.errors import InputError
from consensuspr.events import EventLog
from consensuspr.score_log.files import (
    DATASETS,
    FILE_MODE,
    FOLDER_MODE,
    SCORES,
    LogFile,
    forget_texts,
    log_files,
    merge,
    new_writer,
    path_of,
    remove_leftovers,
    write_parquet,
)
from consensuspr.score_log.schema import ROW_BYTES, LoggedPart, Side, record_batch
from consensuspr.scoring.types import SampleKeys

if TYPE_CHECKING:
    from consensuspr.scoring import DatasetIndex
    from consensuspr.scoring.types import Identity, Rollout, Score, ScoreColumns, ScoreOptions

logger = logging.getLogger(__name__)

# A file is written after so many rows, so many bytes in memory, or so many seconds.
FILE_ROWS: Final = 10_000
FILE_BYTES: Final = 16 << 20
FILE_S: Final = 1.0
# If rows are awaited: the next file after so many times what the last one took, a tenth of a core
# at most.  A disk that hangs holds no reward up for longer than WRITTEN_S.
REST: Final = 9
WRITTEN_S: Final = 1.0
# So many files are merged into one, or fewer that have so many bytes.
MERGE_FILES: Final = 16
MERGE_BYTES: Final = 64 << 20
# Of parts that wait for the thread; twice as much for rows without texts.
QUEUE_BYTES: Final = 64 << 20
# Disk that a run's texts may take.  Eight million samples of 10 KB, a long run, pack to about that.
TEXT_BYTES: Final = 20 << 30

# Gets how many rows and how many texts were just dropped.
OnDrop = Callable[[int, int], None]


class _Written(NamedTuple):
    """A file of this writer that may still be merged, its bytes, and how often it was merged."""

    file: LogFile
    size: int
    merges: int


class ScoreLog:
    """Writes the score log of one process into a run's folder, which is made if need be.

    Args:
        run: the folder; others may write there too.
        side: ``trainer`` or ``server``.
        text_bytes: that the texts of the run may take on disk; 0: none are kept.
        on_drop: called with the rows and texts that were dropped, in any thread.

    Attributes:
        dropped_rows: rows that were given up since the start.
        dropped_texts: rows that were written without their text for want of room or time.

    Raises:
        InputError: it cannot be written to.
    """

    def __init__(
        self,
        run: Path,
        side: Side,
        *,
        text_bytes: int = TEXT_BYTES,
        on_drop: OnDrop | None = None,
    ) -> None:
        self.run = run
        try:
            (run / SCORES).mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=run / SCORES).close()
        except OSError as error:
            raise InputError(f"score_log: cannot write {run}: {error.strerror}") from None
        self.dropped_rows = self.dropped_texts = 0
        self._side = side
        self._writer = new_writer(side)
        self._text_bytes = text_bytes
        self._on_drop = on_drop
        self._keys = SampleKeys()
        self._events = EventLog(logger)
        self._changed = threading.Condition()
        self._parts: list[LoggedPart] = []
        self._indexes: dict[str, DatasetIndex] = {}
        self._rows = self._bytes = 0
        self._closing = False
        # Futures that the tasks of an event loop await.
        self._awaited: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}
        self._next_row = 0
        self._written: list[_Written] = []
        # Arrow loads pandas, if installed, with its first array, which a process that ends cannot:
        # the few rows of one that is soon over would be dropped.
        pa.array([])
        self._thread = threading.Thread(target=self._work, name="score-log", daemon=True)
        self._thread.start()
        # Nothing closes the log of a trainer's workers or of a script.
        atexit.register(self.close)

    def put(self, part: LoggedPart) -> None:
        """Queue scored samples; the thread reads them when it writes them."""
        rows, texts = len(part.rollouts), part.text_bytes()
        size = rows * ROW_BYTES
        if self._text_bytes and self._bytes + size + texts <= QUEUE_BYTES:
            size += texts
        else:
            part = part.without_text()
            size += part.text_bytes()
            if self._bytes + size > 2 * QUEUE_BYTES:
                self._drop(rows, 0, "scores come faster than they are written")
                return
            if self._text_bytes:
                self._drop(0, rows, "scores come faster than they are written")
        with self._changed:
            if not self._closing:
                begins = not self._parts
                self._parts.append(part)
                self._rows += rows
                self._bytes += size
                if begins or self._is_full():
                    self._changed.notify()
                return
        self._drop(rows, 0, "the log is closed")

    def put_batch(
        self,
        rollouts: Sequence[Rollout],
        scores: ScoreColumns,
        identity: Identity,
        options: ScoreOptions,
        index: DatasetIndex,
    ) -> None:
        """Queue the samples of a server; ``index`` is the dataset, which is kept too."""
        with self._changed:
            self._indexes[index.digest] = index
        self.put(LoggedPart(rollouts, scores, identity, options, time.time()))

    def put_sample(
        self,
        rollout: Rollout,
        score: Score,
        identity: Identity,
        options: ScoreOptions,
        scored_by: str,
        penalty: float | None,
        final_score: float | None,
        *,
        unix_s: float | None = None,
    ) -> None:
        """Take one sample of a trainer, scored now if ``unix_s`` is None."""
        at = time.time() if unix_s is None else unix_s
        self.put(
            LoggedPart([rollout], [score], identity, options, at, scored_by, penalty, final_score)
        )

    async def written(self) -> None:
        """Wait until all queued rows are in a file or dropped; :data:`WRITTEN_S` at most."""
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._closing:
                return
            if loop not in self._awaited:
                self._awaited[loop] = loop.create_future()
                self._changed.notify()
            future = self._awaited[loop]
        await asyncio.wait([future], timeout=WRITTEN_S)

    def close(self) -> None:
        """Write the queued rows; later ones are dropped.  Calling it again does nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        atexit.unregister(self.close)

    def _is_full(self) -> bool:
        return self._closing or self._rows >= FILE_ROWS or self._bytes >= FILE_BYTES

    def _work(self) -> None:
        closing, rested = False, 0.0
        while not closing:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._parts or self._awaited)
                due = time.monotonic() + FILE_S
                while not self._is_full():
                    left = (rested if self._awaited else due) - time.monotonic()
                    if left <= 0:
                        break
                    self._changed.wait(left)
                parts, self._parts = self._parts, []
                indexes, self._indexes = self._indexes, {}
                awaited, self._awaited = self._awaited, {}
                self._rows = self._bytes = 0
                closing = self._closing
            begun = time.monotonic()
            try:
                self._write(parts)
            except Exception:  # a thread that ends would lose all that comes
                logger.exception("score log %s: internal error", self.run)
            rested = time.monotonic() + min(REST * (time.monotonic() - begun), FILE_S)
            for loop, future in awaited.items():
                with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits
                    loop.call_soon_threadsafe(future.set_result, None)
            try:
                for index in indexes.values():
                    try:
                        keep_dataset(self.run, index)
                    except InputError as error:  # the next request has it again
                        reason = f"cannot keep dataset {index.digest}: {error}"
                        self._events.report("score log, dataset", reason)
                if not closing:
                    self._tidy()
            except Exception:
                logger.exception("score log %s: internal error", self.run)

    def _write(self, parts: list[LoggedPart]) -> None:
        """Write parts to a file; rows and texts that cannot be written are counted."""
        reason = ""
        for with_text in (True, False):
            if not with_text:
                parts = [part.without_text() for part in parts]
            batches = [*self._batches(parts)] if parts else []
            rows = sum(batch.num_rows for batch in batches)
            if not rows:
                return
            first, end = self._next_row, self._next_row + rows
            path = path_of(self.run, self._writer, first, end)
            try:
                path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
                write_parquet(path, iter(batches))
                size = path.stat().st_size
            except Exception as error:  # a full disk, or no memory for Arrow
                reason = str(error) or type(error).__name__
                continue
            if not with_text:
                self._drop(0, rows, reason)
            self._next_row = end
            self._written.append(_Written(LogFile(self._writer, first, end, path), size, 0))
            return
        self._drop(rows, 0, reason)

    def _batches(self, parts: list[LoggedPart]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of parts; a part that has a defect is dropped."""
        try:
            yield record_batch(parts, self._side, self._keys)
        except Exception as error:
            if len(parts) > 1:
                for part in parts:
                    yield from self._batches([part])
            else:
                logger.error("cannot write a row of the score log", exc_info=error)
                self._drop(len(parts[0].rollouts), 0, f"{type(error).__name__}: {error}")

    def _tidy(self) -> None:
        """Merge small files, remove leftovers, and keep the texts within their bound."""
        try:
            self._merge()
        except Exception as error:
            self._written.clear()  # another attempt would end as this one
            self._events.report("score log, merge", f"cannot merge files in {self.run}: {error}")
        remove_leftovers(self.run)
        self._forget_texts()

    def _merge(self) -> None:
        """Merge the files of this writer, so that a long run leaves few."""
        while len(self._written) > 1:
            last = self._written[-1].merges
            alike = [written for written in self._written if written.merges == last]
            whole = sum(written.size for written in self._written) >= MERGE_BYTES
            if whole:
                alike = self._written
            elif len(alike) < MERGE_FILES:
                return
            merged = merge([written.file for written in alike], self.run)
            del self._written[-len(alike) :]
            if not whole:
                self._written.append(_Written(merged, merged.path.stat().st_size, last + 1))

    def _forget_texts(self) -> None:
        """Take the texts out of the oldest file that has some, if all take more than their bound.

        One file at a time, because rows wait meanwhile; the next after the next write.
        """
        known: list[tuple[float, int, Path]] = []
        for file in itertools.chain.from_iterable(log_files(self.run).values()):
            with contextlib.suppress(FileNotFoundError):  # merged meanwhile
                found = file.path.stat()
                known.append((found.st_mtime, found.st_size, file.path))
        if sum(size for _, size, _ in known) <= self._text_bytes:
            return
        for _, _, path in sorted(known):
            if self._closing:
                return
            try:
                texts = forget_texts(path)
            except FileNotFoundError:
                continue
            except Exception as error:
                self._events.report("score log, texts", f"{path}: {error}")
                continue
            if texts:
                logger.warning(
                    "score log %s: the texts exceed score_log_bytes=%d; deleted the %d texts of"
                    " %s", self.run, self._text_bytes, texts, path.name,
                )  # fmt: skip
                return

    def _drop(self, rows: int, texts: int, reason: str) -> None:
        self.dropped_rows += rows
        self.dropped_texts += texts
        kind, text = "dropped rows", f"dropped {rows} rows"
        if not rows:
            kind, text = "dropped texts", f"dropped the text of {texts} rows"
        self._events.report(f"score log, {kind}", f"{self.run}: {text}: {reason}")
        if self._on_drop is not None:
            self._on_drop(rows, texts)


def dataset_path(run: Path, digest: str) -> Path:
    """Return where a run keeps the dataset of a digest."""
    return run / DATASETS / f"{digest.removeprefix('sha256:')}.index"


def keep_dataset(run: Path, index: DatasetIndex) -> os.PathLike[str]:
    """Keep a dataset in a run's folder, once; return its path.

    Raises:
        InputError: it cannot be written.
    """
    path = dataset_path(run, index.digest)
    if not path.exists():
        try:
            path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"score_log: cannot write {path.parent}: {error.strerror}") from None
        index.save(path, FILE_MODE)
    return path
