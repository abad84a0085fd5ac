"""Datasets written again with derived forms, alone or with the help of processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consensuspr.core import derive_forms, normalize
from consensuspr.data import open_writer
from consensuspr.errors import DataError
from consensuspr.scoring import DatasetIndex, derive_dataset

ROWS: list[dict[str, Any]] = [
    {
        "url": "kept",
        "problem_id": "a",
        "nodes": [
            {"expressions": ["48/2=24", "24=48/2"], "note": "kept too"},
            {"expressions": ["9*2=18"], "derived": ["18=2*9"]},
        ],
    },
    {"problem_id": "b", "nodes": None},
    {"problem_id": "c"},
    {"problem_id": "d", "nodes": [{"expressions": ["48/2=24"]}]},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with open_writer(path) as out:
        for row in rows:
            out.write(row)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_only_missing_forms_are_filled_in_and_all_else_stays(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", ROWS)
    seen: list[int] = []
    report, derived = derive_dataset(source, tmp_path / "out.jsonl", progress=seen.append)
    rows = read(tmp_path / "out.jsonl")
    both = rows[0]["nodes"][0].pop("derived")
    written = {normalize("48/2=24"), normalize("24=48/2")}
    expected = {normalize(f) for e in ("48/2=24", "24=48/2") for f in derive_forms(e)} - written
    assert {normalize(form) for form in both} == expected
    assert len(both) == len(expected)  # each once
    assert rows[3]["nodes"][0].pop("derived") == derive_forms("48/2=24")
    assert rows == ROWS
    assert seen == [1, 2, 3, 4]
    assert report.rows == 4
    assert (derived.nodes, derived.expressions) == (2, 2)
    assert derived.forms == len(both) + len(derive_forms("48/2=24"))


def test_forms_are_made_anew_on_request(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", ROWS)
    derive_dataset(source, tmp_path / "out.jsonl", again=True)
    nodes = read(tmp_path / "out.jsonl")[0]["nodes"]
    assert nodes[1]["derived"] == derive_forms("9*2=18")


def test_deriving_into_the_file_or_at_load_is_the_same(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", ROWS)
    derive_dataset(source, tmp_path / "out.parquet")
    at_load = DatasetIndex.load(source, derive="missing")
    stored = DatasetIndex.load(tmp_path / "out.parquet", derive="stored")
    assert at_load.digest == stored.digest


def test_a_dataset_may_be_derived_in_place(tmp_path: Path) -> None:
    path = write(tmp_path / "set.jsonl", ROWS)
    derive_dataset(path, path)
    before = path.read_bytes()
    derive_dataset(path, path)
    assert path.read_bytes() == before


def test_a_bad_row_leaves_nothing_behind(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [*ROWS, {"problem_id": 5}])
    with pytest.raises(DataError, match=":5: problem_id must be a string"):
        derive_dataset(source, tmp_path / "out.jsonl")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.jsonl"]
    report, _ = derive_dataset(source, tmp_path / "out.jsonl", on_error="skip")
    assert (report.rows, report.skipped) == (4, 1)
