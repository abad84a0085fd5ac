"""The expression tree that equal forms are derived from.

Small on purpose: rational numbers, symbols that are never looked into, sums, products,
powers and calls.  Brackets are not represented; associative nests are flattened while
parsing (``a-(b+c)`` is one sum of three terms, ``a/(b/c)`` one product of three
factors), so that ways of writing the same thing meet in one tree.  What is not
arithmetic (sets, intervals, matrices, prose) is a :class:`Symbol` or nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeAlias


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
    """``terms[i] = (sign, term)`` with sign +1 or -1; one term only where it is negative."""

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
