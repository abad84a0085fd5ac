"""The documentation: commands and links exist, pages are in the site and of a readable length."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import consensusbench.cli.app
import consensuspr.cli.app
from consensusbench.construction.types import REASON_WORDS
from consensusbench.problems.sources import SOURCES
from consensusbench.quality.attacks import Attack
from consensusbench.quality.diagnose import Diagnosis
from consensusbench.quality.validate import Code
from consensuspr.client.retries import ERRORS
from consensuspr.pages import PAGES as PAGES_OF_HELP
from consensuspr.scoring import Status

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
PAGES = sorted(
    path
    for path in (
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob(".github/*.md"),
        *DOCS.rglob("*.md"),
        *(REPOSITORY / "deploy").rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    )
)
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
NAV = {
    DOCS / path
    for path in re.findall(r"^ +- .+: (\S+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.M)
    if path != "index.md"  # the README
}
PROGRAMS: dict[str, Any] = {
    "consensuspr": typer.main.get_command(consensuspr.cli.app.app),
    "consensusbench": typer.main.get_command(consensusbench.cli.app.app),
}
# The arguments of another program follow.
END_OF_OURS = "--"
MAX_LINES = 200  # without tables
# Phrases that readers stumbled over.
BANNED = re.compile(
    r"\b(told apart|by lot|becomes of|where there is none|stand-ins?|mends?)\b", re.I
)
FENCED = re.compile(r"^ *```.*?^ *```$", re.M | re.S)

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


def commands_in(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command line of ours in a page's fenced blocks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", TEXTS[page], re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            # Optional and alternative parts of a synopsis are options like any other.
            words = re.sub(r"[\[\]()]", " ", line)
            try:
                found = shlex.split(words, comments=True)
            except ValueError:  # a text with an apostrophe, no command line
                continue
            if found[:1] and found[0] in PROGRAMS:
                yield found


@by_page
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
        ours = words[: words.index(END_OF_OURS)] if END_OF_OURS in words else words
        given = {word.partition("=")[0] for word in ours if word.startswith("--")}
        wrong += [f"{program} {name} {option}" for option in sorted(given - known - {"--help"})]
    assert wrong == []


def test_commands_are_found_in_the_pages() -> None:
    """Else the test above would pass on nothing."""
    found = {(words[0], words[1]) for page in PAGES for words in commands_in(page) if words[1:]}
    assert {("consensuspr", "serve"), ("consensusbench", "build")} <= found
    assert len(found) >= 20


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+?) *$", FENCED.sub("", TEXTS[page]), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = sum(1 for other in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other))
        found.add(f"{slug}-{count}" if slug in found else slug)
    return found


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", TEXTS[page])):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists() or (anchor and goal.suffix == ".md" and anchor not in anchors(goal)):
            wrong.append(target)
    assert wrong == []


def test_llms_txt_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (REPOSITORY / "llms.txt").read_text(encoding="utf-8"))
    paths = [REPOSITORY / link for link in links]
    assert [path for path in paths if not path.exists()] == []
    assert len(paths) > 10


def test_the_site_has_every_page() -> None:
    assert sorted(DOCS.rglob("*.md")) == sorted(NAV)


@by_page
def test_pages_are_short_and_plain(page: Path) -> None:
    prose = re.sub(r"<!-- begin .*?<!-- end |^\|[^\n]*\n", "", TEXTS[page], flags=re.M | re.S)
    assert prose.count("\n") <= MAX_LINES
    assert BANNED.findall(FENCED.sub("", prose)) == []


def test_pages_that_help_texts_name_are_in_the_site() -> None:
    named = {f"{title}: {path}.md" for title, path in PAGES_OF_HELP.items()}
    assert named <= set(re.findall(r"^ +- (.+)$", (REPOSITORY / "mkdocs.yml").read_text(), re.M))


def test_the_generated_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, ".ci/reference.py", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def first_column(page: str, heading: str) -> list[str]:
    """Return the code in the first column of the table under a heading of a reference page."""
    text = (DOCS / "reference" / page).read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    return re.findall(r"^\| `(\w+)` \|", text.partition("\n## ")[0], re.M)


def test_every_code_of_the_server_is_in_the_reference() -> None:
    sources = [path.read_text() for path in (REPOSITORY / "server/consensuspr/server").glob("*.py")]
    sent = set(re.findall(r"grpc\.StatusCode\.([A-Z_]+)", "\n".join(sources)))
    table = (DOCS / "reference/statuses.md").read_text(encoding="utf-8").partition("gRPC code")[2]
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \|(?:[^|]+\|){2} `(\w+)`", table, re.M))
    # gRPC itself answers for methods that are not there.
    assert set(rows) == (sent | {"UNIMPLEMENTED"}) - {"OK"}
    known = {code.name: error.__name__ for code, error in ERRORS.items()}
    assert {name: known.get(name, "ServerFault") for name in rows} == rows


def test_every_status_and_variable_is_in_the_reference() -> None:
    assert first_column("statuses.md", "Status of a rollout") == [*Status]
    sources = [REPOSITORY / "setup.py"]
    for root in ("proto", "core_ext", "server", "client", "consensusbench"):
        sources += (REPOSITORY / root).rglob("*.py")
    named = {
        name
        for source in sources
        for name in re.findall(r'"(CONSENSUSPR_[A-Z_]+)"', source.read_text(encoding="utf-8"))
    }
    prefixes = {"CONSENSUSPR_SCORE", "CONSENSUSPR_EXPLAIN", "CONSENSUSPR_LAUNCH"}
    assert sorted(first_column("settings.md", "Environment variables")) == sorted(named - prefixes)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("guides/check-nodes.md", [f"`{name}`" for name in (*Code, *Attack)]),
        ("guides/evaluate.md", [one.words for one in Diagnosis]),
        ("guides/prepare-data.md", [f"`{name}`" for name in (*SOURCES, *REASON_WORDS)]),
    ],
)
def test_pages_name_all_that_a_command_prints(page: str, names: list[str]) -> None:
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    assert [name for name in names if name not in text] == []
