"""The reward manager as verl makes it, one sample at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import numpy as np
import verl
from transformers import AutoTokenizer
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.experimental.reward_loop.reward_manager.dapo import DAPORewardManager

from consensuspr.client.training import UnscorableSample
from consensuspr.client.verl import ConsensusRewardManager
from consensuspr.errors import InputError
from tests.processes import wait_for
from tests.score_logs import rows_in

BEFORE_0_9 = verl.__version__ < "0.9"
BEFORE_0_8 = verl.__version__ < "0.8"

RESPONSE = "First 118*14=1652 litres. Answer: 1"


@pytest.fixture
def manager(compose: Callable[..., Any], tokenizer_dir: Path) -> Callable[..., Any]:
    """Make a manager as verl's workers do."""

    def make(*overrides: str, cls: Any = ConsensusRewardManager, **settings: object) -> Any:
        config = compose(
            *overrides,
            *(f"+reward.reward_kwargs.{name}={value}" for name, value in settings.items()),
        )
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        return cls(config=config, tokenizer=tokenizer, compute_score=None)

    return make


def one(manager: Any, batch: Any) -> dict[str, Any]:
    result: dict[str, Any] = manager.loop.run_until_complete(manager.run_single(batch))
    return result


def row(response: str = RESPONSE, **extra_info: Any) -> dict[str, Any]:
    info = {"problem_id": "sample-arith-001", **extra_info}
    return {"response": response, "ground_truth": "1", "extra_info": info}


@pytest.mark.skipif(BEFORE_0_9, reason="verl before 0.9 looks for no entry points")
def test_verl_finds_it_by_its_name() -> None:
    assert get_reward_manager_cls("consensuspr") is ConsensusRewardManager


def test_verl_loads_it_from_its_module(compose: Callable[..., Any], tokenizer_dir: Path) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    config = compose(
        "reward.reward_manager.source=importlib",
        "reward.reward_manager.name=ConsensusRewardManager",
        "reward.reward_manager.module.path=pkg://consensuspr.client.verl",
    )
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    assert isinstance(load_reward_manager(config, tokenizer), ConsensusRewardManager)


def test_verl_loads_the_function_from_its_module(
    compose: Callable[..., Any], tokenizer_dir: Path, address: str, make_batch: Callable[..., Any]
) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    config = compose(
        "reward.custom_reward_function.path=pkg://consensuspr.client.verl",
        "reward.custom_reward_function.name=compute_score",
        f"+reward.custom_reward_function.reward_kwargs.address={address}",
        "+reward.custom_reward_function.reward_kwargs.reward=max",
    )
    naive = load_reward_manager(config, AutoTokenizer.from_pretrained(tokenizer_dir))
    result = one(naive, make_batch([row()]))
    assert result["reward_score"] == 1.0
    assert result["reward_extra_info"]["status"] == "OK"


@pytest.mark.parametrize(
    ("overrides", "settings", "sentence"),
    [
        ([], {"alhpa": 1}, "unknown setting 'alhpa' in reward.reward_kwargs"),
        ([], {"dataset_path": "/none/x.jsonl"}, "dataset_path: file not found: /none/x.jsonl"),
        (
            ["trainer.total_training_steps=100"],
            {"reward": "curriculum"},
            "total_training_steps is set|does not pass the reward its step",
        ),
    ],
)
def test_a_run_that_cannot_be_rewarded_is_ended_when_a_worker_makes_its_manager(
    manager: Callable[..., Any], overrides: list[str], settings: dict[str, object], sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    reasons: list[str] = []
    monkeypatch.setattr("consensuspr.client.verl.manager.in_reward_worker", lambda: True)
    monkeypatch.setattr("consensuspr.client.verl.manager.end_run", reasons.append)
    with pytest.raises(InputError, match=sentence) as raised:
        manager(*overrides, **settings)
    assert reasons == [str(raised.value)]


def test_a_worker_goes_on_without_a_score_log_that_nobody_asked_for(
    manager: Callable[..., Any], address: str, make_batch: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    settings = {"address": address, "score_log": tmp_path / "file/log"}
    with pytest.raises(InputError, match="score_log: cannot write"):
        manager(**settings)
    made = manager(**settings, score_log_is_optional=True)
    assert one(made, make_batch([row()]))["reward_score"] > 0
    assert made._events() == {"no score log": 1}


@pytest.mark.skipif(BEFORE_0_8, reason="no trainer of verl 0.7 tells the reward its step")
def test_the_curriculum_switches_with_the_step_of_the_sample(
    manager: Callable[..., Any], address: str, make_batch: Callable[..., Any], tmp_path: Path
) -> None:
    made = manager(
        "trainer.total_epochs=2",
        "actor_rollout_ref.actor.optim.total_training_steps=20",
        address=address,
        reward="curriculum",
        score_log=tmp_path / "log",
    )
    rewards = []
    for step in (0, 1, 10, 11, 20):
        # The field of that name in the tools' extra fields is the weights' version.
        batch = make_batch(
            [row()], global_steps=[np.int64(step)], tool_extra_fields=[{"global_steps": step - 1}]
        )
        rewards.append(one(made, batch)["reward_score"])
    ncr, acc = rewards[0], rewards[-1]
    assert 0 < ncr < 1 and acc == 1.0
    assert rewards == [ncr, ncr, ncr, acc, acc]
    wait_for(lambda: len(rows_in(tmp_path / "log", following=True)) == len(rewards))
    logged = rows_in(tmp_path / "log")
    assert [line["epoch"] for line in logged] == [0, 0, 0, 1, 1]
    assert [line["step"] for line in logged] == [0, 1, 10, 11, 20]
    assert [line["final_score"] for line in logged] == rewards
    assert {line["split"] for line in logged} == {"train"}


def test_the_overlong_penalty_is_that_of_verls_own_manager(
    manager: Callable[..., Any], address: str, make_batch: Callable[..., Any]
) -> None:
    settings = {
        "max_resp_len": 100,
        "overlong_buffer_cfg.enable": True,
        "overlong_buffer_cfg.len": 40,
        "overlong_buffer_cfg.penalty_factor": 0.7,
        "overlong_buffer_cfg.log": False,
    }
    batch = make_batch([row("x" * 80)])
    dapo = manager(cls=DAPORewardManager, **settings)

    async def nothing(**_: Any) -> float:
        return 0.0

    dapo.compute_score, dapo.is_async_reward_score = nothing, True
    ours = manager(address=address, **settings)
    result = one(ours, batch)
    assert result["reward_score"] == pytest.approx(float(one(dapo, batch)["reward_score"]))
    assert result["reward_extra_info"]["score"] == 0.0
    assert result["reward_extra_info"]["overlong_penalty"] == result["reward_score"]


def test_samples_without_a_reward_are_noted_for_the_driver(
    manager: Callable[..., Any],
    address: str,
    make_batch: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the last too, although nothing comes after it."""
    noted: list[tuple[int, str]] = []
    module = "consensuspr.client.verl.manager."
    monkeypatch.setattr(f"{module}note_worker", lambda events, *failures: noted.append(failures))
    made = manager(address=address)
    made._in_worker = True

    async def main() -> None:
        for name in ("first", "second"):
            with pytest.raises(UnscorableSample):
                await made.run_single(make_batch([row(problem_id=name)]))
        while not noted or noted[-1][0] < 2:
            await asyncio.sleep(0.05)

    made.loop.run_until_complete(asyncio.wait_for(main(), 60))
    count, last = noted[-1]
    assert count == 2
    assert "problem 'second' ended with" in last


def test_only_what_the_policy_wrote_is_scored(
    manager: Callable[..., Any], address: str, make_batch: Callable[..., Any]
) -> None:
    made = manager(address=address)
    tool = "118*14=1652"
    text = f"I look. {tool} Answer: 1"
    mask = [
        int(not text.index(tool) <= at < text.index(tool) + len(tool)) for at in range(len(text))
    ]
    by_policy = one(made, make_batch([row(text)], tool_extra_fields=[{}]))["reward_extra_info"]
    masked = make_batch([row(text)], tool_extra_fields=[{"response_mask": mask}])
    by_mask = one(made, masked)["reward_extra_info"]
    assert (by_policy["num_matched"] > 0, by_mask["num_matched"], by_mask["acc"]) == (True, 0, 1.0)


def test_a_run_without_masks_is_ended(
    manager: Callable[..., Any], make_batch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr("consensuspr.client.verl.manager.end_run", ended.append)
    monkeypatch.setattr("consensuspr.client.verl.manager.note_worker", lambda *_: None)
    made = manager(address="127.0.0.1:1")
    made._in_worker = True
    with pytest.raises(InputError, match="a response of 4 messages came without its response_mask"):
        one(made, make_batch([row()], __num_turns__=[4]))
    made._noting.cancel()  # it would ask Ray in a later test
    [reason] = ended
    assert "MaskingAgentLoopManager" in reason and 'extra_fields["response_mask"]' in reason
