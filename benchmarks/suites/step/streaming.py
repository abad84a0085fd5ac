"""verl's own reward loop on a local Ray: single samples at a steady rate, and whole batches.

The same rollouts with a reward of nothing (Ray's hop and the decoding of tokens), with the
plain function, and with the service's manager against a real server.  One side after the other,
because verl's workers have fixed names.  A sample's latency counts from the moment that it was
due, so that a queue is not overlooked.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from verl.experimental.reward_loop import RewardLoopManager

from benchmarks.harness.measure import Context
from benchmarks.harness.results import Figure
from benchmarks.harness.runner import serving
from benchmarks.suites.step import loop
from benchmarks.suites.step.material import Step

# Well below what verl's loop carries on two cores with texts of this length.
RATE = 40.0
WHOLE_BATCHES = 3


def measure(context: Context, step: Step, folder: Path) -> list[Figure]:
    """Return latencies and rates of all sides, after their rewards were compared."""
    workers = 8 if context.full else 2
    tokenizer_dir = _tokenizer(step, folder / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    data = loop.batch(step, lambda _, text: tokenizer.encode(text))
    figures: list[Figure] = []
    with ExitStack() as stack:
        address, _ = stack.enter_context(serving(step.dataset, folder))
        ray.init(
            num_cpus=workers + 1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        stack.callback(ray.shutdown)
        for side, overrides in (
            ("reward of nothing", loop.nothing()),
            ("plain Python", loop.plain(step)),
            ("consensuspr", loop.service(address)),
        ):
            context.say(f"{len(step.rows):,} samples through verl's loop: {side}")
            overrides += [
                f"actor_rollout_ref.model.path={tokenizer_dir}",
                f"reward.num_workers={workers}",
            ]
            manager = RewardLoopManager(loop.config(overrides))
            try:
                found = _figures(manager, data, None if side == "reward of nothing" else step)
            finally:
                for worker in manager.reward_loop_workers:
                    ray.kill(worker)
            figures += [
                Figure(
                    name=name,
                    value=value,
                    unit=unit,
                    parameters={"reward": side, "workers": workers},
                )
                for name, (value, unit) in found.items()
            ]
    return figures


def _figures(manager: Any, data: Any, step: Step | None) -> dict[str, tuple[float, str]]:
    """Measure one side; its rewards are compared where ``step`` says what they are."""
    seconds = []
    for _ in range(WHOLE_BATCHES + 1):
        start = time.perf_counter()
        result = manager.compute_rm_score(data)
        seconds.append(time.perf_counter() - start)
    if step is not None:
        step.check("verl's loop", result.batch["rm_scores"].sum(dim=1).tolist(), 1e-6)
    latencies = sorted(_streamed(manager.reward_loop_workers, data))
    # The first batch starts processes and connections.
    rate = len(data) / statistics.median(seconds[1:])
    return {
        "whole batches through verl's loop": (rate, "samples/s"),
        f"one sample at {RATE:g}/s, median": (statistics.median(latencies) * 1e3, "ms"),
        f"one sample at {RATE:g}/s, p99": (latencies[int(0.99 * len(latencies))] * 1e3, "ms"),
    }


def _streamed(workers: Sequence[Any], data: Any) -> list[float]:
    """Hand over single samples at a steady rate; return each one's seconds from when it was due."""
    samples = [data[at : at + 1] for at in range(len(data))]
    due: dict[Any, float] = {}
    latencies: list[float] = []

    def collect(timeout: float) -> None:
        done, _ = ray.wait(list(due), num_returns=len(due), timeout=timeout)
        now = time.perf_counter()
        latencies.extend(now - due.pop(reference) for reference in done)

    start = time.perf_counter()
    for number, sample in enumerate(samples):
        at = start + number / RATE
        while (left := at - time.perf_counter()) > 0:
            if due:
                collect(min(left, 0.0005))
            else:
                time.sleep(left)
        due[workers[number % len(workers)].compute_score.remote(sample)] = at
    while due:
        collect(0.001)
    return latencies


def _tokenizer(step: Step, folder: Path) -> Path:
    """Write a small tokenizer trained on some of the texts, so that nothing has to be fetched."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [row["response"] for row in step.rows[:32]],
        trainers.BpeTrainer(
            vocab_size=2000,
            special_tokens=["<pad>", "<eos>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    ).save_pretrained(folder)
    return folder
