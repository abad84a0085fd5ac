"""Problems that fail, and builds that go on where they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import BuildReport, build
from consensusbench.construction.store import Workspace
from consensuspr.errors import ConsensusPRError, InputError
from tests.consensusbench.construction.conftest import (
    Listener,
    ToyExtractor,
    ToyRefiner,
    job,
    many,
    outputs,
    read_rows,
    write_rows,
    written,
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("RAISE", "problem 'p0002': ZeroDivisionError: division by zero (1 problem failed;"),
        ("CRASH", "problem 'p0002': its worker process was ended by SIGSEGV, twice (1 problem"),
        ("REFINING FAILS", "problem 'p0002': this one cannot be refined (1 problem failed;"),
    ],
)
def test_a_problem_that_fails_ends_the_build_or_is_skipped(
    tmp_path: Path, text: str, sentence: str
) -> None:
    problems, rollouts = many(4)
    problems[1]["problem"] = text
    paths = (
        write_rows(tmp_path / "r.jsonl", rollouts),
        write_rows(tmp_path / "p.jsonl", problems),
    )
    with pytest.raises(ConsensusPRError) as caught:
        build(job(tmp_path, paths[0], problems=paths[1]))
    assert str(caught.value).startswith(sentence)
    assert not any(path.exists() for path in outputs(tmp_path).all())
    listener = Listener()
    report = build(job(tmp_path, paths[0], problems=paths[1], on_error="skip"), listener)
    kept = 4 if text == "REFINING FAILS" else 3
    assert listener.notes == [f"an earlier run left {kept} extracted problems; going on"]
    assert dict(report.problems.excluded) == {"failed": 1}
    assert report.problems.written.total() == 3


def test_many_failures_end_a_build_early(tmp_path: Path) -> None:
    problems, rollouts = many(60)
    for row in problems:
        row["problem"] = "RAISE"
    with pytest.raises(ConsensusPRError, match=r"20 problems failed"):
        build(
            job(
                tmp_path,
                write_rows(tmp_path / "r.jsonl", rollouts),
                problems=write_rows(tmp_path / "p.jsonl", problems),
            )
        )
    assert not (tmp_path / "dataset.jsonl.partial").exists()


def test_an_earlier_run_is_gone_on_with(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    report = interrupted(tmp_path, problems, rollouts)
    assert report.resumed == 5
    clean = tmp_path / "clean"
    clean.mkdir()
    build(job(clean, rollouts, problems=problems))
    assert written(outputs(tmp_path)) == written(outputs(clean))


def interrupted(folder: Path, problems: Path, rollouts: Path, **changes: Any) -> BuildReport:
    """Let the last problem fail, mend it, and build again with some changes."""
    rows = read_rows(problems)
    text = rows[-1]["problem"]
    write_rows(problems, [*rows[:-1], rows[-1] | {"problem": "RAISE"}])
    with pytest.raises(ConsensusPRError):
        build(job(folder, rollouts, problems=problems))
    rows[-1]["problem"] = text
    listener = changes.pop("listener", Listener())
    return build(
        job(folder, rollouts, problems=write_rows(problems, changes.pop("rows", rows)), **changes),
        listener,
    )


def test_changed_settings_start_anew_and_say_so(files: tuple[Path, Path], tmp_path: Path) -> None:
    listener = Listener()
    report = interrupted(tmp_path, *files, extractor=ToyExtractor(version=2), listener=listener)
    assert report.resumed == 0
    assert listener.notes == ["an earlier run extracted with other settings; starting anew"]


def test_a_changed_problem_is_extracted_anew_and_no_other(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    rows = read_rows(files[0])
    rows[1]["problem"] += " Please."
    assert interrupted(tmp_path, *files, rows=rows).resumed == 4


def test_other_thresholds_of_refinement_keep_what_was_extracted(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    assert interrupted(tmp_path, *files, refiner=ToyRefiner(1)).resumed == 5


def test_two_builds_of_one_output_do_not_meet(files: tuple[Path, Path], tmp_path: Path) -> None:
    with (
        Workspace(tmp_path / "dataset.jsonl"),
        pytest.raises(InputError, match=r"another process is building .*dataset.jsonl"),
    ):
        build(job(tmp_path, files[1], problems=files[0]))
    assert not (tmp_path / "dataset.jsonl.partial").exists()
