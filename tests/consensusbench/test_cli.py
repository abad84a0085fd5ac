"""Bad usage of the commands: an exit code and a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consensusbench.cli import main

if TYPE_CHECKING:
    from tests.commands import Run


# No such files: options are checked before files are read.
FILES = ["r", "--dataset", "d"]
PAGE = ["--output", "report.html"]
ROWS = ["--output", "rows.jsonl"]
BUILD = ["build", "r", *ROWS]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bake"], "No such command 'bake'"),
        (["export", "none.jsonl", "--output", "x"], "Missing option '--format'"),
        (["export", "none.jsonl", "--format", "verl", "--output", "x"], "none.jsonl: no such file"),
        (
            ["export", "none.jsonl", "--format", "verl", "--output", "x", "--val-fraction", "1"],
            "at least 0 and below 1, got 1.0",
        ),
        (["problems", "gsm9k", *ROWS], "'gsm9k' is neither a file nor a known problem set"),
        (["problems", "gsm8k=", *ROWS], "'gsm8k=' must be NAME, NAME@REVISION or NAME=PATH"),
        (["evaluate", *FILES, "--k", "1,,2"], "got '1,,2'"),
        (["evaluate", *FILES, "--by", "shoe"], "not by 'shoe'"),
        (["evaluate", *FILES, "--confidence", "1"], "below 1, got 1.0"),
        (["compare", *FILES], "with --baseline and --candidate; got 1 file"),
        (["compare", *FILES, "--baseline", "A", "--candidate", "A"], "are both 'A'"),
        (["compare", *FILES, "--baseline", "A"], "set both --baseline and --candidate, or neither"),
        (["validate", "none.jsonl"], "none.jsonl: no such file"),
        (["refine", "c.jsonl", *ROWS], "c.jsonl: no such file"),
        ([*BUILD, "--rollouts-per-problem", "2"], "min_rollouts must be at most 2"),
        ([*BUILD, "--min-share", "2"], "refine.min_share (--min-share): must be at m"),
        ([*BUILD, "--trust-labels", "--answer-rule", "auto"], "no effect with trust_labels"),
        ([*BUILD, "--model", "m"], "--model needs --extractor llm"),
        ([*BUILD, "--max-cost", "1"], "--max-cost needs --extractor llm"),
        ([*BUILD, "--extractor", "llm"], "--extractor llm needs --model NAME"),
        (
            [*BUILD, "--extractor", "llm", "--model", "m", "--max-cost", "1"],
            "--max-cost needs --price-in and --price-out",
        ),
        ([*BUILD, "--engine", "ray", "--workers", "2"], "--workers has no effect on a Ray cluster"),
        ([*BUILD, "--time-limit", "0"], "from 0.01 to 86400 seconds"),
        (["diagnose", *FILES, "--almost-ncr", "-1"], "(--almost-ncr): must be at least 0"),
        (["report", *FILES, *PAGE, "--confidence", "2"], "the confidence must be above 0 and"),
        (["report", *FILES, "--output", "/nowhere/at/all.html"], "does not exist; create it first"),
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
    # Lines before it are the progress bar.
    [*_, error] = err.splitlines()
    assert error.startswith("consensusbench: error: ") and sentence in error
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    from consensuspr.version import VERSION

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"consensusbench {VERSION}\n"
