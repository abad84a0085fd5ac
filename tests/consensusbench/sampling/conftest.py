"""Additions as problems, and the command ``sample`` against a test server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from consensusbench.cli import main
from consensuspr.data import read_rollouts
from tests.consensusbench.openai_server import Asked, Behaviour, OpenAIServer, Refuse, Respond, Say
from tests.rows import write_rows


def right(asked: Asked) -> str:
    """Return a right answer to an addition."""
    first, second = map(int, re.findall(r"(\d+) \+ (\d+)", asked.prompt)[0])
    return (
        f"We add {first} and {second}: {first}+{second}={first + second}.\nAnswer: {first + second}"
    )


def is_problem(asked: Asked, number: int) -> bool:
    """Return whether a request is about the problem with this number."""
    return f"is {number} + " in asked.prompt


def answer_right(asked: Asked) -> Behaviour:
    """Answer every addition."""
    return Say(right(asked))


def wrong_where(condition: Callable[[Asked], bool]) -> Respond:
    """Answer an addition wrong where the condition holds, else right."""
    return lambda asked: Say("Answer: 7") if condition(asked) else answer_right(asked)


def refuse_where(condition: Callable[[Asked], bool], status: int, message: str = "no") -> Respond:
    """Refuse what the condition holds for, and answer the rest right."""
    return lambda asked: Refuse(status, message) if condition(asked) else answer_right(asked)


def environment_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings as environment variables."""
    return {f"CONSENSUSBENCH_SAMPLE_{name.upper()}": str(v) for name, v in settings.items()}


class SampleBench:
    """``consensusbench sample`` on additions, against a test server."""

    def __init__(
        self,
        folder: Path,
        server: OpenAIServer,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.folder = folder
        self.output = folder / "rollouts.jsonl"
        self.server = server
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        server.respond = answer_right

    def problems(self, count: int, **changes: dict[str, Any]) -> Path:
        """Write so many additions as a dataset; ``changes`` by id."""
        rows = (
            {
                "problem_id": f"p{number}",
                "data_source": "additions",
                "problem": f"What is {number} + 1000?",
                "ground_truth": str(number + 1000),
                **changes.get(f"p{number}", {}),
            }
            for number in range(count)
        )
        return write_rows(self.folder / "problems.jsonl", rows)

    def models(self, *names: str, more: str = "") -> Path:
        """Write a models file; one table a name, ``more`` lines for all."""
        path = self.folder / "models.toml"
        head = f'[defaults]\nbase_url = "{self.server.url}"\n{more}\n'
        path.write_text(head + "".join(f'[[models]]\nmodel = "{name}"\n' for name in names))
        return path

    def sample(
        self, problems: Path, *arguments: object, models: Path | None = None, **settings: Any
    ) -> int:
        """Run the command in this process with settings; return its exit code."""
        asked = ["--models", models] if models else ["--model", f"toy@{self.server.url}"]
        output = ["--output", self.output, "--no-progress"]
        with self._monkeypatch.context() as environment:
            for name, value in environment_of(settings).items():
                environment.setenv(name, value)
            return main(["sample", *map(str, [problems, *asked, *output, *arguments])])

    def printed(self) -> str:
        """Return what was printed since the last call, errors included."""
        return "".join(self._capsys.readouterr())

    def rollouts(self) -> list[dict[str, Any]]:
        """Read the rollouts that the command wrote."""
        return list(read_rollouts(self.output))

    def counts(self) -> dict[str, Any]:
        """Read the counts of the file beside the rollouts."""
        path = Path(f"{self.output}.provenance.json")
        return dict(json.loads(path.read_text())["counts"])


@pytest.fixture
def bench(
    tmp_path: Path,
    openai_server: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> SampleBench:
    """The command and its server, of this test's own."""
    pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")
    return SampleBench(tmp_path, openai_server, monkeypatch, capsys)
