"""Position curves against figures computed by hand."""

from __future__ import annotations

import pytest

from consensusbench.report.data import coverage_by_position, reached_by_order
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
