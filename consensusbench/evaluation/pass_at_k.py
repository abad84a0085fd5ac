"""pass@k: the chance that at least one of k samples is right.

The unbiased estimator of Chen et al. 2021 (arXiv:2107.03374, equation 1): of n samples of a
problem c are right, and ``1 - C(n-c, k) / C(n, k)`` is the share of the sets of k of them that
hold a right one.  The figure is the mean over problems.  pass@1 is the mean over problems of the
share of right samples; it differs from Acc, the mean over rollouts, only where problems have
unequal numbers of samples.

A problem with fewer than k samples has no pass@k.  It is left out, counted and named: a smaller
set of samples put in its place would make the figure too low.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from consensusbench.evaluation.columns import Floats, Ints
from consensusbench.evaluation.estimates import Estimate, mean_estimate

# Of the problems with too few samples, as many are named as a person reads.
MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class PassAtK:
    """pass@k of some rollouts.

    Attributes:
        k: samples that are drawn.
        estimate: over the problems that have at least k samples.
        num_left_out: problems that have fewer.
        left_out: ids of the first :data:`MAX_NAMED` of them.
    """

    k: int
    estimate: Estimate
    num_left_out: int
    left_out: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the figure ready for ``json.dumps``."""
        return {
            **self.estimate.to_json(),
            "num_left_out": self.num_left_out,
            "left_out": list(self.left_out),
        }


def pass_at_k(samples: Ints, right: Ints, k: int) -> Floats:
    """Return the unbiased estimate for each problem.

    Args:
        samples: (p,) number of samples n of each problem.
        right: (p,) how many of them are right, 0 <= c <= n.
        k: at least 1.

    Returns:
        (p,) values in [0, 1]; NaN where n < k.
    """
    # C(n-c, k) / C(n, k) as a product of k factors in [0, 1]: no factorial overflows, nothing
    # cancels, and the factor that is 0 where n - c < k makes the result exactly 1.
    if k > samples.max(initial=0):
        return np.full(len(samples), np.nan)
    all_wrong = np.ones(len(samples))
    for drawn in range(k):
        wrong_left = np.maximum(samples - right - drawn, 0)
        all_wrong *= wrong_left / np.maximum(samples - drawn, 1)
    return np.where(samples >= k, 1.0 - all_wrong, np.nan)


def pass_at_k_estimate(
    acc: Floats, problem: Ints, k: int, confidence: float, problem_ids: tuple[str, ...]
) -> PassAtK:
    """Return pass@k over the problems of some rollouts.

    Args:
        acc: (n,) 1.0, 0.0, or NaN where the answer could not be judged: that is no sample.
        problem: (n,) the problem of each rollout.
        k: at least 1.
        confidence: of the interval, in (0, 1).
        problem_ids: name of each problem number.
    """
    known = ~np.isnan(acc)
    # A problem none of whose rollouts could be judged has 0 samples and is left out by name.
    numbers, at = np.unique(problem, return_inverse=True)
    samples = np.bincount(at[known], minlength=len(numbers))
    right = np.bincount(at[known], weights=acc[known], minlength=len(numbers)).astype(np.int64)
    values = pass_at_k(samples, right, k)
    few = numbers[samples < k]
    estimate = mean_estimate(values, numbers, confidence, lies="in [0, 1]")
    return PassAtK(
        k,
        replace(estimate, count=int(samples[samples >= k].sum())),
        len(few),
        tuple(problem_ids[number] for number in few[:MAX_NAMED].tolist()),
    )
