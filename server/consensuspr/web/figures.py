"""Charts, tables and reports as plain values, which the page draws.

:func:`document` turns them into JSON.  A number that does not exist is None, never 0 or NaN.  The
page shows the figures of each chart as a table beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, TypeAlias

ChartKind: TypeAlias = Literal["line", "scatter", "bars"]
Number: TypeAlias = float | None


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A number is shown times ``scale``, with ``decimals`` (None: as many as it takes) and unit."""

    scale: float = 1.0
    decimals: int | None = None
    unit: str = ""


PERCENT = NumberFormat(100.0, 1, " %")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis; ends and marks that are None follow from the values.

    Attributes:
        ticks: values that are marked, with their texts.
    """

    title: str
    format: NumberFormat = NumberFormat()
    low: float | None = None
    high: float | None = None
    ticks: Sequence[tuple[float, str]] | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One line, set of dots or set of bars.

    Attributes:
        x: (n,) ascending for a line; of bars empty.
        y: (n,) values; None is a gap.
        look: ``right``, ``wrong``, ``third`` or ``plain``, each of which has its colour; empty: the
            colour of its place.
        tips: (n,) texts of points; None: their figures.
        hrefs: (n,) links of points, inside the page.
        dashed: ``dashed`` or ``dotted``; empty: drawn through.
    """

    name: str
    x: Sequence[float]
    y: Sequence[Number]
    look: str = ""
    tips: Sequence[str] | None = None
    hrefs: Sequence[str] | None = None
    dashed: str = ""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table."""

    heading: str
    numeric: bool = True
    format: NumberFormat = NumberFormat()


@dataclass(frozen=True, slots=True)
class TableCell:
    """A value, and a small note beside it."""

    value: float | str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class DataTable:
    """Rows in groups; ``bold`` is the group of totals, None for none."""

    caption: str
    columns: Sequence[TableColumn]
    sections: Sequence[Sequence[Sequence[TableCell]]]
    bold: int | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart.

    Attributes:
        name: of the chart among those of its scope, for links.
        about: how to read it, a sentence or two.
        bins: names of the bins of bars.
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
    diagonal: bool = False
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: charts, then tables, then small print."""

    name: str
    title: str
    about: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[DataTable] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PageReport:
    """A report.

    Attributes:
        facts: name and value of all that its figures depend on.
        warnings: reasons to doubt its figures, one sentence each.
    """

    title: str
    facts: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    sections: Sequence[Section] = ()
    footer: Sequence[str] = ()


def document(value: Any) -> Any:
    """Return a value ready for ``json.dumps``: fields by name, no NaN and no infinity."""
    if is_dataclass(value):
        return {each.name: document(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [document(inner) for inner in value]
    return value
