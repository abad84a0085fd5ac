"""The reward function as TRL calls it, against a real server."""

from __future__ import annotations

import importlib.metadata
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.client.trl import consensus_reward
from consensuspr.errors import InputError
from tests.processes import wait_for
from tests.score_logs import rows_in

TEXTS = ["1+1=2 and 2+2=4 Answer: 2", "1+1=2 Answer: 3", "nothing", ""]
PROMPTS = ["What is 1 and 1?"] * 4
IDS = [[0] * len(text) for text in TEXTS]


@dataclass
class State:
    """What a trainer tells."""

    epoch: float | None = 0.0
    global_step: int = 0


class Logged:
    """What a reward function logged."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.extra: dict[str, list[Any]] = {}

    def hooks(self) -> dict[str, Any]:
        return {"log_metric": self.metrics.__setitem__, "log_extra": self.extra.__setitem__}


def call(function: Any, completions: Any = TEXTS, **changes: Any) -> Any:
    arguments = {
        "prompts": PROMPTS,
        "completions": completions,
        "completion_ids": IDS,
        "problem_id": ["toy/1"] * 4,
        "trainer_state": State(),
    }
    return function(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("settings", "spec", "epoch"),
    [
        ({}, RewardSpec.linear(0.5, unanswered="zero"), 0),
        ({"unanswered": "ncr", "alpha": 0.2}, RewardSpec.linear(0.2), 0),
        ({"reward": "max"}, RewardSpec.maximum(unanswered="zero"), 0),
        ({"reward": "outcome"}, RewardSpec.outcome(), 0),
        ({"reward": "curriculum"}, RewardSpec.curriculum(1), 0.99),
        ({"reward": "curriculum"}, RewardSpec.curriculum(1), 1.0),
    ],
)
@pytest.mark.parametrize("chat", [False, True])
async def test_rewards_are_those_of_the_local_client(
    address: str,
    dataset_file: Path,
    settings: dict[str, Any],
    spec: RewardSpec,
    epoch: float,
    chat: bool,
) -> None:
    completions = [[{"role": "assistant", "content": text}] for text in TEXTS] if chat else TEXTS
    rewards = await call(
        consensus_reward(address=address, **settings), completions, trainer_state=State(epoch)
    )
    with LocalClient(dataset=dataset_file) as client:
        rollouts = [Rollout("toy/1", text) for text in TEXTS]
        assert rewards == [s.reward for s in client.score(rollouts, reward=spec, epoch=int(epoch))]
    assert len(set(rewards)) > 1


async def test_what_is_logged(address: str, tmp_path: Path) -> None:
    logged = Logged()
    reward = consensus_reward(address=address, score_log=tmp_path / "scores")
    await call(
        reward, **logged.hooks(), data_source=["toy"] * 4, split=["train"] * 4,
        trainer_state=State(0.5, 6),
    )  # fmt: skip
    assert logged.metrics == {
        "consensuspr/acc": 0.25,
        "consensuspr/ncr": 0.375,
        "consensuspr/ncr_of_right": 1.0,
        "consensuspr/ncr_of_wrong": pytest.approx(0.5 / 3),
        "consensuspr/source/toy/acc": 0.25,
        "consensuspr/source/toy/ncr": 0.375,
        "consensuspr/source/toy/ncr_of_right": 1.0,
        "consensuspr/source/toy/ncr_of_wrong": pytest.approx(0.5 / 3),
        "consensuspr/ncr_raw": 0.375,
        "consensuspr/tpn": pytest.approx((len(TEXTS[0]) / 2 + len(TEXTS[1])) / 2),
        "consensuspr/guarded": 0.0,
        "consensuspr/with_nodes": 1.0,
        "consensuspr/by_pattern": pytest.approx(2 / 3),  # 1+1=2 has no operand but ones
        "consensuspr/by_statement": pytest.approx(1 / 3),
        "consensuspr/by_code": 0.0,
        "consensuspr/by_equation": 0.0,
        "consensuspr/unanswered": 0.5,
        "consensuspr/unscorable": 0.0,
    }
    assert logged.extra == {
        "acc": [1.0, 0.0, 0.0, 0.0],
        "ncr": [1.0, 0.5, 0.0, 0.0],
        "ncr_raw": [1.0, 0.5, 0.0, 0.0],
        "guard": [1.0] * 4,
        "status": ["OK"] * 4,
    }
    wait_for(lambda: len(rows_in(tmp_path / "scores", following=True)) == 4)
    rows = rows_in(tmp_path / "scores")
    assert [row["final_score"] for row in rows] == [1.0, 0.25, 0.0, 0.0]
    expected = {
        "step": 7, "epoch": 0, "split": "train", "data_source": "toy", "problem_id": "toy/1",
        "reward": 1.0, "final_score": 1.0, "acc": 1.0, "ncr": 1.0, "ncr_raw": 1.0,
        "guard": 1.0, "num_nodes": 2, "num_matched": 2,
        "tpn": len(TEXTS[0]) / 2, "num_tokens": len(TEXTS[0]), "penalty": 0.0,
        "status": "OK", "scored_by": "server", "side": "trainer", "response": TEXTS[0],
    }  # fmt: skip
    assert {name: rows[0][name] for name in expected} == expected


MIXED = {"problem_id": ["toy/1", "bare", "nobody", "toy/1"]}


async def test_or_gets_the_number_that_the_user_names(address: str) -> None:
    logged = Logged()
    reward = consensus_reward(address=address, on_unscorable=-1)
    assert await call(reward, **MIXED, **logged.hooks()) == [1.0, -1.0, -1.0, 0.0]
    assert logged.metrics["consensuspr/unscorable"] == 0.5
    assert logged.metrics["consensuspr/ncr"] == 0.5, "the mean of those that have one"
    assert logged.metrics["consensuspr/with_nodes"] == 0.5
    assert logged.metrics["consensuspr/status/UNKNOWN_PROBLEM"] == 0.25
    assert logged.extra["status"] == ["OK", "NO_NODES", "UNKNOWN_PROBLEM", "OK"]
    assert logged.extra["ncr"] == [1.0, None, None, 0.0]


async def test_or_is_left_out(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.16.0")
    logged = Logged()
    reward = consensus_reward(address=address, on_unscorable="none")
    assert await call(reward, **MIXED, **logged.hooks()) == [1.0, None, None, 0.0]
    assert logged.metrics["consensuspr/unscorable"] == 0.5
    assert logged.extra["status"] == ["OK", "NO_NODES", "UNKNOWN_PROBLEM", "OK"]


@pytest.mark.parametrize("version", ["1.15.2", "0.29.1"])
def test_a_trl_that_would_train_on_zeros_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(InputError, match=f"TRL is {version}: an older one may train"):
        consensus_reward(on_unscorable="none")


def test_trl_sees_that_it_is_asynchronous_and_its_name() -> None:
    assert inspect.iscoroutinefunction(consensus_reward().__call__)
    assert consensus_reward().__name__ == "consensus_reward"
    assert consensus_reward(name="ncr_half").__name__ == "ncr_half"
