"""Whether an arithmetic statement is true, as far as exact arithmetic can tell.

A correct rollout may still hold a wrong equation, and a model may make one up.  What is
false must not become a node; what cannot be checked (variables, roots, prose) is left to
support.  Nothing is evaluated from text: the core's parser reads it, with its limits.

Deliberately generous: a statement is false only if no reading makes it true.  Solutions
write ``10/3=3.33``, ``30/120*100=25%`` and ``2 dozen = 24``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise

from consensuspr.core.expansion.evaluate import evaluate
from consensuspr.core.expansion.lexer import Kind, tokenize
from consensuspr.core.expansion.statement import Statement, parse_statement
from consensuspr.core.expansion.tree import Expression, Number, Spelling

# Beyond this relative difference, what is said to be about equal is not.
APPROXIMATE_SHARE = Fraction(1, 10)

# Punctuation and delimiters that a quoted formula may bring along: ``$2+2=5,$``.
_AROUND = " \t\r\n.,;:?$"


class Truth(StrEnum):
    """What exact arithmetic says of a statement."""

    TRUE = "true"
    ROUNDED = "rounded"
    """True up to the digits that a decimal was written with."""

    FALSE = "false"
    UNCHECKED = "unchecked"
    """No statement, or one with parts that have no exact value here."""


def truth_of(expression: str) -> Truth:
    """Tell whether an expression is a true arithmetic statement.

    Args:
        expression: plain text or LaTeX, any string.
    """
    expression = expression.strip(_AROUND)
    statement = parse_statement(expression)
    if statement is None or not statement.relations:
        return Truth.UNCHECKED
    truth = _truth(statement)
    if truth is not Truth.FALSE:
        return truth
    if statement.dropped_units:
        return Truth.UNCHECKED  # a word that was taken for a unit may be a dozen
    if any(token.kind is Kind.PERCENT for token in tokenize(expression)):
        # 30/120*100=25%: the sign is a unit there, not a division by 100.
        plain = parse_statement(expression.replace("\\%", "").replace("%", ""))
        if plain is not None and plain.relations:
            return _truth(plain)
    return Truth.FALSE


def _truth(statement: Statement) -> Truth:
    values = [evaluate(side) for side in statement.sides]
    if statement.tail:
        return _congruence(statement, values)
    if set(statement.relations) == {"="}:
        return _equality(statement.sides, values)
    relations = statement.relations
    if "≈" in relations:  # what follows from a rounded value is about equal too
        relations = ["≈" if relation == "=" else relation for relation in relations]
    links = [
        _link(relation, left, right)
        for relation, (left, right) in zip(relations, pairwise(values), strict=True)
    ]
    for outcome in (Truth.FALSE, Truth.UNCHECKED, Truth.ROUNDED):
        if outcome in links:
            return outcome
    return Truth.TRUE


def _equality(sides: Sequence[Expression], values: Sequence[Fraction | None]) -> Truth:
    """Compare all sides that have a value: x=5=7 is false whatever x is."""
    known = [(side, value) for side, value in zip(sides, values, strict=True) if value is not None]
    rounded = False
    for (left, a), (right, b) in pairwise(known):
        if a == b:
            continue
        if not _is_rounding(left, a, b) and not _is_rounding(right, b, a):
            return Truth.FALSE
        rounded = True
    if len(known) < len(sides):
        return Truth.UNCHECKED
    return Truth.ROUNDED if rounded else Truth.TRUE


def _is_rounding(side: Expression, written: Fraction, value: Fraction) -> bool:
    """Tell whether a side is a decimal to which the value was rounded or cut."""
    if not isinstance(side, Number) or side.spelling is not Spelling.DECIMAL:
        return False
    places = len(side.text.partition(".")[2])
    return abs(written - value) < Fraction(1, 10**places)


def _link(relation: str, left: Fraction | None, right: Fraction | None) -> Truth:
    if left is None or right is None:
        return Truth.UNCHECKED
    match relation:
        case "=":
            holds = left == right
        case "≠":
            holds = left != right
        case "<":
            holds = left < right
        case ">":
            holds = left > right
        case "<=":
            holds = left <= right
        case ">=":
            holds = left >= right
        case "≈":
            near = abs(left - right) <= APPROXIMATE_SHARE * max(abs(left), abs(right))
            return Truth.ROUNDED if near else Truth.FALSE
        case _:
            return Truth.UNCHECKED
    return Truth.TRUE if holds else Truth.FALSE


def _congruence(statement: Statement, values: Sequence[Fraction | None]) -> Truth:
    digits = "".join(filter(str.isdecimal, statement.tail))
    modulus = int(digits) if 0 < len(digits) <= 18 else 0
    if not modulus or not set(statement.relations) <= {"=", "≡"}:
        return Truth.UNCHECKED
    whole = [value for value in values if value is not None and value.denominator == 1]
    if len(whole) < len(values):
        return Truth.UNCHECKED
    same = all((left - right) % modulus == 0 for left, right in pairwise(whole))
    return Truth.TRUE if same else Truth.FALSE
