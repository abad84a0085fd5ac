"""What a formula is worth: its value where it is closed, and an exact form to compare.

A formula (:func:`~consensuspr.core.expressions.parser.parse_formula`) is a final answer in its one
spelling.  Two readings of its tree decide nearly all comparisons without SymPy:

:func:`closed_value`
    The value of a formula without letters, computed in the order in which it is written: exact
    where it is rational, else a float that serves to tell values apart, never to prove them equal.
:func:`exact_quotient`
    A quotient of two polynomials with integer coefficients.  Their generators are the letters, pi,
    and the square roots of squarefree integers, which are independent of each other over the
    rationals; so two formulas are equal if and only if their cross products have the same
    coefficients.  What is no such quotient (other roots, roots of sums) enters as a generator of
    its own: then equality is certain, difference is not.

Everything is bounded, because a policy under training writes the text.  Functions, sets and
variable exponents are not covered: those go to math-verify.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import NamedTuple

from consensuspr.core.expressions.evaluate import (
    CONSTANTS,
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

# Of a quotient: brackets within brackets, digits of a literal, exponents, terms of a polynomial,
# bits of a coefficient.
MAX_EXACT_DEPTH = 16
MAX_EXACT_DIGITS = 40
MAX_EXACT_EXPONENT = 16
MAX_TERMS = 40
MAX_COEFFICIENT_BITS = 1024
# Terms and the generators in them that are kept of one expression, some 10 kB at most.
MAX_SIZE = 100
# Products of terms, about a microsecond each: in a comparison, and in reading for each
# character, so that a list of many expressions costs no more than one long one.
MAX_PRODUCTS = 800
_PRODUCTS_PER_CHARACTER = 8
# Squarefree parts are found by primes up to 1,000: enough below the cube of that.
MAX_RADICAND = 10**9

# Four letters in a row are a word, letters on both sides of a space two of them; AB is a segment
# as often as a product; f(2x) is no product, and neither is ln(2x).
_NO_PRODUCT = re.compile(
    r"[A-Z]{2}|(?<![\\A-Za-z])(?:[A-Za-z]{4}|[A-Za-z]+ [A-Za-z]|[fghFGHPQ]\("
    r"|(?:sin|cos|tan|cot|sec|csc|log|ln|lg|exp|lim|max|min|gcd|lcm|mod|det|arg|deg))"
)
# Letters that math-verify drops as units.
_UNIT_LETTERS = frozenset("cdghlmost")
_PRIMES = [n for n in range(2, 1000) if all(n % d for d in range(2, math.isqrt(n) + 1))]

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
    formula = parse_formula(text)
    if formula.names or formula.counts_primes:
        raise Unreadable
    reader = _ClosedValue()
    try:
        return Value(reader.of(formula.tree), formula.decimal, reader.scale)
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
        if type(tree) is not Symbol:
            return self.of(tree)
        if tree.text not in CONSTANTS:
            raise Unreadable
        return math.pi

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


# A product of generators: the squarefree number under the root, and (name, exponent) sorted.
_Monomial = tuple[int, tuple[tuple[str, int], ...]]
_Polynomial = dict[_Monomial, int]
_ONE: _Monomial = (1, ())
_UNIT: _Polynomial = {_ONE: 1}


class Quotient(NamedTuple):
    """A quotient of polynomials.

    Attributes:
        top: the numerator.
        bottom: the denominator, not zero.
        names: the letters in it, pi apart.
        inexact: a decimal point was written, or a root entered as a generator of its own;
            then a difference proves nothing.
    """

    top: _Polynomial
    bottom: _Polynomial
    names: frozenset[str]
    inexact: bool

    @property
    def size(self) -> int:
        """Terms and the generators in them, a measure of the memory taken."""
        return sum(1 + len(powers) for part in (self.top, self.bottom) for _, powers in part)

    @property
    def constant(self) -> bool:
        """Tell whether there are no letters in it."""
        return not self.names

    @property
    def single(self) -> bool:
        """Tell whether it is one product without sums, as a number with its unit is."""
        return len(self.top) <= 1 and len(self.bottom) == 1


def exact_quotient(text: str) -> Quotient | None:
    """Return the expression that the canonical ``text`` writes, None where it is none."""
    if _NO_PRODUCT.search(text):
        return None
    try:
        formula = parse_formula(text)
        if formula.ambiguous or formula.depth > MAX_EXACT_DEPTH:
            return None
        reader = _Quotients(min(MAX_PRODUCTS, _PRODUCTS_PER_CHARACTER * len(text)))
        ratio = reader.of(formula.tree)
    except Unreadable:
        return None
    whole = Quotient(*ratio, formula.names, reader.inexact)
    return whole if whole.size <= MAX_SIZE else None


def compare_quotients(a: Quotient, b: Quotient) -> bool | None:
    """Tell whether two expressions are equal for all values of their letters.

    Returns:
        None where it is not certain, or where conventions differ: ``i`` may be a letter or
        the imaginary unit, letters in another case may be the same one, and a letter behind
        a number may be a unit.
    """
    difference = _difference(a, b)
    if difference is None:
        return None
    if not difference:
        return True
    if a.inexact or b.inexact or _same_but_for_case(a, b):
        return None
    if a.constant != b.constant and _may_have_unit(b if a.constant else a):
        return None
    return None if not _with_imaginary_unit(difference) else False


def compare_equations(
    gold: tuple[Quotient, Quotient], answer: tuple[Quotient, Quotient]
) -> bool | None:
    """Tell whether two equations, each left and right side, say the same.

    They do where one is a multiple of the other; linear ones that are not differ.
    """
    p, q = _difference(*gold), _difference(*answer)
    if not p or not q:
        return None
    key = next(iter(p))
    if p.keys() == q.keys() and all(p[term] * q[key] == q[term] * p[key] for term in p):
        return True
    sides = (*gold, *answer)
    if any(side.inexact for side in sides) or not (_is_linear(p) and _is_linear(q)):
        return None
    return None if any(_same_but_for_case(a, b) for a in sides for b in sides) else False


def linear_bound(left: Quotient, right: Quotient) -> tuple[str, int, int] | None:
    """Read ``left - right`` as ``slope * name + offset``, None where it is not that."""
    names = left.names | right.names
    difference = _difference(left, right)
    if len(names) != 1 or not difference or left.inexact or right.inexact:
        return None
    try:
        # The cross product changes sign with the denominators.
        scale = _times(left.bottom, right.bottom, _Budget())
    except Unreadable:
        return None
    (name,) = names
    slope = difference.pop((1, ((name, 1),)), 0)
    offset = difference.pop(_ONE, 0)
    if not slope or difference or scale.keys() != _UNIT.keys():
        return None
    sign = 1 if scale[_ONE] > 0 else -1
    return name, sign * slope, sign * offset


def _difference(a: Quotient, b: Quotient) -> _Polynomial | None:
    budget = _Budget()
    try:
        left = _times(a.top, b.bottom, budget)
        return _plus(left, _times(b.top, a.bottom, budget), -1)
    except Unreadable:
        return None


def _may_have_unit(expression: Quotient) -> bool:
    """Tell whether the letters may be a unit behind a number, as in 5m or 5N/m."""
    if not expression.single:
        return False
    return len(expression.names) > 1 or expression.names <= _UNIT_LETTERS


def _same_but_for_case(a: Quotient, b: Quotient) -> bool:
    names = a.names | b.names
    return len({name.casefold() for name in names}) < len(names)


def _with_imaginary_unit(polynomial: _Polynomial) -> _Polynomial:
    result: _Polynomial = {}
    for (root, powers), coefficient in polynomial.items():
        exponent = dict(powers).get("i", 0)
        powers_left = tuple(power for power in powers if power[0] != "i")
        if exponent % 2:
            powers_left = tuple(sorted((*powers_left, ("i", 1))))
        sign = -1 if exponent % 4 >= 2 else 1
        result[root, powers_left] = result.get((root, powers_left), 0) + sign * coefficient
    return {key: value for key, value in result.items() if value}


def _is_linear(polynomial: _Polynomial) -> bool:
    degrees = [sum(exponent for _, exponent in powers) for _, powers in polynomial]
    names = {name for _, powers in polynomial for name, _ in powers}
    return max(degrees, default=0) == 1 and "pi" not in names


class _Budget:
    """Products of terms that are left."""

    __slots__ = ("left",)

    def __init__(self, products: int = MAX_PRODUCTS) -> None:
        self.left = products

    def spend(self, products: int) -> None:
        self.left -= products
        if self.left < 0:
            raise Unreadable


def _plus(a: _Polynomial, b: _Polynomial, sign: int) -> _Polynomial:
    result = dict(a)
    for key, value in b.items():
        total = result.get(key, 0) + sign * value
        if total:
            result[key] = total
        else:
            result.pop(key, None)
    return _bounded(result)


def _times(a: _Polynomial, b: _Polynomial, budget: _Budget) -> _Polynomial:
    if b == _UNIT:
        return a
    if a == _UNIT:
        return b
    budget.spend(len(a) * len(b))
    result: _Polynomial = {}
    for (root, powers), value in a.items():
        for (other_root, other_powers), other_value in b.items():
            common = math.gcd(root, other_root)
            key = (root * other_root // (common * common), _joined(powers, other_powers))
            result[key] = result.get(key, 0) + common * value * other_value
    return _bounded({key: value for key, value in result.items() if value})


def _joined(
    a: tuple[tuple[str, int], ...], b: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, int], ...]:
    if not b:
        return a
    if not a:
        return b
    exponents = dict(a)
    for name, exponent in b:
        exponents[name] = exponents.get(name, 0) + exponent
    return tuple(sorted(exponents.items()))


def _bounded(polynomial: _Polynomial) -> _Polynomial:
    if len(polynomial) > MAX_TERMS:
        raise Unreadable
    for (root, _), value in polynomial.items():
        if root > MAX_RADICAND or value.bit_length() > MAX_COEFFICIENT_BITS:
            raise Unreadable
    return polynomial


_Ratio = tuple[_Polynomial, _Polynomial]


class _Quotients:
    """Reads the tree of one formula as a quotient of polynomials."""

    def __init__(self, products: int) -> None:
        self.inexact = False
        self._budget = _Budget(products)

    def of(self, tree: Expression) -> _Ratio:
        """Return the quotient that a tree, or a part of one, writes."""
        match tree:
            case Number():
                return self._number(tree.text)
            case Symbol():
                name = "pi" if tree.text == "\\pi" else tree.text
                return {(1, ((name, 1),)): 1}, _UNIT
            case Sum():
                return self._sum(tree)
            case Product():
                return self._product(tree)
            case Power():
                return self._raised(self.of(tree.base), _integer(self.of(tree.exponent)))
        return self._call(tree)

    def _sum(self, tree: Sum) -> _Ratio:
        (sign, term), *later = tree.terms
        total = self.of(term)
        if sign < 0:
            total = {key: -value for key, value in total[0].items()}, total[1]
        for sign, term in later:
            total = self._added(total, self.of(term), sign)
        return total

    def _product(self, tree: Product) -> _Ratio:
        result = self.of(tree.factors[0][1])
        for divides, part in tree.factors[1:]:
            factor = self.of(part)
            result = self._multiplied(result, _inverse(factor) if divides else factor)
        return result

    def _call(self, tree: Call) -> _Ratio:
        match tree.pieces:
            case ("\\frac{", _, _):
                top, bottom = map(self.of, tree.arguments)
                return self._multiplied(top, _inverse(bottom))
            case ("\\sqrt{", _):
                return self._root(2, self.of(tree.arguments[0]))
            case ("\\sqrt[", _, _):
                degree = _integer(self.of(tree.arguments[0]))
                return self._root(degree, self.of(tree.arguments[1]))
        # A mixed number, 1\frac{2}{3}, is closed, or a product; so it is not read here.
        raise Unreadable

    def _number(self, text: str) -> _Ratio:
        whole, point, digits = text.partition(".")
        if max(len(whole), len(digits)) > MAX_EXACT_DIGITS:
            raise Unreadable
        value = int(whole + digits)
        self.inexact = self.inexact or bool(point)
        return ({_ONE: value} if value else {}), {_ONE: 10 ** len(digits)}

    def _root(self, degree: int, radicand: _Ratio) -> _Ratio:
        number = _rational(radicand)
        if degree == 2 and number is not None and number[0] >= 0:
            return _square_root(*number)
        # A name that no letter has; equal only where the same is written underneath.
        self.inexact = True
        name = f"root {degree} {sorted(radicand[0].items())} {sorted(radicand[1].items())}"
        if len(name) > MAX_COEFFICIENT_BITS:
            raise Unreadable
        return {(1, ((name, 1),)): 1}, _UNIT

    def _added(self, a: _Ratio, b: _Ratio, sign: int) -> _Ratio:
        if a[1] == b[1]:
            return _plus(a[0], b[0], sign), a[1]
        left = _times(a[0], b[1], self._budget)
        right = _times(b[0], a[1], self._budget)
        return _plus(left, right, sign), _times(a[1], b[1], self._budget)

    def _multiplied(self, a: _Ratio, b: _Ratio) -> _Ratio:
        return _times(a[0], b[0], self._budget), _times(a[1], b[1], self._budget)

    def _raised(self, base: _Ratio, exponent: int) -> _Ratio:
        if abs(exponent) > MAX_EXACT_EXPONENT:
            raise Unreadable
        if exponent <= 0 and not base[0]:
            raise Unreadable
        if exponent < 0:
            base = _inverse(base)
        result: _Ratio = (_UNIT, _UNIT)
        for _ in range(abs(exponent)):
            result = self._multiplied(result, base)
        return result


def _inverse(quotient: _Ratio) -> _Ratio:
    if not quotient[0]:
        raise Unreadable
    return quotient[1], quotient[0]


def _rational(quotient: _Ratio) -> tuple[int, int] | None:
    """Return numerator and positive denominator of a rational number."""
    top, bottom = quotient
    if not top:
        return 0, 1
    if top.keys() != _UNIT.keys() or bottom.keys() != _UNIT.keys():
        return None
    a, b = top[_ONE], bottom[_ONE]
    common = math.gcd(a, b) * (1 if b > 0 else -1)
    return a // common, b // common


def _integer(quotient: _Ratio) -> int:
    number = _rational(quotient)
    if number is None or number[1] != 1:
        raise Unreadable
    return number[0]


def _square_root(top: int, bottom: int) -> _Ratio:
    """Return the root of a fraction: a whole factor, and a squarefree number under the root."""
    remaining = top * bottom
    if not remaining:
        return {}, _UNIT
    if remaining > MAX_RADICAND:
        raise Unreadable
    outside, inside = 1, 1
    for prime in _PRIMES:
        if prime * prime > remaining:
            break
        while remaining % (prime * prime) == 0:
            remaining //= prime * prime
            outside *= prime
        if remaining % prime == 0:
            remaining //= prime
            inside *= prime
    # What is left has at most two prime factors.
    whole = math.isqrt(remaining)
    if whole * whole == remaining:
        outside *= whole
    else:
        inside *= remaining
    return {(inside, ()): outside}, {_ONE: bottom}
