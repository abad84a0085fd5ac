"""The tutorial on looking at a run shows what its commands print."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.commands import Run

SHOWN = re.compile(r"^```\nconsensuspr ([^\n]*)\n```\n\n```text\n(.*?)^```$", re.M | re.S)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def test_commands_print_what_the_page_shows(
    run: Run, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (repository / "docs/tutorials/look-at-a-run.md").read_text(encoding="utf-8")
    make_run = runpy.run_path(str(repository / "examples/stuffing/make.py"))["make_run"]
    for _ in make_run(tmp_path / "runs/stuffing"):
        pass
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shown = SHOWN.findall(page)
    assert [command.split()[0] for command, _ in shown] == ["curves", "explain", "replay"]
    for command, output in shown:
        assert lines(run(*shlex.split(command)).out) == lines(output), command
