"""Nodes looked for in rollouts of other problems."""

from __future__ import annotations

import pytest

from consensusbench.quality import probes
from consensusbench.quality.probes import SurveyedRollout, hit_rates, match_unrelated

SAMPLE = [
    SurveyedRollout("p1", "so 2*3=6"),
    SurveyedRollout("p2", "here 7+8=15, and 2*3=6"),
    SurveyedRollout("p3", "nothing at all"),
]
PROBLEMS = [
    ("p1", [["2*3=6", "6=2*3"], ["9*9=81"]]),
    ("p2", [["7+8=15"]]),
    ("p4", [["2*3=6"], ["7+8=15"], ["x=1"]]),
]


@pytest.mark.parametrize("pool_nodes", [1, 3, 1024])
def test_own_rollouts_are_left_out(pool_nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "POOL_NODES", pool_nodes)
    found = match_unrelated(PROBLEMS, SAMPLE, threads=1)
    # p1 sees the rollouts of p2 and p3, of which one hits its first node.
    assert [len(hits) for hits in found] == [2, 2, 3]
    rates = [hit_rates(hits).tolist() for hits in found]
    assert rates == [[0.5, 0.0], [0.0], pytest.approx([2 / 3, 1 / 3, 0.0])]


def test_without_rollouts_every_rate_is_0() -> None:
    [hits] = match_unrelated(PROBLEMS[:1], [], threads=1)
    assert (len(hits), hit_rates(hits).tolist()) == (0, [0.0, 0.0])
