"""Latencies in bounded memory, with percentiles of a stated relative error.

Log-linear buckets, as in HDR histograms: each power of two is cut into
:data:`STEPS_PER_OCTAVE` equal steps, and a value is taken for the middle of its step.  So a
percentile is off by at most :data:`RELATIVE_ERROR` of itself, whatever its size, and adding
two histograms loses nothing more.  Only steps that were hit are kept: at most
:data:`MAX_BUCKETS`, and a few hundred in practice.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

STEPS_PER_OCTAVE: Final = 128
# Half a step of the lower end of an octave.
RELATIVE_ERROR: Final = 1 / (2 * STEPS_PER_OCTAVE)

# Outside, values are taken for these; no request of a load test is near either.
MIN_S: Final = 1e-6
MAX_S: Final = 1e5
MAX_BUCKETS: Final = (math.frexp(MAX_S)[1] - math.frexp(MIN_S)[1] + 1) * STEPS_PER_OCTAVE


class Histogram:
    """How many values fell into which step, and the exact smallest, largest and sum.

    Attributes:
        count: values recorded.
        total_s: their sum in seconds.
        min_s: the smallest, infinite where there is none.
        max_s: the largest, 0 where there is none.
    """

    __slots__ = ("_buckets", "count", "max_s", "min_s", "total_s")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.total_s = 0.0
        self.min_s = math.inf
        self.max_s = 0.0

    @property
    def num_buckets(self) -> int:
        """Steps that hold a value."""
        return len(self._buckets)

    @property
    def mean_s(self) -> float | None:
        """The exact mean; None where there is no value."""
        return self.total_s / self.count if self.count else None

    def record(self, seconds: float) -> None:
        """Add a value; what is outside [:data:`MIN_S`, :data:`MAX_S`] counts as the bound."""
        seconds = min(max(seconds, MIN_S), MAX_S)
        mantissa, exponent = math.frexp(seconds)  # in [0.5, 1)
        step = int((mantissa - 0.5) * 2 * STEPS_PER_OCTAVE)
        self._buckets[exponent * STEPS_PER_OCTAVE + step] += 1
        self.count += 1
        self.total_s += seconds
        self.min_s = min(self.min_s, seconds)
        self.max_s = max(self.max_s, seconds)

    def add(self, other: Histogram) -> None:
        """Take over the values of another histogram."""
        self._buckets.update(other._buckets)
        self.count += other.count
        self.total_s += other.total_s
        self.min_s = min(self.min_s, other.min_s)
        self.max_s = max(self.max_s, other.max_s)

    def percentiles(self, ranks: tuple[float, ...]) -> list[float]:
        """Return the value below or at which each share of the values lies.

        The nearest rank: the smallest value such that at least ``rank`` percent are not above
        it, within :data:`RELATIVE_ERROR`.

        Args:
            ranks: in percent, each in (0, 100], ascending.

        Returns:
            Seconds, one for each rank; none where there is no value.
        """
        if not self.count:
            return []
        found: list[float] = []
        seen = 0
        buckets = iter(sorted(self._buckets.items()))
        bucket = 0
        for rank in ranks:
            # Rounded first: 99.9 % of 1,000 is 999 values, whatever the product's last bit.
            wanted = max(1, math.ceil(round(rank * self.count / 100, 6)))
            while seen < wanted:
                bucket, hits = next(buckets)
                seen += hits
            found.append(min(max(_middle(bucket), self.min_s), self.max_s))
        return found

    def resolved(self, ranks: tuple[float, ...]) -> list[float | None]:
        """Return percentiles for a reader: None where there are too few values to tell one.

        The p99.9 of five values would be their maximum under another name; a percentile needs
        a value beyond it, at least ``1 / (1 - rank / 100)`` values in all.

        Args:
            ranks: as in :meth:`percentiles`; 100 is never told.

        Returns:
            Seconds, one for each rank.
        """
        found: list[float | None] = [*self.percentiles(ranks)] or [None] * len(ranks)
        # Rounded, as above: 100 - 99.9 is not exactly 0.1.
        enough = (round(self.count * (100 - rank), 6) >= 100 for rank in ranks)
        return [v if told else None for v, told in zip(found, enough, strict=True)]

    def percentile(self, rank: float) -> float | None:
        """Return one percentile in seconds; None where there is no value."""
        return next(iter(self.percentiles((rank,))), None)


def _middle(bucket: int) -> float:
    exponent, step = divmod(bucket, STEPS_PER_OCTAVE)
    return math.ldexp(0.5 + (step + 0.5) / (2 * STEPS_PER_OCTAVE), exponent)
