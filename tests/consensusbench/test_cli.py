"""The command as a person types it: help, codes, and what is wrong in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consensusbench.cli import main

if TYPE_CHECKING:
    from tests.commands import Run


# Files that are not there: what is wrong with the options is told before they are read.
FILES = ["r", "--dataset", "d"]
PAGE = ["--output", "report.html"]
ROWS = ["--output", "rows.jsonl"]


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
        (["problems", "gsm9k", *ROWS], "'gsm9k' is not a known source"),
        (["problems", "gsm8k=", *ROWS], "'gsm8k=' must be NAME, NAME@REVISION or NAME=PATH"),
        (["problems", "gsm8k=none.jsonl", *ROWS], "none.jsonl: no such file"),
        (["evaluate", "none.jsonl", "--dataset", "d"], "none.jsonl: no such file"),
        (["evaluate", *FILES, "--k", "0"], "--k takes whole numbers of 1 to 99999"),
        (["evaluate", *FILES, "--k", "1,,2"], "got '1,,2'"),
        (["evaluate", *FILES, "--by", "shoe"], "not by 'shoe'"),
        (["evaluate", *FILES, "--confidence", "1"], "below 1, got 1.0"),
        (["evaluate", "r"], "Missing option '--dataset'"),
        (
            ["compare", *FILES],
            "give two files, or name two models with --baseline and --candidate; got 1 file",
        ),
        (["compare", *FILES, "--baseline", "A", "--candidate", "A"], "are both 'A'"),
        (["compare", *FILES, "--baseline", "A"], "--baseline and --candidate go together"),
        (["compare", "q", *FILES, "--by", "model"], "not by 'model'"),
        (["agreement", "none.jsonl", "none.jsonl"], "none.jsonl: no such file"),
        (["validate"], "Missing argument 'DATASET'"),
        (["validate", "none.jsonl"], "none.jsonl: no such file"),
        (["stats"], "Missing argument 'DATASET...'"),
        (["stats", "none.jsonl"], "none.jsonl: no such file"),
        (
            ["diagnose", *FILES, "--almost-ncr", "2"],
            "almost_ncr (--almost-ncr): must be at most 1, got 2",
        ),
        (["diagnose", *FILES, "--answer-rule", "loose"], "'loose' is not one of"),
        (["report", *FILES, *PAGE, "--k", "0"], "--k takes whole numbers"),
        (["report", *FILES, *PAGE, "--confidence", "2"], "the confidence must be above 0 and"),
        (["report", *FILES, "--output", "/nowhere/at/all.html"], "does not exist: make it first"),
    ],
)
def test_bad_usage_is_one_sentence_and_code_2(
    run: Run,
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if arguments[0] == "report":
        pytest.importorskip("duckdb", reason="the extra consensusbench is not installed")
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    # What stands before it is the progress bar.
    [*_, error] = err.splitlines()
    assert error.startswith("consensusbench: error: ") and sentence in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("export", "consensusbench export dataset.jsonl --format verl --output data/"),
        ("problems", "consensusbench problems gsm8k math-500 aime-2024 aime-2025 dapo-math-17k"),
        ("sample", "consensusbench sample problems.jsonl --model gpt-5-mini"),
        ("sample", "no reply is paid for twice"),
    ],
)
def test_help_teaches_the_command(run: Run, command: str, sentence: str) -> None:
    code, shown, _ = run(command, "--help")
    assert code == 0 and sentence in " ".join(shown.split())
    assert shown.count("│    --") < 20  # a dozen and those of all commands


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    from consensuspr.version import VERSION

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"consensusbench {VERSION}\n"
