"""Starting Ray in tests, also on a machine that is busy, and what it leaves behind."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

# How Ray says that its own processes did not come up in the time that it gives them.
TOO_SLOW = ("Timed out waiting for file", "timed out during startup")
ATTEMPTS = 3

# Ray copies its own deprecated settings, and leaves sockets, log files and the processes of an
# attempt that was too slow to the interpreter.
RAYS_OWN = (
    r"ignore::DeprecationWarning:ray\..*",
    r"ignore::ResourceWarning",
    r"ignore::pytest.PytestUnraisableExceptionWarning",
)


def let_warnings_of_ray_pass(items: list[pytest.Item], folder: Path) -> None:
    """Let Ray's own warnings pass in the tests of a folder."""
    for item in items:
        if item.path.is_relative_to(folder):
            for warning in RAYS_OWN:
                item.add_marker(pytest.mark.filterwarnings(warning))


def patiently(start: Callable[[], T]) -> T:
    """Return what ``start`` returns; where Ray was too slow for itself, it is begun anew."""
    import ray

    for _ in range(ATTEMPTS - 1):
        try:
            return start()
        except Exception as error:
            if not any(words in str(error) for words in TOO_SLOW):
                raise
        ray.shutdown()
        # What is left of the attempt complains when it goes: here, not in some later test.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return start()
