"""Sets of real numbers: intervals, their unions, and inequalities in one letter.

``(0,5] \\cup (3,7)`` and ``2 \\le x \\le 3`` are sorted disjoint pieces with exact rational ends,
so that two are equal if and only if their pieces are.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from consensuspr.core.expressions import Unreadable, closed_value, exact_quotient, linear_bound

MAX_PIECES = 16

# An end of a piece: which infinity (-1, 1) or 0, the number, and which side of it: an end
# just below the number is -1, just above it 1.  Ends order as tuples do.
_End = tuple[int, int | Fraction, int]
_BELOW_ALL: _End = (-1, 0, 0)
_ABOVE_ALL: _End = (1, 0, 0)
_INFINITIES = {"\\infty": _ABOVE_ALL, "-\\infty": _BELOW_ALL}

_INTERVAL = re.compile(r"\s*([(\[])([^,;()\[\]]+),([^,;()\[\]]+)([)\]])\s*")
_SIGN = re.compile(r"(<|>|\\le(?![A-Za-z])|\\ge(?![A-Za-z]))")
_LETTER = re.compile(r"[A-Za-z]")
_ONLY_A_SET = re.compile(r"[\[\]]|\\cup|\\infty")


class Region(NamedTuple):
    """A set of real numbers: the ends of its disjoint parts, in order."""

    pieces: tuple[tuple[_End, _End], ...]
    name: str = ""  # the letter of an inequality

    @property
    def is_point(self) -> bool:
        """Return whether it holds one number alone, as [5,5] does."""
        return len(self.pieces) == 1 and self.pieces[0][0][:2] == self.pieces[0][1][:2]


def read_region(text: str) -> Region | None:
    """Return the set that the canonical ``text`` writes, None where it is none."""
    if "<" in text or ">" in text or "\\le" in text or "\\ge" in text:
        return _inequality(text)
    if text[:1] not in ("(", "["):
        return None
    parts = text.split("\\cup")
    if len(parts) > MAX_PIECES:
        return None
    pieces = [_interval(part) for part in parts]
    if None in pieces:
        return None
    return Region(_merged([piece for piece in pieces if piece is not None]))


def compare_regions(gold: Region, answer: Region, gold_text: str) -> bool | None:
    """Return whether two sets are equal; None where the ground truth may be a point."""
    if gold.name and answer.name and gold.name != answer.name:
        return None if gold.name.casefold() == answer.name.casefold() else False
    if answer.name and not gold.name and _ONLY_A_SET.search(gold_text) is None:
        return None
    return gold.pieces == answer.pieces


def _interval(text: str) -> tuple[_End, _End] | None:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        return None
    lower = _end(found[2], -1 if found[1] == "[" else 1)
    upper = _end(found[3], 1 if found[4] == "]" else -1)
    return (lower, upper) if lower and upper and lower < upper else None


def _end(text: str, side: int) -> _End | None:
    text = text.strip()
    infinity = _INFINITIES.get(text)
    if infinity is not None:
        return infinity
    number = _exact(text)
    return None if number is None else (0, number, side)


def _exact(text: str) -> int | Fraction | None:
    try:
        value = closed_value(text)
    except Unreadable:
        return None
    return None if isinstance(value.number, float) or value.decimal else value.number


def _merged(pieces: list[tuple[_End, _End]]) -> tuple[tuple[_End, _End], ...]:
    merged: list[tuple[_End, _End]] = []
    for lower, upper in sorted(pieces):
        if merged and lower <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(upper, merged[-1][1]))
        else:
            merged.append((lower, upper))
    return tuple(merged)


def _inequality(text: str) -> Region | None:
    parts = [part.strip() for part in _SIGN.split(text)]
    if len(parts) == 3:
        return _half_line(*parts)
    if len(parts) != 5 or _LETTER.fullmatch(parts[2]) is None:
        return None
    below, above = _half_line(*parts[:3]), _half_line(*parts[2:])
    if below is None or above is None:
        return None
    lower = max(below.pieces[0][0], above.pieces[0][0])
    upper = min(below.pieces[0][1], above.pieces[0][1])
    return Region(((lower, upper),), parts[2]) if lower < upper else None


def _half_line(left: str, sign: str, right: str) -> Region | None:
    """Solve an inequality that is linear in its one letter."""
    a, b = exact_quotient(left), exact_quotient(right)
    bound = None if a is None or b is None else linear_bound(a, b)
    if bound is None:
        return None
    name, slope, offset = bound
    upwards = (sign in (">", "\\ge")) == (slope > 0)
    inside = -1 if upwards else 1
    end: _End = (0, Fraction(-offset, slope), inside if sign.startswith("\\") else -inside)
    return Region(((end, _ABOVE_ALL) if upwards else (_BELOW_ALL, end),), name)
