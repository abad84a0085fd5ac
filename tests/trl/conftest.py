"""A real server for the reward function, and the data that it serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rows import write_rows
from tests.servers import served

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
    return write_rows(tmp_path_factory.mktemp("dataset") / "problems.jsonl", PROBLEMS)


@pytest.fixture(scope="session")
def address(dataset_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a real server listens."""
    with served(tmp_path_factory.mktemp("server"), dataset_file, "--workers", "1") as where:
        yield where
