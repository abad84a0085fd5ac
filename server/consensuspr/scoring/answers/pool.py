"""Slow comparisons in worker processes: fair, sliced, killed when their time is up.

How long an answer can wait
    Each comparison first runs for a short slice in the *fast lane*, where all but a few
    finish (median 6 ms, slowest published pair 0.3 s).  What does not is killed and starts
    again in the *slow lane*, where it may spend the rest of its budget.  So a poisonous
    answer holds the fast lane for one slice and never again; in the slow lane it waits for
    at most two budgets more, then it is given up as ``load``.
Who goes first
    Within a lane, the call (one ``verify_batch``) that has used the least worker time so
    far: a batch full of poison slows itself, not its neighbours.
Processes
    ``workers`` for each lane, and the template that they are forked from.

Deliberately absent: cancelling a comparison that runs (its slice bounds it) and scaling by
load (the fast path takes all but a percent of the answers).
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from consensuspr.errors import VerifierUnavailable
from consensuspr.scoring.answers.cache import Key, Outcome
from consensuspr.scoring.answers.frames import FrameClosed, FrameTimeout
from consensuspr.scoring.answers.processes import Template, TemplateGone, Worker

# An eighth of the budget: 0.25 s by default.
FIRST_SLICE = 1 / 8
# Workers are renewed, so that caches inside SymPy and ANTLR stay small.
_TASKS_PER_WORKER = 2000
# Slices are CPU time.  On a machine that is busy otherwise they may take so many times as
# long, then the comparison is stopped and the machine to blame, not the answer.
_PATIENCE = 3.0
# A demoted comparison waits for so many budgets at most.
_MAX_WAIT = 2.0


@dataclass(slots=True)
class Call:
    """One caller's comparisons, with the worker seconds that they have taken."""

    spent_s: float = 0.0


@dataclass(slots=True)
class Task:
    """One comparison on its way."""

    key: Key
    call: Call
    future: Future[Outcome] = field(default_factory=Future)
    demoted_at: float = 0.0
    retried: bool = False


class _Lane:
    """Waiting tasks, by call; the call with the least time spent is served first."""

    def __init__(self, slice_s: float) -> None:
        self.slice_s = slice_s
        self._waiting: dict[int, tuple[Call, deque[Task]]] = {}

    def push(self, task: Task) -> None:
        _, tasks = self._waiting.setdefault(id(task.call), (task.call, deque()))
        tasks.append(task)

    def pop(self) -> Task | None:
        if not self._waiting:
            return None
        call, tasks = min(self._waiting.values(), key=lambda waiting: waiting[0].spent_s)
        task = tasks.popleft()
        if not tasks:
            del self._waiting[id(call)]
        return task

    def drain(self) -> list[Task]:
        tasks = [task for _, waiting in self._waiting.values() for task in waiting]
        self._waiting.clear()
        return tasks


class SymbolicPool:
    """Compares answers in worker processes; starts at the first task.  Thread-safe.

    Args:
        workers: processes per lane (>= 1).
        budget_s: CPU seconds that one comparison may take in all.
        memory_limit_bytes: address space of one worker.
    """

    def __init__(self, workers: int, budget_s: float, memory_limit_bytes: int) -> None:
        self._workers = workers
        self._budget_s = budget_s
        self._template = Template(memory_limit_bytes)
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        first = self._budget_s * FIRST_SLICE
        self._fast = _Lane(first)
        self._slow = _Lane(self._budget_s - first)
        self._threads: list[threading.Thread] = []
        self._live: set[Worker] = set()
        self._closed = False
        self.processes_started = 0

    def submit(self, key: Key, call: Call) -> Future[Outcome]:
        """Queue a comparison.

        Its future ends with an outcome, or with VerifierUnavailable where no worker can be
        had.  Cancelling it works until it is first started.

        Raises:
            VerifierUnavailable: the pool is closed.
        """
        task = Task(key, call)
        with self._changed:
            if self._closed:
                raise VerifierUnavailable("the answer verifier is closed")
            self._fast.push(task)
            if not self._threads:
                self._start_threads()
            self._changed.notify_all()
        return task.future

    def close(self) -> None:
        """End all processes and threads; what still waits ends with VerifierUnavailable."""
        with self._changed:
            self._closed = True
            left = self._fast.drain() + self._slow.drain()
            for worker in self._live:
                worker.interrupt()
            self._changed.notify_all()
        _fail(left, VerifierUnavailable("the answer verifier was closed"))
        for thread in self._threads:
            thread.join()
        self._template.close()

    def forget(self) -> None:
        """Start anew in a process forked from the one that this pool's processes belong to."""
        for worker in self._live:
            worker.forget()
        self._template.forget()
        self._reset()

    def _start_threads(self) -> None:
        for lane in (self._fast, self._slow):
            for _ in range(self._workers):
                thread = threading.Thread(
                    target=self._serve, args=(lane,), name="answer-pool", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def _serve(self, lane: _Lane) -> None:
        """Run one lane's tasks on one worker process after the other."""
        worker: Worker | None = None
        done = 0
        while (task := self._next(lane)) is not None:
            try:
                worker = self._run(task, lane, worker)
            except Exception as error:
                # A defect of ours: its caller sees it, and the thread lives on.
                _settle(task, error)
                worker = None
            done += 1
            if worker is not None and done % _TASKS_PER_WORKER == 0:
                self._end(worker)
                worker = None
        if worker is not None:
            self._end(worker)

    def _next(self, lane: _Lane) -> Task | None:
        """Wait for a task that is still wanted; None when the pool is closed."""
        while True:
            with self._changed:
                while (task := lane.pop()) is None:
                    if self._closed:
                        return None
                    self._changed.wait()
            if lane is self._fast:
                if task.retried or task.future.set_running_or_notify_cancel():
                    return task
            elif time.monotonic() - task.demoted_at <= _MAX_WAIT * self._budget_s:
                return task
            else:
                task.future.set_result(Outcome(None, "load", final=False))

    def _run(self, task: Task, lane: _Lane, worker: Worker | None) -> Worker | None:
        """Run one task; return the worker if it can go on."""
        if worker is not None and not worker.alive():
            self._end(worker)
            worker = None
        try:
            worker = worker or self._fork()
        except VerifierUnavailable as error:
            with self._changed:
                left = [task, *self._fast.drain(), *self._slow.drain()]
            _fail(left, error)
            return None
        started, used_s = time.monotonic(), worker.cpu_seconds()
        try:
            reply = worker.ask(
                _message(task.key, lane.slice_s), lane.slice_s, _PATIENCE * lane.slice_s
            )
        except FrameTimeout:
            own_fault = worker.cpu_seconds() - used_s >= lane.slice_s
            self._end(worker)
            self._out_of_time(task, lane, own_fault)
            return None
        except FrameClosed:
            self._died(task, lane, worker)
            return None
        finally:
            task.call.spent_s += time.monotonic() - started
        if "equal" in reply:
            task.future.set_result(Outcome(bool(reply["equal"])))
            return worker
        self._end(worker)
        task.future.set_result(Outcome(None, "memory"))
        return None

    def _out_of_time(self, task: Task, lane: _Lane, own_fault: bool) -> None:
        if lane is self._slow:
            limit = "budget" if own_fault else "load"
            task.future.set_result(Outcome(None, limit, final=own_fault))
            return
        task.demoted_at = time.monotonic()
        with self._changed:
            if not self._closed:
                self._slow.push(task)
                self._changed.notify_all()
                return
        _settle(task, VerifierUnavailable("the answer verifier was closed"))

    def _died(self, task: Task, lane: _Lane, worker: Worker) -> None:
        """Settle a task in whose midst the worker ended."""
        by_signal = self._end(worker)
        with self._changed:
            if not self._closed and by_signal is None and not task.retried:
                # The template died, of no fault of this answer.
                task.retried = True
                lane.push(task)
                return
        if self._closed:
            _settle(task, VerifierUnavailable("the answer verifier was closed"))
        elif by_signal is None or by_signal == signal.SIGKILL:
            # Not by us: the kernel, out of memory on the whole machine.
            _settle(task, Outcome(None, "memory", final=False))
        else:
            _settle(task, Outcome(None, "budget" if by_signal == signal.SIGXCPU else "crash"))

    def _fork(self) -> Worker:
        worker = self._template.fork()
        with self._changed:
            self._live.add(worker)
            self.processes_started += 1
            if self._closed:
                worker.interrupt()
        return worker

    def _end(self, worker: Worker) -> int | None:
        """Kill a worker; return the signal that had ended it, None where nobody knows."""
        with self._changed:
            self._live.discard(worker)
        try:
            return worker.kill()
        except TemplateGone:
            return None


def _message(key: Key, seconds: float) -> dict[str, object]:
    return {
        "gold": key.ground_truth,
        "answer": key.answer,
        "context": key.context,
        "seconds": seconds,
    }


def _settle(task: Task, result: Outcome | Exception) -> None:
    # A caller may cancel at any moment; then nobody wants the result.
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, Outcome):
            task.future.set_result(result)
        else:
            task.future.set_exception(result)


def _fail(tasks: list[Task], error: VerifierUnavailable) -> None:
    for task in tasks:
        _settle(task, error)
