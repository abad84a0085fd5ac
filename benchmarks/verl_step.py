"""A whole step's rewards in verl's own reward code: ``python -m benchmarks.verl_step``.

It runs in the environment that has verl (``make .venv-verl-0.9.1/.installed``), without Ray.

*Step*: 2,048 samples given to a reward manager at once, tokens decoded by a look-up on every side.
The plain function (:mod:`benchmarks.plain_reward`) uses one core, because verl's threads share the
interpreter's lock.  *Worker*: verl's ``RewardLoopWorker`` cuts the step into samples and decodes
the tokens, with our reward and with one of nothing.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from tensordict import TensorDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.trainer.ppo.reward import load_reward_manager

from benchmarks import texts
from benchmarks.measure import Row, WrongAnswerError, fastest, report
from benchmarks.processes import confined, serving
from consensuspr.client import RewardClient, RewardSpec, Rollout
from consensuspr.client.training import shared_source
from consensuspr.client.verl.config import ManagerConfig

SIZE = 10_000
ROLLOUTS, WORKER_ROLLOUTS = 2048, 512
PROMPT_TOKENS = 128
SEED = 20
_PLAIN = Path(__file__).with_name("plain_reward.py")


def check(side: str, batch: texts.Batch, rewards: Sequence[float]) -> None:
    """Raise WrongAnswerError if rewards, half Acc and half NCR, differ from the known ones."""
    for at, (row, reward) in enumerate(zip(batch.rows, rewards, strict=True)):
        right = 0.5 * row["correct"] + 0.5 * sum(row["expected"]) / len(row["expected"])
        if reward != right:
            raise WrongAnswerError(f"{side}: rollout {at} gets {reward}, not {right}")


def plain_function(step: texts.Batch) -> list[str]:
    """Return the overrides for verl's naive manager with the plain Python function."""
    return [
        *_function("compute_score"),
        f"+reward.custom_reward_function.reward_kwargs.dataset={step.dataset}",
    ]


def no_reward() -> list[str]:
    """Return the overrides for verl's naive manager with a reward of 0."""
    return _function("nothing")


def manager(address: str) -> list[str]:
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

    def _init_reward_fn(self) -> None:
        self.reward_manager = load_reward_manager(self.config, self._given_tokenizer)


def batch(step: texts.Batch, encode: Callable[[int, str], Sequence[int]]) -> Any:
    """Return a step as verl hands it over.

    ``encode`` gives the token ids of a response, from its place and its text.
    """
    rows = step.rows
    responses = [torch.tensor(encode(at, row["response"])) for at, row in enumerate(rows)]
    ids = torch.nn.utils.rnn.pad_sequence(responses, batch_first=True)
    mask = torch.zeros_like(ids)
    for at, response in enumerate(responses):
        mask[at, : len(response)] = 1
    prompts = torch.ones((len(rows), PROMPT_TOKENS), dtype=torch.long)
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
            # What verl's trainer and agent loop add to each sample; a group shares its prompt.
            "uid": _column([row["problem_id"] for row in rows]),
            "raw_prompt": _column([_chat(row["problem_id"]) for row in rows]),
            "prompt_len": _column([PROMPT_TOKENS] * len(rows)),
            "response_len": _column([len(response) for response in responses]),
            "global_steps": _column([1] * len(rows)),
        },
    )


def _chat(problem_id: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"A problem, {problem_id}. " + "What is it worth? " * 20}]


def _function(name: str) -> list[str]:
    return [
        f"reward.custom_reward_function.path={_PLAIN}",
        f"reward.custom_reward_function.name={name}",
    ]


def _column(values: Sequence[object]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def managed(worker: Any, data: Any) -> Callable[[], list[float]]:
    """Return a step of single samples, given to a reward manager all at once."""
    samples = [data[at : at + 1] for at in range(len(data))]

    async def step() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*map(worker.reward_manager.run_single, samples)))

    def run() -> list[float]:
        # As in a trainer: the collector's share is part of what a manager costs.
        gc.enable()
        return [result["reward_score"] for result in worker.loop.run_until_complete(step())]

    return run


def whole_batch(worker: Any, data: Any) -> Callable[[], list[float]]:
    """Return a step that verl's worker cuts into samples itself."""

    def run() -> list[float]:
        gc.enable()
        results = worker.loop.run_until_complete(worker.compute_score_batch(data))
        return [result["reward_score"] for result in results]

    return run


def batched(client: RewardClient, step: texts.Batch) -> Callable[[], list[float]]:
    """Return a step that goes to the server in one call, without any of verl."""
    reward = RewardSpec.linear(0.5)

    def run() -> list[float]:
        gc.enable()
        rollouts = [
            Rollout(row["problem_id"], row["response"], row["ground_truth"], num_tokens=1)
            for row in step.rows
        ]
        scores = client.score(rollouts, reward, answer_rule="dapo")
        return [float("nan") if score.reward is None else score.reward for score in scores]

    return run


async def close(overrides: Sequence[str]) -> None:
    """Close the connection that a manager has to a server that is about to end."""
    await shared_source(ManagerConfig.of(config(overrides)).settings).close()


def placements() -> dict[str, tuple[set[int], set[int]]]:
    """Return the cores of the server and of this process, by name."""
    cores = sorted(os.sched_getaffinity(0))
    one = {"all on one core": ({cores[0]}, {cores[0]})}
    return {"server on a core of its own": ({cores[1]}, {cores[0]}), **one} if cores[1:] else one


def whole_steps(step: texts.Batch, folder: Path) -> Iterator[Row]:
    """Time the step through the manager and as one batch, against the plain function."""
    lookup = LookUp([row["response"] for row in step.rows])
    data = batch(step, lambda at, text: [at])
    plain = Worker(config(plain_function(step)), lookup)
    for name, (server, client_cores) in placements().items():
        with ExitStack() as stack:
            address, _ = stack.enter_context(serving(step.dataset, folder, server))
            stack.enter_context(confined(client_cores))
            ours = Worker(config(manager(address)), lookup)
            client = stack.enter_context(RewardClient(address, 120.0))
            sides = {
                "plain": managed(plain, data),
                "manager": managed(ours, data),
                "one batch": batched(client, step),
            }
            for side, run in sides.items():
                check(side, step, run())
            best = fastest(sides, rounds=2)
            ours.loop.run_until_complete(close(manager(address)))
        for side in ("manager", "one batch"):
            quantity = f"plain Python in verl's naive manager over the {side}"
            note = f"{name}; {len(step.rows):,} rollouts of 10 KB, step of {best[side]:.2f} s"
            yield Row("verl_step", quantity, f"{best['plain'] / best[side]:.1f}x", note)


def worker_step(step: texts.Batch, folder: Path) -> Row:
    """Time verl's worker, decoding included, with our reward and with one of nothing."""
    tokenizer = AutoTokenizer.from_pretrained(_tokenizer(step, folder / "tokenizer"))
    data = batch(step, lambda _, text: tokenizer.encode(text))
    core = {min(os.sched_getaffinity(0))}
    with serving(step.dataset, folder, core) as (address, _), confined(core):
        ours = Worker(config(manager(address)), tokenizer)
        sides = {
            "ours": whole_batch(ours, data),
            "nothing": whole_batch(Worker(config(no_reward()), tokenizer), data),
        }
        check("verl's worker", step, sides["ours"]())
        best = fastest(sides, rounds=3)
        ours.loop.run_until_complete(close(manager(address)))
    note = f"one core, tokens decoded; {1e6 * best['ours'] / len(step.rows):.0f} µs a rollout"
    ratio = best["ours"] / best["nothing"]
    return Row("verl_step", "verl's worker, our reward over one of nothing", f"{ratio:.2f}x", note)


def _tokenizer(step: texts.Batch, folder: Path) -> Path:
    """Write a small tokenizer trained on some of the texts, so that nothing has to be fetched."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [row["response"] for row in step.rows[:256]],
        trainers.BpeTrainer(
            vocab_size=8000,
            special_tokens=["<pad>", "<eos>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    ).save_pretrained(folder)
    return folder


def run() -> Iterator[Row]:
    """Measure whole steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        step = texts.batch(ROLLOUTS, SIZE, SEED, folder)
        yield from whole_steps(step, folder)
        yield worker_step(replace(step, rows=step.rows[:WORKER_ROLLOUTS]), folder)


if __name__ == "__main__":
    report(run())
