"""A rollouts file whose rows are read in one place and parsed and checked in others.

Reading lines (or pages of Parquet) is quick, and has to be done in order where a file is
compressed; parsing and checking what they hold is most of the work.  Whoever spreads a file
over processes cuts it with :func:`read_unparsed` and hands the parts to :func:`parse_rollouts`.
Rows, faults and their order are those of :func:`consensuspr.data.read_rollouts`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from consensuspr.data.formats import Format, open_data
from consensuspr.data.jsonl import parse_line, read_lines, unpacked
from consensuspr.data.parquet import read_parquet
from consensuspr.data.reading import OnError, ReadReport, check_rows
from consensuspr.data.schema import Row
from consensuspr.data.validation import check_rollout
from consensuspr.errors import DataError

# Line or row number from 1, and a line of JSON, a row of Parquet, or why it is neither.
Unparsed: TypeAlias = tuple[int, bytes | Row | DataError]


def read_unparsed(path: str | os.PathLike[str]) -> Iterator[Unparsed]:
    """Yield the rows of a rollouts file in order, in bounded memory.

    Raises:
        DataError: the file cannot be read, or is damaged from here on.
    """
    name = os.fspath(path)
    stream, form = open_data(name)
    with stream:
        match form:
            case Format.JSONL:
                yield from read_lines(stream, name)
            case Format.GZIP:
                with unpacked(stream) as plain:
                    yield from read_lines(plain, name)
            case Format.PARQUET:
                yield from read_parquet(stream, name, ("problem_id", "response"))


def size_of(row: Unparsed) -> int:
    """Return about how many bytes a row takes."""
    content = row[1]
    if isinstance(content, bytes):
        return len(content)
    response = content.get("response") if isinstance(content, dict) else None
    return len(response) if isinstance(response, str | bytes) else 0


def parse_rollouts(
    rows: Iterable[Unparsed], path: str, on_error: OnError, report: ReadReport
) -> Iterator[Row]:
    """Parse and check rows that were read from a file.

    Args:
        rows: of one file, any part of them.
        path: the file, as messages name it.
        on_error: what a bad row does, ``"stop"`` or ``"skip"``.
        report: filled with counts and reasons.

    Raises:
        DataError: a bad row with ``"stop"``.
    """
    parsed = ((line, _parsed(content, path, line)) for line, content in rows)
    yield from check_rows(parsed, path, check_rollout, on_error, report)


def _parsed(content: bytes | Row | DataError, path: str, line: int) -> Row | DataError:
    if isinstance(content, bytes):
        return parse_line(content, path, line)
    if isinstance(content, DataError):  # whoever read it may know the file by another path
        return DataError(path, line, content.reason)
    return content
