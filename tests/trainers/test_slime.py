"""The reward function as slime calls it: ``--custom-rm-path`` of its sources of 2026.

slime is in no package index; a sample has the fields that its ``Sample`` has there.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consensuspr.client import slime
from consensuspr.client.training import UnscorableSample
from consensuspr.errors import InputError, Unavailable
from tests.processes import wait_for
from tests.score_logs import rows_in

RIGHT, HALF = "1+1=2 and 2+2=4 Answer: 2", "1+1=2 Answer: 3"


def args_of(address: str, reward_key: str | None = "reward", **settings: Any) -> Any:
    return SimpleNamespace(
        consensuspr={"address": address, **settings}, rollout_batch_size=2, reward_key=reward_key,
        eval_reward_key=None, num_epoch=None, num_rollout=None, hf_checkpoint="none",
    )  # fmt: skip


def sample_of(response: str, **changes: Any) -> Any:
    fields = {
        "group_index": 0, "index": 0, "prompt": "What is 1 and 1?", "tokens": [1, 2, 3],
        "response": response, "response_length": 3, "label": "2", "loss_mask": None,
        "metadata": {"problem_id": "toy/1"},
    }  # fmt: skip
    return SimpleNamespace(**{**fields, **changes})


async def test_an_object_stays_with_the_sample_and_a_number_where_slime_wants_one(
    address: str,
) -> None:
    given = await slime.reward(args_of(address), sample_of(HALF + "<|im_end|>"))
    assert (given["reward"], given["acc"], given["ncr"], given["status"]) == (0.25, 0.0, 0.5, "OK")
    assert await slime.reward(args_of(address, None), sample_of(RIGHT)) == 1.0
    group = [sample_of(RIGHT), sample_of(HALF)]
    assert await slime.reward(args_of(address, None), group) == [1.0, 0.25]


@pytest.mark.parametrize(
    "changes",
    [
        {"label": '{"problem_id": "toy/1", "ground_truth": "2"}', "metadata": {}},
        {"label": None},
        {"label": 2, "metadata": {"index": 1, "data_source": "toy"}},
    ],
)
async def test_which_problem(address: str, changes: dict[str, Any]) -> None:
    assert await slime.reward(args_of(address, None), sample_of(HALF, **changes)) == 0.25


async def test_the_curriculum_follows_the_prompts_that_were_drawn(
    address: str, tmp_path: Path
) -> None:
    args = args_of(
        address, None, reward="curriculum", steps_per_epoch=3, score_log=str(tmp_path / "scores")
    )
    rewards = [
        await slime.reward(args, sample_of(HALF, group_index=at)) for at in (0, 5, 6, 11, None)
    ]
    assert rewards == [0.5, 0.5, 0.0, 0.0, 0.0], "three steps of two prompts are an epoch"
    wait_for(lambda: len(rows_in(tmp_path / "scores", following=True)) == 5)
    assert [row["step"] for row in rows_in(tmp_path / "scores")] == [1, 3, 4, 6, 6]


async def test_no_word_of_a_tool_counts(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["Q", "1+1=2", "or is it 9?<|im_end|>", "2+2=4", "Answer: 2", "Answer: 2<|im_end|>"]
    threads = []

    class Tokenizer:
        def decode(self, ids: list[int]) -> str:
            threads.append(threading.current_thread())
            return " ".join(words[at] for at in ids)

    monkeypatch.setattr(slime, "_tokenizer", lambda checkpoint: Tokenizer())
    sample = sample_of(
        " ".join(words[1:]), tokens=[0, 1, 2, 3, 4, 5], response_length=5, loss_mask=[1, 1, 0, 0, 1]
    )
    given = await slime.reward(args_of(address), sample)
    assert (given["acc"], given["ncr"], given["tpn"]) == (1.0, 0.5, 3.0)
    assert threads
    assert threading.current_thread() not in threads, "slime's loop also feeds its engines"
    sample.loss_mask = [1, 1, 0, 0, 0]
    assert (await slime.reward(args_of(address), sample))["acc"] == 0.0
    sample.loss_mask = [1] * 9 + [0]
    with pytest.raises(InputError, match="loss_mask has 10 values, and the sample has 6 tokens"):
        await slime.reward(args_of(address), sample)


async def test_what_fails(address: str) -> None:
    unknown = sample_of(HALF, label=None, metadata={"problem_id": "nobody"})
    with pytest.raises(UnscorableSample, match="problem 'nobody' ended with UNKNOWN_PROBLEM"):
        await slime.reward(args_of(address), unknown)
    named = await slime.reward(args_of(address, on_unscorable=-1), unknown)
    assert (named["reward"], named["status"]) == (-1.0, "UNKNOWN_PROBLEM")
    with pytest.raises(Unavailable):
        await slime.reward(
            args_of("127.0.0.1:1", timeout_s=0.2, on_unavailable="raise"), sample_of(HALF)
        )
    with pytest.raises(InputError, match="unknown setting 'rewrad' in consensuspr"):
        await slime.reward(args_of(address, rewrad="max"), sample_of(HALF))
    with pytest.raises(InputError, match="the label has the unknown key 'answer'"):
        await slime.reward(
            args_of(address), sample_of(HALF, label='{"answer": 1, "problem_id": "toy/1"}')
        )
