"""Starting Ray in tests, also on a machine that is busy."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# How Ray says that its own processes did not come up in the time that it gives them.
TOO_SLOW = ("Timed out waiting for file", "timed out during startup")
ATTEMPTS = 3


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
