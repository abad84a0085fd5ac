"""Shares of a whole: one bar for each group, cut into its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from consensusbench.report.charts.axes import LEFT, RIGHT, TOP, WIDTH
from consensusbench.report.charts.chart import Chart, Key
from consensusbench.report.charts.svg import element

_ROW, _BAR, _NAME = 44.0, 18.0, 14.0

# Narrower segments carry no letter; their tips and the tables tell what they are.
_LETTER_WIDTH = 13.0


@dataclass(frozen=True, slots=True)
class Part:
    """A class that a whole is made of: its name, its letter, its class of the style sheet."""

    name: str
    letter: str
    look: str


def share_bars(
    name: str,
    title: str,
    about: str,
    parts: Sequence[Part],
    groups: Sequence[tuple[str, Sequence[int]]],
) -> Chart:
    """Return one bar for each group, cut into the shares of its parts.

    Args:
        name: the chart's name.
        title: its heading.
        about: how to read it.
        parts: what a bar is cut into.
        groups: name of each group and the count of each part.
    """
    marks: list[Markup] = []
    for row, (group, counts) in enumerate(groups):
        marks += _bar(TOP + row * _ROW, group, parts, counts)
    svg = element(
        "svg",
        *marks,
        viewBox=f"0 0 {WIDTH:g} {TOP + len(groups) * _ROW:g}",
        role="img",
        aria_label=title,
    )
    keys = tuple(Key(f"{part.letter}: {part.name}", f"part {part.look}") for part in parts)
    return Chart(name, title, about, svg, keys)


def _bar(top: float, group: str, parts: Sequence[Part], counts: Sequence[int]) -> list[Markup]:
    total = sum(counts)
    left = LEFT - 50.0
    marks = [element("text", f"{group} ({total:,})", x=left, y=top + _NAME - 3)]
    for part, number in zip(parts, counts, strict=True):
        if not number:
            continue
        width = (RIGHT + 20.0 - LEFT + 50.0) * number / total
        tip = f"{group}: {100 * number / total:.1f} % {part.name} ({number:,})"
        pieces = [
            element(
                "rect",
                class_=f"bar part {part.look}",
                x=left,
                y=top + _NAME,
                width=width,
                height=_BAR,
            )
        ]
        if width >= _LETTER_WIDTH:
            middle = left + width / 2
            pieces.append(
                element("text", part.letter, class_="letter", x=middle, y=top + _NAME + 13)
            )
        marks.append(element("g", *pieces, data_tip=tip))
        left += width
    return marks
