"""Tables on terminals: whatever the width, names break between their words or are cut short."""

from __future__ import annotations

import io
import re
from itertools import combinations

import pytest
from rich.console import Console

from consensusbench.tables import Cell, Table, number, words

NAMES = ["sample/number-theory", "math_word/arithmetic", "gsm8k", "数学/竞赛题目-高中"]
# What a line may hold of a name: some of its pieces, in a row.
WHOLE = {
    name[start:end]
    for name in NAMES
    for start, end in combinations([0, *(m.end() for m in re.finditer("[/_-]|$", name))], 2)
} | {"enumeration", "Attack", "Data", "source", "Problems"}
TABLE = Table(
    "",
    [words("Attack"), words("Data source"), number("Problems"), number("NCR"), number("Acc")],
    [[["enumeration", name, 1234567, Cell(10, note="(76.9 %)"), 12345] for name in NAMES]],
)


def shown(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(TABLE.to_terminal(width))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_all_is_on_one_line_where_it_fits() -> None:
    assert [line.split() for line in shown(80)[1:]] == [
        ["enumeration", name, "1,234,567", "10", "(76.9", "%)", "12,345"] for name in NAMES
    ]


@pytest.mark.parametrize("width", range(24, 80))
def test_a_name_is_never_broken_in_a_word(width: int) -> None:
    lines = shown(width)
    # A wide character that is cut off leaves a gap of one cell.
    for text in " ".join(lines).replace(" …", "…").split():
        number = not text.strip("0123456789,.()%")
        folded = any(text in heading for heading in ("Problems", "NCR", "Acc"))
        assert text in WHOLE or number or folded or text.endswith("…"), text


def test_numbers_are_whole_as_long_as_names_can_give_way() -> None:
    assert any("1,234,567" in line and "12,345" in line for line in shown(50))
