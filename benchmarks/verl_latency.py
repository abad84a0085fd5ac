"""What the reward service adds to a sample in verl's own reward loop, over a reward of nothing.

Runs verl's ``RewardLoopManager`` with its workers on a local Ray twice in one run: with a custom
reward function that returns 0 (verl's naive manager: Ray's hop and the decoding of tokens), and
with the service's manager against a real server.  The difference is what the service adds.

    python benchmarks/verl_latency.py --workers 8 --rollouts 2048 --json latency.json

Two ways of asking, as verl has them: *streaming*, single samples at a steady rate, where the
latency of each counts (from the moment it was due, so that a queue is not overlooked); and
*whole batch*, where only the total counts.  Needs verl (``make test-verl`` makes an environment
that has it).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Whole batches after the first; their median counts.
ROUNDS = 3

SAMPLE = Path(__file__).resolve().parents[1] / "examples" / "sample"


async def nothing(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None
) -> float:
    """Return 0, as a custom reward function of verl's."""
    return 0.0


def main() -> None:
    """Measure, check, print one table."""
    arguments = _arguments()
    import ray

    rows = _rows(arguments.rollouts, arguments.chars)
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as address:
        tokenizer = _tokenizer(Path(folder) / "tokenizer")
        ray.init(num_cpus=arguments.workers + 1, include_dashboard=False, log_to_driver=False)
        batch = _batch(rows, tokenizer)
        figures: dict[str, dict[str, float]] = {}
        for name, overrides in (
            (
                "nothing",
                [
                    f"reward.custom_reward_function.path={Path(__file__).resolve()}",
                    "reward.custom_reward_function.name=nothing",
                ],
            ),
            (
                "consensuspr",
                [
                    "reward.reward_manager.name=consensuspr",
                    f"+reward.reward_kwargs.address={address}",
                ],
            ),
        ):
            loop = _reward_loop(tokenizer, arguments.workers, overrides)
            figures[name] = _measure(loop, batch, arguments.rate, check=name == "consensuspr")
            for worker in loop.reward_loop_workers:
                ray.kill(worker)
        ray.shutdown()
    _report(figures, arguments)


def _measure(loop: Any, batch: Any, rate: float, check: bool) -> dict[str, float]:
    import ray

    seconds = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        result = loop.compute_rm_score(batch)
        seconds.append(time.perf_counter() - start)
    whole_s = statistics.median(seconds[1:])  # the first one starts processes and connections
    if check:  # a fast wrong reward is worth nothing
        statuses = set(result.non_tensor_batch["status"])
        assert statuses <= {"OK", "ANSWER_UNDECIDED"}, statuses
    latencies = _stream(loop, batch, rate, ray)
    return {
        "whole_batch_ms_a_sample": whole_s / len(batch) * 1e3,
        "streaming_p50_ms": statistics.median(latencies) * 1e3,
        "streaming_p99_ms": sorted(latencies)[int(0.99 * len(latencies))] * 1e3,
    }


def _stream(loop: Any, batch: Any, rate: float, ray: Any) -> list[float]:
    """Return each sample's seconds from the moment that it was due."""
    samples = [batch[number : number + 1] for number in range(len(batch))]
    workers = loop.reward_loop_workers
    due: dict[Any, float] = {}
    latencies: list[float] = []

    def collect(timeout: float) -> None:
        done, _ = ray.wait(list(due), num_returns=len(due), timeout=timeout)
        now = time.perf_counter()
        latencies.extend(now - due.pop(reference) for reference in done)

    start = time.perf_counter()
    for number, sample in enumerate(samples):
        at = start + number / rate
        while (left := at - time.perf_counter()) > 0:
            if due:
                collect(min(left, 0.0005))
            else:
                time.sleep(left)
        due[workers[number % len(workers)].compute_score.remote(sample)] = at
    while due:
        collect(0.001)
    return latencies


def _reward_loop(tokenizer: Path, workers: int, overrides: Sequence[str]) -> Any:
    import verl
    from hydra import compose, initialize_config_dir
    from verl.experimental.reward_loop import RewardLoopManager

    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={tokenizer}",
                f"reward.num_workers={workers}",
                *overrides,
            ],
        )
    return RewardLoopManager(config)


def _rows(number: int, chars: int) -> list[dict[str, Any]]:
    """Return rollouts of the sample, each with a text of its own of about ``chars`` letters."""
    problems = {}
    for line in (SAMPLE / "problems.jsonl").read_text().splitlines():
        problem = json.loads(line)
        problems[problem["problem_id"]] = problem["ground_truth"]
    rollouts = [json.loads(line) for line in (SAMPLE / "rollouts.jsonl").read_text().splitlines()]
    rows = []
    for at in range(number):
        rollout = rollouts[at % len(rollouts)]
        filler = f"Let me think about this once more, attempt {at}. "
        text = filler * max(0, (chars - len(rollout["response"])) // len(filler))
        rows.append(
            {
                "problem_id": rollout["problem_id"],
                "response": text + rollout["response"],
                "ground_truth": problems[rollout["problem_id"]],
            }
        )
    return rows


def _batch(rows: list[dict[str, Any]], tokenizer_dir: Path) -> Any:
    import numpy as np
    import torch
    from tensordict import TensorDict
    from transformers import AutoTokenizer
    from verl import DataProto

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    responses = [torch.tensor(tokenizer.encode(row["response"])) for row in rows]
    ids = torch.nn.utils.rnn.pad_sequence(responses, batch_first=True)
    mask = torch.zeros_like(ids)
    for at, response in enumerate(responses):
        mask[at, : len(response)] = 1
    prompts = torch.ones((len(rows), 8), dtype=torch.long)

    def column(make: Callable[[dict[str, Any]], object]) -> Any:
        values = np.empty(len(rows), dtype=object)
        values[:] = [make(row) for row in rows]
        return values

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
            "data_source": column(lambda row: "sample"),
            "reward_model": column(lambda row: {"ground_truth": row["ground_truth"]}),
            "extra_info": column(lambda row: {"problem_id": row["problem_id"]}),
        },
    )


def _tokenizer(folder: Path) -> Path:
    """Write a tokenizer of words of four letters at most, so that nothing has to be fetched."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        (SAMPLE / "rollouts.jsonl").read_text().splitlines(),
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


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "consensuspr.cli", "serve", "--workers", "1"),
                *("--address", "127.0.0.1:0", "--dataset", str(SAMPLE / "problems.jsonl")),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise SystemExit((folder / "server.log").read_text())
        try:
            yield line.split()[-1]
        finally:
            process.terminate()
            process.wait(30)


def _report(figures: dict[str, dict[str, float]], arguments: argparse.Namespace) -> None:
    print(
        f"{arguments.rollouts} rollouts of about {arguments.chars} letters,"
        f" {arguments.workers} reward workers, {os.cpu_count()} cores, {platform.machine()};"
        f" streaming at {arguments.rate:g} samples a second\n"
    )
    print("| a sample takes | reward of nothing | consensuspr | added | ratio |")
    print("|---|---|---|---|---|")
    for key in figures["nothing"]:
        base, ours = figures["nothing"][key], figures["consensuspr"][key]
        name = key.replace("_ms_a_sample", " total / samples").replace("_ms", "").replace("_", " ")
        print(
            f"| {name} | {base:.2f} ms | {ours:.2f} ms | {ours - base:+.2f} ms"
            f" | {ours / base:.2f} |"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=8, help="reward workers of verl")
    parser.add_argument("--rollouts", type=int, default=2048, help="samples of one run")
    parser.add_argument("--chars", type=int, default=4000, help="letters of a response")
    parser.add_argument("--rate", type=float, default=60.0, help="samples a second, streaming")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
