"""A prepared dataset in each command that reads one: taken, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consensusbench.cli import main as consensusbench

if TYPE_CHECKING:
    from tests.cli.conftest import RunningServer
    from tests.commands import Run

REFUSED = (
    "is a prepared dataset or another Arrow IPC file; JSONL, gzip'd JSONL and Parquet are read"
)


@pytest.fixture
def prepared(run: Run, server: RunningServer, tmp_path: Path) -> Path:
    """The server's dataset, prepared."""
    path = tmp_path / "set.index"
    assert run("derive", server.dataset, "--output", path, "--no-progress").code == 0
    return path


def test_derive_refuses_it(run: Run, prepared: Path, tmp_path: Path) -> None:
    done = run("derive", prepared, "--output", tmp_path / "out.jsonl", "--no-progress")
    assert (done.code, done.err) == (2, f"consensuspr: error: {prepared}: {REFUSED}\n")


def test_the_dataset_tools_refuse_it(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert consensusbench(["validate", str(prepared)]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message == f"consensusbench: error: {prepared}: {REFUSED}"
