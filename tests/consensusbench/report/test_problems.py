"""Rollouts summed up by problem."""

from __future__ import annotations

import pytest

from consensusbench.report.data import summarize_problems
from consensuspr.scoring.types import Status
from tests.consensusbench.report.conftest import scored


def test_a_problem_is_the_mean_of_what_is_known() -> None:
    [one, other] = summarize_problems(
        [
            scored("p1", acc=1.0, matched=(True, True)),
            scored("p1", acc=0.0, matched=(True, False)),
            scored("p2", acc=None, matched=(), status=Status.UNKNOWN_PROBLEM),
            scored("p1", acc=0.0, matched=(False, False)),
            scored("p1", acc=None, matched=(), status=Status.OVERSIZE),
        ],
        {},
    )
    assert (one.problem_id, one.rollouts) == ("p1", 4)
    assert one.acc == pytest.approx(1 / 3)
    assert one.ncr == 0.5
    assert (one.ncr_right, one.ncr_wrong) == (1.0, 0.25)
    assert one.node_rates == pytest.approx((2 / 3, 1 / 3))
    assert one.surprise == pytest.approx(1 / 6)
    assert (other.acc, other.ncr, other.node_rates, other.surprise) == (None, None, (), -1.0)
