"""One description of a table, written four ways: terminal, CSV, LaTeX and the report's page.

A :class:`Table` holds values, and its columns know how these are shown: as shares in percent, with
so many decimals, with an interval beside them.  CSV keeps values as they are, which for shares are
fractions.

All text is anybody's: names of models and sources come from files.  It reaches a terminal without
control characters, LaTeX without commands and a spreadsheet without formulas.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final, Literal, Protocol, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.containers import Lines
from rich.table import Table as TerminalTable
from rich.text import Text

from consensuspr.console import one_line
from consensuspr.data import atomic_file
from consensuspr.data.writers import csv_cell
from consensuspr.web import figures

ABSENT: Final = "–"


class JsonResult:
    """Base of values that a command prints: ``to_json`` gives every field by its name."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value ready for ``json.dumps``."""
        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]


def plain(value: object) -> Any:
    """Return a value ready for ``json.dumps``: results and dataclasses by field, enums by value."""
    if isinstance(value, JsonResult):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.value if isinstance(value, Enum) else value


class Interval(Protocol):
    """A figure with the ends of its interval, such as an estimate."""

    @property
    def value(self) -> float | str | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with more than itself to show.

    Attributes:
        note: stands small beside it.
    """

    value: float | str | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    style: str = ""


Value: TypeAlias = str | float | Interval | None
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
    """A column and how its values are shown.

    Attributes:
        key: its name in CSV; an ``interval`` adds ``KEY_low`` and ``KEY_high``.
        scale: what a value is multiplied by to be shown: 100 for shares in percent.
    """

    heading: str
    key: str = ""
    numeric: bool = True
    scale: float = 1.0
    decimals: int = 0
    interval: bool = False
    hint: str = ""

    def show(self, value: float | str | None) -> str:
        """Return a value as it is read, a dash where it is unknown."""
        if value is None:
            return ABSENT
        return value if isinstance(value, str) else f"{self.scale * value:,.{self.decimals}f}"

    def note(self, cell: Cell) -> str:
        """Return what stands small beside a value: its note, or its interval in brackets."""
        if cell.low is None or cell.high is None:
            return cell.note
        return f"({self.show(cell.low)}–{self.show(cell.high)})"


def words(heading: str, key: str = "", hint: str = "") -> Column:
    """Return a column of text."""
    return Column(heading, key, numeric=False, hint=hint)


def percent(heading: str, key: str = "", decimals: int = 1, hint: str = "") -> Column:
    """Return a column of shares, shown in percent."""
    return Column(f"{heading} %", key, scale=100.0, decimals=decimals, hint=hint)


def number(heading: str, key: str = "", decimals: int = 0, hint: str = "") -> Column:
    """Return a column of numbers."""
    return Column(heading, key, decimals=decimals, hint=hint)


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        sections: groups of rows, each as wide as the columns; a line or a gap between groups.
        bold: section of totals, None for none.
    """

    caption: str
    columns: Sequence[Column]
    sections: Sequence[Sequence[Row]]
    bold: int | None = None
    sortable: bool = False

    @property
    def rows(self) -> list[Row]:
        """All rows in order."""
        return [row for section in self.sections for row in section]

    def without_empty_columns(self) -> Table:
        """Return the table without the columns in which no row says anything."""

        def says(cell: Cell) -> bool:
            return cell.value not in (None, "", ABSENT)

        kept = [
            at
            for at in range(len(self.columns))
            if any(says(cell_of(row[at])) for row in self.rows)
        ]
        return Table(
            self.caption,
            [self.columns[at] for at in kept],
            [[[row[at] for at in kept] for row in section] for section in self.sections],
            self.bold,
            self.sortable,
        )

    def to_terminal(self, width: int) -> TerminalTable:
        """Return the table for a terminal, intervals and notes dimmed beside their values.

        Args:
            width: of the terminal, in cells.
        """
        rows = [[_text(*pair) for pair in zip(self.columns, row, strict=True)] for row in self.rows]
        widths = self._widths(rows, width)
        shown = TerminalTable(
            box=None,
            pad_edge=False,
            header_style="bold",
            title=Text(self.caption) if self.caption else None,
            title_justify="left",
        )
        for column, cells in zip(self.columns, widths, strict=True):
            justify: Literal["left", "right"] = "right" if column.numeric else "left"
            heading = _kind(column)(column.heading)
            shown.add_column(heading, justify=justify, overflow="fold", width=cells)
        remaining = iter(rows)
        for at, section in enumerate(self.sections):
            for texts in islice(remaining, len(section)):
                shown.add_row(*texts, style="bold" if at == self.bold else "")
            shown.add_section()
        return shown

    def _widths(self, rows: Sequence[Sequence[Text]], width: int) -> list[int]:
        """Return the cells that each column gets: the widest give way until all fit.

        They do so down to their longest word, the first column last; then to that of their
        values, at which headings break.  At last values break too, and names are cut short.
        """
        headings = [_kind(column)(column.heading) for column in self.columns]
        columns = list(zip(*rows, strict=True)) or [()] * len(headings)
        widths = [
            max(one.cell_len for one in (heading, *values))
            for heading, values in zip(headings, columns, strict=True)
        ]
        words_of = [max([_LEAST, *map(_longest_word, values)]) for values in columns]
        both = [max(pair) for pair in zip(words_of, map(_longest_word, headings), strict=True)]
        excess = sum(widths) + _GAP * (len(widths) - 1) - width
        for least in ([widths[0], *both[1:]], both, words_of, [_LEAST] * len(widths)):
            while excess > 0:
                room = [at for at, cells in enumerate(widths) if cells > least[at]]
                if not room:
                    break
                widths[max(room, key=lambda at: widths[at])] -= 1
                excess -= 1
        return widths

    def to_figures(self) -> figures.DataTable:
        """Return the table for a page."""
        columns = [
            figures.TableColumn(
                one.heading.removesuffix(" %") if one.scale == 100.0 else one.heading,
                one.numeric,
                figures.NumberFormat(one.scale, one.decimals, " %" if one.scale == 100.0 else ""),
                one.hint,
            )
            for one in self.columns
        ]
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
        return figures.DataTable(self.caption, columns, sections, self.bold, self.sortable)

    def to_csv(self) -> list[list[object]]:
        """Return heading and rows of values as they are, for :func:`write_rows`."""
        ends = ("", "_low", "_high")
        heading: list[object] = []
        for column in self.columns:
            heading += [f"{column.key}{end}" for end in (ends if column.interval else ends[:1])]
        rows = [heading]
        for row in self.rows:
            values: list[object] = []
            for column, cell in zip(self.columns, map(cell_of, row), strict=True):
                values += [cell.value, cell.low, cell.high] if column.interval else [cell.value]
            rows.append(values)
        return rows


# Between two columns of a terminal's table.
_GAP: Final = 2
# A column that is narrower tells nothing.
_LEAST: Final = 3
# A name is broken behind what joins its words.
_NAME_PIECE: Final = re.compile(r"[^\s/_-]+[\s/_-]*|[\s/_-]+")


class _Name(Text):
    """Text that breaks at hyphens and slashes too; a word that is too long for a line is cut."""

    def wrap(self, console: Console, width: int, *_: Any, **__: Any) -> Lines:
        """Return the lines of the text, each of at most ``width`` cells."""
        breaks, used = [], 0
        for piece in _NAME_PIECE.finditer(self.plain):
            if used and used + cell_len(piece[0].rstrip()) > width:
                breaks.append(piece.start())
                used = 0
            used += cell_len(piece[0])
        lines = self.divide(breaks)
        for line in lines:
            line.rstrip()
            line.truncate(width, overflow="ellipsis")
        return lines


def _longest_word(text: Text) -> int:
    """Return the cells of the longest part of a text that is not broken."""
    pieces = _NAME_PIECE.findall(text.plain) if isinstance(text, _Name) else text.plain.split()
    return max([_LEAST, *(cell_len(piece.rstrip()) for piece in pieces)])


def _kind(column: Column) -> type[Text]:
    return Text if column.numeric else _Name


def _text(column: Column, value: Value) -> Text:
    cell = cell_of(value)
    text = _kind(column)(one_line(column.show(cell.value), 200), style=cell.style)
    if note := column.note(cell):
        text.append(f" {one_line(note, 200)}", style="dim")
    return text


def print_result(
    console: Console,
    tables: Iterable[Table],
    notes: Iterable[str] = (),
    written: Iterable[str | os.PathLike[str] | None] = (),
) -> None:
    """Print what a command found: tables, notes of a line each, and which files hold more of it."""
    for table in tables:
        console.print(table.to_terminal(console.width))
        console.print()
    for line in (*notes, *(f"written: {path}" for path in written if path is not None)):
        console.print(line, markup=False, soft_wrap=True)


def named(ids: Sequence[str], count: int) -> str:
    """Return the first three of ``count`` names, for a sentence."""
    return ", ".join(one_line(name) for name in ids[:3]) + (", …" if count > 3 else "")


def write_rows(rows: Iterable[Sequence[object]], path: str | os.PathLike[str]) -> None:
    """Write rows of text and numbers as CSV; the file appears complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
    write_text(text.getvalue(), path)


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a file of text; it appears complete or not at all."""
    with atomic_file(path) as stream:
        stream.write(text.encode("utf-8", "replace"))


# A row that begins with a star or a bracket would be read as an argument of the line break
# before it, however much space stands between; in braces either is only a character.
_LATEX: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{character: f"{{{character}}}" for character in "[]*"},
    }
)
_LATEX_CHARS: Final = 200


def latex_text(text: str) -> str:
    """Return text for a cell of a LaTeX table, on one line, never read as commands."""
    return one_line(text, _LATEX_CHARS).translate(_LATEX)


def latex_table(caption: str, sections: Sequence[Sequence[Sequence[str]]]) -> str:
    """Return a table for LaTeX with ``booktabs``.

    Args:
        caption: ready for LaTeX, as the cells are.
        sections: groups of rows of cells, the first the headings; a rule between groups.  A row
            of one cell runs over the whole width.
    """
    width = len(sections[0][0])

    def line(row: Sequence[str]) -> str:
        cells = row if len(row) > 1 else [rf"\multicolumn{{{width}}}{{c}}{{{row[0]}}}"]
        return " & ".join(cells) + r" \\"

    body: list[str] = []
    for section in sections:
        body += [r"\midrule"] * bool(body) + [line(row) for row in section]
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{l{'c' * (width - 1)}}}",
            r"\toprule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )
