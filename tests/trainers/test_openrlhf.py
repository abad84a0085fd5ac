"""The function that OpenRLHF calls in threads, without OpenRLHF."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from consensuspr.client.openrlhf import reward_function
from consensuspr.client.training import UnscorableSample
from consensuspr.errors import InputError

PROMPT = "<|user|>What is 1 and 1?<|assistant|>"
LABEL = json.dumps({"problem_id": "toy/1"})


def call(function: Any, *texts: str, label: Any = LABEL) -> Any:
    n = len(texts)
    return function([PROMPT + text for text in texts], [PROMPT] * n, [label] * n)


def test_rewards_scores_and_curves_from_any_thread(address: str) -> None:
    function = reward_function(address=address, scores="acc")
    texts = ["1+1=2 and 2+2=4 Answer: 2<|im_end|>", "1+1=2 Answer: 3"]
    with ThreadPoolExecutor(4) as threads:
        [reply, *others] = threads.map(lambda _: call(function, *texts), range(8))
    assert (reply["rewards"], reply["scores"]) == ([1.0, 0.25], [1.0, 0.0])
    assert reply["extra_logs"]["ncr"] == [1.0, 0.5]
    assert reply["extra_logs"]["unscorable"] == [0.0, 0.0]
    assert all(other == reply for other in others)


@pytest.mark.parametrize(("epoch", "reward"), [(0, 0.5), (1, 0.0)])
def test_a_stage_of_a_curriculum(address: str, epoch: int, reward: float) -> None:
    function = reward_function(address=address, reward="curriculum", epoch=epoch)
    assert call(function, "1+1=2 Answer: 3")["rewards"] == [reward]
    planned = reward_function(address=address, reward="curriculum")
    label = json.dumps({"problem_id": "toy/1", "epoch": epoch})
    assert call(planned, "1+1=2 Answer: 3", label=label)["rewards"] == [reward]


def test_a_number_of_ones_own_is_told_from_a_reward(address: str) -> None:
    function = reward_function(address=address, on_unscorable=0)
    reply = call(function, "?", label='{"problem_id": "x"}')
    assert (reply["rewards"], reply["extra_logs"]["unscorable"]) == ([0.0], [1.0])


def test_what_filters_by_acc_needs_one(address: str) -> None:
    function = reward_function(address=address, reward="curriculum", epoch=0, scores="acc")
    label = json.dumps({"nodes": [["1+1=2"]]})
    with pytest.raises(UnscorableSample, match="a sample with NO_GROUND_TRUTH has no Acc"):
        call(function, "1+1=2", label=label)


def test_what_fails(address: str, caplog: pytest.LogCaptureFixture) -> None:
    function = reward_function(address=address)
    with pytest.raises(UnscorableSample, match="problem 'x' ended with UNKNOWN_PROBLEM"):
        call(function, "?", label='{"problem_id": "x"}')
    with pytest.raises(InputError, match="the query does not hold its prompt"):
        function(["another"], [PROMPT], [LABEL])
    # OpenRLHF itself mentions it among its notes.
    assert any("gets no reward for a rollout: problem 'x'" in line for line in caplog.messages)
    with pytest.raises(InputError, match="OpenRLHF tells a reward neither step nor epoch"):
        call(reward_function(address=address, reward="curriculum"), "?")
    with pytest.raises(InputError, match="scores must be one of reward, acc, got 'ncr'"):
        reward_function(scores="ncr")  # type: ignore[arg-type]
