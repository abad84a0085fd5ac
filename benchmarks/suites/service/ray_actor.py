"""The same scoring in a Ray actor, against the reward server; run where Ray is installed.

``python -m benchmarks.suites.service.ray_actor DATASET ROLLOUTS ADDRESS ROUNDS COUNT...`` prints
one line of JSON: for each count, microseconds a rollout of each way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ray

from benchmarks.harness.measure import interleaved
from benchmarks.suites.service.work import REWARD, check
from consensuspr.client import RewardClient
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Rollout, Score, ScoreOptions, Scorer

ACTOR = "Ray actor call"
SERVER = "server, RewardClient"
SCORING = "in-process scoring"


class ScoringActor:
    """A scorer of one thread."""

    def __init__(self, dataset: str) -> None:
        verifier = AnswerVerifier(workers=1)
        self._scorer = Scorer({"default": DatasetIndex.load(dataset)}, verifier=verifier, threads=1)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Score a batch."""
        return self._scorer.score(rollouts, ScoreOptions(REWARD))[0]


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    dataset, rows, address, rounds, *counts = arguments
    rollouts = [Rollout(*pair) for pair in json.loads(Path(rows).read_text(encoding="utf-8"))]
    here = ScoringActor(dataset)
    # Ray's own typing says nothing of an actor's methods.
    runtime: Any = ray
    runtime.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    actor = runtime.remote(ScoringActor).remote(dataset)
    found = {}
    with RewardClient(address) as client:
        for count in map(int, counts):
            batch = rollouts[:count]
            expected = here.score(batch)
            ways: dict[str, Callable[[], list[Score]]] = {
                SCORING: partial(here.score, batch),
                SERVER: partial(client.score, batch, REWARD),
                ACTOR: partial(_call, runtime, actor, batch),
            }
            for name, way in ways.items():
                check(name, way(), expected)
            timings = interleaved(ways, int(rounds))
            found[count] = {name: timing.best / count * 1e6 for name, timing in timings.items()}
    runtime.shutdown()
    print(json.dumps(found))


def _call(runtime: Any, actor: Any, rollouts: Sequence[Rollout]) -> list[Score]:
    scores: list[Score] = runtime.get(actor.score.remote(rollouts))
    return scores


if __name__ == "__main__":
    main(sys.argv[1:])
