"""The work on one problem (extract, refine), and who does it: processes, a model, a Ray cluster.

:func:`run_task` is a pure function of task and stages, so that every engine and every number of
workers gives the same outcome.  Every engine returns outcomes in the order of its items, with few
under way at once.
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
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pebble import ProcessExpired, ProcessPool

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
# How soon a wait notices that all worker processes were killed.
_LOOK_S = 0.5
# So many times its limit of CPU time may a problem take on a busy machine, or asleep.
_PATIENCE = 20.0
# After these no other problem has a chance either.
_NO_CHANCE = (BudgetSpent, ModelNoAccess, InputError, VerifierUnavailable)
# On Ray, problems that travel together.
PART_PROBLEMS = 16
PART_CHARS = 4 << 20
# A median place, to a thousandth of a solution; more digits would be noise in the file.
POSITION_DECIMALS = 3

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Stages:
    """What is done with every task of a build.

    Attributes:
        extractor: None where all tasks carry their extraction.
        refiner: None where the build ends with stage 2.
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
            extraction = stages.extractor.extract(task.chosen.problem, task.rollouts)
        if stages.refiner is None:
            return Outcome(task.chosen, extraction)
        # Without what stage 2 dropped: the audit has it from there.
        refined = stages.refiner.refine(
            task.chosen.problem, Extraction(extraction.candidates), len(task.chosen.sampled)
        )
        nodes = tuple(node_of(one, number) for number, one in enumerate(refined.candidates, 1))
        return Outcome(task.chosen, extraction, nodes, refined.dropped)
    except Exception as error:  # of one problem
        if os.environ.get("CONSENSUSPR_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        known = isinstance(error, ConsensusPRError)
        detail = str(error) if known else f"{type(error).__name__}: {error}"
        stage: Stage = "extract" if extraction is None else "refine"
        failure = Excluded(task.chosen.problem, "failed", detail, stage)
        return Outcome(task.chosen, extraction, failure=failure)


def node_of(candidate: Candidate, number: int) -> Node:
    """Return a candidate as the n-th node of its problem."""
    return Node(
        node_id=f"n{number}",
        label=candidate.label,
        type=candidate.type,
        expressions=candidate.expressions,
        # Also where there is none: a server derives forms only for nodes without the key.
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
    return sum(len(one.response) for one in getattr(item, "rollouts", ()))


class Pending(Protocol):
    """Work on a task that has begun."""

    def done(self) -> bool:
        """Return whether the outcome is there."""

    def result(self) -> Outcome:
        """Wait for the outcome."""


def in_order(
    items: Iterable[Item], submit: Callable[[ProblemTask], Pending | Finished], window: int
) -> Iterator[Finished]:
    """Yield what became of each item, in order; what is finished passes through.

    What is finished is not held back, because it is not on disk before it is yielded.

    Args:
        items: taken as room comes up.
        submit: begins the work on a task.
        window: items that may be under way, or wait for one before them, while their texts are
            within :data:`MAX_WAITING_CHARS`.
    """
    waiting: deque[tuple[Pending | Finished, int]] = deque()
    num_chars = 0

    def pop() -> Finished:
        nonlocal num_chars
        first, size = waiting.popleft()
        num_chars -= size
        return first if isinstance(first, Finished) else first.result()

    for item in items:
        size = _num_chars(item)
        while waiting and (
            len(waiting) >= window
            or num_chars + size > MAX_WAITING_CHARS
            or _is_finished(waiting[0][0])
        ):
            yield pop()
        num_chars += size
        waiting.append((submit(item) if isinstance(item, ProblemTask) else item, size))
    while waiting:
        yield pop()


def _is_finished(one: Pending | Finished) -> bool:
    return isinstance(one, Finished) or one.done()


def _failed(task: ProblemTask, reason: ExclusionReason, detail: str) -> Outcome:
    stage: Stage = "extract" if task.extraction is None else "refine"
    failure = Excluded(task.chosen.problem, reason, detail, stage)
    return Outcome(task.chosen, task.extraction, failure=failure)


class Workers:
    """Processes that run tasks, each for a limited time; a context manager.

    The limit is CPU time, so that problems end alike on a busy and on an idle machine.
    """

    def __init__(self, stages: Stages, workers: int) -> None:
        self.stages = stages
        self._workers = workers
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(self._workers, context=ChildContext(__name__))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def work(self, items: Iterable[Item]) -> Iterator[Finished]:
        """Yield what becomes of each item, in order."""
        return in_order(items, lambda task: _Running(self, task), WINDOW * self._workers)

    def schedule(self, given: bytes) -> tuple[ProcessPool, Future[Outcome]]:
        """Begin a pickled task; return the pool that runs it too.

        Raises:
            ConsensusPRError: the processes cannot start.
        """
        limit_s = self.stages.time_limit_s
        arguments, most_s = (given, limit_s), _PATIENCE * limit_s
        try:
            return self._pool, self._pool.schedule(_run_pickled, arguments, timeout=most_s)
        except RuntimeError:  # the pool ended because its processes were killed
            self._stop()
            self._pool = self._new_pool()
        try:
            return self._pool, self._pool.schedule(_run_pickled, arguments, timeout=most_s)
        except RuntimeError as error:
            raise ConsensusPRError(
                "the worker processes cannot start; standard error has the reason"
            ) from error


class _Running:
    """A task in worker processes; it runs once more if its process is killed."""

    def __init__(self, workers: Workers, task: ProblemTask) -> None:
        self._workers = workers
        self._task = task
        # Pickled here: what cannot be unpickled there is an error of the task, not of the pool.
        self._given = pickle.dumps((workers.stages, task), pickle.HIGHEST_PROTOCOL)
        self._pool, self._future = workers.schedule(self._given)

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> Outcome:
        try:
            return self._wait()
        except (ProcessExpired, BrokenProcessPool):
            # Perhaps for the memory that another problem took.
            self._pool, self._future = self._workers.schedule(self._given)
        try:
            return self._wait()
        except ProcessExpired as error:
            detail = f"its worker process ended ({error.exitcode})"
        except BrokenProcessPool:
            detail = "all worker processes were killed"
        return _failed(self._task, "failed", detail)

    def _wait(self) -> Outcome:
        # Pebble never ends a future that its pool had not taken up when the pool ended.
        while self._pool.active and not self._future.done():
            wait((self._future,), _LOOK_S)
        if not self._future.done():
            raise BrokenProcessPool
        limit_s = self._workers.stages.time_limit_s
        try:
            return self._future.result()
        except TimeoutError:
            detail = f"took more than {_PATIENCE * limit_s:g} s on the clock"
            return _failed(self._task, "time_limit", detail)
        except ProcessExpired as error:
            if error.exitcode != -signal.SIGPROF:
                raise
            detail = f"took more than {limit_s:g} s of CPU time"
            return _failed(self._task, "time_limit", detail)
        except (ImportError, AttributeError) as error:
            raise ConsensusPRError(
                f"a worker process cannot load its stages: {type(error).__name__}: {error}"
            ) from error


def _run_pickled(given: bytes, cpu_s: float) -> Outcome:
    stages, task = pickle.loads(given)
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


def ask_model(items: Iterable[Item], extractor: AsyncExtractor) -> Stream:
    """Extract by asking a model; tasks with an extraction come back as it.

    The extractor runs in an event loop in a thread of its own, because reading rollouts and
    verifying their answers blocks.  If no further problem has a chance, extractions that have begun
    are waited for: their replies are being paid for.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="extract", daemon=True)
    slots = asyncio.Semaphore(extractor.in_flight)
    over: list[Exception] = []

    def begin(work: Coroutine[Any, Any, _Value]) -> Future[_Value]:
        return asyncio.run_coroutine_threadsafe(work, loop)

    async def extract(task: ProblemTask) -> Outcome:
        async with slots:
            if over:
                raise over[0]
            try:
                found = await extractor.extract(task.chosen.problem, task.rollouts)
            except _NO_CHANCE as error:
                over.append(error)
                raise
            except ConsensusPRError as error:
                return _failed(task, "failed", str(error))
            return Outcome(task.chosen, found)

    async def finish(cancel: bool) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            if cancel:
                one.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def submit(task: ProblemTask) -> Future[Outcome] | Outcome:
        if task.extraction is not None:
            return Outcome(task.chosen, task.extraction)
        return begin(extract(task))

    thread.start()
    try:
        yield from in_order(items, submit, MODEL_WINDOW * extractor.in_flight)
    except _NO_CHANCE as error:
        over.append(error)
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
