"""Elements of SVG and HTML as safe markup: everything that is not markup is escaped."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape

from consensuspr.console import printable


def safe(value: object) -> Markup:
    """Return a value as markup; control and other invisible characters are written out.

    Args:
        value: markup is left as it is, a float gets at most two decimals.
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return Markup(f"{value:.2f}".rstrip("0").rstrip(".") or "0")
    return escape(printable(str(value)))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Return one element.

    Args:
        tag: its name, a literal of this package.
        children: markup as it is, anything else escaped.
        attributes: ``class_`` is written ``class`` and ``data_tip`` is written ``data-tip``;
            None leaves one out.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(Markup(name.rstrip("_").replace("_", "-")), safe(value))
        for name, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(safe(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, inside)


# MERGED Tables of the page: cells that know how they sort, and how figures are written.

MISSING = "–"

LONG_NAME = 14


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``hint`` says in a sentence what it holds."""

    name: str
    numeric: bool = True
    hint: str = ""

    @property
    def long(self) -> bool:
        """Whether the name takes several lines in a narrow window."""
        return len(self.name) > LONG_NAME


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its text, what it sorts by (None last), what stands small below or beside it."""

    text: str
    sort: float | str | None = None
    note: str = ""
    href: str = ""
    picture: Markup | None = None

    @property
    def sort_key(self) -> str:
        """What the page's script compares: numbers exactly, text as it is, nothing as last."""
        return "" if self.sort is None else str(self.sort)


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a caption; ``rows`` are as wide as ``columns``."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = False

    def without_empty_columns(self) -> Table:
        """Return the table without the columns in which no row says anything."""
        kept = [
            at
            for at in range(len(self.columns))
            if any(row[at].text not in ("", MISSING) or row[at].picture for row in self.rows)
        ]
        return Table(
            self.caption,
            tuple(self.columns[at] for at in kept),
            tuple(tuple(row[at] for at in kept) for row in self.rows),
            self.sortable,
        )


def text(value: str, href: str = "") -> Cell:
    """Return a cell of text."""
    return Cell(value, value, href=href)


def count(value: int) -> Cell:
    """Return a cell with a whole number."""
    return Cell(f"{value:,}", value)


def percent(value: float | None, note: str = "") -> Cell:
    """Return a fraction in percent with one decimal, a dash where it is unknown."""
    if value is None:
        return Cell(MISSING)
    return Cell(f"{100 * value:.1f}", value, note)


def number(value: float | None, decimals: int = 1, note: str = "") -> Cell:
    """Return a number with so many decimals, a dash where it is unknown."""
    if value is None:
        return Cell(MISSING)
    return Cell(f"{value:,.{decimals}f}", value, note)
