"""The statistics of examples/study, on cases whose answers are known."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy", reason="scipy is not installed")

from examples.study.analysis import (
    Effect,
    Results,
    accuracy,
    area,
    arms_table,
    holm,
    primary_table,
    sign_flip,
    steps_to,
)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1.0, 2.0, 3.0], 2 / 8),
        ([-1.0, -2.0, -3.0], 2 / 8),
        ([0.1] * 12, 2 / 4096),
        # The eight sums are 6, 4, 2 and 0, each with either sign; four are as far as 4.
        ([3.0, 2.0, -1.0], 4 / 8),
        ([1.0, -1.0], 1.0),
        ([0.0, 0.0, 0.0], 1.0),
        ([5.0], 1.0),
    ],
)
def test_sign_flip_of_known_cases(differences: list[float], p: float) -> None:
    assert sign_flip(differences) == pytest.approx(p)


def test_sign_flip_looks_at_all_ways_to_put_the_signs() -> None:
    differences = [0.021, -0.004, 0.013, 0.008, 0.0305, -0.011, 0.002]
    sums = [
        sum(sign * abs(value) for sign, value in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    observed = abs(sum(differences))
    assert sign_flip(differences) == sum(abs(s) >= observed - 1e-12 for s in sums) / len(sums)


def test_sign_flip_refuses_what_it_is_not_for() -> None:
    for differences in ([], [0.1] * 21):
        with pytest.raises(ValueError, match="takes 1 to 20"):
            sign_flip(differences)


@pytest.mark.parametrize(
    ("given", "corrected"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.5, 0.6, 0.001], [1.0, 1.0, 0.003]),
        ([0.02], [0.02]),
        ([], []),
    ],
)
def test_holm_of_known_cases(given: list[float], corrected: list[float]) -> None:
    assert holm(given) == pytest.approx(corrected)


def test_the_interval_is_student_s() -> None:
    # Mean 3, standard deviation sqrt(2.5), t(0.975, 4) = 2.776445.
    effect = Effect.of([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776445 * math.sqrt(2.5 / 5)
    assert (effect.pairs, effect.mean) == (5, 3.0)
    assert (effect.low, effect.high) == pytest.approx((3 - half, 3 + half), abs=1e-5)
    assert effect.standardised == pytest.approx(3 / math.sqrt(2.5))
    assert math.isnan(Effect.of([1.0]).low)


def _run(arm: str, seed: int, acc: float, curve: list[float] | None = None) -> dict[str, Any]:
    figures = dict.fromkeys(
        ("throughout", "ncr", "ncr_wrong", "stated", "duplicates", "tokens", "code"), 0.5
    )
    return {
        "run": {"arm": arm, "seed": seed},
        "curve": {"step": [0, 20, 40], "acc": curve or [0.0, acc / 2, acc]},
        "final": {"held-out": {"acc": acc, **figures}, "longer": {"acc": acc / 2, **figures}},
    }


def test_area_and_steps_to_a_threshold() -> None:
    run = _run("linear", 0, 0.4, [0.1, 0.2, 0.4])
    assert area(run) == pytest.approx((0.15 + 0.3) / 2)
    assert steps_to(run, 0.3) == pytest.approx(30)
    assert steps_to(run, 0.2) == pytest.approx(20)
    assert steps_to(run, 0.1) == 0
    assert steps_to(run, 0.5) == math.inf


def test_differences_are_of_the_same_seed() -> None:
    runs = [_run("linear", 0, 0.5), _run("linear", 1, 0.4), _run("linear", 2, 0.9)]
    runs += [_run("outcome", 1, 0.1), _run("outcome", 0, 0.3)]
    results = Results(runs)
    assert results.differences("linear", "outcome", accuracy) == pytest.approx([0.2, 0.3])
    # Seeds take turns with the three warm starts.
    assert results.differences("linear", "outcome", accuracy, 1) == pytest.approx([0.3])
    assert results.differences("linear", "outcome", accuracy, 2) == []


SHIFTS = {"linear": 0.0, "outcome": 0.1, "shuffled": 0.2, "random": 0.0, "permuted": 0.05}


def test_the_primary_table_corrects_four_contrasts() -> None:
    runs = [
        _run(arm, seed, 0.5 + seed / 100 - shift)
        for arm, shift in SHIFTS.items()
        for seed in range(12)
    ]
    lines = primary_table(Results(runs), 12).splitlines()
    assert len(lines) == 6
    assert lines[2].startswith("| linear − outcome | 12 | +10.0 |")
    # 2 / 4096 each, and four times it; no difference has p 1.
    assert "| 0.0005 | 0.0020 |" in lines[2]
    assert "| 1.0000 | 1.0000 |" in lines[4]


def test_nothing_is_tested_before_all_runs_are_there() -> None:
    runs = [_run(arm, seed, 0.5 - shift) for arm, shift in SHIFTS.items() for seed in range(12)]
    lines = primary_table(Results(runs[:-1]), 12).splitlines()
    assert lines[2].startswith("| linear − outcome | 12 | +10.0 |")
    assert lines[5].startswith("| linear − permuted | 11 | +5.0 |")
    assert all("| – | – |" in line for line in lines[2:])


def test_the_table_of_arms_has_every_arm_that_ran() -> None:
    runs = [_run(arm, seed, 0.3) for arm in ("outcome", "linear", "max") for seed in range(4)]
    rows = arms_table(Results(runs)).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| outcome", "| linear", "| max"]


def test_pictures_are_the_same_for_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from examples.study.pictures import draw_forest

    runs = [_run(arm, seed, 0.3 + seed / 50) for arm in ("outcome", "linear") for seed in range(3)]
    for name in ("a.svg", "b.svg"):
        draw_forest(Results(runs), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
