"""What the report's charts show, computed from scored rollouts.

Right and wrong rollouts are the two that most charts compare; where they reach their nodes, how
each problem fared, and what rewards would tell a trainer (:class:`RewardStudy`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from consensuspr.scoring.rewards import RewardSpec

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import Floats, ScoredRollout

# Fifths of a problem's nodes: problems have between 2 and 12 of them.
ORDER_BINS = 5
TEXT_STEPS = 20

ALPHAS = tuple(i / 20 for i in range(21))
# Rewards are sums of quotients of small numbers: closer than this is equal.
_EQUAL = 1e-9


class Correctness(StrEnum):
    """Whether the final answer is right; the value is also what its colour goes by."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"


# What most charts compare.
COMPARED = (Correctness.RIGHT, Correctness.WRONG)


def correctness_of(rollout: ScoredRollout) -> Correctness:
    """Return the side of a rollout; without an accuracy it is unknown, never wrong."""
    if rollout.acc is None:
        return Correctness.UNKNOWN
    return Correctness.RIGHT if rollout.acc >= 0.5 else Correctness.WRONG


def by_correctness(rollouts: Iterable[ScoredRollout]) -> dict[Correctness, list[ScoredRollout]]:
    """Return the rollouts of each side, all sides present."""
    sides: dict[Correctness, list[ScoredRollout]] = {side: [] for side in Correctness}
    for rollout in rollouts:
        sides[correctness_of(rollout)].append(rollout)
    return sides


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve over relative positions: (position, share of nodes), both in [0, 1]."""

    points: tuple[tuple[float, float], ...]
    rollouts: int


def reached_by_order(rollouts: Iterable[ScoredRollout], bins: int = ORDER_BINS) -> Curve:
    """Return which share of the nodes is reached, by their place in the problem's order.

    Node i of k (from 1) stands at (i - 0.5) / k.  All nodes of all rollouts count alike.
    """
    met, seen = [0] * bins, [0] * bins
    used = 0
    for rollout in rollouts:
        nodes = len(rollout.matched)
        used += nodes > 0
        for at, matched in enumerate(rollout.matched):
            slot = (2 * at + 1) * bins // (2 * nodes)
            seen[slot] += 1
            met[slot] += matched
    points = tuple(((i + 0.5) / bins, met[i] / seen[i]) for i in range(bins) if seen[i])
    return Curve(points, used)


def coverage_by_position(rollouts: Iterable[ScoredRollout], steps: int = TEXT_STEPS) -> Curve:
    """Return mean coverage after reading the first share of the text, from 0 to all of it.

    A node counts from the end of its first hit on.  Rollouts without spans, without nodes or
    without text are left out.  The curve ends at their mean NCR.
    """
    arrived = [0.0] * (steps + 1)
    used = 0
    for rollout in rollouts:
        if rollout.spans is None or not rollout.spans or not rollout.num_chars:
            continue
        used += 1
        for span in rollout.spans:
            if span is not None:
                slot = -(-span[1] * steps // rollout.num_chars)
                arrived[min(slot, steps)] += 1 / len(rollout.spans)
    if not used:
        return Curve((), 0)
    points, total = [], 0.0
    for slot, share in enumerate(arrived):
        total += share
        points.append((slot / steps, total / used))
    return Curve(tuple(points), used)


@dataclass(frozen=True, slots=True)
class ProblemSummary:
    """How the rollouts of one problem fared; None where no rollout says it."""

    problem_id: str
    rollouts: int
    acc: float | None
    ncr: float | None


def summarize_problems(rollouts: Iterable[ScoredRollout]) -> list[ProblemSummary]:
    """Return one summary for each problem that has rollouts, in order of first appearance."""
    groups: dict[str, list[ScoredRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    return [
        ProblemSummary(
            problem_id,
            len(group),
            _mean([r.acc for r in group if r.acc is not None]),
            _mean([r.ncr for r in group if r.ncr is not None]),
        )
        for problem_id, group in groups.items()
    ]


def _mean(values: Sequence[float] | Floats) -> float | None:
    return float(np.mean(values)) if len(values) else None


@dataclass(frozen=True, slots=True)
class RewardFigures:
    """What one reward does to rollouts that exist; nothing is trained.

    Attributes:
        signal: share of groups (rollouts of one model for one problem) whose rewards differ:
            GRPO takes its gradient from differences inside a group, and a group of equal rewards
            gives none; None without a group of two.
        misordered: share of pairs of a right and a wrong rollout in one group in which the wrong
            one gets as much or more, which is what the process part costs in honesty; None
            without such a pair.
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
    """Acc and NCR of rollouts in their groups, ready for any reward.

    Rollouts whose Acc or NCR is unknown are left out; a group needs two that are left.
    """

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
) -> Counter[tuple[float, float]]:
    """Return how many pairs of (NCR of a right, NCR of a wrong rollout of its group) there are."""
    counts: Counter[tuple[float, float]] = Counter()
    for group in groups:
        right = Counter(ncr for acc, ncr in group if acc >= 0.5)
        wrong = Counter(ncr for acc, ncr in group if acc < 0.5)
        for of_right, n in right.items():
            for of_wrong, m in wrong.items():
                counts[of_right, of_wrong] += n * m
    return counts


def alpha_sweep(study: RewardStudy, alphas: Sequence[float] = ALPHAS) -> list[RewardFigures]:
    """Return the figures of the linear reward (equation 3 of the paper) for each alpha."""
    return [study.figures(f"linear, α = {a:g}", RewardSpec.linear(a), a) for a in alphas]


def fixed_rewards(study: RewardStudy) -> list[RewardFigures]:
    """Return the figures of the rewards without alpha: max (equation 4) and the outcome."""
    return [
        study.figures("max(Acc, NCR)", RewardSpec.maximum()),
        study.figures("outcome (Acc alone)", RewardSpec.outcome()),
    ]
