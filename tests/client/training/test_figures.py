"""Figures of steps, and the warning when NCR rises without Acc."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from consensuspr.client.training import ScoredSample, StepWatch, figures
from consensuspr.client.training.figures import MAX_SOURCES, WATCHED_STEPS
from consensuspr.scoring.types import Score, Status

N = WATCHED_STEPS


def sample(acc: float | None, ncr: float | None, reward: float, penalty: float = 0.0) -> Any:
    nodes = 0 if ncr is None else 4
    guard = None if ncr is None else 1.0 if ncr >= 0.5 else 0.5
    status = Status.OK if nodes else Status.NO_NODES
    score = Score(status, reward, acc, ncr, nodes, 2 if nodes else 0, ncr_raw=ncr, guard=guard,
                  channel_numbers=bytes([1, 2, 0, 0]) if nodes else b"")  # fmt: skip
    return ScoredSample(reward, score, 0, "server").fields(penalty)


def test_figures_by_answer_by_group_and_by_source() -> None:
    samples = [
        sample(1.0, 1.0, 1.0), sample(0.0, 0.5, 0.25),
        sample(0.0, 0.25, 0.125), sample(0.0, 0.25, 0.125),
        sample(1.0, None, 1.0), sample(1.0, 0.5, 1.0, -0.5),
        {"status": "UNKNOWN_PROBLEM"}, sample(None, 0.75, 0.0),
    ]  # fmt: skip
    found = figures(samples, [*"aabb", None, None, "", "c/d"], [1, 1, 2, 2, 3, 3, 4, 4])
    assert found == {
        "consensuspr/acc": 0.5, "consensuspr/ncr": 3.25 / 6, "consensuspr/ncr_raw": 3.25 / 6,
        "consensuspr/ncr_of_right": 0.75, "consensuspr/ncr_of_wrong": 1 / 3,
        "consensuspr/equal_groups": 1 / 3,  # of the last group one sample was lost
        "consensuspr/unanswered": 0.0, "consensuspr/with_nodes": 6 / 8,
        "consensuspr/guarded": 2 / 6, "consensuspr/by_pattern": 0.5,
        "consensuspr/by_statement": 0.5, "consensuspr/by_code": 0.0, "consensuspr/by_equation": 0.0,
        "consensuspr/status/NO_NODES": 1 / 8, "consensuspr/status/UNKNOWN_PROBLEM": 1 / 8,
        "consensuspr/source/a/acc": 0.5, "consensuspr/source/a/ncr": 0.75,
        "consensuspr/source/a/ncr_of_right": 1.0, "consensuspr/source/a/ncr_of_wrong": 0.5,
        "consensuspr/source/a/equal_groups": 0.0,
        "consensuspr/source/b/acc": 0.0, "consensuspr/source/b/ncr": 0.25,
        "consensuspr/source/b/ncr_of_wrong": 0.25, "consensuspr/source/b/equal_groups": 1.0,
        "consensuspr/source/c/d/ncr": 0.75,
    }  # fmt: skip
    assert not any("equal_groups" in name for name in figures(samples, [None] * 8))
    assert figures([], []) == {}


def test_no_more_than_32_sources_have_names_and_they_keep_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[figures.__module__], "_named_sources", set())
    right, wrong = sample(1.0, None, 1.0), sample(0.0, None, 0.0)
    rare = [f"s{at:02}" for at in range(40)]
    steps = [([*rare, "frequent", "frequent"], wrong), (["new", "s30", "s39"], right)]
    first, second = (
        {
            name.split("/")[2]: value
            for name, value in figures([one] * len(sources), sources).items()
            if "/source/" in name
        }
        for sources, one in steps
    )
    assert first == dict.fromkeys(["frequent", *rare[: MAX_SOURCES - 1], "other"], 0.0)
    assert second == {"s30": 1.0, "other": 1.0}


def rise(start: float, end: float, steps: int) -> list[float]:
    return [start + (end - start) * at / (steps - 1) for at in range(steps)]


@pytest.mark.parametrize(
    ("ncr", "acc", "warned_at"),
    [
        (rise(0.2, 0.6, 3 * N), [0.5] * 3 * N, 2 * N),
        (rise(0.2, 0.6, 3 * N), rise(0.5, 0.4, 3 * N), 2 * N),
        ([0.3] * 2 * N + [0.6] * N, [0.5] * 3 * N, 2 * N + 7),
        (rise(0.2, 0.6, 3 * N), rise(0.5, 0.6, 3 * N), None),
        (rise(0.2, 0.3, 3 * N), [0.5] * 3 * N, None),
        (rise(0.6, 0.2, 3 * N), [0.5] * 3 * N, None),
        (rise(0.0, 1.0, 2 * N - 1), [0.5] * (2 * N - 1), None),
        # Steps without a sample that has nodes have no NCR.
        ([None] * N + rise(0.0, 1.0, 2 * N - 1), [0.5] * (3 * N - 1), None),
    ],
)
def test_ncr_that_rises_without_acc_is_warned_of_once(
    ncr: list[float | None], acc: list[float], warned_at: int | None
) -> None:
    watch, warnings = StepWatch(), {}
    for step, (one, other) in enumerate(zip(ncr, acc, strict=True), 1):
        known = {"consensuspr/acc": other}
        if one is not None:
            known["consensuspr/ncr"] = one
        if (warning := watch.add(known)) is not None:
            warnings[step] = warning
    assert list(warnings) == ([] if warned_at is None else [warned_at])


def test_the_warning_has_the_means() -> None:
    watch = StepWatch()
    message = [
        watch.add({"consensuspr/ncr": 0.25 if step < N else 0.5, "consensuspr/acc": 0.75})
        for step in range(2 * N)
    ]
    assert "rose from 0.25 to 0.50 over the last 40 steps" in str(message[-1])
    assert "mean Acc did not (0.75, then 0.75; means of 20 steps)" in str(message[-1])
