"""Bytes to canonical characters, one for one, with the byte offset of each.

Everything after this step sees well-formed text: undecodable bytes, NUL and lone
surrogates have become :data:`~consensuspr.core.tables.REPLACEMENT`, full-width and
mathematical letters are ASCII, and every kind of blank is one of two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from consensuspr.core.tables import CHAR_CLASSES, CHAR_MAP, REPLACEMENT, Char

# A surrogate that was encoded like a character: three bytes that UTF-8 forbids, but that
# come from one code point of the caller's str.
_ENCODED_SURROGATE = re.compile("\udced[\udca0-\udcbf][\udc80-\udcbf]")
_UNDECODED_BYTE = re.compile("[\udc80-\udcff]")


def canonical_characters(data: bytes) -> tuple[str, Sequence[int]]:
    """Decode ``data`` into canonical characters.

    Returns:
        The characters, and ``len(characters) + 1`` byte offsets: character ``i`` came from
        ``data[offsets[i]:offsets[i + 1]]``.
    """
    if data.isascii():
        return data.decode("ascii").translate(CHAR_MAP), range(len(data) + 1)
    # Python escapes every undecodable byte on its own, which is the rule here too.
    text = data.decode("utf-8", "surrogateescape")
    if _UNDECODED_BYTE.search(text) is None:
        widths = map(_width, text)
    else:
        # The placeholder is not a character of any text: it lies in the surrogate range.
        text = _ENCODED_SURROGATE.sub("\ud800", text)
        widths = map(_escaped_width, text)
        text = re.sub("[\ud800\udc80-\udcff]", REPLACEMENT, "".join(text))
    offsets = [0]
    total = 0
    for width in widths:
        total += width
        offsets.append(total)
    return text.translate(CHAR_MAP), offsets


def char_class(char: str) -> Char:
    """Return the class of one canonical character."""
    return CHAR_CLASSES.get(char, Char.OTHER)


class CodePoints:
    """Counts code points up to byte offsets of one text, in one pass for all of them."""

    def __init__(self, data: bytes, offsets: Iterable[int]) -> None:
        """Count the code points that begin before each of ``offsets``."""
        self._before: dict[int, int] = {}
        count = position = 0
        for offset in sorted(set(offsets)):
            count += sum(byte & 0xC0 != 0x80 for byte in data[position:offset])
            position = offset
            self._before[offset] = count

    def __getitem__(self, offset: int) -> int:
        return self._before[offset]


def _width(char: str) -> int:
    code = ord(char)
    return 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4


def _escaped_width(char: str) -> int:
    if char == "\ud800":
        return 3
    return 1 if "\udc80" <= char <= "\udcff" else _width(char)
