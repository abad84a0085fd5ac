"""The pages on training name options that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import consensusbench.cli.app
import consensuspr.cli.app

NAMED = {
    consensuspr.cli.app.app: ("launch", "derive", "curves", "doctor", "explain", "serve"),
    consensusbench.cli.app.app: ("export", "grow"),
}


@pytest.mark.parametrize("page", ["docs/train.md", "deploy/verl/README.md"])
def test_options_are_spelled_right(page: str, repository: Path) -> None:
    # Two of Hydra, one of examples/verl_cpu.
    known = {"--config-name", "--config-path", "--help", "--epochs"}
    for app, names in NAMED.items():
        group: Any = typer.main.get_command(app)
        known |= {o for name in names for p in group.commands[name].params for o in p.opts}
    text = (repository / page).read_text("utf-8")
    text = re.sub(r"^## OpenRLHF and slime$.*?^(?=## )", "", text, flags=re.M | re.S)  # theirs
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", text))
    assert named
    assert named <= known
