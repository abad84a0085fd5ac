"""Parts of a file: cut, scored and put together."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from consensuspr.cli import main
from consensuspr.data import DataError, read_rollouts
from consensuspr.data.readers import read_unparsed
from consensuspr.ray import data
from consensuspr.ray.data import PartOptions, PartScorer, ScoredPart, cut_parts
from consensuspr.scoring import AnswerVerifier, DatasetIndex
from consensuspr.scoring.types import ScoreOptions


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give answers time enough on a machine that is busy otherwise."""
    monkeypatch.setattr(data, "AnswerVerifier", partial(AnswerVerifier, budget_s=60.0))


@pytest.fixture(scope="module")
def index(problems: Path) -> DatasetIndex:
    return DatasetIndex.load(problems)


def score_all(index: DatasetIndex, path: Path, **options: Any) -> Iterator[ScoredPart]:
    """Score a file part by part, each sent as Ray sends it."""
    scorer = PartScorer(index, PartOptions(str(path), ScoreOptions(), **options))
    try:
        for part in cut_parts(read_unparsed(path)):
            yield pickle.loads(pickle.dumps(scorer.score(pickle.loads(pickle.dumps(part)))))
    finally:
        scorer.close()


@pytest.mark.parametrize("packed", [False, True])
def test_lines_are_the_scored_rows_in_order(
    index: DatasetIndex,
    rollouts_file: Path,
    tmp_path: Path,
    packed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data, "PART_ROWS", 80)
    path = rollouts_file
    if packed:
        path = tmp_path / "rollouts.jsonl.gz"
        path.write_bytes(gzip.compress(rollouts_file.read_bytes()))
    scored = list(score_all(index, path))
    num_rows = len(rollouts_file.read_text().splitlines())
    assert [part.report.rows for part in scored[:-1]] == [80] * (num_rows // 80)
    assert scored[-1].report.rows == num_rows % 80 > 0
    rows = [json.loads(line) for line in b"".join(part.lines for part in scored).splitlines()]
    assert [row["rollout_id"] for row in rows] == [
        row["rollout_id"] for row in read_rollouts(rollouts_file)
    ]
    counted = [score for part in scored for _, score, _ in part.counted]
    assert [row["reward"] for row in rows] == [score.reward for score in counted]
    assert all(score.matched == () for score in counted), "summaries do not need them"


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_bad_row_ends_the_file_or_is_counted(
    index: DatasetIndex, rollouts_file: Path, tmp_path: Path, on_error: Any
) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(rollouts_file.read_bytes() + b"no json\n")
    [part] = score_all(index, path, on_error=on_error)
    with pytest.raises(DataError) as expected:
        list(read_rollouts(path))
    if on_error == "stop":
        assert (str(part.fault), part.lines) == (str(expected.value), b"")
    else:
        assert part.fault is None
        num_rows = len(rollouts_file.read_text().splitlines())
        assert (part.report.rows, part.report.skipped) == (num_rows, 1)
        assert list(map(str, part.report.reasons)) == [str(expected.value)]


def test_the_command_says_how_to_get_ray(
    problems: Path,
    rollouts_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("ray", "ray.data", "ray.serve"):
        monkeypatch.setitem(sys.modules, module, None)
    output = tmp_path / "scored.jsonl"
    arguments = ["--dataset", str(problems), "--output", str(output), "--engine", "ray"]
    assert main(["score", str(rollouts_file), *arguments]) == 2
    assert "pip install 'consensuspr[ray]'" in capsys.readouterr().err
    assert not output.exists()
