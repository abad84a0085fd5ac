"""One step's rewards without Ray and without decoding: a plain function against the service.

Samples come one by one, as verl's agent loops hand them over, all at the same time; the step
ends with the last reward.  The plain function runs on one core, whatever verl does: its threads
share the interpreter's lock.  The service has its own processes; how many cores they and the
trainer's process have is said with each figure.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import Context, Timing, interleaved
from benchmarks.harness.results import Check, Figure
from benchmarks.harness.runner import confined, processor_seconds, serving
from benchmarks.suites.step import loop
from benchmarks.suites.step.material import Step
from consensuspr.client import RewardClient, RewardSpec, Rollout
from consensuspr.client.training import shared_source
from consensuspr.client.verl.config import ManagerConfig

TIMEOUT_S = 120.0
CPU_ROUNDS = 3
# Of the figure that the target is about, and of the one that its note adds.
OWN_CORE = "server on a core of its own"
ONE_CORE = "all on one core"

PLAIN = "plain Python in verl's naive manager"
MANAGER = "consensuspr's manager"
CLIENT = "consensuspr's client, one batch"
NOTHING = "reward of nothing"


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


def measure(context: Context, step: Step, folder: Path) -> tuple[list[Figure], list[Check]]:
    """Time the step on all sides at every placement, after their rewards were compared."""
    figures: list[Figure] = []
    by_placement: dict[str, Mapping[str, Timing]] = {}
    texts = loop.LookUp([row["response"] for row in step.rows])
    data = loop.batch(step, lambda at, text: [at])
    plain, nothing = (
        loop.Worker(loop.config(overrides), texts)
        for overrides in (loop.plain(step), loop.nothing())
    )
    for placement in placements():
        context.say(f"{len(step.rows):,} {step.kind} rollouts, {placement.name}")
        with ExitStack() as stack:
            address, server = stack.enter_context(serving(step.dataset, folder, placement.server))
            stack.enter_context(confined(placement.client))
            ours = loop.Worker(loop.config(loop.service(address)), texts)
            client = stack.enter_context(RewardClient(address, TIMEOUT_S))
            sides = {
                PLAIN: managed(plain, data),
                MANAGER: managed(ours, data),
                CLIENT: batched(client, step),
            }
            if placement.name == OWN_CORE:
                sides |= {
                    "verl's worker, plain Python": whole_batch(plain, data),
                    "verl's worker, consensuspr's manager": whole_batch(ours, data),
                }
            for name, run in sides.items():
                step.check(name, run())
            if placement.name == OWN_CORE:
                sides[f"verl's worker, {NOTHING}"] = whole_batch(nothing, data)
            # Seconds each, and ratios far from 1: more rounds would tell nothing new.
            times = interleaved(sides, context.rounds if context.full else min(3, context.rounds))
            figures += _figures(step, placement, times)
            by_placement[placement.name] = times
            if placement.name == OWN_CORE:
                sides[f"{NOTHING} in verl's naive manager"] = managed(nothing, data)
                figures += _processor_time(step, sides, server, CPU_ROUNDS if context.full else 1)
            ours.loop.run_until_complete(_close(loop.service(address)))
    return figures, _target(by_placement)


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
    await shared_source(ManagerConfig.of(loop.config(overrides)).settings).close()


def _processor_time(
    step: Step, sides: Mapping[str, Callable[[], object]], server: int, rounds: int
) -> list[Figure]:
    """Return what each side takes of the processors: less than wall time, it minds no neighbour."""
    figures = []
    for side, run in sides.items():
        served = processor_seconds(server)
        here = time.process_time()
        for _ in range(rounds):
            run()
        here = time.process_time() - here
        places = {"trainer's process": here}
        if "consensuspr" in side:  # the others have none, and ticks are no figure
            places["server"] = processor_seconds(server) - served
        for where, spent in places.items():
            figures.append(
                Figure(
                    name="processor time of a rollout",
                    value=spent / rounds / len(step.rows) * 1e6,
                    unit="us",
                    parameters={"side": side, "where": where},
                )
            )
    return figures


def _figures(step: Step, placement: Placement, times: Mapping[str, Timing]) -> list[Figure]:
    base = times[PLAIN].best
    return [
        Figure(
            name=name,
            value=value,
            unit=unit,
            parameters={"side": side, "cores": placement.name, "texts": step.kind},
        )
        for side, timing in times.items()
        for name, value, unit in (
            (f"step of {len(step.rows):,} rollouts", timing.best, "s"),
            ("times as fast as the plain function", base / timing.best, "x"),
        )
    ]


def _target(by_placement: Mapping[str, Mapping[str, Timing]]) -> list[Check]:
    """Return the check, whose note has the same ratio with no more cores than plain Python's."""

    def ratio(placement: str, side: str) -> float:
        times = by_placement[placement]
        return times[PLAIN].best / times[side].best

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
    return [Check(target="whole_step", value=value, note=note)]
