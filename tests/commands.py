"""Commands run in this process, as their console scripts do, and by an interpreter of their own."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


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


def runner(
    main: Callable[[Sequence[str]], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int = 120,
) -> Run:
    """Return a function that runs a command; its output is that of a terminal so wide."""
    for name in ("FORCE_COLOR", "NO_COLOR", "CONSENSUSPR_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))

    def run(*arguments: object) -> Outcome:
        with logging_as_it_was():
            code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


def run_python(*arguments: object, cwd: Path | None = None, **environment: str) -> Outcome:
    """Run an interpreter to its end, with some variables of the environment changed."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
