"""A small dataset whose rows can be changed one by one, and a server that plays a model."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from consensusbench.cli import main
from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout
from consensuspr.scoring.types import Status
from tests.commands import Run, runner
from tests.consensusbench.openai_server import OpenAIServer
from tests.rows import write_rows

WriteDataset = Callable[..., Path]


def problem(number: int, **changes: Any) -> dict[str, Any]:
    """Return one row of a dataset, with some keys changed."""
    return {
        "problem_id": f"p{number}",
        "data_source": "arithmetic",
        "problem": f"What is ${number} + {{1}}$?",
        "ground_truth": str(number + 1),
        "nodes": [
            {"node_id": "n1", "expressions": [f"{number}+1={number + 1}"], "derived": ["x=1"]},
            {"node_id": "n2", "expressions": [f"y={number}"]},
        ],
        **changes,
    }


def scored_rollout(**changes: Any) -> ScoredRollout:
    """Return a scored rollout without a file; right and without nodes unless said otherwise."""
    values: dict[str, Any] = {
        "problem_id": "p",
        "rollout_id": "r",
        "model": "m",
        "data_source": "s",
        "status": Status.OK,
        "acc": 1.0,
        "matched": (),
        "spans": None,
        "num_tokens": None,
        "num_chars": 100,
        "answer": None,
        "answer_method": "",
        "file": 0,
    }
    return ScoredRollout(**values | changes)


def problem_facts(is_final: Sequence[bool], **changes: Any) -> ProblemFacts:
    """Return the facts of a problem with these nodes."""
    values: dict[str, Any] = {
        "problem_id": "p",
        "data_source": "s",
        "ground_truth": None,
        "difficulty": None,
        "is_final": tuple(is_final),
    }
    return ProblemFacts(**values | changes)


@pytest.fixture
def write_dataset(tmp_path: Path) -> WriteDataset:
    """Write rows as JSONL and return the file's path."""

    def write(*rows: dict[str, Any], name: str = "problems.jsonl") -> Path:
        return write_rows(tmp_path / name, rows)

    return write


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command and return code, standard output and standard error."""
    return runner(main, capsys, monkeypatch, columns=200)


@pytest.fixture
def openai_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """An OpenAI-compatible server of this test's own; set ``respond`` or call ``script``."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # Reading the system's certificates takes longer than most tests, and nothing here is encrypted.
    monkeypatch.setattr("ssl.SSLContext.load_verify_locations", lambda *_, **__: None)
    with contextlib.suppress(ImportError):
        monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    with OpenAIServer() as server:
        yield server


def journal_records(path: Path) -> dict[str, dict[str, Any]]:
    """Return what a journal holds by key, also while a process writes it or after its kill."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (path.name, f"{path.name}-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(path.with_name(name), folder)
        with contextlib.closing(sqlite3.connect(f"{folder}/{path.name}")) as database:
            try:
                rows = database.execute("SELECT key, record FROM records").fetchall()
            except sqlite3.OperationalError:  # not begun yet
                return {}
    return {key: json.loads(record) for key, record in rows}
