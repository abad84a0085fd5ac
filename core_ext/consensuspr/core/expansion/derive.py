"""Derive the equal forms of a node expression.

A form says what the expression says: true exactly where the expression is.  Only
relations and expressions with an operation are derived from; a bare value or prose is
not.  Renaming a variable is no rewrite here, on purpose: ``n=12`` is not ``x=12``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from fractions import Fraction

from consensuspr.core.expansion.cost import (
    MAX_COST,
    MAX_FORMS,
    MIN_DISTINCTIVE_DIGITS,
    Cost,
    Scope,
)
from consensuspr.core.expansion.evaluate import evaluate, is_constant
from consensuspr.core.expansion.forms import (
    Form,
    combine,
    value_in_lowest_terms,
    write,
    write_quotient,
)
from consensuspr.core.expansion.statement import Statement, parse_statement
from consensuspr.core.expansion.steps import steps
from consensuspr.core.expansion.tree import Expression, Number, Product, Symbol

_SIDES = int(Cost.SIDES)
_MIRRORED = {"=": "=", "≠": "≠", "≈": "≈", "≡": "≡", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def derive_forms(expression: str) -> list[str]:
    """Return forms that are equal to a node expression, nearest first.

    Args:
        expression: as written in the dataset: plain text or LaTeX, any string.

    Returns:
        At most ``MAX_FORMS`` raw expressions in a fixed order, which take the same way
        through the normal form as the expression itself.  No two of them, and none and
        the expression, have the same normal form.  Empty where nothing can be derived.
    """
    from consensuspr.core import normalize  # the package imports this module

    statement = parse_statement(expression)
    if statement is None:
        return []
    seen = {normalize(expression), ""}
    forms: list[str] = []
    for text in _candidates(statement):
        normal = normalize(text)
        if normal not in seen:
            seen.add(normal)
            forms.append(text)
            if len(forms) == MAX_FORMS:
                break
    return forms


def _candidates(statement: Statement) -> list[str]:
    """Return the forms of a statement, duplicates included, nearest first."""
    if not statement.relations:
        return _expression_forms(statement.sides[0])
    values = [evaluate(side) for side in statement.sides]
    arithmetic = None not in values
    if arithmetic and statement.dropped_units and not _may_hold(statement, values):
        return []  # a word that was taken for a unit was none
    scope = Scope(arithmetic, not arithmetic or statement.num_digits >= MIN_DISTINCTIVE_DIGITS)
    written = [write(side, scope) for side in statement.sides]
    found: list[tuple[int, str]] = []
    for cost, places in _pieces(statement):
        constant = all(value_in_lowest_terms(statement.sides[i]) is not None for i in places)
        if constant and cost:
            continue  # "2=2" out of "6/3=2=2"
        sides = [_constant(statement.sides[i], scope) if constant else written[i] for i in places]
        relations = statement.relations if len(places) > 2 else statement.relations[:1]
        found.extend(_joined(cost, sides, relations, statement.tail))
    if statement.relations == ["="]:
        found.extend(_stepped(statement, written, scope))
    found.sort(key=operator.itemgetter(0))
    return [text for _, text in found]


def _may_hold(statement: Statement, values: list[Fraction | None]) -> bool:
    """Tell whether an arithmetic statement is no false equation."""
    return set(statement.relations) != {"="} or len(set(values)) == 1


def _constant(tree: Expression, scope: Scope) -> list[Form]:
    """Write a side of 7/2=3.5; values keep their spelling, or it would become 3.5=3.5."""
    if isinstance(tree, Product):
        return write_quotient(tree, scope)
    return write(tree, scope)[:1]


def _expression_forms(tree: Expression) -> list[str]:
    """Return the forms of an expression without a relation; a bare value has none."""
    if isinstance(tree, (Number, Symbol)) or value_in_lowest_terms(tree) is not None:
        return []
    return [form.text for form in write(tree, Scope(arithmetic=False, quotients=True))]


def _pieces(statement: Statement) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the statement itself and, of a chain of equalities, its parts, as places of sides.

    A part of a chain that ends in a constant must hold a constant too: of A=bh/2=24 the
    formula A=bh/2 alone does not say what the chain concludes.
    """
    last = len(statement.sides) - 1
    yield 0, tuple(range(last + 1))
    if last < 2 or set(statement.relations) != {"="}:
        return
    constant = [is_constant(side) for side in statement.sides]
    for pair in [(0, last), *((i, i + 1) for i in range(last))]:
        if not constant[last] or any(constant[i] for i in pair):
            yield Cost.PIECE, pair


def _stepped(
    statement: Statement, written: list[list[Form]], scope: Scope
) -> Iterator[tuple[int, str]]:
    """Yield the forms of an equation after one step on a side whose value is the other side."""
    for place in (0, 1):
        if value_in_lowest_terms(statement.sides[1 - place]) is None:
            continue
        for tree in steps(statement.sides[place]):
            sides = [write(tree, scope), written[1 - place]]
            if (
                sum(map(str.isdecimal, sides[0][0].text + sides[1][0].text))
                >= MIN_DISTINCTIVE_DIGITS
            ):
                yield from _joined(Cost.STEP, sides if place == 0 else sides[::-1], ["="], "")


def _joined(
    base: int, sides: list[list[Form]], relations: list[str], tail: str
) -> Iterator[tuple[int, str]]:
    """Yield every choice of forms of the sides, as written and mirrored, within the cost."""
    mirrored = [_MIRRORED[relation] for relation in reversed(relations)]
    for extra, chosen in combine(sides):
        cost = base + extra
        if cost > MAX_COST:
            return
        texts = [form.text for form in chosen]
        if any(map(operator.eq, texts, texts[1:])):
            continue  # 2*3=2*3
        yield cost, _interleaved(texts, relations) + tail
        if cost + _SIDES <= MAX_COST:
            yield cost + _SIDES, _interleaved(texts[::-1], mirrored) + tail


def _interleaved(texts: list[str], relations: list[str]) -> str:
    if len(texts) == 2:
        return texts[0] + relations[0] + texts[1]
    text = texts[0]
    for relation, side in zip(relations, texts[1:], strict=True):
        text += relation + side
    return text
