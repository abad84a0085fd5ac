"""The custom reward function, against a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consensuspr.client.training import UnscorableSample
from consensuspr.client.verl import compute_score
from consensuspr.errors import InputError
from tests.score_logs import rows_in, wait_until

TEXT = "16-3-4=9. Answer: 18"


def score(
    extra_info: dict[str, Any], ground_truth: Any = "18", text: str = TEXT, **settings: Any
) -> dict[str, Any]:
    return asyncio.run(
        compute_score(
            data_source="toy",
            solution_str=text,
            ground_truth=ground_truth,
            extra_info=extra_info,
            reward_router_address=None,
            **settings,
        )
    )


def test_it_returns_the_keys_of_every_sample(real_server: str) -> None:
    # Objects of verl's beside the named fields are nothing to it.
    info = {"problem_id": "ducks", "num_turns": 2, "tools_kwargs": object()}
    assert score(info, address=real_server, alpha=0.25) == {
        "score": 0.625,
        "acc": 1.0,
        "ncr": 0.5,
        "ncr_raw": 0.5,
        "guard": 1.0,
        "num_nodes": 2,
        "num_matched": 1,
        "by_pattern": 0,
        "by_statement": 1,
        "by_code": 0,
        "unanswered": 0,
        "tpn": 0.0,
        "overlong_penalty": 0.0,
        "status": "OK",
    }


def test_ncr_is_for_responses_with_a_marked_answer(real_server: str) -> None:
    def ncr(**settings: Any) -> Any:
        return score({"problem_id": "ducks"}, text="16-3-4=9", address=real_server, **settings)[
            "ncr"
        ]

    assert (ncr(), ncr(reward="max"), ncr(unanswered="ncr"), ncr(reward="outcome")) == (
        0,
        0,
        0.5,
        0.5,
    )


@pytest.mark.parametrize(
    "nodes",
    [
        [{"node_id": "a", "expressions": ["16-3-4=9"]}, {"expressions": ["1=2"], "derived": None}],
        [["16-3-4=9"], ("1=2",)],
    ],
)
def test_nodes_may_come_with_the_row(real_server: str, nodes: Any) -> None:
    info = {"problem_id": "nobody knows it", "nodes": nodes}
    assert score(info, address=real_server)["ncr"] == 0.5


def test_what_decides_ncr_may_come_with_the_row_too(real_server: str) -> None:
    info = {
        "problem_id": "nobody knows it",
        "nodes": [
            {"expressions": ["16-3-4=9"], "weight": 0.75},
            {"expressions": ["1=2"], "weight": 0.25, "is_final": True},
        ],
        "budget": {"statements": np.int64(1), "numbers": 99, "length": np.int64(999)},
    }
    assert score(info, address=real_server, ncr="weighted", guard=False)["ncr"] == 0.75
    assert score(info, address=real_server, final_nodes=False, guard=False)["ncr"] == 1.0
    told = score(info, address=real_server)
    assert (told["ncr_raw"], told["guard"], told["ncr"]) == (0.5, 0.5, 0.25)
    for loose in (
        {"statements": None, "numbers": None, "length": None},
        {"statements": 1, "numbers": 99, "length": None},
    ):
        assert score({**info, "budget": loose}, address=real_server)["guard"] == 1.0


@pytest.mark.parametrize(
    "budget",
    [
        3,
        {"statements": 3},
        {"statements": 3, "numbers": "9"},
        {"statements": 3, "numbers": 9, "length": 1.5},
    ],
)
def test_a_budget_of_another_shape_is_refused(real_server: str, budget: Any) -> None:
    with pytest.raises(InputError, match=r"extra_info.budget must be \{statements, numbers\} or"):
        score({"problem_id": "ducks", "budget": budget}, address=real_server)


@pytest.mark.parametrize("truth", [18, 18.0, "18"])
def test_a_ground_truth_may_be_a_number(real_server: str, truth: Any) -> None:
    info = {"problem_id": "ducks"}
    assert score(info, truth, address=real_server, answer_rule="dapo")["acc"] == 1.0


@pytest.mark.parametrize("truth", [True, [18], float("nan")])
def test_a_ground_truth_of_another_type_is_refused(real_server: str, truth: Any) -> None:
    with pytest.raises(InputError, match="ground_truth must be a text, got"):
        score({"problem_id": "ducks"}, truth, address=real_server)


@pytest.mark.parametrize("nodes", ["16-3-4=9", ["16-3-4=9"], [{"node_id": "a"}], [[1]], 7])
def test_nodes_of_another_shape_are_refused(real_server: str, nodes: Any) -> None:
    with pytest.raises(InputError, match=r"extra_info.nodes must be a list of"):
        score({"problem_id": "ducks", "nodes": nodes}, address=real_server)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"alhpa": 1}, "unknown setting 'alhpa' in reward.custom_reward_function.reward_kwargs"),
        ({"reward": "curriculum"}, "a reward function does not see the training step"),
    ],
)
def test_what_a_function_cannot_do_is_refused(
    real_server: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        score({"problem_id": "ducks"}, address=real_server, **settings)


def test_it_keeps_a_score_log(real_server: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "address": real_server,
        "alpha": 0.25,
        "score_log": str(tmp_path / "run"),
    }
    score({"problem_id": "ducks", "split": "train"}, **settings)
    with pytest.raises(UnscorableSample):
        score({"problem_id": "bare"}, **settings)
    wait_until(lambda: len(rows_in(tmp_path / "run", following=True)) == 2)
    ducks, bare = rows_in(tmp_path / "run")
    assert (ducks["problem_id"], ducks["response"], ducks["reward"]) == ("ducks", TEXT, 0.625)
    assert (ducks["side"], ducks["split"], ducks["status"]) == ("trainer", "train", "OK")
    # The manager that calls a function may add to its reward.
    assert [ducks[name] for name in ("step", "penalty", "final_score")] == [None, None, None]
    assert (bare["status"], bare["reward"]) == ("NO_NODES", None)


def test_a_fixed_epoch_makes_a_curriculum_possible(real_server: str) -> None:
    settings = {"address": real_server, "reward": "curriculum"}
    assert score({"problem_id": "ducks"}, epoch=0, **settings)["score"] == 0.5
    assert score({"problem_id": "ducks"}, epoch=1, **settings)["score"] == 1.0


def test_a_problem_without_nodes_is_never_a_zero(real_server: str) -> None:
    with pytest.raises(UnscorableSample, match="NO_NODES"):
        score({"problem_id": "bare"}, address=real_server)
    assert score({"problem_id": "bare"}, address=real_server, on_unscorable=-1)["score"] == -1.0


def test_validation_without_nodes_is_worth_its_accuracy(real_server: str) -> None:
    info = {"problem_id": "bare", "split": "test"}
    result = score(info, address=real_server, on_unscorable=-1)
    assert (result["score"], result["acc"], result["status"]) == (1.0, 1.0, "NO_NODES")
    with pytest.raises(UnscorableSample, match="NO_NODES"):
        score(info, address=real_server, validate_by_acc=False)
