"""Copies of the public sets: known repetitions, conflicts and leaks are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensusbench.problems.dedup import ProblemStatus, collect_problems
from consensusbench.problems.sources import source_input
from consensuspr.data import read_problems

FILES = {
    "gsm8k": "gsm8k_test",
    "math-500": "math500",
    "aime-2024": "aime2024",
    "dapo-math-17k": "dapo_math_17k",
}


def test_repetitions_conflicts_and_leaks_of_dapo(shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / "data" / "problems"
    if not folder.is_dir():
        pytest.skip("the outside data have no problems")
    inputs = [source_input(f"{name}={folder / file}.jsonl.gz") for name, file in FILES.items()]
    output = tmp_path / "problems.jsonl"
    report = collect_problems(inputs, output)
    read = [origin.read.rows for origin in report.inputs]
    assert read == [1319, 500, 30, 17917]
    assert [statuses[ProblemStatus.WRITTEN] for statuses in report.statuses[:3]] == read[:3]
    # A comparison letter by letter finds 627 repetitions and 11 texts with two answers.
    assert report.statuses[3][ProblemStatus.REPEATED] == 1268
    assert report.conflicting_texts == 20
    written = [p.problem for p in read_problems(output) if p.data_source == "math_dapo"]
    assert len(written) == len(set(written)) == report.statuses[3][ProblemStatus.WRITTEN]
    assert report.leaked == {("dapo-math-17k", "math-500"): 8}
    assert len({case.get("test_problem_id") for case in report.cases} - {None}) == 7
