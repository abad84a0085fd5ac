"""The table of problems: accuracy, coverage and the rate at which each node is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from consensusbench.report.charts.svg import element
from consensusbench.report.page import Section
from consensusbench.report.problems import ProblemSummary
from consensusbench.report.table import Cell, Column, Table, count, percent, text

# A row takes about a kilobyte of the page.
MAX_ROWS = 700

_HEIGHT, _BAR, _STEP = 22.0, 9.0, 12.0

_COLUMNS = (
    Column("problem", numeric=False),
    Column("source", numeric=False),
    Column("difficulty", numeric=False),
    Column("rollouts"),
    Column("Acc, %"),
    Column("NCR, %"),
    Column("NCR right, %", hint="mean NCR of the rollouts whose answer is right"),
    Column("NCR wrong, %", hint="mean NCR of the rollouts whose answer is wrong"),
    Column("nodes"),
    Column("each node reached", numeric=False, hint="share of the rollouts that reached it"),
)


def problem_section(problems: Sequence[ProblemSummary], anchors: Mapping[str, str]) -> Section:
    """Return the table, the problems in which Acc and NCR disagree most first.

    Args:
        problems: those with rollouts.
        anchors: for a problem id the element id of a rollout in the page.
    """
    ordered = sorted(problems, key=lambda p: (-p.surprise, p.problem_id))[:MAX_ROWS]
    notes = (
        (f"The {len(ordered):,} of {len(problems):,} problems in which Acc and NCR disagree most.",)
        if len(ordered) < len(problems)
        else ()
    )
    rows = tuple(_row(problem, anchors.get(problem.problem_id, "")) for problem in ordered)
    return Section(
        "problems",
        "Problems",
        (
            "Sorted by how far Acc and NCR disagree; the headings sort otherwise. Bars: how many "
            "of the rollouts reached each node, in node order. A link leads to a rollout below.",
        ),
        tables=(Table("Problems", _COLUMNS, rows, sortable=True).without_empty_columns(),),
        notes=notes,
    )


def _row(problem: ProblemSummary, anchor: str) -> tuple[Cell, ...]:
    return (
        text(problem.problem_id, f"#{anchor}" if anchor else ""),
        text(problem.data_source),
        text(problem.difficulty),
        count(problem.rollouts),
        percent(problem.acc),
        percent(problem.ncr),
        percent(problem.ncr_right),
        percent(problem.ncr_wrong),
        count(len(problem.node_rates)),
        _rates(problem),
    )


def _rates(problem: ProblemSummary) -> Cell:
    """Return one bar a node; it sorts by the node that is reached least."""
    rates = problem.node_rates
    if not rates:
        return Cell("no nodes")
    bars = [_bar(problem, at, rate) for at, rate in enumerate(rates)]
    said = ", ".join(f"{100 * rate:.0f} %" for rate in rates)
    width = len(rates) * _STEP
    picture = element(
        "svg",
        *bars,
        class_="rates",
        viewBox=f"0 0 {width:g} {_HEIGHT:g}",
        role="img",
        aria_label=f"nodes reached: {said}",
    )
    return Cell("", min(rates), picture=picture)


def _bar(problem: ProblemSummary, at: int, rate: float) -> Markup:
    label = problem.labels[at] if at < len(problem.labels) else ""
    final = ", final answer" if at < len(problem.is_final) and problem.is_final[at] else ""
    x, height = at * _STEP, rate * _HEIGHT
    back = element("rect", class_="rate-back", x=x, y=0.0, width=_BAR, height=_HEIGHT)
    bar = element("rect", class_="rate", x=x, y=_HEIGHT - height, width=_BAR, height=height)
    tip = f"node {at + 1} ({label[:60]}{final}): {100 * rate:.0f} %"
    return element("g", back, bar, data_tip=tip)
