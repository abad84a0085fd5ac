"""Tables of the documentation whose rows tests execute."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
YES = {"yes": True, "no": False}


def page(name: str) -> str:
    """Return the text of a page of ``docs/``."""
    return (DOCS / name).read_text(encoding="utf-8")


def cells(line: str) -> list[str]:
    """Return the cells of a table's row; no cell may hold a bar."""
    return [cell.strip() for cell in line.split("|")[1:-1]]


def code(cell: str) -> str:
    """Return the text that a cell shows in code marks; ``⏎`` is a line break."""
    shown = re.fullmatch(r"``? ?(.*?) ?``?", cell)
    assert shown is not None, f"{cell} is not in code marks"
    return shown[1].replace("⏎", "\n")


def rows(text: str, *header: str) -> Iterator[list[Any]]:
    """Yield line number and cells of the rows of every table with this header."""
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("|"):
            inside = False
        elif cells(line) == list(header):
            inside = True
        elif inside and not set(line) <= set("|-"):
            yield [number, *cells(line)]
