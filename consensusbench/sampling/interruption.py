"""Ctrl-C and SIGTERM: begin nothing new, let what is in flight finish for a while.

The first signal stops the asking, a second one the waiting as well.  What is cut off is asked,
and paid for, again in a later run; all else is in the journal.
"""

from __future__ import annotations

import asyncio
import signal
from types import TracebackType
from typing import Any, Self

from consensusbench.models import Budget

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Ends a piece of work at a signal; a context manager around waiting for it.

    Args:
        work: cancelled at a second signal, or when the time is over.
        budget: stopped at the first.
        grace_s: how long requests in flight may go on.
    """

    def __init__(self, work: asyncio.Future[Any], budget: Budget, grace_s: float) -> None:
        self._work = work
        self._budget = budget
        self._grace_s = grace_s
        self._timer: asyncio.TimerHandle | None = None
        self.signal: signal.Signals | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._installed = []
        for number in SIGNALS:
            try:
                self._loop.add_signal_handler(number, self._arrived, number)
            except (RuntimeError, ValueError):
                return self  # not in the main thread, where signals are another's business
            self._installed.append(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number in self._installed:
            self._loop.remove_signal_handler(number)
        if self._timer is not None:
            self._timer.cancel()

    def _arrived(self, number: signal.Signals) -> None:
        if self.signal is not None:
            self._work.cancel()
            return
        self.signal = number
        self._budget.stop("interrupted")
        self._timer = self._loop.call_later(self._grace_s, self._work.cancel)
