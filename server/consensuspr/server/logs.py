"""Logs on standard error: lines for people, or one JSON object a line for machines.

Hostile clients can cause the same warning a thousand times a second.  So in each period only the
first few warnings from one place in the code are written.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any, Literal

LOGGER_NAME = "consensuspr.server"
# It writes metadata that is not text, and that may be a token.
_GRPC_LOGGER = "grpc._cython.cygrpc"

# The attributes of every LogRecord; others were given as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Of one place in the code.
PERIOD_S = 10.0
MAX_LINES = 5


class _JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, process, message and the fields given to it."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "role": self._role,
            "pid": os.getpid(),
            "message": record.getMessage(),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


class _RepeatFilter(logging.Filter):
    """Drops warnings that repeat; the next one that is written counts them."""

    def __init__(self) -> None:
        super().__init__()
        # By place: when its period began, and how many records came since.
        self._places: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record."""
        if record.levelno < logging.WARNING:
            return True
        place = (record.pathname, record.lineno)
        now = time.monotonic()
        since, count = self._places.get(place, (now, 0))
        dropped = max(0, count - MAX_LINES)
        if now - since >= PERIOD_S:
            since, count = now, 0
        self._places[place] = since, count + 1
        if count >= MAX_LINES:
            record.exc_info = record.exc_text = None
            return hasattr(record, "incident")  # a client was given its id
        if dropped and not count:
            record.msg, record.args = (
                f"{record.getMessage()} ({dropped} similar lines dropped)",
                None,
            )
        return True


def _hide_bytes(record: logging.LogRecord) -> bool:
    """Replace the bytes that a caller sent by their number."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            f"{len(value)} bytes" if isinstance(value, bytes) else value for value in record.args
        )
    return True


def configure(
    log_format: Literal["text", "json"], level: str, role: str, stream: Any = None
) -> None:
    """Send this process's logs to standard error; ``role`` names the process: ``worker 0``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(_RepeatFilter())
    if log_format == "json":
        handler.setFormatter(_JsonFormatter(role))
    else:
        line = f"%(asctime)s %(levelname)s [{role} %(process)d] %(message)s"
        formatter = logging.Formatter(line, datefmt="%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    # Of libraries, warnings only.
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("consensuspr").setLevel(level.upper())
    logging.getLogger(_GRPC_LOGGER).addFilter(_hide_bytes)
