"""The help and the shell completion of every command of both programs."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

import consensusbench.cli.app
import consensuspr.cli.app
from consensuspr.settings import load_settings

APPS = {"consensuspr": consensuspr.cli.app, "consensusbench": consensusbench.cli.app}
MAIN = {"consensuspr": consensuspr.cli.main, "consensusbench": consensusbench.cli.main}
GROUPS: dict[str, Any] = {name: typer.main.get_command(app.app) for name, app in APPS.items()}
COMMANDS = [(program, name) for program, group in GROUPS.items() for name in group.commands]

Help = Callable[..., str]


@pytest.fixture
def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Help:
    """The help of a program or one of its commands, wide enough that nothing is wrapped."""
    monkeypatch.setenv("COLUMNS", "300")

    def ask(program: str, *command: str) -> str:
        assert MAIN[program]([*command, "--help"]) == 0
        return capsys.readouterr().out

    return ask


@pytest.mark.parametrize("program", GROUPS)
def test_the_list_of_commands(help_of: Help, program: str) -> None:
    shown = help_of(program)
    assert [name for name in GROUPS[program].commands if f" {name} " not in shown] == []


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_help_teaches_with_an_example(help_of: Help, program: str, command: str) -> None:
    shown = help_of(program, command)
    assert (
        f"{program} {command} " in shown.split("─ Options")[0].split("Usage:")[1].split("\n", 1)[1]
    )


@pytest.mark.parametrize(
    ("program", "command"), [*((program, "") for program in GROUPS), *COMMANDS]
)
def test_help_is_in_whole_words(help_of: Help, program: str, command: str) -> None:
    shown = help_of(program, *command.split())
    lines = [line for line in shown.splitlines() if line.startswith("│")]
    assert [line for line in lines if re.search(r"<\w|default: \(|\bNone\b|\[\w+\|", line)] == []
    flags = [line for line in lines if re.search(r"--(version|help|json|list-settings)\b", line)]
    assert flags
    assert [line for line in flags if not re.search(r"--[a-z-]+ +(-h )? *[A-Z]\w+ ", line)] == []


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_every_option_says_what_it_is(program: str, command: str) -> None:
    parameters = GROUPS[program].commands[command].params
    assert [parameter.name for parameter in parameters if not parameter.help] == []


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_help_keeps_marks_that_look_like_html(help_of: Help, program: str, command: str) -> None:
    parameters = GROUPS[program].commands[command].params
    visible = [one for one in parameters if not getattr(one, "hidden", False)]
    marks = [mark for one in visible for mark in re.findall(r"</?\w+>", one.help or "")]
    shown = help_of(program, command)
    assert [mark for mark in marks if mark not in shown] == []
    assert command not in ("score", "explain") or "</think>" in marks


def test_help_says_how_to_turn_off_what_is_on(help_of: Help) -> None:
    shown = help_of("consensuspr", "score")
    assert "[default: on, off by --no-guard]" in shown
    assert "[default: on, off by --no-statements]" in shown
    assert "--no-after-think" not in shown


# What people set, about a dozen; `build` is `extract` and `refine` in one, what scores by a server
# or without has the options of both, and `explain` those that choose a sample, too.
MOST = {"build": 23, "score": 19, "explain": 23}


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_help_shows_what_people_set_and_names_where_the_rest_is(
    help_of: Help, program: str, command: str
) -> None:
    parameters = GROUPS[program].commands[command].params
    shown = [parameter for parameter in parameters if not getattr(parameter, "hidden", False)]
    assert len(shown) <= MOST.get(command, 17)
    if len(shown) < len(parameters):
        assert "--list-settings" in help_of(program, command)


WITH_SETTINGS = [
    (program, command)
    for program, command in COMMANDS
    if any("--list-settings" in one.opts for one in GROUPS[program].commands[command].params)
]


@pytest.mark.parametrize(("program", "command"), WITH_SETTINGS)
def test_settings_are_listed_with_the_meaning_of_each(
    program: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert MAIN[program]([command, "--list-settings"]) == 0
    blocks = capsys.readouterr().out.split("\n\n")[1:]
    assert [block for block in blocks if not block.startswith(("# ", "["))] == []
    settings = [block.splitlines() for block in blocks if not block.startswith("[")]
    assert [lines for lines in settings if len(lines) < 2] == []


# What a command cannot do without, and its file need not say.
NEEDED: dict[str, dict[str, object]] = {
    "serve": {"datasets": {"default": "d.jsonl"}},
    "launch": {
        "algorithm": "grpo", "model": "4b", "reward": "linear", "train_files": ["t.parquet"],
        "val_files": ["v.parquet"],
    },
}  # fmt: skip


@pytest.mark.parametrize(("program", "command"), WITH_SETTINGS)
def test_a_template_says_nothing_new_with_every_line_uncommented(
    program: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert MAIN[program]([command, "--list-settings"]) == 0
    template = capsys.readouterr().out
    config = tmp_path / "settings.toml"
    config.write_text(re.sub(r"^# (?=\w+ = )", "", template, flags=re.MULTILINE))
    callback = GROUPS[program].commands[command].callback
    model = get_type_hints(inspect.unwrap(callback), include_extras=True)["settings"]
    loaded, default = (
        load_settings(model, prefix="X", file=file, overrides=NEEDED.get(command))
        for file in (config, None)
    )
    home = {name: tmp_path / path for name, path in default if isinstance(path, Path)}
    assert loaded == default.model_copy(update=home)


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_a_flag_means_one_thing(program: str, command: str) -> None:
    parameters = GROUPS[program].commands[command].params
    flags = [flag for one in parameters for flag in (*one.opts, *one.secondary_opts)]
    assert sorted(flags) == sorted(set(flags))


@pytest.mark.parametrize(("program", "command"), WITH_SETTINGS)
def test_every_flag_of_a_setting_can_be_taken_back(
    help_of: Help, program: str, command: str
) -> None:
    parameters = GROUPS[program].commands[command].params
    # A setting's option is None where it is not given; flags of the command itself are False.
    flags = [one for one in parameters if getattr(one, "is_flag", False) and one.default is None]
    for one in flags:
        name = one.opts[0].removeprefix("--").removeprefix("no-")
        assert {*one.opts, *one.secondary_opts} == {f"--{name}", f"--no-{name}"}
    shown = help_of(program, command)
    assert [one for one in flags if f" {one.secondary_opts[0]} " in shown] == []


@pytest.mark.parametrize(
    ("program", "typed", "completed"),
    [
        ("consensuspr", "score --ou", {"--output"}),
        ("consensusbench", "ex", {"export", "extract"}),
        pytest.param("consensuspr", "sc", {"score"}, marks=pytest.mark.slow),
        pytest.param("consensuspr", "score --reward l", {"linear"}, marks=pytest.mark.slow),
        pytest.param("consensusbench", "validate --js", {"--json"}, marks=pytest.mark.slow),
    ],
)
def test_bash_completes_commands_and_options(program: str, typed: str, completed: set[str]) -> None:
    words = [program, *typed.split()]
    script = (
        f'eval "$({program} --show-completion bash)"\n'
        f"COMP_WORDS=({' '.join(words)})\nCOMP_CWORD={len(words) - 1}\n"
        f"_{program}_completion {program}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    bash = shutil.which("bash")
    assert bash is not None
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [bash, "-c", script],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == completed


@pytest.mark.parametrize("program", GROUPS)
def test_completion_can_be_installed(help_of: Help, program: str) -> None:
    assert "--install-completion" in help_of(program)
