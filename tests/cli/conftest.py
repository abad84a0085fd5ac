"""Small files to score, and a real server on them, started by the command itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from consensuspr.cli import main
from tests.commands import Run, runner
from tests.rows import write_rows
from tests.servers import served

PROBLEMS: list[dict[str, Any]] = [
    {
        "problem_id": "p1",
        "data_source": "algebra",
        "ground_truth": "9",
        "nodes": [
            {"node_id": "n1", "label": "total", "expressions": ["4*12=48"]},
            {"node_id": "n2", "label": "rest", "expressions": ["48-39=9"], "is_final": True},
        ],
    },
    {
        "problem_id": "p2",
        "data_source": "geometry",
        "ground_truth": "25",
        "nodes": [{"node_id": "n1", "expressions": ["c^2=9+16"]}],
    },
    {"problem_id": "p3", "data_source": "bare", "ground_truth": "7", "nodes": []},
]

ROLLOUTS: list[dict[str, Any]] = [
    {
        "rollout_id": "right",
        "problem_id": "p1",
        "data_source": "algebra",
        "response": r"$4 \times 12 = 48$, then 48 - 39 = 9. \boxed{9}",
        "num_tokens": 20,
        "style": "latex",
    },
    {
        "rollout_id": "wrong",
        "problem_id": "p1",
        "data_source": "algebra",
        "response": "4·12 = 48 and 48 − 39 = 10.\nAnswer: 10",
        "num_tokens": 10,
        "style": "plain",
    },
    {"rollout_id": "no-source", "problem_id": "p2", "response": "so c² = 9 + 16\nAnswer: 5"},
    {"rollout_id": "hostile", "problem_id": "p2", "response": "\x1b[2J\x1b]0;owned\x07 c^2=9+16"},
    {"rollout_id": "bare", "problem_id": "p3", "response": "Answer: 7"},
    {"rollout_id": "lost", "problem_id": "p9", "response": "Answer: 7"},
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, as the console script does."""
    return runner(main, capsys, monkeypatch)


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """A dataset of three problems, one of them without nodes."""
    return write_rows(tmp_path / "problems.jsonl", PROBLEMS)


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """Six rollouts, one of a problem that nobody knows."""
    return write_rows(tmp_path / "rollouts.jsonl", ROLLOUTS)


class RunningServer(NamedTuple):
    """A real server: its address, and what it serves as ``small``."""

    address: str
    dataset: Path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A real server on the small dataset."""
    folder = tmp_path_factory.mktemp("server")
    dataset = write_rows(folder / "problems.jsonl", PROBLEMS)
    with served(folder, f"small={dataset}", "--workers", "1") as address:
        yield RunningServer(address, dataset)
