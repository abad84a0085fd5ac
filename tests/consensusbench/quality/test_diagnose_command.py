"""``diagnose`` on real files: answers read twice, rows written, examples shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consensusbench.cli import main
from consensusbench.evaluation.scored import score_files
from consensusbench.quality.diagnose import Reading, read_answers
from consensuspr.errors import DataError
from consensuspr.scoring.types import AnswerRule

Write = Callable[..., Path]

PROBLEM: dict[str, Any] = {
    "problem_id": "p",
    "data_source": "sums",
    "problem": "A dozen boxes hold 4 eggs each; six break, and half of the rest are sold.",
    "ground_truth": "21",
    "nodes": [
        {"node_id": "all", "expressions": ["12*4=48"]},
        {"node_id": "whole", "expressions": ["48-6=42"]},
        {"node_id": "sold", "expressions": ["42/2=21"], "is_final": True},
    ],
}
PATH = "There are 12*4=48 eggs, 48-6=42 of them whole"
ROLLOUTS: list[dict[str, Any]] = [
    {"rollout_id": "sound", "response": f"{PATH}, and 42/2=21 are sold.\nAnswer: 21"},
    {"rollout_id": "sound2", "response": f"{PATH}; half is 42/2=21, sold.\nAnswer: 21"},
    {"rollout_id": "format", "response": f"{PATH}, so the half that was sold in the end is 21."},
    {"rollout_id": "almost", "response": f"{PATH}, and 42/3=14 are sold.\nAnswer: 14"},
    {"rollout_id": "direct", "response": "Answer: 21"},
    {"rollout_id": "wrong", "response": "I guess it is so.\nAnswer: 3"},
    {"rollout_id": "long", "response": "Let me think again. " * 99 + PATH + "\nAnswer: 21"},
    {"rollout_id": "stranger", "response": "Answer: 21", "problem_id": "unheard-of"},
]
CLASSES = {
    "sound": "sound",
    "sound2": "sound",
    "format": "format_error",
    "almost": "almost_correct",
    "direct": "direct_answer",
    "wrong": "wrong",
    "long": "redundant_thinking",
    "stranger": "unscored",
}


@pytest.fixture
def files(write_dataset: Write) -> tuple[str, str]:
    rows = [{"problem_id": "p", "model": "m"} | row for row in ROLLOUTS]
    return str(write_dataset(*rows, name="rollouts.jsonl")), str(write_dataset(PROBLEM))


def test_rows_are_written_with_their_class(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts, dataset = files
    output = tmp_path / "diagnosed.jsonl"
    arguments = ["--answer-rule", "dapo", "--output", str(output)]
    assert main(["diagnose", rollouts, "--dataset", dataset, *arguments]) == 0
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert {row["rollout_id"]: row["diagnosis"] for row in rows} == CLASSES
    assert [row["response"] for row in rows] == [row["response"] for row in ROLLOUTS]
    assert all(row["diagnosis_reason"] for row in rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["Model", "Data", "source"]
    [known] = [line.split() for line in lines if line.startswith("m ") and " sums " in line]
    assert known[:5] == ["m", "sums", "7", "2", "(28.6"]


def test_rule_auto_knows_no_format_errors_and_says_so(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts, dataset = files
    assert main(["diagnose", rollouts, "--dataset", dataset, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["total"]["counts"]["format_error"] == 0
    assert main(["diagnose", rollouts, "--dataset", dataset]) == 0
    assert "--answer-rule dapo" in " ".join(capsys.readouterr().out.split())


def test_examples_are_shown_with_their_hits(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts, dataset = files
    arguments = ["--answer-rule", "dapo", "--examples", "1"]
    assert main(["diagnose", rollouts, "--dataset", dataset, *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = next(at for at, line in enumerate(lines) if line.startswith("ALMOST CORRECT"))
    assert "almost, problem p, m: wrong, with NCR 1.00" in lines[place]
    assert lines[place + 1].startswith("There are ⟦₁12*4=48₁⟧ eggs, ⟦₂48-6=42₂⟧ of them whole")
    assert "  node 3 not found: 42/2=21 (final answer)" in lines[place + 2 :]
    assert "  answer '14', ground truth '21'" in lines[place + 2 :]
    assert main(["diagnose", rollouts, "--dataset", dataset, *arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    [example] = said["examples"]["format_error"]
    assert example["rollout_id"] == "format"


def test_scored_rollouts_are_believed_and_read_leniently(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, dataset = files
    row = {"problem_id": "p", **ROLLOUTS[2], "acc": 0.0, "ncr": 2 / 3, "status": "OK"}
    row |= {"matched": [True, True, False], "spans": [[0, 5], [6, 9], None]}
    scored = tmp_path / "scored.jsonl"
    scored.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert main(["diagnose", str(scored), "--dataset", dataset, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["total"]["counts"]["format_error"] == 1


def test_answers_are_read_by_both_rules(files: tuple[str, str]) -> None:
    rollouts, dataset = files
    scored = score_files([rollouts], dataset)
    seen: list[int] = []
    readings = read_answers(scored, AnswerRule.DAPO, progress=seen.append)
    right, format_error, wrong = Reading(True, True), Reading(False, True), Reading(False, False)
    assert readings[:6] == [right, right, format_error, wrong, right, wrong]
    assert readings[7] == Reading(None, None)
    assert seen == [8]


def test_files_that_changed_in_between_are_told(files: tuple[str, str]) -> None:
    rollouts, dataset = files
    scored = score_files([rollouts], dataset)
    text = Path(rollouts).read_text(encoding="utf-8")
    for changed in (text.replace("in the end", "at last"), text + text, text.splitlines()[0]):
        Path(rollouts).write_text(changed, encoding="utf-8")
        with pytest.raises(DataError, match="has changed since its rollouts were scored"):
            read_answers(scored, AnswerRule.DAPO)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--almost-ncr", "2"], "almost_ncr (--almost-ncr): Input should be less than or equal"),
        (["--answer-rule", "loose"], "'loose' is not one of"),
    ],
)
def test_bad_usage_is_one_sentence_and_code_2(
    arguments: list[str],
    sentence: str,
    files: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rollouts, dataset = files
    assert main(["diagnose", rollouts, "--dataset", dataset, *arguments]) == 2
    [*_, error] = capsys.readouterr().err.splitlines()
    assert error.startswith("consensusbench: error: ") and sentence in error


@pytest.mark.parametrize("way", ["file", "environment", "option"])
def test_where_classes_begin_can_be_set(
    way: str,
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rollouts, dataset = files
    config = tmp_path / "diagnose.toml"
    arguments = ["diagnose", rollouts, "--dataset", dataset, "--json"]
    match way:
        case "file":
            config.write_text("[thresholds]\nalmost_hits = 3\n", encoding="utf-8")
            arguments += ["--config", str(config)]
        case "environment":
            monkeypatch.setenv("CONSENSUSBENCH_DIAGNOSE_THRESHOLDS_ALMOST_HITS", "3")
        case _:
            arguments += ["--almost-hits", "3"]
    assert main(arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["thresholds"]["almost_hits"] == 3
    assert said["total"]["counts"]["almost_correct"] == 0


def test_all_thresholds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--list-settings"]) == 0
    assert "# redundant_tail = 2.0" in capsys.readouterr().out


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--help"]) == 0
    assert "--answer-rule dapo" in " ".join(capsys.readouterr().out.split())
