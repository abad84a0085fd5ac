"""Equal forms for nodes that have none, in this process and by children."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensuspr.core import NORMAL_FORM_VERSION, derive_forms, normalize
from consensuspr.errors import DataError
from consensuspr.scoring import DatasetIndex, derive
from consensuspr.scoring.dataset_index import derive_dataset
from tests.rows import read_rows, write_rows

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


def test_only_missing_forms_are_filled_in_and_all_else_stays(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", ROWS)
    seen: list[int] = []
    report, derived = derive_dataset(source, tmp_path / "out.jsonl", progress=seen.append)
    rows = read_rows(tmp_path / "out.jsonl")
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
    source = write_rows(tmp_path / "in.jsonl", ROWS)
    derive_dataset(source, tmp_path / "out.jsonl", again=True)
    nodes = read_rows(tmp_path / "out.jsonl")[0]["nodes"]
    assert nodes[1]["derived"] == derive_forms("9*2=18")


def built(made_with: dict[str, str], derived: list[str]) -> dict[str, Any]:
    return {
        "problem_id": "a",
        "nodes": [{"expressions": ["9*2=18"], "derived": derived}],
        "metadata": {"construction": {"provenance": made_with}},
    }


@pytest.mark.parametrize(
    ("made_with", "kept"),
    [
        ({"normal_form": "1"}, False),
        ({"normal_form": NORMAL_FORM_VERSION, "forms": "1.1"}, False),
        ({"normal_form": "1", "forms": derive.FORMS_VERSION}, True), ({}, True),
    ],
)  # fmt: skip
def test_forms_of_another_version_are_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, made_with: dict[str, str], kept: bool
) -> None:
    source = write_rows(tmp_path / "in.jsonl", [built(made_with, ["18=2+16"])])
    forms = ["18=2+16"] if kept else derive_forms("9*2=18")
    derive_dataset(source, tmp_path / "out.jsonl")
    expected = made_with | ({"forms": derive.FORMS_VERSION} if made_with else {})
    assert read_rows(tmp_path / "out.jsonl") == [built(expected, forms)]
    with caplog.at_level("WARNING"):
        at_load = DatasetIndex.load(source)
    assert bool(caplog.records) is not kept
    assert at_load.digest == DatasetIndex.load(tmp_path / "out.jsonl").digest
    # What the dataset has, where that is asked for.
    stored = DatasetIndex.load(source, derive="stored").entry("a")
    assert stored is not None and stored.nodes[0].derived == ("18=2+16",)


def test_deriving_into_the_file_or_at_load_is_the_same(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", ROWS)
    derive_dataset(source, tmp_path / "out.parquet")
    at_load = DatasetIndex.load(source, derive="missing")
    stored = DatasetIndex.load(tmp_path / "out.parquet", derive="stored")
    assert at_load.digest == stored.digest


def test_a_bad_row_leaves_nothing_behind(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [*ROWS, {"problem_id": 5}])
    with pytest.raises(DataError, match=":5: problem_id must be a string"):
        derive_dataset(source, tmp_path / "out.jsonl")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.jsonl"]
    report, _ = derive_dataset(source, tmp_path / "out.jsonl", on_error="skip")
    assert (report.rows, report.skipped) == (4, 1)


def test_children_give_what_this_process_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = [f"{n}+{n + 1}={2 * n + 1}" for n in range(40)]
    texts = [*sums, "\ud800", 'quote " and \n line']
    nodes = [{"expressions": [text]} for text in texts]
    source = write_rows(tmp_path / "in.jsonl", [{"problem_id": "a", "nodes": nodes}])
    monkeypatch.setattr(derive, "ALONE_S", 0.0)
    derive_dataset(source, tmp_path / "out.jsonl", processes=2)
    [row] = read_rows(tmp_path / "out.jsonl")
    assert [node["derived"] for node in row["nodes"]] == [derive_forms(text) for text in texts]
