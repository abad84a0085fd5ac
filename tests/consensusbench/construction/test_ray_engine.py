"""``--engine ray``: the very files that one process writes, also where a problem ends a worker."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: run make test-verl")
pytest.importorskip("ray.data", reason="Ray Data is not installed: run make test-verl")

from tests.consensusbench.construction.conftest import (  # noqa: E402
    HERE,
    Toys,
    outputs,
    written,
)
from tests.ray_start import patiently  # noqa: E402

# Ray copies its own deprecated settings, and leaves sockets and log files to the interpreter.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster(repository: Path) -> Iterator[None]:
    """A cluster of two cores, connected to, whose processes find the toys."""
    # Short: sockets lie in it.
    folder = Path(tempfile.mkdtemp(prefix="cpr", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patiently(
            lambda: ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=200 << 20,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=str(folder),
                runtime_env={"env_vars": {"PYTHONPATH": f"{repository}:{HERE}"}},
            )
        )
        try:
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.usefixtures("cluster")
def test_a_cluster_writes_the_same(tmp_path: Path) -> None:
    toys = Toys.of(tmp_path, 30)
    toys.problems[3]["problem"] = "SPIN"
    toys.problems[4]["ground_truth"] = "0"
    toys.problems[5]["problem"] = "CRASH"
    reports = [
        toys.at(engine).build(engine=engine, workers=2, time_limit_s=3, on_error="skip")
        for engine in ("local", "ray")
    ]
    assert written(outputs(tmp_path / "ray")) == written(outputs(tmp_path / "local"))
    assert reports[1].problems.to_json() == reports[0].problems.to_json()
    assert dict(reports[1].problems.excluded) == {"time_limit": 1, "few_correct": 1, "failed": 1}
