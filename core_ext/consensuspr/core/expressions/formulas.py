"""The value of a formula: of a final answer in its one spelling.

It is computed in the order in which it is written: exact if it is rational, else a float that tells
values apart and never proves them equal.  Everything is bounded, because a policy under training
writes the text.  Letters, functions and sets are not covered: those go to math-verify.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from consensuspr.core.expressions.evaluate import (
    BeyondLimits,
    Call,
    Expression,
    Number,
    Power,
    Product,
    Spelling,
    Sum,
    Symbol,
    Unreadable,
)
from consensuspr.core.expressions.parser import parse_formula

# Of a closed formula, the bits of a power: computing 2**16 takes a fraction of a millisecond, and
# published answers such as 2011^{2009} stay far below.
MAX_CLOSED_BITS = 1 << 16
MAX_CLOSED_FACTORIAL = 500
# Bits of all large intermediate results together: some ten operations at the limit above, so
# that no answer takes more than a few milliseconds of the calling thread.
MAX_WORK_BITS = 10 * MAX_CLOSED_BITS
_SMALL_BITS = 4096

Closed = int | Fraction | float
_INTEGER = Spelling.INTEGER


class Value(NamedTuple):
    """The value of a closed formula.

    Attributes:
        number: int or Fraction where exact, float where a root or pi is involved.
        decimal: a decimal point was written, so that digits may have been rounded away.
        scale: largest magnitude met on the way; bounds the rounding error of a float.
    """

    number: Closed
    decimal: bool
    scale: float

    @property
    def exact(self) -> bool:
        """Tell whether ``number`` is the value itself and no approximation."""
        return not isinstance(self.number, float)


def closed_value(text: str) -> Value:
    """Return the value of a formula.

    Raises:
        BeyondLimits: a limit on size is exceeded.
        Unreadable: anything else that is not supported.
    """
    tree = parse_formula(text)
    reader = _ClosedValue()
    try:
        return Value(reader.of(tree), "." in text, reader.scale)
    except (OverflowError, ZeroDivisionError) as error:
        raise Unreadable from error


class _ClosedValue:
    """Computes the value of one formula's tree, in the order in which it is written."""

    def __init__(self) -> None:
        self.scale = 1.0
        self._work_bits = 0

    def of(self, tree: Expression) -> Closed:
        """Return the value of a whole formula, or of what stands in brackets."""
        if type(tree) is not Sum or len(tree.terms) < 2:
            return self._product(tree)
        total: Closed = self._product(tree.terms[0][1])
        for sign, term in tree.terms[1:]:
            value = self._product(term)
            total = self._noted(total + value if sign > 0 else total - value)
        return total

    def _noted(self, number: Closed) -> Closed:
        """Keep ``scale`` an upper bound; every intermediate float passes through here."""
        if isinstance(number, float):
            if not math.isfinite(number):
                raise BeyondLimits
            self.scale = max(self.scale, abs(number))
            return number
        bits = number.numerator.bit_length() + number.denominator.bit_length()
        if bits > _SMALL_BITS:
            self._work_bits += bits
            if bits > 4 * MAX_CLOSED_BITS or self._work_bits > MAX_WORK_BITS:
                raise BeyondLimits
        return number

    def _product(self, tree: Expression) -> Closed:
        if type(tree) is not Product:
            return self._signed(tree)
        result = self._signed(tree.factors[0][1])
        for divides, factor in tree.factors[1:]:
            value = self._signed(factor)
            result = self._noted(_divide(result, value) if divides else result * value)
        return result

    def _signed(self, tree: Expression) -> Closed:
        if type(tree) is Number:  # no literal is large
            return tree.value.numerator if tree.spelling is _INTEGER else tree.value
        if type(tree) is Sum and len(tree.terms) == 1:
            return -self._power(tree.terms[0][1])
        return self._power(tree)

    def _power(self, tree: Expression) -> Closed:
        if type(tree) is not Power:
            return self._noted(self._atom(tree))
        base = self._noted(self._atom(tree.base))
        return self._noted(_raise(base, self._signed(tree.exponent)))

    def _atom(self, tree: Expression) -> Closed:
        if type(tree) is Number:
            return tree.value.numerator if tree.spelling is _INTEGER else tree.value
        if type(tree) is Call:
            return self._call(tree)
        return math.pi if type(tree) is Symbol else self.of(tree)

    def _call(self, tree: Call) -> Closed:
        match tree.pieces:
            case ("\\frac{", _, _):
                return _divide(*map(self.of, tree.arguments))
            case ("\\sqrt{" | "\\sqrt", _):
                return self._root(2, tree)
            case ("\\sqrt[", _, _):
                return self._root(self.of(tree.arguments[0]), tree)
            case ("", "!"):
                return _factorial(self._noted(self._atom(tree.arguments[0])))
            case ("", "\\frac{", _, _):
                return self._mixed(*tree.arguments)
            case ("\\binom{", _, _):
                return _binomial(*map(self.of, tree.arguments))
        raise Unreadable

    def _mixed(self, whole: Expression, top: Expression, bottom: Expression) -> Closed:
        """Return the value of a mixed number, 1\\frac{5}{8}; other factors are ambiguous."""
        above, below = self.of(top), self.of(bottom)
        if not (isinstance(above, int) and isinstance(below, int) and above > 0 and below > 0):
            raise Unreadable
        return self._atom(whole) + Fraction(above, below)

    def _root(self, degree: Closed, tree: Call) -> Closed:
        inside = tree.arguments[-1]
        radicand = self.of(inside) if tree.pieces[-1] else self._atom(inside)
        if not isinstance(degree, int) or not 2 <= degree <= 64 or radicand < 0:
            raise Unreadable
        exact = _exact_square_root(radicand) if degree == 2 else None
        return exact if exact is not None else float(radicand) ** (1.0 / degree)


def _divide(a: Closed, b: Closed) -> Closed:
    if b == 0:
        raise Unreadable
    return a / b if isinstance(a, float) else Fraction(a) / b


def _raise(base: Closed, exponent: Closed) -> Closed:
    if isinstance(base, float) or isinstance(exponent, float) or exponent != int(exponent):
        return _raise_float(float(base), float(exponent))
    power = int(exponent)
    if base in (0, 1, -1):
        if base == 0 and power <= 0:
            raise Unreadable
        return base if power % 2 else base * base
    fraction = Fraction(base)
    bits = max(fraction.numerator.bit_length(), fraction.denominator.bit_length())
    if bits * abs(power) > MAX_CLOSED_BITS:
        raise BeyondLimits
    result: Closed = fraction**power
    return result


def _raise_float(base: float, exponent: float) -> float:
    if base < 0 or (base == 0 and exponent <= 0):
        raise Unreadable
    try:
        return math.pow(base, exponent)
    except OverflowError as error:
        raise BeyondLimits from error


def _factorial(number: Closed) -> Closed:
    if isinstance(number, float) or number != int(number) or number < 0:
        raise Unreadable
    if number > MAX_CLOSED_FACTORIAL:
        raise BeyondLimits
    return math.factorial(int(number))


def _binomial(top: Closed, bottom: Closed) -> Closed:
    if not (isinstance(top, int) and isinstance(bottom, int) and 0 <= bottom <= top):
        raise Unreadable
    if top > MAX_CLOSED_FACTORIAL:
        raise BeyondLimits
    return math.comb(top, bottom)


def _exact_square_root(radicand: Closed) -> Closed | None:
    if isinstance(radicand, float):
        return None
    fraction = Fraction(radicand)
    top, bottom = math.isqrt(fraction.numerator), math.isqrt(fraction.denominator)
    if top * top == fraction.numerator and bottom * bottom == fraction.denominator:
        return Fraction(top, bottom)
    return None
