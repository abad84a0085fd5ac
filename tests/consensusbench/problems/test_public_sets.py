"""The public sets themselves, where copies of them are at hand: known repetitions are found."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest

from consensusbench.problems.dedup import ProblemStatus, SourcesReport, collect_problems
from consensusbench.problems.sources import source_input
from consensuspr.data import read_problems

FILES = {
    "gsm8k": "gsm8k_test",
    "gsm8k-train": "gsm8k_train",
    "math-500": "math500",
    "aime-2024": "aime2024",
    "dapo-math-17k": "dapo_math_17k",
}


@pytest.fixture(scope="module")
def folder(shared_dir: Path) -> Path:
    found = shared_dir / "data" / "problems"
    if not found.is_dir():
        pytest.skip("the outside data have no problems")
    return found


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("public") / "problems.jsonl"


@pytest.fixture(scope="module")
def report(folder: Path, output: Path) -> SourcesReport:
    inputs = [source_input(f"{name}={folder / file}.jsonl.gz") for name, file in FILES.items()]
    return collect_problems(inputs, output)


def test_all_are_read(report: SourcesReport) -> None:
    read = [origin.read.rows for origin in report.inputs]
    assert read == [1319, 7473, 500, 30, 17917]
    assert [statuses[ProblemStatus.WRITTEN] for statuses in report.statuses[:4]] == read[:4]


def test_dapo_repeats_and_conflicts(report: SourcesReport, folder: Path, output: Path) -> None:
    by_text = defaultdict(set)
    with gzip.open(folder / "dapo_math_17k.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            by_text[row["problem"]].add(row["ground_truth"])
    # What a comparison letter by letter finds …
    conflicting = {text for text, answers in by_text.items() if len(answers) > 1}
    assert (17917 - len(by_text), len(conflicting)) == (627, 11)
    # … is found, and the copies that are typeset otherwise besides.
    statuses = report.statuses[4]
    assert statuses[ProblemStatus.REPEATED] >= 627
    assert report.conflicting_texts == 20
    written = [p.problem for p in read_problems(output) if p.data_source == "math_dapo"]
    assert not conflicting & set(written)
    assert len(written) == len(set(written)) == statuses[ProblemStatus.WRITTEN]


def test_dapo_shares_problems_with_math_500_and_none_with_aime_2024(report: SourcesReport) -> None:
    assert {pair: len(ids) for pair, ids in report.leaked_tests.items()} == {
        ("dapo-math-17k", "math-500"): 7
    }
    assert all(leak.ground_truth == leak.test_ground_truth for leak in report.leaks)
