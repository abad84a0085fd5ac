"""The suite ``step`` itself, in the environment with verl: its reward code as verl runs it.

*The whole step*: samples come one by one, as verl's agent loops hand them over, all at the same
time, without Ray and without decoding; the step ends with the last reward.  The plain function
(:mod:`benchmarks.children.plain_reward`) runs on one core, whatever verl does: its threads share
the interpreter's lock.  The service has its own processes; how many cores they and the trainer's
process have is said with each figure.

*verl's worker*: the same step given to verl's own ``RewardLoopWorker``, which cuts it into samples,
with the decoding of tokens, as verl runs it, and without: our reward against one of nothing.

*Streaming*: verl's own reward loop on a local Ray, single samples at a steady rate and whole
batches, with a reward of nothing (Ray's hop and the decoding of tokens), with the plain function,
and with the service's manager.  One side after the other, because verl's workers have fixed names.
A sample's latency counts from the moment that it was due, so that a queue is not overlooked.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import verl
from hydra import compose, initialize_config_dir
from tensordict import TensorDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.trainer.ppo.reward import load_reward_manager

from benchmarks.harness.results import SuiteResult
from benchmarks.measure import Context, fastest
from benchmarks.processes import confined, processor_seconds, serving
from benchmarks.suites.step import TITLE, Step, make_step
from benchmarks.texts import NODES, PER_PROBLEM
from consensuspr.client import RewardClient, RewardSpec, Rollout
from consensuspr.client.training import shared_source
from consensuspr.client.verl.config import ManagerConfig

SIZE = 10_000
ROLLOUTS = 2048
# Of verl's worker, quickly; decoding takes the naive manager longer than all else.
WORKER_ROLLOUTS = 512
# Of the streaming part; each side takes a few seconds at its rate.
SAMPLES, ALL_SAMPLES = 200, 2048

_PLAIN = Path(__file__).with_name("plain_reward.py")
PROMPT_TOKENS = 128
TIMEOUT_S = 120.0
CPU_ROUNDS = 3
# Of the figure that the target is about, and of the one that its note adds.
OWN_CORE = "server on a core of its own"
ONE_CORE = "all on one core"
PLAIN = "plain Python in verl's naive manager"
MANAGER = "consensuspr's manager"
CLIENT = "consensuspr's client, one batch"
NOTHING = "reward of nothing"
DECODED, GIVEN = "tokens decoded", "texts given"
# Well below what verl's loop carries on two cores with texts of this length.
RATE = 40.0
WHOLE_BATCHES = 3


def measure(context: Context) -> SuiteResult:
    """Time whole steps and single samples."""
    step = make_step(ROLLOUTS, SIZE, context.seed, context.data, context.scratch)
    found = SuiteResult(
        suite="step",
        title=TITLE,
        notes=[
            f"{len(step.rows):,} {step.kind} rollouts of {step.num_bytes / 1e6:.1f} MB in all,"
            f" {PER_PROBLEM} a problem, {NODES} nodes each. Every reward of"
            " every side equals what was written into the texts.",
            "Parallel: the plain function runs on one core wherever it is put, because verl's"
            " threads share the interpreter's lock. The service's server and the trainer's"
            " process work at the same time where they have a core each.",
            "The whole step leaves out Ray and the decoding of tokens on all sides. verl's worker"
            " is measured with decoding and without, verl's loop with both; there the sides run"
            " one after the other, not in turns, because verl's workers have fixed names.",
            "A reward of nothing is decoded too: verl's naive manager decodes before it asks.",
            "The garbage collector runs, as in a trainer. The service's manager has taken what was"
            " loaded out of its sight, which spares the plain function its full collections too.",
            "One batch through the client is what is left without verl's single samples.",
        ],
    )
    whole_steps(context, step, context.scratch, found)
    count = ROLLOUTS if context.full else WORKER_ROLLOUTS
    worker_steps(context, replace(step, rows=step.rows[:count]), context.scratch, found)
    part = replace(step, rows=step.rows[: ALL_SAMPLES if context.full else SAMPLES])
    streaming(context, part, context.scratch, found)
    return found


def plain_function(step: Step) -> list[str]:
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
        # As our manager does in a reward worker of Ray; here for every side alike.
        gc.collect()
        gc.freeze()

    def _init_reward_fn(self) -> None:
        self.reward_manager = load_reward_manager(self.config, self._given_tokenizer)


def batch(step: Step, encode: Callable[[int, str], Sequence[int]]) -> Any:
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


@dataclass(frozen=True)
class Placement:
    """Which cores the server and this process have; None: all there are."""

    name: str
    server: set[int] | None
    client: set[int] | None


def placements() -> list[Placement]:
    """Return the placements that this machine's cores allow."""
    cores = sorted(os.sched_getaffinity(0))
    one = Placement(ONE_CORE, {cores[0]}, {cores[0]})
    if len(cores) == 1:
        return [one]
    return [
        Placement(OWN_CORE, {cores[1]}, {cores[0]}),
        one,
        Placement(f"all on {len(cores)} cores", None, None),
    ]


def whole_steps(context: Context, step: Step, folder: Path, found: SuiteResult) -> None:
    """Time the step on all sides at every placement, after their rewards were compared."""
    by_placement: dict[str, Mapping[str, float]] = {}
    texts = LookUp([row["response"] for row in step.rows])
    data = batch(step, lambda at, text: [at])
    plain, nothing = (
        Worker(config(overrides), texts) for overrides in (plain_function(step), no_reward())
    )
    # The target is about these two.
    where = [one for one in placements() if context.full or one.name in (OWN_CORE, ONE_CORE)]
    for placement in where:
        context.say(f"{len(step.rows):,} {step.kind} rollouts, {placement.name}")
        with ExitStack() as stack:
            address, server = stack.enter_context(serving(step.dataset, folder, placement.server))
            stack.enter_context(confined(placement.client))
            ours = Worker(config(manager(address)), texts)
            client = stack.enter_context(RewardClient(address, TIMEOUT_S))
            sides = {
                PLAIN: managed(plain, data),
                MANAGER: managed(ours, data),
                CLIENT: batched(client, step),
            }
            for name, run in sides.items():
                step.check(name, run())
            # Seconds each, and ratios far from 1: more rounds would tell nothing new.
            times = fastest(sides, context.rounds if context.full else min(2, context.rounds))
            by_placement[placement.name] = times
            for side, seconds in times.items():
                of = {"side": side, "cores": placement.name, "texts": step.kind}
                found.add(f"step of {len(step.rows):,} rollouts", seconds, "s", of)
                found.add("times as fast as the plain function", times[PLAIN] / seconds, "x", of)
            if placement.name == OWN_CORE:
                sides[f"{NOTHING} in verl's naive manager"] = managed(nothing, data)
                _processor_time(step, sides, server, CPU_ROUNDS if context.full else 1, found)
            ours.loop.run_until_complete(_close(manager(address)))
    _check(by_placement, found)


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


def batched(client: RewardClient, step: Step) -> Callable[[], list[float]]:
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


async def _close(overrides: Sequence[str]) -> None:
    """Close the connection that a manager has to a server that is about to end."""
    await shared_source(ManagerConfig.of(config(overrides)).settings).close()


def _processor_time(
    step: Step,
    sides: Mapping[str, Callable[[], object]],
    server: int,
    rounds: int,
    found: SuiteResult,
) -> None:
    """Add what each side takes of the processors: less than wall time, it minds no neighbour."""
    for side, run in sides.items():
        served = processor_seconds(server)
        here = time.process_time()
        for _ in range(rounds):
            run()
        places = {"trainer's process": time.process_time() - here}
        if "consensuspr" in side:  # the others have none, and ticks are no figure
            places["server"] = processor_seconds(server) - served
        for where, spent in places.items():
            each_us = spent / rounds / len(step.rows) * 1e6
            found.add("processor time of a rollout", each_us, "us", {"side": side, "where": where})


def _check(by_placement: Mapping[str, Mapping[str, float]], found: SuiteResult) -> None:
    """Add the check, whose note has the same ratio with no more cores than plain Python's."""

    def ratio(placement: str, side: str) -> float:
        times = by_placement[placement]
        return times[PLAIN] / times[side]

    if OWN_CORE not in by_placement:
        value, placed = None, "this machine has one core, and the target is about two"
    else:
        value = ratio(OWN_CORE, MANAGER)
        placed = (
            "through the reward manager, sample by sample, two cores against one: the server on"
            " one core and the trainer's process on another, plain Python on one because of its"
            f" lock; as one batch through the client {ratio(OWN_CORE, CLIENT):.1f}x"
        )
    note = f"{placed}; all of it on one core {ratio(ONE_CORE, MANAGER):.1f}x through the manager"
    found.check("whole_step", value, note)


def worker_steps(context: Context, step: Step, folder: Path, found: SuiteResult) -> None:
    """Time the step in verl's worker with our reward and with one of nothing, in turns."""
    tokenizer = AutoTokenizer.from_pretrained(_tokenizer(step, folder / "tokenizer"))
    texts = LookUp([row["response"] for row in step.rows])
    samples = {
        DECODED: (tokenizer, batch(step, lambda _, text: tokenizer.encode(text))),
        GIVEN: (texts, batch(step, lambda at, _: [at])),
    }
    tokens = sum(samples[DECODED][1].non_tensor_batch["response_len"]) / len(step.rows)
    ratios: dict[tuple[str, str], float] = {}
    for placement in (one for one in placements() if one.name != OWN_CORE):
        context.say(f"{len(step.rows):,} {step.kind} rollouts in verl's worker, {placement.name}")
        with ExitStack() as stack:
            address, _ = stack.enter_context(serving(step.dataset, folder, placement.server))
            stack.enter_context(confined(placement.client))
            sides: dict[str, Callable[[], list[float]]] = {}
            for how, (decoder, data) in samples.items():
                ours = Worker(config(manager(address)), decoder)
                stack.callback(ours.loop.run_until_complete, _close(manager(address)))
                sides[f"{MANAGER}, {how}"] = whole_batch(ours, data)
                step.check(f"verl's worker, {how}", sides[f"{MANAGER}, {how}"]())
                idle = Worker(config(no_reward()), decoder)
                sides[f"{NOTHING}, {how}"] = whole_batch(idle, data)
            times = fastest(sides, context.rounds if context.full else min(4, context.rounds))
        for side, seconds in times.items():
            of = {"side": side, "cores": placement.name, "texts": step.kind}
            found.add("verl's worker, a rollout", seconds / len(step.rows) * 1e6, "us", of)
        for how in samples:
            ratio = times[f"{MANAGER}, {how}"] / times[f"{NOTHING}, {how}"]
            ratios[placement.name, how] = ratio
            of = {"cores": placement.name, "responses": how}
            found.add("verl's worker, our reward against one of nothing", ratio, "x", of)
    others = (f"{value:.2f}x {how}, {where}" for (where, how), value in ratios.items())
    found.check(
        "verl_step",
        ratios[ONE_CORE, DECODED],
        f"{len(step.rows):,} {step.kind} rollouts of {tokens:,.0f} tokens each, server and worker"
        " on one core, decoding on both sides, which a table of tokens does for us; "
        + "; ".join(others),
    )


def streaming(context: Context, step: Step, folder: Path, found: SuiteResult) -> None:
    """Add latencies and rates of all sides, after their rewards were compared."""
    # verl's eight, but no more than start in time: each loads torch and verl first.
    workers = min(8, 2 * len(os.sched_getaffinity(0))) if context.full else 2
    tokenizer_dir = folder / "tokenizer"
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    data = batch(step, lambda _, text: tokenizer.encode(text))
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
            ("reward of nothing", no_reward()),
            ("plain Python", plain_function(step)),
            ("consensuspr", manager(address)),
        ):
            context.say(f"{len(step.rows):,} samples through verl's loop: {side}")
            overrides += [
                f"actor_rollout_ref.model.path={tokenizer_dir}",
                f"reward.num_workers={workers}",
            ]
            looped = RewardLoopManager(config(overrides))
            try:
                figures = _loop_figures(looped, data, None if side == "reward of nothing" else step)
            finally:
                for worker in looped.reward_loop_workers:
                    ray.kill(worker)
            for name, (value, unit) in figures.items():
                found.add(name, value, unit, {"reward": side, "workers": workers})


def _loop_figures(manager: Any, data: Any, step: Step | None) -> dict[str, tuple[float, str]]:
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
