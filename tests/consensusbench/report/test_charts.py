"""The report's charts: which figures they show."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.report.charts import (
    MAX_DOTS,
    RewardStudy,
    accuracy_scatter,
    alpha_charts,
    coverage_by_position,
    length_distribution,
    ncr_distribution,
    text_position,
    tpn_distribution,
)
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Status
from consensuspr.web.figures import document
from tests.consensusbench.report.conftest import scored

ROLLOUTS = [
    scored(
        f"p{row % 5}",
        acc=float(row % 3 > 0),
        matched=(row % 2 == 0, True, row % 3 > 0),
        spans=((1, 5) if row % 2 == 0 else None, (20, 30), (90, 100) if row % 3 else None),
        num_tokens=10 * (row + 1),
    )
    for row in range(30)
]
CHARTS = {
    chart.name: chart
    for chart in (
        ncr_distribution(ROLLOUTS),
        tpn_distribution(ROLLOUTS),
        length_distribution(ROLLOUTS),
        text_position(ROLLOUTS),
        accuracy_scatter(ROLLOUTS, str),
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
        text_position(unknown),
        accuracy_scatter(unknown, str),
        *alpha_charts(unknown),
    ):
        assert not chart.series and chart.empty.endswith(".")


def test_a_scatter_of_many_problems_is_bounded_and_says_so() -> None:
    many = [scored(f"p{at}", matched=(at % 2 == 0,)) for at in range(2 * MAX_DOTS)]
    chart = accuracy_scatter(many, "#/problem/{}".format)
    [dots] = chart.series
    assert len(dots.x) == len(dots.y) == MAX_DOTS
    assert dots.hrefs is not None and "#/problem/p8" in dots.hrefs
    assert chart.notes == (f"{MAX_DOTS:,} of {2 * MAX_DOTS:,} problems are drawn, chosen evenly.",)


def test_no_nodes_is_no_curve() -> None:
    assert coverage_by_position([scored(matched=(True,), spans=None)])[0] == []


def test_coverage_grows_where_hits_end_and_ends_at_mean_ncr() -> None:
    rollouts = [
        # hits end after 10 % and at the very end; the third node is missed
        scored(matched=(True, True, False), spans=((0, 10), (90, 100), None), num_chars=100),
        scored(matched=(False,), spans=(None,), num_chars=50),
    ]
    points = dict(coverage_by_position(rollouts, steps=10)[0])
    assert points[0.0] == 0.0
    assert points[0.1] == pytest.approx(1 / 6)
    assert points[0.9] == pytest.approx(1 / 6)
    assert points[1.0] == pytest.approx((2 / 3 + 0) / 2)


def test_a_problem_is_the_mean_of_its_known_values() -> None:
    rollouts = [
        scored("p1", acc=1.0, matched=(True, True)),
        scored("p1", acc=0.0, matched=(True, False)),
        scored("p2", acc=None, matched=(), status=Status.UNKNOWN_PROBLEM),
        scored("p1", acc=0.0, matched=(False, False)),
        scored("p1", acc=None, matched=(), status=Status.OVERSIZE),
    ]
    [dots] = accuracy_scatter(rollouts, str).series
    assert [*dots.x, *dots.y] == pytest.approx([1 / 3, 0.5])
    assert dots.tips is not None and dots.tips[0].endswith(" over 4 rollouts")


HALF, ALL, NONE = (True, False), (True, True), (False, False)


def study_of_two_groups() -> RewardStudy:
    """One group of a right rollout with NCR .5 and a wrong one with NCR 1; one of equals."""
    return RewardStudy(
        [
            scored("p1", acc=1.0, matched=HALF),
            scored("p1", acc=0.0, matched=ALL),
            scored("p2", acc=0.0, matched=NONE),
            scored("p2", acc=0.0, matched=NONE),
            scored("p3", acc=1.0, matched=ALL),  # alone: no group
            scored("p4", acc=None, matched=ALL),  # not judged: left out
        ]
    )


@pytest.mark.parametrize(
    ("alpha", "right", "wrong", "signal", "misordered"),
    [
        # right: NCR .5 and 1; wrong: NCR 1, 0 and 0
        (0.0, 0.75, 1 / 3, 0.5, 1.0),
        (0.25, 0.25 + 0.75 * 0.75, 0.75 / 3, 0.5, 1.0),
        # 1/3 + 2/3 · .5 = 2/3: both get the same, which is no order either
        (1 / 3, 1 / 3 + 2 / 3 * 0.75, 2 / 9, 0.0, 1.0),
        (0.5, 0.875, 1 / 6, 0.5, 0.0),
        (1.0, 1.0, 0.0, 0.5, 0.0),
    ],
)
def test_the_linear_reward(
    alpha: float, right: float, wrong: float, signal: float, misordered: float
) -> None:
    figures = study_of_two_groups().figures(RewardSpec.linear(alpha))
    assert figures.right == pytest.approx(right)
    assert figures.wrong == pytest.approx(wrong)
    assert figures.gap == pytest.approx(right - wrong)
    assert (figures.signal, figures.misordered) == (signal, misordered)


def test_max_and_outcome() -> None:
    study = study_of_two_groups()
    largest, outcome = study.figures(RewardSpec.maximum()), study.figures(RewardSpec.outcome())
    # max pays the wrong rollout with all nodes as much as the right one: no difference left
    assert (largest.right, largest.signal, largest.misordered) == (1.0, 0.0, 1.0)
    assert (outcome.right, outcome.wrong) == (1.0, 0.0)
    assert (outcome.signal, outcome.misordered) == (0.5, 0.0)


def test_rollouts_of_different_models_are_no_group() -> None:
    study = RewardStudy([scored(matched=ALL, model="a"), scored(matched=NONE, model="b")])
    assert study.groups == 0
    assert study.figures(RewardSpec.linear(0.0)).signal is None


def test_nothing_to_study_is_no_figure() -> None:
    figures = RewardStudy([scored(acc=None)]).figures(RewardSpec.linear(0.5))
    assert (figures.right, figures.wrong, figures.gap) == (None, None, None)
    assert (figures.signal, figures.misordered) == (None, None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["p1", "p2", "p3"]), st.booleans(), st.integers(0, 4)),
        max_size=12,
    ),
    st.integers(0, 20),
)
def test_it_agrees_with_looking_at_every_pair(
    rows: list[tuple[str, bool, int]], twentieths: int
) -> None:
    alpha = twentieths / 20
    rollouts = [
        scored(p, acc=float(right), matched=(True,) * hits + (False,) * (4 - hits))
        for p, right, hits in rows
    ]

    def reward(right: bool, hits: int) -> float:
        return alpha * right + (1 - alpha) * hits / 4

    groups: dict[str, list[tuple[bool, float]]] = {}
    for p, right, hits in rows:
        groups.setdefault(p, []).append((right, reward(right, hits)))
    several = [group for group in groups.values() if len(group) > 1]
    differ = [any(abs(r - group[0][1]) > 1e-9 for _, r in group) for group in several]
    pairs = [
        w >= r - 1e-9
        for group in groups.values()
        for is_right, r in group
        for other_right, w in group
        if is_right and not other_right
    ]
    figures = RewardStudy(rollouts).figures(RewardSpec.linear(alpha))
    assert figures.signal == (sum(differ) / len(differ) if differ else None)
    expected = sum(pairs) / len(pairs) if pairs else None
    assert figures.misordered == (None if expected is None else pytest.approx(expected))
