"""Scores from a real server over gRPC, or in this process with the same scorer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from consensuspr.client import LocalClient, RewardClient, Rollout
from consensuspr.scoring import Score, Status

Client: TypeAlias = RewardClient | LocalClient

# Deriving and loading take seconds; on the pure-Python twin a pass over all strangers takes long.
TIMEOUT_S = 3600.0
STOP_TIMEOUT_S = 60.0
# Figures must not depend on what else the machine does: an answer gets all the time it needs.
ANSWER_BUDGET_S = 60.0


@contextmanager
def open_client(datasets: Mapping[str, Path], in_process: bool) -> Iterator[Client]:
    """Yield a client for the datasets, of a server started for it unless ``in_process``."""
    if in_process:
        with LocalClient(datasets, timeout_s=TIMEOUT_S, answer_budget_s=ANSWER_BUDGET_S) as client:
            yield client
        return
    with _serving(datasets) as address, RewardClient(address, timeout_s=TIMEOUT_S) as client:
        yield client


@contextmanager
def _serving(datasets: Mapping[str, Path]) -> Iterator[str]:
    command = [sys.executable, "-m", "consensuspr.cli", "serve", "--address", "127.0.0.1:0"]
    for name, path in datasets.items():
        command += ["--dataset", f"{name}={path}"]
    command += ["--log-level", "warning"]
    environment = os.environ | {"CONSENSUSPR_ANSWER_BUDGET_S": str(ANSWER_BUDGET_S)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith("listening on "):
                raise SystemExit(f"the server did not start (it said {line!r})")
            yield line.removeprefix("listening on ").strip()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(STOP_TIMEOUT_S)


def score(client: Client, dataset: str, rollouts: Sequence[Rollout], wanted: Status) -> list[Score]:
    """Score rollouts against a dataset.

    Raises:
        SystemExit: a rollout has another status than the one wanted: figures would be wrong.
    """
    scores = client.score(rollouts, dataset=dataset)
    for rollout, one in zip(rollouts, scores, strict=True):
        if one.status is not wanted:
            raise SystemExit(
                f"a rollout of {rollout.problem_id} has the status {one.status}, "
                f"{wanted} was expected: {one.message}"
            )
    return scores
