"""Work that ends in any order, given back in the order in which it was begun."""

from __future__ import annotations

import asyncio
import logging
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
from typing import Any, NamedTuple, Self

from consensusbench.construction.types import (
    CLOCK_FACTOR,
    TIME_IS_UP,
    Failure,
    Finished,
    Group,
    Item,
    Result,
    Stream,
    Task,
)
from consensusbench.construction.worker import Plan
from consensusbench.extraction.types import AsyncExtractor, Extraction
from consensuspr.errors import (
    BudgetSpent,
    ConsensusPRError,
    InputError,
    ModelNoAccess,
    VerifierUnavailable,
)
from consensuspr.ray.node import require_ray

# Of texts under way; a single task may be larger, but then it is alone.
MAX_WAITING_CHARS = 256 << 20


class _Pending(NamedTuple):
    group: Group
    future: Future[Result]
    num_chars: int


def in_order(
    items: Iterable[Item], submit: Callable[[Task], Future[Result]], window: int
) -> Iterator[Finished]:
    """Yield what became of each item, in order.

    Args:
        items: tasks are submitted as room comes up; what is finished passes through.
        submit: begins the work on a task.
        window: items that may be under way, or wait for one before them, while their texts are
            within :data:`MAX_WAITING_CHARS`.

    Raises:
        Whatever a future raises.
    """
    waiting: deque[_Pending | Finished] = deque()
    num_chars = 0
    for item in items:
        size = item.num_chars if isinstance(item, Task) else 0
        while waiting and (
            len(waiting) >= window or num_chars + size > MAX_WAITING_CHARS or _is_done(waiting[0])
        ):
            num_chars -= _size(waiting[0])
            yield _result(waiting.popleft())
        num_chars += size
        waiting.append(_Pending(item.group, submit(item), size) if isinstance(item, Task) else item)
    while waiting:
        yield _result(waiting.popleft())


def _size(entry: _Pending | Finished) -> int:
    return entry.num_chars if isinstance(entry, _Pending) else 0


def _is_done(entry: _Pending | Finished) -> bool:
    return not isinstance(entry, _Pending) or entry.future.done()


def _result(entry: _Pending | Finished) -> Finished:
    return (entry.group, entry.future.result()) if isinstance(entry, _Pending) else entry


# MERGED Worker processes: started, given tasks, replaced where a problem ended one.
#
# Plain processes and pipes instead of :mod:`multiprocessing` or :mod:`concurrent.futures`: those
# import the caller's main script again or fork a process that holds threads, and neither can say
# which task was at fault when a worker dies, nor end one that never returns.

# Tasks under way for each worker: the next one must be there when a worker is done, and one
# slow problem must not keep the others waiting for the order of the output.
WINDOW = 8

# A worker that dies may have been ended from outside, for memory that another process took.
MAX_ATTEMPTS = 2


class WorkerProcess:
    """One worker, given one task at a time; started at the first.

    Args:
        plan: the same for all tasks.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def run(self, task: Task) -> Result:
        """Return what became of a task; a worker that dies over it is replaced.

        Raises:
            ConsensusPRError: the worker cannot be started.
        """
        for _ in range(MAX_ATTEMPTS):
            process = self._process or self._start()
            try:
                return self._ask(process, task)
            except (OSError, EOFError, pickle.UnpicklingError):
                code = self._end()
            if -code in TIME_IS_UP:
                return Result(failure=Failure("time_limit", self._time_limit(-code)))
        return Result(failure=Failure("failed", f"its worker process {_how(code)}, twice"))

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
        limit = self._plan.time_limit_s
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
            fault = _answer(process, self._plan)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise ConsensusPRError(
                f"a worker process {_how(self._end())} while it started"
            ) from None
        if fault is not None:
            self._end()
            raise ConsensusPRError(f"a worker process cannot load its plan: {fault}")
        return process

    @staticmethod
    def _ask(process: subprocess.Popen[bytes], task: Task) -> Result:
        result = _answer(process, task)
        assert isinstance(result, Result)
        return result

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


class LocalEngine:
    """Runs tasks in worker processes of this machine.

    Args:
        plan: what is done with each.
        workers: processes, 1 or more.
    """

    def __init__(self, plan: Plan, workers: int) -> None:
        self._plan = plan
        self._workers = workers

    def run(self, items: Iterable[Item]) -> Stream:
        """Yield what became of each item, in order; few are under way at once.

        Raises:
            ConsensusPRError: a worker cannot be started.
        """
        everyone = [WorkerProcess(self._plan) for _ in range(self._workers)]
        idle = deque(everyone)

        def work(task: Task) -> Result:
            # Threads and workers are as many, so that one is idle.
            worker = idle.pop()
            try:
                return worker.run(task)
            finally:
                idle.append(worker)

        threads = ThreadPoolExecutor(self._workers, "build")
        try:
            window = WINDOW * self._workers
            yield from in_order(items, lambda task: threads.submit(work, task), window)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in everyone:
                worker.kill()
            threads.shutdown(wait=True)
            for worker in everyone:
                worker.close()


# MERGED Stage 2 by a model: many problems wait for its replies at once, in one event loop.
#
# The loop runs in a thread of its own, because the other side, which reads rollouts and verifies
# their answers, blocks.  An extraction is in the journal before anything else is done with it: it
# was paid for.

# Problems that may wait for a slow one before them, for each that is being extracted.
LLM_ENGINE_WINDOW = 4

# After these no other problem has a chance either.
_HOPELESS = (BudgetSpent, ModelNoAccess, InputError, VerifierUnavailable)


class LlmEngine:
    """Extracts by asking a model.

    Args:
        open_extractor: called in the event loop, entered before the first problem and left
            after the last.
        in_flight: problems that are extracted at once.
        keep: called with each extraction as soon as it is there.
    """

    def __init__(
        self,
        open_extractor: Callable[[], AbstractAsyncContextManager[AsyncExtractor]],
        in_flight: int,
        keep: Callable[[Group, Extraction], None],
    ) -> None:
        self._open_extractor = open_extractor
        self._in_flight = in_flight
        self._keep = keep

    def run(self, items: Iterable[Item]) -> Stream:
        """Yield what became of each item, in order; tasks with an extraction come back as it.

        Raises:
            BudgetSpent: a limit leaves no further request; what is done is kept.
            ModelNoAccess: the model takes no request at all.

        Where no further problem has a chance, extractions that have begun are waited for and
        kept: their replies are being paid for.
        """
        with _Loop() as loop:
            extracting = _Extracting(self._in_flight, self._keep)
            loop.call(extracting.open(self._open_extractor()))
            try:
                yield from in_order(
                    items,
                    lambda task: _given(task) or loop.submit(extracting.extract(task)),
                    LLM_ENGINE_WINDOW * self._in_flight,
                )
            except _HOPELESS as error:
                loop.call(extracting.finish(error))
                raise
            finally:
                loop.cancel_all()
                loop.call(extracting.close())


class _Extracting:
    """The side of the event loop."""

    def __init__(self, in_flight: int, keep: Callable[[Group, Extraction], None]) -> None:
        self._slots = asyncio.Semaphore(in_flight)
        self._keep = keep
        self._context: AbstractAsyncContextManager[AsyncExtractor] | None = None
        self._extractor: AsyncExtractor | None = None
        # Why no further extraction begins, once there is a reason.
        self._over: Exception | None = None

    async def open(self, context: AbstractAsyncContextManager[AsyncExtractor]) -> None:
        self._extractor = await context.__aenter__()
        self._context = context

    async def finish(self, reason: Exception) -> None:
        """Begin nothing more, and wait for what has begun."""
        self._over = self._over or reason
        await asyncio.gather(*_others(), return_exceptions=True)

    async def close(self) -> None:
        if self._context is not None:
            await self._context.__aexit__(None, None, None)

    async def extract(self, task: Task) -> Result:
        assert self._extractor is not None, "the extractor is open"
        async with self._slots:
            if self._over is not None:
                raise self._over
            start = time.perf_counter()
            try:
                extraction = await self._extractor.extract(task.group.problem, task.rollouts)
            except _HOPELESS as error:
                self._over = error
                raise
            except ConsensusPRError as error:
                return Result(failure=Failure("failed", str(error)))
            self._keep(task.group, extraction)
            return Result(extraction, extract_s=time.perf_counter() - start)


def _given(task: Task) -> Future[Result] | None:
    """Return the result of a task that needs no extraction."""
    if task.extraction is None:
        return None
    done: Future[Result] = Future()
    done.set_result(Result(task.extraction))
    return done


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="extract", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def cancel_all(self) -> None:
        """End what is under way, and wait until it has."""
        self.call(_cancel_others())


def _others() -> set[asyncio.Task[Any]]:
    """Return the tasks of the running loop but the one that asks."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def _cancel_others() -> None:
    others = _others()
    for one in others:
        one.cancel()
    await asyncio.gather(*others, return_exceptions=True)


# MERGED Tasks run by all cores of a Ray cluster, through Ray Data.
#
# ::
#
#     tasks on disk ──▶ read (one task of Ray, on this node) ──▶ work (an actor a core, all nodes)
#                                                               └─▶ this process, in order
#
# The tasks are written to one file first, since Ray Data reads where it pleases and this process
# verifies answers meanwhile.  An actor has a worker process of its own, the same that runs
# problems on one machine: limits, and what a problem that ends its process leaves, are the same.
# A node that dies takes nothing along; its problems are worked on elsewhere.
#
# consensuspr and the module of the extractor must be installed on every node.

# Problems that travel together; enough that the hops cost little beside the work.
PART_PROBLEMS = 16
PART_CHARS = 4 << 20

_COLUMN = "part"


class RayEngine:
    """Runs tasks on a Ray cluster.

    Connects to the cluster that ``RAY_ADDRESS`` names or that runs on this machine, and starts
    one on this machine where there is none.

    Args:
        plan: what is done with each.
        folder: of this machine, for the file of tasks.

    Raises:
        InputError: Ray is not installed.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._ray = require_ray()
        require_ray("ray.data")
        self._plan = plan
        self._folder = folder

    def run(self, items: Iterable[Item]) -> Stream:
        """Yield what became of each item, in order.

        Raises:
            ConsensusPRError: the cluster failed, or a worker cannot be started.
        """
        with tempfile.NamedTemporaryFile(prefix="tasks-", dir=self._folder) as tasks:
            if not _write_parts(items, tasks):
                return
            tasks.flush()
            ray = self._ray
            if not ray.is_initialized():
                ray.init(log_to_driver=False, logging_level=logging.ERROR)
            # Its plans and bars are of no interest; what fails is raised.
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            try:
                for batch in self._dataset(tasks.name).iter_batches(
                    batch_size=1, batch_format="pyarrow", prefetch_batches=1
                ):
                    yield from _value(batch)
            except ray.exceptions.RayError as error:
                said = str(error).strip().splitlines()
                raise ConsensusPRError(
                    f"building on Ray failed: {said[-1] if said else error!r}"
                ) from error

    def _dataset(self, path: str) -> Any:
        """Return the Ray dataset whose only column holds the finished parts, one a row."""
        ray = self._ray
        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        context = ray.data.DataContext.get_current().copy()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        # Every part is a block of its own, and with it a unit of work.
        context.target_max_block_size = 1
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        with ray.data.DataContext.current(context):
            return (
                ray.data.from_items([{"path": path}], override_num_blocks=1)
                # Without a core of its own, which would keep one of a small node from working.
                .map_batches(
                    _read, batch_size=1, batch_format="pyarrow", num_cpus=0, label_selector=here
                )
                .map_batches(
                    _Work,
                    batch_size=1,
                    batch_format="pyarrow",
                    compute=ray.data.ActorPoolStrategy(min_size=1, max_size=cores),
                    num_cpus=1,
                    fn_constructor_args=(pickle.dumps(self._plan),),
                )
            )


def _write_parts(items: Iterable[Item], stream: Any) -> int:
    """Write items in parts that are bounded in number and length; return how many parts."""
    part: list[Item] = []
    num_chars = parts = 0
    for item in items:
        part.append(item)
        if isinstance(item, Task):
            num_chars += item.num_chars
        if len(part) >= PART_PROBLEMS or num_chars >= PART_CHARS:
            pickle.dump(part, stream, protocol=pickle.HIGHEST_PROTOCOL)
            part, num_chars, parts = [], 0, parts + 1
    if part:
        pickle.dump(part, stream, protocol=pickle.HIGHEST_PROTOCOL)
        parts += 1
    return parts


def _read(batch: Any) -> Iterator[Any]:
    """Read the file of tasks and yield its parts."""
    with open(batch.column("path")[0].as_py(), "rb") as stream:
        while True:
            try:
                part = pickle.load(stream)
            except EOFError:
                return
            yield _table(part)


class _Work:
    """Works on parts on one core.

    Args:
        plan: pickled, what is done with each task.
    """

    def __init__(self, plan: bytes) -> None:
        self._worker = WorkerProcess(pickle.loads(plan))

    def __call__(self, batch: Any) -> Any:
        return _table([self._finished(item) for item in _value(batch)])

    def _finished(self, item: Item) -> Finished:
        return (item.group, self._worker.run(item)) if isinstance(item, Task) else item


def _table(value: object) -> Any:
    import pyarrow as pa

    return pa.table({_COLUMN: pa.array([pickle.dumps(value)], pa.large_binary())})


def _value(batch: Any) -> Any:
    return pickle.loads(batch.column(_COLUMN)[0].as_buffer())
