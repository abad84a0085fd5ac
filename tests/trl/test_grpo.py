"""The real ``GRPOTrainer`` on a CPU, with a tiny random model, against a real server."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="trl is not installed: run make test-trl")
pytest.importorskip("torch", reason="torch is not installed: run make test-trl")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.client.trl import consensus_reward

# Whatever the model says, it says it with these: nodes and answers are hit by chance.
WORDS = "<pad> <eos> <unk> What is 1 2 and ? 1+1=2 2+2=4 Answer: 3 4 so".split()

# Of torch, transformers and trl.
pytestmark = pytest.mark.filterwarnings("ignore")


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
    )


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


class Recorded:
    """A reward function, and what it was asked and what it answered."""

    def __init__(self, reward: Any) -> None:
        self.batches: list[dict[str, Any]] = []

        async def recording(**arguments: Any) -> Any:
            rewards = await reward(**arguments)
            self.batches.append(
                {**arguments, "rewards": rewards, "epoch": arguments["trainer_state"].epoch}
            )
            return rewards

        recording.__name__ = reward.__name__
        self.function = recording


def train(folder: Path, reward: Any, chat: bool = False, **settings: Any) -> Any:
    """Train for two epochs of two steps; return the trainer."""
    questions = ["What is 1 and 1 ?", "What is 2 and 2 ?"] * 2
    prompts = [[{"role": "user", "content": q}] if chat else q for q in questions]
    ids = ["toy/1", "toy/2"] * 2
    processing = tokenizer()
    processing.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    trainer = GRPOTrainer(
        model=model(),
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": prompts, "problem_id": ids}),
        processing_class=processing,
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=12,
            num_train_epochs=2,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            **settings,
        ),
    )
    trainer.train()
    return trainer


TRAINED_BY = RewardSpec.linear(0.5, unanswered="zero")


def expected(batch: dict[str, Any], dataset_file: Path, spec: RewardSpec) -> list[float | None]:
    """Return what the formula makes of a batch."""
    texts = [c if isinstance(c, str) else c[0]["content"] for c in batch["completions"]]
    rollouts = [
        Rollout(problem_id, text, num_tokens=len(ids))
        for problem_id, text, ids in zip(
            batch["problem_id"], texts, batch["completion_ids"], strict=True
        )
    ]
    with LocalClient(dataset=dataset_file) as client:
        scores = client.score(rollouts, reward=spec, epoch=int(batch["epoch"]))
    return [score.reward for score in scores]


@pytest.mark.parametrize("chat", [False, True])
def test_rewards_equal_the_formula_and_metrics_are_logged(
    address: str, dataset_file: Path, tmp_path: Path, chat: bool
) -> None:
    recorded = Recorded(consensus_reward(address=address, reward="linear", alpha=0.5))
    trainer = train(tmp_path, recorded.function, chat)

    assert len(recorded.batches) == trainer.state.global_step == 4
    rewards = [reward for batch in recorded.batches for reward in batch["rewards"]]
    assert len(rewards) == 32
    assert len(set(rewards)) > 2, "the words of the model hit something"
    for batch in recorded.batches:
        assert batch["rewards"] == expected(batch, dataset_file, TRAINED_BY)

    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logged) == 4
    for entry, batch in zip(logged, recorded.batches, strict=True):
        mean = math.fsum(batch["rewards"]) / len(batch["rewards"])
        assert entry["reward"] == pytest.approx(mean, abs=1e-6)
        assert entry["rewards/consensus_reward/mean"] == pytest.approx(mean, abs=1e-6)
        halves = (entry["consensuspr/acc"] + entry["consensuspr/ncr"]) / 2
        assert halves == pytest.approx(mean, abs=1e-6)
        assert entry["consensuspr/unscorable"] == 0.0


def test_what_cannot_be_scored_is_left_out_of_its_group(address: str, tmp_path: Path) -> None:
    """Its reward is no number, and its advantage is 0."""
    reward = consensus_reward(address=address, on_unscorable="none")

    async def some_unknown(problem_id: list[str], **arguments: Any) -> Any:
        ids = ["nobody" if at % 4 == 0 else name for at, name in enumerate(problem_id)]
        return await reward(problem_id=ids, **arguments)

    some_unknown.__name__ = "consensus_reward"
    trainer = train(tmp_path, some_unknown)
    rewards, advantages = trainer._logs["rewards"]["consensus_reward"], trainer._logs["advantages"]
    assert [math.isnan(value) for value in rewards] == [at % 4 == 0 for at in range(len(rewards))]
    assert all(advantages[at] == 0.0 for at in range(0, len(rewards), 4))
    for entry in trainer.state.log_history:
        if "reward" in entry:
            assert entry["consensuspr/unscorable"] == 0.25
