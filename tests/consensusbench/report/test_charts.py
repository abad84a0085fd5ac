"""The report's charts: which figures they show."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.report.charts import (
    MAX_DOTS,
    accuracy_scatter,
    alpha_charts,
    length_distribution,
    ncr_distribution,
    node_order,
    text_position,
    tpn_distribution,
)
from consensusbench.report.data import summarize_problems
from consensuspr.web.figures import document
from tests.consensusbench.report.conftest import scored

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
        accuracy_scatter(summarize_problems(ROLLOUTS), str),
        *alpha_charts(ROLLOUTS),
    )
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_has_figures_for_each_of_its_points(name: str) -> None:
    chart = CHARTS[name]
    assert chart.series and not chart.empty
    for series in chart.series:
        assert len(series.y) == len(chart.bins if chart.kind == "bars" else series.x) > 0
        assert series.tips is None or len(series.tips) == len(series.y)
    json.dumps(document(chart), allow_nan=False)


def test_bars_are_the_shares_of_their_side() -> None:
    chart = ncr_distribution(
        [scored(acc=1.0, matched=(True, True))] * 3
        + [scored(acc=1.0, matched=(False, False))]
        + [scored(acc=0.0, matched=(True, False))] * 2
    )
    right, wrong = chart.series
    assert [right.name, wrong.name] == ["answer right (4)", "answer wrong (2)"]
    assert right.y == [0.25, *[0.0] * 9, 0.75] and wrong.y == [*[0.0] * 5, 1.0, *[0.0] * 5]


def test_without_data_a_chart_says_why() -> None:
    unknown = [scored(acc=None)]
    for chart in (
        ncr_distribution(unknown),
        tpn_distribution(unknown),
        node_order(unknown),
        text_position(unknown),
        accuracy_scatter(summarize_problems(unknown), str),
        *alpha_charts(unknown),
    ):
        assert not chart.series and chart.empty.endswith(".")


def test_a_scatter_of_many_problems_is_bounded_and_says_so() -> None:
    many = [scored(f"p{at}", matched=(at % 2 == 0,), row=at) for at in range(2 * MAX_DOTS)]
    chart = accuracy_scatter(summarize_problems(many), "#/problem/{}".format)
    [dots] = chart.series
    assert len(dots.x) == len(dots.y) == MAX_DOTS
    assert dots.hrefs is not None and "#/problem/p8" in dots.hrefs
    assert chart.notes == (f"{MAX_DOTS:,} of {2 * MAX_DOTS:,} problems are drawn, chosen evenly.",)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30))
def test_every_value_is_in_a_bin(values: list[int]) -> None:
    rollouts = [scored(acc=1.0, matched=(True,), num_tokens=value) for value in values]
    right, _ = tpn_distribution(rollouts).series
    assert sum(share or 0.0 for share in right.y) == pytest.approx(1)
