"""A page on two runs of the example, shared by the tests that only look."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.watched import DATASET, Watched, watching


@pytest.fixture(scope="session")
def make_run(repository: Path) -> Any:
    """``make_run`` of the example."""
    return runpy.run_path(str(repository / "examples/stuffing/make.py"))["make_run"]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, make_run: Any) -> list[Path]:
    """A run that learns to name nodes, and one that does not."""
    folder = tmp_path_factory.mktemp("runs")
    for name, learns in (("stuffing", True), ("honest", False)):
        for _ in make_run(folder / name, steps=12, learns=learns):
            pass
    return [folder / "stuffing", folder / "honest"]


@pytest.fixture(scope="session")
def page(runs: list[Path]) -> Iterator[Watched]:
    """Both runs, read."""
    with watching(*runs, "--dataset", DATASET) as watched:
        watched.wait_read()
        yield watched
