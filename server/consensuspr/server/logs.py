"""Logs on standard error: lines for people, or one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any, Literal

LOGGER_NAME = "consensuspr.server"

# Everything that a LogRecord has by itself; what else it has was given as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


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


def configure(
    log_format: Literal["text", "json"], level: str, role: str, stream: Any = None
) -> None:
    """Send this process's logs to standard error, replacing what was configured before.

    ``role`` says which process this is, for example ``worker 0``.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
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


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
