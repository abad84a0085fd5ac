"""What the charts of the report are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.report.data import (
    RewardStudy,
    alpha_sweep,
    coverage_by_position,
    fixed_rewards,
    reached_by_order,
    summarize_problems,
)
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Status
from tests.consensusbench.report.conftest import scored


def test_nodes_by_their_order() -> None:
    curve = reached_by_order(
        [
            scored(matched=(True, True, False, False, False)),  # one node in each fifth
            scored(matched=(True, False)),  # the second and the fourth fifth
        ]
    )
    assert curve.rollouts == 2
    assert [x for x, _ in curve.points] == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    assert [y for _, y in curve.points] == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_no_nodes_is_no_curve() -> None:
    assert reached_by_order([scored()]).points == ()
    assert coverage_by_position([scored(matched=(True,), spans=None)]).points == ()


def test_coverage_grows_where_hits_end_and_ends_at_mean_ncr() -> None:
    rollouts = [
        # hits end after 10 % and at the very end; the third node is missed
        scored(matched=(True, True, False), spans=((0, 10), (90, 100), None), num_chars=100),
        scored(matched=(False,), spans=(None,), num_chars=50),
    ]
    points = dict(coverage_by_position(rollouts, steps=10).points)
    assert points[0.0] == 0.0
    assert points[0.1] == pytest.approx(1 / 6)
    assert points[0.9] == pytest.approx(1 / 6)
    assert points[1.0] == pytest.approx((2 / 3 + 0) / 2)


def test_a_span_that_ends_between_steps_counts_at_the_next() -> None:
    points = coverage_by_position(
        [scored(matched=(True,), spans=((0, 11),), num_chars=100)], steps=10
    ).points
    assert points[1] == (0.1, 0.0)
    assert points[2] == (0.2, 1.0)


def test_a_problem_is_the_mean_of_what_is_known() -> None:
    [one, other] = summarize_problems(
        [
            scored("p1", acc=1.0, matched=(True, True)),
            scored("p1", acc=0.0, matched=(True, False)),
            scored("p2", acc=None, matched=(), status=Status.UNKNOWN_PROBLEM),
            scored("p1", acc=0.0, matched=(False, False)),
            scored("p1", acc=None, matched=(), status=Status.OVERSIZE),
        ]
    )
    assert (one.problem_id, one.rollouts) == ("p1", 4)
    assert one.acc == pytest.approx(1 / 3)
    assert one.ncr == 0.5
    assert (other.acc, other.ncr) == (None, None)


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
    figures = study_of_two_groups().figures("linear", RewardSpec.linear(alpha), alpha)
    assert figures.right == pytest.approx(right)
    assert figures.wrong == pytest.approx(wrong)
    assert figures.gap == pytest.approx(right - wrong)
    assert (figures.signal, figures.misordered) == (signal, misordered)


def test_max_and_outcome() -> None:
    largest, outcome = fixed_rewards(study_of_two_groups())
    # max pays the wrong rollout with all nodes as much as the right one: no difference left
    assert (largest.right, largest.signal, largest.misordered) == (1.0, 0.0, 1.0)
    assert (outcome.right, outcome.wrong) == (1.0, 0.0)
    assert (outcome.signal, outcome.misordered) == (0.5, 0.0)


def test_rollouts_of_different_models_are_no_group() -> None:
    study = RewardStudy([scored(matched=ALL, model="a"), scored(matched=NONE, model="b")])
    assert study.groups == 0
    assert study.figures("x", RewardSpec.linear(0.0)).signal is None


def test_nothing_to_study_is_no_figure() -> None:
    for figures in alpha_sweep(RewardStudy([scored(acc=None)])):
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
    figures = RewardStudy(rollouts).figures("linear", RewardSpec.linear(alpha), alpha)
    assert figures.signal == (sum(differ) / len(differ) if differ else None)
    expected = sum(pairs) / len(pairs) if pairs else None
    assert figures.misordered == (None if expected is None else pytest.approx(expected))
