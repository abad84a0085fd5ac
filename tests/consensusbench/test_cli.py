"""The command as a person types it: codes, sentences, help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consensusbench.cli import main
from tests.consensusbench.conftest import problem

if TYPE_CHECKING:
    from tests.consensusbench.conftest import WriteDataset


def test_an_export_says_what_it_wrote(
    write_dataset: WriteDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_dataset(
        problem(1, split="train"), problem(2, split="train", nodes=[]), problem(3, split="test")
    )
    output = tmp_path / "verl"
    assert main(["export", str(path), "--format", "verl", "--output", str(output)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{output}/train.parquet: 1 rows (arithmetic 1)",
        f"{output}/val.parquet: 1 rows (arithmetic 1)",
        "left out: 1 without nodes (first: 'p2')",
    ]


def test_an_export_says_it_as_json(
    write_dataset: WriteDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_dataset(problem(1))
    arguments = ["--format", "verl", "--output", str(tmp_path), "--val-fraction", "0", "--json"]
    assert main(["export", str(path), *arguments]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["rows"]) == ("verl", {"train": 1, "val": 0})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export"], "Missing argument 'DATASET'"),
        (["export", "none.jsonl", "--output", "x"], "Missing option '--format'"),
        (
            ["export", "none.jsonl", "--format", "csv", "--output", "x"],
            "'csv' is not one of 'verl', 'trl', 'hf'",
        ),
        (
            ["export", "none.jsonl", "--format", "verl", "--output", "x"],
            "none.jsonl: no such file",
        ),
        (
            ["export", "none.jsonl", "--format", "verl", "--output", "x", "--val-fraction", "1"],
            "at least 0 and below 1, got 1.0",
        ),
        (["bake"], "No such command 'bake'"),
    ],
)
def test_bad_usage_is_one_sentence_and_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    # What stands before it is the progress bar.
    [*_, error] = capsys.readouterr().err.splitlines()
    assert error.startswith("consensusbench: error: ") and sentence in error


def test_help_teaches_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "consensusbench export dataset.jsonl --format verl --output data/" in shown


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    from consensuspr.version import VERSION

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"consensusbench {VERSION}\n"
