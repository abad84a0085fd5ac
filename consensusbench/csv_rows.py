"""CSV files that a spreadsheet opens without running anything.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, quoted or
not, and names of models and sources are anybody's text.  Such a text gets an apostrophe in
front, which spreadsheets read as "this is text".  Numbers are left as they are.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from typing import Final

from consensuspr.data import atomic_file

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
