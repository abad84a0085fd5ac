"""The statistics of examples/study, on cases whose answers are known."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

pytest.importorskip("scipy", reason="scipy is not installed")

from examples.study import task
from examples.study.analysis import (
    BESIDE,
    Contrast,
    Effect,
    Results,
    accuracy,
    area,
    beside_table,
    holm,
    primary_table,
    sign_flip,
    steps_to,
    verl_table,
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


def test_sums_that_are_equal_but_for_the_rounding_of_results_count_as_equal() -> None:
    """Right answers of 2,048, rounded to five decimals as in results: p is that of the counts."""
    ours = [1201, 1187, 1154, 1215, 1190, 1166, 1172, 1209, 1183, 1158, 1194, 1177]
    theirs = [1190, 1192, 1150, 1199, 1188, 1170, 1165, 1196, 1181, 1159, 1186, 1171]
    counts = [float(a - b) for a, b in zip(ours, theirs, strict=True)]
    rounded = [round(a / 2048, 5) - round(b / 2048, 5) for a, b in zip(ours, theirs, strict=True)]
    sums = [
        abs(sum(sign * count for sign, count in zip(signs, counts, strict=True)))
        for signs in product((1, -1), repeat=len(counts))
    ]
    assert sum(value == abs(sum(counts)) for value in sums) > 2, "without ties this shows nothing"
    expected = sum(value >= abs(sum(counts)) for value in sums) / len(sums)
    assert sign_flip(rounded) == sign_flip(counts) == expected


def test_sign_flip_rejects_other_counts() -> None:
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
    assert Effect.of([0.01]).shown() == "+1.0"
    assert Effect.of([0.01, 0.03]).shown() == "+2.0 (−10.7 to +14.7)"
    assert Effect.of([-0.0001, -0.0001]).shown() == "−0.0 (−0.0 to −0.0)"
    assert Effect.of([-0.0, -1e-17]).shown() == "+0.0 (+0.0 to +0.0)"


def _run(arm: str, seed: int, acc: float, curve: list[float] | None = None) -> dict[str, Any]:
    figures = dict.fromkeys(
        (
            "throughout", "ncr", "ncr_wrong", "stated", "duplicates", "tokens", "unended",
            *task.STYLES,
        ),
        0.5,
    )  # fmt: skip
    return {
        "run": {"kind": "runs", "arm": arm, "seed": seed, "steps": 40},
        "curve": {
            "step": [0, 20, 40],
            "acc": curve or [0.0, acc / 2, acc],
            "ncr": [0.5, 0.6, 0.7],
            "throughout": [0.0, 0.1, 0.2],
        },
        # Of each step.
        "train": {"acc": [acc / 2] * 30 + [acc] * 10},
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
    lines = primary_table(Results(runs)).splitlines()
    assert len(lines) == 6
    assert lines[2].startswith("| linear − outcome | 12 | +10.0 |")
    # 2 / 4096 each, and four times it; no difference has p 1.
    assert "| 0.0005 | 0.0020 |" in lines[2]
    assert "| 1.0000 | 1.0000 |" in lines[4]


@pytest.mark.parametrize(
    ("low", "high", "corrected", "verdict"),
    [
        (0.03, 0.05, 0.01, "above by two points or more"),
        (0.01, 0.05, 0.01, "above"),
        (0.005, 0.015, 0.01, "above, by less than two points"),
        (-0.05, -0.01, 0.01, "below"),
        (-0.01, 0.015, 0.4, "no difference of two points"),
        (-0.01, 0.03, 0.4, "open"),
        (-0.03, 0.01, 0.4, "no gain of two points"),
        (0.001, 0.05, 0.06, "open: not shown by the test"),
    ],
)
def test_the_verdict_on_a_contrast(low: float, high: float, corrected: float, verdict: str) -> None:
    effect = Effect(12, (low + high) / 2, low, high, 0.02)
    assert Contrast("linear", "outcome", effect, corrected, corrected).verdict == verdict


def test_contrasts_are_shown_in_all_figures() -> None:
    results = Results(
        [
            _run(arm, seed, 0.5 + seed / 100 - shift - 0.01 * (-1) ** seed * (arm == "linear"))
            for arm, shift in (("linear", 0.0), ("outcome", 0.1))
            for seed in range(12)
        ]
    )
    lines = beside_table(results, [("linear", "outcome")]).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("| linear − outcome | +10.0 (+9.3 to +10.7) |")
    # Counts are no points.
    assert lines[2].split(" | ")[1 + list(BESIDE).index("tokens")] == "+0.00 (+0.00 to +0.00)"
    # The starts one by one.
    assert lines[2].endswith(" | +10.0, +10.0, +10.0 |")


def _in_verl(arm: str, seed: int, acc: float) -> dict[str, Any]:
    return {
        "run": {"arm": arm, "seed": seed},
        "train": {"acc": [acc] * 40},
        "validation": {"acc": [0.1, acc]},
    }


def test_verl_agrees_where_its_difference_lies_in_the_loop_s_interval() -> None:
    ends = {"outcome": 0.45, "linear": 0.55, "shuffled": 0.5}
    results = Results(
        [
            _run(arm, seed, end + 0.01 * (-1) ** seed * (arm != "outcome"))
            for arm, end in ends.items()
            for seed in range(12)
        ]
    )

    def table(shuffled: float) -> list[str]:
        accs = {"outcome": 0.4, "linear": 0.5, "shuffled": shuffled}
        runs = [_in_verl(arm, seed, acc) for arm, acc in accs.items() for seed in range(4)]
        return verl_table(results, runs, 40).splitlines()

    lines = table(0.45)
    rows = [row.split(" | ") for row in lines[2:5]]
    assert [row[0] for row in rows] == ["| outcome", "| linear", "| shuffled"]
    assert rows[1][1:] == [
        "4",
        "50.0%",
        "+10.0 (+10.0 to +10.0)",
        "55.0%",
        "+10.0 (+8.2 to +11.8)",  # of four seeds
        "55.0%",
        "+10.0 (+9.3 to +10.7)",
        "yes |",
    ]
    assert lines[6].endswith("is the same: by the plan's rule they agree.")
    # Out of the interval, and out of order.
    assert table(0.47)[4].endswith("| no |")
    assert table(0.47)[6].endswith("is the same: by the plan's rule they do not agree.")
    assert "is not the same: " in table(0.55)[6] and table(0.55)[6].endswith("do not agree.")
