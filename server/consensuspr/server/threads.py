"""Threads that requests are worked on in, in order of arrival, as there are turns to compute."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from consensuspr.server.slots import Slots

# What has to be received, refused and replied to must not wait behind work of the same process:
# threads that work are so much nicer than the process.
THREAD_NICENESS = 5

R = TypeVar("R")


class WorkingThreads:
    """Carry out work in the order in which it was submitted.

    A thread that is ready waits for a turn to compute first and takes the oldest work then:
    threads get turns in any order, so that one which had its work in hand could wait long behind
    what came later.

    Args:
        number: of threads, those that only wait for an answer included.
        slots: the turns.
    """

    def __init__(self, number: int, slots: Slots) -> None:
        self._slots = slots
        # The threads have a task for each of these.
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._pool = ThreadPoolExecutor(number, thread_name_prefix="scoring", initializer=_give_way)

    def submit(self, work: Callable[[], R]) -> Future[R]:
        """Have work carried out; what is cancelled before its turn is not begun.

        Raises:
            RuntimeError: the threads were closed, or there can be no thread.
        """
        future: Future[R] = Future()
        self._waiting.append((future, work))
        try:
            self._pool.submit(self._work_on_oldest)
        except RuntimeError:
            # Unless a thread has begun it meanwhile.
            if future.cancel():
                raise
        return future

    def close(self) -> None:
        """Cancel what has not begun, and wait for nothing."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        while (entry := self._oldest()) is not None:
            entry[0].cancel()

    def _work_on_oldest(self) -> None:
        with self._slots.held():
            entry = self._oldest()
            if entry is None or not entry[0].set_running_or_notify_cancel():
                return  # closed or cancelled meanwhile
            future, work = entry
            outcome = _Outcome(work)
        # What has to be done for who waits takes no turn.
        outcome.hand_to(future)
        # A failure's frames know this one: where nobody waits any more, all that hangs together
        # here, the request above all, would stay until the garbage collector runs.
        del entry, future, work, outcome

    def _oldest(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None


class _Outcome:
    """What work returned or raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._result: Any = None
        self._failure: BaseException | None = None
        try:
            self._result = work()
        except BaseException as error:  # whatever it is, it is for who waits for the result
            self._failure = error

    def hand_to(self, future: Future[Any]) -> None:
        """Resolve a future."""
        if self._failure is None:
            future.set_result(self._result)
        else:
            failure, self._failure = self._failure, None
            future.set_exception(failure)
            del failure


def _give_way() -> None:
    """Let the event loop and gRPC's threads go before the calling one, where the system can."""
    # Linux has a niceness for each thread; elsewhere it is the process's, and stays as it is.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.nice(THREAD_NICENESS)
