"""What a chart is to the page: a picture, what it says, its legend and its figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup

from consensusbench.report.table import Table


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend.

    Attributes:
        name: what the reader is told.
        look: class of the style sheet that the marks carry.
        shape: ``bar``, ``line`` or ``dot``.
    """

    name: str
    look: str
    shape: str = "bar"


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart.

    Attributes:
        name: part of the element ids, unique among the charts of a scope.
        title: heading.
        about: how to read it, one or two sentences.
        svg: the picture; None where there is nothing to draw, and ``empty`` says why.
        keys: the legend.
        figures: what was drawn, as numbers.
        empty: one sentence in place of the picture.
    """

    name: str
    title: str
    about: str
    svg: Markup | None = None
    keys: tuple[Key, ...] = ()
    figures: Table | None = None
    empty: str = ""
    notes: tuple[str, ...] = field(default=())
