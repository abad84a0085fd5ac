"""Additions as problems, and the command run as a person runs it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from consensusbench.cli import main
from consensuspr.data import read_rollouts
from tests.consensusbench.openai_server import Asked, Behaviour, OpenAIServer, Say

Sample = Callable[..., int]


def right(asked: Asked) -> str:
    """Return a right answer to an addition."""
    first, second = map(int, re.findall(r"(\d+) \+ (\d+)", asked.prompt)[0])
    return (
        f"We add {first} and {second}: {first}+{second}={first + second}.\nAnswer: {first + second}"
    )


def is_problem(asked: Asked, number: int) -> bool:
    """Say whether a request is about the problem with this number."""
    return f"is {number} + " in asked.prompt


def answer_right(asked: Asked) -> Behaviour:
    """Answer every addition."""
    return Say(right(asked))


def environment_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment variables that say settings."""
    return {f"CONSENSUSBENCH_SAMPLE_{name.upper()}": str(v) for name, v in settings.items()}


@pytest.fixture
def write_problems(tmp_path: Path) -> Callable[..., Path]:
    """Write so many additions as a dataset; ``changes`` by number."""

    def write(count: int, **changes: dict[str, Any]) -> Path:
        path = tmp_path / "problems.jsonl"
        rows = [
            {
                "problem_id": f"p{number}",
                "data_source": "additions",
                "problem": f"What is {number} + 1000?",
                "ground_truth": str(number + 1000),
                **changes.get(f"p{number}", {}),
            }
            for number in range(count)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def models_file(tmp_path: Path, openai_server: OpenAIServer) -> Callable[..., Path]:
    """Write a models file with short waits; one table a name, ``more`` lines for all."""

    def write(*names: str, more: str = "") -> Path:
        path = tmp_path / "models.toml"
        head = f'[defaults]\nbase_url = "{openai_server.url}"\ninitial_backoff_s = 0.001\n{more}\n'
        path.write_text(head + "".join(f'[[models]]\nmodel = "{name}"\n' for name in names))
        return path

    return write


@pytest.fixture
def sample(tmp_path: Path, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """Run ``consensusbench sample`` in this process with settings; return its exit code."""
    pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")
    openai_server.respond = answer_right

    def run(
        problems: Path, *arguments: object, models: Path | None = None, **settings: object
    ) -> int:
        asked = (
            ["--models", str(models)]
            if models is not None
            else ["--model", f"toy@{openai_server.url}"]
        )
        output = ["--output", str(tmp_path / "rollouts.jsonl"), "--no-progress"]
        with monkeypatch.context() as environment:
            for name, value in environment_of(settings).items():
                environment.setenv(name, value)
            return main(["sample", str(problems), *asked, *output, *map(str, arguments)])

    return run


@pytest.fixture
def rollouts(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """Read what the command wrote."""
    return lambda: list(read_rollouts(tmp_path / "rollouts.jsonl"))
