"""A Ray cluster of its own on this machine, whose second node may be killed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consensuspr.data import read_rollouts
from consensuspr.scoring import Rollout, rollout_from_row
from tests.ray_start import let_warnings_of_ray_pass, patiently
from tests.rows import read_rows, write_rows

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parents[1] / "examples" / "sample"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    let_warnings_of_ray_pass(items, HERE)


@pytest.fixture(scope="session")
def rollouts_file() -> Path:
    """The sample's file of rollouts."""
    return SAMPLE / "rollouts.jsonl"


@pytest.fixture(scope="session")
def problems() -> Path:
    """The sample's dataset."""
    return SAMPLE / "dataset.jsonl"


@pytest.fixture(scope="session")
def other_problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same problems with their first node alone, which scores most rollouts otherwise."""
    rows = [row | {"nodes": row["nodes"][:1]} for row in read_rows(SAMPLE / "dataset.jsonl")]
    return write_rows(tmp_path_factory.mktemp("other") / "problems.jsonl", rows)


@pytest.fixture(scope="session")
def rollouts() -> list[Rollout]:
    """The sample's rollouts."""
    return [rollout_from_row(row) for row in read_rollouts(SAMPLE / "rollouts.jsonl")]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A cluster with a head node of two cores, connected to."""
    # Short: sockets lie in it.  Its own: nobody who looks for a running cluster finds this one.
    folder = Path(tempfile.mkdtemp(prefix="cpr", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # On a busy machine a proxy may take longer than the usual five seconds to start.
        patch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
        patch.setenv("RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S", "60")
        (folder / "ray").mkdir()
        import ray
        from ray.cluster_utils import Cluster

        made = patiently(
            lambda: Cluster(
                initialize_head=True,
                head_node_args={
                    "num_cpus": 2,
                    "include_dashboard": False,
                    "object_store_memory": 200 << 20,
                },
            )
        )
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        try:
            yield made
        finally:
            ray.shutdown()
            made.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


AddNode = Callable[..., Any]


@pytest.fixture
def add_node(cluster: Any) -> Iterator[AddNode]:
    """Add nodes to the cluster; they leave with the test."""
    added: list[Any] = []

    def add(**resources: float) -> Any:
        added.append(cluster.add_node(object_store_memory=100 << 20, **resources))
        cluster.wait_for_nodes()
        return added[-1]

    yield add
    for node in added:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


@pytest.fixture
def free_of() -> Callable[[str, str], float]:
    """Say how much of a resource of a node nobody has taken."""

    def free(node_id: str, resource: str) -> float:
        from ray._private.state import available_resources_per_node

        return float(available_resources_per_node().get(node_id, {}).get(resource, 0.0))

    return free
