"""Rows written to JSONL, gzip'd JSONL or Parquet, by the suffix of the output's name.

The output appears when all rows are written, or not at all.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Protocol

from consensuspr.data.atomic import atomic_file
from consensuspr.data.json_text import dump_json_line
from consensuspr.data.schema import Row

PARQUET_SUFFIXES = (".parquet", ".pq")


def is_parquet_output(path: str | os.PathLike[str]) -> bool:
    """Say whether :func:`open_writer` writes Parquet to a path of this name."""
    return os.path.splitext(os.fspath(path))[1].lower() in PARQUET_SUFFIXES


class RowWriter(Protocol):
    """Takes rows one by one."""

    def write(self, row: Row) -> None:
        """Write one row.  It may be held until the writer closes: do not change it after."""


@contextlib.contextmanager
def open_writer(
    path: str | os.PathLike[str], types: Mapping[str, str] | None = None
) -> Iterator[RowWriter]:
    """Open ``path`` for rows; it is replaced when the block ends without an error.

    Args:
        path: ``*.parquet`` or ``*.pq`` is Parquet, ``*.gz`` gzip'd JSONL, all else JSONL.
        types: Arrow types of columns that are known beforehand, such as ``"double"`` or
            ``"list<bool>"``; looked at for Parquet only.

    Raises:
        InputError: the output cannot be written.
        DataError: Parquet is asked for and pyarrow is not installed.
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    with atomic_file(path) as stream:
        if suffix in PARQUET_SUFFIXES:
            from consensuspr.data.parquet_writing import ParquetRows

            with ParquetRows(stream, os.fspath(path), types or {}) as rows:
                yield rows
        elif suffix == ".gz":
            # Neither name nor time inside: equal rows give equal files.
            with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
                yield JsonRows(packed)
        else:
            yield JsonRows(stream)


class JsonRows:
    """Writes each row as one line of JSON."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = stream

    def write_lines(self, lines: bytes) -> None:
        """Write rows that are lines of JSON already."""
        self._stream.write(lines)

    def write(self, row: Row) -> None:
        self._stream.write(dump_json_line(row))
