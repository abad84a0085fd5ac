"""Extraction by a model: many problems at once, in order, nothing lost that was paid for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from consensusbench.construction import AsyncExtraction, OutputPaths, build
from consensuspr.errors import BudgetSpent, ConsensusPRError, InputError
from tests.consensusbench.construction.conftest import (
    ToyAsyncExtractor,
    job,
    many,
    outputs,
    read_rows,
    write_rows,
)

PROBLEMS = 30


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Paths of problems and rollouts."""
    problems, rollouts = many(PROBLEMS)
    problems[6]["problem"] = "NO REPLY"
    return (
        write_rows(tmp_path / "problems.jsonl", problems),
        write_rows(tmp_path / "rollouts.jsonl", rollouts),
    )


def by_model(model: ToyAsyncExtractor) -> AsyncExtraction:
    """Return stage 2 with four problems at once."""
    return AsyncExtraction(lambda: model, 4, model.provenance())


def test_a_model_makes_the_same_dataset_in_the_same_order(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ToyAsyncExtractor([], fail="-")
    asked = job(tmp_path, files[1], problems=files[0], extractor=by_model(model))
    report = build(asked)
    assert (model.most, model.now) == (4, -1)  # four at once, and closed in the end
    assert len(model.asked) == PROBLEMS
    assert report.seconds.extracting > 0
    rows = read_rows(tmp_path / "dataset.jsonl")
    assert [row["problem_id"] for row in rows] == [f"p{n:04d}" for n in range(1, PROBLEMS + 1)]
    provenance = rows[0]["metadata"]["construction"]["provenance"]
    assert provenance["extraction"] == {"name": "toy-model"}
    ruled = job(tmp_path, files[1], problems=files[0], paths=outputs(tmp_path, "ruled"))
    assert build(ruled).digest == report.digest


def test_a_problem_without_a_reply_is_left_for_the_next_run(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ToyAsyncExtractor([])
    asked = job(tmp_path, files[1], problems=files[0], extractor=by_model(model))
    with pytest.raises(
        ConsensusPRError, match=r"^problem 'p0007': no usable reply after 3 attempts \(1 problem"
    ):
        build(asked)
    assert len(model.asked) == PROBLEMS and not (tmp_path / "dataset.jsonl").exists()
    again = ToyAsyncExtractor([], fail="-")
    report = build(replace(asked, extractor=by_model(again)))
    assert (again.asked, report.resumed) == (["p0007"], PROBLEMS - 1)


def test_a_spent_budget_ends_the_run_and_keeps_what_was_paid_for(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ToyAsyncExtractor([], fail="-", last=10)
    asked = job(tmp_path, files[1], problems=files[0], extractor=by_model(model))
    with pytest.raises(BudgetSpent, match=r"the limit of \$1"):
        build(asked)
    assert model.now == -1
    again = ToyAsyncExtractor([], fail="-")
    report = build(replace(asked, extractor=by_model(again)))
    assert len(again.asked) == PROBLEMS - report.resumed
    assert 7 <= report.resumed <= 10


def test_candidates_of_a_model_are_written_without_refining(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ToyAsyncExtractor([])
    paths = OutputPaths(candidates=tmp_path / "candidates.jsonl")
    asked = job(
        tmp_path, files[1], problems=files[0], extractor=by_model(model), refiner=None,
        paths=paths, on_error="skip",
    )  # fmt: skip
    report = build(asked)
    assert dict(report.problems.excluded) == {"failed": 1}
    [failed] = [row for row in read_rows(tmp_path / "candidates.jsonl") if row["excluded"]]
    assert failed["excluded"] == {
        "stage": "extract", "reason": "failed", "detail": "no usable reply after 3 attempts",
    }  # fmt: skip


def test_a_model_is_not_asked_from_a_cluster(files: tuple[Path, Path], tmp_path: Path) -> None:
    model = ToyAsyncExtractor([])
    with pytest.raises(InputError, match="use the local engine"):
        job(tmp_path, files[1], problems=files[0], extractor=by_model(model), engine="ray")
