"""The pages on training with verl name options that exist, in prose too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import consensusbench.cli.app
import consensuspr.cli.app

NAMED = {
    consensuspr.cli.app.app: ("launch", "curves", "doctor", "explain", "serve"),
    consensusbench.cli.app.app: ("export",),
}
PAGES = ["docs/tutorials/verl.md", "docs/guides/verl.md", "docs/guides/verl-failures.md"]


@pytest.mark.parametrize("page", [*PAGES, "deploy/verl/README.md"])
def test_options_are_spelled_right(page: str, repository: Path) -> None:
    # Of pip, and of examples/verl_cpu.
    known = set("--index-url --no-build-isolation --output --arms --seeds --steps --tool".split())
    for app, names in NAMED.items():
        group: Any = typer.main.get_command(app)
        known |= {o for name in names for p in group.commands[name].params for o in p.opts}
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", (repository / page).read_text("utf-8")))
    assert named
    assert named <= known
