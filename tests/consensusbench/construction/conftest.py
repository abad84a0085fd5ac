"""Small problems with rollouts whose nodes are known, and the path that workers import from."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consensusbench.construction import BuildJob, BuildProgress, OutputPaths

if TYPE_CHECKING:
    from tests.consensusbench.construction.construction_toys import (
        ToyAsyncExtractor,
        ToyExtractor,
        ToyRefiner,
    )

# Of the toys only: what this module defines is exported without it.
__all__ = ["ToyAsyncExtractor", "ToyExtractor", "ToyRefiner"]

HERE = Path(__file__).resolve().parent


def _toys() -> Any:
    """Import the toys under a name that worker processes can import them by.

    Some environments hold a package ``tests`` of somebody else.
    """
    sys.path.insert(0, str(HERE))
    try:
        return importlib.import_module("construction_toys")
    finally:
        sys.path.remove(str(HERE))


if not TYPE_CHECKING:
    _found = _toys()
    ToyAsyncExtractor, ToyExtractor = _found.ToyAsyncExtractor, _found.ToyExtractor
    ToyRefiner = _found.ToyRefiner

MODELS = ("ada", "bea", "cyd")


@pytest.fixture(autouse=True)
def _workers_find_the_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def problem_row(number: int, **changes: Any) -> dict[str, Any]:
    """Return a problem: what are twice n, and one more?"""
    return {
        "problem_id": f"p{number:04d}",
        "data_source": "toy/even" if number % 2 == 0 else "toy/odd",
        "problem": f"What is twice {number}, and one more?",
        "ground_truth": str(2 * number + 1),
        "split": "train",
        "metadata": {"level": 1 + number % 5},
        **changes,
    }


def rollout_row(number: int, model: str, sample: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a correct rollout of a problem, with two nodes and something of its own."""
    own = f"{sample + 1}+{MODELS.index(model)}={sample + 1 + MODELS.index(model)}"
    return {
        "problem_id": f"p{number:04d}",
        "model": model,
        "rollout_id": f"{model}-{sample}",
        "response": f"{model} {sample} says 2*{number}={2 * number}, {own} and "
        f"{2 * number}+1={2 * number + 1}. \\boxed{{{2 * number + 1}}}",
        "correct": True,
        **changes,
    }


def many(problems: int, samples: int = 2) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return problems and their rollouts, of every third one some that are wrong."""
    rows = [problem_row(number) for number in range(1, problems + 1)]
    rollouts = [
        rollout_row(number, model, sample)
        for number in range(1, problems + 1)
        for model in MODELS
        for sample in range(samples)
    ]
    for row in rollouts[:: 3 * samples]:
        row["response"] = row["response"].rpartition("\\boxed")[0] + "\\boxed{0}"
        row["correct"] = False
    return rows, rollouts


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def outputs(folder: Path, name: str = "dataset") -> OutputPaths:
    """Return paths for all outputs of a build."""
    return OutputPaths(
        folder / f"{name}.jsonl",
        folder / f"{name}.audit.jsonl",
        folder / f"{name}.candidates.jsonl",
    )


def job(folder: Path, *rollouts: Path, **changes: Any) -> BuildJob:
    """Return a build with the toys, with some of its parts changed."""
    parts: dict[str, Any] = {
        "paths": outputs(folder),
        "extractor": ToyExtractor(),
        "refiner": ToyRefiner(),
    }
    return BuildJob(rollouts, **(parts | changes))


def job_of(
    folder: Path, problems: list[dict[str, Any]], rollouts: list[dict[str, Any]], **changes: Any
) -> BuildJob:
    """Return a build of some rows, which are written into the folder."""
    path = write_rows(folder / "problems.jsonl", problems)
    return job(folder, write_rows(folder / "rollouts.jsonl", rollouts), problems=path, **changes)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Six problems and their rollouts: paths of both files."""
    problems, rollouts = many(6)
    return (
        write_rows(tmp_path / "problems.jsonl", problems),
        write_rows(tmp_path / "rollouts.jsonl", rollouts),
    )


def with_columns(rollouts: Path, problems: Path) -> Path:
    """Return rollouts whose rows name problem, ground truth and source themselves."""
    known = {row["problem_id"]: row for row in read_rows(problems)}
    rows = [
        row
        | {key: known[row["problem_id"]][key] for key in ("problem", "ground_truth", "data_source")}
        for row in read_rows(rollouts)
    ]
    return write_rows(rollouts.with_name("with_columns.jsonl"), rows)


def written(paths: OutputPaths) -> list[bytes]:
    """Return the bytes of all outputs."""
    return [path.read_bytes() for path in paths.all()]


class Listener(BuildProgress):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.heard: list[tuple[str, int | None]] = []

    def read(self, rollouts: int) -> None:
        self.heard.append(("read", rollouts))

    def begin(self, problems: int | None) -> None:
        self.heard.append(("begin", problems))

    def work(self, problems: int) -> None:
        self.heard.append(("work", problems))

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)
