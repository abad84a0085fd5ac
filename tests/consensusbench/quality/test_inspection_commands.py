"""``validate`` and ``stats`` as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consensusbench.cli import main

Write = Callable[..., Path]

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


def test_a_sound_dataset_passes(write_dataset: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(write_dataset(SOUND)), "--strict"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 problem with 2 nodes: 0 errors, 0 warnings, 0 notes"
    ]


def test_findings_are_a_table_and_a_line_each(
    write_dataset: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_dataset(FALSE, *(SOUND | {"problem_id": f"s{n}", "nodes": []} for n in range(5)))
    assert main(["validate", str(path), "--examples", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Severity", "Finding", "Count"]
    assert lines[1].split() == ["error", "false_equality", "1"]
    [false] = [line for line in lines if "6*8=49" in line]
    assert false.startswith(
        "error    false_equality  problems.jsonl:1 problem 'q' node 'x': '6*8=49' is false"
    )
    assert [line.strip() for line in lines if "more" in line] == ["4 more no_nodes"]
    assert lines[-1].startswith("6 problems with 2 nodes: 1 error, 5 warnings, ")


def test_a_text_is_no_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, output = tmp_path / "README.md", tmp_path / "found.jsonl"
    path.write_text("# Sums\n\nTwo of them.\n", encoding="utf-8")
    assert main(["validate", str(path), "--output", str(output), "--no-progress"]) == 2
    captured = capsys.readouterr()
    [error] = captured.err.splitlines()
    assert f"{path}: is no dataset: none of its 2 lines is a row (the first is not JSON" in error
    assert captured.out == "" and not output.exists()


def test_every_finding_is_a_row_of_the_output(
    write_dataset: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found.jsonl"
    rows = [FALSE | {"problem_id": f"q{n}"} for n in range(9)]
    arguments = ["--output", str(output), "--json"]
    assert main(["validate", str(write_dataset(*rows)), *arguments]) == 1
    said = json.loads(capsys.readouterr().out)
    written = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert said["ok"] is False
    assert said["severities"]["error"] == 9
    assert sum(finding["count"] for finding in said["findings"]) == len(written)
    assert written[0].keys() == {"severity", "code", "message", "line", "problem_id", "node_id"}
    assert [row["problem_id"] for row in written if row["code"] == "false_equality"] == [
        f"q{n}" for n in range(9)
    ]


def test_strict_fails_for_warnings(
    write_dataset: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_dataset(SOUND | {"nodes": []}))
    assert (main(["validate", path]), main(["validate", path, "--strict"])) == (0, 1)
    assert "0 errors, 1 warning" in capsys.readouterr().out


def test_notes_fail_nothing(write_dataset: Write) -> None:
    path = write_dataset(SOUND | {"nodes": [NODES[1], RARE]})
    assert main(["validate", str(path), "--strict"]) == 0


def test_bad_rows_are_findings_not_a_stop(
    write_dataset: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_dataset({"problem_id": 5}, SOUND, {"problem_id": "z", "split": "dev"})
    assert main(["validate", str(path)]) == 1
    captured = capsys.readouterr()
    assert "problems.jsonl:1: problem_id must be a string, got 5" in captured.out
    assert "problems.jsonl:3 problem 'z': split must be train or test" in captured.out
    assert captured.out.splitlines()[-1].startswith("1 problem with 2 nodes, 2 bad rows: 2 errors")


def test_probes_and_rollouts_are_shown(
    write_dataset: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts = write_dataset(
        {"problem_id": "p", "response": "12*4=48, so 48-6=42 are left", "num_tokens": 14},
        {"problem_id": "p", "response": "no idea"},
        name="rollouts.jsonl",
    )
    path = str(write_dataset(SOUND))
    assert main(["validate", path, "--rollouts", str(rollouts), "--probes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "1 problem with 2 nodes, 2 rollouts: 0 errors, 0 warnings, 0 notes" in lines
    [echo] = [line.split() for line in lines if line.startswith("echo")]
    assert echo[:4] == ["echo", "sums", "1", "0.00"]
    [density] = [line.split() for line in lines if line.startswith("sums")]
    assert density[1:3] == ["2", "50.00"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["validate"], "Missing argument 'DATASET'"),
        (["validate", "none.jsonl"], "none.jsonl: no such file"),
        (["validate", "none.jsonl", "--max-unrelated", "2"], "should be less than or equal to 1"),
        (["stats"], "Missing argument 'DATASET...'"),
        (["stats", "none.jsonl"], "none.jsonl: no such file"),
    ],
)
def test_bad_usage_is_one_sentence_and_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    [*_, error] = capsys.readouterr().err.splitlines()
    assert error.startswith("consensusbench: error: ") and sentence in error


def test_a_bad_row_of_rollouts_stops_or_is_skipped(
    write_dataset: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = str(write_dataset(SOUND))
    rollouts = str(
        write_dataset({"problem_id": "p"}, {"problem_id": "p", "response": ""}, name="r.jsonl")
    )
    assert main(["validate", dataset, "--rollouts", rollouts]) == 2
    assert "r.jsonl:1: response is missing" in capsys.readouterr().err
    assert main(["validate", dataset, "--rollouts", rollouts, "--on-error", "skip"]) == 0


def test_stats_shows_the_composition(
    write_dataset: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_dataset(SOUND, FALSE, SOUND | {"problem_id": "e", "nodes": []}))
    csv, latex = tmp_path / "s.csv", tmp_path / "s.tex"
    assert main(["stats", path, "--csv", str(csv), "--latex", str(latex)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["sums", "2", "2.00", "4", "2", "(100.0", "%)", "1"]
    assert [line.split()[:3] for line in lines if line.startswith("Total")] == [
        ["Total", "(Test)", "2"]
    ]
    assert csv.exists() and r"\toprule" in latex.read_text(encoding="utf-8")
    assert main(["stats", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["problems"] == 2


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("validate", "stats"):
        assert main([command, "--help"]) == 0
        assert f"consensusbench {command} dataset.jsonl" in capsys.readouterr().out
