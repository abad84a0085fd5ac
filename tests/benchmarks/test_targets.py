"""How figures are judged."""

from __future__ import annotations

import pytest

from benchmarks.harness.results import TARGETS, Target, Verdict

HIGHER = Target("speed", 30, 60, "x", True)
LOWER = Target("cost", 1.3, 1.1, "x", False)
ONLY_AIM = Target("overlap", None, 1.0, "x", False)
ONLY_BOUND = Target("p99", 3, None, "x", False)


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        (HIGHER, 61, Verdict.AIM_MET),
        (HIGHER, 60, Verdict.AIM_MET),
        (HIGHER, 59.9, Verdict.MET),
        (HIGHER, 30, Verdict.MET),
        (HIGHER, 29.9, Verdict.MISSED),
        (LOWER, 1.05, Verdict.AIM_MET),
        (LOWER, 1.1, Verdict.AIM_MET),
        (LOWER, 1.2, Verdict.MET),
        (LOWER, 1.3, Verdict.MET),
        (LOWER, 1.31, Verdict.MISSED),
        (ONLY_AIM, 0.9, Verdict.AIM_MET),
        (ONLY_AIM, 1.01, Verdict.MISSED),
        (ONLY_BOUND, 3, Verdict.MET),
        (ONLY_BOUND, 0.5, Verdict.MET),
        (ONLY_BOUND, 3.5, Verdict.MISSED),
        (HIGHER, None, Verdict.NOT_MEASURED),
    ],
)
def test_a_figure_is_judged_on_its_better_side(
    target: Target, value: float | None, verdict: Verdict
) -> None:
    assert target.verdict(value) is verdict


@pytest.mark.parametrize(
    ("target", "bound"),
    [
        (HIGHER, "≥ 30x"),
        (LOWER, "≤ 1.3x"),
        (ONLY_AIM, "–"),
        (Target("bytes", 2048, None, "bytes", False), "≤ 2,048 bytes"),
        (Target("share", 99.5, 99.9, "%", True), "≥ 99.5%"),
    ],
)
def test_a_bound_is_written_with_sign_and_unit(target: Target, bound: str) -> None:
    assert target.bound(target.at_least) == bound


@pytest.mark.parametrize("key", TARGETS)
def test_an_aim_is_never_easier_than_its_target(key: str) -> None:
    target = TARGETS[key]
    if target.at_least is None or target.aim is None:
        assert target.at_least is not target.aim  # one of the two must be there
    else:
        assert (target.aim > target.at_least) == target.higher_is_better
