"""The help and the shell completion of every command of both programs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

import consensusbench.cli.app
import consensuspr.cli.app

MAIN = {"consensuspr": consensuspr.cli.main, "consensusbench": consensusbench.cli.main}
GROUPS: dict[str, Any] = {
    "consensuspr": typer.main.get_command(consensuspr.cli.app.app),
    "consensusbench": typer.main.get_command(consensusbench.cli.app.app),
}
COMMANDS = [(program, name) for program, group in GROUPS.items() for name in group.commands]
# Options that help shows; what scores by a server or without has the options of both.
MOST = {"build": 23, "score": 21, "explain": 25, "loadtest": 19, "launch": 21, "serve": 17}


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_help_has_an_example_and_explains_every_option(
    program: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # nothing is wrapped
    assert MAIN[program]([command, "--help"]) == 0
    shown = capsys.readouterr().out
    text = shown.split("─ Options")[0].split("Usage:")[1].split("\n", 1)[1]
    assert f"{program} {command} " in text
    parameters = GROUPS[program].commands[command].params
    assert [one.name for one in parameters if not one.help] == []
    visible = [one for one in parameters if not getattr(one, "hidden", False)]
    assert [
        one.name for one in visible if one.opts[0].startswith("--") and one.opts[0] not in shown
    ] == []
    assert len(visible) <= MOST.get(command, 17)
    if len(visible) < len(parameters):
        assert "--list-settings" in shown
    # Not markup of the help.
    marks = [mark for one in visible for mark in re.findall(r"</?\w+>", one.help)]
    assert [mark for mark in marks if mark not in shown] == []
    flags = [flag for one in parameters for flag in (*one.opts, *one.secondary_opts)]
    assert sorted(flags) == sorted(set(flags))
    monkeypatch.setenv("COLUMNS", "80")
    assert MAIN[program]([command, "--help"]) == 0
    words = re.findall(r"\S+", capsys.readouterr().out)
    assert [word for word in words if word.endswith("…") and word[:1] in "-$"] == []
