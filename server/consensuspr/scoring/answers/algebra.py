"""Exact comparison of expressions with letters, square roots and pi, without SymPy.

An expression is read as a quotient of two polynomials with integer coefficients.  Their
generators are the letters, pi, and the square roots of squarefree integers, which are
independent of each other over the rationals; so two expressions are equal if and only if
their cross products have the same coefficients.  What is no such quotient (other roots,
roots of sums) enters as a generator of its own: then equality is certain, difference is not.

Everything is bounded (tokens, depth, exponents, terms, bits, products), because a policy
under training writes the text.  Functions, sets and variable exponents are not covered:
those go to math-verify.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import NamedTuple

from consensuspr.scoring.answers.closed_form import NotClosed

MAX_TOKENS = 200
MAX_DEPTH = 16
MAX_EXPONENT = 16
MAX_TERMS = 40
MAX_BITS = 1024
# Terms and the generators in them that are kept of one expression, some 10 kB at most.
MAX_SIZE = 100
# Products of terms, about a microsecond each: in a comparison, and in reading for each
# character, so that a list of many expressions costs no more than one long one.
MAX_PRODUCTS = 800
_PRODUCTS_PER_CHARACTER = 8
# Squarefree parts are found by primes up to 1,000: enough below the cube of that.
MAX_RADICAND = 10**9

_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi "
    "rho sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega pi"
)
_TOKEN = re.compile(
    rf"\s*(?:(\d{{1,40}}(?:\.\d{{1,40}})?(?![\d_.])|\.\d{{1,40}}(?![\d_.]))"
    rf"|((?:[A-Za-z]|\\(?:{_NAMES.replace(' ', '|')})(?![A-Za-z]))"
    r"(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9]{1,8}\}))?)"
    r"|(\\(?:frac|sqrt)(?![A-Za-z])|[-+*/^(){}\[\]]))"
)
# Four letters in a row are a word, letters on both sides of a space two of them; AB is a segment
# as often as a product; f(2x) is no product, and neither is ln(2x).
_NO_PRODUCT = re.compile(
    r"[A-Z]{2}|(?<![\\A-Za-z])(?:[A-Za-z]{4}|[A-Za-z]+ [A-Za-z]|[fghFGHPQ]\("
    r"|(?:sin|cos|tan|cot|sec|csc|log|ln|lg|exp|lim|max|min|gcd|lcm|mod|det|arg|deg))"
)
# Letters that math-verify drops as units.
_UNIT_LETTERS = frozenset("cdghlmost")
_PRIMES = [n for n in range(2, 1000) if all(n % d for d in range(2, math.isqrt(n) + 1))]
_END = ""
_CLOSERS = {"(": ")", "{": "}", "[": "]"}
_BRACKETS = frozenset("(){}[]")
# Before a letter they make a differential or a difference of it: dx, \Delta x.
_DIFFERENTIAL = ("d", "\\delta", "\\Delta")

# A product of generators: the squarefree number under the root, and (name, exponent) sorted.
_Monomial = tuple[int, tuple[tuple[str, int], ...]]
_Polynomial = dict[_Monomial, int]
_ONE: _Monomial = (1, ())
_UNIT: _Polynomial = {_ONE: 1}


class Expression(NamedTuple):
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


def read_expression(text: str) -> Expression | None:
    """Return the expression that the canonical ``text`` writes, None where it is none."""
    if _NO_PRODUCT.search(text):
        return None
    try:
        reader = _Reader(_tokenize(text), min(MAX_PRODUCTS, _PRODUCTS_PER_CHARACTER * len(text)))
        quotient = reader.sum(0)
        if reader.token != _END:
            return None
    except NotClosed:
        return None
    expression = Expression(*quotient, frozenset(reader.names), reader.inexact)
    return expression if expression.size <= MAX_SIZE else None


def compare_expressions(a: Expression, b: Expression) -> bool | None:
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
    gold: tuple[Expression, Expression], answer: tuple[Expression, Expression]
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


def linear_bound(left: Expression, right: Expression) -> tuple[str, int, int] | None:
    """Read ``left - right`` as ``slope * name + offset``, None where it is not that."""
    names = left.names | right.names
    difference = _difference(left, right)
    if len(names) != 1 or not difference or left.inexact or right.inexact:
        return None
    try:
        # The cross product changes sign with the denominators.
        scale = _product(left.bottom, right.bottom, _Budget())
    except NotClosed:
        return None
    (name,) = names
    slope = difference.pop((1, ((name, 1),)), 0)
    offset = difference.pop(_ONE, 0)
    if not slope or difference or scale.keys() != _UNIT.keys():
        return None
    sign = 1 if scale[_ONE] > 0 else -1
    return name, sign * slope, sign * offset


def _difference(a: Expression, b: Expression) -> _Polynomial | None:
    budget = _Budget()
    try:
        left = _product(a.top, b.bottom, budget)
        return _total(left, _product(b.top, a.bottom, budget), -1)
    except NotClosed:
        return None


def _may_have_unit(expression: Expression) -> bool:
    """Tell whether the letters may be a unit behind a number, as in 5m or 5N/m."""
    if not expression.single:
        return False
    return len(expression.names) > 1 or expression.names <= _UNIT_LETTERS


def _same_but_for_case(a: Expression, b: Expression) -> bool:
    names = a.names | b.names
    return len({name.casefold() for name in names}) < len(names)


def _with_imaginary_unit(polynomial: _Polynomial) -> _Polynomial:
    result: _Polynomial = {}
    for (root, powers), coefficient in polynomial.items():
        exponent = dict(powers).get("i", 0)
        rest = tuple(power for power in powers if power[0] != "i")
        if exponent % 2:
            rest = tuple(sorted((*rest, ("i", 1))))
        sign = -1 if exponent % 4 >= 2 else 1
        result[root, rest] = result.get((root, rest), 0) + sign * coefficient
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
            raise NotClosed


def _total(a: _Polynomial, b: _Polynomial, sign: int) -> _Polynomial:
    result = dict(a)
    for key, value in b.items():
        total = result.get(key, 0) + sign * value
        if total:
            result[key] = total
        else:
            result.pop(key, None)
    return _bounded(result)


def _product(a: _Polynomial, b: _Polynomial, budget: _Budget) -> _Polynomial:
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
        raise NotClosed
    for (root, _), value in polynomial.items():
        if root > MAX_RADICAND or value.bit_length() > MAX_BITS:
            raise NotClosed
    return polynomial


_Quotient = tuple[_Polynomial, _Polynomial]


def _tokenize(text: str) -> list[str]:
    tokens: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None or len(tokens) >= MAX_TOKENS:
            raise NotClosed
        tokens.append(found[found.lastindex or 0])
        position = found.end()
    if any(a in _DIFFERENTIAL and _is_letter(b) for a, b in _neighbours(tokens)):
        raise NotClosed
    tokens.append(_END)
    return tokens


def _neighbours(tokens: list[str]) -> itertools.pairwise[tuple[str, str]]:
    """Return what stands side by side; {d}y is dy."""
    return itertools.pairwise(token for token in tokens if token != "}")


def _is_name(token: str) -> bool:
    return token[:1].isalpha() or (token[:1] == "\\" and token not in ("\\frac", "\\sqrt"))


def _is_letter(token: str) -> bool:
    return _is_name(token) and token != "\\pi"


def _may_be_applied(name: str, inside: list[str]) -> bool:
    """Tell whether ``name`` before a bracket may be a function, as in y(0), T(n) or T(n-1).

    It is a factor for certain where it stands in the bracket too, as in x(x+1); pi before more
    than one number or letter, and a small letter before a sum with letters, are taken for one.
    """
    written = [token for token in inside if token not in _BRACKETS]
    if name in written:
        return False
    if name == "\\pi":
        return len(written) < 2
    is_sum = "+" in written[1:] or "-" in written[1:]
    return not (is_sum and name[:1].islower() and any(map(_is_letter, written)))


class _Reader:
    """One pass over the tokens; each method consumes what it is named after."""

    def __init__(self, tokens: list[str], products: int) -> None:
        self._tokens = tokens
        self._next = 0
        self.token = tokens[0]
        self.names: set[str] = set()
        self.inexact = False
        # The letter or pi that was the base of the last factor, "" where it was none.
        self._base = ""
        self._budget = _Budget(products)

    def _advance(self) -> None:
        self._next += 1
        self.token = self._tokens[self._next]

    def _expect(self, token: str) -> None:
        if self.token != token:
            raise NotClosed
        self._advance()

    def sum(self, depth: int) -> _Quotient:
        if depth > MAX_DEPTH:
            raise NotClosed
        total = self._product(depth)
        while self.token in ("+", "-"):
            sign = 1 if self.token == "+" else -1
            self._advance()
            total = self._added(total, self._product(depth), sign)
        return total

    def _product(self, depth: int) -> _Quotient:
        result = self._signed(depth)
        divided = False
        while True:
            if self.token in ("*", "/"):
                divided = self.token == "/"
                self._advance()
                factor = self._signed(depth)
                result = self._multiplied(result, self._inverse(factor) if divided else factor)
            elif (
                self.token in ("(", "{", "[") or self.token[:1].isalpha() or self.token[:1] == "\\"
            ):
                if divided:
                    # 1/2x: half of x, or one over 2x?
                    raise NotClosed
                if self._base and self.token in _CLOSERS and self._applied(self._base):
                    raise NotClosed
                result = self._multiplied(result, self._power(depth))
            else:
                return result

    def _applied(self, name: str) -> bool:
        """Tell whether the bracket that opens here may hold the argument of ``name``."""
        level = 0
        for end in range(self._next, len(self._tokens)):
            level += (self._tokens[end] in _CLOSERS) - (self._tokens[end] in _CLOSERS.values())
            if not level:
                break
        return _may_be_applied(name, self._tokens[self._next : end])

    def _signed(self, depth: int) -> _Quotient:
        negative = False
        while self.token in ("+", "-"):
            negative ^= self.token == "-"
            self._advance()
        top, bottom = self._power(depth)
        return ({key: -value for key, value in top.items()} if negative else top), bottom

    def _power(self, depth: int) -> _Quotient:
        name = self.token if _is_name(self.token) else ""
        quotient = self._raised_atom(depth)
        self._base = name
        return quotient

    def _raised_atom(self, depth: int) -> _Quotient:
        base = self._atom(depth)
        if self.token != "^":
            return base
        self._advance()
        sign = 1
        if self.token in ("+", "-"):
            sign = -1 if self.token == "-" else 1
            self._advance()
        elif self.token == "{":
            if self._tokens[self._next + 1] == "(":
                raise NotClosed  # y^{(2)} is a derivative
            exponent = _integer(self._group(depth))
            return self._raised(base, exponent)
        if not self.token.isdigit():
            raise NotClosed
        exponent = sign * int(self.token)
        self._advance()
        if self.token == "^":
            raise NotClosed
        return self._raised(base, exponent)

    def _atom(self, depth: int) -> _Quotient:
        token = self.token
        if token[:1].isdigit() or token[:1] == ".":
            return self._number()
        if token in _CLOSERS:
            self._advance()
            inner = self.sum(depth + 1)
            self._expect(_CLOSERS[token])
            return inner
        if token == "\\frac":
            self._advance()
            top = self._group(depth)
            return self._multiplied(top, self._inverse(self._group(depth)))
        if token == "\\sqrt":
            return self._root(depth)
        if token[:1].isalpha() or token[:1] == "\\":
            self._advance()
            name = "pi" if token == "\\pi" else token.replace("{", "").replace("}", "")
            if name != "pi":
                self.names.add(name)
            return {(1, ((name, 1),)): 1}, _UNIT
        raise NotClosed

    def _number(self) -> _Quotient:
        whole, point, digits = self.token.partition(".")
        self._advance()
        if self.token == "\\frac":
            # 1\frac{2}{3}: a mixed number or a product, as closed expressions decide.
            raise NotClosed
        value = int(whole + digits) if whole or digits else 0
        if not point:
            return ({_ONE: value} if value else {}), _UNIT
        self.inexact = True
        return ({_ONE: value} if value else {}), {_ONE: 10 ** len(digits)}

    def _group(self, depth: int) -> _Quotient:
        self._expect("{")
        inner = self.sum(depth + 1)
        self._expect("}")
        return inner

    def _root(self, depth: int) -> _Quotient:
        self._advance()
        degree = 2
        if self.token == "[":
            self._advance()
            degree = _integer(self.sum(depth + 1))
            self._expect("]")
        radicand = self._group(depth)
        number = _rational(radicand)
        if degree == 2 and number is not None and number[0] >= 0:
            return _square_root(*number)
        # A name that no letter has; equal only where the same is written underneath.
        self.inexact = True
        name = f"root {degree} {sorted(radicand[0].items())} {sorted(radicand[1].items())}"
        if len(name) > MAX_BITS:
            raise NotClosed
        return {(1, ((name, 1),)): 1}, _UNIT

    def _added(self, a: _Quotient, b: _Quotient, sign: int) -> _Quotient:
        if a[1] == b[1]:
            return _total(a[0], b[0], sign), a[1]
        left = _product(a[0], b[1], self._budget)
        right = _product(b[0], a[1], self._budget)
        return _total(left, right, sign), _product(a[1], b[1], self._budget)

    def _multiplied(self, a: _Quotient, b: _Quotient) -> _Quotient:
        return _product(a[0], b[0], self._budget), _product(a[1], b[1], self._budget)

    def _inverse(self, quotient: _Quotient) -> _Quotient:
        if not quotient[0]:
            raise NotClosed
        return quotient[1], quotient[0]

    def _raised(self, base: _Quotient, exponent: int) -> _Quotient:
        if abs(exponent) > MAX_EXPONENT:
            raise NotClosed
        if exponent <= 0 and not base[0]:
            raise NotClosed
        if exponent < 0:
            base = self._inverse(base)
        result: _Quotient = (_UNIT, _UNIT)
        for _ in range(abs(exponent)):
            result = self._multiplied(result, base)
        return result


def _rational(quotient: _Quotient) -> tuple[int, int] | None:
    """Return numerator and positive denominator of a rational number."""
    top, bottom = quotient
    if not top:
        return 0, 1
    if top.keys() != _UNIT.keys() or bottom.keys() != _UNIT.keys():
        return None
    a, b = top[_ONE], bottom[_ONE]
    common = math.gcd(a, b) * (1 if b > 0 else -1)
    return a // common, b // common


def _integer(quotient: _Quotient) -> int:
    number = _rational(quotient)
    if number is None or number[1] != 1:
        raise NotClosed
    return number[0]


def _square_root(top: int, bottom: int) -> _Quotient:
    """Return the root of a fraction: a whole factor, and a squarefree number under the root."""
    rest = top * bottom
    if not rest:
        return {}, _UNIT
    if rest > MAX_RADICAND:
        raise NotClosed
    outside, inside = 1, 1
    for prime in _PRIMES:
        if prime * prime > rest:
            break
        while rest % (prime * prime) == 0:
            rest //= prime * prime
            outside *= prime
        if rest % prime == 0:
            rest //= prime
            inside *= prime
    # What is left has at most two prime factors.
    whole = math.isqrt(rest)
    if whole * whole == rest:
        outside *= whole
    else:
        inside *= rest
    return {(inside, ()): outside}, {_ONE: bottom}
