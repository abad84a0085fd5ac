"""``python -m benchmarks`` with suites that do nothing, one that fails among them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import suites
from benchmarks.__main__ import app
from benchmarks.harness import runner
from benchmarks.harness.page import targets_block
from benchmarks.harness.results import Run, SuiteResult
from benchmarks.markdown import around_block
from benchmarks.measure import Settings

pytest.importorskip("matplotlib")

# Stands in for ``python -m benchmarks.suites``: answers at once, fails for one name.
STAND_IN = """
import json, sys
name = sys.argv[1]
print("  at work", file=sys.stderr)
if name == "bad":
    print("error: it broke", file=sys.stderr)
    raise SystemExit(1)
if name == "mute":
    raise SystemExit(0)
target = "no_such_target" if name == "unknown" else "second_core"
check = {"target": target, "value": 1.7, "note": "a note"}
result = {"suite": name, "title": name, "checks": [check]}
if name == "odd":
    check["note"] = ""
if name == "away":
    result |= {"checks": [], "skipped": "needs verl: make it"}
result["notes"] = [" ".join(sys.argv)]
with open(sys.argv[sys.argv.index("--result") + 1], "w") as file:
    json.dump(result, file)
"""


PAGE = """# By hand

<!-- begin targets -->
old
<!-- end targets -->

Also by hand.

<!-- begin step -->
<!-- end step -->
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the stand-in wherever a suite would be run."""
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(runner, "SUITE", (sys.executable, str(script)))
    monkeypatch.setattr(
        suites, "names", lambda: ["away", "bad", "good", "mute", "odd", "other", "unknown"]
    )
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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unknown", "checks targets that do not exist: no_such_target"),
        (
            "odd",
            "its result is no result: checks.0.note: String should have at least 1 character",
        ),
        ("mute", "it handed over no result: at work"),
    ],
)
def test_a_result_that_cannot_be_used_is_a_failure_of_its_suite(
    tmp_path: Path, name: str, why: str
) -> None:
    code, _, run = invoke(tmp_path, "--only", "good", "--only", name)
    assert code == 1
    assert run is not None
    assert run.failures == {name: why}
    assert [suite.suite for suite in run.suites] == ["good"]


def test_results_are_kept_after_each_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(name: str, settings: Settings) -> SuiteResult:
        if name == "other":
            raise KeyboardInterrupt
        return run_one(name, settings)

    run_one = runner.run_one
    monkeypatch.setattr(runner, "run_one", stopped)
    code, _, run = invoke(tmp_path, "--only", "good", "--only", "other")
    assert code != 0
    assert run is not None
    assert [suite.suite for suite in run.suites] == ["good"]


def test_the_reason_of_a_skipped_suite_is_shown(tmp_path: Path) -> None:
    code, text, _ = invoke(tmp_path, "--only", "away")
    assert code == 0
    assert "skipped: suite away: needs verl: make it" in text


def test_a_suite_that_is_measured_anew_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    assert invoke(tmp_path, "--only", "good", "--only", "bad", "--seed", "5")[0] == 1
    page = tmp_path / "performance.md"
    page.write_text(PAGE, encoding="utf-8")
    code, _, run = invoke(
        tmp_path, "--only", "other", "--merge", "--seed", "5", "--write", str(page)
    )
    assert run is not None
    assert [suite.suite for suite in run.suites] == ["good", "other"]
    assert list(run.failures) == ["bad"]
    assert code == 1
    assert list(run.states) == ["bad", "good", "other"]
    assert "1.7x" in page.read_text(encoding="utf-8")
    assert "## good" in (tmp_path / "out/performance.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ([], "to merge with"),
        (["--only", "good", "--seed", "4"], "--seed was 4 in the earlier run and is 20 now"),
        (["--only", "good", "--full"], "--full was True in the earlier run and is False now"),
    ],
)
def test_runs_that_do_not_belong_together_are_not_merged(
    tmp_path: Path, first: list[str], message: str
) -> None:
    if first:
        assert invoke(tmp_path, *first)[0] == 0
    code, text, _ = invoke(tmp_path, "--only", "other", "--merge")
    assert code == 2
    # Bad usage is framed and wrapped, at any blank.
    assert "".join(message.split()) in "".join(text.replace("│", "").split())


def test_exactly_the_blocks_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(suites, "names", lambda: ["good"])
    assert invoke(tmp_path, "--write", str(page))[0] == 0
    before, _, rest = page.read_text(encoding="utf-8").partition("<!-- begin targets -->\n")
    block, _, after = rest.partition("\n<!-- end targets -->")
    after, _, step = after.partition("<!-- begin step -->\n")
    assert (before, after) == ("# By hand\n\n", "\n\nAlso by hand.\n\n")
    assert step.endswith("(suite `step`, in the environment with verl).\n<!-- end step -->\n")
    assert "| 1.7x | **MISSED** |" in block
    assert block in (tmp_path / "out/performance.md").read_text(encoding="utf-8")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".md", ".py"]


@pytest.mark.parametrize(
    "text", ["", "<!-- begin targets -->", PAGE + PAGE, PAGE.replace("begin step", "step")]
)
def test_a_page_without_the_block_is_refused_before_any_suite(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    code, said, run = invoke(tmp_path, "--write", str(page))
    assert (code, run) == (2, None)
    assert "once each" in " ".join(said.replace("│", "").split())
    assert page.read_text(encoding="utf-8") == text


def test_the_page_of_the_docs_holds_the_block(repository: Path, run: Run) -> None:
    page = repository / "docs" / "performance.md"
    before, after = around_block(page, "targets")
    block = page.read_text(encoding="utf-8").removeprefix(before).removesuffix(after)
    written = [line for line in targets_block(run).splitlines() if line.startswith("| ")]
    stands = [line for line in block.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[:3] for line in stands] == [line.split(" | ")[:3] for line in written]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--only", "nope"],
            "no suite 'nope'; there are away, bad, good, mute, odd, other, unknown",
        ),
        (["--only", "good", "--write", __file__], "a page needs all suites"),
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
