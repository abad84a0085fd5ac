"""Write the reference in ``docs/commands.md`` from the commands themselves, or check it.

``python .ci/commands_page.py`` writes it (``make docs``); ``--check`` fails where it is stale.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

import consensusbench.cli.app
import consensuspr.cli.app

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
# Defaults that count the cores of the machine are shown for this many.
CORES = 4
BEGIN = "<!-- Below this line: written by `make docs` from the commands. -->"


def reference() -> str:
    """Return the part of the page that the commands say."""
    parts = []
    for program, main in (
        (consensuspr.cli.app, consensuspr.cli.main),
        (consensusbench.cli.app, consensusbench.cli.main),
    ):
        group: Any = typer.main.get_command(program.app)
        for name, command in group.commands.items():
            parts.append(f"## {program.PROGRAM} {name}\n")
            parts.append(f"{_dedented(command.help)}\n")
            parts.extend(_options(command))
            if any("--list-settings" in parameter.opts for parameter in command.params):
                listed = _printed(main, [name, "--list-settings"])
                parts.append(f"Settings of `--config`:\n\n```toml\n{listed.strip()}\n```\n")
    return "\n".join(parts)


def _dedented(text: str | None) -> str:
    return "\n".join(line.rstrip() for line in (text or "").strip().splitlines())


def _options(command: Any) -> Iterator[str]:
    rows = []
    for parameter in command.params:
        if parameter.hidden or "--help" in parameter.opts:
            continue
        kind = parameter.type_descriptor.annotation
        if parameter.param_type_name == "argument":
            name = parameter.metavar or parameter.name.upper()
        else:
            name = ", ".join([*parameter.opts, *parameter.secondary_opts])
            if kind is not bool:
                name += f" {_metavar(parameter, kind)}"
        help_text = " ".join((parameter.help or "").split()).replace("|", "\\|")
        rows.append(f"| `{name}` | {help_text} | {_default(parameter)} |")
    if rows:
        yield "| | | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _metavar(parameter: Any, kind: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar).replace("|", "\\|")
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "\\|".join(str(choice.value) for choice in kind)
    return {int: "N", float: "NUMBER"}.get(kind, "TEXT")


def _default(parameter: Any) -> str:
    shown, default = parameter.show_default, parameter.default
    if isinstance(shown, str):
        return shown
    if not shown or parameter.required or default in (None, False, ()) or callable(default):
        return ""
    return f"`{getattr(default, 'value', default)}`"


def _printed(main: Callable[[list[str]], int], arguments: list[str]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(arguments)
    if code != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with {code}")
    return output.getvalue()


def main() -> int:
    """Write the page, or say that it is stale."""
    os.cpu_count = lambda: CORES
    os.sched_getaffinity = lambda pid: set(range(CORES))
    text = PAGE.read_text(encoding="utf-8")
    intro, found, _ = text.partition(BEGIN)
    if not found:
        print(f"{PAGE} has no line {BEGIN!r}", file=sys.stderr)
        return 1
    wanted = f"{intro}{BEGIN}\n\n{reference()}"
    if "--check" in sys.argv[1:]:
        if text != wanted:
            print(f"{PAGE.name} is not what the commands say: run `make docs`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
