"""Stage 3 of construction: of the candidates, the nodes worth supervising (paper section 3.2).

A candidate is dropped if it restates the problem, is trivial, holds too little information, is
reached too rarely or is implied by another one.  The most informative and best supported of the
others stay.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, TypeAlias

from pydantic import Field

from consensusbench.extraction.support import beyond, find_mentions
from consensusbench.extraction.types import Candidate, CorrectRollout, Dropped, Extraction
from consensuspr.core import normalize
from consensuspr.core.expressions import (
    Expression,
    Number,
    Power,
    Product,
    Sum,
    parse_statement,
    value_in_lowest_terms,
)
from consensuspr.data import Problem, Row
from consensuspr.errors import InputError
from consensuspr.settings import check_fields

# Counts up whenever the same candidates may give other nodes.
REFINEMENT_VERSION = "2"

# Information beyond this makes a node no better: a page of algebra is nothing to look for.
ENOUGH_INFORMATION = 12.0

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_OPERATION = re.compile(r"[-+*/^√(!]")
_NAME = re.compile(r"[^\W\d_]+")


Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """Which candidates become nodes.

    Attributes:
        min_nodes: leave out problems with fewer nodes (the paper's |Node|_min, section 3.2).
        max_nodes: nodes of a problem at most (the paper's |Node|_max).
        min_support: rollouts that must reach a node.
        min_share: share of the rollouts that must reach a node, from 0 to 1; what fewer reach is
            one way among several, no consensus.
        min_formula_share: the same for formulas that give no number, such as a+b=c: they
            depend on the names that a solution has chosen.
        min_information: digits, and half as many operations, that a node must hold at least; see
            :func:`information_of`.
        max_finals: nodes that state the final answer at most.

    Raises:
        InputError: a threshold is out of range.
    """

    min_nodes: Annotated[int, Field(ge=0)] = 2
    max_nodes: Annotated[int, Field(ge=1)] = 12
    min_support: Annotated[int, Field(ge=1)] = 2
    min_share: Share = 0.4
    min_formula_share: Share = 0.5
    min_information: Annotated[float, Field(ge=0)] = 2.0
    max_finals: Annotated[int, Field(ge=0)] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.min_nodes > self.max_nodes:
            raise InputError(
                f"min_nodes must be from 0 to max_nodes, got {self.min_nodes} and {self.max_nodes}"
            )

    def provenance(self) -> Row:
        """Return version and thresholds."""
        return {"version": REFINEMENT_VERSION, **asdict(self)}


def information_of(expression: str) -> float:
    """Return how much would have to be guessed to write an expression by chance, at least 0.

    One for each significant digit (one at least for each number), one half for each operation
    and each name.
    """
    normal = normalize(expression)
    digits = sum(
        max(1, len(number.replace(".", "").strip("0"))) for number in _NUMBER.findall(normal)
    )
    return digits + (len(_OPERATION.findall(normal)) + len(_NAME.findall(normal))) / 2


def is_identity(expression: str) -> bool:
    """Return whether an equation has two like sides, beside 1 times, plus 0 and first powers.

    ``5=5`` and ``1*4=4`` carry no information, although the matcher finds them.
    """
    statement = parse_statement(expression)
    if statement is None or len(statement.sides) != 2:
        return False
    left, right = map(_reduced, statement.sides)
    return left == right or (
        isinstance(left, Number) and isinstance(right, Number) and left.value == right.value
    )


def _reduced(tree: Expression) -> Expression:
    """Return a tree without the operations of its top that change nothing."""
    match tree:
        case Sum():
            terms = [(sign, term) for sign, term in tree.terms if not _is_number(term, 0)]
            return terms[0][1] if len(terms) == 1 and terms[0][0] > 0 else Sum(terms)
        case Product():
            factors = [(div, factor) for div, factor in tree.factors if not _is_number(factor, 1)]
            return factors[0][1] if len(factors) == 1 and not factors[0][0] else Product(factors)
        case Power() if _is_number(tree.exponent, 1):
            return tree.base
    return tree


def _is_number(tree: Expression, value: int) -> bool:
    return isinstance(tree, Number) and tree.value == value


def gives_number(expression: str) -> bool:
    """Return whether one side of a statement is a number, so that it does not depend on names."""
    statement = parse_statement(expression)
    return statement is not None and any(
        value_in_lowest_terms(side) is not None for side in statement.sides
    )


@dataclass(frozen=True, slots=True)
class PaperRefiner:
    """Chooses the nodes of a problem by the steps of this module, in their order."""

    settings: RefineSettings = field(default_factory=RefineSettings)

    @property
    def min_nodes(self) -> int:
        return self.settings.min_nodes

    def provenance(self) -> Row:
        return self.settings.provenance()

    def refine(self, problem: Problem, extraction: Extraction, rollouts: int) -> Extraction:
        """Return the nodes in order of position, and everything dropped so far."""
        settings = self.settings
        dropped: list[Dropped] = []

        def sift(
            candidates: Iterable[Candidate],
            reason: str,
            judge: Callable[[Candidate], Candidate | str],
        ) -> list[Candidate]:
            """Keep the candidates that the judge returns; drop those that it gives a reason for."""
            kept = []
            for candidate in candidates:
                judged = judge(candidate)
                if isinstance(judged, Candidate):
                    kept.append(judged)
                else:
                    conclusion = (candidate.label, candidate.expressions, candidate.support)
                    dropped.append(Dropped("refine", reason, judged, *conclusion))
            return kept

        def echo(candidate: Candidate) -> Candidate | str:
            # Wordings that the problem's own text states are dropped, or all if the label is one.
            found = candidate.expressions, candidate.derived
            expressions, derived = beyond(problem.problem, *found)
            if candidate.label in expressions or (expressions, derived) == found:
                return replace(candidate, expressions=expressions, derived=derived)
            return "it stands in the text of the problem"

        def rare(candidate: Candidate) -> Candidate | str:
            is_number = gives_number(candidate.expressions[0])
            share = settings.min_share if is_number else settings.min_formula_share
            needed = max(settings.min_support, math.ceil(share * rollouts - 1e-9))
            if candidate.support >= needed:
                return candidate
            return f"reached by {candidate.support} of {rollouts} rollouts, {needed} are needed"

        def trivial(candidate: Candidate) -> Candidate | str:
            # Trivial wordings are dropped, or the candidate if all are.
            kept = tuple(text for text in candidate.expressions if not is_identity(text))
            if not kept:
                return "an operation that changes nothing"
            # A label may be words of a model, and no expression.
            label = (
                kept[0]
                if candidate.label in {*candidate.expressions} - {*kept}
                else candidate.label
            )
            return replace(candidate, label=label, expressions=kept)

        def vague(candidate: Candidate) -> Candidate | str:
            information = information_of(candidate.label)
            if information >= settings.min_information:
                return candidate
            return f"information {information:g}, {settings.min_information:g} are needed"

        left = sift(extraction.candidates, "restates the problem", echo)
        left = sift(left, "support", rare)
        left = sift(left, "trivial", trivial)
        left = sift(left, "not distinctive", vague)
        left.sort(key=lambda found: (-_worth(found, rollouts), found.position, found.label))
        pieces = _pieces(left)
        left = sift(left, "implied", lambda candidate: pieces.get(id(candidate), candidate))
        finals = [candidate for candidate in left if candidate.is_final][: settings.max_finals]
        surplus = [found for found in left if found.is_final and found not in finals]
        detail = f"{settings.max_finals} others state the final answer"
        left = sift(
            left, "restates the answer", lambda found: detail if found in surplus else found
        )
        beaten = f"{settings.max_nodes} others are more informative or reached more often"
        sift(left[settings.max_nodes :], "beyond the maximum", lambda candidate: beaten)
        nodes = sorted(left[: settings.max_nodes], key=lambda found: (found.position, found.label))
        return Extraction(tuple(nodes), (*extraction.dropped, *dropped))


def _pieces(candidates: Sequence[Candidate]) -> dict[int, str]:
    """Return why candidates go one of which implies a better one, or is implied by it.

    A candidate implies another that stands in all of its wordings: whoever reaches it gets both.
    Every wording is read once, for all candidates together: a matcher for each pair of several
    hundred candidates would take a minute.

    Args:
        candidates: best first.

    Returns:
        Sentences by ``id`` of the candidate.
    """
    owners = [index for index, candidate in enumerate(candidates) for _ in candidate.expressions]
    wordings = [
        CorrectRollout("", "", text) for candidate in candidates for text in candidate.expressions
    ]
    found = find_mentions(
        [(candidate.expressions, candidate.derived) for candidate in candidates], wordings
    )
    # For each candidate the indices of those that stand in all of its wordings.
    implied: list[set[int]] = [set() for _ in candidates]
    for part, mentions in enumerate(found):
        for index, count in Counter(owners[mention.rollout] for mention in mentions).items():
            if count == len(candidates[index].expressions):
                implied[index].add(part)
    kept: list[int] = []
    pieces: dict[int, str] = {}
    for index, candidate in enumerate(candidates):
        near = (other for other in kept if other in implied[index] or index in implied[other])
        whole = next(near, None)
        if whole is None:
            kept.append(index)
        else:
            pieces[id(candidate)] = f"implies or is implied by {candidates[whole].label!r}"
    return pieces


def _worth(candidate: Candidate, rollouts: int) -> float:
    """Return the share of rollouts that reach a node, times its information."""
    information = min(information_of(candidate.label), ENOUGH_INFORMATION)
    return candidate.support / max(1, rollouts) * information
