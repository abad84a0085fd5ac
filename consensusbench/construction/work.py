"""The work on one problem (extract, refine), and its engines: processes, a model, a Ray cluster.

:func:`run_stages` is a pure function of item and stages, so that every engine and every number of
workers gives the same outcome.  Every engine returns items in their order.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from consensusbench.construction.types import (
    DEFAULT_TIME_LIMIT_S,
    BuildItem,
    Excluded,
    ExclusionReason,
    Stage,
    Stream,
)
from consensusbench.extraction.corpus import Corpus
from consensusbench.extraction.types import (
    AsyncExtractor,
    Candidate,
    Extraction,
    Extractor,
    Refiner,
)
from consensuspr.child_processes import ChildContext
from consensuspr.data import Node
from consensuspr.errors import (
    BudgetSpent,
    ConsensusPRError,
    InputError,
    ModelNoAccess,
    VerifierUnavailable,
)

# Of texts under way; a single item may be larger, but then it is alone.
MAX_WAITING_CHARS = 256 << 20
# Items under way for each worker: one slow problem must not keep the others waiting.
WINDOW = 8
# Problems that may wait for a slow one before them, for each that a model is asked about.
MODEL_WINDOW = 4
# A problem may take so many times its limit of CPU time on a busy machine, or asleep.
_PATIENCE = 20.0
# Errors after which no other problem can succeed either.
_FATAL = (BudgetSpent, ModelNoAccess, InputError, VerifierUnavailable)
# On Ray, problems that travel together.
PART_PROBLEMS = 16
PART_CHARS = 4 << 20
# A median place, to a thousandth of a solution; more digits would be noise in the file.
POSITION_DECIMALS = 3

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a build: 2 unless all items carry their extraction, and 3 unless it ends there.

    One problem may take ``time_limit_s`` seconds of CPU time.  The corpus is of all problems.
    """

    extractor: Extractor | None
    refiner: Refiner | None
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    corpus: Corpus = field(default_factory=Corpus)

    def are_done(self, item: BuildItem) -> bool:
        """Return whether nothing is left to do with an item."""
        is_extracted = item.extraction is not None and self.refiner is None
        return item.excluded is not None or is_extracted


def run_stages(stages: Stages, item: BuildItem) -> BuildItem:
    """Do the work on one problem; an error of a stage excludes it."""
    extraction = item.extraction
    try:
        if extraction is None:
            assert stages.extractor is not None, "an item without extraction needs an extractor"
            extraction = stages.extractor.extract(item.problem, item.rollouts)
        item = replace(item, rollouts=(), extraction=extraction)
        if stages.refiner is None:
            return item
        assert item.record is not None, "an item with rollouts has a record"
        # Without the conclusions that stage 2 dropped: the audit has them from there.
        candidates = Extraction(extraction.candidates)
        refined = stages.refiner.refine(
            item.problem, candidates, len(item.record.rollouts), stages.corpus
        )
        nodes = tuple(node_of(found, number) for number, found in enumerate(refined.candidates, 1))
        return replace(item, nodes=nodes, dropped=refined.dropped)
    except Exception as error:  # of one problem
        if os.environ.get("CONSENSUSPR_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        is_known = isinstance(error, ConsensusPRError)
        return _failed(
            item, "failed", str(error) if is_known else f"{type(error).__name__}: {error}"
        )


def _failed(item: BuildItem, reason: ExclusionReason, detail: str) -> BuildItem:
    stage: Stage = "extract" if item.extraction is None else "refine"
    return replace(item, rollouts=(), excluded=Excluded(stage, reason, detail))


def node_of(candidate: Candidate, number: int) -> Node:
    """Return a candidate as the n-th node of its problem."""
    return Node(
        node_id=f"n{number}",
        label=candidate.label,
        type=candidate.type,
        expressions=candidate.expressions,
        # Also if empty: a server derives forms only for nodes without the key.
        derived=candidate.derived,
        support=candidate.support,
        is_final=candidate.is_final,
        position=round(candidate.position, POSITION_DECIMALS),
        rare=candidate.rare,
        extra={"num_models": candidate.num_models},
    )


def batches(
    values: Iterable[_Value], size_of: Callable[[_Value], int], most: int, length: int
) -> Iterator[list[_Value]]:
    """Yield values in order, ``most`` together, or fewer whose sizes come to ``length``."""
    batch: list[_Value] = []
    length_left = length
    for value in values:
        batch.append(value)
        length_left -= size_of(value)
        if len(batch) >= most or length_left <= 0:
            yield batch
            batch, length_left = [], length
    if batch:
        yield batch


def _num_chars(item: BuildItem) -> int:
    return sum(len(rollout.response) for rollout in item.rollouts)


def in_order(
    items: Iterable[BuildItem],
    submit: Callable[[BuildItem], Future[BuildItem] | BuildItem],
    window: int,
) -> Iterator[BuildItem]:
    """Yield the result of each item, in order, as soon as it is there.

    Args:
        items: taken as room comes up.
        submit: begins the work on an item, or returns it if there is none.
        window: items that may be under way, or wait for one before them, while their texts are
            within :data:`MAX_WAITING_CHARS`.
    """
    waiting: deque[tuple[Future[BuildItem] | BuildItem, int]] = deque()
    num_chars = 0

    def pop() -> BuildItem:
        nonlocal num_chars
        first, size = waiting.popleft()
        num_chars -= size
        return first.result() if isinstance(first, Future) else first

    for item in items:
        size = _num_chars(item)
        while waiting and (
            len(waiting) >= window
            or num_chars + size > MAX_WAITING_CHARS
            or not isinstance(waiting[0][0], Future)
            or waiting[0][0].done()
        ):
            yield pop()
        num_chars += size
        waiting.append((submit(item), size))
    while waiting:
        yield pop()


class Workers:
    """Processes that work on items, each for a limited time; a context manager.

    Each process has a pipe and a waiting thread of its own.  No lock is shared, so that a process
    that is killed stops nothing else.  The limit is CPU time, so that problems end alike on a busy
    and on an idle machine.
    """

    def __init__(self, stages: Stages, workers: int) -> None:
        self._stages = pickle.dumps(stages, pickle.HIGHEST_PROTOCOL)
        self._time_limit_s = stages.time_limit_s
        self._are_done = stages.are_done
        self._window = WINDOW * workers
        self._threads = ThreadPoolExecutor(workers, "construction")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._processes: list[_WorkerProcess] = []
        self._is_closed = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._is_closed = True
        for worker in self._processes:
            worker.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._processes:
            worker.end()

    def work(self, items: Iterable[BuildItem]) -> Iterator[BuildItem]:
        """Yield the result of each item, in order."""

        def submit(item: BuildItem) -> Future[BuildItem] | BuildItem:
            if self._are_done(item):
                return item
            return self._threads.submit(self._run, item)

        return in_order(items, submit, self._window)

    def _run(self, item: BuildItem) -> BuildItem:
        """Work on an item in the process of this thread, once more if the process is killed."""
        given = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        limit_s = self._time_limit_s
        detail = ""
        for _ in range(2):  # perhaps it was killed for the memory that another problem took
            worker = self._worker()
            try:
                worker.pipe.send(given)
                if not worker.pipe.poll(_PATIENCE * limit_s):
                    worker.end()
                    detail = f"took more than {_PATIENCE * limit_s:g} s on the clock"
                    return _failed(item, "time_limit", detail)
                reply = worker.pipe.recv()
            except (EOFError, OSError):
                exit_code = worker.end()
            else:
                if isinstance(reply, str):
                    raise ConsensusPRError(f"a worker process cannot load its stages: {reply}")
                assert isinstance(reply, BuildItem), "a worker replies with an item"
                return reply
            if exit_code == -signal.SIGPROF:
                return _failed(item, "time_limit", f"took more than {limit_s:g} s of CPU time")
            detail = f"its worker process ended ({exit_code})"
        return _failed(item, "failed", detail)

    def _worker(self) -> _WorkerProcess:
        worker: _WorkerProcess | None = getattr(self._own, "worker", None)
        if worker is None or worker.is_ended:
            with self._lock:
                if self._is_closed:
                    raise RuntimeError("the workers are closed")
                try:
                    worker = self._own.worker = _WorkerProcess(self._stages)
                except OSError as error:  # no memory, or no process left
                    raise ConsensusPRError(f"a worker process cannot start: {error}") from None
                self._processes.append(worker)
        return worker


class _WorkerProcess:
    """A process that works on one item after the other."""

    def __init__(self, stages: bytes) -> None:
        context = ChildContext(__name__)
        self.pipe, its_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(its_end, stages), daemon=True)
        self.process.start()
        # Else its death would not end the pipe.
        its_end.close()
        self.is_ended = False

    def end(self) -> int | None:
        """End the process if it runs, and return its exit code."""
        if not self.is_ended:
            self.pipe.close()
            self.process.join(0.5)
            self.process.kill()
            self.process.join()
            self.is_ended = True
        return self.process.exitcode


def _serve(pipe: Connection, stages_given: bytes) -> None:
    """Work on the items that come through a pipe, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    stages: Stages | None = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            given = pipe.recv()
            try:
                stages = stages or pickle.loads(stages_given)
                item = pickle.loads(given)
            except (ImportError, AttributeError) as error:
                pipe.send(f"{type(error).__name__}: {error}")
                continue
            assert stages is not None, "they are loaded"
            # The kernel ends this process when the time is up, in the middle of C code too.
            signal.setitimer(signal.ITIMER_PROF, stages.time_limit_s)
            item = run_stages(stages, item)
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.send(item)


def work_here(items: Iterable[BuildItem], stages: Stages, workers: int) -> Stream:
    """Work on items in processes of this machine."""
    with Workers(stages, workers) as pool:
        yield from pool.work(items)


def ask_model(items: Iterable[BuildItem], extractor: AsyncExtractor) -> Stream:
    """Give items their extraction by asking a model.

    The extractor runs in an event loop in a thread of its own, because reading rollouts blocks.  If
    no further problem can succeed, extractions that have begun are waited for: their replies are
    being paid for.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="extract", daemon=True)
    slots = asyncio.Semaphore(extractor.in_flight)
    fatal: list[Exception] = []

    def begin(work: Coroutine[Any, Any, _Value]) -> Future[_Value]:
        return asyncio.run_coroutine_threadsafe(work, loop)

    async def extract(item: BuildItem) -> BuildItem:
        async with slots:
            if fatal:
                raise fatal[0]
            try:
                extraction = await extractor.extract(item.problem, item.rollouts)
            except _FATAL as error:
                fatal.append(error)
                raise
            except ConsensusPRError as error:
                return _failed(item, "failed", str(error))
            return replace(item, rollouts=(), extraction=extraction)

    async def finish(cancel: bool) -> None:
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending if cancel else ():
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def submit(item: BuildItem) -> Future[BuildItem] | BuildItem:
        is_open = item.excluded is None and item.extraction is None
        return begin(extract(item)) if is_open else item

    thread.start()
    try:
        yield from in_order(items, submit, MODEL_WINDOW * extractor.in_flight)
    except _FATAL as error:
        fatal.append(error)
        begin(finish(cancel=False)).result()
        raise
    finally:
        begin(finish(cancel=True)).result()
        begin(extractor.close()).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def work_on_ray(items: Iterable[BuildItem], stages: Stages, folder: Path) -> Stream:
    """Work on items on a Ray cluster; all items are taken before the first is worked on.

    Each core has a worker process of its own, so that time limits and crashes are as on one
    machine.  consensuspr and the module of the extractor must be installed on every node.

    Args:
        folder: of this machine, for the file of items.

    Raises:
        InputError: Ray is not installed.
        ConsensusPRError: the cluster failed, or a worker cannot be started.
    """
    from consensuspr.ray.data import connected, work_on_parts

    with connected(), tempfile.NamedTemporaryFile(prefix=".tasks-", dir=folder) as tasks:
        for part in batches(items, _num_chars, PART_PROBLEMS, PART_CHARS):
            pickle.dump(part, tasks, protocol=pickle.HIGHEST_PROTOCOL)
        tasks.flush()
        if os.path.getsize(tasks.name):
            for part in work_on_parts("building", tasks.name, _read_parts, _working, (stages,)):
                yield from part


def _read_parts(path: str) -> Iterator[list[BuildItem]]:
    with open(path, "rb") as stream, suppress(EOFError):
        while True:
            yield pickle.load(stream)


def _working(stages: Stages) -> Callable[[list[BuildItem]], list[BuildItem]]:
    """Return the function that works on parts on one core."""
    pool = Workers(stages, 1)
    return lambda part: list(pool.work(part))
