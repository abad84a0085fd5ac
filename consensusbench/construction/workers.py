"""Who does the work of a build: processes of this machine, a model, or a Ray cluster.

Every engine takes items and gives back what became of them in the same order
(:func:`in_order`), with few under way at once.  Nothing here changes what comes out.

Worker processes are plain processes and pipes instead of :mod:`multiprocessing` or
:mod:`concurrent.futures`: those import the caller's main script again or fork a process that holds
threads, and neither can say which task was at fault when a worker dies, nor end one that never
returns.

A model's extractor runs in an event loop in a thread of its own, because the other side, which
reads rollouts and verifies their answers, blocks.

On Ray, tasks go through Ray Data::

    tasks on disk ──▶ read (one task of Ray, on this node) ──▶ work (an actor a core, all nodes)
                                                              └─▶ this process, in order

They are written to one file first, since Ray Data reads where it pleases and this process
verifies answers meanwhile.  An actor has a worker process of its own, the same that runs problems
on one machine: limits, and what a problem that ends its process leaves, are the same.  A node that
dies takes nothing along; its problems are worked on elsewhere.  consensuspr and the module of the
extractor must be installed on every node.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from consensusbench.construction.types import (
    CLOCK_FACTOR,
    Excluded,
    ExclusionReason,
    Finished,
    Item,
    Outcome,
    ProblemRollouts,
    ProblemTask,
    Stream,
)
from consensusbench.construction.worker import Stages
from consensusbench.extraction.types import AsyncExtractor, Extraction
from consensuspr.errors import (
    BudgetSpent,
    ConsensusPRError,
    InputError,
    ModelNoAccess,
    VerifierUnavailable,
)

# Of texts under way; a single task may be larger, but then it is alone.
MAX_WAITING_CHARS = 256 << 20


# Tasks under way for each worker: the next one must be there when a worker is done, and one
# slow problem must not keep the others waiting for the order of the output.
WINDOW = 8

# Problems that may wait for a slow one before them, for each that a model is asked about.
MODEL_WINDOW = 4

# A worker that dies may have been ended from outside, for memory that another process took.
MAX_ATTEMPTS = 2

# The signals that end a process whose time is up; nothing catches them.
_TIME_IS_UP = (signal.SIGPROF, signal.SIGALRM)

# After these no other problem has a chance either.
_NO_CHANCE = (BudgetSpent, ModelNoAccess, InputError, VerifierUnavailable)

# On Ray, problems that travel together; enough that the hops cost little beside the work.
PART_PROBLEMS = 16
PART_CHARS = 4 << 20


_Value = TypeVar("_Value")


def batches(
    values: Iterable[_Value], size_of: Callable[[_Value], tuple[int, int]], most: int, length: int
) -> Iterator[list[_Value]]:
    """Yield values in order, together until their sizes come to a number or to a length."""
    batch: list[_Value] = []
    number_left, length_left = most, length
    for value in values:
        batch.append(value)
        number, size = size_of(value)
        number_left, length_left = number_left - number, length_left - size
        if number_left <= 0 or length_left <= 0:
            yield batch
            batch, number_left, length_left = [], most, length
    if batch:
        yield batch


def in_order(
    items: Iterable[Item], submit: Callable[[ProblemTask], Future[Outcome]], window: int
) -> Iterator[Finished]:
    """Yield what became of each item, in order; what is finished passes through.

    Args:
        items: taken as room comes up.
        submit: begins the work on a task.
        window: items that may be under way, or wait for one before them, while their texts are
            within :data:`MAX_WAITING_CHARS`.
    """
    waiting: deque[tuple[Future[Outcome] | Finished, int]] = deque()
    num_chars = 0

    def first() -> Finished:
        nonlocal num_chars
        entry, size = waiting.popleft()
        num_chars -= size
        return entry.result() if isinstance(entry, Future) else entry

    for item in items:
        size = _num_chars(item)
        while waiting and (
            len(waiting) >= window
            or num_chars + size > MAX_WAITING_CHARS
            or _is_done(waiting[0][0])
        ):
            yield first()
        num_chars += size
        waiting.append((submit(item) if isinstance(item, ProblemTask) else item, size))
    while waiting:
        yield first()


def _num_chars(item: Item) -> int:
    return item.num_chars if isinstance(item, ProblemTask) else 0


def _is_done(entry: Future[Outcome] | Finished) -> bool:
    return not isinstance(entry, Future) or entry.done()


class WorkerProcess:
    """One worker, given one task at a time; started at the first."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def run(self, task: ProblemTask) -> Outcome:
        """Return what became of a task; a worker that dies over it is replaced.

        Raises:
            ConsensusPRError: the worker cannot be started.
        """
        for _ in range(MAX_ATTEMPTS):
            process = self._process or self._start()
            try:
                outcome = _answer(process, task)
                assert isinstance(outcome, Outcome)
                return outcome
            except (OSError, EOFError, pickle.UnpicklingError):
                code = self._end()
            if -code in _TIME_IS_UP:
                return _failed(task, "time_limit", self._time_limit(-code))
        return _failed(task, "failed", f"its worker process {_how(code)}, twice")

    def kill(self) -> None:
        """End the process for good, also under a running :meth:`run` of another thread."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """End the process and wait for it; no :meth:`run` may be under way."""
        self.kill()
        if self._process is not None:
            self._end()

    def _time_limit(self, number: int) -> str:
        limit = self._stages.time_limit_s
        if number == signal.SIGPROF:
            return f"took more than {limit:g} s of processor time"
        return f"was not done after {CLOCK_FACTOR * limit:g} s"

    def _start(self) -> subprocess.Popen[bytes]:
        # A worker sees the packages that this process sees, however they came onto the path.
        path = os.pathsep.join(filter(None, sys.path))
        with self._lock:
            if self._closed:
                raise ConsensusPRError("the workers of the build are closed")
            try:
                process = self._process = subprocess.Popen(
                    [sys.executable, "-m", "consensusbench.construction.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": path},
                )
            except OSError as error:
                raise ConsensusPRError(
                    f"a worker process cannot be started: {error.strerror}"
                ) from error
        try:
            fault = _answer(process, self._stages)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise ConsensusPRError(
                f"a worker process {_how(self._end())} while it started"
            ) from None
        if fault is not None:
            self._end()
            raise ConsensusPRError(f"a worker process cannot load its stages: {fault}")
        return process

    def _end(self) -> int:
        """Wait for a process that ended or is of no use, and return its exit code."""
        with self._lock:
            process, self._process = self._process, None
        assert process is not None
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            try:
                stream.close()
            except OSError:  # what was still to be written has no reader any more
                continue
        try:
            return process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _failed(task: ProblemTask, reason: ExclusionReason, detail: str) -> Outcome:
    failure = Excluded(task.chosen.problem, reason, detail, "extract")
    return Outcome(task.chosen, failure=failure)


def _answer(process: subprocess.Popen[bytes], question: object) -> object:
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(question, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
    process.stdin.flush()
    return pickle.load(process.stdout)


def _how(code: int) -> str:
    """Return how a process ended, as the end of a sentence."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def work_here(items: Iterable[Item], stages: Stages, workers: int) -> Stream:
    """Work on tasks in worker processes of this machine; closing it ends them."""
    everyone = [WorkerProcess(stages) for _ in range(workers)]
    idle = deque(everyone)

    def work(task: ProblemTask) -> Outcome:
        # Threads and workers are as many, so that one is idle.
        worker = idle.pop()
        try:
            return worker.run(task)
        finally:
            idle.append(worker)

    threads = ThreadPoolExecutor(workers, "build")
    try:
        yield from in_order(items, lambda task: threads.submit(work, task), WINDOW * workers)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for worker in everyone:
            worker.kill()
        threads.shutdown(wait=True)
        for worker in everyone:
            worker.close()


OpenExtractor: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncExtractor]]
KeepExtraction: TypeAlias = Callable[[ProblemRollouts, Extraction], None]


def ask_model(
    items: Iterable[Item], open_extractor: OpenExtractor, in_flight: int, keep: KeepExtraction
) -> Stream:
    """Extract by asking a model; tasks with an extraction come back as it.

    Where no further problem has a chance, extractions that have begun are waited for and kept:
    their replies are being paid for.

    Args:
        items: at most :data:`MODEL_WINDOW` for each in flight are taken ahead.
        open_extractor: called in the event loop, entered before the first problem and left
            after the last.
        in_flight: problems that are extracted at once.
        keep: called with each extraction as soon as it is there.
    """
    extracting = _Extracting(in_flight, keep)

    def submit(task: ProblemTask) -> Future[Outcome]:
        if task.extraction is None:
            return extracting.begin(extracting.extract(task))
        given: Future[Outcome] = Future()
        given.set_result(Outcome(task.chosen, task.extraction))
        return given

    with extracting:
        extracting.begin(extracting.open(open_extractor())).result()
        try:
            yield from in_order(items, submit, MODEL_WINDOW * in_flight)
        except _NO_CHANCE as error:
            extracting.begin(extracting.finish(error)).result()
            raise
        finally:
            extracting.begin(extracting.close()).result()


class _Extracting:
    """An event loop in a thread, and the extractor that lives in it."""

    def __init__(self, in_flight: int, keep: KeepExtraction) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="extract", daemon=True)
        self._slots = asyncio.Semaphore(in_flight)
        self._keep = keep
        self._context: AbstractAsyncContextManager[AsyncExtractor] | None = None
        self._extractor: AsyncExtractor | None = None
        # Why no further extraction begins, once there is a reason.
        self._over: Exception | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, _Value]) -> Future[_Value]:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def open(self, context: AbstractAsyncContextManager[AsyncExtractor]) -> None:
        self._extractor = await context.__aenter__()
        self._context = context

    async def finish(self, reason: Exception) -> None:
        """Begin nothing more, and wait for what has begun."""
        self._over = self._over or reason
        await asyncio.gather(*_other_tasks(), return_exceptions=True)

    async def close(self) -> None:
        """End what is under way, and let go of the extractor once it has ended."""
        others = _other_tasks()
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._context is not None:
            await self._context.__aexit__(None, None, None)

    async def extract(self, task: ProblemTask) -> Outcome:
        assert self._extractor is not None, "the extractor is open"
        async with self._slots:
            if self._over is not None:
                raise self._over
            start = time.perf_counter()
            try:
                extraction = await self._extractor.extract(task.chosen.problem, task.rollouts)
            except _NO_CHANCE as error:
                self._over = error
                raise
            except ConsensusPRError as error:
                return _failed(task, "failed", str(error))
            self._keep(task.chosen, extraction)
            return Outcome(task.chosen, extraction, extract_s=time.perf_counter() - start)


def _other_tasks() -> set[asyncio.Task[Any]]:
    """Return the tasks of the running loop but the one that asks."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def work_on_ray(items: Iterable[Item], stages: Stages, folder: Path) -> Stream:
    """Work on tasks on a Ray cluster.

    Connects to the cluster that ``RAY_ADDRESS`` names or that runs on this machine, and starts
    one on this machine where there is none.  All items are taken before the first is worked on.

    Args:
        folder: of this machine, for the file of tasks.

    Raises:
        InputError: Ray is not installed.
        ConsensusPRError: the cluster failed, or a worker cannot be started.
    """
    # Here: what it imports is paid for by who asks for Ray.
    from consensuspr.ray.data import connected, work_on_parts

    with connected(), tempfile.NamedTemporaryFile(prefix="tasks-", dir=folder) as tasks:
        for part in batches(items, lambda item: (1, _num_chars(item)), PART_PROBLEMS, PART_CHARS):
            pickle.dump(part, tasks, protocol=pickle.HIGHEST_PROTOCOL)
        tasks.flush()
        if os.path.getsize(tasks.name):
            for part in work_on_parts("building", tasks.name, _read_parts, _working, (stages,)):
                yield from part


def _read_parts(path: str) -> Iterator[list[Item]]:
    with open(path, "rb") as stream:
        while True:
            try:
                yield pickle.load(stream)
            except EOFError:
                return


def _working(stages: Stages) -> Callable[[list[Item]], list[Item]]:
    """Return what works on parts on one core."""
    worker = WorkerProcess(stages)
    return lambda part: [worker.run(one) if isinstance(one, ProblemTask) else one for one in part]
