"""Stage 3 of construction: of the candidates, the nodes worth supervising (paper section 3.2).

What restates the problem, is trivial, says too little, is reached too rarely or is implied by
another candidate is dropped; of the rest the most informative and best supported stay.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
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
    """Tell whether an equation has two like sides, beside 1 times, plus 0 and first powers.

    ``5=5`` and ``1*4=4`` say nothing, although the matcher finds them.
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
    """Tell whether one side of a statement is a number: what it says does not hang on names."""
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
            candidates: Sequence[Candidate],
            reason: str,
            judge: Callable[[Candidate], Candidate | str],
        ) -> list[Candidate]:
            """Keep what the judge returns; where that is a sentence, it says why one goes."""
            kept = []
            for candidate in candidates:
                judged = judge(candidate)
                if isinstance(judged, Candidate):
                    kept.append(judged)
                else:
                    of = (candidate.label, candidate.expressions, candidate.support)
                    dropped.append(Dropped("refine", reason, judged, *of))
            return kept

        left = sift(
            extraction.candidates,
            "restates the problem",
            lambda candidate: _without_echo(problem, candidate),
        )
        left = sift(
            left, "support", lambda candidate: _too_rare(candidate, rollouts, settings) or candidate
        )
        left = sift(left, "trivial", _without_trivial)
        left = sift(
            left,
            "not distinctive",
            lambda candidate: _too_little(candidate, settings.min_information) or candidate,
        )
        ranked = sorted(
            left,
            key=lambda candidate: (
                -_worth(candidate, rollouts),
                candidate.position,
                candidate.label,
            ),
        )
        pieces = _pieces(ranked)
        ranked = sift(ranked, "implied", lambda candidate: pieces.get(id(candidate), candidate))
        finals = [candidate for candidate in ranked if candidate.is_final][: settings.max_finals]
        detail = f"{settings.max_finals} others state the final answer"
        ranked = sift(
            ranked,
            "restates the answer",
            lambda candidate: (
                detail if candidate.is_final and candidate not in finals else candidate
            ),
        )
        best = ranked[: settings.max_nodes]
        beaten = f"{settings.max_nodes} others say more or are reached more often"
        sift(ranked[settings.max_nodes :], "beyond the maximum", lambda candidate: beaten)
        chosen = sorted(best, key=lambda candidate: (candidate.position, candidate.label))
        return Extraction(tuple(chosen), (*extraction.dropped, *dropped))


def _without_echo(problem: Problem, candidate: Candidate) -> Candidate | str:
    """Take away the wordings that the problem's own text states, or all where its label is one."""
    expressions, derived = beyond(problem.problem, candidate.expressions, candidate.derived)
    if candidate.label in expressions or (expressions, derived) == (
        candidate.expressions,
        candidate.derived,
    ):
        return replace(candidate, expressions=expressions, derived=derived)
    return "it stands in the text of the problem"


def _too_rare(candidate: Candidate, rollouts: int, settings: RefineSettings) -> str | None:
    share = settings.min_share if gives_number(candidate.label) else settings.min_formula_share
    needed = max(settings.min_support, math.ceil(share * rollouts - 1e-9))
    if candidate.support >= needed:
        return None
    return f"reached by {candidate.support} of {rollouts} rollouts, {needed} are needed"


def _without_trivial(candidate: Candidate) -> Candidate | str:
    """Take away the wordings that say nothing, or all where nothing else is left."""
    kept = tuple(text for text in candidate.expressions if not is_identity(text))
    if not kept:
        return "an operation that changes nothing"
    if len(kept) == len(candidate.expressions):
        return candidate
    label = candidate.label if candidate.label in kept else kept[0]
    return replace(candidate, label=label, expressions=kept)


def _too_little(candidate: Candidate, least: float) -> str | None:
    information = information_of(candidate.label)
    if information >= least:
        return None
    return f"information {information:g}, {least:g} are needed"


def _pieces(candidates: Sequence[Candidate]) -> dict[int, str]:
    """Return why candidates go one of which implies a better one, or is implied by it.

    A candidate implies another that stands in all of its wordings: whoever reaches it gets both.

    Args:
        candidates: best first.

    Returns:
        Sentences by ``id`` of the candidate.
    """
    implied = _implied(candidates)
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


def _implied(candidates: Sequence[Candidate]) -> list[set[int]]:
    """Return for each candidate the indices of those that stand in all of its wordings.

    Every wording is read once, for all candidates together: a matcher for each pair of several
    hundred candidates would take a minute.
    """
    owners = [index for index, candidate in enumerate(candidates) for _ in candidate.expressions]
    wordings = [
        CorrectRollout("", "", text) for candidate in candidates for text in candidate.expressions
    ]
    found = find_mentions(
        [(*candidate.expressions, *candidate.derived) for candidate in candidates], wordings
    )
    implied: list[set[int]] = [set() for _ in candidates]
    for part, mentions in enumerate(found):
        holding = Counter(owners[mention.rollout] for mention in mentions)
        for index, count in holding.items():
            if count == len(candidates[index].expressions):
                implied[index].add(part)
    return implied


def _worth(candidate: Candidate, rollouts: int) -> float:
    """Return how much a node is worth: the share of rollouts that reach it, by what it says."""
    return (
        candidate.support
        / max(1, rollouts)
        * min(information_of(candidate.label), ENOUGH_INFORMATION)
    )
