"""Damage to the files of a score log, as disks, other programs and people cause it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.score_logs import KEYS


def _corrupt(path: Path, column: str) -> None:
    group = pq.read_metadata(path).row_group(0)
    content = bytearray(path.read_bytes())
    for chunk in (group.column(at) for at in range(group.num_columns)):
        if chunk.path_in_schema == column:
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            end = begin + chunk.total_compressed_size
            content[begin:end] = b"\x5a" * (end - begin)
    path.write_bytes(content)


def _replace(path: Path, column: str, value: pa.Array) -> None:
    """Give all rows the first value, the last one the last."""
    table = pq.read_table(path)
    at = pa.array([0] * (table.num_rows - 1) + [len(value) - 1])
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, value.take(at)), path)


def _instead(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


_TIME = pa.timestamp("us", tz="UTC")
_KEYS = pa.array([KEYS.key(1), None], pa.binary(16))
_NO_UTF8 = pa.array([b"\xff"]).view(pa.string())
_IRREGULAR = "is not a regular file"
# Damage to a file, and what readers print about it.
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "corrupt pages": (lambda path: _corrupt(path, "status"), "cannot be read"),
    "corrupt keys": (lambda path: _corrupt(path, "key"), "cannot be read"),
    "cut": (lambda path: os.truncate(path, 1000), "is not a file of a score log"),
    "no key": (
        lambda path: pq.write_table(pq.read_table(path).drop_columns(["key"]), path),
        "has rows without key",
    ),
    "null key": (lambda path: _replace(path, "key", _KEYS), "has rows without key"),
    "null time": (lambda path: _replace(path, "time", pa.nulls(1, _TIME)), "without time"),
    "null status": (lambda path: _replace(path, "status", pa.nulls(1)), "without status"),
    "text step": (lambda path: _replace(path, "step", pa.array(["x"])), "column step"),
    "unsigned step": (
        lambda path: _replace(path, "step", pa.array([2**64 - 1], pa.uint64())), "column step"
    ),
    "huge step": (
        lambda path: _replace(path, "step", pa.array([2**62])),
        f"step is {2**62}, the limit is {2**53}",
    ),
    "huge length": (
        lambda path: _replace(path, "num_tokens", pa.array([-(2**62)])),
        f"num_tokens is -{2**62}, the limit is {2**53}",
    ),
    "far future": (
        lambda path: _replace(path, "time", pa.array([2**62], _TIME)),
        f"time is {2**62}, the limit is {2**53}",
    ),
    "no UTF-8": (lambda path: _replace(path, "status", _NO_UTF8), "column status"),
    "FIFO": (lambda path: _instead(path, os.mkfifo), _IRREGULAR),
    "folder": (lambda path: _instead(path, Path.mkdir), _IRREGULAR),
}  # fmt: skip


def damage(run: Path, name: str) -> str:
    """Damage the last file of a run; return its name."""
    *_, path = sorted((run / "scores").glob("*.parquet"))
    DAMAGES[name][0](path)
    return path.name
