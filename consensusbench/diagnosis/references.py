"""What is usual for a right rollout of a problem: the length that redundancy is held against.

Medians, because one runaway must not move what is usual.  They are over the right rollouts of
the problem at hand where there are enough of them, else over those of its data source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from consensusbench.evaluation.scored import ScoredRollout

# A median of fewer says nothing about what is usual.
MIN_ROLLOUTS: Final = 3


@dataclass(frozen=True, slots=True)
class Usual:
    """Medians in one unit: of the length, and of the length per node hit (None where unknown)."""

    length: float
    per_node: float | None


@dataclass(frozen=True, slots=True)
class Reference:
    """What right rollouts of a problem are like.

    Attributes:
        in_chars: over all of them.
        in_tokens: over those whose tokens are known; None where they are too few.
    """

    in_chars: Usual
    in_tokens: Usual | None


class References:
    """References of all problems of a set of rollouts."""

    def __init__(self, right: Iterable[ScoredRollout]) -> None:
        """Take the rollouts that are right."""
        by_problem: dict[str, list[ScoredRollout]] = defaultdict(list)
        by_source: dict[str, list[ScoredRollout]] = defaultdict(list)
        for rollout in right:
            by_problem[rollout.problem_id].append(rollout)
            by_source[rollout.data_source].append(rollout)
        self._problems = {name: _reference(group) for name, group in by_problem.items()}
        self._sources = {name: _reference(group) for name, group in by_source.items()}

    def of(self, rollout: ScoredRollout) -> Reference | None:
        """Return what is usual for a rollout's problem, else for its source, else None."""
        return self._problems.get(rollout.problem_id) or self._sources.get(rollout.data_source)


def _reference(group: list[ScoredRollout]) -> Reference | None:
    in_chars = _usual(group, lambda one: one.num_chars)
    if in_chars is None:
        return None
    return Reference(in_chars, _usual(group, lambda one: one.num_tokens))


def _usual(
    group: list[ScoredRollout], length: Callable[[ScoredRollout], int | None]
) -> Usual | None:
    known = [(size, one.num_matched) for one in group if (size := length(one))]
    if len(known) < MIN_ROLLOUTS:
        return None
    per_node = [size / hits for size, hits in known if hits]
    return Usual(
        length=median(size for size, _ in known),
        per_node=median(per_node) if len(per_node) >= MIN_ROLLOUTS else None,
    )
