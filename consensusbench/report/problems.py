"""Rollouts summed up by problem, for the scatter and for the table of problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout


@dataclass(frozen=True, slots=True)
class ProblemSummary:
    """How the rollouts of one problem fared; None where no rollout says it.

    Attributes:
        problem_id: its key.
        data_source: label of its benchmark, possibly empty.
        difficulty: of the dataset, possibly empty.
        rollouts: how many there are, whatever their status.
        acc: share of right ones among those with an accuracy.
        ncr: mean node coverage.
        ncr_right: the same over right rollouts.
        ncr_wrong: the same over wrong rollouts.
        labels: (k,) of its nodes.
        is_final: (k,) whether a node states the final answer.
        node_rates: (k,) share of rollouts that reached each node; empty where none was matched.
    """

    problem_id: str
    data_source: str
    difficulty: str
    rollouts: int
    acc: float | None
    ncr: float | None
    ncr_right: float | None
    ncr_wrong: float | None
    labels: tuple[str, ...]
    is_final: tuple[bool, ...]
    node_rates: tuple[float, ...]

    @property
    def surprise(self) -> float:
        """How far accuracy and coverage disagree, in [0, 1]; -1 where either is unknown."""
        return -1.0 if self.acc is None or self.ncr is None else abs(self.acc - self.ncr)


def summarize_problems(
    rollouts: Iterable[ScoredRollout], problems: Mapping[str, ProblemFacts]
) -> list[ProblemSummary]:
    """Return one summary for each problem that has rollouts, in order of first appearance."""
    groups: dict[str, list[ScoredRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    return [_summarize(key, group, problems.get(key)) for key, group in groups.items()]


def _summarize(
    problem_id: str, rollouts: Sequence[ScoredRollout], facts: ProblemFacts | None
) -> ProblemSummary:
    scored = [(r.acc, r.ncr) for r in rollouts if r.ncr is not None]
    return ProblemSummary(
        problem_id=problem_id,
        data_source=rollouts[0].data_source if facts is None else facts.data_source,
        difficulty="" if facts is None else facts.difficulty or "",
        rollouts=len(rollouts),
        acc=_mean([r.acc for r in rollouts if r.acc is not None]),
        ncr=_mean([ncr for _, ncr in scored]),
        ncr_right=_mean([ncr for acc, ncr in scored if acc == 1.0]),
        ncr_wrong=_mean([ncr for acc, ncr in scored if acc == 0.0]),
        labels=() if facts is None else facts.labels,
        is_final=() if facts is None else facts.is_final,
        node_rates=_node_rates([r.matched for r in rollouts if r.matched]),
    )


def _node_rates(matched: Sequence[tuple[bool, ...]]) -> tuple[float, ...]:
    return tuple(sum(hits) / len(hits) for hits in zip(*matched, strict=True))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
