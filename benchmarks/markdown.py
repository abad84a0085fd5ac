"""Markdown that commands write: tables, and blocks of a page that hold them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: int | None = None) -> str:
    """Return a table; all columns after the first ``words`` are aligned to the right.

    A cell may hold anything: bars are escaped and lines joined.
    """
    left = len(header) if words is None else words
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    lines = (header, rule, *rows)
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def cell(text: str) -> str:
    """Return text as it may stand in a cell."""
    return " ".join(text.replace("|", "\\|").split())


def share(value: float | None) -> str:
    """Return a share with three decimals and without its zero, such as .925."""
    return "–" if value is None else f"{value:.3f}".replace("0.", ".", 1)


def write_block(path: Path, name: str, text: str) -> None:
    """Replace the text between the marks of a block in a Markdown file.

    Raises:
        ValueError: the file does not hold the block exactly once.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    page = path.read_text(encoding="utf-8")
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"{path} must hold {begin!r} and {end!r} once each")
    before, after = page.partition(begin)[0], page.partition(end)[2]
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def publish(blocks: Mapping[str, str], page: Path | None) -> None:
    """Print blocks, and update them in a page if one is given."""
    print(*blocks.values(), sep="\n\n")
    if page is not None:
        for name, text in blocks.items():
            write_block(page, name, text)


def page_parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """Return the options of a command that writes blocks of a page."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--write", type=Path, metavar="FILE", help="page whose tables are updated")
    return parser


def shared_folder() -> Path:
    """Return the folder of outside data: $CONSENSUSPR_SHARED, else ../shared."""
    return Path(os.environ.get("CONSENSUSPR_SHARED", REPOSITORY.parent / "shared"))


def demand(files: Iterable[Path | str]) -> Path:
    """Return the folder of outside data; exit with code 2 if one of these files is missing."""
    shared = shared_folder()
    for file in files:
        if not (shared / file).is_file():
            print(
                f"error: {shared / file} is missing; set CONSENSUSPR_SHARED to the folder of"
                " outside data",
                file=sys.stderr,
            )
            raise SystemExit(2)
    return shared
