"""The work on one problem (extract, refine), and its engines: processes, a model, a Ray cluster.

:func:`run_task` is a pure function of task and stages, so that every engine and every number of
workers gives the same outcome.  Every engine returns outcomes in the order of its items.
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
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from consensusbench.construction.types import (
    DEFAULT_TIME_LIMIT_S,
    Excluded,
    ExclusionReason,
    Finished,
    Item,
    Outcome,
    ProblemTask,
    Stage,
    Stream,
)
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

# Of texts under way; a single task may be larger, but then it is alone.
MAX_WAITING_CHARS = 256 << 20
# Tasks under way for each worker: one slow problem must not keep the others waiting.
WINDOW = 8
# Problems that may wait for a slow one before them, for each that a model is asked about.
MODEL_WINDOW = 4
# A problem may take so many times its limit of CPU time on a busy machine, or asleep.
_PATIENCE = 20.0
# Errors after which no other problem can succeed either.
_NO_CHANCE = (BudgetSpent, ModelNoAccess, InputError, VerifierUnavailable)
# On Ray, problems that travel together.
PART_PROBLEMS = 16
PART_CHARS = 4 << 20
# A median place, to a thousandth of a solution; more digits would be noise in the file.
POSITION_DECIMALS = 3

_Value = TypeVar("_Value")
_Result = TypeVar("_Result", bound=Item)


@dataclass(frozen=True, slots=True)
class Stages:
    """What is done with every task of a build.

    Attributes:
        extractor: None if all tasks carry their extraction.
        refiner: None if the build ends with stage 2.
        time_limit_s: seconds of CPU time that one problem may take.
    """

    extractor: Extractor | None
    refiner: Refiner | None
    time_limit_s: float = DEFAULT_TIME_LIMIT_S


def run_task(stages: Stages, task: ProblemTask) -> Outcome:
    """Do the work on one problem; an error of a stage becomes a failure."""
    extraction = task.extraction
    try:
        if extraction is None:
            assert stages.extractor is not None, "a task without extraction needs an extractor"
            extraction = stages.extractor.extract(task.problem, task.rollouts)
        if stages.refiner is None:
            return Outcome(task.problem, task.record, extraction)
        # Without what stage 2 dropped: the audit has it from there.
        candidates = Extraction(extraction.candidates)
        refined = stages.refiner.refine(task.problem, candidates, len(task.record.rollouts))
        nodes = tuple(node_of(found, number) for number, found in enumerate(refined.candidates, 1))
        return Outcome(task.problem, task.record, extraction, nodes, refined.dropped)
    except Exception as error:  # of one problem
        if os.environ.get("CONSENSUSPR_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        known = isinstance(error, ConsensusPRError)
        detail = str(error) if known else f"{type(error).__name__}: {error}"
        return _failed(replace(task, extraction=extraction), "failed", detail)


def _failed(task: ProblemTask, reason: ExclusionReason, detail: str) -> Outcome:
    stage: Stage = "extract" if task.extraction is None else "refine"
    failure = Excluded(task.problem, reason, detail, stage)
    return Outcome(task.problem, task.record, task.extraction, failure=failure)


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
        extra={
            "num_models": candidate.num_models,
            "position": round(candidate.position, POSITION_DECIMALS),
        },
    )


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


def _num_chars(item: Item) -> int:
    return sum(len(rollout.response) for rollout in getattr(item, "rollouts", ()))


def in_order(
    items: Iterable[Item],
    submit: Callable[[ProblemTask], Future[_Result] | _Result],
    window: int,
) -> Iterator[_Result | Finished]:
    """Yield what became of each item, in order, as soon as it is finished.

    Args:
        items: taken as room comes up; finished ones pass through.
        submit: begins the work on a task.
        window: items that may be under way, or wait for one before them, while their texts are
            within :data:`MAX_WAITING_CHARS`.
    """
    waiting: deque[tuple[Future[_Result] | _Result | Finished, int]] = deque()
    num_chars = 0

    def pop() -> _Result | Finished:
        nonlocal num_chars
        first, size = waiting.popleft()
        num_chars -= size
        return first.result() if isinstance(first, Future) else first

    def is_first_done() -> bool:
        first, _ = waiting[0]
        return not isinstance(first, Future) or first.done()

    for item in items:
        size = _num_chars(item)
        while waiting and (
            len(waiting) >= window or num_chars + size > MAX_WAITING_CHARS or is_first_done()
        ):
            yield pop()
        num_chars += size
        waiting.append((submit(item) if isinstance(item, ProblemTask) else item, size))
    while waiting:
        yield pop()


class Workers:
    """Processes that run tasks, each for a limited time; a context manager.

    Each process has a pipe and a waiting thread of its own.  No lock is shared, so that a process
    that is killed stops nothing else.  The limit is CPU time, so that problems end alike on a busy
    and on an idle machine.
    """

    def __init__(self, stages: Stages, workers: int) -> None:
        self._stages = stages
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

    def work(self, items: Iterable[Item]) -> Iterator[Finished]:
        """Yield what becomes of each item, in order."""

        def submit(task: ProblemTask) -> Future[Outcome] | Outcome:
            if task.extraction is not None and self._stages.refiner is None:
                return run_task(self._stages, task)
            return self._threads.submit(self._run, task)

        return in_order(items, submit, self._window)

    def _run(self, task: ProblemTask) -> Outcome:
        """Run a task in the process of this thread, once more if the process is killed."""
        given = pickle.dumps((self._stages, task), pickle.HIGHEST_PROTOCOL)
        limit_s = self._stages.time_limit_s
        detail = ""
        for _ in range(2):  # perhaps it was killed for the memory that another problem took
            try:
                worker = self._worker()
            except OSError as error:  # no memory, or no process left
                raise ConsensusPRError(f"a worker process cannot start: {error}") from None
            try:
                return worker.run(given, limit_s)
            except TimeoutError:
                worker.process.kill()
                worker.end()
                detail = f"took more than {_PATIENCE * limit_s:g} s on the clock"
                return _failed(task, "time_limit", detail)
            except (EOFError, OSError):
                exit_code = worker.end()
            if exit_code == -signal.SIGPROF:
                detail = f"took more than {limit_s:g} s of CPU time"
                return _failed(task, "time_limit", detail)
            detail = f"its worker process ended ({exit_code})"
        return _failed(task, "failed", detail)

    def _worker(self) -> _WorkerProcess:
        worker: _WorkerProcess | None = getattr(self._own, "worker", None)
        if worker is None or worker.is_ended:
            with self._lock:
                if self._is_closed:
                    raise RuntimeError("the workers are closed")
                worker = self._own.worker = _WorkerProcess()
                self._processes.append(worker)
        return worker


class _WorkerProcess:
    """A process that runs one task after the other."""

    def __init__(self) -> None:
        context = ChildContext(__name__)
        self._pipe, its_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(its_end,), daemon=True)
        self.process.start()
        # Else its death would not end the pipe.
        its_end.close()
        self.is_ended = False

    def run(self, given: bytes, limit_s: float) -> Outcome:
        """Run a pickled task.

        Raises:
            TimeoutError: it takes too long on the clock.
            EOFError, OSError: the process ended.
            ConsensusPRError: the process cannot load the stages.
        """
        self._pipe.send((given, limit_s))
        if not self._pipe.poll(_PATIENCE * limit_s):
            raise TimeoutError
        reply = self._pipe.recv()
        if isinstance(reply, str):
            raise ConsensusPRError(f"a worker process cannot load its stages: {reply}")
        assert isinstance(reply, Outcome), "a worker replies with an outcome"
        return reply

    def end(self) -> int | None:
        """End the process if it runs, and return its exit code."""
        if not self.is_ended:
            self._pipe.close()
            self.process.join(0.5)
            self.process.kill()
            self.process.join()
            self.is_ended = True
        return self.process.exitcode


def _serve(pipe: Connection) -> None:
    """Run the tasks that come through a pipe, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    try:
        while True:
            given, limit_s = pipe.recv()
            pipe.send(_run_pickled(given, limit_s))
    except (EOFError, BrokenPipeError):
        return


def _run_pickled(given: bytes, cpu_s: float) -> Outcome | str:
    """Run a task; return its outcome, or why it cannot be loaded."""
    try:
        stages, task = pickle.loads(given)
    except (ImportError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    # The kernel ends this process when the time is up, in the middle of C code too.
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        return run_task(stages, task)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def work_here(items: Iterable[Item], stages: Stages, workers: int) -> Stream:
    """Work on tasks in processes of this machine."""
    with Workers(stages, workers) as pool:
        yield from pool.work(items)


def ask_model(items: Iterable[Item], extractor: AsyncExtractor) -> Generator[Item, None, None]:
    """Give tasks their extraction by asking a model.

    The extractor runs in an event loop in a thread of its own, because reading rollouts and
    verifying their answers blocks.  If no further problem can succeed, extractions that have begun
    are waited for: their replies are being paid for.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="extract", daemon=True)
    slots = asyncio.Semaphore(extractor.in_flight)
    fatal: list[Exception] = []

    def begin(work: Coroutine[Any, Any, _Value]) -> Future[_Value]:
        return asyncio.run_coroutine_threadsafe(work, loop)

    async def extract(task: ProblemTask) -> Item:
        async with slots:
            if fatal:
                raise fatal[0]
            try:
                found = await extractor.extract(task.problem, task.rollouts)
            except _NO_CHANCE as error:
                fatal.append(error)
                raise
            except ConsensusPRError as error:
                return _failed(task, "failed", str(error))
            return replace(task, rollouts=(), extraction=found)

    async def finish(cancel: bool) -> None:
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending if cancel else ():
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def submit(task: ProblemTask) -> Future[Item] | Item:
        return begin(extract(task)) if task.extraction is None else task

    thread.start()
    try:
        yield from in_order(items, submit, MODEL_WINDOW * extractor.in_flight)
    except _NO_CHANCE as error:
        fatal.append(error)
        begin(finish(cancel=False)).result()
        raise
    finally:
        begin(finish(cancel=True)).result()
        begin(extractor.close()).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def work_on_ray(items: Iterable[Item], stages: Stages, folder: Path) -> Stream:
    """Work on tasks on a Ray cluster; all items are taken before the first is worked on.

    Each core has a worker process of its own, so that time limits and crashes are as on one
    machine.  consensuspr and the module of the extractor must be installed on every node.

    Args:
        folder: of this machine, for the file of tasks.

    Raises:
        InputError: Ray is not installed.
        ConsensusPRError: the cluster failed, or a worker cannot be started.
    """
    from consensuspr.ray.data import connected, work_on_parts

    with connected(), tempfile.NamedTemporaryFile(prefix=".tasks-", dir=folder) as tasks:
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


def _working(stages: Stages) -> Callable[[list[Item]], list[Finished]]:
    """Return what works on parts on one core."""
    pool = Workers(stages, 1)
    return lambda part: list(pool.work(part))
