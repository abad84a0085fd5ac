"""How rollouts were sampled: the file beside them ends up in the dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from consensusbench.construction import build
from consensusbench.construction.store import sampling_records
from consensuspr.errors import DataError
from tests.consensusbench.construction.conftest import job, many, read_rows, write_rows


def test_what_lies_beside_rollouts_is_recorded(tmp_path: Path) -> None:
    problems, rollouts = many(2)
    path = write_rows(tmp_path / "r.jsonl", rollouts)
    beside = {"prompt": "Solve {problem}", "per_problem": 5, "counts": {"rows": 12}}
    (tmp_path / "r.jsonl.provenance.json").write_text(json.dumps(beside))
    build(job(tmp_path, path, problems=write_rows(tmp_path / "p.jsonl", problems)))
    [row, _] = read_rows(tmp_path / "dataset.jsonl")
    assert row["metadata"]["construction"]["provenance"]["sampling"] == [
        {"prompt": "Solve {problem}", "per_problem": 5}
    ]


def test_each_content_counts_once_whatever_the_order(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c", "d")]
    for path, models in zip(paths, (["x"], ["y"], ["x"]), strict=False):
        Path(f"{path}.provenance.json").write_text(json.dumps({"models": models}))
    expected = [{"models": ["x"]}, {"models": ["y"]}]
    assert sampling_records(paths) == expected
    assert sampling_records(reversed(paths)) == expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[1]", "holds no JSON object; remove it to build without it"),
        ("{", "holds no JSON object"),
        (json.dumps({"prompt": "x" * 70_000}), "holds 70014 bytes, the limit is 65536"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "r.provenance.json").write_text(content)
    with pytest.raises(DataError, match=rf"r\.provenance\.json: {sentence}"):
        sampling_records([tmp_path / "r"])
