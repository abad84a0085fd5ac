"""Cluster the statements of several rollouts into the conclusions that they share.

Statements of one structure are one conclusion.  So are computations that give the same value
where they are alternatives: ``300-100-50=150`` in one solution and ``200-50=150`` in another
both say that 150 are left.  A rollout that makes both, in two places, shows that they are two
steps; a chain (``a=b=150``) is one place.  A variable that is given the value says the same
as the computation behind it, but two variables that a rollout gives one value are two
conclusions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from consensusbench.extraction.rules.conclusions import Conclusion, Kind
from consensusbench.extraction.rules.phrases import Phrase, is_small

# Of the rollouts that make the rarer of two statements, the share that may make both before
# they count as two steps.
MAX_TOGETHER = 0.25

# Rollouts that must write a digit with a word.
MIN_WRITTEN = 2

# Ways to one value that are compared with each other; a rollout of tool output holds hundreds.
MAX_ALTERNATIVES = 64


@dataclass(slots=True)
class Cluster:
    """Statements that conclude the same.

    Attributes:
        value: what they give, None for a formula.
        wordings: how often each was written; formulas.
        phrases: how many rollouts wrote each; numbers with words.
        rollouts: which wrote a statement of it, phrases aside.
    """

    value: Fraction | None
    wordings: Counter[str] = field(default_factory=Counter)
    phrases: Counter[str] = field(default_factory=Counter)
    rollouts: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Statement:
    """All conclusions of one structure."""

    kind: Kind
    value: Fraction | None
    is_worded: bool
    wordings: Counter[str] = field(default_factory=Counter)
    places: dict[int, set[int]] = field(default_factory=dict)  # rollout -> its chains


def cluster(read: Sequence[Sequence[Conclusion]]) -> list[Cluster]:
    """Return the clusters of the conclusions of several rollouts, best supported first.

    Args:
        read: (n_rollouts,) what each rollout concludes.
    """
    by_value: dict[Fraction, list[_Statement]] = {}
    clusters: list[Cluster] = []
    for statement in _statements(read):
        if statement.value is None:
            clusters.append(_as_cluster([statement]))
        else:
            by_value.setdefault(statement.value, []).append(statement)
    for statements in by_value.values():
        for group in _alternatives(statements):
            if not all(statement.is_worded for statement in group):
                clusters.append(_as_cluster(group))
    return sorted(clusters, key=_by_support)


def add_phrases(clusters: Iterable[Cluster], read: Sequence[Sequence[Phrase]]) -> list[Cluster]:
    """Give each phrase to the cluster of its value, and return clusters of what is left.

    Where several clusters give a value, the best supported one is the likeliest to be meant.
    A digit with a word needs two rollouts: "7 days" may be any week.

    Args:
        clusters: of :func:`cluster`, best supported first; changed.
        read: (n_rollouts,) the phrases of each rollout.

    Returns:
        Clusters of bare numbers that no formula gives.
    """
    owners: dict[Fraction, Cluster] = {}
    for known in clusters:
        if known.value is not None:
            owners.setdefault(known.value, known)
    alone: dict[Fraction, Cluster] = {}
    written = Counter(phrase.words for phrases in read for phrase in phrases)
    for index, phrases in enumerate(read):
        for phrase in phrases:
            if is_small(phrase.value) and written[phrase.words] < MIN_WRITTEN:
                continue
            owner = owners.get(phrase.value)
            if owner is not None:
                owner.phrases[phrase.words] += 1
            elif phrase.is_bare:
                own = alone.setdefault(phrase.value, Cluster(phrase.value))
                own.wordings[phrase.words] += 1
                own.rollouts.add(index)
    return sorted(alone.values(), key=_by_support)


def _statements(read: Sequence[Sequence[Conclusion]]) -> Iterator[_Statement]:
    statements: dict[str, _Statement] = {}
    for index, conclusions in enumerate(read):
        for one in conclusions:
            known = statements.get(one.structure)
            if known is None:
                known = statements[one.structure] = _Statement(one.kind, one.value, one.is_worded)
            known.wordings[one.wording] += 1
            known.places.setdefault(index, set()).add(one.chain)
    yield from statements.values()


def _alternatives(statements: list[_Statement]) -> list[list[_Statement]]:
    """Return statements of one value as groups of ways to it; the rarest stay alone."""
    ranked = sorted(statements, key=lambda one: (-len(one.places), -one.wordings.total()))
    groups: list[list[_Statement]] = []
    for statement in ranked[:MAX_ALTERNATIVES]:
        for group in groups:
            if all(_may_be_one(statement, other) for other in group):
                group.append(statement)
                break
        else:
            groups.append([statement])
    return groups + [[statement] for statement in ranked[MAX_ALTERNATIVES:]]


def _may_be_one(one: _Statement, other: _Statement) -> bool:
    if one.kind is not other.kind:
        return True  # x=30 behind 60/2=30
    shared = one.places.keys() & other.places.keys()
    apart = sum(not one.places[index] & other.places[index] for index in shared)
    return apart <= MAX_TOGETHER * min(len(one.places), len(other.places))


def _as_cluster(statements: Sequence[_Statement]) -> Cluster:
    merged = Cluster(statements[0].value)
    # Computations before assignments: "3*10=30" says more than "x=30".
    for statement in sorted(statements, key=lambda one: one.kind is Kind.ASSIGNED):
        merged.wordings.update(statement.wordings)
        merged.rollouts.update(statement.places)
    return merged


def _by_support(one: Cluster) -> tuple[int, int, str]:
    # The wording last, so that equal counts have one order on every machine.
    return -len(one.rollouts), -one.wordings.total(), min(one.wordings)
