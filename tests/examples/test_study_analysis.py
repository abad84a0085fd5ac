"""The statistics of examples/study, on cases and tables of results whose answers are known."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy", reason="scipy is not installed")
pytest.importorskip("torch", reason="torch is not installed: run make test-verl")

from examples.study.analysis import (
    Contrast,
    Effect,
    arms_table,
    by_pair,
    holm,
    levels_table,
    primary,
    primary_table,
    report,
    sign_flip,
    steps_to_half,
)
from examples.study.plan import ARMS, LEVELS, Plan, Run, starts
from examples.study.runner import Study, Table
from examples.study.starts import Inputs


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
    assert effect.spread == pytest.approx(math.sqrt(2.5))
    assert math.isnan(Effect.of([1.0]).low)
    assert Effect.of([0.01]).shown() == "+1.0"
    assert Effect.of([0.01, 0.03]).shown() == "+2.0 (−10.7 to +14.7)"
    assert Effect.of([]).shown() == "–"


FIGURES = (
    "greedy_throughout", "greedy_ncr", "throughout", "ncr", "guard", "stated", "duplicates",
    "unended", "unanswered", "by_code", "code",
)  # fmt: skip
Height = Callable[[Run], float]


def _row(run: Run, height: float, **final: float) -> dict[str, Any]:
    """Return the row of a run whose greedy curve rises to a height at half of the steps."""
    curve = [0.0, *[height / 2] * 5, *[height] * 5]
    figures = {"acc": height / 2, "greedy": height, **dict.fromkeys(FIGURES, 0.0), "stated": 1.0}
    heights = dict.fromkeys(("greedy", "acc", *FIGURES), curve)
    return {
        "run": dict(run.__dict__),
        "curve": {"step": list(range(0, 201, 20)), **heights},
        "final": figures | {"throughout": height / 2, "ncr": 0.5} | final,
        "train": {"ncr": [0.2, 0.4]},
        "seconds": 60.0,
        "commit": "c0ffee",
        "machine": "a machine",
    }


def _main(height: Height) -> list[dict[str, Any]]:
    return [_row(run, height(run)) for run in Plan().main(dict.fromkeys(ARMS, 1e-4))]


def _lead(run: Run, of: float) -> float:
    """Return heights of which linear's are higher, by chance more or less at each seed."""
    noise = random.Random(f"{run.start} {run.seed} {run.arm}").uniform(-0.02, 0.02)
    return 0.4 + of * (run.arm == "linear") + noise


def test_a_known_lead_is_found_and_no_lead_is_not() -> None:
    found = primary(_main(lambda run: _lead(run, 0.2)))
    assert [c.arm for c in found] == ["linear"] * 3
    assert [c.other for c in found] == ["outcome", "random", "permuted"]
    for contrast in found:
        assert contrast.effect.pairs == 12
        # The mean height of the curve is 0.7 of the last: 0.25, five of .5 and 4.5 of 1, of 10.
        assert contrast.effect.mean == pytest.approx(0.7 * 0.2, abs=0.02)
        assert contrast.p == pytest.approx(2 / 4096)
        assert contrast.corrected == pytest.approx(6 / 4096)
        assert contrast.verdict == "above"
        assert contrast.by_start.keys() == set(starts("1"))
    none = primary(_main(lambda run: _lead(run, 0.0)))
    assert all(c.corrected > 0.05 for c in none)
    below = primary(_main(lambda run: _lead(run, -0.2)))
    assert {contrast.verdict for contrast in below} == {"below"}
    lines = primary_table(found).splitlines()
    assert len(lines) == 5 and lines[2].startswith("| linear − outcome | 12 | +1")


def test_a_lead_over_the_outcome_alone_is_not_one_of_the_nodes() -> None:
    def height(run: Run) -> float:
        return _lead(run, 0.0) + 0.2 * (run.arm != "outcome")

    over_outcome, *over_controls = primary(_main(height))
    assert over_outcome.verdict == "above"
    assert all(contrast.verdict != "above" for contrast in over_controls)


@pytest.mark.parametrize(
    ("differences", "corrected", "verdict"),
    [
        ([0.10] * 11 + [0.12], 0.001, "above"),
        ([-0.10] * 11 + [-0.12], 0.001, "below"),
        ([0.010] * 11 + [0.012], 0.001, "different, by less than two points"),
        ([0.010] * 6 + [-0.010] * 6, 0.9, "no difference of two points"),
        ([0.10] * 6 + [-0.08] * 6, 0.9, "open"),
    ],
)
def test_the_verdict_on_a_contrast(
    differences: list[float], corrected: float, verdict: str
) -> None:
    pairs = {(f"1-{'abcd'[n % 4]}", n // 4): value for n, value in enumerate(differences)}
    assert Contrast("linear", "outcome", pairs, corrected, corrected).verdict == verdict


def test_pairs_have_the_same_start_and_seed() -> None:
    """In whatever order the rows come."""
    rows = _main(
        lambda run: 0.1 * run.seed + 0.3 * (run.start == "1-b") + 0.1 * (run.arm == "linear")
    )
    random.Random(2).shuffle(rows)
    for contrast in primary(rows):
        assert list(contrast.by_pair.values()) == pytest.approx([0.07] * 12)


def test_steps_to_half_of_the_best() -> None:
    run = Run("main", "linear", "1-a", 0, 1e-4)
    rows = {("1-a", 0): _row(run, 0.4), ("1-b", 0): _row(run, 0.1)}
    assert steps_to_half(rows, {("1-a", 0): 0.4, ("1-b", 0): 0.4}) == [20, math.inf]
    assert steps_to_half(rows, {("1-a", 0): 0.8, ("1-b", 0): 0.2}) == [120, 120]


def test_a_level_is_compared_at_the_chosen_rates_and_at_equal_ones() -> None:
    rates = {"outcome": 1e-4, "linear": 3e-4, "random": 3e-4}
    plan = Plan()
    heights = {"outcome": 0.3, "linear": 0.4, "random": 0.35}

    def height(run: Run) -> float:
        return heights[run.arm] + 0.1 * (run.learning_rate == 3e-4)

    levels = [_row(run, height(run)) for run in plan.others(rates) if run.part == "levels"]
    main = [_row(run, 0.5) for run in plan.main(dict.fromkeys(ARMS, 1e-4) | rates)]
    shares = dict.fromkeys(starts(*LEVELS), 0.02)
    lines = levels_table([*main, *levels], rates, shares).splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [cell[0] for cell in cells[::2]] == [f"{level} %" for level in LEVELS]
    # 0.2, 0.1 and 0.1 of height, times 0.7.
    chosen, low, high = cells[0][3:]
    assert chosen.startswith("+14.0") and low.startswith("+7.0") and high.startswith("+7.0")
    assert chosen.endswith(", 4")
    of_main = cells[2]
    # No pair of the main runs has linear and outcome at one rate.
    assert of_main[3].endswith(", 12") and of_main[4:] == ["–", "–"]


def _study(tmp_path: Path) -> Study:
    inputs = Inputs(tmp_path)
    for name in starts(*LEVELS):
        inputs.start(name).write_bytes(b"made")
        inputs.of_random(name.partition("-")[0]).write_bytes(b"made")
    facts = {name: {"throughout": float(name.partition("-")[0]) / 100} for name in starts(*LEVELS)}
    inputs.measured.write_text(json.dumps(facts))
    return Study(Plan(), inputs, Table(tmp_path / "results.jsonl.gz"))


def test_the_report_of_a_whole_study(tmp_path: Path) -> None:
    study = _study(tmp_path)

    lines = []
    # Equal rates: the lower one is chosen.
    for run in study.plan.runs(dict.fromkeys(ARMS, 1e-4)):
        # Runs that ramble in one arm, which the list of what counts against us shows.
        rambles = run.part == "main" and run.arm == "linear" and run.seed == 0
        row = _row(run, _lead(run, 0.2), unended=0.2 * rambles)
        if run == Run("main", "outcome", "1-a", 2, 1e-4):
            row["curve"]["greedy"] = [*row["curve"]["greedy"][:-1], 0.1]
        lines.append(json.dumps({**row, **study.identity(run)}))
    study.table.path.write_bytes(gzip.compress("\n".join(lines).encode()))
    text = report(study)
    assert text.startswith("292 of 292 runs, by c0ffee (a machine)\n\nLearning rates: outcome 0.0")
    against = text[text.index("## What counts against us") :].splitlines()[4:14]
    answers = [line.split("|")[3].strip() for line in against]
    assert answers == ["no"] * 8 + ["**yes**", "**yes**"]
    assert "4 of linear, 0 of outcome" in against[8]
    assert "1 of outcome, 0 of linear" in against[9]
    for title in ("Primary contrasts", "Levels", "Groups of 16", "Arms at 40 %, rate 0.0003"):
        assert f"## {title}" in text
    groups = text[text.index("## Groups of 16") :].splitlines()
    assert groups[4].startswith("| linear, 16 − outcome, 16 | 8 |")
    assert groups[5].startswith("| outcome, 16 − outcome | 8 | +0.0")


def test_no_contrast_is_shown_before_all_main_runs_are_there(tmp_path: Path) -> None:
    study = _study(tmp_path)
    runs = study.plan.runs(dict.fromkeys(ARMS, 1e-4))[: 72 + 107]
    lines = [json.dumps({**_row(run, 0.5), **study.identity(run)}) for run in runs]
    study.table.path.write_bytes(gzip.compress("\n".join(lines).encode()))
    text = report(study)
    assert text.startswith("179 of 292 runs") and "1 main runs are missing" in text
    assert "−" not in text and "|" not in text


def test_arms_that_have_no_runs_are_left_out() -> None:
    rows = [_row(Run("levels", "linear", "3-c", 0, 1e-4), 0.4)]
    assert len(arms_table(rows, ["outcome", "linear"]).splitlines()) == 3
    assert by_pair(rows, "linear", 3e-4) == {}
