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
from pathlib import Path
from typing import Any, TextIO

from consensuspr.errors import InputError
from consensuspr.events import EventLog

logger = logging.getLogger(__name__)


class SampleLog:
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
