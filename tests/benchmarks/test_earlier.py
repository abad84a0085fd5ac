"""One checkout against another: here this one against itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import earlier
from benchmarks.children.earlier import core_seconds, scoring_seconds
from benchmarks.harness import texts


def test_the_core_of_either_side_says_what_it_finds() -> None:
    work = [b"2*3=6", b"x=9 and 2*3=6", b"nothing", b"x=9"], [[["2*3=6"]], [["x=9"], ["y"]]], 2
    seconds, found = core_seconds(work, 1)
    assert seconds > 0
    assert found == [[True], [True], [False, False], [True, False]]


def test_the_scorer_of_either_side_gives_its_rewards(tmp_path: Path) -> None:
    batch = texts.batch(8, 500, 1, tmp_path)
    given = [(row["problem_id"], row["response"]) for row in batch.rows]
    seconds, rewards = scoring_seconds(batch.dataset, given, 1)
    right = [(row["correct"] + sum(row["expected"]) / 7) / 2 for row in batch.rows]
    assert seconds > 0
    assert rewards == pytest.approx(right)


def test_sides_take_turns_and_results_are_compared() -> None:
    work = [b"x=9", b"y=9"], [[["x=9"], ["2*3=6"]]], 2
    sides = {"earlier": Path(sys.executable), "now": Path(sys.executable)}
    best, equal = earlier._in_turns(sides, 1, core_seconds, work, 1)
    assert best.keys() == sides.keys() and equal == 1.0


def test_a_folder_without_an_environment_is_refused(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(earlier.main)
    result = CliRunner().invoke(app, [str(tmp_path)])
    assert result.exit_code == 2
    assert "make .venv/.installed there first" in " ".join(result.output.replace("│", "").split())
