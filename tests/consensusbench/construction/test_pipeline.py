"""A build: what it writes, what it leaves out and says, and how it goes on after a failure."""

from __future__ import annotations

import gzip
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import (
    AsyncExtraction,
    BuildReport,
    OutputPaths,
    SelectionSettings,
    build,
    refine_candidates,
)
from consensusbench.construction.store import Workspace
from consensuspr.data import open_writer, read_problems
from consensuspr.errors import BudgetSpent, ConsensusPRError, DataError, InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import AnswerRule
from tests.consensusbench.construction.conftest import (
    Listener,
    ToyAsyncExtractor,
    ToyExtractor,
    ToyRefiner,
    job,
    job_of,
    many,
    outputs,
    read_rows,
    rollout_row,
    with_columns,
    write_rows,
    written,
)

# What a build writes, and what does not change it.


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
        parts = (write_rows(folder / "a.jsonl", lines[:cut]), folder / "b.jsonl.gz")
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
    build(job_of(tmp_path, problems, rollouts))
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
    build(job_of(tmp_path, problems, rollouts))
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
    report = build(job_of(tmp_path, problems, rollouts))
    assert report.problems.written.total() == 1


def test_text_of_any_kind_passes_through(tmp_path: Path) -> None:
    problems, rollouts = many(2)
    problems[0]["problem"] += " \ud800 \x00 \u2028"
    for row in rollouts[:6]:
        row["response"] = "\x00\udfff\u2028 " + row["response"]
        row["rollout_id"] += "\ud800"
        row["model"] += "\ud800"
    paths = (write_rows(tmp_path / "r.jsonl", rollouts), write_rows(tmp_path / "p.jsonl", problems))
    report = build(job(tmp_path, paths[0], problems=paths[1]))
    assert report.problems.written.total() == 2
    refined = OutputPaths(tmp_path / "refined.jsonl")
    refine_candidates(tmp_path / "dataset.candidates.jsonl", refined, ToyRefiner())
    assert (tmp_path / "refined.jsonl").read_bytes() == (tmp_path / "dataset.jsonl").read_bytes()
    [first, _] = read_rows(tmp_path / "dataset.jsonl")
    assert first["problem"] == problems[0]["problem"]
    assert len(first["nodes"]) == 2


# Which problems and rollouts do not count, and how that is said.


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        ({"ground_truth": None}, "no_ground_truth", "its ground truth is not known"),
        (
            {"ground_truth": "12345"},
            "few_correct",
            "0 of 6 distinct rollouts are correct, the least is 3",
        ),
        ({"problem_id": "other"}, "no_rollouts", "there is no rollout of it"),
        ({"problem": "SPIN"}, "time_limit", "took more than 0.3 s of processor time"),
    ],
)
def test_a_problem_that_cannot_be_used_is_excluded_by_name(
    tmp_path: Path, change: dict[str, Any], reason: str, detail: str
) -> None:
    problems, rollouts = many(3)
    problems[1] |= change
    report = build(job_of(tmp_path, problems, rollouts, time_limit_s=0.3))
    assert dict(report.problems.excluded) == {reason: 1}
    assert len(read_rows(tmp_path / "dataset.jsonl")) == 2
    [excluded] = [
        row for row in read_rows(tmp_path / "dataset.audit.jsonl") if row["what"] == "problem"
    ]
    assert (excluded["problem_id"], excluded["reason"], excluded["detail"]) == (
        problems[1]["problem_id"], reason, detail,
    )  # fmt: skip


def test_a_problem_with_too_few_nodes_is_excluded_with_those_it_has(tmp_path: Path) -> None:
    problems, rollouts = many(2)
    for row in rollouts[:6]:
        row["response"] = row["response"].replace("2*1=2", "twice 1 is 2")
    report = build(job_of(tmp_path, problems, rollouts, refiner=ToyRefiner(min_nodes=2)))
    assert dict(report.problems.excluded) == {"few_nodes": 1}
    assert report.problems.examples["few_nodes"] == "'p0001': 1 node is left, the least is 2"
    found = [
        (row["what"], row["label"])
        for row in read_rows(tmp_path / "dataset.audit.jsonl")
        if row["reason"] == "few_nodes"
    ]
    assert found == [("node", "2+1=3"), ("problem", None)]


def test_rows_that_conflict_are_named(tmp_path: Path) -> None:
    problems, rollouts = many(3)
    rows = read_rows(
        with_columns(
            write_rows(tmp_path / "r.jsonl", rollouts), write_rows(tmp_path / "p.jsonl", problems)
        )
    )
    rows[0]["ground_truth"] = "17"  # of p0001
    rows[7]["problem"] += " Say it twice."  # of p0002
    rows[13]["data_source"] = "toy/other"  # of p0003, which is used all the same
    rows[14]["problem"] = rows[14]["problem"].replace(" ", "  ")  # white space is no conflict
    report = build(job(tmp_path, write_rows(tmp_path / "rows.jsonl", rows)))
    audit = {
        row["problem_id"]: row["detail"]
        for row in read_rows(tmp_path / "dataset.audit.jsonl")
        if row["what"] == "problem"
    }
    assert audit == {
        "p0001": "ground_truth is '17' in one row and '3' in another",
        "p0002": "problem is 'What is twice 2, and one more?' in one row and "
        "'What is twice 2, and one more? Say it twice.' in another",
    }
    assert report.warnings() == [
        "1 problem has rollouts of several data sources, of which the first in the alphabet is "
        "taken (first: 'toy/odd' and 'toy/other' for problem 'p0003')"
    ]
    assert read_rows(tmp_path / "dataset.jsonl")[0]["data_source"] == "toy/odd"


def test_another_ground_truth_than_the_listed_one_is_said(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    problems, rollouts = files
    rows = read_rows(rollouts)
    rows[3]["ground_truth"] = "4"
    rows[4]["ground_truth"] = " 3 "
    report = build(job(tmp_path, write_rows(rollouts, rows), problems=problems))
    assert report.warnings() == [
        "1 rollout names another ground truth than the file of problems, which counts "
        "(first: '4' instead of '3' for problem 'p0001')"
    ]
    assert report.problems.written.total() == 6


def test_every_rollout_is_accounted_for(tmp_path: Path) -> None:
    problems, rollouts = many(4)
    problems[2]["ground_truth"] = None
    rollouts += [
        rollout_row(1, "ada", 0),  # its text was changed above: once more, correct
        rollout_row(1, "bea", 0, rollout_id="again"),
        rollout_row(9, "ada", 0),
        rollout_row(2, "cyd", 7, response="x" * (1 << 20) + "\\boxed{5}"),
        rollout_row(2, "cyd", 8, response="I do not know."),
        rollout_row(2, "bea", 9),
    ]
    rows = [row for row in rollouts if row["model"] != "bea"]
    report = build(
        job_of(
            tmp_path,
            problems,
            rollouts,
            selection=SelectionSettings(exclude_models=("bea",), min_rollouts=1),
        )
    )
    counts = report.rollouts
    assert counts is not None
    assert asdict(counts) == {
        "read": len(rollouts),
        "skipped": 0,
        "other_model": len(rollouts) - len(rows),
        "unknown_problem": 1,
        "oversize": 1,
        "unusable_problem": 4,
        "repeated": 0,
        "incorrect": 4,
        "undecided": 0,
        "correct": 10,
        "used": 10,
    }
    total = sum(value for key, value in asdict(counts).items() if key not in ("read", "used"))
    assert total == counts.read


def test_a_repeated_text_counts_once(tmp_path: Path) -> None:
    problems, rollouts = many(1)
    copies = [row | {"rollout_id": f"copy-{number}"} for number, row in enumerate(rollouts)]
    report = build(
        job(
            tmp_path,
            write_rows(tmp_path / "r.jsonl", rollouts + copies),
            problems=write_rows(tmp_path / "p.jsonl", problems),
        )
    )
    assert report.rollouts is not None
    assert (report.rollouts.repeated, report.rollouts.correct) == (6, 5)


def test_labels_are_trusted_where_asked_for(files: tuple[Path, Path], tmp_path: Path) -> None:
    problems, rollouts = files
    rows = read_rows(rollouts)
    for row in rows:  # nothing that could be verified
        row["response"] = row["response"].partition("\\boxed")[0]
    rows[1]["correct"] = None
    report = build(
        job(
            tmp_path,
            write_rows(rollouts, rows),
            problems=problems,
            selection=SelectionSettings(trust_labels=True),
        )
    )
    assert report.rollouts is not None
    assert asdict(report.rollouts) | {"read": 0, "used": 0} == {
        "read": 0, "skipped": 0, "other_model": 0, "unknown_problem": 0, "oversize": 0,
        "unusable_problem": 0, "repeated": 0, "incorrect": 6, "undecided": 1, "correct": 29,
        "used": 0,
    }  # fmt: skip
    [first, *_] = read_rows(tmp_path / "dataset.jsonl")
    selection = first["metadata"]["construction"]["provenance"]["selection"]
    assert selection["correct"] == "labels"


# Which rollouts count as correct.


@pytest.mark.parametrize(
    ("own", "asked", "correct"),
    [
        (None, None, 5),
        ("boxed", None, 5),
        ("gsm8k", None, 0),  # no "####"
        ("gsm8k", "auto", 5),
        (None, "gsm8k", 0),  # no "####"
    ],
)
def test_the_rule_is_the_one_asked_for_else_the_problem_s_own(
    tmp_path: Path, own: str | None, asked: str | None, correct: int
) -> None:
    problems, rollouts = many(1)
    problems[0]["answer_rule"] = own
    asked_for = job_of(
        tmp_path,
        problems,
        rollouts,
        selection=SelectionSettings(answer_rule=AnswerRule(asked) if asked else None),
    )
    if correct:
        counts = build(asked_for).rollouts
        assert counts is not None and counts.correct == correct
    else:
        with pytest.raises(InputError, match="0 of 6 distinct rollouts are correct"):
            build(asked_for)


# Input that cannot be used ends a build with one sentence and nothing written.


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
        build(job_of(tmp_path, problems, rollouts))
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


# Problems that fail, and builds that go on where they were.


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
    paths = (write_rows(tmp_path / "r.jsonl", rollouts), write_rows(tmp_path / "p.jsonl", problems))
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
        build(job_of(tmp_path, problems, rollouts))
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


# Extraction by a model: many problems at once, in order, nothing lost that was paid for.

PROBLEMS = 30


@pytest.fixture
def thirty(tmp_path: Path) -> tuple[Path, Path]:
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
    thirty: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ToyAsyncExtractor([], fail="-")
    asked = job(tmp_path, thirty[1], problems=thirty[0], extractor=by_model(model))
    report = build(asked)
    assert (model.most, model.now) == (4, -1)  # four at once, and closed in the end
    assert len(model.asked) == PROBLEMS
    assert report.seconds.extracting > 0
    rows = read_rows(tmp_path / "dataset.jsonl")
    assert [row["problem_id"] for row in rows] == [f"p{n:04d}" for n in range(1, PROBLEMS + 1)]
    provenance = rows[0]["metadata"]["construction"]["provenance"]
    assert provenance["extraction"] == {"name": "toy-model"}
    ruled = job(tmp_path, thirty[1], problems=thirty[0], paths=outputs(tmp_path, "ruled"))
    assert build(ruled).digest == report.digest


def test_a_problem_without_a_reply_is_left_for_the_next_run(
    thirty: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ToyAsyncExtractor([])
    asked = job(tmp_path, thirty[1], problems=thirty[0], extractor=by_model(model))
    with pytest.raises(
        ConsensusPRError, match=r"^problem 'p0007': no usable reply after 3 attempts \(1 problem"
    ):
        build(asked)
    assert len(model.asked) == PROBLEMS and not (tmp_path / "dataset.jsonl").exists()
    again = ToyAsyncExtractor([], fail="-")
    report = build(replace(asked, extractor=by_model(again)))
    assert (again.asked, report.resumed) == (["p0007"], PROBLEMS - 1)


def test_a_spent_budget_ends_the_run_and_keeps_what_was_paid_for(
    thirty: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ToyAsyncExtractor([], fail="-", last=10)
    asked = job(tmp_path, thirty[1], problems=thirty[0], extractor=by_model(model))
    with pytest.raises(BudgetSpent, match=r"the limit of \$1"):
        build(asked)
    assert model.now == -1
    again = ToyAsyncExtractor([], fail="-")
    report = build(replace(asked, extractor=by_model(again)))
    assert len(again.asked) == PROBLEMS - report.resumed
    assert 7 <= report.resumed <= 10


def test_candidates_of_a_model_are_written_without_refining(
    thirty: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ToyAsyncExtractor([])
    paths = OutputPaths(candidates=tmp_path / "candidates.jsonl")
    asked = job(
        tmp_path, thirty[1], problems=thirty[0], extractor=by_model(model), refiner=None,
        paths=paths, on_error="skip",
    )  # fmt: skip
    report = build(asked)
    assert dict(report.problems.excluded) == {"failed": 1}
    [failed] = [row for row in read_rows(tmp_path / "candidates.jsonl") if row["excluded"]]
    assert failed["excluded"] == {
        "stage": "extract", "reason": "failed", "detail": "no usable reply after 3 attempts",
    }  # fmt: skip


def test_a_model_is_not_asked_from_a_cluster(thirty: tuple[Path, Path], tmp_path: Path) -> None:
    model = ToyAsyncExtractor([])
    with pytest.raises(InputError, match="use the local engine"):
        job(tmp_path, thirty[1], problems=thirty[0], extractor=by_model(model), engine="ray")
