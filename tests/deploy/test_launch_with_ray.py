"""The server as a Ray actor beside a training that joins the same cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: run make test-verl")

# Stands in verl's place: joins the cluster that it is told of, looks for GPUs that the server
# has taken, and asks the server for its health from another node's point of view.
TRAINER = """
    import json, os, sys
    import grpc, ray
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    key = "+reward.reward_kwargs.address="
    [address] = [a.removeprefix(key) for a in sys.argv if a.startswith(key)]
    # As verl does it: no address given, so that RAY_ADDRESS decides.
    ray.init(num_cpus=None, log_to_driver=False)

    @ray.remote(num_cpus=0)
    def ask(address):
        with grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            return stub.Check(health_pb2.HealthCheckRequest(), timeout=30).status

    facts = {
        "address": address,
        "status": ray.get(ask.remote(address)),
        "gpus": ray.cluster_resources().get("GPU", 0) - ray.available_resources().get("GPU", 0),
        "ray": os.environ["RAY_ADDRESS"],
    }
    print(json.dumps(facts), flush=True)
"""


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """A folder for Ray whose path is short enough for its sockets."""
    with tempfile.TemporaryDirectory(prefix="cpr", dir="/tmp") as folder:
        yield folder


@pytest.mark.timeout(240)
def test_the_server_is_an_actor_of_the_trainings_cluster(
    repository: Path, tmp_path: Path, ray_folder: str
) -> None:
    (tmp_path / "stand_in.py").write_text(textwrap.dedent(TRAINER))
    (tmp_path / "rows.parquet").touch()
    rows = str(tmp_path / "rows.parquet")
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "RAY_TMPDIR": ray_folder,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "consensuspr.cli", "launch", "--no-doctor", "--server", "ray"),
            *("--trainer", "stand_in", "--algorithm", "grpo", "--model", "4b"),
            *("--reward", "max", "--train-files", rows, "--val-files", rows),
            *("--dataset", str(repository / "examples/sample/dataset.jsonl")),
            *("--server-address", "0.0.0.0:0", "--server-workers", "1"),
            *("--log-dir", str(tmp_path / "logs")),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["status"] == 1  # SERVING
    assert facts["gpus"] == 0
    assert f"the reward server is a Ray actor, listening on {facts['address']}" in done.stderr
    health = [sys.executable, "-m", "consensuspr.cli", "health", "--address", facts["address"]]
    assert subprocess.run(health, capture_output=True, check=False).returncode == 1
