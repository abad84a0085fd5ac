"""Does NCR tell right rollouts from wrong ones?  D_NCR, AUROC and AUCPR (paper, section 3.4).

The paper names the three and defines only the first.  Here:

- **D_NCR**: mean NCR of right rollouts minus mean NCR of wrong ones.
- **AUROC**: the chance that a right rollout has the higher NCR of a right and a wrong one, ties
  counting half; scikit-learn's ``roc_auc_score``.
- **AUCPR**: average precision, scikit-learn's ``average_precision_score``, the right rollouts
  being the positive ones.  The trapezoids of ``auc(precision_recall_curve)`` are not used: a
  straight line between two points of a precision-recall curve is no achievable curve, and NCR
  has so few distinct values that those lines would be most of the area.  A score that knows
  nothing reaches the prevalence, the share of right rollouts, which therefore stands beside it.

Rollouts whose Acc or NCR is unknown are left out.  Intervals are percentiles over resampled
problems; a replicate without right or without wrong rollouts has no value.  Under ten problems
there is no interval: of those from 2, 3 and 5 simulated problems that were called 95 %, 44, 65
and 83 % held the true AUROC, of those from ten 90 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from consensusbench.evaluation.bootstrap import percentile_interval, problem_weights
from consensusbench.evaluation.columns import Floats, Ints
from consensusbench.evaluation.estimates import ONE_PROBLEM, Estimate
from consensusbench.require import require

ONE_CLASS: Final = "no right or no wrong rollouts"
TOO_FEW: Final = "too few right or wrong rollouts for resampling"
FEW_PROBLEMS: Final = "fewer than 10 problems, too few for resampling"
ALL_ALIKE: Final = "all resamples give the same value"

MIN_PROBLEMS: Final = 10


@dataclass(frozen=True, slots=True)
class Consistency:
    """How NCR and Acc go together.

    Attributes:
        d_ncr: mean NCR of right minus that of wrong rollouts, in [-1, 1].
        auroc: in [0, 1]; .5 is chance.
        aucpr: in [0, 1]; the prevalence is chance.
        prevalence: share of right rollouts; None without rollouts.
        ncr_right, ncr_wrong: mean NCR of either.
        num_right, num_wrong: rollouts whose Acc and NCR are both known.
    """

    d_ncr: Estimate
    auroc: Estimate
    aucpr: Estimate
    prevalence: float | None
    ncr_right: float | None
    ncr_wrong: float | None
    num_right: int
    num_wrong: int

    def to_json(self) -> dict[str, object]:
        """Return the figures ready for ``json.dumps``."""
        return {
            "d_ncr": self.d_ncr.to_json(),
            "auroc": self.auroc.to_json(),
            "aucpr": self.aucpr.to_json(),
            "prevalence": self.prevalence,
            "ncr_right": self.ncr_right,
            "ncr_wrong": self.ncr_wrong,
            "num_right": self.num_right,
            "num_wrong": self.num_wrong,
        }


def consistency_of(
    ncr: Floats, acc: Floats, problem: Ints, confidence: float, seed: int
) -> Consistency:
    """Measure how NCR and Acc go together.

    Args:
        ncr: (n,) in [0, 1], NaN where unknown.
        acc: (n,) 0.0 or 1.0, NaN where unknown.
        problem: (n,) the problem of each rollout.
        confidence: of the intervals, in (0, 1).
        seed: of the resampling.
    """
    known = ~(np.isnan(ncr) | np.isnan(acc))
    ncr, problem, right = ncr[known], problem[known], acc[known] == 1.0
    numbers, cluster = np.unique(problem, return_inverse=True)
    num_right, num_wrong = int(right.sum()), int((~right).sum())
    ncr_right = float(ncr[right].mean()) if num_right else None
    ncr_wrong = float(ncr[~right].mean()) if num_wrong else None
    prevalence = num_right / len(ncr) if len(ncr) else None
    if ncr_right is None or ncr_wrong is None:
        none = Estimate(None, count=len(ncr), problems=len(numbers), no_interval=ONE_CLASS)
        return Consistency(none, none, none, prevalence, ncr_right, ncr_wrong, num_right, num_wrong)
    metrics = require("sklearn.metrics", "measuring AUROC and AUCPR")
    values = (
        ncr_right - ncr_wrong,
        float(metrics.roc_auc_score(right, ncr)),
        float(metrics.average_precision_score(right, ncr)),
    )
    if len(numbers) < MIN_PROBLEMS:
        reason = ONE_PROBLEM if len(numbers) < 2 else FEW_PROBLEMS
        d_ncr, auroc, aucpr = [
            Estimate(value, count=len(ncr), problems=len(numbers), no_interval=reason)
            for value in values
        ]
    else:
        replicates = _replicates(ncr, right, cluster, len(numbers), seed)
        d_ncr, auroc, aucpr = [
            _resampled(value, figure, confidence, len(ncr), len(numbers))
            for value, figure in zip(values, replicates, strict=True)
        ]
    return Consistency(d_ncr, auroc, aucpr, prevalence, ncr_right, ncr_wrong, num_right, num_wrong)


def _resampled(
    value: float, replicates: Floats, confidence: float, count: int, problems: int
) -> Estimate:
    interval = percentile_interval(replicates, confidence)
    if interval is None:
        return Estimate(value, count=count, problems=problems, no_interval=TOO_FEW)
    if interval[0] == interval[1]:  # as of an AUROC of 1: resampling cannot say how far from it
        return Estimate(value, count=count, problems=problems, no_interval=ALL_ALIKE)
    return Estimate(value, *interval, None, count, problems)


def _replicates(
    ncr: Floats, right: np.ndarray[Any, np.dtype[np.bool_]], cluster: Ints, problems: int, seed: int
) -> list[Floats]:
    """Return (r,) values of D_NCR, AUROC and AUCPR over resampled problems.

    All three follow from how many right and wrong rollouts have which NCR.  These counts are
    linear in how often each problem was drawn, so that a block of replicates is two products
    of matrices.
    """
    sparse = require("scipy.sparse", "resampling problems")
    levels, level = np.unique(ncr, return_inverse=True)
    shape = (problems, len(levels))
    counts = [
        sparse.csr_array((np.ones(int(of.sum())), (cluster[of], level[of])), shape=shape)
        for of in (right, ~right)
    ]
    blocks = [
        weighted_figures(levels, weights @ counts[0], weights @ counts[1])
        for weights in problem_weights(problems, seed)
    ]
    return [np.concatenate(figures) for figures in zip(*blocks, strict=True)]


def weighted_figures(levels: Floats, right: Floats, wrong: Floats) -> tuple[Floats, Floats, Floats]:
    """Return D_NCR, AUROC and AUCPR of rollouts that are counted by their NCR.

    Args:
        levels: (v,) the distinct values of NCR, ascending.
        right: (b, v) right rollouts of each value, in each replicate.
        wrong: (b, v) wrong ones.

    Returns:
        Three (b,) arrays, NaN where a replicate lacks right or wrong rollouts.
    """
    all_right, all_wrong = right.sum(axis=1), wrong.sum(axis=1)
    both = (all_right > 0) & (all_wrong > 0)
    per_right = np.divide(1.0, all_right, out=np.full(len(both), np.nan), where=both)
    per_wrong = np.divide(1.0, all_wrong, out=np.full(len(both), np.nan), where=both)
    d_ncr = (right @ levels) * per_right - (wrong @ levels) * per_wrong
    # Mann and Whitney: wrong ones below each right one, and half of those level with it.
    below = np.cumsum(wrong, axis=1) - wrong / 2
    auroc = (right * below).sum(axis=1) * per_right * per_wrong
    # Everything at or above a value is called right; recall grows by the right ones at it.
    true = np.cumsum(right[:, ::-1], axis=1)[:, ::-1]
    called = true + np.cumsum(wrong[:, ::-1], axis=1)[:, ::-1]
    precision = np.divide(true, called, out=np.zeros_like(true), where=called > 0)
    aucpr = (right * precision).sum(axis=1) * per_right
    aucpr[~both] = np.nan
    return d_ncr, auroc, aucpr
