"""Two models compared on the same problems.

Each problem gives one difference: the candidate's mean over its rollouts minus the baseline's.  The
figure is the mean over problems, with a t interval and the p-value of a sign-flip test.  Problems
that only one of the two answered, or that lack a value of a measure, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from consensusbench.evaluation.estimates import (
    MAX_NAMED,
    Estimate,
    check_confidence,
    mean_estimate,
    problem_means,
    sign_flip_p_value,
)
from consensusbench.evaluation.scored import (
    UNKNOWN,
    Columns,
    Floats,
    Ints,
    label_order,
    per_node,
)
from consensusbench.tables import JsonResult
from consensuspr.errors import InputError
from consensuspr.version import VERSION

# Measures of which less is better; length and TPN cost time, and are no quality in themselves.
LOWER_IS_BETTER: Final = frozenset(("tpn", "tokens"))
MEASURES: Final[dict[str, Callable[[Columns], Floats]]] = {
    "acc": lambda columns: columns.acc,
    "ncr": lambda columns: per_node(columns.hits, columns.nodes),
    "ncr_without_final": lambda columns: per_node(
        columns.hits_without_final, columns.nodes_without_final
    ),
    "tpn": lambda columns: per_node(columns.tokens, columns.hits),
    "tokens": lambda columns: columns.tokens,
}
_EQUAL: Final = 1e-12
SCHEMA: Final = "consensusbench.comparison/2"


@dataclass(frozen=True, slots=True)
class PairedDifference(JsonResult):
    """One measure of two models, paired by problem.

    ``delta`` is candidate minus baseline, ``relative`` that over the baseline's mean.  ``wins`` are
    problems on which the candidate is better; less is better for :data:`LOWER_IS_BETTER`.
    """

    measure: str
    baseline: float | None
    candidate: float | None
    delta: Estimate
    relative: float | None
    p_value: float | None
    wins: int
    ties: int
    losses: int
    num_unpaired: int


@dataclass(frozen=True, slots=True)
class PairedGroup(JsonResult):
    """All differences over one group of problems, in the order of :data:`MEASURES`."""

    key: dict[str, str]
    num_problems: int
    differences: tuple[PairedDifference, ...]


@dataclass(frozen=True, slots=True)
class Comparison(JsonResult):
    """A candidate against a baseline.

    ``left_out`` is, for either, how many problems only it answered, and the first of them.
    """

    baseline: str
    candidate: str
    overall: PairedGroup
    groups: tuple[PairedGroup, ...]
    left_out: dict[str, tuple[int, tuple[str, ...]]]
    num_undecided: int
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """Return everything ready for ``json.dumps``."""
        return {"schema": SCHEMA, "version": VERSION} | JsonResult.to_json(self)


def compare(
    baseline: Columns,
    candidate: Columns,
    problem_ids: tuple[str, ...],
    *,
    names: tuple[str, str],
    by: Sequence[str] = (),
    confidence: float = 0.95,
) -> Comparison:
    """Compare two models on the problems that both answered.

    Args:
        baseline, candidate: rollouts over the same numbering of problems.
        by: ``source`` and ``difficulty``: the same comparison within each.

    Raises:
        InputError: there is no problem that both answered, or a setting is wrong.
    """
    check_comparison(by, confidence)
    both = np.intersect1d(baseline.problem, candidate.problem)
    if not len(both):
        raise InputError(f"{names[0]!r} and {names[1]!r} have no problem in common")

    def group(problems: Ints, **key: str) -> PairedGroup:
        first, second = (
            side.where(np.isin(side.problem, problems)) for side in (baseline, candidate)
        )
        differences = [
            paired_difference(
                measure,
                (value_of(first), first.problem),
                (value_of(second), second.problem),
                confidence,
            )
            for measure, value_of in MEASURES.items()
        ]
        return PairedGroup(key, len(np.unique(first.problem)), tuple(differences))

    groups = []
    inside = np.isin(baseline.problem, both)
    for dimension in by:
        labels = getattr(baseline, dimension)
        for label in sorted(set(labels[inside].tolist()) - {UNKNOWN}, key=label_order):
            groups.append(group(baseline.problem[inside & (labels == label)], **{dimension: label}))
    sides = {"baseline": baseline, "candidate": candidate}
    alone = {name: np.setdiff1d(side.problem, both).tolist() for name, side in sides.items()}
    undecided = [side.undecided[np.isin(side.problem, both)] for side in sides.values()]
    return Comparison(
        baseline=names[0],
        candidate=names[1],
        overall=group(both),
        groups=tuple(groups),
        left_out={
            name: (len(numbers), tuple(problem_ids[number] for number in numbers[:MAX_NAMED]))
            for name, numbers in alone.items()
        },
        num_undecided=int(sum(flags.sum() for flags in undecided)),
        confidence=confidence,
    )


def check_comparison(by: Sequence[str], confidence: float) -> None:
    """Check settings before anything is scored."""
    for dimension in by:
        if dimension not in ("source", "difficulty"):
            raise InputError(f"a comparison is by source or difficulty, not by {dimension!r}")
    check_confidence(confidence)


def paired_difference(
    measure: str,
    baseline: tuple[Floats, Ints],
    candidate: tuple[Floats, Ints],
    confidence: float,
) -> PairedDifference:
    """Return the difference of one measure, of the (n,) values and problems of either."""
    answered = len(np.union1d(baseline[1], candidate[1]))
    of_baseline, means_baseline = problem_means(*baseline)
    of_candidate, means_candidate = problem_means(*candidate)
    paired, at_baseline, at_candidate = np.intersect1d(
        of_baseline, of_candidate, assume_unique=True, return_indices=True
    )
    left, right = means_baseline[at_baseline], means_candidate[at_candidate]
    # Equal means of rollouts in another order may differ in their last digit.
    deltas: Floats = np.where(np.isclose(left, right, rtol=_EQUAL, atol=0.0), 0.0, right - left)
    better = -deltas if measure in LOWER_IS_BETTER else deltas
    base = float(left.mean()) if len(paired) else None
    delta = mean_estimate(deltas, paired, confidence)
    return PairedDifference(
        measure=measure,
        baseline=base,
        candidate=float(right.mean()) if len(paired) else None,
        delta=delta,
        relative=delta.value / base if base and delta.value is not None else None,
        p_value=sign_flip_p_value(deltas) if len(paired) > 1 else None,
        wins=int((better > 0).sum()),
        ties=int((better == 0).sum()),
        losses=int((better < 0).sum()),
        num_unpaired=answered - len(paired),
    )
