"""The pages on training name options and columns that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import consensusbench.cli
import consensuspr.cli


@pytest.mark.parametrize("page", ["docs/train.md", "deploy/verl/README.md"])
def test_options_are_spelled_right(
    page: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = "--config-name --config-path"  # of Hydra
    for main, command in (
        (consensuspr.cli.main, "launch"),
        (consensuspr.cli.main, "derive"),
        (consensuspr.cli.main, "curves"),
        (consensuspr.cli.main, "doctor"),
        (consensuspr.cli.main, "serve"),
        (consensusbench.cli.main, "export"),
    ):
        assert main([command, "--help"]) == 0
        known += capsys.readouterr().out
    text = (repository / page).read_text("utf-8")
    text = re.sub(r"^## OpenRLHF and slime$.*?^(?=## )", "", text, flags=re.M | re.S)  # theirs
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", text))
    assert named
    assert named <= set(re.findall(r"--[a-z]+(?:-[a-z]+)*", known))


def test_every_option_of_a_launch_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert consensuspr.cli.main(["launch", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--algorithm", "--alphas", "--server-address", "--recipe", "--dry-run"):
        assert option in shown
    assert "consensuspr launch --algorithm grpo --model 4b --reward linear" in shown
