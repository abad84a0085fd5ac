"""Stage 3 of construction: choose the nodes worth supervising (paper section 3.2).

Candidates are dropped if they restate the problem, are reached too rarely, are trivial or not
distinctive, restate the answer, or are implied by a better one.  Of the others, those that most
rollouts reach, and reach late, stay.  The answer, boxed or announced, is always the last node.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Annotated, TypeAlias

from pydantic import Field

from consensusbench.extraction.corpus import MIN_GENERAL, Corpus, equation_of, keys_in
from consensusbench.extraction.rules import numbers_of
from consensusbench.extraction.statements import assigned_numbers, forms_beyond, states_answer
from consensusbench.extraction.support import beyond, find_mentions
from consensusbench.extraction.types import Candidate, CorrectRollout, Dropped, Extraction
from consensuspr.core import normalize
from consensuspr.core.algebra import MIN_RENAMED_SIZE
from consensuspr.core.expressions import (
    Expression,
    Number,
    Power,
    Product,
    Sum,
    is_constant,
    parse_statement,
    value_in_lowest_terms,
)
from consensuspr.core.patterns import MAX_ANSWER_BYTES
from consensuspr.data import Problem, Row
from consensuspr.errors import InputError
from consensuspr.scoring.answers.extract import reference_answer
from consensuspr.settings import check_fields

# Increase it whenever the same candidates may give other nodes.
REFINEMENT_VERSION = "3"

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_OPERATION = re.compile(r"[-+*/^√(!]")
_NAME = re.compile(r"[^\W\d_]+")


Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """Which candidates become nodes.

    Attributes:
        min_nodes: nodes that a problem must have (the paper's |Node|_min, section 3.2).
        max_nodes: most nodes of a problem (the paper's |Node|_max).
        min_support: rollouts that must reach a node.
        min_share: share of the correct rollouts that must reach a node, from 0 to 1.
        min_formula_share: the same for formulas without a number, such as a+b=c.  Their names
            depend on the solution.
        min_information: least information of a node: 1 for each significant digit, 0.5 for each
            operation and name; see :func:`information_of`.

    Raises:
        InputError: a threshold is out of range.
    """

    min_nodes: Annotated[int, Field(ge=0)] = 2
    max_nodes: Annotated[int, Field(ge=1)] = 9
    min_support: Annotated[int, Field(ge=1)] = 2
    min_share: Share = 0.4
    min_formula_share: Share = 0.5
    min_information: Annotated[float, Field(ge=0)] = 2.0

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
    """Return how much one must guess to write an expression by chance, at least 0.

    Each significant digit counts one, and each number at least one.  Each operation and each
    name counts one half.
    """
    normal = normalize(expression)
    digits = sum(
        max(1, len(number.replace(".", "").strip("0"))) for number in _NUMBER.findall(normal)
    )
    return digits + (len(_OPERATION.findall(normal)) + len(_NAME.findall(normal))) / 2


def is_identity(expression: str) -> bool:
    """Return whether an equation has two equal sides, but for 1 times, plus 0 and first powers.

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
    """Return a tree without those operations at its top that change nothing."""
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


def is_small_arithmetic(text: str, given: Container[Fraction]) -> bool:
    """Return whether arithmetic gives 0 or 1, factors a given number, or is a mere congruence."""
    normal = normalize(text)
    if "≡" in normal:
        return not any(map(str.isalpha, normal.replace("mod", "")))
    statement = parse_statement(text)
    if statement is None or len(statement.sides) != 2 or not all(map(is_constant, statement.sides)):
        return False
    for side, other in (statement.sides, statement.sides[::-1]):
        value = value_in_lowest_terms(other)
        if value is not None and (
            value in (0, 1) or (value in given and value >= 10 and _is_factored(side))
        ):
            return True
    return False


def _is_factored(tree: Expression) -> bool:
    return isinstance(tree, Product) and not any(divides for divides, _ in tree.factors)


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

    def refine(
        self, problem: Problem, extraction: Extraction, rollouts: int, corpus: Corpus
    ) -> Extraction:
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
            # Drop wordings that the problem's text states, or the candidate if its label is one.
            # The label may be words of a model.
            found = candidate.expressions, candidate.derived
            expressions, derived = beyond(problem.problem, *found)
            facts = [equation_of(text) for text in expressions]
            expressions = tuple(
                text
                for text, fact in zip(expressions, facts, strict=True)
                if fact is None or stated.isdisjoint([*fact.keys, fact.renamed])
            )
            is_label_gone = candidate.label in {*candidate.expressions} - {*expressions}
            if expressions and not is_label_gone:
                return replace(candidate, expressions=expressions, derived=derived)
            return "the problem states it"

        stated, given = keys_in(problem.problem), numbers_of(problem.problem)

        def says_little(text: str) -> bool:
            assigned = assigned_numbers(text)
            if assigned is None:
                return is_small_arithmetic(text, given)
            name, numbers = assigned
            is_letter = len(name.rstrip("_0123456789'")) == 1
            is_small = all(number.denominator == 1 and number < 100 for number in numbers)
            return (is_letter and is_small) or all(
                number in given or not number for number in numbers
            )

        def rare(candidate: Candidate) -> Candidate | str:
            is_number = gives_number(candidate.expressions[0])
            share = settings.min_share if is_number else settings.min_formula_share
            needed = max(settings.min_support, math.ceil(share * rollouts - 1e-9))
            if candidate.support >= needed:
                return candidate
            return f"reached by {candidate.support} of {rollouts} rollouts, {needed} are needed"

        def trivial(candidate: Candidate) -> Candidate | str:
            # Drop trivial wordings, or the candidate if all are trivial.
            kept = tuple(text for text in candidate.expressions if not is_identity(text))
            if not kept:
                return "an operation that changes nothing"
            return _with_only(candidate, kept)

        def vague(candidate: Candidate) -> Candidate | str:
            kept = tuple(text for text in candidate.expressions if not says_little(text))
            if not kept:
                return "it gives only a small number or a number of the problem"
            candidate = _with_only(candidate, kept)
            fact = equation_of(kept[0])
            if fact is not None and corpus.is_general(fact, problem.problem_id):
                return f"{MIN_GENERAL} other problems state it"
            information = max(map(information_of, kept))
            if information >= settings.min_information:
                return candidate
            return f"information {information:g}, {settings.min_information:g} are needed"

        left = sift(extraction.candidates, "restates the problem", echo)
        left = sift(left, "support", rare)
        left = sift(left, "trivial", trivial)
        left = sift(left, "not distinctive", vague)
        left.sort(key=lambda found: (-_worth(found, rollouts), found.position, found.label))
        final = _final(problem, left, rollouts)
        if final is not None:
            # All right rollouts reach it: at least the models that reach any other candidate.
            models = (found.num_models for found in extraction.candidates)
            final = replace(final, num_models=max(models, default=1))
            left = sift(
                left,
                "restates the answer",
                lambda found: "the final node states it" if found.is_final else found,
            )
        for compare in (partial(_renamed_copies, problem, corpus), _pieces, _same_chains):
            faults = compare(left)
            left = sift(left, "implied", partial(_fault_or_self, faults))
        room = settings.max_nodes - (final is not None)
        beaten = f"{settings.max_nodes} others are reached later or more often"
        sift(left[room:], "beyond the maximum", lambda candidate: beaten)
        nodes = sorted(
            (replace(found, rare=_rare(found, problem, corpus)) for found in left[:room]),
            key=lambda found: (found.position, found.label),
        )
        if final is not None:
            nodes.append(final)
        return Extraction(tuple(nodes), (*extraction.dropped, *dropped))


def _fault_or_self(faults: Mapping[int, str], candidate: Candidate) -> Candidate | str:
    return faults.get(id(candidate), candidate)


def _with_only(candidate: Candidate, kept: tuple[str, ...]) -> Candidate:
    """Return a candidate with some of its expressions; its label may be a model's words."""
    gone = candidate.label in candidate.expressions and candidate.label not in kept
    return replace(candidate, label=kept[0] if gone else candidate.label, expressions=kept)


def _pieces(candidates: Sequence[Candidate]) -> dict[int, str]:
    """Return why candidates are dropped that imply a better one or are implied by it.

    A candidate implies another one that stands in all of its wordings, because a rollout that
    reaches it reaches both.  Every wording is read once, for all candidates together: a matcher
    for each pair of several hundred candidates would take a minute.

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


# Weight of the median place, beside the share of rollouts that reach a node.
LATE = 0.6
# Share of common chains from which on two candidates are one step.
SAME_CHAINS = 0.5
# Place from which on an equation that gives the answer is the last step, not an early one.
LATE_PLACE = 0.5
# Wordings of the final node beside the boxed answer.
MAX_FINAL_WORDINGS = 6


def _renamed_copies(
    problem: Problem, corpus: Corpus, candidates: Sequence[Candidate]
) -> dict[int, str]:
    """Return why candidates are dropped that are a better one with other names, if it is rare.

    Args:
        candidates: best first.

    Returns:
        Sentences by ``id`` of the candidate.
    """
    owners: dict[int, Candidate] = {}
    copies: dict[int, str] = {}
    for candidate in candidates:
        facts = filter(None, map(equation_of, candidate.expressions))
        keys = [fact.renamed for fact in facts if corpus.is_rare(fact, problem.problem_id)]
        better = next((owners[key] for key in keys if key in owners), None)
        if better is not None:
            copies[id(candidate)] = f"is {better.label!r} with other names"
        else:
            owners.update(dict.fromkeys(keys, candidate))
    return copies


def _rare(candidate: Candidate, problem: Problem, corpus: Corpus) -> tuple[str, ...]:
    """Return the rare expressions that are too short to match with other names otherwise."""
    facts = [(text, equation_of(text)) for text in candidate.expressions]
    return tuple(
        text
        for text, fact in facts
        if fact is not None
        and fact.size < MIN_RENAMED_SIZE
        and corpus.is_rare(fact, problem.problem_id)
    )


def _worth(candidate: Candidate, rollouts: int) -> float:
    """Return the share of rollouts that reach a node, and more if it is reached late."""
    return candidate.support / max(1, rollouts) + LATE * candidate.position


def _same_chains(candidates: Sequence[Candidate]) -> dict[int, str]:
    """Return why candidates are dropped that share chains with a better one.

    In V=s^3=216, V=s^3 and V=216 do.

    Args:
        candidates: best first.

    Returns:
        Sentences by ``id`` of the candidate.
    """
    kept: list[tuple[Candidate, set[tuple[int, int]]]] = []
    beside: dict[int, str] = {}
    for candidate in candidates:
        chains = set(candidate.chains)
        for better, others in kept:
            if len(chains & others) >= SAME_CHAINS * max(1, min(len(chains), len(others))):
                beside[id(candidate)] = f"stands in the chains of {better.label!r}"
                break
        else:
            kept.append((candidate, chains))
    return beside


def boxes_of(ground_truth: str) -> list[str]:
    """Return the answer in a box, also without zeros in front: 033 and 33."""
    answer = reference_answer(ground_truth)
    texts = dict.fromkeys([answer, re.sub(r"\A0+(?=\d)", "", answer)])
    return [f"\\boxed{{{text}}}" for text in texts]


def _final(problem: Problem, candidates: Sequence[Candidate], rollouts: int) -> Candidate | None:
    """Return the node of the answer, boxed or announced, or in an equation that gives it.

    Args:
        candidates: best first.
    """
    if problem.ground_truth is None:
        return None
    answer = reference_answer(problem.ground_truth)
    boxes = boxes_of(problem.ground_truth)
    if not answer or len(boxes[0].encode("utf-8", "surrogatepass")) > MAX_ANSWER_BYTES:
        return None
    finals = [found for found in candidates if found.is_final]
    stated = next((found for found in finals if found.position >= LATE_PLACE), None)
    label = f"the answer is {answer}"
    given: list[str] = []
    if stated is not None:
        equations = [text for text in stated.expressions if "=" in text]
        given = [text for text in equations if states_answer(text, answer)][:MAX_FINAL_WORDINGS]
        if stated.label not in stated.expressions:  # the words of a model
            label = stated.label
    expressions = tuple(dict.fromkeys((*boxes, *given)))
    derived = forms_beyond(given)
    return Candidate(label, "value", expressions, derived, rollouts, 1, 1.0, True)
