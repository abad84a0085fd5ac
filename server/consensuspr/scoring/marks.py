"""A response cut at its node hits, for the terminal and the page.

Hits may overlap (``5*2=10`` and ``10``): a piece has the innermost hit around it, and the hits that
begin and end with it.  A short response is shown whole; of a long one the beginning, the end and
the neighbourhood of every hit, cut between words.  Imports nothing of the matcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

# A response up to this long is shown whole; of a longer one this much around each hit.
WHOLE_CHARS = 4000
CONTEXT_CHARS = 240

# A gap that is shorter is shown.
SHORTEST_GAP = 120

# A part begins and ends between words where one ends within so many characters.
_WORD_CHARS = 30


@dataclass(frozen=True, slots=True)
class Mark:
    """One hit: code points ``[start, end)`` of the response, and the node's number from 1."""

    start: int
    end: int
    node: int


# Words that were found, for one line of a table.
_FOUND_CHARS = 80
_COMMAND = re.compile(r"\\(?:[a-zA-Z]+|.)")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\}|\\,)(?=\d{3}(?!\d))", re.ASCII)
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")
_LAYOUT = re.compile(
    r"(?<!\\)[$&]|\\[()\[\]!,;]|\\\\(?![A-Za-z])|\\q?quad\b"
    # Bold text, and no power.
    r"|(?<![\w)}\]])\*\*(?=\S)|\*\*(?!\s?[\w({\\])"
)


def words_found(
    response: str,
    span: tuple[int, int] | None,
    expression: str,
    limit: int | None = _FOUND_CHARS,
) -> str:
    """Return the words that stand at a hit, on one line.

    Empty if they have the numbers and names of the expression in its order, as ``3875 ÷ 35`` and
    ``\\frac{3875}{35}`` have.

    Args:
        response: the text.
        span: half-open code points of the hit; None if there is none.
        expression: of the node, that was found.
        limit: characters to return; None returns all.
    """
    if span is None:
        return ""
    # Dollars without their partners, line breaks and alignment read badly.
    words = response[span[0] : span[1]]
    if words.count("{") > words.count("}"):
        words = words.replace("\\boxed{", "", 1)
    words = " ".join(_LAYOUT.sub(" ", words).split())
    if _plain(words) == _plain(expression):
        return ""
    return words if limit is None or len(words) <= limit else words[: limit - 1] + "…"


def _plain(text: str) -> list[str]:
    return _TOKEN.findall(_COMMAND.sub(" ", _THOUSANDS.sub("", text)))


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text inside the same hits."""

    text: str
    node: int = 0  # of the innermost hit around it, 0 for none
    begins: tuple[int, ...] = ()  # nodes whose hit begins with this piece, the widest first
    ends: tuple[int, ...] = ()  # nodes whose hit ends with it, the narrowest first


def cut_at_marks(
    response: str, marks: Sequence[Mark], start: int = 0, end: int | None = None
) -> tuple[Piece, ...]:
    """Return a part ``[start, end)`` of a response in pieces, in order; its hits in any order."""
    end = len(response) if end is None else end
    inside = [mark for mark in marks if mark.start < end and start < mark.end]
    edges = {start, end}
    for mark in inside:
        edges |= {max(mark.start, start), min(mark.end, end)}
    pieces = []
    for left, right in pairwise(sorted(edges)):
        around = _widest_first(m for m in inside if m.start <= left and right <= m.end)
        # Of two equal hits the first node is on top.
        top = min(around, key=lambda mark: (mark.end - mark.start, mark.node), default=None)
        pieces.append(
            Piece(
                response[left:right],
                0 if top is None else top.node,
                tuple(mark.node for mark in around if mark.start == left),
                tuple(mark.node for mark in reversed(around) if mark.end == right),
            )
        )
    return tuple(pieces)


def _widest_first(marks: Iterable[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda mark: (mark.start - mark.end, mark.node))


def parts_to_show(
    response: str,
    marks: Sequence[Mark],
    whole_chars: int = WHOLE_CHARS,
    context_chars: int = CONTEXT_CHARS,
) -> list[tuple[int, int]]:
    """Return the half-open parts of a response to show, in order and apart from each other.

    A response of up to ``whole_chars`` is one part.  Of a longer one ``context_chars`` are shown at
    both ends and on both sides of every hit.  No hit is cut, and the last part ends where the
    response ends.
    """
    length = len(response)
    if length <= whole_chars:
        return [(0, length)]
    # Beginning and end orient the reader: the question's restatement and the answer.
    wanted = [(0, context_chars), (length - context_chars, length)]
    wanted += [(mark.start - context_chars, mark.end + context_chars) for mark in marks]
    parts: list[tuple[int, int]] = []
    for start, end in sorted(wanted):
        start, end = _between_words(response, max(start, 0), min(end, length))
        if parts and start <= parts[-1][1] + SHORTEST_GAP:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((start, end))
    return parts


def _between_words(response: str, start: int, end: int) -> tuple[int, int]:
    """Return a part without the torn word at either end; the text's own ends stay."""
    if start > 0:
        head = response[start : start + _WORD_CHARS]
        start += next((at + 1 for at, sign in enumerate(head) if sign.isspace()), 0)
    if end < len(response):
        tail = response[end - _WORD_CHARS : end]
        end -= next((at for at, sign in enumerate(reversed(tail)) if sign.isspace()), 0)
    return start, end
