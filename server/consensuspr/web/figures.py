"""Charts, tables and reports as plain values: what the page draws, and nobody writes markup for.

Everything here becomes JSON by :func:`document`.  A number that does not exist is None, never 0 or
NaN.  The page draws a chart with its one chart library, and shows beside it the same figures as a
table: ``table`` where the chart brings one, else one made of its series.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

ChartKind: TypeAlias = Literal["line", "scatter", "bars", "shares"]
Number: TypeAlias = float | None


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How a number is shown: times ``scale``, with so many decimals, then its unit.

    Attributes:
        decimals: None: as many as it takes.
    """

    scale: float = 1.0
    decimals: int | None = None
    unit: str = ""


PERCENT = NumberFormat(100.0, 1, " %")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis; its ends and marks are the drawer's choice where they are None.

    Attributes:
        log: logarithmic; what is not above 0 is a gap.
        ticks: values that are marked, with their texts.
    """

    title: str
    format: NumberFormat = NumberFormat()
    log: bool = False
    low: float | None = None
    high: float | None = None
    ticks: Sequence[tuple[float, str]] | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One line, set of dots or bars, or part of shares.

    Attributes:
        x: (n,) ascending for a line; of bars the ends of the bins, (n + 1,); of shares empty.
        y: (n,) values; None is a gap.  Of shares the counts, one a group.
        look: ``right``, ``wrong``, ``third``, ``plain`` or the name of a class, each of which has
            its colour; empty: the colour of its place.
        tips: (n,) what a point says of itself; None: its figures.
        hrefs: (n,) where a point leads to, inside the page.
        low, high: (n,) a band around a line.
        hollow: points that are drawn hollow, by place.
        dashed: ``dashed`` or ``dotted``; empty: drawn through.
        letter: stands in its parts of shares that are wide enough.
    """

    name: str
    x: Sequence[float]
    y: Sequence[Number]
    look: str = ""
    tips: Sequence[str] | None = None
    hrefs: Sequence[str] | None = None
    low: Sequence[Number] | None = None
    high: Sequence[Number] | None = None
    hollow: Sequence[int] = ()
    dashed: str = ""
    letter: str = ""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; ``hint`` says what its heading means."""

    heading: str
    numeric: bool = True
    format: NumberFormat = NumberFormat()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A value with more than itself to show.

    Attributes:
        note: stands small beside it.
        href: where it leads to, inside the page.
        bars: shares in [0, 1], drawn as small bars in place of the value, which still sorts.
        labels: (len(bars),) what each bar is.
    """

    value: float | str | None
    note: str = ""
    href: str = ""
    bars: Sequence[float] = ()
    labels: Sequence[str] = ()


Value: TypeAlias = float | str | TableCell | None


@dataclass(frozen=True, slots=True)
class DataTable:
    """Rows in groups; ``bold`` is the group of totals, None for none."""

    caption: str
    columns: Sequence[TableColumn]
    sections: Sequence[Sequence[Sequence[Value]]]
    bold: int | None = None
    sortable: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart.

    Attributes:
        name: of the chart among those of its scope, for links.
        about: how to read it, a sentence or two.
        bins: names of the bins of bars.
        groups: names of the bars of shares.
        diagonal: whether the line y = x is drawn.
        empty: why there is nothing to draw; then it has no series.
    """

    kind: ChartKind
    name: str
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series] = ()
    about: str = ""
    notes: Sequence[str] = ()
    bins: Sequence[str] = ()
    groups: Sequence[str] = ()
    diagonal: bool = False
    table: DataTable | None = None
    empty: str = ""


@dataclass(frozen=True, slots=True)
class ChartScope:
    """The same charts for all rollouts, or for those of one model; a note is a line below them."""

    name: str
    title: str
    charts: Sequence[Chart]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: charts of one scope at a time, then tables, then small print."""

    name: str
    title: str
    about: Sequence[str] = ()
    scopes: Sequence[ChartScope] = ()
    tables: Sequence[DataTable] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """Sentences that stand out, good or bad."""

    look: Literal["good", "bad"]
    heading: str
    sentences: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PageReport:
    """What a report says.

    Attributes:
        about: what it is a report of, a sentence.
        facts: name and value of all that its figures depend on.
        warnings: what makes the figures mean less than they seem to, one sentence each.
        figures: the few numbers that matter most, each as it is shown, and what it is.
    """

    title: str
    about: str = ""
    facts: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    boxes: Sequence[Box] = ()
    figures: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    footer: Sequence[str] = ()


def document(value: Any) -> Any:
    """Return a value ready for ``json.dumps``: fields by name, no NaN and no infinity."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: document(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): document(inner) for key, inner in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Sequence):
        return [document(inner) for inner in value]
    raise TypeError(f"no JSON is defined for {type(value).__name__}")
