"""Tables of results: a :class:`Table` is printed with rich, written as LaTeX or put on a page.

A column has the form of its values: percent, number of decimals, interval.
Names of models and sources come from files: control characters and LaTeX commands are escaped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from consensuspr.console import one_line
from consensuspr.data import atomic_file
from consensuspr.web import figures

ABSENT: Final = "–"
_MAX_CHARS: Final = 200
# Longest word of a name that is not broken.
_WHOLE_WORD: Final = 24


class JsonResult:
    """Base of results that a command prints: ``to_json`` returns every field by its name."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value ready for ``json.dumps``."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def plain(value: object) -> Any:
    """Return a value ready for ``json.dumps``: dataclasses by field, enums by value."""
    if isinstance(value, JsonResult):
        return value.to_json()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with its interval, or with a note that is shown dimmed beside it."""

    value: float | str | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    style: str = ""


# Any other value has the attributes ``value``, ``low`` and ``high``, such as an estimate.
Value: TypeAlias = Any
Row: TypeAlias = Sequence[Value]


def cell_of(value: Value) -> Cell:
    """Return any value of a row as a cell."""
    if isinstance(value, Cell):
        return value
    if value is None or isinstance(value, str | int | float):
        return Cell(value)
    return Cell(value.value, value.low, value.high)


@dataclass(frozen=True, slots=True)
class Column:
    """A column and how its values are shown; ``scale`` is 100 for shares in percent."""

    heading: str
    numeric: bool = True
    scale: float = 1.0
    decimals: int = 0

    def show(self, value: float | str | None) -> str:
        """Return a value as text, a dash if it is unknown."""
        if value is None:
            return ABSENT
        return value if isinstance(value, str) else f"{self.scale * value:,.{self.decimals}f}"

    def note(self, cell: Cell) -> str:
        """Return the note beside a value, or its interval in brackets."""
        if cell.low is None or cell.high is None:
            return cell.note
        return f"({self.show(cell.low)}–{self.show(cell.high)})"

    def text(self, value: Value) -> Text:
        """Return a value with its note for a terminal."""
        cell = cell_of(value)
        text = Text(one_line(self.show(cell.value), _MAX_CHARS), style=cell.style)
        if note := self.note(cell):
            text.append(f" {one_line(note, _MAX_CHARS)}", style="dim")
        return text


def words(heading: str) -> Column:
    """Return a column of text."""
    return Column(heading, numeric=False)


def percent(heading: str, decimals: int = 1) -> Column:
    """Return a column of shares, shown in percent."""
    return Column(f"{heading} %", scale=100.0, decimals=decimals)


def number(heading: str, decimals: int = 0) -> Column:
    """Return a column of numbers."""
    return Column(heading, decimals=decimals)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of sections of rows; ``bold`` is the section of totals."""

    caption: str
    columns: Sequence[Column]
    sections: Sequence[Sequence[Row]]
    bold: int | None = None

    def to_terminal(self, width: int) -> RichTable:
        """Return the table for a terminal; if it cannot fit, it is wider, with whole numbers."""
        shares = "in %" if any(column.scale == 100.0 for column in self.columns) else ""
        title = Text(" ".join(filter(None, [self.caption, f"({shares})" if shares else ""])))
        shown = RichTable(
            box=None,
            pad_edge=False,
            header_style="bold",
            title=title or None,
            title_justify="left",
        )
        sections = [
            [[column.text(value) for column, value in zip(self.columns, row, strict=True)]
             for row in section]
            for section in self.sections
        ]  # fmt: skip
        for at, column in enumerate(self.columns):
            parts = [part for rows in sections for row in rows for part in row[at].plain.split()]
            longest = max(map(len, parts), default=0)
            shown.add_column(
                column.heading.removesuffix(" %"),
                justify="right" if column.numeric else "left",
                overflow="fold",
                min_width=longest if column.numeric else min(longest, _WHOLE_WORD),
            )
        for at, rows in enumerate(sections):
            for row in rows:
                shown.add_row(*row, style="bold" if at == self.bold else "")
            shown.add_section()
        least = Console(width=1 << 12).measure(shown).minimum
        if least > width:
            shown.width = least
        return shown

    def to_figures(self) -> figures.DataTable:
        """Return the table for a page."""
        columns = []
        for column in self.columns:
            unit = " %" if column.scale == 100.0 else ""
            form = figures.NumberFormat(column.scale, column.decimals, unit)
            heading = column.heading.removesuffix(unit) if unit else column.heading
            columns.append(figures.TableColumn(heading, column.numeric, form))
        sections = [
            [
                [
                    figures.TableCell(cell.value, column.note(cell))
                    for column, cell in zip(self.columns, map(cell_of, row), strict=True)
                ]
                for row in section
            ]
            for section in self.sections
        ]
        return figures.DataTable(self.caption, columns, sections, self.bold)

    def to_latex(self) -> str:
        """Return the table for LaTeX with ``booktabs``: values without intervals and notes."""
        alignment = "".join("r" if column.numeric else "l" for column in self.columns)
        lines = [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{latex_text(self.caption)}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            " & ".join(latex_text(column.heading) for column in self.columns) + r" \\",
        ]
        for at, section in enumerate(self.sections):
            lines.append(r"\midrule")
            form = r"\textbf{%s}" if at == self.bold else "%s"
            for row in section:
                shown = (column.show(cell_of(value).value)
                         for column, value in zip(self.columns, row, strict=True))  # fmt: skip
                cells = (form % latex_text(text.replace(ABSENT, "--")) for text in shown)
                lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def print_result(
    console: Console,
    tables: Iterable[Table],
    notes: Iterable[str] = (),
    written: Iterable[str | os.PathLike[str] | None] = (),
) -> None:
    """Print tables, notes of a line each, and the files that were written."""
    for table in tables:
        console.print(table.to_terminal(console.width), crop=False)
        console.print()
    for line in (*notes, *(f"written: {path}" for path in written if path is not None)):
        console.print(line, markup=False, soft_wrap=True)


def named(ids: Sequence[str], count: int) -> str:
    """Return the first three of ``count`` names, for a sentence."""
    return ", ".join(one_line(name) for name in ids[:3]) + (", …" if count > 3 else "")


def write_latex(tables: Iterable[Table], path: str | os.PathLike[str]) -> None:
    """Write tables as one LaTeX file; it appears complete or not at all."""
    parts = ["% needs \\usepackage{booktabs}\n", *(table.to_latex() for table in tables)]
    with atomic_file(path) as stream:
        stream.write("\n".join(parts).encode("utf-8", "replace"))


# A row that begins with a star or a bracket would be an argument of the line break before it.
_LATEX: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "≥": r"$\geq$",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{character: f"{{{character}}}" for character in "[]*"},
    }
)


def latex_text(text: str) -> str:
    """Return text for a cell of a LaTeX table, on one line, never read as commands."""
    return one_line(text, _MAX_CHARS).translate(_LATEX)
