"""Small problems with rollouts whose nodes are known, and the path that workers import from."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from consensusbench.construction import BuildJob, BuildReport, OutputPaths, build
from tests.rows import read_rows, write_rows

HERE = Path(__file__).resolve().parent

if TYPE_CHECKING:
    from tests.consensusbench.construction.construction_toys import (
        ToyAsyncExtractor,
        ToyExtractor,
        ToyRefiner,
    )
else:
    # Workers import the toys by this name; some environments have another package ``tests``.
    sys.path.insert(0, str(HERE))
    _toys = importlib.import_module("construction_toys")
    sys.path.remove(str(HERE))
    ToyAsyncExtractor, ToyExtractor = _toys.ToyAsyncExtractor, _toys.ToyExtractor
    ToyRefiner = _toys.ToyRefiner

__all__ = ["ToyAsyncExtractor", "ToyExtractor", "ToyRefiner"]

MODELS = ("ada", "bea", "cyd")


@pytest.fixture(autouse=True, scope="module")
def _workers_find_the_toys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        yield


def problem_row(number: int) -> dict[str, Any]:
    """Return a problem: what are twice n, and one more?"""
    return {
        "problem_id": f"p{number:04d}",
        "data_source": "toy/even" if number % 2 == 0 else "toy/odd",
        "problem": f"What is twice {number}, and one more?",
        "ground_truth": str(2 * number + 1),
        "split": "train",
        "metadata": {"level": 1 + number % 5},
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


def outputs(folder: Path, name: str = "dataset") -> OutputPaths:
    """Return paths for all outputs of a build."""
    return OutputPaths(*(folder / f"{name}{kind}.jsonl" for kind in ("", ".audit", ".candidates")))


def written(paths: OutputPaths) -> list[bytes]:
    """Return the bytes of all outputs."""
    return [path.read_bytes() for path in paths.all()]


@dataclass
class Toys:
    """The rows of a build with the toys, and the folder that holds its files and outputs."""

    folder: Path
    problems: list[dict[str, Any]]
    rollouts: list[dict[str, Any]]

    @classmethod
    def of(cls, folder: Path, problems: int, samples: int = 2) -> Self:
        """Return so many problems with rollouts of three models, of every third one a wrong one."""
        numbers = range(1, problems + 1)
        rollouts = [
            rollout_row(number, model, sample)
            for number in numbers
            for model in MODELS
            for sample in range(samples)
        ]
        for row in rollouts[:: 3 * samples]:
            row["response"] = row["response"].rpartition("\\boxed")[0] + "\\boxed{0}"
            row["correct"] = False
        return cls(folder, [problem_row(number) for number in numbers], rollouts)

    def at(self, name: str) -> Self:
        """Return the same rows in a new folder within this one."""
        folder = self.folder / name
        folder.mkdir()
        return replace(self, folder=folder)

    def write(self) -> tuple[Path, Path]:
        """Write the rows; return the files of problems and of rollouts."""
        return (
            write_rows(self.folder / "problems.jsonl", self.problems),
            write_rows(self.folder / "rollouts.jsonl", self.rollouts),
        )

    def job(self, **changes: Any) -> BuildJob:
        """Write the rows and return the build of them, with some of its parts changed."""
        problems, rollouts = self.write()
        parts: dict[str, Any] = {
            "rollouts": (rollouts,),
            "problems": problems,
            "paths": outputs(self.folder),
            "extractor": ToyExtractor(),
            "refiner": ToyRefiner(),
        }
        return BuildJob(**(parts | changes))

    def build(self, **changes: Any) -> BuildReport:
        """Build, with some parts changed."""
        return build(self.job(**changes))

    def path(self, name: str = "dataset") -> Path:
        """Return one of the files of rows."""
        return self.folder / f"{name}.jsonl"

    def rows(self, name: str = "dataset") -> list[dict[str, Any]]:
        """Return the rows of an output."""
        return read_rows(self.path(name))

    def made(self) -> dict[str, Any]:
        """Return how the first problem of the dataset was made."""
        made: dict[str, Any] = self.rows()[0]["metadata"]["construction"]
        return made

    def excluded(self) -> list[dict[str, Any]]:
        """Return the problems that the audit names."""
        return [row for row in self.rows("dataset.audit") if row["what"] == "problem"]

    def name_problems(self) -> None:
        """Let the rollouts name problem, ground truth and source themselves."""
        known = {row["problem_id"]: row for row in self.problems}
        for row in self.rollouts:
            problem = known[row["problem_id"]]
            row |= {key: problem[key] for key in ("problem", "ground_truth", "data_source")}


@pytest.fixture
def six(tmp_path: Path) -> Toys:
    """Six problems and their rollouts."""
    return Toys.of(tmp_path, 6)
