"""What a reward would tell a trainer: alpha-sensitivity, computed from scored rollouts.

Nothing is trained here.  Three figures say what a reward does to rollouts that exist:

- its mean over right and over wrong rollouts, and the gap between the two;
- the share of groups (rollouts of one model for one problem) whose rewards differ: GRPO takes
  its gradient from differences inside a group, and a group of equal rewards gives none;
- the share of pairs of a right and a wrong rollout in one group in which the wrong one is
  rewarded as much or more: what the process part costs in honesty.

Rollouts whose Acc or NCR is unknown are left out; a group needs two that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from consensuspr.scoring.rewards import RewardSpec

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

Floats: TypeAlias = npt.NDArray[np.float64]

ALPHAS = tuple(i / 20 for i in range(21))

# Rewards are sums of quotients of small numbers: closer than this is equal.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class RewardFigures:
    """What one reward does.

    Attributes:
        name: of the reward, for a person.
        alpha: of the linear reward, None for the others.
        right: mean over right rollouts; None where there is none.
        wrong: mean over wrong rollouts; None where there is none.
        signal: share of groups whose rewards differ; None without a group of two.
        misordered: share of pairs in which the wrong rollout gets as much as the right one, or
            more; None without such a pair.
    """

    name: str
    alpha: float | None
    right: float | None
    wrong: float | None
    signal: float | None
    misordered: float | None

    @property
    def gap(self) -> float | None:
        """How much more a right rollout gets than a wrong one, on average."""
        return None if self.right is None or self.wrong is None else self.right - self.wrong


class RewardStudy:
    """Acc and NCR of rollouts in their groups, ready for any reward."""

    def __init__(self, rollouts: Iterable[ScoredRollout]) -> None:
        """Take the rollouts; only numbers are kept."""
        groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for rollout in rollouts:
            if rollout.acc is not None and rollout.ncr is not None:
                key = (rollout.model, rollout.problem_id)
                groups.setdefault(key, []).append((rollout.acc, rollout.ncr))
        self.groups = sum(len(group) > 1 for group in groups.values())
        self.rollouts = sum(len(group) for group in groups.values())
        flat = np.array([pair for g in groups.values() for pair in g], dtype=np.float64)
        self._acc, self._ncr = flat.reshape(-1, 2).T
        sizes = np.array([len(group) for group in groups.values()], dtype=np.int64)
        self._starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
        self._several = sizes > 1
        self._counts = _pair_counts(groups.values())

    def figures(self, name: str, spec: RewardSpec, alpha: float | None = None) -> RewardFigures:
        """Return what a reward does; O(rollouts)."""
        rewards = spec.compute(self._acc, self._ncr)
        right = self._acc >= 0.5
        return RewardFigures(
            name,
            alpha,
            _mean(rewards[right]),
            _mean(rewards[~right]),
            self._signal(rewards),
            self._misordered(spec),
        )

    def _signal(self, rewards: Floats) -> float | None:
        if not self.groups:
            return None
        spread = np.maximum.reduceat(rewards, self._starts) - np.minimum.reduceat(
            rewards, self._starts
        )
        return float(np.mean(spread[self._several] > _EQUAL))

    def _misordered(self, spec: RewardSpec) -> float | None:
        """Count pairs by their two NCRs, of which there are few distinct ones."""
        if not self._counts:
            return None
        pairs = np.array([(*key, n) for key, n in self._counts.items()], dtype=np.float64)
        of_right = spec.compute(np.ones(len(pairs)), pairs[:, 0])
        of_wrong = spec.compute(np.zeros(len(pairs)), pairs[:, 1])
        weights = pairs[:, 2]
        return float(weights[of_wrong >= of_right - _EQUAL].sum() / weights.sum())


def _pair_counts(
    groups: Iterable[Sequence[tuple[float, float]]],
) -> dict[tuple[float, float], int]:
    """Return how many pairs of (NCR of a right, NCR of a wrong rollout of its group) there are."""
    counts: dict[tuple[float, float], int] = {}
    for group in groups:
        right, wrong = (_tally(group, side) for side in (True, False))
        for of_right, n in right.items():
            for of_wrong, m in wrong.items():
                key = (of_right, of_wrong)
                counts[key] = counts.get(key, 0) + n * m
    return counts


def _tally(group: Sequence[tuple[float, float]], right: bool) -> dict[float, int]:
    tally: dict[float, int] = {}
    for acc, ncr in group:
        if (acc >= 0.5) is right:
            tally[ncr] = tally.get(ncr, 0) + 1
    return tally


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def alpha_sweep(study: RewardStudy, alphas: Sequence[float] = ALPHAS) -> list[RewardFigures]:
    """Return the figures of the linear reward (equation 3 of the paper) for each alpha."""
    return [study.figures(f"linear, α = {a:g}", RewardSpec.linear(a), a) for a in alphas]


def fixed_rewards(study: RewardStudy) -> list[RewardFigures]:
    """Return the figures of the rewards without alpha: max (equation 4) and the outcome."""
    return [
        study.figures("max(Acc, NCR)", RewardSpec.maximum()),
        study.figures("outcome (Acc alone)", RewardSpec.outcome()),
    ]
