"""Slow comparisons in processes of their own, killed when their time or memory is spent.

Pebble's pool runs them.  Its processes are forked from a server process that has loaded SymPy
(:mod:`consensuspr.child_processes`), so that a killed one is replaced in milliseconds.  They end
when this process ends, also if it is killed.

An answer gets a short slice of its budget first, and the rest when the others of its batch have had
theirs, so that hung answers hold up the others only briefly.  Slices are CPU time: an answer ends
alike on a busy and on an idle machine.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

from pebble import ProcessExpired, ProcessPool

from consensuspr.child_processes import ChildContext
from consensuspr.errors import VerifierUnavailable
from consensuspr.events import EventLog

_events = EventLog(logging.getLogger(__name__))

# An eighth of the budget: 0.25 s by default; honest answers take some milliseconds.
_FIRST_SLICE = 1 / 8
# So many times its CPU time may a slice take on a busy machine.
_PATIENCE = 20.0
# Processes are renewed, so that caches inside SymPy and ANTLR stay small.
_TASKS_PER_PROCESS = 2000
# How soon a wait notices that the pool was closed.
_LOOK_S = 0.5
# A pool that cannot start is not started again for each of a thousand answers.
_RETRY_S = 5.0


# Exit status of a process that met its memory limit.
_OUT_OF_MEMORY = 86
# The limit that ended a process, by its exit status.
_LIMITS = {
    _OUT_OF_MEMORY: "memory",
    -signal.SIGPROF: "budget",
    -signal.SIGKILL: "killed",
    -signal.SIGTERM: "killed",
    255: "killed",  # together with its fork server
}
# The pool ended, because processes were killed that compared nothing.
_BROKEN = "broken"
_CLOSED = "the answer verifier is closed"
_CANNOT_START = "the answer processes cannot start; standard error has the reason"


class AnswerPair(NamedTuple):
    """All that the result of a comparison depends on."""

    ground_truth: str
    answer: str
    context: str  # clipped end of the response where math-verify extracts once more, else ""


class PairOutcome(NamedTuple):
    """The result of a comparison: whether both are equal, or the limit that it met."""

    equal: bool | None
    limit: str = ""

    @property
    def is_final(self) -> bool:
        """Whether the same comparison would end like this again."""
        return self.limit not in ("load", "killed")


class SymbolicPool:
    """Compares answers in ``workers`` processes; starts at the first comparison.  Thread-safe.

    Each process may use ``memory_limit_bytes`` of address space, one comparison ``budget_s``
    seconds of CPU time.
    """

    def __init__(self, workers: int, budget_s: float, memory_limit_bytes: int) -> None:
        self._workers = workers
        self._budget_s = budget_s
        self._memory_limit_bytes = memory_limit_bytes
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._pool: ProcessPool | None = None
        self._closed = False
        self._retry_at = 0.0

    def compare(
        self, comparisons: Iterable[AnswerPair], until: float
    ) -> dict[AnswerPair, PairOutcome]:
        """Compare answers.  What is open at ``until`` (``time.monotonic()``) has limit ``load``.

        Raises:
            VerifierUnavailable: the pool is closed, or its processes cannot start.
        """
        if self._process != os.getpid():  # forked: neither threads nor processes are ours
            self._reset()
        first_s = self._budget_s * _FIRST_SLICE
        outcomes = self._run(comparisons, first_s, until)
        open_yet = [pair for pair, outcome in outcomes.items() if outcome.equal is None]
        if open_yet and time.monotonic() < until:
            # Out of time, or processes were killed: by the kernel, or by somebody.
            outcomes |= self._run(open_yet, self._budget_s - first_s, until)
            if any(outcome.limit == _BROKEN for outcome in outcomes.values()):
                with self._lock:
                    # Another thread may have started a pool that works.
                    if self._pool is None or not self._pool.active:
                        self._retry_at = time.monotonic() + _RETRY_S
                raise VerifierUnavailable(_CANNOT_START)
        return outcomes

    def close(self) -> None:
        """End the processes; who waits gets VerifierUnavailable."""
        with self._lock:
            self._closed = True
            self._stop()

    def _run(
        self, comparisons: Iterable[AnswerPair], cpu_s: float, until: float
    ) -> dict[AnswerPair, PairOutcome]:
        pool = self._started()
        outcomes: dict[AnswerPair, PairOutcome] = {}
        futures: dict[AnswerPair, Future[bool | None]] = {}
        for pair in comparisons:
            try:
                futures[pair] = pool.schedule(
                    _compare, [*pair, cpu_s, until], timeout=_PATIENCE * cpu_s
                )
            except RuntimeError:  # it ended since it was started
                outcomes[pair] = PairOutcome(None, _BROKEN)
        pending: set[Future[bool | None]] = set(futures.values())
        # Pebble never ends a future that its pool had not taken up when the pool ended.
        while pending and pool.active and (left_s := until - time.monotonic()) > 0:
            _, pending = wait(pending, min(left_s, _LOOK_S))
        if self._closed and pending:
            raise VerifierUnavailable(_CLOSED)
        open_limit = _BROKEN if pending and not pool.active else "load"
        for pair, future in futures.items():
            # Pebble's threads may fail if a future is cancelled: what is open ends by itself.
            done = future not in pending or future.done()
            outcomes[pair] = _outcome(future) if done else PairOutcome(None, open_limit)
        return outcomes

    def _started(self) -> ProcessPool:
        """Return the pool; a new one if there is none or its processes were killed."""
        with self._lock:
            if self._closed:
                raise VerifierUnavailable(_CLOSED)
            if time.monotonic() < self._retry_at:
                raise VerifierUnavailable(_CANNOT_START)
            try:
                if self._pool is None or not self._pool.active:
                    self._stop()
                    self._pool = ProcessPool(
                        self._workers,
                        _TASKS_PER_PROCESS,
                        _confine,
                        [self._memory_limit_bytes],
                        ChildContext(f"{__package__}.worker"),
                    )
                    self._pool.active  # starts it  # noqa: B018
                return self._pool
            except (OSError, AssertionError, RuntimeError) as error:
                # BrokenProcessPool is a RuntimeError; a daemonic process may not have children.
                self._stop()
                self._retry_at = time.monotonic() + _RETRY_S
                raise VerifierUnavailable(f"{_CANNOT_START}: {error}") from error

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            self._pool = None


def _outcome(future: Future[bool | None]) -> PairOutcome:
    """Return what became of a comparison that is done."""
    error = future.exception()
    if error is None:
        equal = future.result()
        return PairOutcome(equal, "load" if equal is None else "")
    if isinstance(error, TimeoutError):
        return PairOutcome(None, "load")
    if isinstance(error, BrokenProcessPool):
        return PairOutcome(None, _BROKEN)
    if isinstance(error, ProcessExpired):
        return PairOutcome(None, _LIMITS.get(error.exitcode, "crash"))
    _events.report("answers, failed comparison", f"{type(error).__name__}: {error}")
    return PairOutcome(None, "crash")


def _confine(memory_limit_bytes: int) -> None:
    from consensuspr.scoring.answers import worker

    worker.confine(memory_limit_bytes)


def _compare(
    ground_truth: str, answer: str, context: str, cpu_s: float, until: float
) -> bool | None:
    """Return whether both are equal; None if nobody waits any more."""
    if time.monotonic() >= until:  # of one clock in all processes
        return None
    from consensuspr.scoring.answers import worker

    equal = worker.compare(ground_truth, answer, context, cpu_s)
    if equal is None:
        os._exit(_OUT_OF_MEMORY)  # its peak would count against the next answer
    return equal
