"""Estimates with confidence intervals that are clustered by problem.

Rollouts of one problem are not independent, so the problem is the unit that is drawn at random.

=====================  ==========================================================================
estimate               interval
=====================  ==========================================================================
ratio of two sums      linearised variance with clusters (Cochran 1977, section 9A; "CR1"):
                       ``G/(G-1) · Σ_g (Σ_{i∈g} (x_i - R y_i))² / (Σ y)²``; lengths cut at 0
mean                   the same with ``y_i = 1``
share, in [0, 1]       Wilson's score interval for the effective number of observations
                       ``p(1-p)/SE²`` (Korn and Graubard 1998)
anything else          percentiles over resampled problems
=====================  ==========================================================================

The p-value of a mean difference over paired problems comes from the sign-flip permutation test
(Fisher 1935).  Random draws have a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from consensusbench import require
from consensusbench.evaluation.scored import Floats, Ints
from consensusbench.tables import JsonResult
from consensuspr.errors import InputError

# Range of a figure and of its interval.
Bounds: TypeAlias = tuple[float, float]
ANYWHERE: Final[Bounds] = (-math.inf, math.inf)
LENGTH: Final[Bounds] = (0.0, math.inf)
SHARE: Final[Bounds] = (0.0, 1.0)

# Problems left out of a figure that are named.
MAX_NAMED: Final = 20
NO_VALUE: Final = "no rollout has a value"
ONE_PROBLEM: Final = "a single problem"

REPLICATES: Final = 1000
SEED: Final = 0
# An interval needs at least this share of the replicates to have a value.
MIN_DEFINED: Final = 0.9
# All 2^k sign patterns of so many differences are fewer than the random ones.
EXACT_UP_TO: Final = 13
PATTERNS: Final = 10_000
# Standard errors of a share, and sign patterns, that differ by rounding alone.
_TOLERANCE: Final = 1e-12
# Weights or signs that are held at a time: 32 MB.
_BLOCK: Final = 4_000_000


def check_confidence(confidence: float) -> None:
    """Check the level of intervals before anything is scored.

    Raises:
        InputError: the level is out of its range, or a package is missing.
    """
    require("scipy.special", "a confidence interval")
    if not 0 < confidence < 1:
        raise InputError(f"the confidence must be above 0 and below 1, got {confidence}")


@dataclass(frozen=True, slots=True)
class Estimate(JsonResult):
    """A figure with its interval; ``no_interval`` is the reason if there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    std_error: float | None = None
    count: int = 0
    problems: int = 0
    no_interval: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return every field; ``no_interval`` only if there is no interval."""
        row = JsonResult.to_json(self)
        return row if self.no_interval else {k: v for k, v in row.items() if k != "no_interval"}


def t_quantile(confidence: float, problems: int) -> float:
    """Return how many standard errors an interval reaches to either side."""
    special = require("scipy.special", "a confidence interval")
    return float(special.stdtrit(problems - 1, 0.5 + confidence / 2))


def mean_estimate(
    values: Floats, problem: Ints, confidence: float, *, bounds: Bounds = ANYWHERE
) -> Estimate:
    """Return the mean over rollouts of (n,) values; NaN counts as absent."""
    known = ~np.isnan(values)
    ones = np.ones(int(known.sum()))
    return ratio_estimate(values[known], ones, problem[known], confidence, bounds=bounds)


def problem_means(values: Floats, problem: Ints) -> tuple[Ints, Floats]:
    """Return the problems that have a value other than NaN, ascending, and the mean of each."""
    known = ~np.isnan(values)
    numbers, at = np.unique(problem[known], return_inverse=True)
    sums = np.bincount(at, weights=values[known], minlength=len(numbers))
    return numbers, sums / np.bincount(at, minlength=len(numbers))


def ratio_estimate(
    numerator: Floats,
    denominator: Floats,
    problem: Ints,
    confidence: float,
    *,
    bounds: Bounds = ANYWHERE,
) -> Estimate:
    """Return the sum of (n,) numerators over the sum of (n,) denominators of 0 or more."""
    numbers, at = np.unique(problem, return_inverse=True)
    whole = float(denominator.sum())
    count, problems = len(numerator), len(numbers)
    if not whole:
        return Estimate(None, count=count, problems=problems, no_interval=NO_VALUE)
    # fsum: equal values have exactly their own mean, and no order of rollouts gives another.
    value = math.fsum(numerator.tolist()) / math.fsum(denominator.tolist())
    if problems < 2:
        return Estimate(value, None, None, None, count, problems, ONE_PROBLEM)
    residuals = np.bincount(at, weights=numerator - value * denominator, minlength=problems)
    variance = problems / (problems - 1) * float((residuals**2).sum()) / whole**2
    error, t = math.sqrt(variance), t_quantile(confidence, problems)
    if bounds == SHARE:
        low, high = _wilson(value, error, problems, t)
    else:
        low, high = max(bounds[0], value - t * error), value + t * error
    return Estimate(value, low, high, error, count, problems)


def _wilson(p: float, error: float, problems: int, t: float) -> tuple[float, float]:
    """Return Wilson's interval for the number of observations that the error amounts to."""
    p = min(1.0, max(0.0, p))
    spread = p * (1 - p)
    # If all problems have the same mean, each problem counts as one observation.
    inverse_size = error**2 / spread if spread > 0 and error > _TOLERANCE else 1 / problems
    push = t * t * inverse_size
    middle = (p + push / 2) / (1 + push)
    reach = math.sqrt(push * spread + push * push / 4) / (1 + push)
    return max(0.0, min(p, middle - reach)), min(1.0, max(p, middle + reach))


def problem_weights(problems: int, replicates: int = REPLICATES) -> Iterator[Floats]:
    """Yield (b, problems) counts of how often each problem was drawn, in blocks of replicates."""
    generator = np.random.default_rng(SEED)
    block = max(1, min(replicates, _BLOCK // max(problems, 1)))
    for first in range(0, replicates, block):
        size = min(block, replicates - first)
        drawn = generator.integers(0, problems, (size, problems))
        drawn += np.arange(size)[:, None] * problems
        counts = np.bincount(drawn.ravel(), minlength=size * problems)
        yield counts.reshape(size, problems).astype(np.float64)


def percentile_interval(replicates: Floats, confidence: float) -> tuple[float, float] | None:
    """Return the percentile interval of (r,) values, None if too few of them are known."""
    defined = replicates[~np.isnan(replicates)]
    if len(defined) < max(2, MIN_DEFINED * len(replicates)):
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail]).tolist()
    return low, high


def sign_flip_p_value(differences: Floats) -> float:
    """Return the two-sided p-value, in (0, 1], of the mean of (p,) differences being 0.

    All sign patterns are tried up to :data:`EXACT_UP_TO` differences other than 0, else
    :data:`PATTERNS` random ones.
    """
    # A problem without a difference adds 0 under either sign.
    moving = differences[differences != 0]
    if not len(moving):
        return 1.0
    observed = abs(float(moving.sum())) - _TOLERANCE * float(np.abs(moving).sum())
    if len(moving) <= EXACT_UP_TO:
        patterns = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
        return float((np.abs((1.0 - 2.0 * patterns) @ moving) >= observed).mean())
    generator = np.random.default_rng(SEED)
    block = max(1, _BLOCK // len(moving))
    as_far = 0
    for first in range(0, PATTERNS, block):
        size = min(block, PATTERNS - first)
        signs = 1.0 - 2.0 * generator.integers(0, 2, (size, len(moving)), dtype=np.int8)
        as_far += int((np.abs(signs @ moving) >= observed).sum())
    # The observed pattern is one of them: no p-value is 0.
    return (as_far + 1) / (PATTERNS + 1)
