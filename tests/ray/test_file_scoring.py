"""``score --engine ray``: the very file that one process writes, also when a node dies."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

ray = pytest.importorskip("ray.data", reason="Ray is not installed: run make test-verl")

from consensuspr.cli import main  # noqa: E402
from consensuspr.ray.data import PartOptions, score_parts  # noqa: E402
from consensuspr.scoring import DatasetIndex  # noqa: E402
from consensuspr.scoring.types import ScoreOptions  # noqa: E402

if TYPE_CHECKING:
    from tests.ray.conftest import AddNode

COPIES = 120


@pytest.fixture(scope="module")
def many(rollouts_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """36,000 rollouts, 18 parts of them."""
    path = tmp_path_factory.mktemp("many") / "rollouts.jsonl"
    path.write_bytes(rollouts_file.read_bytes() * COPIES)
    return path


def test_a_killed_node_takes_no_rollout_along(
    cluster: Any,
    add_node: AddNode,
    free_of: Callable[[str, str], float],
    many: Path,
    problems: Path,
    tmp_path: Path,
) -> None:
    node = add_node(num_cpus=1)
    killed = False
    lines = []
    for part in score_parts(DatasetIndex.load(problems), PartOptions(str(many), ScoreOptions())):
        assert part.fault is None
        lines.append(part.lines)
        if not killed and free_of(node.node_id, "CPU") < 1.0:
            cluster.remove_node(node, allow_graceful=False)
            killed = True
    assert killed, "the node had no part in it"

    output = tmp_path / "local.jsonl"
    assert score(many, problems, output, "--engine", "local") == 0
    assert b"".join(lines) == output.read_bytes()


def test_the_command_writes_and_prints_the_same(
    cluster: Any, rollouts_file: Path, problems: Path, tmp_path: Path
) -> None:
    # Bad rows, a compressed input, spans, and Parquet, where rows are written here.
    rollouts = tmp_path / "rollouts.jsonl.gz"
    good = rollouts_file.read_bytes().splitlines(keepends=True)
    rollouts.write_bytes(gzip.compress(b"".join([*good[:100], b"{no json\n", *good[100:]])))
    printed = {}
    for engine in ("local", "ray"):
        output = tmp_path / f"{engine}.parquet"
        # In a process of its own: what Ray prints of nodes that died is no part of its output.
        command = [sys.executable, "-m", "consensuspr.cli", "score", str(rollouts)]
        command += ["--dataset", str(problems), "--output", str(output), "--engine", engine]
        done = subprocess.run(
            [*command, "--json", "--no-progress", *SKIP],
            env=os.environ | {"RAY_ADDRESS": cluster.address},
            capture_output=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr.decode()
        printed[engine] = json.loads(done.stdout)
        assert printed[engine].pop("output") == str(output)
        printed[engine].pop("elapsed_s")
    assert printed["ray"] == printed["local"]
    assert printed["ray"]["skipped_rows"] == 1
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()


SKIP = ("--on-error", "skip", "--spans")


def score(rollouts: Path, problems: Path, output: Path, *options: str) -> int:
    arguments = ["--dataset", str(problems), "--output", str(output), "--no-progress", *options]
    return main(["score", str(rollouts), *arguments])
