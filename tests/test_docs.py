"""The commands and options in the documentation exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import consensusbench.cli.app
import consensuspr.cli.app

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for path in (
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "deploy").rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    )
    if path.name != "CHANGELOG.md"
)
PROGRAMS: dict[str, Any] = {
    "consensuspr": typer.main.get_command(consensuspr.cli.app.app),
    "consensusbench": typer.main.get_command(consensusbench.cli.app.app),
}
# What follows a command up to here is the command of somebody else.
THEIRS = "--"


def commands_in(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command line of ours in a page's fenced blocks."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            # Optional and alternative parts of a synopsis are options like any other.
            words = line.replace("[", " ").replace("]", " ").replace("(", " ").replace(")", " ")
            try:
                found = shlex.split(words, comments=True)
            except ValueError:  # a text with an apostrophe, no command line
                continue
            if found[:1] and found[0] in PROGRAMS:
                yield found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_and_options_exist(page: Path) -> None:
    wrong = []
    for program, *words in commands_in(page):
        group = PROGRAMS[program]
        name = next((word for word in words if not word.startswith("-")), None)
        if name is None or name == "COMMAND":
            continue
        if name not in group.commands:
            wrong.append(f"{program} {name}")
            continue
        known = {
            option
            for parameter in group.commands[name].params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        ours = words[: words.index(THEIRS)] if THEIRS in words else words
        given = {word.partition("=")[0] for word in ours if word.startswith("--")}
        wrong += [f"{program} {name} {option}" for option in sorted(given - known - {"--help"})]
    assert wrong == []


def test_commands_are_found_in_the_pages() -> None:
    """Else the test above would pass on nothing."""
    found = {(words[0], words[1]) for page in PAGES for words in commands_in(page) if words[1:]}
    assert {("consensuspr", "serve"), ("consensusbench", "build")} <= found
    assert len(found) >= 20
