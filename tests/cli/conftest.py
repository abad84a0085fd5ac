"""Small files to score, and a real server on them, started by the command itself."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from consensuspr.cli import main

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

Run = Callable[..., "Outcome"]
StartServer = Callable[..., "RunningServer"]


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


class Rows:
    """Reads and writes JSONL."""

    @staticmethod
    def write(path: Path, rows: list[dict[str, Any]]) -> Path:
        """Write rows and return where."""
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """Return the rows of a file."""
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def rows() -> type[Rows]:
    """Files of rows."""
    return Rows


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, as the console script does."""
    for name in ("FORCE_COLOR", "NO_COLOR", "CONSENSUSPR_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(*arguments: object) -> Outcome:
        with logging_as_it_was():
            code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return invoke


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    """Undo what a command configures for its process, which here is that of all tests."""
    root, ours = logging.getLogger(), logging.getLogger("consensuspr")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    root.handlers[:] = []
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """A dataset of three problems, one of them without nodes."""
    return Rows.write(tmp_path / "problems.jsonl", PROBLEMS)


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """Six rollouts, one of a problem that nobody knows."""
    return Rows.write(tmp_path / "rollouts.jsonl", ROLLOUTS)


@dataclass(frozen=True)
class RunningServer:
    """A server in a process of its own, and the dataset that it serves as ``small``."""

    address: str
    process: subprocess.Popen[str]
    dataset: Path

    @classmethod
    def start(cls, dataset: Path, *options: str) -> RunningServer:
        """Run ``consensuspr serve`` on a free port and wait for its line."""
        command = [sys.executable, "-m", "consensuspr.cli", "serve", "--address", "127.0.0.1:0"]
        command += ["--dataset", f"small={dataset}", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:"), line
        return cls(line.removeprefix("listening on ").strip(), process, dataset)

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts servers that do not outlive the test."""
    started: list[RunningServer] = []

    def start(dataset: Path, *options: str) -> RunningServer:
        started.append(RunningServer.start(dataset, *options))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A real server on the small dataset."""
    folder = tmp_path_factory.mktemp("server")
    dataset = Rows.write(folder / "problems.jsonl", PROBLEMS)
    running = RunningServer.start(dataset, "--workers", "1")
    yield running
    assert running.stop() == 0
