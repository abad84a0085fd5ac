"""A response with its node hits marked, as text for a terminal.

Each node has a colour and a number; the number stays where there is no colour.  Hits may
overlap (``5*2=10`` and ``10``): the shorter hit's colour is on top, and every hit carries
its number at both ends where marks are needed.  Only the neighbourhood of hits is shown of
a long response unless all of it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

from consensuspr.cli.console import printable

# Colours of nodes in turn, all from the 16 that a terminal theme defines.
_COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")

# A response up to this long is shown whole; of a longer one this much around each hit.
WHOLE_CHARS = 4000
CONTEXT_CHARS = 240

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, slots=True)
class Mark:
    """One hit: code points ``[start, end)`` of the response, and the node's number from 1."""

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True)
class Marker:
    """How marks are written.

    Attributes:
        brackets: opening and closing sign around each hit; empty where colour does it.
        subscript: write node numbers as subscripts, which needs a Unicode terminal.
    """

    brackets: tuple[str, str] = ("", "")
    subscript: bool = True

    def label(self, number: int) -> str:
        """Return the number of a node as it stands beside a hit."""
        return str(number).translate(_SUBSCRIPTS) if self.subscript else f"_{number}"


def choose_marker(*, color: bool, encoding: str) -> Marker:
    """Return the marker for an output with or without colour and of this encoding."""
    wide = encoding.lower().startswith("utf")
    if color:
        return Marker(subscript=wide)
    return Marker(brackets=("⟦", "⟧") if wide else ("[[", "]]"), subscript=wide)


def node_style(number: int) -> str:
    """Return the style of a node's hits; neighbours in number differ."""
    round_again = (number - 1) // len(_COLORS) % 2
    return f"bold reverse {_color(number)}" + " underline" * round_again


def mark_response(
    response: str, marks: Sequence[Mark], marker: Marker, *, full: bool = False
) -> Text:
    """Return the response as text with every mark in its node's style.

    Args:
        response: the response as the model wrote it.
        marks: hits inside the response, in any order.
        marker: how marks are written.
        full: show all of a long response.
    """
    text = Text()
    end_of_last = 0
    for start, end in _shown_parts(len(response), marks, full):
        _append_gap(text, start - end_of_last)
        _append_part(text, response, start, end, marks, marker)
        end_of_last = end
    _append_gap(text, len(response) - end_of_last)
    return text


def _shown_parts(length: int, marks: Sequence[Mark], full: bool) -> list[tuple[int, int]]:
    """Return the half-open parts to show, in order and apart from each other."""
    if full or length <= WHOLE_CHARS:
        return [(0, length)]
    # Beginning and end orient the reader: the question's restatement and the answer.
    wanted = [(0, CONTEXT_CHARS), (length - CONTEXT_CHARS, length)]
    wanted += [(mark.start - CONTEXT_CHARS, mark.end + CONTEXT_CHARS) for mark in marks]
    parts: list[tuple[int, int]] = []
    for start, end in sorted(wanted):
        start, end = max(start, 0), min(end, length)
        if parts and start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((start, end))
    return parts


def _append_gap(text: Text, skipped: int) -> None:
    if skipped:
        text.append(f"\n⋯ {skipped:,} characters not shown ⋯\n", style="dim")


def _append_part(
    text: Text, response: str, start: int, end: int, marks: Sequence[Mark], marker: Marker
) -> None:
    inside = [mark for mark in marks if start <= mark.start and mark.end <= end]
    edges = sorted({start, end, *(m.start for m in inside), *(m.end for m in inside)})
    opening, closing = marker.brackets
    for left, right in pairwise(edges):
        if opening:
            for mark in _widest_first(m for m in inside if m.start == left):
                text.append(opening + marker.label(mark.number))
        covering = [m for m in inside if m.start <= left and right <= m.end]
        top = min(covering, key=lambda m: (m.end - m.start, m.number), default=None)
        style = node_style(top.number) if top else None
        text.append(printable(response[left:right]), style=style)
        for mark in reversed(_widest_first(m for m in inside if m.end == right)):
            text.append(marker.label(mark.number) + closing, style=f"bold {_color(mark.number)}")


def _widest_first(marks: Iterable[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda mark: (mark.start - mark.end, mark.number))


def _color(number: int) -> str:
    return _COLORS[(number - 1) % len(_COLORS)]
