"""Outputs that cannot be meant, refused before anything is done.

Every output replaces the file of its name as a whole.  A slip of the hand must not replace the
rollouts that were paid for by the table made of them, nor be found out when all work is done.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from consensuspr.console import one_line
from consensuspr.data import atomic_file
from consensuspr.errors import InputError

AnyPath: TypeAlias = str | os.PathLike[str]

# What tables and pages are called; rows under such a name would be taken for one.
_NOT_ROWS: Final = frozenset((".csv", ".tsv", ".xlsx", ".html"))


def check_row_outputs(outputs: Iterable[AnyPath | None]) -> None:
    """Refuse names that promise another format than rows are written in.

    Args:
        outputs: files of rows that will be written, None for those that were not asked for.

    Raises:
        InputError: a name ends with the suffix of a table or a page, gzip'd or not.
    """
    for path in (Path(path) for path in outputs if path is not None):
        suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
        if suffix in _NOT_ROWS:
            raise InputError(
                f"{path} would hold no {suffix.removeprefix('.')}: rows are written to .jsonl, "
                ".jsonl.gz or .parquet"
            )


def check_outputs(
    outputs: Iterable[AnyPath | None],
    inputs: Iterable[AnyPath | None],
    *,
    makes_folders: bool = False,
) -> None:
    """Refuse outputs that are one file, or a file that is read, or lie nowhere.

    Args:
        outputs: files that will be written, None for those that were not asked for.
        inputs: files that are read, likewise.
        makes_folders: whether the caller makes the folders that are missing.

    Raises:
        InputError: two of the outputs are the same file, or one of them is an input, links
            followed, or its folder is missing.
    """
    read = [Path(path) for path in inputs if path is not None]
    written: set[Path] = set()
    for path in (Path(path) for path in outputs if path is not None):
        resolved = path.resolve()
        if resolved in written:
            raise InputError(f"{path} cannot hold two outputs at once")
        written.add(resolved)
        if not makes_folders and not resolved.parent.exists():
            raise InputError(f"{path.parent} does not exist: make it first")
        if path.exists() and any(one.exists() and path.samefile(one) for one in read):
            raise InputError(f"{path} is read by this command; write elsewhere")


# MERGED CSV files that a spreadsheet opens without running anything.
#
# A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, quoted or
# not, and names of models and sources are anybody's text.  Such a text gets an apostrophe in
# front, which spreadsheets read as "this is text".  Numbers are left as they are.

# The last ones are what some spreadsheets take off the front, or take for an equals sign.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def write_rows(rows: Iterable[Sequence[object]], path: str | os.PathLike[str]) -> None:
    """Write rows; the file appears complete or not at all.

    Args:
        rows: of text and numbers; None is an empty cell.
        path: the file.

    Raises:
        InputError: the file cannot be written.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    with atomic_file(path) as stream:
        stream.write(text.getvalue().encode("utf-8", "replace"))


def _cell(value: object) -> object:
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return f"'{value}"
    return value


# MERGED Text from models and files inside LaTeX tables: shown as it is, never read as commands.

MAX_CHARS: Final = 200

# A row that begins with a star or a bracket would be read as an argument of the line break
# before it, however much space stands between; in braces either is only a character.
_ESCAPES: Final = str.maketrans(
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


def escaped(text: str) -> str:
    """Return text for a cell, on one line and at most :data:`MAX_CHARS` characters of it."""
    return one_line(text, MAX_CHARS).translate(_ESCAPES)
