"""Values of closed numeric expressions, read without SymPy and without evaluating text.

A recursive-descent reader for what answers are mostly made of: integers, decimals,
fractions, mixed numbers, powers, roots, factorials and pi, in the notation that
:mod:`.notation` leaves.  Rational results are exact; what involves a root or pi is a float
that serves to tell values apart, never to prove them equal.

Everything is bounded (tokens, depth, bits of a power), because a policy under training
writes the text.  Variables, functions and sets are not covered: those go to math-verify.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import NamedTuple

MAX_TOKENS = 200
MAX_DEPTH = 24
MAX_DIGITS = 1000
# Largest exact power or factorial: computing 2**16 bits takes a fraction of a millisecond,
# and published answers such as 2011^{2009} stay far below.
MAX_BITS = 1 << 16
MAX_FACTORIAL = 500
# Bits of all large intermediate results together: some ten operations at the limit above,
# so that no answer takes more than a few milliseconds of the calling thread.
MAX_WORK_BITS = 10 * MAX_BITS
_SMALL_BITS = 4096

Number = int | Fraction | float


class NotClosed(Exception):
    """The text is not a closed numeric expression of the supported kind."""


class TooLarge(NotClosed):
    """A power, factorial or number exceeds the limits of this module."""


class Value(NamedTuple):
    """The value of a closed expression.

    Attributes:
        number: int or Fraction where exact, float where a root or pi is involved.
        decimal: a decimal point was written, so that digits may have been rounded away.
        scale: largest magnitude met on the way; bounds the rounding error of a float.
    """

    number: Number
    decimal: bool
    scale: float

    @property
    def exact(self) -> bool:
        """Tell whether ``number`` is the value itself and no approximation."""
        return not isinstance(self.number, float)


_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?|\.\d+)|(\\[A-Za-z]+)|([-+*/^(){}\[\]!]))")
_END = ""
_CLOSERS = {"(": ")", "{": "}", "[": "]"}


def closed_value(text: str) -> Value:
    """Return the value of ``text``.

    Raises:
        TooLarge: a limit on size is exceeded.
        NotClosed: anything else that is not supported.
    """
    reader = _Reader(_tokenize(text))
    try:
        number = reader.sum(0)
        if reader.token != _END:
            raise NotClosed
        return Value(number, reader.decimal, reader.scale)
    except (OverflowError, ZeroDivisionError) as error:
        raise NotClosed from error


def _tokenize(text: str) -> list[str]:
    tokens = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise NotClosed
        token = found[found.lastindex or 0]
        if len(token) > MAX_DIGITS:
            raise TooLarge
        tokens.append(token)
        position = found.end()
        if len(tokens) > MAX_TOKENS:
            raise NotClosed
    tokens.append(_END)
    return tokens


def _is_number(token: str) -> bool:
    return token[:1].isdigit() or token[:1] == "."


class _Reader:
    """One pass over the tokens; each method consumes what it is named after."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0
        self.token = tokens[0]
        self.decimal = False
        self.scale = 1.0
        self._work_bits = 0

    def _advance(self) -> None:
        self._next += 1
        self.token = self._tokens[self._next]

    def _expect(self, token: str) -> None:
        if self.token != token:
            raise NotClosed
        self._advance()

    def _noted(self, number: Number) -> Number:
        """Keep ``scale`` an upper bound; every intermediate float passes through here."""
        if isinstance(number, float):
            if not math.isfinite(number):
                raise TooLarge
            self.scale = max(self.scale, abs(number))
            return number
        bits = number.numerator.bit_length() + number.denominator.bit_length()
        if bits > _SMALL_BITS:
            self._work_bits += bits
            if bits > 4 * MAX_BITS or self._work_bits > MAX_WORK_BITS:
                raise TooLarge
        return number

    def sum(self, depth: int) -> Number:
        if depth > MAX_DEPTH:
            raise NotClosed
        total = self._product(depth)
        while self.token in ("+", "-"):
            sign = self.token
            self._advance()
            term = self._product(depth)
            total = self._noted(_add(total, term if sign == "+" else -term))
        return total

    def _product(self, depth: int) -> Number:
        result = self._signed(depth)
        divided = False
        while True:
            if self.token in ("*", "/"):
                divided = self.token == "/"
                self._advance()
                factor = self._signed(depth)
                result = _divide(result, factor) if divided else _multiply(result, factor)
            elif self.token in ("(", "{", "[") or self.token.startswith("\\"):
                if divided:
                    # 2/3\pi: two thirds of pi, or two over three pi?
                    raise NotClosed
                result = _multiply(result, self._power(depth))
            else:
                return result
            result = self._noted(result)

    def _signed(self, depth: int) -> Number:
        negative = False
        while self.token in ("+", "-"):
            negative ^= self.token == "-"
            self._advance()
        number = self._power(depth)
        return -number if negative else number

    def _power(self, depth: int) -> Number:
        if depth > MAX_DEPTH:
            raise NotClosed
        base = self._noted(self._atom(depth))
        while self.token == "!":
            self._advance()
            base = self._noted(_factorial(base))
        if self.token != "^":
            return base
        self._advance()
        sign = 1
        if self.token in ("+", "-"):
            sign = -1 if self.token == "-" else 1
            self._advance()
        exponent = self._power(depth + 1)
        return self._noted(_raise(base, sign * exponent))

    def _atom(self, depth: int) -> Number:
        token = self.token
        if _is_number(token):
            return self._number(depth)
        if token in _CLOSERS:
            self._advance()
            inner = self.sum(depth + 1)
            self._expect(_CLOSERS[token])
            return inner
        if token == "\\frac":
            self._advance()
            top = self._group(depth)
            return _divide(top, self._group(depth))
        if token == "\\sqrt":
            return self._root(depth)
        if token == "\\binom":
            self._advance()
            top = self._group(depth)
            return _binomial(top, self._group(depth))
        if token == "\\pi":
            self._advance()
            if self.token == "(" and self._tokens[self._next + 2 : self._next + 3] == [")"]:
                raise NotClosed  # \pi(10) also counts primes
            return math.pi
        raise NotClosed

    def _number(self, depth: int) -> Number:
        token = self.token
        self._advance()
        if "." in token:
            self.decimal = True
            return Fraction(token)
        if self.token == "\\frac":
            return int(token) + self._mixed_part(depth)
        return int(token)

    def _mixed_part(self, depth: int) -> Number:
        """Read the fraction of a mixed number, 1\\frac{5}{8}; other factors are ambiguous."""
        self._advance()
        top = self._group(depth)
        bottom = self._group(depth)
        if not (isinstance(top, int) and isinstance(bottom, int) and top > 0 and bottom > 0):
            raise NotClosed
        return Fraction(top, bottom)

    def _group(self, depth: int) -> Number:
        self._expect("{")
        inner = self.sum(depth + 1)
        self._expect("}")
        return inner

    def _root(self, depth: int) -> Number:
        self._advance()
        degree: Number = 2
        if self.token == "[":
            self._advance()
            degree = self.sum(depth + 1)
            self._expect("]")
        radicand = self._group(depth) if self.token == "{" else self._atom(depth + 1)
        if not isinstance(degree, int) or not 2 <= degree <= 64 or radicand < 0:
            raise NotClosed
        exact = _exact_root(radicand, degree)
        return exact if exact is not None else float(radicand) ** (1.0 / degree)


def _add(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(a) + float(b)
    return a + b


def _multiply(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(a) * float(b)
    return a * b


def _divide(a: Number, b: Number) -> Number:
    if b == 0:
        raise NotClosed
    if isinstance(a, float) or isinstance(b, float):
        return float(a) / float(b)
    return Fraction(a) / b


def _raise(base: Number, exponent: Number) -> Number:
    if isinstance(base, float) or isinstance(exponent, float) or exponent != int(exponent):
        return _raise_float(float(base), float(exponent))
    power = int(exponent)
    if base in (0, 1, -1):
        if base == 0 and power <= 0:
            raise NotClosed
        return base if power % 2 else base * base
    fraction = Fraction(base)
    bits = max(fraction.numerator.bit_length(), fraction.denominator.bit_length())
    if bits * abs(power) > MAX_BITS:
        raise TooLarge
    result: Number = fraction**power
    return result


def _raise_float(base: float, exponent: float) -> float:
    if base < 0 or (base == 0 and exponent <= 0):
        raise NotClosed
    try:
        return math.pow(base, exponent)
    except OverflowError as error:
        raise TooLarge from error


def _factorial(number: Number) -> Number:
    if isinstance(number, float) or number != int(number) or number < 0:
        raise NotClosed
    if number > MAX_FACTORIAL:
        raise TooLarge
    return math.factorial(int(number))


def _binomial(top: Number, bottom: Number) -> Number:
    if not (isinstance(top, int) and isinstance(bottom, int) and 0 <= bottom <= top):
        raise NotClosed
    if top > MAX_FACTORIAL:
        raise TooLarge
    return math.comb(top, bottom)


def _exact_root(radicand: Number, degree: int) -> Number | None:
    if isinstance(radicand, float) or degree != 2:
        return None
    fraction = Fraction(radicand)
    top, bottom = math.isqrt(fraction.numerator), math.isqrt(fraction.denominator)
    if top * top == fraction.numerator and bottom * bottom == fraction.denominator:
        return Fraction(top, bottom)
    return None
