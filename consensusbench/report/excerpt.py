"""A response cut into pieces: marked hits, plain text, and what is folded away or left out.

Pure: positions in, pieces out.  Short responses are whole.  Of a long one the beginning, the end
and the neighbourhood of every hit are shown; what lies between is folded away, and beyond a bound
it is left out of the page and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

# A response up to this long is shown whole; of a longer one this much around each hit.
WHOLE_CHARS = 3000
CONTEXT_CHARS = 200

# A part begins and ends between words where one ends within so many characters.
_WORD_CHARS = 30

# Gaps shorter than this are shown: to unfold them would cost more than to read them.
SHORTEST_GAP = 120


@dataclass(frozen=True, slots=True)
class Hit:
    """Code points ``[start, end)`` of the response, and the number of the node, from 1."""

    start: int
    end: int
    node: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text inside the same hits.

    Attributes:
        text: as the model wrote it.
        node: the innermost of the hits around it, 0 for none.
        ends: nodes whose hit ends with this piece.
    """

    text: str
    node: int = 0
    ends: tuple[int, ...] = ()


class Kind(StrEnum):
    """What the page does with a block."""

    SHOWN = "shown"
    FOLDED = "folded"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the response: ``pieces`` are empty where it is left out."""

    kind: Kind
    chars: int
    pieces: tuple[Piece, ...] = ()


def cut(response: str, hits: Sequence[Hit], max_chars: int) -> list[Block]:
    """Return the blocks of a response in order; together they are as long as it is.

    Args:
        response: the text.
        hits: inside the response, in any order; they may overlap.
        max_chars: code points that may stand in the page, shown or folded.
    """
    length = len(response)
    hits = [hit for hit in hits if 0 <= hit.start < hit.end <= length]
    shown = _shown_parts(response, hits)
    left = max_chars
    kinds = []
    for start, end in shown:
        kinds.append(Kind.SHOWN if end - start <= left else Kind.LEFT_OUT)
        left -= end - start if end - start <= left else 0
    blocks: list[Block] = []
    at = 0
    for (start, end), kind in zip(shown, kinds, strict=True):
        gap = start - at
        fits = gap <= left
        left -= gap if fits else 0
        _append(blocks, response, hits, at, start, Kind.FOLDED if fits else Kind.LEFT_OUT)
        _append(blocks, response, hits, start, end, kind)
        at = end
    return blocks


def _append(
    blocks: list[Block], response: str, hits: Sequence[Hit], start: int, end: int, kind: Kind
) -> None:
    if start == end:
        return
    if kind is Kind.LEFT_OUT:
        if blocks and blocks[-1].kind is kind:
            blocks[-1] = Block(kind, blocks[-1].chars + end - start)
        else:
            blocks.append(Block(kind, end - start))
        return
    blocks.append(Block(kind, end - start, _pieces(response, hits, start, end)))


def _shown_parts(response: str, hits: Sequence[Hit]) -> list[tuple[int, int]]:
    """Return the half-open parts to show, in order, apart from each other; the last ends it."""
    length = len(response)
    if length <= WHOLE_CHARS:
        return [(0, length)]
    wanted = [(0, CONTEXT_CHARS), (length - CONTEXT_CHARS, length)]
    wanted += [(hit.start - CONTEXT_CHARS, hit.end + CONTEXT_CHARS) for hit in hits]
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


def _pieces(response: str, hits: Sequence[Hit], start: int, end: int) -> tuple[Piece, ...]:
    inside = [hit for hit in hits if hit.start < end and start < hit.end]
    edges = {start, end}
    for hit in inside:
        edges |= {max(hit.start, start), min(hit.end, end)}
    pieces = []
    for left, right in pairwise(sorted(edges)):
        around = [hit for hit in inside if hit.start <= left and right <= hit.end]
        innermost = min(around, key=lambda hit: (hit.end - hit.start, hit.node), default=None)
        ends = tuple(sorted(hit.node for hit in around if hit.end == right))
        pieces.append(Piece(response[left:right], 0 if innermost is None else innermost.node, ends))
    return tuple(pieces)
