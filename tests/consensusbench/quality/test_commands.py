"""``validate``, ``stats`` and ``diagnose`` as a person types them, on real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consensusbench.evaluation.scored import score_files
from consensusbench.quality.diagnose import Reading, read_answers
from consensuspr.scoring.types import AnswerRule
from tests.commands import Run
from tests.consensusbench.conftest import WriteDataset
from tests.rows import read_rows, write_rows

NODES = [
    {"node_id": "n1", "expressions": ["12*4=48"], "derived": ["48=12*4", "4*12=48", "48=4*12"]},
    {"node_id": "n2", "expressions": ["48-6=42"], "derived": ["42=48-6"], "is_final": True},
]
SOUND: dict[str, Any] = {
    "problem_id": "p",
    "data_source": "sums",
    "problem": "A dozen boxes hold 4 eggs each; six break.",
    "ground_truth": "42",
    "nodes": NODES,
    "split": "test",
}
WRONG = {"node_id": "x", "expressions": ["6*8=49"], "derived": []}
FALSE = SOUND | {"problem_id": "q", "nodes": [NODES[1], WRONG]}
RARE = {"node_id": "x", "expressions": ["a = 1/2"], "support": 1}


def test_a_sound_dataset_passes(run: Run, write_dataset: WriteDataset) -> None:
    code, out, _ = run("validate", write_dataset(SOUND), "--strict")
    assert (code, out) == (0, "1 problem with 2 nodes: 0 errors, 0 warnings, 0 notes\n")


def test_findings_are_counted_and_a_line_each(run: Run, write_dataset: WriteDataset) -> None:
    long = FALSE | {
        "problem_id": "p" * 99,
        "nodes": [*NODES, WRONG | {"expressions": ["1*1=" * 99]}],
    }
    path = write_dataset(
        FALSE, long, *(SOUND | {"problem_id": f"s{n}", "nodes": []} for n in range(5))
    )
    code, out, _ = run("validate", path, "--examples", "1")
    lines = out.splitlines()
    assert code == 1
    assert lines[:2] == [
        "error    false_equality  1 of 5 nodes (20.0%)",
        "         q x has a false expression: 6*8=49",
    ]
    assert "warning  no_nodes  5 of 7 problems (71.4%)" in lines
    assert [line.strip() for line in lines if "more" in line] == ["and 4 more"]
    assert max(map(len, lines)) == 100
    assert lines[-1].startswith("7 problems with 5 nodes: 1 error, ")


def test_every_finding_is_a_row_of_the_output(
    run: Run, write_dataset: WriteDataset, tmp_path: Path
) -> None:
    output = tmp_path / "found.jsonl"
    path = write_dataset(*(FALSE | {"problem_id": f"q{n}"} for n in range(9)))
    code, out, _ = run("validate", path, "--output", output, "--json")
    result = json.loads(out)
    written = read_rows(output)
    assert (code, result["ok"], result["severities"]["error"]) == (1, False, 9)
    assert sum(finding["count"] for finding in result["findings"]) == len(written)
    names = {"severity", "code", "message", "line", "problem_id", "node_id", "text"}
    assert written[0].keys() == names
    false = [row["problem_id"] for row in written if row["code"] == "false_equality"]
    assert false == [f"q{n}" for n in range(9)]


def test_probes_and_rollouts_are_shown(run: Run, write_dataset: WriteDataset) -> None:
    rollouts = write_dataset(
        {"problem_id": "p", "response": "12*4=48, so 48-6=42 are left", "num_tokens": 14},
        {"problem_id": "p", "response": "no idea. Answer: 42"},
        name="rollouts.jsonl",
    )
    code, out, _ = run("validate", write_dataset(SOUND), "--rollouts", rollouts, "--probes")
    lines = out.splitlines()
    assert code == 0
    assert (
        "1 problem with 2 nodes, 2 rollouts (0 of problems that the dataset does not have), "
        "too few held-out right ones to check never_matched: 0 errors, 0 warnings, 0 notes"
    ) in lines
    assert sum(line.startswith(("letters ", "sums ", "grid ", "values ")) for line in lines) == 4
    [deep] = [line.split() for line in lines if line.startswith("deep")]
    assert deep[:3] == ["deep", "sums", "1"]


def test_a_bad_row_of_rollouts_stops_or_is_skipped(run: Run, write_dataset: WriteDataset) -> None:
    rows = {"problem_id": "p"}, {"problem_id": "p", "response": ""}
    rollouts = write_dataset(*rows, name="r.jsonl")
    arguments = ["validate", write_dataset(SOUND), "--rollouts", rollouts]
    code, _, err = run(*arguments)
    assert code == 2 and "r.jsonl:1: response is missing" in err
    assert run(*arguments, "--on-error", "skip")[0] == 0


def test_stats_shows_the_composition(run: Run, write_dataset: WriteDataset, tmp_path: Path) -> None:
    path = write_dataset(SOUND, FALSE, SOUND | {"problem_id": "e", "nodes": []})
    latex = tmp_path / "s.tex"
    code, out, _ = run("stats", path, "--latex", latex)
    lines = out.splitlines()
    assert (code, lines[2].split()) == (0, ["sums", "2", "2.00", "4", "2", "(100.0", "%)", "1"])
    [total] = [line.split()[:3] for line in lines if line.startswith("Total")]
    assert total == ["Total", "(Test)", "2"]
    assert r"sums & 2 & 2.00 & 4 & 2 & 1 \\" in latex.read_text(encoding="utf-8")
    assert json.loads(run("stats", path, "--json")[1])["overall"]["problems"] == 2


EGGS: dict[str, Any] = {
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
RESPONSES = {
    "sound": f"{PATH}, and 42/2=21 are sold.\nAnswer: 21",
    "sound2": f"{PATH}; half is 42/2=21, sold.\nAnswer: 21",
    "format": f"{PATH}, so the half that was sold in the end is 21.",
    "almost": f"{PATH}, and 42/3=14 are sold.\nAnswer: 14",
    "direct": "Answer: 21",
    "wrong": "I guess it is so.\nAnswer: 3",
    "long": "Let me think again. " * 99 + PATH + "\nAnswer: 21",
    "stranger": "Answer: 21",
}
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
def files(write_dataset: WriteDataset) -> tuple[Path, Path]:
    """A file of rollouts, one of a problem that is not there, and their dataset."""
    rows = [
        {"problem_id": "p", "model": "m", "rollout_id": name, "response": response}
        for name, response in RESPONSES.items()
    ]
    rows[-1]["problem_id"] = "unheard-of"
    return write_dataset(*rows, name="rollouts.jsonl"), write_dataset(EGGS)


@pytest.fixture
def diagnose(run: Run, files: tuple[Path, Path]) -> Run:
    """Run ``diagnose`` on these files, with further arguments."""
    return lambda *arguments: run("diagnose", files[0], "--dataset", files[1], *arguments)


def test_rows_are_written_with_their_class(diagnose: Run, tmp_path: Path) -> None:
    output = tmp_path / "diagnosed.jsonl"
    code, out, _ = diagnose("--answer-rule", "dapo", "--output", output)
    rows = read_rows(output)
    assert code == 0
    assert {row["rollout_id"]: row["diagnosis"] for row in rows} == CLASSES
    assert [row["response"] for row in rows] == list(RESPONSES.values())
    assert all(row["diagnosis_reason"] for row in rows)
    lines = out.splitlines()
    assert lines[1].startswith("Model · data source")
    [known] = [line.split() for line in lines if line.startswith("m · sums ")]
    assert known[:6] == ["m", "·", "sums", "7", "2", "(29%)"]


def test_rule_auto_knows_no_format_errors_and_says_so(diagnose: Run) -> None:
    result = json.loads(diagnose("--json")[1])
    assert result["total"]["counts"]["format_error"] == 0
    assert "--answer-rule dapo" in diagnose()[1]


def test_examples_are_listed_with_their_reason(diagnose: Run) -> None:
    arguments = ["--answer-rule", "dapo", "--examples", "1"]
    lines = [" ".join(line.split()) for line in diagnose(*arguments)[1].splitlines()]
    assert any(line.startswith("almost correct almost m wrong, with NCR 1.00") for line in lines)
    [example] = json.loads(diagnose(*arguments, "--json")[1])["examples"]["format_error"]
    assert example["rollout_id"] == "format"


def test_scored_rollouts_are_believed_and_read_leniently(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    row = {"problem_id": "p", "response": RESPONSES["format"], "acc": 0.0, "ncr": 2 / 3}
    row |= {"status": "OK", "matched": [True, True, False], "spans": [[0, 5], [6, 9], None]}
    scored = write_rows(tmp_path / "scored.jsonl", [row])
    result = json.loads(run("diagnose", scored, "--dataset", files[1], "--json")[1])
    assert result["total"]["counts"]["format_error"] == 1


def test_answers_are_read_by_both_rules(files: tuple[Path, Path]) -> None:
    scored = score_files(files[:1], files[1])
    seen: list[int] = []
    readings = read_answers(scored, AnswerRule.DAPO, progress=seen.append)
    right, format_error, wrong = Reading(True, True), Reading(False, True), Reading(False, False)
    assert readings[:6] == [right, right, format_error, wrong, right, wrong]
    assert readings[7] == Reading(None, None)
    assert seen == [8]


def test_thresholds_can_be_set_and_are_listed(diagnose: Run, run: Run) -> None:
    code, out, _ = diagnose("--almost-hits", "3", "--json")
    result = json.loads(out)
    assert (code, result["thresholds"]["almost_hits"]) == (0, 3)
    assert result["total"]["counts"]["almost_correct"] == 0
    code, out, _ = run("diagnose", "--list-settings")
    assert code == 0 and "# redundant_tail = 2.0" in out
