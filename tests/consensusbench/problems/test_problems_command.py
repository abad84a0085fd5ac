"""The command ``consensusbench problems``."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensusbench.cli import main
from tests.consensusbench.conftest import WriteDataset
from tests.consensusbench.problems.conftest import dapo, math500


@pytest.fixture
def named(write_dataset: WriteDataset) -> list[str]:
    training = write_dataset(
        dapo("1", "Find $x$.", "1"),
        dapo("2", "Find $y$.", "2"),
        dapo("3", "Find $y$.", "3"),
        dapo("4", "Find z", "4"),
        name="dapo.jsonl",
    )
    test = write_dataset(math500(1, "Find $z$.", "4"), name="math.jsonl")
    return [f"dapo-math-17k={training}", f"math-500={test}"]


def test_the_table_counts_problems_by_status(
    named: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    arguments = ["--output", str(output), "--no-progress"]
    assert main(["problems", *named, *arguments]) == 0
    shown = capsys.readouterr().out
    cells = [line.split() for line in shown.splitlines()]
    assert [row for row in cells[1:] if len(row) == 6] == [
        ["dapo-math-17k", "4", "0", "2", "1", "1"],
        ["math-500", "1", "0", "0", "0", "1"],
        ["all", "5", "0", "2", "1", "2"],
    ]
    assert "1 text has two answers (left out), for example 2 (dapo17k-2), 3 (dapo17k-3)" in shown
    assert "1 row of dapo-math-17k is in math-500 too (left out)" in shown
    assert f"{output}: 2 problems" in shown
