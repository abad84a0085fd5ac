"""Reading a file whose faults have been told already, without telling them again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_READERS = ("consensuspr.data.readers", "consensuspr.scoring.dataset_index")


@contextmanager
def quiet_readers() -> Iterator[None]:
    """Keep back what the readers would log of bad rows and of nodes that never match.

    For passes after the first, and where a report says the same in its own words.
    """
    loggers = [logging.getLogger(name) for name in _READERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
