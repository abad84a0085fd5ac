"""A check of a measured ratio: one bound, up to three tries, the best of them counts.

A neighbour's load makes a ratio worse in one try and hardly in three; a change that costs a
factor makes all of them worse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

TRIES = 3


class RatioCheck(NamedTuple):
    """``measure()`` gives a ratio; ``what`` continues the sentence "… is 1.4x …"."""

    name: str
    what: str
    limit: float
    at_most: bool
    measure: Callable[[], float]

    def holds(self, ratio: float) -> bool:
        """Say whether a ratio keeps the limit; to reach it exactly does."""
        return ratio <= self.limit if self.at_most else ratio >= self.limit


class Outcome(NamedTuple):
    """A check and the ratios of its tries, the last of which decided."""

    check: RatioCheck
    ratios: list[float]

    @property
    def holds(self) -> bool:
        """Say whether one of the tries kept the limit."""
        return self.check.holds(self.ratios[-1])

    def sentence(self) -> str:
        """Say in one sentence what was measured and what the limit is."""
        side = "at most" if self.check.at_most else "at least"
        best = (min if self.check.at_most else max)(self.ratios)
        tries = ", ".join(f"{ratio:.3g}x" for ratio in self.ratios)
        return (
            f"{self.check.name}: {self.check.what} is {best:.3g}x at best, and has to be "
            f"{side} {self.check.limit:g}x (tried {len(self.ratios)} times: {tries})."
        )


def judge(check: RatioCheck) -> Outcome:
    """Measure until a try keeps the limit, three times at most."""
    ratios: list[float] = []
    while len(ratios) < TRIES:
        ratios.append(check.measure())
        if check.holds(ratios[-1]):
            break
    return Outcome(check, ratios)
