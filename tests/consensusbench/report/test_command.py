"""The command as a person types it."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2", reason="the extra consensusbench is not installed")
pytest.importorskip("sklearn", reason="the extra consensusbench is not installed")

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from consensusbench.cli import main
from tests.consensusbench.report.conftest import ordinary_rollouts, problem, rollout

WriteRows = Callable[[str, list[dict[str, Any]]], Path]


@pytest.fixture
def files(write_rows: WriteRows) -> list[str]:
    """Arguments that name a dataset and a file of rollouts."""
    dataset = write_rows("problems.jsonl", [problem(number) for number in range(11, 17)])
    rollouts = write_rows("rollouts.jsonl", ordinary_rollouts())
    return [str(rollouts), "--dataset", str(dataset)]


def test_it_says_what_it_wrote(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "report.html"
    arguments = ["report", *files, "--output", str(output), "--title", "A < B", "--k", "1,2"]
    assert main(arguments) == 0
    [said] = capsys.readouterr().out.splitlines()
    assert said.startswith(f"{output}: 0.") and "24 rollouts, 24 of them" in said
    page = output.read_text(encoding="utf-8")
    assert "<title>A &lt; B</title>" in page and "pass@2 %" in page


def test_it_says_it_as_json(
    files: list[str],
    write_rows: WriteRows,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = write_rows("more.jsonl", [rollout(99, "lost", "text")])
    output = tmp_path / "report.html"
    arguments = [str(more), *files, "--output", str(output), "--max-rollouts", "5", "--no-probes"]
    assert main(["report", *arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["size_bytes"] == output.stat().st_size
    assert (said["rollouts"], said["rollouts_shown"]) == (25, 5)
    assert "UNKNOWN_PROBLEM" in said["warnings"][0]


def test_an_answer_rule_shows_format_errors(files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    arguments = [*files, "--output", str(output), "--answer-rule", "gsm8k", "--no-progress"]
    assert main(["report", *arguments]) == 0
    assert output.read_text(encoding="utf-8").count('data-kind="format error"') == 12


def test_scored_rollouts_are_taken_as_scored(
    files: list[str], write_rows: WriteRows, tmp_path: Path
) -> None:
    spans = [[0, 3], None, [1, 4]]
    scores = {"acc": 0, "matched": [True, False, True], "ncr": 2 / 3, "spans": spans}
    scores["status"] = "OK"
    rows = [row | scores for row in ordinary_rollouts()]
    rollouts = write_rows("scored.jsonl", rows)
    output = tmp_path / "report.html"
    assert main(["report", str(rollouts), *files[1:], "--output", str(output)]) == 0
    page = output.read_text(encoding="utf-8")
    assert page.count('data-side="wrong"') == page.count('data-ncr="0.666667"') == 24
    assert "<dt>Scores from the files</dt><dd>24 rollouts</dd>" in page


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--max-chars", "0"], "max_chars (--max-chars)"),
        (["--max-rollouts", "-1"], "max_rollouts (--max-rollouts)"),
        (["--k", "0"], "--k takes whole numbers"),
        (["--confidence", "2"], "the confidence must be above 0 and below 1"),
        (["--output", "/nowhere/at/all.html"], "does not exist: make it first"),
    ],
)
def test_bad_usage_is_one_sentence_and_code_2(
    more: list[str],
    sentence: str,
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "report.html"
    assert main(["report", *files, "--output", str(output), *more]) == 2
    [*_, error] = capsys.readouterr().err.splitlines()
    assert error.startswith("consensusbench: error: ") and sentence in error
    assert not output.exists()


def test_a_bad_row_leaves_no_page(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path(files[0]).open("a", encoding="utf-8") as rows:
        rows.write('{"problem_id": "p11"}\n')
    output = tmp_path / "report.html"
    assert main(["report", *files, "--output", str(output)]) == 2
    assert "rollouts.jsonl:25" in capsys.readouterr().err
    assert not output.exists()
    assert main(["report", *files, "--output", str(output), "--on-error", "skip"]) == 0
    assert "1 bad rows of the files were passed over." in output.read_text(encoding="utf-8")


def test_a_missing_package_is_one_sentence(
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["report", *files, "--output", str(tmp_path / "r.html")]) == 2
    assert "writing a report needs the package jinja2" in capsys.readouterr().err


def test_help_teaches_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "consensusbench report rollouts.jsonl --dataset dataset.jsonl" in shown
