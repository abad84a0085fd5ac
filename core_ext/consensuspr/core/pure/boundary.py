"""The match rule: a hit counts only where it is not a piece of something larger."""

from __future__ import annotations

from typing import Final

from consensuspr.core.patterns import Edge
from consensuspr.core.tables import CHAR_CLASSES, MAX_REWRITE_BYTES, MIN_NAME, Char, classes_of

_DIGITS: Final = frozenset(b"0123456789")
_LETTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_OPERANDS: Final = classes_of("0aα")
_BINDS_RIGHTWARD: Final = classes_of("+-±*/^_")
_BINDS_LEFTWARD: Final = classes_of("0aα*^_(")
_SIGNS: Final = classes_of("+-±/")
# What may follow + - / when the expression goes on.
_GOES_ON: Final = classes_of("0aα√([-|")
# What may follow ! when it is a factorial rather than the end of an exclamation.
_FACTORIAL_GOES_ON: Final = classes_of("0aα√()],+-±*/^=<>≤")


def class_before(data: bytes, at: int) -> Char:
    """Return the class of the character that ends at byte ``at`` > 0."""
    start = at - 1
    while data[start] & 0xC0 == 0x80:
        start -= 1
    return CHAR_CLASSES.get(data[start:at].decode(), Char.OTHER)


def class_at(data: bytes, at: int) -> Char:
    """Return the class of the character at byte ``at``; OTHER at the end."""
    if at >= len(data):
        return Char.OTHER
    lead = data[at]
    width = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    return CHAR_CLASSES.get(data[at : at + width].decode(), Char.OTHER)


def left_free(data: bytes, start: int, edges: Edge) -> bool:
    """Tell whether nothing to the left makes the hit a piece of something larger."""
    if not edges & Edge.LEFT_OPERAND or start == 0:
        return True
    before = class_before(data, start)
    if before in _OPERANDS or before in _BINDS_RIGHTWARD or before is Char.ROOT:
        # √5 is no 5, but ∠A = 30 states A = 30 in most solutions.
        return before is Char.ROOT and data[start - 3 : start] not in _RADICALS
    if before is Char.POINT:
        return start < 2 or data[start - 2] not in _DIGITS
    if before is Char.SPACE:
        mixed = edges & Edge.LEFT_FRACTION and start >= 2 and data[start - 2] in _DIGITS
        return not mixed
    if before in (Char.CLOSE, Char.BRACKET_CLOSE, Char.BAR, Char.BANG):
        return _stands_behind(data, start, before, edges)
    if before is Char.PRIME:
        return not edges & Edge.LEFT_BRACKET
    if before is Char.OPEN and edges & Edge.RELATES:
        return start < 2 or (data[start - 2] not in _LETTERS and data[start - 2] not in b"_^")
    return True


def _stands_behind(data: bytes, start: int, before: Char, edges: Edge) -> bool:
    """Tell whether what ends with a bracket, a bar or ``!`` is no factor of the hit behind it."""
    if edges & Edge.LEFT_SIGN:
        closes = before is Char.CLOSE or (before is Char.BAR and _closes_absolute(data, start))
        return not closes
    if data[start] in _DIGITS or _begins_word(data, start):
        return True
    if before is Char.BAR:
        return not _closes_absolute(data, start)
    if before is Char.BANG:
        return not _is_factorial(data, start - 1)
    return not _closes_factor(data, start)


def _is_factorial(data: bytes, at: int) -> bool:
    """Tell whether the ``!`` at ``at`` stands behind a number, a bracket or a single letter."""
    if at == 0:
        return False
    if data[at - 1] in _DIGITS or data[at - 1] == ord(")"):
        return True
    return data[at - 1] in _LETTERS and (at == 1 or data[at - 2] not in _LETTERS)


def _begins_word(data: bytes, start: int) -> bool:
    """Tell whether a word of prose stands at ``start``, or a name: no product of letters."""
    end = start
    while end < len(data) and end - start < MIN_NAME and data[end] in _LETTERS:
        end += 1
    return end - start == MIN_NAME or (end - start > 1 and data[end : end + 1] == b" ")


def _closes_absolute(data: bytes, start: int) -> bool:
    """Tell whether the bar before ``start`` is an even one of its line."""
    line = data[max(0, start - MAX_REWRITE_BYTES) : start]
    return line[line.rfind(b"\n") + 1 :].count(b"|") % 2 == 0


def _closes_factor(data: bytes, start: int) -> bool:
    """Tell whether the bracket that closes before ``start`` is a factor, no remark or label.

    ``(a+b)`` and ``f(x)`` are; ``(given)``, ``(by 3)``, ``(y=2)``, ``(iii)`` and ``[1]`` are not.
    """
    close = data[start - 1]
    opening = ord("(") if close == ord(")") else ord("[")
    depth = 0
    operator = word = False
    letters = 0
    at = start
    while at > max(0, start - MAX_REWRITE_BYTES):
        at -= 1
        byte = data[at]
        if byte == close:
            depth += 1
        elif byte == opening:
            depth -= 1
            if depth == 0:
                break
        if byte in _LETTERS:
            letters += 1
            word = word or letters == MIN_NAME
            continue
        hyphen = byte == ord("-") and letters and data[at - 1] in _LETTERS
        blank = byte == ord(" ") and (letters or data[at - 1] in _LETTERS)
        if blank or byte in b"\n,;:?=<>" or data[at : at + 2] == b"\xe2\x89":
            return False
        # An operation, a product of a number and a letter, or a root.
        operator = operator or (byte in b"+-*/^|!" and not hyphen)
        operator = operator or (byte in _DIGITS and (letters > 0 or data[at - 1] in _LETTERS))
        operator = operator or data[at : at + 3] == b"\xe2\x88\x9a"
        letters = 0
    if depth or data[at] != opening:
        return False
    called = (
        close == ord(")")
        and at > 0
        and (data[at - 1] in _LETTERS or data[at - 1] in _DIGITS or data[at - 1] in b")]")
    )
    return operator or (called and not word)


_RADICALS: Final = tuple(char.encode() for char in "√∛∜")


def right_free(data: bytes, end: int, edges: Edge) -> bool:
    """Tell whether nothing to the right makes the hit a piece of something larger."""
    if not edges & Edge.RIGHT_OPERAND or end == len(data):
        return True
    after = class_at(data, end)
    if after in _BINDS_LEFTWARD:
        return False
    if after is Char.ROOT:
        return data[end : end + 3] not in _RADICALS
    if after in _SIGNS:
        width = 3 if data[end] >= 0x80 and data[end] >= 0xE0 else 2 if data[end] >= 0x80 else 1
        return class_at(data, end + width) not in _GOES_ON
    if after is Char.POINT:
        following = class_at(data, end + 1)
        if following is Char.OPEN:  # 0.(2) repeats
            return class_at(data, end + 2) is not Char.DIGIT
        return following is not Char.DIGIT
    if after is Char.CLOSE and edges & Edge.RIGHT_DIGIT:
        return not _repeats(data, end)
    if after is Char.BANG:
        return class_at(data, end + 1) not in _FACTORIAL_GOES_ON
    if after is Char.PRIME:
        return not edges & Edge.RIGHT_LETTER
    if after is Char.SPACE and edges & Edge.RIGHT_DIGIT:
        return not _fraction_at(data, end + 1)
    return True


def _repeats(data: bytes, end: int) -> bool:
    """Tell whether the digits before ``end`` are the repeating ones of a decimal: 0.1(36)."""
    start = end
    while start > 0 and end - start < MAX_REWRITE_BYTES and data[start - 1] in _DIGITS:
        start -= 1
    if start == 0 or data[start - 1] != ord("("):
        return False
    end = start = start - 1
    while start > 0 and end - start < MAX_REWRITE_BYTES and data[start - 1] in _DIGITS:
        start -= 1
    return start > 1 and data[start - 1] == ord(".") and data[start - 2] in _DIGITS


def _fraction_at(data: bytes, at: int) -> bool:
    """Tell whether at most three digits and a fraction bar stand at ``at``: 2 1/2."""
    stop = at
    while stop < len(data) and stop - at < 3 and data[stop] in _DIGITS:
        stop += 1
    return stop > at and data[stop : stop + 1] == b"/"
