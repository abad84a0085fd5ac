"""Is a mean difference chance?  The sign-flip permutation test over paired problems.

If it does not matter which of two models answered, each problem's difference may as well have
the other sign.  The p-value is the share of sign patterns whose mean is at least as far from 0
as the one that was seen, both sides counted (Fisher 1935).  It assumes no distribution.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from consensusbench.evaluation.columns import Floats

# All 2^k patterns of so many differences are fewer than the random ones.
EXACT_UP_TO: Final = 13
PATTERNS: Final = 10_000

_BLOCK_SIGNS: Final = 4_000_000

# Patterns that are equal but for rounding count as equal.
_TOLERANCE: Final = 1e-12


def sign_flip_p_value(differences: Floats, seed: int) -> float:
    """Return the two-sided p-value of the mean difference being 0.

    Args:
        differences: (p,) one per problem.
        seed: of the random patterns; :data:`PATTERNS` of them where there are more than
            :data:`EXACT_UP_TO` differences other than 0, else all patterns are tried.

    Returns:
        In (0, 1]; 1 where no problem differs.
    """
    moving = differences[differences != 0]
    if not len(moving):
        return 1.0
    # A problem without a difference adds 0 under either sign.
    seen = abs(float(moving.sum())) - _TOLERANCE * float(np.abs(moving).sum())
    if len(moving) <= EXACT_UP_TO:
        patterns = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
        return float((np.abs((1.0 - 2.0 * patterns) @ moving) >= seen).mean())
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK_SIGNS // len(moving))
    as_far = 0
    for first in range(0, PATTERNS, block):
        size = min(block, PATTERNS - first)
        signs = 1.0 - 2.0 * generator.integers(0, 2, (size, len(moving)), dtype=np.int8)
        as_far += int((np.abs(signs @ moving) >= seen).sum())
    # The pattern that was seen is one of them: no p-value is 0.
    return (as_far + 1) / (PATTERNS + 1)
