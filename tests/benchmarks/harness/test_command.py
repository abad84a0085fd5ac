"""``python -m benchmarks`` with suites that do nothing, one that fails among them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import suites
from benchmarks.__main__ import app
from benchmarks.harness import runner
from benchmarks.harness.results import Run

pytest.importorskip("matplotlib")

# Stands in for ``python -m benchmarks.suites``: answers at once, fails for one name.
STAND_IN = """
import json, sys
name = sys.argv[1]
print("  at work", file=sys.stderr)
if name == "bad":
    print("error: it broke", file=sys.stderr)
    raise SystemExit(1)
target = "no_such_target" if name == "unknown" else "second_core"
result = {"suite": name, "title": name, "checks": [{"target": target, "value": 1.7}]}
result["notes"] = [" ".join(sys.argv)]
with open(sys.argv[sys.argv.index("--result") + 1], "w") as file:
    json.dump(result, file)
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the stand-in wherever a suite would be run."""
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(runner, "SUITE", (sys.executable, str(script)))
    monkeypatch.setattr(suites, "names", lambda: ["bad", "good", "other", "unknown"])
    monkeypatch.delenv("CONSENSUSPR_SHARED", raising=False)


def invoke(tmp_path: Path, *words: str) -> tuple[int, str, Run | None]:
    """Run the command; return exit code, all its output and its results file."""
    output = tmp_path / "out"
    done = CliRunner().invoke(app, [*words, "--output", str(output)], env={"COLUMNS": "200"})
    results = output / "results.json"
    run = Run.model_validate_json(results.read_bytes()) if results.exists() else None
    return done.exit_code, done.output, run


def test_only_what_was_asked_for_is_run_and_reported(tmp_path: Path) -> None:
    assert invoke(tmp_path, "--only", "good")[0] == 0
    code, text, run = invoke(tmp_path, "--only", "other", "--seed", "5", "--rounds", "2", "--full")
    assert code == 0
    assert run is not None
    assert [suite.suite for suite in run.suites] == ["other"]
    assert run.command == "python -m benchmarks --full --only other --seed 5 --rounds 2"
    assert "--seed 5 --rounds 2 --full" in run.suites[0].notes[0]
    assert "MISSED" in text
    assert "1.7x" in text


def test_a_suite_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    code, text, run = invoke(tmp_path, "--only", "bad", "--only", "good")
    assert code == 1
    assert run is not None
    assert [suite.suite for suite in run.suites] == ["good"]
    assert run.failures == {"bad": "exit code 1: error: it broke"}
    assert "suite bad failed" in text


def test_a_check_of_no_target_is_a_failure(tmp_path: Path) -> None:
    code, _, run = invoke(tmp_path, "--only", "unknown")
    assert code == 1
    assert run is not None
    assert run.failures == {"unknown": "checks targets that do not exist: no_such_target"}


def test_the_page_is_written_from_the_run(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "performance.md"
    assert invoke(tmp_path, "--only", "good", "--write", str(page))[0] == 0
    assert "**MISSED**" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "nope"], "no suite 'nope'; there are bad, good, other, unknown"),
        (["--rounds", "0"], "greater than or equal to 1"),
        (["--data", "/no/such/folder"], "does not exist"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(
    tmp_path: Path, words: list[str], message: str
) -> None:
    code, text, run = invoke(tmp_path, *words)
    assert (code, run) == (2, None)
    assert message in " ".join(text.split())


def test_named_data_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSENSUSPR_SHARED", str(tmp_path / "nothing"))
    code, text, run = invoke(tmp_path, "--only", "good")
    assert (code, run) == (2, None)
    assert "which has no folder data" in " ".join(text.split())
