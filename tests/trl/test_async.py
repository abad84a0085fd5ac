"""The reward function in TRL's asynchronous trainer, whose rollouts live in another process."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

pytest.importorskip("trl", reason="trl is not installed: run make test-trl")
pytest.importorskip("torch", reason="torch is not installed: run make test-trl")

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
from accelerate import PartialState
from datasets import Dataset
from trl.experimental.async_grpo.async_rollout_worker import (
    RolloutGroup,
    TrainingSequence,
    _AsyncRolloutLoop,
)

from consensuspr.client.training import UnscorableSample
from consensuspr.client.trl import consensus_reward
from tests.trl.test_grpo import tokenizer

# Of torch, transformers and trl.
pytestmark = pytest.mark.filterwarnings("ignore")

TEXTS = ["1+1=2 and 2+2=4 Answer: 2", "1+1=2 Answer: 3", "nothing"]


def group(**columns: Any) -> RolloutGroup:
    """Return the completions of one prompt as the rollout process keeps them."""
    n = len(TEXTS)
    tool = {"role": "tool", "content": TEXTS[0]}
    return RolloutGroup(
        prompts=[[{"role": "user", "content": "What is 1 and 1?"}]] * n,
        reward_kwargs={name: [value] * n for name, value in columns.items()},
        completions=[[tool, {"role": "assistant", "content": text}] for text in TEXTS],
        completions_ids=[[1, 2, 3]] * n,
        completions_sequences=[[TrainingSequence([1], [1], [0.0], "r")]] * n,
        tool_call_counts=[0] * n,
        tool_failure_counts=[0] * n,
        model_version=0,
        group_id=0,
        env_rewards=[None] * n,
        rollout_rewards=[None] * n,
    )


@contextmanager
def loop_of(*rewards: Any) -> Iterator[Any]:
    """Make what TRL runs in its rollout process, with functions that were sent there."""
    spawn = multiprocessing.get_context("spawn")
    PartialState(cpu=True)  # TRL's logging asks for it
    processing = tokenizer()
    processing.response_schema = {}  # for a chat template that TRL does not know
    made = _AsyncRolloutLoop(
        model_name="none",
        dataset=Dataset.from_dict({"prompt": ["Q"]}),
        reward_funcs=[pickle.loads(pickle.dumps(reward)) for reward in rewards],
        processing_class=processing,
        eos_token_ids=[1],
        rollout_buffer=spawn.Queue(),
        model_version_value=spawn.Value("i", 0),
        heartbeat_value=spawn.Value("d", 0.0),
        failed_event=spawn.Event(),
        exception_info_queue=spawn.Queue(),
        metrics_queue=spawn.Queue(),
    )
    with closing(made._loop):
        yield made


def score(loop: Any, **columns: Any) -> Any:
    return loop._loop.run_until_complete(loop._score_group(group(**columns)))


def test_rewards_and_names_and_no_word_of_a_tool_counts(address: str) -> None:
    half = consensus_reward(address=address, name="half")
    outcome = consensus_reward(address=address, name="outcome", reward="outcome")
    with loop_of(half, outcome) as loop:
        assert loop.reward_func_names == ["half", "outcome"]
        samples = score(loop, problem_id="toy/1")
    assert [one.metrics["rewards/half"] for one in samples] == [1.0, 0.25, 0.0]
    assert [one.metrics["rewards/outcome"] for one in samples] == [1.0, 0.0, 0.0]


def test_what_cannot_be_scored_is_left_out_or_ends_the_rollouts(address: str) -> None:
    with loop_of(consensus_reward(address=address, on_unscorable="none")) as loop:
        left_out = score(loop, problem_id="x")
    assert [one.advantage for one in left_out] == [0.0] * 3
    assert all(math.isnan(one.metrics["reward"]) for one in left_out)
    with (
        loop_of(consensus_reward(address=address)) as loop,
        pytest.raises(UnscorableSample, match="problem 'x' ended with UNKNOWN_PROBLEM"),
    ):
        score(loop, problem_id="x")
