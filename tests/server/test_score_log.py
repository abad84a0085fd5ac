"""The server's own score log: every way of asking, every worker, old clients too."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from consensuspr.client import RewardClient, RewardSpec, Rollout
from consensuspr.data import read_rollouts
from consensuspr.score_log import dataset_path
from consensuspr.scoring import DatasetIndex, rollout_from_row
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.v1.scoring_pb2_grpc import ScoringServiceStub
from tests.processes import wait_for
from tests.score_logs import rows_in
from tests.servers import ServeProcess, serve_command, served

SAMPLE = Path(__file__).resolve().parents[2] / "examples/sample"
DATASET = SAMPLE / "dataset.jsonl"


@pytest.fixture(scope="module")
def rollouts() -> list[Rollout]:
    return [rollout_from_row(row) for row in read_rollouts(SAMPLE / "rollouts.jsonl")]


def test_what_workers_score_is_logged_and_the_dataset_kept(
    tmp_path: Path, rollouts: list[Rollout]
) -> None:
    run = tmp_path / "run"
    with served(tmp_path, DATASET, "--score-log", str(run), "--workers", "2") as address:
        for _ in range(6):  # connections, which the system gives to either worker
            with RewardClient(address, run="mine") as client:
                scores = client.score(rollouts[:50], reward=RewardSpec.linear(0.25), epoch=2)
        wait_for(lambda: len(rows_in(run, following=True)) == 300)
    rows = rows_in(run)
    assert {row["side"] for row in rows} == {"server"}
    assert len({row["key"] for row in rows}) == 300
    for at, (rollout, score) in enumerate(zip(rollouts[:50], scores, strict=True)):
        same = [row for row in rows if row["rollout_id"] == rollout.rollout_id]
        assert len(same) == 6, at
        for row in same:
            assert row["reward"] == score.reward
            assert tuple(row["channels"]) == score.channels
            assert row["response"] == rollout.response
            assert (row["run"], row["epoch"]) == ("mine", 2)
    digest = scores.identity.dataset_digest
    assert {row["dataset_digest"] for row in rows} == {digest}
    assert [path.name for path in (run / "datasets").iterdir()] == [dataset_path(run, digest).name]
    assert DatasetIndex.load(dataset_path(run, digest)).digest == digest


def asked(rollouts: list[Rollout], request_id: int = 0, **fields: Any) -> pb.ScoreRequest:
    return pb.ScoreRequest(
        protocol_version=PROTOCOL_VERSION,
        rollouts=[
            pb.Rollout(
                problem_id=rollout.problem_id, response=str(rollout.response).encode(), **fields
            )
            for rollout in rollouts
        ],
        request_id=request_id,
    )


def test_what_is_sent_again_counts_once(tmp_path: Path, rollouts: list[Rollout]) -> None:
    run = tmp_path / "run"
    with (
        served(tmp_path, DATASET, "--score-log", str(run), "--workers", "1") as address,
        grpc.insecure_channel(address) as channel,
    ):
        stub = ScoringServiceStub(channel)
        for _ in range(3):
            stub.Score(asked(rollouts[:2], request_id=7))
        # Of a client that is older than such names nobody knows whether it asks again.
        for _ in range(3):
            stub.Score(asked(rollouts[:1]))
        # No key has another length; it is named by its request then.
        odd = pb.Sample(key=b"short", step=3, group="\0" * 40, split="x")
        stub.Score(asked(rollouts[:1], request_id=8, sample=odd))
        stub.Score(asked(rollouts[:1], request_id=9, sample=pb.Sample(key=b"k" * 16)))
        stub.Score(asked(rollouts[:1], request_id=10, sample=pb.Sample(key=b"k" * 16)))
        stub.Score(asked([]))
        looked = asked(rollouts[:1])
        looked.probe = True
        stub.Score(looked)
    rows = rows_in(run)
    assert len(rows) == 2 + 3 + 1 + 1
    assert [row["step"] for row in rows if row["split"] == "x"] == [3]


def test_a_worker_that_is_killed_loses_only_what_is_in_no_file(
    tmp_path: Path, rollouts: list[Rollout]
) -> None:
    run = tmp_path / "run"
    command = serve_command(DATASET, "--score-log", str(run), "--workers", "1")
    server = ServeProcess(tmp_path, command)
    try:
        address = server.wait_until_listening().address
        with RewardClient(address, timeout_s=60) as client:
            client.score(rollouts[:20])
            wait_for(lambda: len(rows_in(run, following=True)) == 20)
            [worker] = server.worker_pids()

            os.kill(worker, signal.SIGKILL)
            client.score(rollouts[:20])
        assert server.stop() == 0
    finally:
        server.close()
    assert len(rows_in(run)) == 40
