"""A real server for the reward function, and the data that it serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import ServeProcess, run_with

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
def address(dataset_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a real server listens."""
    settings = {"datasets": {"default": str(dataset_file)}, "address": "127.0.0.1:0", "workers": 1}
    server = ServeProcess(tmp_path_factory.mktemp("server"), run_with(settings))
    yield server.wait_until_listening().address
    assert server.stop() == 0
    server.close()
