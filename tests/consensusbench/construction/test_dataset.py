"""What a build writes, and what does not change it."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from consensusbench.construction import OutputPaths, build, refine_candidates
from consensuspr.data import open_writer, read_problems
from consensuspr.scoring import DatasetIndex
from tests.consensusbench.construction.conftest import (
    Listener,
    ToyRefiner,
    job,
    many,
    outputs,
    read_rows,
    with_columns,
    write_rows,
    written,
)


def test_a_dataset_holds_nodes_and_how_they_were_made(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    problems, rollouts = files
    report = build(job(tmp_path, rollouts, problems=problems))
    rows = read_rows(tmp_path / "dataset.jsonl")
    assert [row["problem_id"] for row in rows] == [f"p{number:04d}" for number in range(1, 7)]
    first = rows[0]
    assert [node["node_id"] for node in first["nodes"]] == ["n1", "n2"]
    assert first["nodes"][0] == {
        "node_id": "n1",
        "label": "2*1=2",
        "type": "equation",
        "expressions": ["2*1=2"],
        "derived": [],
        "support": 5,
        "is_final": False,
        "num_models": 3,
        "position": first["nodes"][0]["position"],
    }
    assert (first["split"], first["metadata"]["level"]) == ("train", 2)
    made = first["metadata"]["construction"]
    assert made["correct_rollouts"] == 5
    assert sorted(one["rollout_id"] for one in made["rollouts"]) == [
        "ada-1", "bea-0", "bea-1", "cyd-0", "cyd-1",
    ]  # fmt: skip
    assert made["provenance"]["extraction"] == {"name": "toy", "version": 1}
    assert made["provenance"]["refinement"] == {"min_support": 2, "min_nodes": 1}
    assert made["provenance"]["selection"]["rollouts_per_problem"] == 5
    assert report.digest == DatasetIndex.load(tmp_path / "dataset.jsonl").digest
    assert list(read_problems(tmp_path / "dataset.jsonl"))
    assert not (tmp_path / "dataset.jsonl.partial").exists()


def test_the_audit_accounts_for_every_conclusion(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    report = build(job(tmp_path, rollouts, problems=problems))
    kept = sum(len(row["nodes"]) for row in read_rows(tmp_path / "dataset.jsonl"))
    dropped = read_rows(tmp_path / "dataset.audit.jsonl")
    candidates = read_rows(tmp_path / "dataset.candidates.jsonl")
    made = sum(len(row["extraction"]["candidates"]) for row in candidates)
    assert kept + len(dropped) == made
    assert dropped[0] | {"label": "", "expressions": []} == {
        "problem_id": "p0001",
        "data_source": "toy/odd",
        "what": "node",
        "stage": "refine",
        "reason": "support",
        "detail": "support 1 is below 2",
        "label": "",
        "expressions": [],
        "support": 1,
    }
    assert report.problems.dropped == {("refine", "support"): len(dropped)}


@pytest.mark.parametrize("with_problems", [True, False])
def test_neither_the_order_of_rows_nor_that_of_files_matters(
    files: tuple[Path, Path], tmp_path: Path, with_problems: bool
) -> None:
    problems, rollouts = files
    listed = problems if with_problems else None
    if not with_problems:
        rollouts = with_columns(rollouts, problems)
    build(job(tmp_path, rollouts, problems=listed))
    expected = written(outputs(tmp_path))
    lines = read_rows(rollouts)
    for seed in range(3):
        folder = tmp_path / f"shuffled{seed}"
        folder.mkdir()
        random.Random(seed).shuffle(lines)
        cut = random.Random(seed).randrange(1, len(lines))
        parts = (
            write_rows(folder / "a.jsonl", lines[:cut]),
            folder / "b.jsonl.gz",
        )
        tail = write_rows(folder / "tail.jsonl", lines[cut:])
        parts[1].write_bytes(gzip.compress(tail.read_bytes()))
        build(job(folder, *parts, problems=listed))
        assert written(outputs(folder)) == expected


def test_any_number_of_workers_writes_the_same(tmp_path: Path) -> None:
    problems, rollouts = many(60)
    paths = [
        write_rows(tmp_path / "problems.jsonl", problems),
        write_rows(tmp_path / "rollouts.jsonl", rollouts),
    ]
    bytes_of = []
    for workers in (1, 2, 5):
        folder = tmp_path / str(workers)
        folder.mkdir()
        build(job(folder, paths[1], problems=paths[0], workers=workers))
        bytes_of.append(written(outputs(folder)))
    assert bytes_of[1] == bytes_of[0] and bytes_of[2] == bytes_of[0]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "parquet"])
def test_extract_and_refine_make_what_build_makes(
    files: tuple[Path, Path], tmp_path: Path, suffix: str
) -> None:
    problems, rollouts = files
    rows = read_rows(problems)
    rows[2]["ground_truth"] = "0"  # excluded: nothing is correct
    problems = write_rows(problems, rows)
    built = build(job(tmp_path, rollouts, problems=problems))
    candidates = tmp_path / f"candidates.{suffix}"
    extracted = build(
        job(
            tmp_path,
            rollouts,
            problems=problems,
            paths=OutputPaths(candidates=candidates),
            refiner=None,
        )
    )
    assert extracted.problems.excluded == {"few_correct": 1}
    assert extracted.digest is None
    again = OutputPaths(tmp_path / "again.jsonl", tmp_path / "again.audit.jsonl")
    refined = refine_candidates(candidates, again, ToyRefiner())
    assert again.dataset is not None and again.audit is not None
    assert again.dataset.read_bytes() == (tmp_path / "dataset.jsonl").read_bytes()
    assert again.audit.read_bytes() == (tmp_path / "dataset.audit.jsonl").read_bytes()
    assert refined.digest == built.digest
    assert refined.problems.to_json() == built.problems.to_json()


def test_other_thresholds_need_no_extraction(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    build(job(tmp_path, rollouts, problems=problems))
    paths = OutputPaths(tmp_path / "one.jsonl")
    report = refine_candidates(tmp_path / "dataset.candidates.jsonl", paths, ToyRefiner(1))
    assert report.problems.nodes.total() == sum(
        len(row["extraction"]["candidates"])
        for row in read_rows(tmp_path / "dataset.candidates.jsonl")
    )
    [row, *_] = read_rows(tmp_path / "one.jsonl")
    provenance = row["metadata"]["construction"]["provenance"]
    assert provenance["refinement"]["min_support"] == 1
    assert provenance["extraction"] == {"name": "toy", "version": 1}


def test_a_dataset_in_parquet_is_the_same_dataset(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    first = build(job(tmp_path, rollouts, problems=problems))
    paths = OutputPaths(tmp_path / "dataset.parquet", tmp_path / "audit.parquet")
    second = build(job(tmp_path, rollouts, problems=problems, paths=paths))
    assert second.digest == first.digest
    assert list(read_problems(tmp_path / "dataset.parquet")) == list(
        read_problems(tmp_path / "dataset.jsonl")
    )


def test_rollouts_without_a_name_of_their_own_get_one(tmp_path: Path) -> None:
    problems, rollouts = many(1)
    rollouts = rollouts[1:]
    for row in rollouts:
        row["rollout_id"] = "same"
    del rollouts[0]["rollout_id"]
    build(
        job(
            tmp_path,
            write_rows(tmp_path / "r.jsonl", rollouts),
            problems=write_rows(tmp_path / "p.jsonl", problems),
        )
    )
    [row] = read_rows(tmp_path / "dataset.jsonl")
    names = [one["rollout_id"] for one in row["metadata"]["construction"]["rollouts"]]
    assert len(set(names)) == 5 and sum(name.startswith("same#") for name in names) == 4


def test_how_rollouts_were_sampled_is_recorded(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    rows = read_rows(rollouts)
    for row in rows:
        row["sampling"] = {"temperature": 2.0, "top_p": None}
    rows[1] |= {"sampling": None, "temperature": 0.7}
    build(job(tmp_path, write_rows(rollouts, rows), problems=problems))
    [first, *_] = read_rows(tmp_path / "dataset.jsonl")
    said = {
        one["rollout_id"]: one["sampling"] for one in first["metadata"]["construction"]["rollouts"]
    }
    assert said["ada-1"] == {"temperature": 0.7}
    assert said["bea-0"] == {"temperature": 2.0}


def test_the_split_may_be_set(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    build(job(tmp_path, rollouts, problems=problems, split="test"))
    assert {row["split"] for row in read_rows(tmp_path / "dataset.jsonl")} == {"test"}


def test_progress_is_told(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    listener = Listener()
    build(job(tmp_path, rollouts, problems=problems), listener)
    assert listener.heard == [
        ("read", 36),
        ("begin", 6),
        *[("work", number) for number in range(1, 7)],
    ]
    assert listener.notes == []


def test_old_nodes_of_the_problems_are_replaced(tmp_path: Path) -> None:
    problems, rollouts = many(1)
    problems[0]["nodes"] = [{"expressions": ["1=1"]}]
    build(
        job(
            tmp_path,
            write_rows(tmp_path / "r.jsonl", rollouts),
            problems=write_rows(tmp_path / "p.jsonl", problems),
        )
    )
    [row] = read_rows(tmp_path / "dataset.jsonl")
    assert [node["label"] for node in row["nodes"]] == ["2*1=2", "2+1=3"]


def test_rollouts_may_be_parquet(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    with open_writer(tmp_path / "rollouts.parquet") as out:
        for row in read_rows(rollouts):
            out.write(row)
    first = build(job(tmp_path, rollouts, problems=problems))
    paths = outputs(tmp_path, "again")
    second = build(job(tmp_path, tmp_path / "rollouts.parquet", problems=problems, paths=paths))
    assert second.digest == first.digest


def test_what_an_extractor_prints_does_no_harm(tmp_path: Path) -> None:
    problems, rollouts = many(1)
    problems[0]["problem"] = "PRINT"
    report = build(
        job(
            tmp_path,
            write_rows(tmp_path / "r.jsonl", rollouts),
            problems=write_rows(tmp_path / "p.jsonl", problems),
        )
    )
    assert report.problems.written.total() == 1


def test_text_of_any_kind_passes_through(tmp_path: Path) -> None:
    problems, rollouts = many(2)
    problems[0]["problem"] += " \ud800 \x00 \u2028"
    for row in rollouts[:6]:
        row["response"] = "\x00\udfff\u2028 " + row["response"]
        row["rollout_id"] += "\ud800"
        row["model"] += "\ud800"
    paths = (
        write_rows(tmp_path / "r.jsonl", rollouts),
        write_rows(tmp_path / "p.jsonl", problems),
    )
    report = build(job(tmp_path, paths[0], problems=paths[1]))
    assert report.problems.written.total() == 2
    refined = OutputPaths(tmp_path / "refined.jsonl")
    refine_candidates(tmp_path / "dataset.candidates.jsonl", refined, ToyRefiner())
    assert (tmp_path / "refined.jsonl").read_bytes() == (tmp_path / "dataset.jsonl").read_bytes()
    [first, _] = read_rows(tmp_path / "dataset.jsonl")
    assert first["problem"] == problems[0]["problem"]
    assert len(first["nodes"]) == 2
