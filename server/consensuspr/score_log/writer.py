"""The writer of a score log: takes what was scored, and never makes anybody wait.

::

    put() ─▶ queue (bounded in bytes) ─▶ thread: rows ─▶ open segment ─▶ (full) closed as Parquet

**Never blocking.** ``put`` appends to a list under a lock that nobody holds for long.  Where the
queue is full, parts go in without their texts, and where it is twice as full, not at all; both are
counted, logged, kept beside the rows for whoever reads them, and told to whoever asked.

**Crash-safe.** What was put is with the system after :data:`FLUSH_S`, one batch in one piece: a
process that is killed loses that second, and leaves a stream whose whole batches anybody reads.
Power is another matter: a stream is not synced, a closed segment is.

**A disk that is full** costs rows of the log and no sample its reward: a batch that does not fit
is tried without texts, then given up and counted; the stream stays whole, and the next batch is
tried anew.

**A defect** costs the rows that have it, and is said; the thread goes on.  Where it ends all the
same, what waits and what comes later is counted as lost.

**A folder that is removed** takes along what was written to it, which is counted; what comes after
goes into a new one.

**Texts** may take a share of the disk that the settings bound.  Past it the oldest closed segments
lose theirs: what is asked about a run is mostly about its last steps, and nodes are made of
its last epochs.  To keep the first texts and none of the later would be simpler, and would
leave the end of each long run without any.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.events import EventLog
from consensuspr.score_log.schema import (
    ROW_BYTES,
    LoggedPart,
    Side,
    record_batch,
)
from consensuspr.score_log.segments import (
    DATASETS,
    FILE_MODE,
    FOLDER_MODE,
    SCORES,
    Losses,
    OpenSegment,
    Segment,
    close_abandoned,
    close_segment,
    forget_texts,
    new_stem,
    open_parquet,
    private,
    segments,
    try_lock,
)
from consensuspr.scoring.types import SampleKeys

if TYPE_CHECKING:
    import os

    from consensuspr.scoring import DatasetIndex
    from consensuspr.scoring.types import Identity, Rollout, Score, ScoreColumns, ScoreOptions

logger = logging.getLogger(__name__)

# Between two writes: what a killed process loses at most, and how late a reader sees a row.
FLUSH_S: Final = 1.0
# Of parts that wait for the thread; twice as much where they are rows alone.
QUEUE_BYTES: Final = 64 << 20
# So much wakes the thread before its second is over.
WAKE_BYTES: Final = 4 << 20
# Of one batch in a stream: what a reader has to hold.  Of such a size the allocator keeps what is
# freed for the next one; the system zeroes each page of a larger one anew.
BATCH_BYTES: Final = 2 << 20
BATCH_ROWS: Final = 4096
# A segment is full: bytes of its stream, of which a third is left in Parquet, or seconds since its
# begin.
SEGMENT_BYTES: Final = 128 << 20
SEGMENT_S: Final = 900.0
# Before a dataset that could not be kept is tried again.
KEEP_AGAIN_S: Final = 60.0
# Disk that a run's texts may take.  Eight million samples of 10 KB, a long run, pack to about that.
TEXT_BYTES: Final = 20 << 30

# Told how many rows and how many texts were just lost.
OnLoss = Callable[[int, int], None]


class ScoreLog:
    """Writes the score log of one process into a run's folder, which is made if need be.

    Args:
        run: the folder; others may write there too.
        side: ``trainer`` or ``server``.
        text_bytes: that the texts of the run may take on disk; 0: none are kept.
        on_loss: told of rows and texts that were lost, in any thread.

    Raises:
        InputError: it cannot be written to.
    """

    def __init__(
        self,
        run: Path,
        side: Side,
        *,
        text_bytes: int = TEXT_BYTES,
        on_loss: OnLoss | None = None,
    ) -> None:
        self.run = run
        try:
            self._writer = _Writer(run, side, text_bytes, on_loss)
        except OSError as error:
            raise InputError(f"score_log: cannot write {run}: {error.strerror}") from None
        # Neither a trainer's workers nor a script is told to close what it has.
        self._finalizer = weakref.finalize(self, self._writer.close)

    def put(self, part: LoggedPart) -> None:
        """Take what was scored; it is written soon, and not looked at before."""
        self._writer.put(part)

    def put_batch(
        self,
        rollouts: Sequence[Rollout],
        scores: ScoreColumns,
        identity: Identity,
        options: ScoreOptions,
        index: DatasetIndex,
    ) -> None:
        """Take what a server scored; ``index`` is the dataset, which is kept too."""
        self._writer.keep(index)
        self._writer.put(LoggedPart(rollouts, scores, identity, options, time.time()))

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
        """Take one sample of a trainer.

        Args:
            rollout: the sample.
            score: of it.
            identity: under which it was scored.
            options: as it was asked for.
            scored_by: ``server`` or ``local``.
            penalty: that the trainer adds; None: not known.
            final_score: what it trains on; None: nothing, or not known.
            unix_s: when it was scored; None: now.
        """
        unix_s = time.time() if unix_s is None else unix_s
        part = LoggedPart(
            [rollout], [score], identity, options, unix_s, scored_by, penalty, final_score
        )
        self._writer.put(part)

    @property
    def lost_rows(self) -> int:
        """How many rows were given up since the start."""
        return self._writer.lost_rows

    @property
    def lost_texts(self) -> int:
        """How many rows were written without their text for want of room or time."""
        return self._writer.lost_texts

    def close(self) -> None:
        """Write what waits and close the segment; what comes later is lost.  Twice is as once."""
        self._finalizer()


class _Writer:
    """The thread, and what it shares with those who put."""

    def __init__(self, run: Path, side: Side, text_bytes: int, on_loss: OnLoss | None) -> None:
        self._run = run
        self._side = side
        self._text_bytes = text_bytes
        self._on_loss = on_loss
        self._keys = SampleKeys()
        self._events = EventLog(logger)
        self._changed = threading.Condition()
        self._parts: list[LoggedPart] = []
        # Datasets by digest, and from when on each may be tried (again).
        self._keep_at: dict[str, float] = {}
        self._indexes: list[DatasetIndex] = []
        self._bytes = 0
        self._closing = False
        self._number = 0
        self.lost_rows = self.lost_texts = 0
        self._kept_losses = Losses()
        # At the start: what cannot be written to is found before anything is scored.
        self._open: OpenSegment | None = self._new_segment()
        self._first_stem = self._open.segment.stem
        # Arrow loads pandas, where it is, with its first array, which a process that ends cannot:
        # the few rows of one that is soon over would be lost.
        pa.array([])
        self._closer: threading.Thread | None = None
        self._thread = threading.Thread(target=self._work, name="score-log", daemon=True)
        self._thread.start()

    def put(self, part: LoggedPart) -> None:
        rows, texts = len(part.rollouts), part.text_bytes()
        size = rows * ROW_BYTES
        if self._text_bytes and self._bytes + size + texts <= QUEUE_BYTES:
            size += texts
        elif self._bytes + size <= 2 * QUEUE_BYTES:
            part = part.without_text()
            if self._text_bytes:
                self._lose(0, rows, "scores come faster than they are written")
        else:
            self._lose(rows, 0, "scores come faster than they are written")
            return
        with self._changed:
            ended = self._closing
            if not ended:
                self._parts.append(part)
                before, self._bytes = self._bytes, self._bytes + size
                if not before or before < WAKE_BYTES <= self._bytes:
                    self._changed.notify()
        if ended:
            self._lose(rows, 0, "the log is closed")

    def keep(self, index: DatasetIndex) -> None:
        if time.monotonic() >= self._keep_at.get(index.digest, 0.0):
            self._keep_at[index.digest] = math.inf
            with self._changed:
                self._indexes.append(index)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        closing = False
        parts: list[LoggedPart] = []
        try:
            self._attempt(self._start_closing, None)
            while not closing:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing or self._parts, self._idle_s())
                    self._changed.wait_for(
                        lambda: self._closing or self._bytes >= WAKE_BYTES,
                        FLUSH_S if self._parts else 0,
                    )
                    parts, self._parts, self._bytes = self._parts, [], 0
                    indexes, self._indexes = self._indexes, []
                    closing = self._closing
                self._attempt(self._leave_removed)
                for some in _batches(parts):
                    self._write(some)
                parts = []
                self._attempt(self._keep_datasets, indexes)
                self._attempt(self._rotate, closing)
                self._attempt(self._keep_losses)
        finally:
            if (
                not closing
            ):  # whatever raised, it was nothing that is expected, and is told by Python
                with self._changed:
                    self._closing = True
                    parts = [*parts, *self._parts]
                rows = sum(len(part.rollouts) for part in parts)
                self._lose(rows, 0, "the thread that writes has ended")
                self._attempt(self._keep_losses)

    def _attempt(self, work: Callable[..., None], *given: object) -> None:
        """Do some work; say where it has a defect: a thread that ends would lose all that comes."""
        try:
            work(*given)
        except Exception as error:
            self._tell_defect(error)

    def _tell_defect(self, error: Exception) -> None:
        kind = f"score log, {type(error).__name__}"
        if not self._events.counts[kind]:
            logger.error("a defect of the score log", exc_info=error)
        self._events.report(kind, f"{self._run}: a defect: {error}")

    def _idle_s(self) -> float | None:
        """Return how long to wait for a first row: without end, unless there is one to close."""
        if self._open is None or not self._open.rows:
            return None
        return max(0.0, self._open.begun + SEGMENT_S - time.monotonic())

    def _leave_removed(self) -> None:
        """Begin anew where the segment was removed, with its folder or without."""
        gone = self._open
        if gone is not None and gone.is_removed:
            self._open = None
            self._keep_at.clear()
            gone.close()
            if gone.rows:
                reason = f"{gone.segment.path.name} was removed while it was written"
                self._lose(gone.rows, 0, reason)

    def _write(self, parts: list[LoggedPart]) -> None:
        """Write one batch; what cannot be written is counted."""
        for attempt in (parts, [part.without_text() for part in parts]):
            try:
                if self._open is None:
                    self._open = self._new_segment()
                self._open.write(record_batch(attempt, self._side, self._keys))
            except OSError as error:
                reason = error.strerror or str(error)
                continue
            except Exception as error:
                if len(parts) > 1:  # it may be one of them, and the others are not to go with it
                    for part in parts:
                        self._write([part])
                    return
                self._tell_defect(error)
                reason = f"{type(error).__name__}: {error}"
                continue
            if attempt is not parts:
                self._lose(0, sum(len(part.rollouts) for part in parts), reason)
            return
        self._lose(sum(len(part.rollouts) for part in parts), 0, reason)

    def _keep_datasets(self, indexes: list[DatasetIndex]) -> None:
        for index in indexes:
            try:
                keep_dataset(self._run, index)
            except InputError as error:
                self._keep_at[index.digest] = time.monotonic() + KEEP_AGAIN_S
                self._events.report(
                    "score log, dataset", f"dataset {index.digest} is not kept: {error}"
                )

    def _rotate(self, closing: bool) -> None:
        """Close the segment where it is full."""
        current = self._open
        if current is None:
            return
        age_s = time.monotonic() - current.begun
        full = current.size >= SEGMENT_BYTES or (current.rows and age_s >= SEGMENT_S)
        if not (full or closing):
            return
        self._open = None
        if closing:  # here: at its end, an interpreter starts no thread any more
            if self._closer is not None:
                self._closer.join()
            self._close(current)
        else:
            self._start_closing(current)

    def _keep_losses(self) -> None:
        """Tell readers of the run what it lacks; where that does not fit, try again later."""
        losses = Losses(self.lost_rows, self.lost_texts)
        if losses != self._kept_losses:
            with contextlib.suppress(OSError):
                losses.save(self._run, self._first_stem)
                self._kept_losses = losses

    def _new_segment(self) -> OpenSegment:
        self._number += 1
        (self._run / SCORES).mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        return OpenSegment(self._run / SCORES, new_stem(self._side, self._number))

    def _start_closing(self, done: OpenSegment | None) -> None:
        """Close a segment, if any, and those of writers that are gone, beside the writing."""
        if self._closer is not None:
            self._closer.join()
        self._closer = threading.Thread(
            target=self._close, args=(done,), name="score-log-close", daemon=True
        )
        self._closer.start()

    def _close(self, done: OpenSegment | None) -> None:
        try:
            if done is not None:
                if done.rows:
                    close_segment(done.segment)
                done.close()
            for segment, left_out in close_abandoned(self._run):
                if left_out:
                    logger.warning(
                        "%s: its writer was killed while it wrote; %d bytes at its end are no"
                        " whole row and are left out", segment.path, left_out,
                    )  # fmt: skip
            self._keep_budget()
        except (ConsensusPRError, OSError) as error:
            # The stream is still there, and the next to open the run closes it.
            self._events.report("score log", f"a segment in {self._run} is not closed: {error}")
        except Exception:
            logger.exception("a segment of the score log in %s is not closed", self._run)

    def _keep_budget(self) -> None:
        """Take the oldest texts out until the rest fits."""
        with _alone(self._run) as alone:
            if not alone:  # another process does so
                return
            found = [(one, one.path.stat().st_size) for one in _closed(self._run)]
            total = sum(size for _, size in found)
            for segment, size in found:
                if total <= self._text_bytes:
                    return
                try:
                    if not has_texts(segment):
                        continue
                    texts = forget_texts(segment.path)
                except (ConsensusPRError, pa.ArrowException, OSError) as error:
                    self._events.report("score log, texts", f"{segment.path}: {error}")
                    continue
                total += segment.path.stat().st_size - size
                logger.warning(
                    "score log %s: its texts take more than %d bytes; %d of the oldest are"
                    " given up, in %s", self._run, self._text_bytes, texts, segment.path.name,
                )  # fmt: skip

    def _lose(self, rows: int, texts: int, reason: str) -> None:
        self.lost_rows += rows
        self.lost_texts += texts
        what = f"{rows} rows are lost" if rows else f"{texts} rows have no text"
        kind = "lost rows" if rows else "lost texts"
        self._events.report(f"score log, {kind}", f"{self._run}: {what}: {reason}")
        if self._on_loss is not None:
            self._attempt(self._on_loss, rows, texts)


def _batches(parts: list[LoggedPart]) -> Iterator[list[LoggedPart]]:
    """Yield the parts in batches of a bounded size; a part is smaller than a request."""
    some: list[LoggedPart] = []
    rows = size = 0
    for part in parts:
        part_bytes = part.text_bytes()
        if some and (rows + len(part.rollouts) > BATCH_ROWS or size + part_bytes > BATCH_BYTES):
            yield some
            some, rows, size = [], 0, 0
        some.append(part)
        rows += len(part.rollouts)
        size += part_bytes
    if some:
        yield some


def _closed(run: Path) -> list[Segment]:
    return [segment for segment in segments(run) if not segment.is_open]


def has_texts(segment: Segment) -> bool:
    """Say whether a closed segment still has a text, by its statistics."""
    read = open_parquet(segment.path)
    at = read.schema_arrow.get_field_index("response")
    groups = range(read.metadata.num_row_groups)
    chunks = [read.metadata.row_group(group).column(at) for group in groups]
    return any(
        chunk.statistics is None or chunk.statistics.null_count < chunk.num_values
        for chunk in chunks
    )


@contextlib.contextmanager
def _alone(run: Path) -> Iterator[bool]:
    """Hold the lock of a run's housekeeping, where nobody else has it."""
    with open(run / SCORES / ".lock", "wb", opener=private) as file:
        # Where there are no locks, two do the same at worst.
        yield try_lock(file) is not False


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
