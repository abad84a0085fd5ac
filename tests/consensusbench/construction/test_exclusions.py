"""Which problems and rollouts do not count, and how that is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import SelectionSettings, build
from tests.consensusbench.construction.conftest import (
    ToyRefiner,
    job,
    many,
    read_rows,
    rollout_row,
    with_columns,
    write_rows,
)


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        ({"ground_truth": None}, "no_ground_truth", "its ground truth is not known"),
        (
            {"ground_truth": "12345"},
            "few_correct",
            "0 of 6 distinct rollouts are correct, the least is 3",
        ),
        ({"problem_id": "other"}, "no_rollouts", "there is no rollout of it"),
        ({"problem": "SPIN"}, "time_limit", "took more than 0.3 s of processor time"),
    ],
)
def test_a_problem_that_cannot_be_used_is_excluded_by_name(
    tmp_path: Path, change: dict[str, Any], reason: str, detail: str
) -> None:
    problems, rollouts = many(3)
    problems[1] |= change
    report = build(
        job(
            tmp_path,
            write_rows(tmp_path / "r.jsonl", rollouts),
            problems=write_rows(tmp_path / "p.jsonl", problems),
            time_limit_s=0.3,
        )
    )
    assert dict(report.problems.excluded) == {reason: 1}
    assert len(read_rows(tmp_path / "dataset.jsonl")) == 2
    [excluded] = [
        row for row in read_rows(tmp_path / "dataset.audit.jsonl") if row["what"] == "problem"
    ]
    assert (excluded["problem_id"], excluded["reason"], excluded["detail"]) == (
        problems[1]["problem_id"], reason, detail,
    )  # fmt: skip


def test_a_problem_with_too_few_nodes_is_excluded_with_those_it_has(tmp_path: Path) -> None:
    problems, rollouts = many(2)
    for row in rollouts[:6]:
        row["response"] = row["response"].replace("2*1=2", "twice 1 is 2")
    report = build(
        job(
            tmp_path,
            write_rows(tmp_path / "r.jsonl", rollouts),
            problems=write_rows(tmp_path / "p.jsonl", problems),
            refiner=ToyRefiner(min_nodes=2),
        )
    )
    assert dict(report.problems.excluded) == {"few_nodes": 1}
    assert report.problems.examples["few_nodes"] == "'p0001': 1 node is left, the least is 2"
    found = [
        (row["what"], row["label"])
        for row in read_rows(tmp_path / "dataset.audit.jsonl")
        if row["reason"] == "few_nodes"
    ]
    assert found == [("node", "2+1=3"), ("problem", None)]


def test_rows_that_conflict_are_named(tmp_path: Path) -> None:
    problems, rollouts = many(3)
    rows = read_rows(
        with_columns(
            write_rows(tmp_path / "r.jsonl", rollouts), write_rows(tmp_path / "p.jsonl", problems)
        )
    )
    rows[0]["ground_truth"] = "17"  # of p0001
    rows[7]["problem"] += " Say it twice."  # of p0002
    rows[13]["data_source"] = "toy/other"  # of p0003, which is used all the same
    rows[14]["problem"] = rows[14]["problem"].replace(" ", "  ")  # white space is no conflict
    report = build(job(tmp_path, write_rows(tmp_path / "rows.jsonl", rows)))
    audit = {
        row["problem_id"]: row["detail"]
        for row in read_rows(tmp_path / "dataset.audit.jsonl")
        if row["what"] == "problem"
    }
    assert audit == {
        "p0001": "ground_truth is '17' in one row and '3' in another",
        "p0002": "problem is 'What is twice 2, and one more?' in one row and "
        "'What is twice 2, and one more? Say it twice.' in another",
    }
    assert report.warnings() == [
        "1 problem has rollouts of several data sources, of which the first in the alphabet is "
        "taken (first: 'toy/odd' and 'toy/other' for problem 'p0003')"
    ]
    assert read_rows(tmp_path / "dataset.jsonl")[0]["data_source"] == "toy/odd"


def test_another_ground_truth_than_the_listed_one_is_said(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    problems, rollouts = files
    rows = read_rows(rollouts)
    rows[3]["ground_truth"] = "4"
    rows[4]["ground_truth"] = " 3 "
    report = build(job(tmp_path, write_rows(rollouts, rows), problems=problems))
    assert report.warnings() == [
        "1 rollout names another ground truth than the file of problems, which counts "
        "(first: '4' instead of '3' for problem 'p0001')"
    ]
    assert report.problems.written.total() == 6


def test_every_rollout_is_accounted_for(tmp_path: Path) -> None:
    problems, rollouts = many(4)
    problems[2]["ground_truth"] = None
    rollouts += [
        rollout_row(1, "ada", 0),  # its text was changed above: once more, correct
        rollout_row(1, "bea", 0, rollout_id="again"),
        rollout_row(9, "ada", 0),
        rollout_row(2, "cyd", 7, response="x" * (1 << 20) + "\\boxed{5}"),
        rollout_row(2, "cyd", 8, response="I do not know."),
        rollout_row(2, "bea", 9),
    ]
    rows = [row for row in rollouts if row["model"] != "bea"]
    report = build(
        job(
            tmp_path,
            write_rows(tmp_path / "r.jsonl", rollouts),
            problems=write_rows(tmp_path / "p.jsonl", problems),
            selection=SelectionSettings(exclude_models=("bea",), min_rollouts=1),
        )
    )
    counts = report.rollouts
    assert counts is not None
    assert counts.to_json() == {
        "read": len(rollouts),
        "skipped": 0,
        "other_model": len(rollouts) - len(rows),
        "unknown_problem": 1,
        "oversize": 1,
        "unusable_problem": 4,
        "repeated": 0,
        "incorrect": 4,
        "undecided": 0,
        "correct": 10,
        "used": 10,
    }
    total = sum(value for key, value in counts.to_json().items() if key not in ("read", "used"))
    assert total == counts.read


def test_a_repeated_text_counts_once(tmp_path: Path) -> None:
    problems, rollouts = many(1)
    copies = [row | {"rollout_id": f"copy-{number}"} for number, row in enumerate(rollouts)]
    report = build(
        job(
            tmp_path,
            write_rows(tmp_path / "r.jsonl", rollouts + copies),
            problems=write_rows(tmp_path / "p.jsonl", problems),
        )
    )
    assert report.rollouts is not None
    assert (report.rollouts.repeated, report.rollouts.correct) == (6, 5)


def test_labels_are_trusted_where_asked_for(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    rows = read_rows(rollouts)
    for row in rows:  # nothing that could be verified
        row["response"] = row["response"].partition("\\boxed")[0]
    rows[1]["correct"] = None
    report = build(
        job(
            tmp_path,
            write_rows(rollouts, rows),
            problems=problems,
            selection=SelectionSettings(trust_labels=True),
        )
    )
    assert report.rollouts is not None
    assert report.rollouts.to_json() | {"read": 0, "used": 0} == {
        "read": 0, "skipped": 0, "other_model": 0, "unknown_problem": 0, "oversize": 0,
        "unusable_problem": 0, "repeated": 0, "incorrect": 6, "undecided": 1, "correct": 29,
        "used": 0,
    }  # fmt: skip
    [first, *_] = read_rows(tmp_path / "dataset.jsonl")
    selection = first["metadata"]["construction"]["provenance"]["selection"]
    assert selection["correct"] == "labels"
