"""Work whose faults are told already, or elsewhere, without telling them again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

_READERS = ("consensuspr.data.readers", "consensuspr.scoring.dataset_index")


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Keep back what loggers of these names say below an error."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def quiet_readers() -> AbstractContextManager[None]:
    """Keep back what the readers would log of bad rows and of nodes that never match.

    For passes after the first, and where a report says the same in its own words.
    """
    return quiet(*_READERS)
