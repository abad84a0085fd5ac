"""A real server for the reward function, and the data that it serves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROBLEMS = [
    {
        "problem_id": f"toy/{number}",
        "data_source": "toy",
        "problem": f"What is {number} and {number}?",
        "ground_truth": str(2 * number),
        "nodes": [
            {"node_id": "one", "expressions": ["1+1=2"]},
            {"node_id": "two", "expressions": ["2+2=4"]},
        ],
    }
    for number in (1, 2)
] + [{"problem_id": "bare", "problem": "What is five?", "ground_truth": "5", "nodes": []}]


@pytest.fixture(scope="session")
def dataset_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset on disk."""
    path = tmp_path_factory.mktemp("dataset") / "problems.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    return path


@pytest.fixture(scope="session")
def address(dataset_file: Path) -> Iterator[str]:
    """Where a real server listens."""
    arguments = ["--dataset", str(dataset_file), "--address", "127.0.0.1:0", "--workers", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "consensuspr.cli", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()
        assert process.wait(30) == 0
