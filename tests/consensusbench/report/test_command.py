"""The command as a person types it."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2", reason="the extra consensusbench is not installed")
pytest.importorskip("sklearn", reason="the extra consensusbench is not installed")

import json
import sys
from pathlib import Path

from tests.commands import Run
from tests.consensusbench.conftest import WriteDataset
from tests.consensusbench.report.conftest import ordinary_problems, ordinary_rollouts, rollout


@pytest.fixture
def files(write_dataset: WriteDataset, tmp_path: Path) -> list[str]:
    """Arguments that name a file of rollouts, a dataset and the page."""
    dataset = write_dataset(*ordinary_problems())
    rollouts = write_dataset(*ordinary_rollouts(), name="rollouts.jsonl")
    return [str(rollouts), "--dataset", str(dataset), "--output", str(tmp_path / "report.html")]


def test_it_says_what_it_wrote(run: Run, files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    code, out, _ = run("report", *files, "--title", "A < B", "--k", "1,2")
    [said] = out.splitlines()
    assert code == 0
    assert said.startswith(f"{output}: 0.") and "24 rollouts, 24 of them" in said
    page = output.read_text(encoding="utf-8")
    assert "<title>A &lt; B</title>" in page and "pass@2 %" in page


def test_it_says_it_as_json(
    run: Run, files: list[str], write_dataset: WriteDataset, tmp_path: Path
) -> None:
    more = write_dataset(rollout(99, "lost", "text"), name="more.jsonl")
    arguments = [more, *files, "--max-rollouts", "5", "--no-probes", "--json"]
    code, out, _ = run("report", *arguments)
    said = json.loads(out)
    assert (code, said["size_bytes"]) == (0, (tmp_path / "report.html").stat().st_size)
    assert (said["rollouts"], said["rollouts_shown"]) == (25, 5)
    assert "UNKNOWN_PROBLEM" in said["warnings"][0]


def test_an_answer_rule_shows_format_errors(run: Run, files: list[str], tmp_path: Path) -> None:
    assert run("report", *files, "--answer-rule", "gsm8k", "--no-progress")[0] == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('data-kind="format error"') == 12


def test_scored_rollouts_are_taken_as_scored(
    run: Run, files: list[str], write_dataset: WriteDataset, tmp_path: Path
) -> None:
    spans = [[0, 3], None, [1, 4]]
    scores = {"acc": 0, "matched": [True, False, True], "ncr": 2 / 3, "spans": spans}
    rows = [row | scores | {"status": "OK"} for row in ordinary_rollouts()]
    assert run("report", write_dataset(*rows, name="scored.jsonl"), *files[1:])[0] == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('data-side="wrong"') == page.count('data-ncr="0.666667"') == 24
    assert "<dt>Scores from the files</dt><dd>24 rollouts</dd>" in page


def test_a_bad_row_leaves_no_page(run: Run, files: list[str], tmp_path: Path) -> None:
    with Path(files[0]).open("a", encoding="utf-8") as rows:
        rows.write('{"problem_id": "p11"}\n')
    output = tmp_path / "report.html"
    code, _, err = run("report", *files)
    assert code == 2 and "rollouts.jsonl:25" in err and not output.exists()
    assert run("report", *files, "--on-error", "skip")[0] == 0
    assert "1 bad row of the files passed over." in output.read_text(encoding="utf-8")


def test_a_missing_package_is_one_sentence(
    run: Run, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    code, _, err = run("report", *files)
    assert code == 2 and "writing a report needs the package jinja2" in err
