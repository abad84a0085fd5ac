"""Which problem of the dataset a trainer's sample belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consensuspr.client import GuardBudget, InlineNode
from consensuspr.client.training import (
    ProblemIds,
    TrainingRow,
    batch_rows,
    label_columns,
    prompt_digest,
)
from consensuspr.client.training.rows import ground_truth_text
from consensuspr.errors import InputError

PROMPT = [{"role": "user", "content": "What is 6 * 7?"}]

FORMAT = "{data_source}/{index}"


def rollout_of(
    columns: dict[str, Any], format: str | None = FORMAT, column: str = "ground_truth"
) -> Any:
    [row] = batch_rows([PROMPT], {name: [value] for name, value in columns.items()}, column)
    return row.rollout("A.", ProblemIds(format))


@pytest.mark.parametrize(
    ("format", "columns", "problem_id"),
    [
        (FORMAT, {"data_source": "gsm8k", "extra_info": {"problem_id": "p1", "index": 3}}, "p1"),
        (FORMAT, {"extra_info": {"problem_id": "p1"}, "problem_id": "mine"}, "mine"),
        (FORMAT, {"extra_info": {"problem_id": "p1"}, "problem_id": None}, "p1"),
        (FORMAT, {"data_source": "gsm8k", "index": 0}, "gsm8k/0"),
        (FORMAT, {"data_source": "gsm8k", "extra_info": {"index": "9a9b6eb4"}}, "gsm8k/9a9b6eb4"),
        ("{split}/{index}", {"index": 3, "split": "test"}, "test/3"),
        ("{index}", {"index": 3}, "3"),
        (FORMAT, {"data_source": "gsm8k", "index": 3, "split": "test"}, "gsm8k/3"),
        (None, {"data_source": "gsm8k", "index": 3, "split": "train"}, "gsm8k/3"),
        (None, {"data_source": "gsm8k", "index": 3, "split": "test"}, "gsm8k/test/3"),
        (FORMAT, {"data_source": "gsm8k", "index": ""}, prompt_digest(PROMPT)),
        (FORMAT, {}, prompt_digest(PROMPT)),
    ],
)
def test_the_first_that_the_row_has(
    format: str | None, columns: dict[str, Any], problem_id: str
) -> None:
    assert rollout_of(columns, format).problem_id == problem_id


@pytest.mark.parametrize(
    ("columns", "ground_truth"),
    [
        ({}, None),
        ({"ground_truth": 4.0}, "4"),
        ({"ground_truth": None, "reward_model": {"ground_truth": "4"}}, "4"),
        ({"answer": "2+2=4 #### 4", "solution": "..."}, None),  # not unless it is named
    ],
)
def test_the_ground_truth(columns: dict[str, Any], ground_truth: str | None) -> None:
    assert rollout_of(columns).ground_truth == ground_truth


@pytest.mark.parametrize("label", [None, ""])
def test_a_missing_label_leaves_the_ground_truth_of_other_columns(label: str | None) -> None:
    row = TrainingRow.of({"ground_truth": "4", **label_columns(label)}, PROMPT)
    assert row.ground_truth == "4"


def test_the_ground_truth_of_a_column_that_is_named() -> None:
    columns = {"answer": "4", "ground_truth": "5"}
    assert rollout_of(columns, column="answer").ground_truth == "4"
    with pytest.raises(InputError, match=r"no column 'answer' \(ground_truth_column\)"):
        rollout_of({}, column="answer")
    # An argument of the trainer is no column.
    [row] = batch_rows(["Q"], {"environments": object(), "problem_id": ["p"], "index": "7"})
    assert row.rollout("A", ProblemIds("{index}")).problem_id == "p"


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"ground_truth": True}, "ground_truth must be a string, got True"),
        ({"ground_truth": ["4"]}, "ground_truth must be a string"),
        ({"data_source": 7}, "data_source must be a string, got 7"),
        ({"extra_info": "p1"}, "extra_info must be a mapping, got 'p1'"),
        ({"nodes": "1+1=2"}, "nodes must be a list"),
    ],
)
def test_columns_of_a_wrong_type_are_rejected(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        rollout_of(columns)


@pytest.mark.parametrize(
    ("data_source", "extra_info", "prompt", "sentence"),
    [
        ("gsm8k", {"problem_id": ""}, PROMPT, "problem_id must be a string that is not empty"),
        ("gsm8k", {"problem_id": 7}, PROMPT, "problem_id must be a string .*got 7"),
        (None, {"index": 3}, PROMPT, "index 3 names no problem without data_source"),
        ("", {"index": 3}, PROMPT, "names no problem without data_source"),
        ("gsm8k", {}, None, "neither problem_id nor index, and there is no prompt"),
        ("gsm8k", {}, [], "there is no prompt"),
    ],
)
def test_a_row_that_names_no_problem_is_refused(
    data_source: str | None, extra_info: dict[str, Any], prompt: Any, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        ProblemIds(FORMAT).of(data_source, extra_info, prompt)


def test_an_index_that_names_two_problems_is_refused() -> None:
    ids = ProblemIds(FORMAT)
    other = [{"role": "user", "content": "What is 7 * 8?"}]
    assert ids.of("gsm8k", {"index": 3}, PROMPT) == "gsm8k/3"
    assert ids.of("gsm8k", {"index": 3}, PROMPT) == "gsm8k/3"
    assert ids.of("gsm8k", {"index": 4}, other) == "gsm8k/4"
    with pytest.raises(InputError, match=r"'gsm8k/3', .* has come with two prompts"):
        ids.of("gsm8k", {"index": 3}, other)


def row(**extra_info: Any) -> TrainingRow:
    return TrainingRow("toy", "18", {"problem_id": "p", **extra_info}, None)


def test_nodes_and_budget_come_with_the_row() -> None:
    nodes = [{"expressions": ["1=1"], "weight": 0.75, "derived": None}, ("1=2",)]
    budget = {"statements": np.int64(1), "numbers": 99, "length": None, "equations": 7}
    sent = row(nodes=nodes, budget=budget).rollout("text", ProblemIds(FORMAT))
    assert sent.nodes == [InlineNode(["1=1"], weight=0.75), InlineNode(["1=2"])]
    assert sent.budget == GuardBudget(1, 99, 0, 7)
    without = dict.fromkeys(budget)
    assert row(budget=without).rollout("text", ProblemIds(FORMAT)).budget is None


@pytest.mark.parametrize(
    ("extra_info", "sentence"),
    [
        *(
            ({"nodes": nodes}, "extra_info.nodes must be a list of")
            for nodes in ("1=1", ["1=1"], [{"node_id": "a"}], [[1]], 7)
        ),
        *(
            ({"budget": budget}, r"extra_info.budget must be \{statements, numbers\}, and")
            for budget in (3, {"statements": 3}, {"statements": 3, "numbers": "9"})
        ),
    ],
)
def test_nodes_and_budgets_of_another_shape_are_rejected(
    extra_info: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        row(**extra_info).rollout("text", ProblemIds(FORMAT))


def test_a_ground_truth_is_a_text_or_a_number() -> None:
    assert [ground_truth_text(truth, "t") for truth in (18, 18.0, "18", 0.5, None)] == [
        *("18", "18", "18", "0.5", None)
    ]
    for truth in (True, [18], float("nan")):
        with pytest.raises(InputError, match="t must be a string, got"):
            ground_truth_text(truth, "t")
