"""verl's reward code as verl runs it: its configuration, its workers, samples in its shape."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.trainer.ppo.reward import load_reward_manager

from benchmarks.suites.step.material import Step

_PLAIN = Path(__file__).with_name("plain.py")


def plain(step: Step) -> list[str]:
    """Return the overrides for verl's naive manager with the plain Python function."""
    return [
        *_function("compute_score"),
        f"+reward.custom_reward_function.reward_kwargs.dataset={step.dataset}",
    ]


def nothing() -> list[str]:
    """Return the overrides for verl's naive manager with a reward of 0."""
    return _function("nothing")


def service(address: str) -> list[str]:
    """Return the overrides for the service's manager; answers by the rule of ``math_dapo``."""
    return [
        "reward.reward_manager.name=consensuspr",
        f"+reward.reward_kwargs.address={address}",
        "+reward.reward_kwargs.answer_rule=dapo",
    ]


def config(overrides: Sequence[str]) -> Any:
    """Return the configuration of a run, composed as ``main_ppo`` does."""
    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", overrides=list(overrides))


class LookUp:
    """Stands for a tokenizer: a response's one token id is its place in a list of texts.

    So the decoding of tokens is left out of what is measured, on every side.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        """Return the text of a response."""
        return self._texts[int(ids[0])]


class Worker(RewardLoopWorker):  # type: ignore[misc]  # verl has no types
    """verl's reward worker without Ray, with a given tokenizer."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        self._given_tokenizer = tokenizer
        super().__init__(config)
        # As our manager does in a reward worker of Ray; here for every side alike.
        gc.collect()
        gc.freeze()

    def _init_reward_fn(self) -> None:
        self.reward_manager = load_reward_manager(self.config, self._given_tokenizer)


def batch(step: Step, encode: Callable[[int, str], Sequence[int]]) -> Any:
    """Return a step as verl hands it over.

    Args:
        step: its rollouts.
        encode: token ids of a response, from its place and its text.
    """
    rows = step.rows
    responses = [torch.tensor(encode(at, row["response"])) for at, row in enumerate(rows)]
    ids = torch.nn.utils.rnn.pad_sequence(responses, batch_first=True)
    mask = torch.zeros_like(ids)
    for at, response in enumerate(responses):
        mask[at, : len(response)] = 1
    prompts = torch.ones((len(rows), 8), dtype=torch.long)
    return DataProto(
        batch=TensorDict(
            {
                "prompts": prompts,
                "responses": ids,
                "attention_mask": torch.cat([torch.ones_like(prompts), mask], dim=1),
            },
            batch_size=len(rows),
        ),
        non_tensor_batch={
            "data_source": _column(["math_dapo"] * len(rows)),
            "reward_model": _column([{"ground_truth": row["ground_truth"]} for row in rows]),
            "extra_info": _column(
                [{"problem_id": row["problem_id"], "split": "train"} for row in rows]
            ),
            # What verl's agent loop adds to each sample.
            "response_len": _column([len(response) for response in responses]),
            "global_steps": _column([1] * len(rows)),
        },
    )


def _function(name: str) -> list[str]:
    return [
        f"reward.custom_reward_function.path={_PLAIN}",
        f"reward.custom_reward_function.name={name}",
    ]


def _column(values: Sequence[object]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
