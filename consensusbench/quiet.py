"""Reading again without the log lines of the first time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_READERS = ("consensuspr.data.readers", "consensuspr.scoring.dataset_index")


@contextmanager
def quiet_readers() -> Iterator[None]:
    """Suppress what readers log about bad rows and nodes that never match, except errors."""
    loggers = [logging.getLogger(name) for name in _READERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
