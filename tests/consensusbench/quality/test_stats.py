"""What a dataset is made of, against counts made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consensusbench.quality.stats import DatasetStats, composition_table, read_stats
from consensuspr.data import Problem
from consensuspr.errors import DataError

Write = Callable[..., Path]


def rows() -> list[dict[str, Any]]:
    equation = {"expressions": ["1+1=2", "2=1+1"], "type": "equation", "derived": ["x"]}
    final = {"expressions": ["2"], "type": "value", "support": 3, "is_final": True}
    return [
        {
            "problem_id": "a",
            "data_source": "MATH_500",
            "problem": "?",
            "ground_truth": "2",
            "split": "test",
            "nodes": [equation, final],
            "metadata": {"level": 3},
        },
        {
            "problem_id": "b",
            "data_source": "MATH_500",
            "problem": "?",
            "ground_truth": "2",
            "split": "test",
            "nodes": [equation, equation, equation],
            "metadata": {"level": "Level 5"},
        },
        {"problem_id": "c", "data_source": "DAPO", "split": "train", "nodes": [final]},
        {"problem_id": "d", "data_source": "DAPO", "split": "train", "nodes": []},
        {"problem_id": "e", "data_source": "", "nodes": [equation], "ground_truth": "1"},
    ]


@pytest.fixture
def stats(write_dataset: Write) -> DatasetStats:
    return read_stats([write_dataset(*rows())])


def test_averages_are_over_problems_with_nodes(stats: DatasetStats) -> None:
    test, train = stats.by_split["test"], stats.by_split["train"]
    assert (test.counts["problems"], test.average_nodes) == (2, 2.5)
    assert (train.counts["problems"], train.counts["without_nodes"]) == (1, 1)
    assert (train.average_nodes, stats.overall.average_nodes) == (1.0, 7 / 4)


def test_distributions_and_shares(stats: DatasetStats) -> None:
    result = json.loads(json.dumps(stats.to_json()))["overall"]
    wanted = {
        "types": {"equation": 5, "value": 2},
        "expressions_per_node": {"1": 2, "2": 5},
        "derived_per_node": {"1": 5},
        "support": {"3": 2},
        "difficulty": {"hard": 1, "medium": 1, "unknown": 3},
    }
    assert {key: result[key] for key in wanted} == wanted
    counts = ("problems", "with_final", "only_final", "nodes", "final_nodes")
    assert [result[key] for key in counts] == [4, 2, 1, 7, 2]


def test_bad_rows_stop_or_are_counted(write_dataset: Write) -> None:
    path = write_dataset(rows()[0], {"problem_id": 4})
    with pytest.raises(DataError, match=":2: problem_id must be a string"):
        read_stats([path])
    assert read_stats([path], "skip").to_json()["skipped_rows"] == 1


def test_latex_is_the_table_of_the_paper(stats: DatasetStats) -> None:
    stats.add(Problem(problem_id="q", data_source="[a]<b>|"))
    lines = composition_table(stats).to_latex().splitlines()
    assert [line.split(" & ")[:3] for line in lines if " & " in line] == [
        ["Source", r"\#Problems", "Avg. N(k)"],
        [r"MATH\_500", "2", "2.50"],
        ["DAPO", "1", "1.00"],
        ["(none)", "1", "1.00"],
        [r"{[}a{]}\textless{}b\textgreater{}\textbar{}", "0", "--"],
        [r"\textbf{Total (Test)}", r"\textbf{2}", r"\textbf{2.50}"],
        [r"\textbf{Total (Train)}", r"\textbf{1}", r"\textbf{1.00}"],
        [r"\textbf{Total (no split)}", r"\textbf{1}", r"\textbf{1.00}"],
    ]
