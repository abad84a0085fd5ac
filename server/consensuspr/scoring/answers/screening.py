"""Finds comparisons that are not worth a worker process, from their text in linear time.

Towers of powers, factorials of huge numbers, sums over a billion terms, symbolic determinants: a
worker would spend its whole budget on each and be killed.  :func:`screen` finds them by their
sizes, and they stay undecided at once.  What slips through meets the limits of the worker, so the
screen may be incomplete, but it must not stop a sane answer.
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
MAX_BINOMIAL = 100_000
MAX_TERMS = 100_000
MAX_SYMBOLIC_DETERMINANT = 5

_LONG_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1}}}")
_E_NOTATION = re.compile(r"\d[eE][+-]?\d{4}")
_LETTER = re.compile(r"[A-Za-z]")
_SIMPLE = re.compile(r"-?\d+|\\?[A-Za-z]+")
_BINOMIAL = re.compile(r"\\[dt]?binom\s*(?=\{)")
_CHOOSE = re.compile(r"\\choose(?![A-Za-z])")
# How far the two numbers around \choose are looked for.
_CHOOSE_CHARS = 64
# Powers of powers beyond this height are screen whatever their numbers.
_MAX_TOWER = 4
_SUM = re.compile(r"\\(?:sum|prod|int|bigcup|bigcap)(?![A-Za-z])")
_MATRIX = re.compile(
    r"\\begin\s*\{([vVbpB]?)(?:matrix|array)\}((?:(?!\\(?:begin|end)).)*+)", re.DOTALL
)
_DETERMINANT = re.compile(
    r"\\det(?![A-Za-z])|\\begin\s*\{[vV]matrix\}|\\operatorname\s*\{(?:det|eig|svd|SVD|rref|rank|nullspace|norm)"
)
_OPENERS = {"{": "}", "(": ")", "[": "]"}
_CLOSERS = {closer: opener for opener, closer in _OPENERS.items()}


def screen(text: str) -> str | None:
    """Return why ``text`` is not worth a worker (one word), None where it is."""
    if len(text) > MAX_CHARS:
        return "length"
    if _LONG_DIGITS.search(text) or _E_NOTATION.search(text):
        return "digits"
    pairs = _bracket_pairs(text)
    if pairs is None:
        return "depth"
    if _large_powers(text, pairs) or _large_factorials(text, pairs):
        return "magnitude"
    if _large_binomials(text, pairs) or _long_sums(text, pairs):
        return "terms"
    if _large_determinants(text):
        return "determinant"
    return None


def _bracket_pairs(text: str) -> dict[int, int] | None:
    """Return the partner of each bracket that has one; None where they nest too deep."""
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
    """Return the magnitude of a closed expression, inf where too large, nan where not closed."""
    try:
        return abs(float(closed_value(_plain(text)).number))
    except (BeyondLimits, OverflowError):
        return math.inf
    except Unreadable:
        return math.nan


def _plain(text: str) -> str:
    return text.replace("\\cdot", "*").replace("\\times", "*").replace("**", "^").replace(",", "")


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


def _large_binomials(text: str, pairs: dict[int, int]) -> bool:
    parts: list[str] = []
    for found in _BINOMIAL.finditer(text):
        top, end = _operand(text, found.end(), pairs)
        parts += [top, _operand(text, end, pairs)[0]]
    for found in _CHOOSE.finditer(text):
        before = text[max(0, found.start() - _CHOOSE_CHARS) : found.start()]
        after = text[found.end() : found.end() + _CHOOSE_CHARS]
        parts += [before.rpartition("{")[2], after.partition("}")[0]]
    return any(_size(part) > MAX_BINOMIAL for part in parts)


def _long_sums(text: str, pairs: dict[int, int]) -> bool:
    for found in _SUM.finditer(text):
        position = found.end()
        for _ in range(2):
            while text[position : position + 1] == " ":
                position += 1
            if text[position : position + 1] not in ("_", "^"):
                break
            bound, position = _operand(text, position + 1, pairs)
            if _size(bound.rpartition("=")[2]) > MAX_TERMS:
                return True
    return False


def _large_determinants(text: str) -> bool:
    return _DETERMINANT.search(text) is not None and any(
        max(row.count("&") for row in found[2].split("\\\\")) >= MAX_SYMBOLIC_DETERMINANT
        and _LETTER.search(found[2])
        for found in _MATRIX.finditer(text)
    )
