"""Exact arithmetic of the statement reader: items, expressions and where they end.

An expression is a run of :class:`ArithmeticItem`, whatever it was written in.  Numbers are exact
rationals whose numerator and denominator fit in 64 bits; what does not fit, a division by zero and
a power with a large exponent are no value.  :func:`evaluate` reads a run from left to right and
notes each operation, for a part of a true side is a statement, too.  :func:`run_before` and
:func:`run_after` tell how far an expression reaches from a sign of equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import NamedTuple

from consensuspr.core.statements import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_EXPONENT,
    MAX_INT,
    MAX_SIDE,
    Key,
)

# --- items --------------------------------------------------------------------------------


class ItemKind(IntEnum):
    """What an item is to an expression."""

    NUMBER = 0
    OPERATOR = 1
    OPEN = 2
    CLOSE = 3
    SIGN = 4  # of equality
    STOP = 5
    UNKNOWN = 6  # an expression that it touches states nothing
    COMMA = 7  # in code alone


OPERAND_ENDS = (ItemKind.NUMBER, ItemKind.CLOSE)


class SeenThrough(IntEnum):
    """Functions of code whose value is that of their argument, or nearly so."""

    NONE = 0
    INT = 1
    FLOAT = 2
    ROUND = 3
    ABS = 4
    RATIONAL = 5


class Shown(NamedTuple):
    """How a number is written: how many decimals it shows, and how many zeros end it."""

    decimals: int = 0
    zeros: int = 0


AS_IT_IS = Shown()
# A decimal that repeats, which is exact and rounds nothing.
REPEATS = Shown(decimals=255)


@dataclass(slots=True)
class ArithmeticItem:
    """A number, an operator, a bracket or a sign of equality, at characters [start, end).

    Attributes:
        number: a number's value.
        shown: how it is written; None for one that cannot be a rounded value (a mixed number).
        percent: it was written with a percent sign.
        op: an operator, one of ``+ - * / ^`` and ``F``, which divides and rounds down.
        seen: the function that an opening bracket belongs to.
        approximate: a sign of equality that allows for rounding.
        verb: a sign that is a word.
        name: what the line says before its first sign.
    """

    kind: ItemKind
    start: int
    end: int
    number: Fraction = Fraction(0)
    shown: Shown | None = AS_IT_IS
    percent: bool = False
    op: str = ""
    seen: SeenThrough = SeenThrough.NONE
    approximate: bool = False
    verb: bool = False
    name: str = ""


# --- values -------------------------------------------------------------------------------


class ExactValue(NamedTuple):
    """What an expression comes to, and what it was made of.

    Attributes:
        number: its value.
        operands: magnitudes of the numbers in it.
        operations: how many were carried out.
        shown: how it is written where it is one number.
    """

    number: Fraction
    operands: tuple[Fraction, ...]
    operations: int
    shown: Shown | None = None

    @property
    def repeats(self) -> bool:
        """Whether it is a decimal that repeats."""
        return self.shown is not None and self.shown.decimals == REPEATS.decimals

    @property
    def key(self) -> Key:
        """What a statement of this value reaches nodes by."""
        operands = sorted(one.as_integer_ratio() for one in self.operands if one != 1)
        return Key(self.number.as_integer_ratio(), tuple(operands))


class _NoValue(Exception):
    """No expression, or beyond what is computed."""


def agree(left: ExactValue, right: ExactValue, approximate: bool) -> bool:
    """Tell whether an equation is true, a number that is shown being allowed its rounding."""
    return (
        left.number == right.number
        or _rounds_to(left, right, approximate)
        or _rounds_to(right, left, approximate)
    )


def _rounds_to(exact: ExactValue, rounded: ExactValue, approximate: bool) -> bool:
    if rounded.shown is None or rounded.repeats:
        return False
    decimals, zeros = rounded.shown
    # After an approximate sign, the zeros that end 1200 are not places that it shows.
    places = -zeros if approximate and not decimals else decimals
    return 2 * abs(exact.number - rounded.number) <= Fraction(10) ** -places


def _fits(number: Fraction) -> Fraction:
    if abs(number.numerator) > MAX_INT or number.denominator > MAX_INT:
        raise _NoValue
    return number


def _compute(op: str, left: Fraction, right: Fraction) -> Fraction:
    match op:
        case "+":
            return _fits(left + right)
        case "-":
            return _fits(left - right)
        case "*":
            return _fits(left * right)
        case "^":
            return _power(left, right)
    if right == 0:
        raise _NoValue
    return _fits(left / right if op == "/" else Fraction(left // right))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent.numerator) > MAX_EXPONENT:
        raise _NoValue
    if base == 0 and exponent <= 0:
        raise _NoValue
    return _fits(Fraction(base**exponent.numerator))


def _round(number: Fraction, places: Fraction) -> Fraction:
    """Round half to even, as Python's round() does on exact numbers."""
    if places.denominator != 1 or not 0 <= places <= MAX_DIGITS:
        raise _NoValue
    scale = 10**places.numerator
    return _fits(Fraction(round(_fits(number * scale)), scale))


# --- expressions --------------------------------------------------------------------------


def evaluate(
    items: list[ArithmeticItem], start: int, end: int
) -> tuple[ExactValue, list[ExactValue]] | None:
    """Return the value of items[start:end] and of its operations, the whole being the last."""
    if end - start > MAX_SIDE:
        return None
    parser = _Parser(items, start, end)
    try:
        return parser.whole(), parser.parts
    except _NoValue:
        return None


class _Parser:
    """Recursive descent over items[start:end]; notes each operation as it is carried out."""

    def __init__(self, items: list[ArithmeticItem], start: int, end: int) -> None:
        self.parts: list[ExactValue] = []
        self._items = items
        self._at = start
        self._end = end
        self._depth = 0
        self._power_last = False  # the last part is a power

    def whole(self) -> ExactValue:
        value = self._sum()
        if self._at != self._end:
            raise _NoValue
        return value

    def _peek(self) -> ItemKind:
        return self._items[self._at].kind if self._at < self._end else ItemKind.STOP

    def _take(self, kind: ItemKind) -> bool:
        found = self._peek() is kind
        self._at += found
        return found

    def _operator(self, ops: str) -> str:
        if self._peek() is ItemKind.OPERATOR and self._items[self._at].op in ops:
            self._at += 1
            return self._items[self._at - 1].op
        return ""

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NoValue

    def _joined(self, op: str, left: ExactValue, right: ExactValue) -> ExactValue:
        value = ExactValue(
            _compute(op, left.number, right.number),
            left.operands + right.operands,
            left.operations + right.operations + 1,
        )
        self._note(value, op == "^")
        return value

    def _note(self, value: ExactValue, power: bool) -> None:
        """Note an operation; a power states nothing as a part of another operation."""
        if self._power_last:
            self.parts.pop()
        self.parts.append(value)
        self._power_last = power

    def _first(self) -> int:
        """Return the index that the next operation gets."""
        return len(self.parts) - self._power_last

    def _drop_parts(self, first: int) -> None:
        """Drop the operations on the way, whose values are lost: 17*23*0 = 0."""
        del self.parts[first:-1]

    def _sum(self) -> ExactValue:
        first = self._first()
        left = self._product()
        while op := self._operator("+-"):
            right = self._product()
            cancels = bool(left.operations and right.operations)
            left = self._joined(op, left, right)
            if cancels and not left.number:
                self._drop_parts(first)
        return left

    def _product(self) -> ExactValue:
        first = self._first()
        left = self._signed()
        while True:
            op = self._operator("*/F")
            if not op:
                if self._peek() is not ItemKind.OPEN:
                    return left
                op = "*"
            right = self._signed()
            cancels = op == "/" and left.number == right.number
            cancels = cancels and bool(left.operations and right.operations)
            left = self._joined(op, left, right)
            if cancels or not left.number:
                self._drop_parts(first)

    def _signed(self) -> ExactValue:
        negative = False
        while op := self._operator("+-"):
            negative ^= op == "-"
        value = self._power()
        if not negative:
            return value
        value = value._replace(number=-value.number)
        if value.operations:
            self._note(value, self._power_last)
        return value

    def _power(self) -> ExactValue:
        first = self._first()
        base = self._atom()
        if not self._operator("^"):
            return base
        self._deeper()
        exponent = self._signed()
        self._depth -= 1
        value = self._joined("^", base, exponent)
        if not exponent.number:
            self._drop_parts(first)
        return value

    def _atom(self) -> ExactValue:
        if self._take(ItemKind.NUMBER):
            item = self._items[self._at - 1]
            return ExactValue(item.number, (abs(item.number),), 0, item.shown)
        if not self._take(ItemKind.OPEN):
            raise _NoValue
        seen = self._items[self._at - 1].seen
        self._deeper()
        value = self._sum()
        if seen is not SeenThrough.NONE:
            value = self._seen_through(seen, value)
        if not self._take(ItemKind.CLOSE):
            raise _NoValue
        self._depth -= 1
        return value

    def _seen_through(self, seen: SeenThrough, value: ExactValue) -> ExactValue:
        """Apply a function of code; the operation inside it has been noted."""
        second = self._sum() if self._take(ItemKind.COMMA) else None
        if seen is SeenThrough.RATIONAL:
            return value if second is None else self._joined("/", value, second)
        if second is not None and seen is not SeenThrough.ROUND:
            raise _NoValue
        number = value.number
        if seen is SeenThrough.ABS:
            number = abs(number)
        elif seen is SeenThrough.INT:
            number = Fraction(int(number))
        elif seen is SeenThrough.ROUND:
            number = _round(number, Fraction(0) if second is None else second.number)
        return value._replace(number=number, shown=None)


# --- runs ---------------------------------------------------------------------------------


def run_after(items: list[ArithmeticItem], start: int, stop: int) -> int:
    """Return the end of the longest expression from ``start`` on; ``start`` for none.

    None also where it was cut off at an operator or an unknown name.
    """
    depth = 0
    good = start
    expects_operand = True
    for at in range(start, min(stop, start + MAX_SIDE + 1)):
        kind = items[at].kind
        if expects_operand:
            if kind is ItemKind.NUMBER:
                expects_operand = False
            elif kind is ItemKind.OPEN:
                depth += 1
            elif kind is not ItemKind.OPERATOR or items[at].op not in "+-":
                return _before_bracket(items, start, good)
        elif kind is ItemKind.OPERATOR:
            expects_operand = True
        elif kind is ItemKind.OPEN:
            depth += 1
            expects_operand = True
        elif kind is ItemKind.CLOSE and depth:
            depth -= 1
        elif kind is ItemKind.UNKNOWN:
            return start
        else:
            return good if depth == 0 else _before_bracket(items, start, good)
        if depth == 0 and not expects_operand:
            good = at + 1
    if stop > start + MAX_SIDE:
        return start
    return good if depth == 0 and not expects_operand else _before_bracket(items, start, good)


def _before_bracket(items: list[ArithmeticItem], start: int, good: int) -> int:
    """Return ``good`` where the run goes on from there with a bracket, which may be a remark."""
    return good if good > start and items[good].kind is ItemKind.OPEN else start


def run_before(items: list[ArithmeticItem], end: int, stop: int) -> int:
    """Return the start of the longest expression that ends at ``end``; ``end`` for none.

    As :func:`run_after`, but going left: no further than ``stop``.
    """
    depth = 0
    good = end
    expects_operand = True
    at = end - 1
    while at >= stop and end - at <= MAX_SIDE + 1:
        kind = items[at].kind
        if expects_operand:
            if kind is ItemKind.NUMBER:
                expects_operand = False
            elif kind is ItemKind.CLOSE:
                depth += 1
            else:
                return _after_bracket(items, good, end)
        elif kind is ItemKind.OPERATOR:
            left = items[at - 1].kind if at > stop else ItemKind.STOP
            if left in OPERAND_ENDS:
                expects_operand = True
            elif left is ItemKind.UNKNOWN or items[at].op not in "+-":
                return _after_bracket(items, good, end)
            # Otherwise a sign: the operator before it is the next to be read.
        elif kind is ItemKind.OPEN and depth:
            depth -= 1
        elif kind is ItemKind.CLOSE and items[at + 1].kind is ItemKind.OPEN:
            depth += 1
            expects_operand = True
        elif kind is ItemKind.NUMBER and items[at + 1].kind is ItemKind.OPEN:
            pass
        elif kind is ItemKind.UNKNOWN:
            return end
        else:
            return good if depth == 0 else _after_bracket(items, good, end)
        if depth == 0 and not expects_operand:
            good = at
        at -= 1
    if at >= stop:
        return end
    return good if depth == 0 and not expects_operand else _after_bracket(items, good, end)


def _after_bracket(items: list[ArithmeticItem], good: int, end: int) -> int:
    """Return ``good`` where the run goes on from there with a bracket, which may be a remark."""
    return good if good < end and items[good - 1].kind is ItemKind.CLOSE else end
