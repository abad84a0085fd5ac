"""That a function takes time in proportion to its text."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def assert_linear(
    function: Callable[[str], object], text_of: Callable[[int], str], size: int = 1 << 12
) -> None:
    """Check that CPU time grows linearly from a text of a size to one of eight times that.

    A linear function takes 8 times as long and a quadratic one 64 times; the bound lies between,
    and the best of several runs is what counts.
    """
    short, long = text_of(size), text_of(8 * size)
    for _ in range(5):
        ratio = _best_s(function, long) / max(_best_s(function, short), 20e-6)
        if ratio < 28:
            return
    pytest.fail(f"time grows {ratio:.0f} times for 8 times the text {short[:60]!r}")


def _best_s(function: Callable[[str], object], text: str) -> float:
    times = []
    for _ in range(3):
        started = time.thread_time()
        function(text)
        times.append(time.thread_time() - started)
    return min(times)
