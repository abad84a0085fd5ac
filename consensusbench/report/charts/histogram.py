"""Two distributions side by side: right rollouts filled, wrong ones outlined."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from consensusbench.report.charts.axes import BOTTOM, Axis, Frame, log_axis, percent_axis
from consensusbench.report.charts.chart import Chart, Key
from consensusbench.report.charts.svg import element
from consensusbench.report.sides import COMPARED, Side
from consensusbench.report.table import Column, Table, count, percent, text

# Of a logarithmic axis: as fine as some hundred rollouts can fill.
BINS_A_DECADE = 5


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of the axis from ``low`` to ``high``, drawn there, and what it is called."""

    low: float
    high: float
    name: str


def log_bins(values: Sequence[float], unit: str) -> list[Bin]:
    """Return bins of equal width on a logarithmic axis that hold all values (above 0)."""
    first = math.floor(math.log10(min(values)) * BINS_A_DECADE + 1e-9)
    last = math.floor(math.log10(max(values)) * BINS_A_DECADE + 1e-9) + 1
    edges = [10 ** (i / BINS_A_DECADE) for i in range(first, last + 1)]
    return [
        Bin(low, high, f"{_short(low)} to {_short(high)} {unit}") for low, high in pairwise(edges)
    ]


def counted(values: Sequence[float], bins: Sequence[Bin]) -> list[int]:
    """Return how many values fall into each bin; the outermost take what lies beyond them."""
    counts = [0] * len(bins)
    edges = [b.low for b in bins]
    for value in values:
        counts[max(0, bisect_right(edges, value) - 1)] += 1
    return counts


def log_histogram(
    name: str,
    title: str,
    about: str,
    unit: str,
    values: Mapping[Side, Sequence[float]],
    empty: str,
) -> Chart:
    """Return the distributions of values that spread over orders of magnitude.

    Args:
        name: the chart's name.
        title: its heading.
        about: how to read it.
        unit: of the values, in plural.
        values: of each side, all above 0.
        empty: one sentence where there are none.
    """
    known = [value for side in COMPARED for value in values[side]]
    if not known:
        return Chart(name, title, about, empty=empty)
    bins = log_bins(known, unit)
    axis = log_axis(unit, bins[0].low, bins[-1].high)
    return histogram(name, title, about, axis, bins, values)


def histogram(
    name: str,
    title: str,
    about: str,
    axis: Axis,
    bins: Sequence[Bin],
    values: Mapping[Side, Sequence[float]],
) -> Chart:
    """Return the share of each side's values in every bin, as bars and as a table."""
    counts = {side: counted(values[side], bins) for side in COMPARED}
    shares = {side: _shares(counts[side]) for side in COMPARED}
    frame = Frame(axis, percent_axis("share of the rollouts", max(max(shares[s]) for s in shares)))
    bars = [
        _bar(frame, each, side, shares[side][at], counts[side][at])
        for side in COMPARED
        for at, each in enumerate(bins)
        if counts[side][at]
    ]
    keys = tuple(
        Key(f"answer {side.value} ({len(values[side]):,})", side.value) for side in COMPARED
    )
    return Chart(name, title, about, frame.draw(title, bars), keys, _table(title, bins, counts))


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts)
    return [n / total if total else 0.0 for n in counts]


def _bar(frame: Frame, each: Bin, side: Side, share: float, n: int) -> Markup:
    left, top = frame.at(each.low, share)
    right, _ = frame.at(each.high, share)
    width = (right - left) / 2 - 1.5
    return element(
        "rect",
        class_=f"bar {side.value}",
        x=left + 1 if side is Side.RIGHT else left + 1.5 + width,
        y=top,
        width=width,
        height=BOTTOM - top,
        data_tip=f"{each.name}: {100 * share:.1f} % of the rollouts whose answer is "
        f"{side.value} ({n:,})",
    )


def _table(title: str, bins: Sequence[Bin], counts: Mapping[Side, Sequence[int]]) -> Table:
    shares = {side: _shares(counts[side]) for side in COMPARED}
    rows = tuple(
        (
            text(each.name),
            *(
                cell
                for side in COMPARED
                for cell in (count(counts[side][at]), percent(shares[side][at]))
            ),
        )
        for at, each in enumerate(bins)
    )
    columns = (
        Column("bin", numeric=False),
        *(Column(name) for side in COMPARED for name in (side.value, f"% of {side.value}")),
    )
    return Table(title, columns, rows)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
