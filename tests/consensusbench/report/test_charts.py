"""Charts as pictures: what stands where, and that nothing in them can be markup."""

from __future__ import annotations

import pytest

pytest.importorskip("markupsafe", reason="the extra consensusbench is not installed")

from hypothesis import given
from hypothesis import strategies as st

from consensusbench.report.charts import (
    BOTTOM,
    LEFT,
    MAX_DOTS,
    RIGHT,
    TOP,
    Plot,
    SharePart,
    accuracy_scatter,
    alpha_charts,
    counted,
    length_distribution,
    log_axis,
    log_bins,
    ncr_distribution,
    node_order,
    share_bars,
    text_position,
    tpn_distribution,
)
from consensusbench.report.charts import percent_axis as shares
from consensusbench.report.data import summarize_problems
from consensusbench.report.markup import element, safe
from consensuspr.console import printable
from tests.consensusbench.report.conftest import HOSTILE, Outline, scored

ROLLOUTS = [
    scored(
        f"p{row % 5}",
        acc=float(row % 3 > 0),
        matched=(row % 2 == 0, True, row % 3 > 0),
        spans=((1, 5) if row % 2 == 0 else None, (20, 30), (90, 100) if row % 3 else None),
        num_tokens=10 * (row + 1),
        row=row,
    )
    for row in range(30)
]
CHARTS = {
    chart.name: chart
    for chart in (
        ncr_distribution(ROLLOUTS),
        tpn_distribution(ROLLOUTS),
        length_distribution(ROLLOUTS),
        node_order(ROLLOUTS),
        text_position(ROLLOUTS),
        accuracy_scatter(summarize_problems(ROLLOUTS, {})),
        *alpha_charts(ROLLOUTS),
    )
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_drawn_named_and_inside_its_picture(name: str) -> None:
    chart = CHARTS[name]
    assert chart.svg is not None and not chart.empty
    [(first, head), *rest] = Outline(chart.svg).elements
    assert (first, head["role"], head["aria-label"]) == ("svg", "img", chart.title)
    marks = [attributes for _, attributes in rest if "data-tip" in attributes]
    assert marks
    for mark in marks:
        for key, low, high in (("cx", LEFT, RIGHT), ("cy", TOP, BOTTOM), ("y", TOP, BOTTOM)):
            if mark.get(key) is not None:
                assert low - 6 <= float(str(mark[key])) <= high + 6
    assert not any(name.startswith("on") or name == "style" for _, a in rest for name in a)


@pytest.mark.parametrize("name", sorted(CHARTS.keys() - {"scatter"}))
def test_a_chart_brings_its_figures_as_a_table(name: str) -> None:
    table = CHARTS[name].figures
    assert table is not None and table.rows
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_bars_are_the_shares_of_their_side() -> None:
    chart = ncr_distribution(
        [scored(acc=1.0, matched=(True, True))] * 3
        + [scored(acc=1.0, matched=(False, False))]
        + [scored(acc=0.0, matched=(True, False))] * 2
    )
    assert chart.svg is not None
    tips = [a["data-tip"] for _, a in Outline(chart.svg).elements if "data-tip" in a]
    assert tips == [
        "NCR 0 %: 25.0 % of the rollouts whose answer is right (1)",
        "NCR 100 %: 75.0 % of the rollouts whose answer is right (3)",
        "NCR 50 %: 100.0 % of the rollouts whose answer is wrong (2)",
    ]
    assert [key.name for key in chart.keys] == ["answer right (4)", "answer wrong (2)"]


def test_a_bar_is_cut_into_its_shares() -> None:
    parts = (
        SharePart("good", "G", "n1"),
        SharePart("bad", "B", "n2"),
        SharePart("rare", "R", "n3"),
    )
    chart = share_bars("x", "Shares", "", parts, [("m <1>", [60, 39, 1]), ("other", [0, 5, 0])])
    assert chart.svg is not None
    found = Outline(chart.svg)
    tips = [a["data-tip"] for tag, a in found.elements if tag == "g"]
    assert tips == [
        "m <1>: 60.0 % good (60)",
        "m <1>: 39.0 % bad (39)",
        "m <1>: 1.0 % rare (1)",
        "other: 100.0 % bad (5)",
    ]
    widths = [float(str(a["width"])) for tag, a in found.elements if tag == "rect"]
    assert widths[0] / sum(widths[:3]) == pytest.approx(0.6, abs=0.001)
    assert widths[3] == pytest.approx(sum(widths[:3]), abs=0.05)
    assert found.text == "m <1> (100)GBother (5)B"  # too narrow a part carries no letter


def test_without_data_a_chart_says_why() -> None:
    unknown = [scored(acc=None)]
    for chart in (
        ncr_distribution(unknown),
        tpn_distribution(unknown),
        node_order(unknown),
        text_position(unknown),
        accuracy_scatter(summarize_problems(unknown, {})),
        *alpha_charts(unknown),
    ):
        assert chart.svg is None and chart.empty.endswith(".")


def test_a_scatter_of_many_problems_is_bounded_and_says_so() -> None:
    many = [scored(f"p{at}", matched=(at % 2 == 0,), row=at) for at in range(MAX_DOTS + 10)]
    chart = accuracy_scatter(summarize_problems(many, {}))
    assert chart.svg is not None and chart.svg.count("<circle") == MAX_DOTS
    assert chart.notes == (f"{MAX_DOTS:,} of {MAX_DOTS + 10:,} problems are drawn, chosen evenly.",)


@given(st.lists(st.floats(0.01, 1e9), min_size=1, max_size=30))
def test_every_value_is_in_its_bin_and_on_the_axis(values: list[float]) -> None:
    bins = log_bins(values, "tokens")
    counts = counted(values, bins)
    assert sum(counts) == len(values)
    for value in values:
        at = next(i for i, b in enumerate(bins) if value < b.high * (1 + 1e-9))
        assert bins[at].low <= value * (1 + 1e-9)
    axis = log_axis("tokens", bins[0].low, bins[-1].high)
    assert axis.share(bins[0].low) >= -1e-9 and axis.share(bins[-1].high) <= 1 + 1e-9
    assert 1 <= len(axis.ticks) <= 14


@pytest.mark.parametrize(("high", "end"), [(0.03, 0.03), (0.37, 0.4), (0.5, 0.5), (1.0, 1.0)])
def test_a_percent_axis_ends_at_a_round_value(high: float, end: float) -> None:
    axis = shares("share", high)
    assert axis.high == pytest.approx(end) and axis.ticks[-1][0] == axis.high
    assert Plot(axis, axis).at(0.0, 0.0) == (LEFT, BOTTOM)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text: str) -> None:
    found = Outline(element("text", text, data_tip=text))
    assert [tag for tag, _ in found.elements] == ["text"]
    assert found.elements[0][1]["data-tip"] == found.text == printable(text)


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    found = Outline(element("p", text, title=text))
    assert [tag for tag, _ in found.elements] == ["p"]
    assert found.elements[0][1]["title"] == found.text == printable(text)
    str(safe(text)).encode("utf-8")  # not even a lone surrogate is left
