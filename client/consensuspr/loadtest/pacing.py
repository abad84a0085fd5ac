"""Calls at given times, more exactly than an event loop's timers.

An event loop wakes up to a millisecond late, which would be part of every latency.  A thread
that only sleeps is late by a tenth of that, and hands over to the loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

# Handed over at a time where several are due: fewer wake-ups of the loop at high rates.
_TOGETHER_S = 0.0002


class Pacer:
    """Calls back in the event loop whenever something is due.

    Args:
        dues: times of the monotonic clock, ascending; drawn from in the thread.
        begin: called in the loop with each time, never before it.
        ended: called in the loop once, after the last one, also when stopped.
    """

    def __init__(
        self,
        dues: Iterable[float],
        begin: Callable[[float], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._dues = dues
        self._begin = begin
        self._ended = ended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Call no more; what is handed over already still comes."""
        self._stop.set()

    def _run(self) -> None:
        try:
            self._hand_over_all()
        finally:
            self._loop.call_soon_threadsafe(self._ended)

    def _hand_over_all(self) -> None:
        handed: list[float] = []
        for due in self._dues:
            if handed and due - handed[0] > _TOGETHER_S:
                self._hand_over(handed)
                handed = []
            wait_s = due - time.monotonic()
            if wait_s > 0:
                self._stop.wait(wait_s)
            if self._stop.is_set():
                break
            handed.append(due)
        self._hand_over(handed)

    def _hand_over(self, dues: list[float]) -> None:
        self._loop.call_soon_threadsafe(self._begin_all, dues)

    def _begin_all(self, dues: list[float]) -> None:
        for due in dues:
            self._begin(due)
