"""Which kinds of derived forms find what the expression as written does not.

Counted in this process, on the form that was found first; the kinds hardly ever overlap,
because one solution seldom writes the same step in two ways.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from benchmarks.quality.gold import Response, pool
from consensuspr.core import Hit, Matcher
from consensuspr.data import Node, Problem

_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_OPERATION = re.compile(r"[-+*/]")

ORDER = "operands in another order"
SIDES = "sides read from the right"
BRACKETS = "brackets"
SPELLING = "numbers spelled in another way"
STEP = "one operation carried out"
KINDS = (ORDER, STEP, SPELLING, BRACKETS, SIDES)


@dataclass(slots=True)
class FormCounts:
    """Counts by kind of derived form.

    Attributes:
        derived: forms made.
        found: gold equations found in right solutions by such a form first.
        false: nodes of other problems found by such a form first.
        looked_for: gold equations looked for in right solutions, found or not.
        held_against: nodes of other problems that responses were held against.
    """

    derived: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    looked_for: int = 0
    held_against: int = 0


@lru_cache(maxsize=1 << 16)
def form_kind(equation: str, form: str) -> str:
    """Return the kind of a derived form of an equation of arithmetic."""
    if not _OPERATION.search(equation.rpartition("=")[2]) and _OPERATION.search(
        form.rpartition("=")[2]
    ):
        return SIDES
    before, after = (Counter(map(Fraction, _NUMBER.findall(text))) for text in (equation, form))
    if "%" not in form and before == after:
        return BRACKETS if form.count("(") > equation.count("(") else ORDER
    if after.total() >= before.total() or "%" in form:
        return SPELLING
    gone, come = before - after, after - before
    fractions = {one / other for one in gone for other in gone if other}
    in_a_sum = re.search(r"[-+]", equation.lstrip("+")) is not None
    respelled = not in_a_sum and all(value in fractions and value < 1 for value in come)
    return SPELLING if respelled else STEP


def count_forms(problems: list[Problem], files: Iterable[list[Response]]) -> FormCounts:
    """Count what each kind of form finds in right solutions and in other problems' solutions."""
    counts = FormCounts()
    nodes = {problem.problem_id: problem.nodes for problem in problems}
    for node in (node for problem in problems for node in problem.nodes):
        counts.derived.update(form_kind(node.expressions[0], form) for form in node.derived or ())
    matchers = {problem_id: _matcher(own) for problem_id, own in nodes.items()}
    pools = [(one, _matcher(one.problem.nodes)) for one in pool(problems)]
    for response in (response for responses in files for response in responses):
        own = nodes[response.problem_id]
        if response.correct:
            counts.looked_for += len(own)
            hits = matchers[response.problem_id].hits(response.text)
            counts.found.update(_kinds_found(own, hits))
        for one, matcher in pools:
            others = [owner != response.problem_id for owner in one.owners]
            counts.held_against += sum(others)
            hits = matcher.hits(response.text)
            kept = [hit if other else None for hit, other in zip(hits, others, strict=True)]
            counts.false.update(_kinds_found(one.problem.nodes, kept))
    return counts


def _matcher(nodes: Iterable[Node]) -> Matcher:
    return Matcher([[*node.expressions, *(node.derived or ())] for node in nodes])


def _kinds_found(nodes: Iterable[Node], hits: Iterable[Hit | None]) -> list[str]:
    """Return the kinds of the derived forms among the hits."""
    return [
        form_kind(node.expressions[0], hit.expression)
        for node, hit in zip(nodes, hits, strict=True)
        if hit is not None and hit.expression not in node.expressions
    ]
