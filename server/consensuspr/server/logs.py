"""Logs on standard error: lines for people, or one JSON object a line for machines.

What goes wrong may do so a thousand times a second, and who makes it do so may be hostile.  So of
the warnings and errors from one place in the code a few are written in each period, and then one
line that counts the others.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from typing import Any, Literal

LOGGER_NAME = "consensuspr.server"
# Says of metadata that is no text what it was, and that may be a token.
_GRPC_LOGGER = "grpc._cython.cygrpc"

# Everything that a LogRecord has by itself; what else it has was given as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Of one place in the code; a line with a traceback has a kilobyte.
PERIOD_S = 10.0
MAX_LINES = 5


class _JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, process, message and the fields given to it."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": f"{_utc(record.created)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "role": self._role,
            "pid": os.getpid(),
            "message": record.getMessage(),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


class _Handler(logging.StreamHandler[Any]):
    """Writes what it is given, but not for ever the same; logging holds its lock around it."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._since = time.monotonic()
        # How often each place has logged in this period, and the last that was left out.
        self._counts: dict[tuple[str, int], int] = {}
        self._left_out: dict[tuple[str, int], logging.LogRecord] = {}
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        if record.levelno < logging.WARNING:
            super().emit(record)
            return
        if time.monotonic() - self._since > PERIOD_S:
            self._begin_period()
        place = (record.pathname, record.lineno)
        count = self._counts[place] = self._counts.get(place, 0) + 1
        if count <= MAX_LINES:
            super().emit(record)
        elif hasattr(record, "incident"):
            # Somebody was told that the log has it; that it does, and what the first ones were.
            super().emit(_without_traceback(record, record.getMessage()))
        else:
            self._left_out[place] = record
            if self._timer is None:
                self._timer = threading.Timer(PERIOD_S, self._end_period)
                self._timer.daemon = True
                self._timer.start()

    def _end_period(self) -> None:
        self.acquire()
        try:
            self._begin_period()
        finally:
            self.release()

    def _begin_period(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for place, record in self._left_out.items():
            more = self._counts[place] - MAX_LINES
            first_line = record.getMessage().partition("\n")[0]
            told = f"{more} more like this within {PERIOD_S:g} s: {first_line}"
            super().emit(_without_traceback(record, told))
        self._counts.clear()
        self._left_out.clear()
        self._since = time.monotonic()


def _without_traceback(record: logging.LogRecord, message: str) -> logging.LogRecord:
    fields = {**vars(record), "msg": message, "args": None, "exc_info": None, "exc_text": None}
    return logging.makeLogRecord(fields)


def _hide_bytes(record: logging.LogRecord) -> bool:
    """Leave out of a record what a caller sent, and keep its size."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            f"{len(one)} bytes" if isinstance(one, bytes) else one for one in record.args
        )
    return True


def configure(
    log_format: Literal["text", "json"], level: str, role: str, stream: Any = None
) -> None:
    """Send this process's logs to standard error, replacing what was configured before.

    ``role`` says which process this is, for example ``worker 0``.
    """
    handler = _Handler(stream or sys.stderr)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter(role))
    else:
        line = f"%(asctime)s %(levelname)s [{role} %(process)d] %(message)s"
        formatter = logging.Formatter(line, datefmt="%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    # Libraries speak up when something is wrong; how asyncio polls is of no interest.
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("consensuspr").setLevel(level.upper())
    logging.getLogger(_GRPC_LOGGER).addFilter(_hide_bytes)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
