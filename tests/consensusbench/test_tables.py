"""Tables on terminals and in LaTeX."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from consensusbench.tables import Cell, Row, Table, number, percent, print_result, words

NAMES = ["sample/number-theory", "gsm8k", "数学/竞赛题目-高中"]
TABLE = Table(
    "Names",
    [words("Attack"), words("Data source"), number("Problems"), percent("NCR"), number("Acc")],
    [[["enumeration", name, 1234567, Cell(0.1, note="(76.9 %)"), None] for name in NAMES]],
)


@pytest.mark.parametrize("width", [24, 50, 100])
def test_numbers_are_whole_at_any_width(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    print_result(console, [TABLE], ["note"], ["file"])
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("1,234,567") == text.count("10.0") == len(NAMES)
    assert text.endswith("note\nwritten: file\n")
    if width == 100:
        assert [line.split()[:2] for line in text.splitlines()[2:5]] == [
            ["enumeration", name] for name in NAMES
        ]


def test_latex_has_values_and_no_commands_of_anybody() -> None:
    hostile: list[Row] = [["*[x]", r"a_1 & \input{b}", 1, Cell(0.5, 0.4, 0.6), None]]
    table = Table("50 %", TABLE.columns, [hostile, hostile], bold=1)
    lines = table.to_latex().splitlines()
    row = r"{*}{[}x{]} & a\_1 \& \textbackslash{}input\{b\} & 1 & 50.0 & -- \\"
    assert row in lines and r"\caption{50 \%}" in lines
    assert lines.count(r"\midrule") == 2
    assert any(line.startswith(r"\textbf{{*}{[}x{]}} & ") for line in lines)
