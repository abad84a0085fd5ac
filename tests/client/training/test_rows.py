"""Which problem of the dataset a trainer's sample belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consensuspr.client import GuardBudget, InlineNode
from consensuspr.client.training import ProblemIds, TrainingRow, prompt_digest
from consensuspr.client.training.rows import ground_truth_text
from consensuspr.errors import InputError

PROMPT = [{"role": "user", "content": "What is 6 * 7?"}]

FORMAT = "{data_source}/{index}"


@pytest.mark.parametrize(
    ("format", "data_source", "extra_info", "problem_id"),
    [
        (FORMAT, "gsm8k", {"problem_id": "p1", "index": 3}, "p1"),
        (FORMAT, None, {"problem_id": "p1"}, "p1"),
        (FORMAT, "gsm8k", {"index": 3}, "gsm8k/3"),
        (FORMAT, "gsm8k", {"index": 0}, "gsm8k/0"),
        (FORMAT, "math_dapo", {"index": "9a9b6eb4"}, "math_dapo/9a9b6eb4"),
        ("{data_source}/{split}/{index}", "gsm8k", {"index": 3, "split": "test"}, "gsm8k/test/3"),
        ("{index}", None, {"index": 3}, "3"),
        (FORMAT, "gsm8k", {}, prompt_digest(PROMPT)),
        (FORMAT, "gsm8k", {"index": None}, prompt_digest(PROMPT)),
        (FORMAT, "gsm8k", {"index": ""}, prompt_digest(PROMPT)),
    ],
)
def test_the_first_that_the_row_has(
    format: str, data_source: str | None, extra_info: dict[str, Any], problem_id: str
) -> None:
    assert ProblemIds(format).of(data_source, extra_info, PROMPT) == problem_id


@pytest.mark.parametrize(
    ("data_source", "extra_info", "prompt", "sentence"),
    [
        ("gsm8k", {"problem_id": ""}, PROMPT, "problem_id must be a text that is not empty"),
        ("gsm8k", {"problem_id": 7}, PROMPT, "problem_id must be a text .*got 7"),
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
    budget = {"statements": np.int64(1), "numbers": 99, "length": None}
    sent = row(nodes=nodes, budget=budget).rollout("text", ProblemIds(FORMAT))
    assert sent.nodes == [InlineNode(["1=1"], weight=0.75), InlineNode(["1=2"])]
    assert sent.budget == GuardBudget(1, 99, 0)
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
            ({"budget": budget}, r"extra_info.budget must be \{statements, numbers\} or")
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
        with pytest.raises(InputError, match="t must be a text, got"):
            ground_truth_text(truth, "t")
