"""Output that appears complete or not at all, in three formats."""

from __future__ import annotations

import datetime
import gzip
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.data import atomic_file, open_writer, read_rollouts
from consensuspr.data.writers import csv_cell
from consensuspr.errors import InputError

FORMATS = ["out.jsonl", "out.jsonl.gz", "out.parquet"]


def write(path: Path, rows: list[dict[str, Any]], **kwargs: Any) -> Path:
    with open_writer(path, **kwargs) as out:
        for row in rows:
            out.write(row)
    return path


def row(**columns: Any) -> dict[str, Any]:
    return {"problem_id": "p", "response": "r", **columns}


def leftovers(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("name", FORMATS)
def test_a_failure_leaves_the_old_file_and_no_rubbish(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(RuntimeError, match="half way"), open_writer(path) as out:
        out.write(row())
        raise RuntimeError("half way")
    assert path.read_text() == "old"
    assert leftovers(tmp_path) == [name]


def test_the_suffix_decides_the_format(tmp_path: Path) -> None:
    assert write(tmp_path / "a.PARQUET", [row()]).read_bytes()[:4] == b"PAR1"
    assert write(tmp_path / "a.pq", [row()]).read_bytes()[:4] == b"PAR1"
    assert gzip.decompress(write(tmp_path / "a.gz", [row()]).read_bytes()).endswith(b"\n")
    assert json.loads(write(tmp_path / "a.out", [row()]).read_text()) == row()


def test_the_file_follows_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        path = write(tmp_path / "a.jsonl", [row()])
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with (
            pytest.raises(InputError, match="is not a regular file and cannot be replaced"),
            atomic_file(target),
        ):
            pytest.fail("the block must not run")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_what_json_lacks_is_written_as_what_it_has(tmp_path: Path) -> None:
    day = datetime.date(2024, 2, 29)
    path = write(tmp_path / "a.jsonl", [row(a=math.nan, b=[math.inf, 1.5], c=b"\xff", d=day)])
    assert json.loads(path.read_text()) == row(a=None, b=[None, 1.5], c="\ufffd", d="2024-02-29")


def test_a_lone_surrogate_survives_jsonl_and_is_replaced_in_parquet(tmp_path: Path) -> None:
    rows = [row(odd="a\ud800b", inside=[{"k": "\udfff"}])]
    assert list(read_rollouts(write(tmp_path / "a.jsonl", rows))) == rows
    (back,) = read_rollouts(write(tmp_path / "a.parquet", rows))
    assert back == row(odd="a\ufffdb", inside=[{"k": "\ufffd"}])


# What a column holds, chunk by chunk, and what is read back.
COLUMNS: list[tuple[str, list[list[Any]], list[Any] | None]] = [
    ("null first", [[None], ["text"]], None),
    ("null last", [[7], [None]], None),
    ("whole then broken", [[1], [2.5]], [1.0, 2.5]),
    ("a huge whole number then a broken one", [[2**60 + 1], [0.5]], None),
    ("past 64 bits", [[2**70], [1]], None),
    ("mixed in one chunk", [["a", 1, None, [2]]], None),
    ("empty objects", [[{}], [{}]], None),
    (
        "objects that grow",
        [[{"a": 1}], [{"a": 1, "b": "x"}]],
        [{"a": 1, "b": None}, {"a": 1, "b": "x"}],
    ),
    ("objects that disagree", [[{"a": 1}], [{"a": "x"}]], None),
    ("empty lists", [[[]], [[]]], None),
    ("lists filled later", [[[]], [[True]]], None),
    ("absent at first", [["<absent>"], ["x"]], [None, "x"]),
    ("bytes", [[b"\xff"], [b""]], None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("chunks", "expected"), [c[1:] for c in COLUMNS], ids=[c[0] for c in COLUMNS]
)
def test_parquet_finds_a_type_for_any_column(
    tmp_path: Path,
    chunks: list[list[Any]],
    expected: list[Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("consensuspr.data.writers.CHUNK_ROWS", len(chunks[0]))
    values = [value for chunk in chunks for value in chunk]
    rows = [row() if value == "<absent>" else row(column=value) for value in values]
    back = [r["column"] for r in read_rollouts(write(tmp_path / "a.parquet", rows))]
    assert back == (values if expected is None else expected)
    assert [type(value) for value in back] == [type(v) for v in (expected or values)]


def test_parquet_columns_of_known_types_need_no_value(tmp_path: Path) -> None:
    rows = [row(acc=None, matched=[])]
    types = {"acc": "double", "matched": "list<bool>"}
    schema = pq.read_schema(write(tmp_path / "a.parquet", rows, types=types))
    assert str(schema.field("acc").type) == "double"
    assert str(schema.field("matched").type).startswith("list<")
    assert schema.names == ["problem_id", "response", "acc", "matched"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_jsonl_gives_back_any_column_and_parquet_takes_it(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows = [row(column=value) for value in values]
    assert list(read_rollouts(write(folder / "a.jsonl", rows))) == rows
    back = list(read_rollouts(write(folder / "a.parquet", rows)))
    assert [sorted(r) for r in back] == [["column", "problem_id", "response"]] * len(values)


@pytest.mark.parametrize(
    ("value", "cell"),
    [("=1+1", "'=1+1"), ("  =1", "'  =1"), ("＝1", "'＝1"), ("a=1", "a=1"), ("", ""), (-2, -2)],
)
def test_no_text_is_a_formula_in_a_spreadsheet(value: object, cell: object) -> None:
    assert csv_cell(value) == cell
