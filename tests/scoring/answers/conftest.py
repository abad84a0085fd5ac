"""One verifier for all tests that only ask it; those that break it make their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from consensuspr.scoring.answers import AnswerVerifier


@pytest.fixture(scope="session")
def verifier() -> Iterator[AnswerVerifier]:
    """A verifier with the default limits."""
    with AnswerVerifier() as made:
        yield made


@pytest.fixture(scope="session")
def impatient() -> Iterator[AnswerVerifier]:
    """A verifier that gives an answer a quarter of the usual time."""
    with AnswerVerifier(budget_s=0.5) as made:
        yield made


@pytest.fixture(scope="session")
def linear() -> Callable[[Callable[[str], object], Callable[[int], str]], None]:
    """Check that a function's CPU time grows linearly with its text.

    From 4 to 32 KiB a linear function takes 8 times as long and a quadratic one 64 times;
    the bound lies between, and the best of several runs is what counts.
    """

    def check(function: Callable[[str], object], text_of_size: Callable[[int], str]) -> None:
        short, long = text_of_size(1 << 12), text_of_size(1 << 15)
        for _ in range(5):
            ratio = _best_s(function, long) / max(_best_s(function, short), 20e-6)
            if ratio < 28:
                return
        pytest.fail(f"time grows {ratio:.0f} times for 8 times the text")

    return check


def _best_s(function: Callable[[str], object], text: str) -> float:
    times = []
    for _ in range(3):
        started = time.thread_time()
        function(text)
        times.append(time.thread_time() - started)
    return min(times)
