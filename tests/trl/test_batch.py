"""From TRL's columns to rollouts."""

from __future__ import annotations

from typing import Any

import pytest

from consensuspr.client.training import ProblemIds, batch_rows, prompt_digest
from consensuspr.errors import InputError
from consensuspr.scoring.types import Rollout


def rollout_of(prompt: Any = "Q?", column: str = "ground_truth", **row: Any) -> Rollout:
    columns = {name: [value] for name, value in row.items()}
    [found] = batch_rows([prompt], columns, column)
    return found.rollout("A.", ProblemIds("{data_source}/{index}"), 3)


@pytest.mark.parametrize(
    ("row", "problem_id"),
    [
        ({"problem_id": "p"}, "p"),
        ({"problem_id": "p", "index": 3, "data_source": "toy"}, "p"),
        ({"index": 3, "data_source": "toy"}, "toy/3"),
        ({"extra_info": {"problem_id": "p"}}, "p"),
        ({"extra_info": {"problem_id": "p"}, "problem_id": "mine"}, "mine"),
        ({"extra_info": {"index": 3}, "data_source": "toy"}, "toy/3"),
        ({}, prompt_digest("Q?")),
    ],
)
def test_which_problem(row: dict[str, Any], problem_id: str) -> None:
    assert rollout_of(**row).problem_id == problem_id


@pytest.mark.parametrize(
    ("row", "ground_truth"),
    [
        ({}, None),
        ({"ground_truth": "4"}, "4"),
        ({"ground_truth": 4}, "4"),
        ({"ground_truth": None}, None),
        ({"reward_model": {"style": "rule", "ground_truth": "4"}}, "4"),
        ({"answer": "2+2=4 #### 4", "solution": "..."}, None),  # not unless it is named
    ],
)
def test_the_ground_truth(row: dict[str, Any], ground_truth: str | None) -> None:
    assert rollout_of(**row).ground_truth == ground_truth


def test_the_ground_truth_of_a_column_that_is_named() -> None:
    assert rollout_of(column="answer", answer="4", ground_truth="5").ground_truth == "4"
    with pytest.raises(InputError, match=r"no column 'answer' \(ground_truth_column\)"):
        rollout_of(column="answer")


def test_what_is_no_column_is_not_read() -> None:
    columns = {"environments": object(), "problem_id": ["p"], "index": "7"}
    [row] = batch_rows(["Q"], columns, "ground_truth")
    rollout = row.rollout("A", ProblemIds("{index}"))
    assert (rollout.problem_id, rollout.num_tokens) == ("p", None)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"problem_id": ""}, "problem_id must be a text that is not empty"),
        ({"index": 3}, "names no problem without data_source"),
        ({"ground_truth": True}, "ground_truth must be a text, got True"),
        ({"ground_truth": ["4"]}, "ground_truth must be a text"),
        ({"data_source": 7}, "data_source must be a text, got 7"),
        ({"nodes": "1+1=2"}, "nodes must be a list"),
    ],
)
def test_wrong_columns(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        rollout_of(**row)
