"""Input that cannot be used ends a build with one sentence and nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import OutputPaths, SelectionSettings, build, refine_candidates
from consensuspr.errors import DataError, InputError
from tests.consensusbench.construction.conftest import (
    ToyRefiner,
    job,
    many,
    outputs,
    read_rows,
    write_rows,
)


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        (
            SelectionSettings(exclude_models=("eve",)),
            "no rollout is of model 'eve'; the models there are: ada, bea, cyd",
        ),
        (SelectionSettings(only_models=("Ada",)), "no rollout is of model 'Ada'"),
    ],
)
def test_a_model_that_is_not_there_is_an_error(
    files: tuple[Path, Path], tmp_path: Path, selection: SelectionSettings, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        build(job(tmp_path, files[1], problems=files[0], selection=selection))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["problems.jsonl", "rollouts.jsonl"]


def test_leaving_out_every_model_is_an_error(files: tuple[Path, Path], tmp_path: Path) -> None:
    selection = SelectionSettings(exclude_models=("ada", "bea", "cyd"))
    with pytest.raises(
        InputError, match=r"^exclude_models and only_models leave none of the 36 rollouts$"
    ):
        build(job(tmp_path, files[1], selection=selection))


def test_labels_that_are_not_there_are_an_error(files: tuple[Path, Path], tmp_path: Path) -> None:
    rows = [{**row, "correct": None} for row in read_rows(files[1])]
    selection = SelectionSettings(trust_labels=True)
    with pytest.raises(InputError, match="has the column correct"):
        build(job(tmp_path, write_rows(files[1], rows), problems=files[0], selection=selection))


def test_a_bad_row_stops_before_anything_is_written_or_is_counted(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    problems, rollouts = files
    with rollouts.open("a") as stream:
        stream.write('{"problem_id": "p0001"}\n')
    with pytest.raises(DataError, match=r"rollouts.jsonl:37: response is missing"):
        build(job(tmp_path, rollouts, problems=problems))
    assert not any(path.exists() for path in outputs(tmp_path).all())
    report = build(job(tmp_path, rollouts, problems=problems, on_error="skip"))
    assert report.warnings() == ["1 bad row of rollouts was skipped"]


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    problems, rollouts = many(2)
    for row in problems:
        row["ground_truth"] = "0"
    with pytest.raises(InputError) as caught:
        build(
            job(
                tmp_path,
                write_rows(tmp_path / "r.jsonl", rollouts),
                problems=write_rows(tmp_path / "p.jsonl", problems),
            )
        )
    assert str(caught.value) == (
        "no problem is left, nothing was written: 2 few_correct (first: 'p0001': 1 of 6 distinct "
        "rollouts are correct, the least is 3)"
    )


def test_an_output_is_no_input_and_no_other_output(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    problems, rollouts = files
    with pytest.raises(InputError, match="is read by this command; write elsewhere"):
        build(job(tmp_path, rollouts, problems=problems, paths=OutputPaths(problems)))
    with pytest.raises(InputError, match="cannot hold two outputs at once"):
        OutputPaths(rollouts, rollouts)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"extraction": None}, "has neither extraction nor excluded"),
        ({"extraction": {"candidates": []}}, "extraction.correct_rollouts is missing"),
        ({"excluded": {"stage": "select", "reason": "?", "detail": ""}}, "excluded has stage"),
    ],
)
def test_a_file_that_is_none_of_candidates_is_named(
    files: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    build(job(tmp_path, files[1], problems=files[0]))
    path = tmp_path / "dataset.candidates.jsonl"
    rows = read_rows(path)
    write_rows(path, [rows[0], rows[1] | change, *rows[2:]])
    paths = OutputPaths(tmp_path / "refined.jsonl")
    with pytest.raises(DataError, match=f"problem 'p0002': {sentence}"):
        refine_candidates(path, paths, ToyRefiner())
    report = refine_candidates(path, paths, ToyRefiner(), on_error="skip")
    assert (report.skipped_rows, report.problems.written.total()) == (1, 5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"type": "guess"}, "type must be one of equation, value"),
        ({"expressions": []}, "has no expressions"),
        ({"support": "2"}, "support is missing or of a wrong type"),
        ({"support": True}, "support is missing or of a wrong type"),
        ({"derived": None}, "derived must be a list of strings"),
    ],
)
def test_a_bad_candidate_is_named(
    files: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    build(job(tmp_path, files[1], problems=files[0]))
    path = tmp_path / "dataset.candidates.jsonl"
    rows = read_rows(path)
    rows[0]["extraction"]["candidates"][1] |= change
    with pytest.raises(DataError, match=rf"candidates\[1\].*{sentence}"):
        refine_candidates(write_rows(path, rows), OutputPaths(tmp_path / "x.jsonl"), ToyRefiner())
