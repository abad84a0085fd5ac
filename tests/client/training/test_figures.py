"""Figures of steps, and the warning when NCR rises without Acc."""

from __future__ import annotations

import pytest

from consensuspr.client.training import StepWatch
from consensuspr.client.training.figures import WATCHED_STEPS

N = WATCHED_STEPS


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
