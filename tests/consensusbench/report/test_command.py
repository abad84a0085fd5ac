"""The command as a person types it."""

from __future__ import annotations

import pytest

from examples.stuffing.make import make_run

pytest.importorskip("duckdb", reason="the extra consensusbench is not installed")
pytest.importorskip("sklearn", reason="the extra consensusbench is not installed")

import json
from pathlib import Path

from tests.commands import Run
from tests.consensusbench.conftest import WriteDataset
from tests.consensusbench.report.conftest import ordinary_problems, ordinary_rollouts, rollout
from tests.web.kept import kept_documents


@pytest.fixture
def files(write_dataset: WriteDataset, tmp_path: Path) -> list[str]:
    """Arguments that name a file of rollouts, a dataset and the page."""
    dataset = write_dataset(*ordinary_problems())
    rollouts = write_dataset(*ordinary_rollouts(), name="rollouts.jsonl")
    return [str(rollouts), "--dataset", str(dataset), "--output", str(tmp_path / "report.html")]


def test_it_says_what_it_wrote(run: Run, files: list[str], tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    code, out, _ = run("report", *files, "--title", "A < B", "--k", "1,2")
    [result] = out.splitlines()
    assert code == 0
    assert result.startswith(f"{output}: ") and result.endswith(" MB, 24 rollouts")
    page = output.read_text(encoding="utf-8")
    assert "<title>A &lt; B</title>" in page
    assert '"pass@2"' in json.dumps(kept_documents(page)["report"])


def test_json_and_the_answer_rule(
    run: Run, files: list[str], write_dataset: WriteDataset, tmp_path: Path
) -> None:
    more = write_dataset(rollout(99, "lost", "text"), name="more.jsonl")
    arguments = [more, *files, "--no-probes", "--json", "--answer-rule", "gsm8k", "--no-progress"]
    code, out, _ = run("report", *arguments)
    result, page = json.loads(out), tmp_path / "report.html"
    assert (code, result["size_bytes"], result["samples"]) == (0, page.stat().st_size, 25)
    assert "UNKNOWN_PROBLEM" in result["warnings"][0]
    kept = kept_documents(page.read_text(encoding="utf-8"))
    assert [row["diagnosis"] for row in kept["rows"]].count("format error") == 12


def test_scored_rollouts_are_taken_as_scored(
    run: Run, files: list[str], write_dataset: WriteDataset, tmp_path: Path
) -> None:
    spans = [[0, 3], None, [1, 4]]
    scores = {"acc": 0, "matched": [True, False, True], "ncr": 2 / 3, "spans": spans}
    rows = [row | scores | {"status": "OK"} for row in ordinary_rollouts()]
    assert run("report", write_dataset(*rows, name="scored.jsonl"), *files[1:])[0] == 0
    kept = kept_documents((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert {(row["acc"], row["channels"]) for row in kept["rows"]} == {(0.0, "p-p")}
    assert ["Scores from the files", "24 rollouts"] in kept["report"]["facts"]


def test_a_bad_row_leaves_no_page(run: Run, files: list[str], tmp_path: Path) -> None:
    with Path(files[0]).open("a", encoding="utf-8") as rows:
        rows.write('{"problem_id": "p11"}\n')
    output = tmp_path / "report.html"
    code, _, err = run("report", *files)
    assert code == 2 and "rollouts.jsonl:25" in err and not output.exists()
    assert run("report", *files, "--on-error", "skip")[0] == 0
    kept = kept_documents(output.read_text(encoding="utf-8"))
    assert kept["report"]["warnings"] == ["1 bad row of the files passed over."]


def test_a_run_is_kept_with_its_curves(run: Run, tmp_path: Path) -> None:
    assert list(make_run(tmp_path / "stuffing", steps=2, learns=True))
    output = tmp_path / "run.html"
    code, out, err = run("report", str(tmp_path / "stuffing"), "--output", str(output))
    assert (code, err) == (0, "") or "keeping" in err
    kept = kept_documents(output.read_text(encoding="utf-8"))
    assert kept["state"]["runs"][0]["name"] == "stuffing" and kept["state"]["report"] is False
    assert kept["curves"]["runs"][0]["x"] == [1, 2]
    groups = [path for path in kept if path.startswith('group/0?[["group"')]
    assert len(groups) == len({(row["step"], row["group"]) for row in kept["rows"]})
    assert f"{len(kept['rows'])} rollouts" in out
    curves = [path for path in kept if path.startswith("curves")]
    assert sorted(curves) == ["curves", 'curves?[["split","train"]]']


def test_runs_and_rollouts_are_not_mixed(run: Run, files: list[str], tmp_path: Path) -> None:
    code, _, err = run("report", str(tmp_path), *files)
    assert code == 2 and "give files of rollouts or folders of runs, not both" in err


def test_rollouts_need_their_dataset(run: Run, files: list[str]) -> None:
    code, _, err = run("report", files[0], *files[3:])
    assert code == 2 and "--dataset FILE" in err


def test_missing_packages_are_one_sentence(
    run: Run, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consensuspr.web.find_spec", lambda name: None)
    code, _, err = run("report", *files)
    assert code == 2 and "consensusbench report needs duckdb" in err
