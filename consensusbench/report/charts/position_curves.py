"""Position curves: which nodes are reached, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from consensusbench.report.charts.axes import Axis, Frame, Line, percent_axis
from consensusbench.report.charts.chart import Chart, Key
from consensusbench.report.positions import Curve, coverage_by_position, reached_by_order
from consensusbench.report.sides import COMPARED, Side, by_side
from consensusbench.report.table import Column, Table, percent

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

_FIFTHS = ("first", "second", "third", "fourth", "last")


def node_order(rollouts: Sequence[ScoredRollout]) -> Chart:
    """Return the share of nodes reached by their place in the problem's order."""
    sides = by_side(rollouts)
    return _chart(
        "order",
        "Nodes reached, by their order",
        "Nodes of all problems by their place in the problem's order, in fifths. Where wrong "
        "rollouts fall behind is where they go astray.",
        "fifth of the problem's nodes",
        {side: reached_by_order(sides[side]) for side in COMPARED},
        tuple(((2 * i + 1) / 10, name) for i, name in enumerate(_FIFTHS)),
        empty="No rollout has nodes.",
    )


def text_position(rollouts: Sequence[ScoredRollout]) -> Chart:
    """Return mean coverage as a function of how much of the response has been read."""
    sides = by_side(rollouts)
    return _chart(
        "position",
        "Coverage along the response",
        "Mean share of the nodes met after reading so much of the response. A step at the very "
        "end is a response that only states results; an early plateau followed by a long tail "
        "is redundant text.",
        "share of the response read",
        {side: coverage_by_position(sides[side]) for side in COMPARED},
        tuple((i / 5, f"{20 * i} %") for i in range(6)),
        empty="No rollout has positions of its hits (spans).",
    )


def _chart(
    name: str,
    title: str,
    about: str,
    x_label: str,
    curves: dict[Side, Curve],
    ticks: tuple[tuple[float, str], ...],
    empty: str,
) -> Chart:
    drawn = {side: curve for side, curve in curves.items() if curve.points}
    if not drawn:
        return Chart(name, title, about, empty=empty)
    frame = Frame(Axis(x_label, 0.0, 1.0, ticks), percent_axis("share of the nodes"))
    lines = [
        mark
        for side, curve in drawn.items()
        for mark in Line(side.value, curve.points, _tip(side)).draw(frame)
    ]
    keys = tuple(
        Key(f"answer {side.value} ({curve.rollouts:,})", side.value, "line")
        for side, curve in drawn.items()
    )
    return Chart(name, title, about, frame.draw(title, lines), keys, _table(title, drawn))


def _tip(side: Side) -> Callable[[float, float], str]:
    return lambda x, y: f"at {100 * x:.0f} %: {100 * y:.1f} % of the nodes, answer {side.value}"


def _table(title: str, curves: dict[Side, Curve]) -> Table:
    places = sorted({x for curve in curves.values() for x, _ in curve.points})
    values = {side: dict(curve.points) for side, curve in curves.items()}
    rows = tuple((percent(x), *(percent(values[side].get(x)) for side in curves)) for x in places)
    return Table(
        title, (Column("position, %"), *(Column(f"{s.value}, % of nodes") for s in curves)), rows
    )
