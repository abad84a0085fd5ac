"""Rewards on the tokens that earned them, in verl: the advantages, the worker, the output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")
pytest.importorskip("verl.trainer.ppo.v1", reason="verl before 0.9 has no V1 trainer")

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import AutoTokenizer
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics
from verl.trainer.config.algorithm import AlgoConfig

from consensuspr.client.verl import ConsensusRewardManager
from consensuspr.client.verl.sample import BY_TOKEN
from consensuspr.client.verl.step_credit import CreditedOutput, StepCreditWorker, step_advantage
from consensuspr.errors import InputError

UNIT = 1 / 8


def rows_of(*rows: list[float], length: int = 8) -> torch.Tensor:
    """Return rewards by token, rows padded with nothing."""
    return torch.tensor([[*row, *[0.0] * (length - len(row))] for row in rows])


def naive(
    rewards: NDArray[Any], policy: NDArray[Any], groups: list[str], by_std: bool
) -> NDArray[Any]:
    """Compute the advantages token by token, as the formula stands there."""
    count, length = rewards.shape
    before = [[rewards[i, :t].sum() for t in range(length)] for i in range(count)]
    tokens = [[t for t in range(length) if policy[i, t]] for i in range(count)]
    advantages = np.zeros((count, length))
    for i in range(count):
        group = [j for j in range(count) if groups[j] == groups[i] and tokens[j]]
        whole = {j: rewards[j].sum() for j in group}
        baseline = None
        for t in tokens[i]:
            compared = [j for j in group if any(before[j][u] == before[i][t] for u in tokens[j])]
            if len(compared) > 1:
                to_go = [whole[j] - before[i][t] for j in compared]
                baseline = sum(to_go) / len(to_go) + before[i][t]
            if baseline is not None:
                advantages[i, t] = (whole[i] - before[i][t]) - (baseline - before[i][t])
        if by_std and len(group) > 1:
            advantages[i] /= np.std([whole[j] for j in group], ddof=1) + 1e-6
    return advantages


@st.composite
def batches(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    """Draw groups of 1 to 8, some responses masked, nodes anywhere, the rest of any sign."""
    count, length = draw(st.integers(1, 8)), draw(st.integers(1, 7))
    groups = draw(st.lists(st.sampled_from("ab"), min_size=count, max_size=count))
    masks = st.lists(st.booleans(), min_size=length, max_size=length)
    policy = np.array(draw(st.lists(masks, min_size=count, max_size=count)))
    rewards = np.zeros((count, length))
    for row in range(count):
        written = np.flatnonzero(policy[row])
        for token in written[:-1]:
            rewards[row, token] = draw(st.sampled_from([0, 0, 1, 2])) * UNIT
        if written.size:
            rewards[row, written[-1]] = draw(st.integers(-4, 8)) * UNIT
    return rewards, policy, groups


@settings(max_examples=300, deadline=None)
@given(batches(), st.booleans())
def test_advantages_equal_the_formula(
    batch: tuple[NDArray[Any], NDArray[Any], list[str]], by_std: bool
) -> None:
    rewards, policy, groups = batch
    got, to_go = step_advantage(
        torch.tensor(rewards, dtype=torch.float32),
        torch.tensor(policy, dtype=torch.int64),
        np.array(groups, dtype=object),
        AlgoConfig(norm_adv_by_std_in_grpo=by_std),
    )
    np.testing.assert_allclose(got, naive(rewards, policy, groups, by_std), atol=1e-4, rtol=1e-5)
    assert got.dtype == to_go.dtype == torch.float32
    for row, token in np.ndindex(rewards.shape):
        expected = rewards[row, token:].sum() if policy[row, token] else 0.0
        assert float(to_go[row, token]) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (AlgoConfig(use_kl_in_reward=True), "use the KL loss"),
        (AlgoConfig(gamma=0.99), "algorithm.gamma must be 1, got 0.99"),
    ],
)
def test_what_it_cannot_tell_apart_is_refused(config: AlgoConfig, message: str) -> None:
    rewards = rows_of([0, 1.0])
    with pytest.raises(InputError, match=message):
        step_advantage(rewards, torch.ones_like(rewards), np.array(["a"]), config)


def output(reward: float, by_token: dict[int, float]) -> Any:
    """Return an agent loop's output of four tokens."""
    return CreditedOutput(
        prompt_ids=[1],
        response_ids=[5, 6, 7, 8],
        response_mask=[1, 1, 1, 1],
        metrics=AgentLoopMetrics(),
        extra_fields={"reward_extra_info": {"score": reward}},
        reward_score=reward,
        by_token=by_token,
    )


def test_an_output_has_the_rewards_of_its_tokens() -> None:
    made = output(0.75, {1: 0.25, 3: 0.5})
    fields = made.as_dict()
    assert fields["rm_scores"].tolist() == [0.0, 0.25, 0.0, 0.5]
    assert fields["rm_scores"].dtype == torch.float32
    given = {name: getattr(made, name) for name in made.model_fields_set - {"by_token"}}
    assert fields.keys() == AgentLoopOutput(**given).as_dict().keys()


def test_rewards_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(InputError, match=r"add up to 0.75, not to 0.5"):
        output(0.5, {1: 0.25, 3: 0.5}).as_dict()


RESPONSE = "First 118*14=1652 litres. ✓ Answer: 1"


@pytest.fixture
def reward(
    compose: Callable[..., Any], tokenizer_dir: Path, make_batch: Callable[..., Any], address: str
) -> Callable[..., dict[str, Any]]:
    """Reward a response of the sample problem, one token a byte, by a real server."""

    def rewarded(response: str, from_loop: dict[str, Any], **given: object) -> dict[str, Any]:
        config = compose(
            f"+reward.reward_kwargs.address={address}",
            *(f"+reward.reward_kwargs.{name}={value}" for name, value in given.items()),
        )
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        manager = ConsensusRewardManager(config=config, tokenizer=tokenizer, compute_score=None)
        info = {"problem_id": "sample-arith-001"}
        row = {"response": response, "ground_truth": "1", "extra_info": info}
        batch = make_batch([row], tool_extra_fields=[from_loop])
        result: dict[str, Any] = manager.loop.run_until_complete(manager.run_single(batch))
        return result

    return rewarded


def test_the_reward_manager_places_what_an_agent_loop_asks_for(
    reward: Callable[..., dict[str, Any]],
) -> None:
    overlong = {
        "max_resp_len": 40,
        "overlong_buffer_cfg.enable": True,
        "overlong_buffer_cfg.len": 10,
    }
    plain = reward(RESPONSE, {}, **overlong)
    placed = reward(RESPONSE, {BY_TOKEN: True}, **overlong)
    by_token = placed["reward_extra_info"].pop(BY_TOKEN)
    assert placed == plain
    extra = plain["reward_extra_info"]
    assert extra["overlong_penalty"] < 0 < extra["num_matched"]
    # A node of four, half of the reward each, where its last digit is written; the tick before the
    # answer has three tokens.
    node, last = RESPONSE.index("1652") + 3, len(RESPONSE.encode()) - 1
    share = 0.5 / extra["num_nodes"]
    assert by_token.keys() == {node, last}
    assert by_token[node] == pytest.approx(share * extra["num_matched"], abs=1e-6)
    assert sum(by_token.values()) == pytest.approx(plain["reward_score"], abs=2**-22)


def scored_by(result: dict[str, Any]) -> tuple[list[Any], Any]:
    """Let verl's worker have two turns rewarded; return the outputs and what the reward got."""
    seen = []

    class Reward:
        async def remote(self, data: Any) -> dict[str, Any]:
            seen.append(data.non_tensor_batch["tool_extra_fields"][-1].copy())
            return {"reward_score": 0.75, "reward_extra_info": result}

    worker = object.__new__(StepCreditWorker)
    worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=Reward())]
    worker.processor, worker.mm_processor_kwargs = None, {}
    outputs = [
        AgentLoopOutput(
            prompt_ids=[1],
            response_ids=[5, 6, 7, 8],
            response_mask=[1, 0, 1, 1],
            num_turns=4,
            metrics=AgentLoopMetrics(),
            extra_fields={"turn_scores": []},
        )
    ]
    asyncio.run(worker._compute_score(outputs, {"uid": "p"}))
    return outputs, seen


def test_verls_worker_asks_for_places_and_goes_on_with_them() -> None:
    outputs, [asked] = scored_by({"acc": 1.0, BY_TOKEN: {0: 0.25, 3: 0.5}})
    assert asked[BY_TOKEN] and asked["response_mask"].tolist() == [1, 0, 1, 1]
    fields = outputs[-1].as_dict()
    assert fields["rm_scores"].tolist() == [0.25, 0.0, 0.0, 0.5]
    assert fields["extra_fields"] == {"turn_scores": [], "reward_extra_info": {"acc": 1.0}}


def test_another_reward_manager_is_refused() -> None:
    with pytest.raises(InputError, match=r"reward.reward_manager.name=consensuspr"):
        scored_by({"acc": 1.0})
