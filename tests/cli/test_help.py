"""The help and the shell completion of every command of both programs."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path
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
MOST = {"build": 23, "score": 21, "explain": 26, "loadtest": 19, "launch": 21, "serve": 17}


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


SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sample"
FILES = {
    "rollouts before after a b": ("rollouts.jsonl", "sample-arith-00[1-3]"),
    "dataset human test problems": ("dataset.jsonl", "sample-arith-00[1-3]"),
    "train": ("dataset.jsonl", "sample-arith-00[4-6]"),
}
# Only parsed: they need a server, a model, the network, the score log of a run, or a terminal.
NEEDS_MORE = re.compile(
    r"^consensus\w+ (serve|launch|doctor|datasets|health|token|watch|loadtest|sample|problems) "
    r"|--address|--extractor llm| RUN | runs/"
)


def test_examples_of_help_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for names, (source, problems) in FILES.items():
        lines = (SAMPLE / source).read_text(encoding="utf-8").splitlines(keepends=True)
        text = "".join(line for line in lines if re.search(problems, line))
        text = text.replace("sample-terse", "A").replace("sample-latex", "B")
        text = text.replace("sample-arith-001-r1", "r17")
        for name in names.split():
            Path(f"{name}.jsonl").write_text(text, encoding="utf-8")
            Path(f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    wrong, ran, arguments = [], 0, list[str]()
    for program, command in COMMANDS:
        blocks = re.findall(r"```text\n(.*?)```", GROUPS[program].commands[command].help, re.S)
        for line in "".join(blocks).replace("\\\n", " ").splitlines():
            _, name, *words = shlex.split(line.partition("consensus")[2])
            # An ellipsis stands for the arguments of the example above.
            arguments = [*arguments, *words[1:]] if words[:1] == ["..."] else words
            GROUPS[program].commands[name].make_context(name, [*arguments])
            if not NEEDS_MORE.search(line):
                ran += 1
                if MAIN[program]([name, *arguments]) != 0:
                    wrong.append(f"{line}\n{capsys.readouterr().err}")
    assert wrong == []
    assert ran > 20
