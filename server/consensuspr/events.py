"""A log of events that may come by the thousand."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable


class EventLog:
    """Logs an event when it is new, and its count as it grows: never overlooked, no flood.

    Written are the 1st, 10th, 100th … event of a kind, and after that whatever comes a
    minute or more after the last line of its kind.  Any thread may report.
    """

    _PAUSE_S = 60.0

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._last: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self._lock = threading.RLock()

    def report(self, kind: str, message: str) -> None:
        """Count an event of a kind, and log its message if it is due."""
        with self._lock:
            count, now = self.counts[kind] + 1, self._clock()
            if str(count).strip("0") == "1" or now - self._last[kind] >= self._PAUSE_S:
                self.log(kind, message)
            else:
                self.counts[kind] = count

    def log(self, kind: str, message: str) -> None:
        """Count an event of a kind, and log its message."""
        with self._lock:
            self.counts[kind] += 1
            count = self.counts[kind]
            self._last[kind] = self._clock()
            self._logger.error("%s (%s: %d so far in this process)", message, kind, count)
