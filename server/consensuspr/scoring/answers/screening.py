"""Finds answers that are not worth a worker process, from their text in linear time.

Towers of powers, factorials of huge numbers, deep nesting: a worker would spend its whole budget on
each and be killed.  :func:`screen` finds them by their sizes, and they stay undecided at once.
What slips through meets the limits of the worker.  A sane answer is never stopped.
"""

from __future__ import annotations

import math
import re

from consensuspr.core.expressions import BeyondLimits, Unreadable, closed_value

# Of an answer that a worker is asked about.
MAX_CHARS = 1000
MAX_DEPTH = 40
MAX_DIGITS = 1000
# Published answers have powers such as 2^{2009} or 2021055^{2011} (42,000 bits).
MAX_POWER_BITS = 1 << 20
MAX_FACTORIAL = 20_000
# Higher towers of powers are screened whatever their numbers.
_MAX_TOWER = 4

_LONG_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1}}}|\d[eE][+-]?\d{{4}}")
_SIMPLE = re.compile(r"-?\d+|\\?[A-Za-z]+")
_OPENERS = {"{": "}", "(": ")", "[": "]"}
_CLOSERS = {closer: opener for opener, closer in _OPENERS.items()}


def screen(text: str) -> str | None:
    """Return why ``text`` is not worth a worker (one word), None if it is."""
    if len(text) > MAX_CHARS:
        return "length"
    if _LONG_DIGITS.search(text):
        return "digits"
    pairs = _bracket_pairs(text)
    if pairs is None:
        return "depth"
    return "magnitude" if _large_powers(text, pairs) or _large_factorials(text, pairs) else None


def _bracket_pairs(text: str) -> dict[int, int] | None:
    """Return the partner of each bracket that has one; None if they nest too deep."""
    stack: list[int] = []
    pairs: dict[int, int] = {}
    for position, character in enumerate(text):
        if character in _OPENERS:
            stack.append(position)
            if len(stack) > MAX_DEPTH:
                return None
        elif character in _CLOSERS and stack and text[stack[-1]] == _CLOSERS[character]:
            opener = stack.pop()
            pairs[opener], pairs[position] = position, opener
    return pairs


def _size(text: str) -> float:
    """Return the magnitude of a closed expression, inf if too large, nan if not closed."""
    plain = text.replace("\\cdot", "*").replace("\\times", "*").replace("**", "^").replace(",", "")
    try:
        return abs(float(closed_value(plain).number))
    except (BeyondLimits, OverflowError):
        return math.inf
    except Unreadable:
        return math.nan


def _operand(text: str, position: int, pairs: dict[int, int]) -> tuple[str, int]:
    """Return the operand that starts at ``position``, without its brackets, and its end."""
    while position < len(text) and text[position] in " +":
        position += 1
    if position in pairs and text[position] in _OPENERS:
        return text[position + 1 : pairs[position]], pairs[position] + 1
    found = _SIMPLE.match(text, position)
    return ("", position) if found is None else (found[0], found.end())


def _large_powers(text: str, pairs: dict[int, int]) -> bool:
    for found in re.finditer(r"\^|\*\*", text):
        exponent, end = _operand(text, found.end(), pairs)
        tower = [exponent]
        while text[end : end + 1] == "^":  # 2^3^4 without braces
            upper, end = _operand(text, end + 1, pairs)
            tower.append(upper)
            if len(tower) > _MAX_TOWER:
                return True
        size = _size("^(".join(f"({part})" for part in tower) + ")" * (len(tower) - 1))
        if size == math.inf or size * _base_bits(text, found.start(), pairs) > MAX_POWER_BITS:
            return True
    return False


def _base_bits(text: str, position: int, pairs: dict[int, int]) -> float:
    """Return the bits of the base that ends at ``position``; a symbol counts as one digit."""
    size = _size_before(text, position, pairs)
    if size == math.inf:
        return MAX_POWER_BITS
    return math.log2(size) if size >= 2 else 3.0


def _size_before(text: str, position: int, pairs: dict[int, int]) -> float:
    """Return the size of the bracket or number that ends at ``position``, nan for others."""
    if position - 1 in pairs:
        return _size(text[pairs[position - 1] + 1 : position - 1])
    start = position
    while start and (text[start - 1].isdigit() or text[start - 1] == "."):
        start -= 1
    return _size(text[start:position])


def _large_factorials(text: str, pairs: dict[int, int]) -> bool:
    # (n!)! is written n!!, too; sane answers contain neither.
    return "!!" in text or any(
        _size_before(text, found.start(), pairs) > MAX_FACTORIAL for found in re.finditer("!", text)
    )
