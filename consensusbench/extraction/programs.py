"""The steps of program code in a rollout as equations: ``48/2=24`` of ``may = april / 2``.

The core reads the code (:mod:`consensuspr.core.pure.statements.code`).  Left out are values that no
short decimal writes, what is computed from them, and calls that change a value.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple

from consensuspr.core.pure.statements.arithmetic import (
    ArithmeticItem,
    ItemKind,
    SeenThrough,
    evaluate,
)
from consensuspr.core.pure.statements.code import code_steps

# Characters of an equation.
MAX_EQUATION_CHARS: Final = 120
# Digits behind the point that a number may have; results with more are rounded to two.
MAX_PLACES: Final = 4

_SIGNS: Final = {ItemKind.OPEN: "(", ItemKind.CLOSE: ")"}


class Equation(NamedTuple):
    """One step of a program: its text, for example ``48/2=24``, and its place in code points."""

    text: str
    start: int


def read_equations(response: str) -> list[Equation]:
    """Return the distinct steps of the code of a response, in order."""
    found: dict[str, Equation] = {}
    for items, value, start in code_steps(response):
        plain = [_plain(item) for item in items]
        result = evaluate(plain, 0, len(plain))
        if result is None or result[0].number != value:
            continue  # a call changed the value
        parts = [_text(item) for item in plain]
        shown = _written(value) or _rounded(value)
        if None not in parts and shown is not None:
            text = "".join(map(str, parts)) + "=" + shown
            if len(text) <= MAX_EQUATION_CHARS:
                found.setdefault(text, Equation(text, start))
    return list(found.values())


def _plain(item: ArithmeticItem) -> ArithmeticItem:
    """Return an item without what only code has: a function, ``//``, the comma of a fraction."""
    if item.kind is ItemKind.COMMA or item.op == "F":
        return replace(item, kind=ItemKind.OPERATOR, op="/")
    return replace(item, seen=SeenThrough.NONE)


def _text(item: ArithmeticItem) -> str | None:
    if item.kind is ItemKind.NUMBER:
        shown = _written(item.number)
        return f"({shown})" if shown and item.number < 0 else shown
    return _SIGNS.get(item.kind) or item.op


def _written(value: Fraction) -> str | None:
    """Return a value as a decimal of few places, None if it has more."""
    scaled = value * 10**MAX_PLACES
    if scaled.denominator != 1:
        return None
    whole, rest = divmod(abs(scaled.numerator), 10**MAX_PLACES)
    shown = f"{whole}.{rest:0{MAX_PLACES}d}".rstrip("0").rstrip(".")
    return f"-{shown}" if value < 0 else shown


def _rounded(value: Fraction) -> str | None:
    """Return a positive value with two decimals, None if it shows none."""
    shown = _written(Fraction(round(value * 100), 100))
    return shown if shown is not None and "." in shown and value > 0 else None
