"""Figures of merit from scored rollouts, each a few exact lines.

Recall and false positives are pooled over nodes (micro averages), mean NCR is over
rollouts (equation 1 of the paper), AUROC is the probability that a right rollout has the
higher NCR of a right and a wrong one, ties counting half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sklearn.metrics import roc_auc_score


@dataclass(frozen=True, slots=True)
class Observation:
    """One rollout scored against the nodes of one problem.

    Attributes:
        correct: its answer is right.
        matched: one bool per node.
        is_final: one bool per node: the node states the final answer.
    """

    correct: bool
    matched: tuple[bool, ...]
    is_final: tuple[bool, ...]

    def ncr(self, with_final: bool = True) -> float | None:
        """Return the share of nodes reached; None where there is no node to reach."""
        counted = [
            hit
            for hit, final in zip(self.matched, self.is_final, strict=True)
            if with_final or not final
        ]
        return sum(counted) / len(counted) if counted else None


def hit_rate(observations: Iterable[Observation]) -> float:
    """Return the share of nodes that are matched, over all observations together.

    The recall of gold equations for right rollouts, the rate of false positives for
    rollouts of other problems.

    Raises:
        ValueError: there is no node.
    """
    hits = total = 0
    for observation in observations:
        hits += sum(observation.matched)
        total += len(observation.matched)
    if not total:
        raise ValueError("no node was looked for, so there is no rate")
    return hits / total


def mean_ncr(observations: Iterable[Observation]) -> float:
    """Return the mean NCR over rollouts whose problem has nodes.

    Raises:
        ValueError: there is none.
    """
    values = [ncr for observation in observations if (ncr := observation.ncr()) is not None]
    if not values:
        raise ValueError("no rollout has nodes, so there is no mean NCR")
    return sum(values) / len(values)


def ncr_auroc(observations: Iterable[Observation], with_final: bool = True) -> float:
    """Return how well NCR tells right from wrong rollouts.

    Args:
        observations: right and wrong ones.
        with_final: count the nodes that state the final answer.  Without them, rollouts
            of problems that have no other node are left out.
    """
    scored = [
        (ncr, observation.correct)
        for observation in observations
        if (ncr := observation.ncr(with_final)) is not None
    ]
    return auroc([ncr for ncr, _ in scored], [correct for _, correct in scored])


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Return the area under the ROC curve, ties counting half.

    Args:
        scores: (n,) one score each.
        labels: (n,) True for the class that should score higher.

    Raises:
        ValueError: one class is empty.
    """
    num_positive = sum(labels)
    num_negative = len(labels) - num_positive
    if not num_positive or not num_negative:
        raise ValueError(f"AUROC needs both classes, got {num_positive} and {num_negative}")
    return float(roc_auc_score(labels, scores))
