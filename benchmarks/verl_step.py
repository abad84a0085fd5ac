"""A whole step's rewards in verl's own reward managers: ``python -m benchmarks.verl_step``.

It runs in the environment that has verl (``make .venv-verl-0.9.1/.installed``), without Ray.  2,048
samples are given to a reward manager at once; tokens are decoded by a look-up on every side.  The
plain function (:mod:`benchmarks.plain_reward`) uses one core, because verl's threads share the
interpreter's lock.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager

from benchmarks import texts
from benchmarks.measure import Row, WrongAnswerError, fastest, report
from benchmarks.processes import confined, serving
from consensuspr.client.training import shared_source
from consensuspr.client.verl.config import ManagerConfig

SIZE = 10_000
ROLLOUTS = 2048
PROMPT_TOKENS = 128
SEED = 20
_PLAIN = Path(__file__).with_name("plain_reward.py")

Step = Callable[[], list[float]]


def check(side: str, batch: texts.Batch, rewards: Sequence[float]) -> None:
    """Raise WrongAnswerError if rewards, half Acc and half NCR, differ from the known ones."""
    for at, (row, reward) in enumerate(zip(batch.rows, rewards, strict=True)):
        right = 0.5 * row["correct"] + 0.5 * sum(row["expected"]) / len(row["expected"])
        if reward != right:
            raise WrongAnswerError(f"{side}: rollout {at} gets {reward}, not {right}")


def plain_function(step: texts.Batch) -> list[str]:
    """Return the overrides for verl's naive manager with the plain Python function."""
    return [
        f"reward.custom_reward_function.path={_PLAIN}",
        "reward.custom_reward_function.name=compute_score",
        f"+reward.custom_reward_function.reward_kwargs.dataset={step.dataset}",
    ]


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
    """A tokenizer whose one token id of a response is its place in a list of texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        """Return the text of a response."""
        return self._texts[int(ids[0])]


def data_of(step: texts.Batch) -> Any:
    """Return a step as verl hands it over, a response being one token."""
    rows = step.rows
    prompts = torch.ones((len(rows), PROMPT_TOKENS), dtype=torch.long)
    tensors = {
        "prompts": prompts,
        "responses": torch.arange(len(rows))[:, None],
        "attention_mask": torch.ones((len(rows), PROMPT_TOKENS + 1), dtype=torch.long),
    }
    columns: dict[str, Sequence[object]] = {
        "data_source": ["math_dapo"] * len(rows),
        "reward_model": [{"ground_truth": row["ground_truth"]} for row in rows],
        "extra_info": [{"problem_id": row["problem_id"], "split": "train"} for row in rows],
        # Columns that verl's trainer and agent loop add; a group shares its prompt.
        "uid": [row["problem_id"] for row in rows],
        "raw_prompt": [_chat(row["problem_id"]) for row in rows],
        "prompt_len": [PROMPT_TOKENS] * len(rows),
        "response_len": [1] * len(rows),
        "global_steps": [1] * len(rows),
    }
    non_tensors = {}
    for name, values in columns.items():
        non_tensors[name] = np.empty(len(rows), dtype=object)
        non_tensors[name][:] = values
    return DataProto(TensorDict(tensors, batch_size=len(rows)), non_tensors)


def _chat(problem_id: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"A problem, {problem_id}. " + "What is it worth? " * 20}]


def managed(overrides: Sequence[str], step: texts.Batch) -> Step:
    """Return a step of single samples, given to a reward manager all at once."""
    manager = load_reward_manager(config(overrides), LookUp([r["response"] for r in step.rows]))
    data = data_of(step)
    samples = [data[at : at + 1] for at in range(len(data))]

    async def gather() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*map(manager.run_single, samples)))

    def run() -> list[float]:
        # As in a trainer: the collector's share is part of the cost of a manager.
        gc.enable()
        return [result["reward_score"] for result in manager.loop.run_until_complete(gather())]

    return run


async def close(overrides: Sequence[str]) -> None:
    """Close the connection that a manager has to a server that is about to end."""
    await shared_source(ManagerConfig.of(config(overrides)).settings).close()


def run() -> Iterator[Row]:
    """Time the step through the manager against the plain function, the server on its own core."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        step = texts.batch(ROLLOUTS, SIZE, SEED, Path(name))
        address, _ = stack.enter_context(serving(step.dataset, Path(name), {cores[-1]}))
        stack.enter_context(confined({cores[0]}))
        sides = {
            "plain": managed(plain_function(step), step),
            "manager": managed(service(address), step),
        }
        for side, run_side in sides.items():
            check(side, step, run_side())
        best = fastest(sides, rounds=2)
        asyncio.get_event_loop().run_until_complete(close(service(address)))
    note = f"{ROLLOUTS:,} rollouts of 10 KB, step of {best['manager']:.2f} s"
    quantity = "plain Python in verl's naive manager over the manager"
    yield Row("verl_step", quantity, f"{best['plain'] / best['manager']:.1f}x", note)


if __name__ == "__main__":
    report(run())
