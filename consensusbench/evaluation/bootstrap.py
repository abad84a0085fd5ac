"""Resampling problems with replacement, many times at once.

A replicate is how often each problem was drawn; a figure of a replicate is that figure with its
rollouts weighted so.  Seeded, so that a report made twice says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from consensusbench.evaluation.columns import Floats

REPLICATES: Final = 1000

# Weights that are held at a time: 32 MB.
_MAX_WEIGHTS: Final = 4_000_000

# An interval from fewer replicates than this share of all would hide why the others have no
# value, and lean towards the samples that happen to have one.
MIN_DEFINED: Final = 0.9


def problem_weights(problems: int, seed: int, replicates: int = REPLICATES) -> Iterator[Floats]:
    """Yield how often each problem was drawn, in blocks of replicates.

    Args:
        problems: how many there are, and are drawn each time.
        seed: equal seeds give equal draws.
        replicates: in all blocks together.

    Yields:
        (b, problems) counts; each row sums to ``problems``.
    """
    generator = np.random.default_rng(seed)
    block = max(1, min(replicates, _MAX_WEIGHTS // max(problems, 1)))
    for first in range(0, replicates, block):
        size = min(block, replicates - first)
        drawn = generator.integers(0, problems, (size, problems))
        drawn += np.arange(size)[:, None] * problems
        counts = np.bincount(drawn.ravel(), minlength=size * problems)
        yield counts.reshape(size, problems).astype(np.float64)


def percentile_interval(replicates: Floats, confidence: float) -> tuple[float, float] | None:
    """Return the percentile interval of a figure.

    Args:
        replicates: (r,) its value in each replicate, NaN where it has none.
        confidence: in (0, 1).

    Returns:
        Both ends; None where under :data:`MIN_DEFINED` of the replicates have a value.
    """
    defined = replicates[~np.isnan(replicates)]
    if len(defined) < max(2, MIN_DEFINED * len(replicates)):
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)
