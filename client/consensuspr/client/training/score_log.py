"""What a process of a run writes down: its samples to the score log, its troubles to ``logging``.

The score log has one JSON line per sample, because a trainer's own log may keep no NCR: one
file per process, in a folder that all of a run share; lines are whole even where a process is
killed, but for the last.  Roughly 300 bytes a sample.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from consensuspr.errors import InputError

logger = logging.getLogger(__name__)


class ScoreLog:
    """Appends the rows of one process, in a folder that is made where it does not exist.

    Raises:
        InputError: it cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"scores-{socket.gethostname()}-{os.getpid()}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Line-buffered: a run that is killed has its samples on disk.
            self._file: TextIO = self.path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise InputError(f"score_log: cannot write {self.path}: {error.strerror}") from None
        self._events = EventLog(logger)
        # A trainer's workers are not told when a run ends.
        self._finalizer = weakref.finalize(self, self._file.close)

    def write(self, row: dict[str, Any]) -> None:
        """Append a row; the time of day is put before it.

        A disk that is full costs rows of the log, which are counted, and no sample its reward.
        """
        stamped = {"time": round(time.time(), 3), **row}
        try:
            self._file.write(json.dumps(stamped, allow_nan=False) + "\n")
        except OSError as error:
            self._events.report("score log", f"cannot write {self.path}: {error.strerror}")

    def close(self) -> None:
        """Close the file.  May be called twice."""
        self._finalizer()


class EventLog:
    """Logs an event when it is new, and its count as it grows: never overlooked, no flood.

    Written are the 1st, 10th, 100th … event of a kind, and after that whatever comes a
    minute or more after the last line of its kind.
    """

    _PAUSE_S = 60.0

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._last: dict[str, float] = {}
        self.counts: Counter[str] = Counter()

    def report(self, kind: str, message: str) -> None:
        """Count an event of a kind, and log its sentence where its turn has come."""
        self.counts[kind] += 1
        count, now = self.counts[kind], self._clock()
        if str(count).strip("0") == "1" or now - self._last[kind] >= self._PAUSE_S:
            self._last[kind] = now
            self._logger.error("%s (%s: %d so far in this process)", message, kind, count)
