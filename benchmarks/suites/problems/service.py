"""A server of two workers on one dataset: when it is ready, and what its processes hold."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import Resident, family, require, resident
from benchmarks.harness.runner import serving
from benchmarks.suites.problems.files import content
from benchmarks.suites.problems.names import problem_id
from consensuspr.client import RewardClient, Rollout

WORKERS = 2

# Connections, so that the kernel's spreading of them reaches both workers, and rollouts of each.
_CLIENTS = 8
_ROLLOUTS = 512


@dataclass(frozen=True, slots=True)
class Served:
    """A server that has scored rollouts of many problems.

    Attributes:
        seconds: from its start until it listens.
        fresh: memory of all its processes when it listens.
        used: the same after the rollouts.
        workers: the part of ``used`` that the workers hold; the rest is the supervisor's.
    """

    seconds: float
    fresh: Resident
    used: Resident
    workers: Resident


def serve(
    dataset: Path, scratch: Path, problems: list[dict[str, Any]], count: int, seed: int
) -> Served:
    """Start a server, score rollouts of random problems, and return what it holds.

    Args:
        dataset: any file that ``serve`` takes.
        scratch: for the server's log.
        problems: the pool that the dataset repeats.
        count: its problems.
        seed: of the choice.
    """
    rng = random.Random(f"served {seed}")
    start = time.perf_counter()
    with serving(dataset, scratch, workers=WORKERS) as (address, pid):
        seconds = time.perf_counter() - start
        fresh = _all_of(family(pid))
        for _ in range(_CLIENTS):
            numbers = [rng.randrange(count) for _ in range(_ROLLOUTS)]
            expected = [[position % 2 == 0 for position in range(7)]] * len(numbers)
            rollouts = [
                Rollout(problem_id(number), _reaching(content(problems, number, count)))
                for number in numbers
            ]
            with RewardClient(address) as client:
                batch = client.score(rollouts, timeout_s=600)
            require("the server", [score.matched for score in batch], expected)
        processes = family(pid)
        used = _all_of(processes)
        return Served(
            seconds=seconds, fresh=fresh, used=used, workers=_all_of(processes[1 : 1 + WORKERS])
        )


def _reaching(problem: dict[str, Any]) -> str:
    """Return a text that says every second node of a problem, and its answer as one says it.

    Without an answer the check would start processes, whose memory is not that of the dataset.
    """
    said = [node["expressions"][0] for node in problem["nodes"][::2]]
    return f"{'; '.join(said)}. The answer is \\boxed{{{problem['ground_truth']}}}."


def _all_of(processes: list[int]) -> Resident:
    return sum((resident(pid) for pid in processes), Resident())
