"""Expression trees, and their values.

A tree is small on purpose: rational numbers, symbols that are never looked into, sums, products,
powers and calls.  Brackets are not represented.  What is not arithmetic (sets, intervals,
matrices, prose) is a :class:`Symbol` or has no tree.

:func:`evaluate` gives the exact value of a node expression, rational or none: nothing is rounded.
It keeps divisors from being 0 and tells a misread expression from a true one.  Every number that
can grow has a limit, so that no tree takes long.  The values of final answers, with roots, pi and
letters, are :mod:`.formulas`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

# Names of numbers: no function, and no quantity that is still to be found.
CONSTANTS = ("\\pi", "π")

# Of exponents, of factorials, and of the bits of a numerator or denominator.
MAX_EXPONENT = 64
MAX_FACTORIAL = 20
MAX_BITS = 512


class Unreadable(Exception):
    """The text is no expression of the kind that is asked for, or none within the limits."""


class BeyondLimits(Unreadable):
    """A literal, power or factorial is larger than any that is computed with."""


class Spelling(Enum):
    """How a number was written."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    PERCENT = "percent"
    MIXED = "mixed"


@dataclass(slots=True)
class Number:
    """A literal; ``value`` is exact (25 % is 1/4) and never negative."""

    value: Fraction
    text: str
    spelling: Spelling


@dataclass(slots=True)
class Symbol:
    """A variable, a constant, a named quantity, or text that is only ever moved as a whole."""

    text: str


@dataclass(slots=True)
class Sum:
    """``terms[i] = (sign, term)`` with sign +1 or -1; one term only where it is negative.

    Of a node expression, sums and products are flat (``a-(b+c)`` is one sum of three terms,
    ``a/(b/c)`` one product of three factors), so that ways of writing the same thing meet.
    """

    terms: list[tuple[int, Expression]]


@dataclass(slots=True)
class Product:
    """``factors[i] = (divides, factor)``; at least two factors, or one that divides."""

    factors: list[tuple[bool, Expression]]


@dataclass(slots=True)
class Power:
    """``base ^ exponent``."""

    base: Expression
    exponent: Expression


@dataclass(slots=True)
class Call:
    """An operand with arguments between fixed pieces of text, such as a root or ``f(...)``.

    ``pieces`` has one element more than ``arguments``; the text of the call is
    ``pieces[0] arguments[0] pieces[1] ...``.
    """

    pieces: tuple[str, ...]
    arguments: list[Expression]


Expression: TypeAlias = Number | Symbol | Sum | Product | Power | Call


def evaluate(tree: Expression) -> Fraction | None:
    """Return the exact value, or None where it has none, is not rational or is too large."""
    match tree:
        case Number():
            return tree.value
        case Symbol():
            return None
        case Sum():
            return _bounded(_sum_of(tree))
        case Product():
            return _bounded(_product_of(tree))
        case Power():
            return _bounded(_power_of(tree))
        case Call():
            return _factorial_of(tree) if tree.pieces[-1].endswith("!") else None


def is_constant(tree: Expression) -> bool:
    """Tell whether a tree names no quantity but \\pi; its value need not be rational."""
    match tree:
        case Number():
            return True
        case Symbol():
            return tree.text in CONSTANTS
        case Sum():
            return all(is_constant(term) for _, term in tree.terms)
        case Product():
            return all(is_constant(factor) for _, factor in tree.factors)
        case Power():
            return is_constant(tree.base) and is_constant(tree.exponent)
        case Call():
            named = tree.pieces[0][:1].isalpha()  # f(2)
            return not named and all(is_constant(argument) for argument in tree.arguments)


def _bounded(value: Fraction | None) -> Fraction | None:
    if value is None:
        return None
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    return value if bits <= MAX_BITS else None


def _sum_of(tree: Sum) -> Fraction | None:
    # Whole numbers, which most terms are, are added up without the gcd that fractions take.
    whole, fractions = 0, Fraction(0)
    for sign, term in tree.terms:
        value = evaluate(term)
        if value is None:
            return None
        if value.denominator == 1:
            whole += sign * value.numerator
        else:
            fractions += sign * value
    return fractions + whole if fractions else Fraction(whole)


def _product_of(tree: Product) -> Fraction | None:
    above, below = 1, 1
    for divides, factor in tree.factors:
        value = evaluate(factor)
        if value is None or (divides and not value):
            return None
        if divides:
            above *= value.denominator
            below *= value.numerator
        else:
            above *= value.numerator
            below *= value.denominator
    return Fraction(above, below)


def _power_of(tree: Power) -> Fraction | None:
    base, exponent = evaluate(tree.base), evaluate(tree.exponent)
    if base is None or exponent is None or exponent.denominator != 1:
        return None
    if abs(exponent) > MAX_EXPONENT or (not base and exponent <= 0):
        return None
    return base ** int(exponent)


def _factorial_of(tree: Call) -> Fraction | None:
    value = evaluate(tree.arguments[0])
    if value is None or value.denominator != 1 or not 0 <= value <= MAX_FACTORIAL:
        return None
    return Fraction(math.factorial(value.numerator))
