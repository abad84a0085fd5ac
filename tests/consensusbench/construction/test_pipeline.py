"""A build: its files, the problems that it leaves out, and how it goes on after a failure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import (
    BuildReport,
    OutputPaths,
    SelectionSettings,
    build,
    refine_candidates,
)
from consensusbench.store import Journal
from consensuspr.data import Problem, read_problems
from consensuspr.errors import BudgetSpent, ConsensusPRError, DataError, InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import AnswerRule
from tests.consensusbench.construction.conftest import (
    ToyAsyncExtractor,
    ToyExtractor,
    ToyRefiner,
    Toys,
    outputs,
    rollout_row,
    written,
)
from tests.rows import write_rows

Built = tuple[Toys, BuildReport]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Six problems and the report of their build."""
    toys = Toys.of(tmp_path_factory.mktemp("built"), 6)
    return toys, toys.build()


# The outputs.


def test_a_dataset_holds_nodes_and_how_they_were_made(built: Built) -> None:
    toys, report = built
    rows = toys.rows()
    assert [row["problem_id"] for row in rows] == [f"p{number:04d}" for number in range(1, 7)]
    first = rows[0]
    assert first["nodes"][0] == {
        "node_id": "n1",
        "label": "2*1=2",
        "type": "equation",
        "expressions": ["2*1=2"],
        "derived": [],
        "support": 5,
        "is_final": False,
        "weight": 0.0,  # the wrong one reaches it as well
        "num_models": 3,
        "position": first["nodes"][0]["position"],
    }
    assert (first["split"], first["metadata"]["level"]) == ("train", 2)
    made = toys.made()
    assert (made["correct_rollouts"], made["wrong_rollouts"]) == (5, 1)
    names = sorted(rollout["rollout_id"] for rollout in made["rollouts"])
    assert names == ["ada-1", "bea-0", "bea-1", "cyd-0", "cyd-1"]
    assert made["provenance"]["extraction"] == {"name": "toy", "version": 1}
    assert made["provenance"]["refinement"] == {"min_support": 2, "min_nodes": 1}
    assert report.digest == DatasetIndex.load(toys.path()).digest
    assert not (toys.folder / "dataset.jsonl.partial").exists()


@pytest.mark.parametrize("with_problems", [True, False])
def test_neither_order_nor_number_of_workers_matters(six: Toys, with_problems: bool) -> None:
    listed = six.path("problems") if with_problems else None
    if not with_problems:
        six.name_problems()
    six.build(problems=listed)
    again = six.at("shuffled")
    random.Random(0).shuffle(six.rollouts)
    parts = (
        write_rows(again.folder / "a.parquet", six.rollouts[:9]),
        write_rows(again.folder / "b.jsonl.gz", six.rollouts[9:]),
    )
    again.build(rollouts=parts, problems=listed, workers=3)
    assert written(outputs(again.folder)) == written(outputs(six.folder))


def unweighed(path: Path) -> list[Problem]:
    """Return the problems of a dataset without the parts that need rollouts."""
    problems = list(read_problems(path))
    for problem in problems:
        problem.nodes = tuple(replace(node, weight=None) for node in problem.nodes)
        problem.metadata["construction"].pop("earned", None)
    return problems


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_extract_and_refine_make_what_build_makes(six: Toys, suffix: str) -> None:
    six.problems[2]["ground_truth"] = "0"  # excluded: nothing is correct
    six.rollouts[0]["sampling"] = {"temperature": 2.0}
    whole = six.build()
    candidates = six.folder / f"candidates.{suffix}"
    extracted = six.build(paths=OutputPaths(candidates=candidates), refiner=None)
    assert extracted.problems.excluded == {"few_correct": 1}
    again = OutputPaths(six.path("again"), six.path("again.audit"))
    refined = refine_candidates(candidates, again, ToyRefiner())
    assert unweighed(six.path("again")) == unweighed(six.path())
    assert six.path("again.audit").read_bytes() == six.path("dataset.audit").read_bytes()
    assert refined.problems.to_json() == whole.problems.to_json()


def test_names_sampling_split_and_old_nodes_of_rows(six: Toys) -> None:
    six.problems[0]["nodes"] = [{"expressions": ["1=1"]}]
    for row in six.rollouts:
        row |= {"rollout_id": "same", "sampling": {"temperature": 2.0, "top_p": None}}
    six.rollouts[1] |= {"rollout_id": None, "sampling": None, "temperature": 0.7}
    six.build(split="test")
    used = six.made()["rollouts"]
    assert len({rollout["rollout_id"] for rollout in used}) == 5
    assert sum(rollout["rollout_id"].startswith("same#") for rollout in used) == 4
    temperatures = sorted(rollout["sampling"]["temperature"] for rollout in used)
    assert temperatures == [0.7, 2.0, 2.0, 2.0, 2.0]
    assert {row["split"] for row in six.rows()} == {"test"}
    assert [node["label"] for node in six.rows()[0]["nodes"]] == ["2*1=2", "2+1=3"]


def test_text_of_any_kind_passes_through(tmp_path: Path) -> None:
    toys = Toys.of(tmp_path, 1)
    toys.problems[0]["problem"] += " \ud800 \x00 \u2028"
    for row in toys.rollouts:
        row["response"] = "\x00\udfff\u2028 " + row["response"]
        row["rollout_id"] += "\ud800"
        row["model"] += "\ud800"
    toys.build()
    refined = OutputPaths(toys.path("refined"))
    refine_candidates(toys.path("dataset.candidates"), refined, ToyRefiner())
    assert unweighed(toys.path("refined")) == unweighed(toys.path())
    [row] = toys.rows()
    assert (row["problem"], len(row["nodes"])) == (toys.problems[0]["problem"], 2)


# Problems and rollouts that do not count.


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ground_truth": None}, "no_ground_truth"),
        ({"ground_truth": "12345"}, "few_correct"),
        ({"problem_id": "other"}, "no_rollouts"),
        ({"problem": "SPIN"}, "time_limit"),
    ],
)
def test_an_unusable_problem_is_excluded_by_name(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    toys = Toys.of(tmp_path, 3)
    toys.problems[1] |= change
    report = toys.build(time_limit_s=1)
    assert dict(report.problems.excluded) == {reason: 1}
    assert len(toys.rows()) == 2
    excluded = [(row["problem_id"], row["reason"]) for row in toys.excluded()]
    assert excluded == [(toys.problems[1]["problem_id"], reason)]


def test_a_problem_with_too_few_nodes_is_excluded_with_those_it_has(tmp_path: Path) -> None:
    toys = Toys.of(tmp_path, 2)
    for row in toys.rollouts[:6]:
        row["response"] = row["response"].replace("2*1=2", "twice 1 is 2")
    report = toys.build(refiner=ToyRefiner(min_nodes=2))
    assert dict(report.problems.excluded) == {"few_nodes": 1}
    audit = [row for row in toys.rows("dataset.audit") if row["reason"] == "few_nodes"]
    assert [(row["what"], row["label"]) for row in audit] == [("node", "2+1=3"), ("problem", None)]


def test_rows_that_conflict_are_named(tmp_path: Path) -> None:
    toys = Toys.of(tmp_path, 3)
    toys.name_problems()
    rows = toys.rollouts
    rows[0]["ground_truth"] = "17"  # of p0001
    rows[7]["problem"] += " Say it twice."  # of p0002
    rows[13]["data_source"] = "toy/other"  # of p0003, which is used all the same
    rows[14]["problem"] = rows[14]["problem"].replace(" ", "  ")  # white space is no conflict
    report = toys.build(problems=None)
    details = {row["problem_id"]: row["detail"] for row in toys.excluded()}
    assert list(details) == ["p0001", "p0002"]
    assert details["p0001"] == "ground_truth is '17' in one row and '3' in another"
    assert report.disagreements == {"data_source": 1}
    assert toys.rows()[0]["data_source"] == "toy/odd"


def test_the_listed_ground_truth_counts(six: Toys) -> None:
    six.rollouts[3]["ground_truth"] = "4"
    six.rollouts[4]["ground_truth"] = " 3 "
    report = six.build()
    assert report.disagreements == {"ground_truth": 1}
    assert "'4' instead of '3' for problem 'p0001'" in report.warnings()[0]
    assert report.problems.written.total() == 6


def counts_of(report: BuildReport) -> dict[str, int]:
    """Return the counts of rollouts that are not 0."""
    assert report.rollouts is not None
    return {name: count for name, count in asdict(report.rollouts).items() if count}


def test_every_rollout_is_accounted_for(tmp_path: Path) -> None:
    toys = Toys.of(tmp_path, 4)
    toys.problems[2]["ground_truth"] = None
    toys.rollouts += [
        rollout_row(1, "bea", 0, rollout_id="again"),
        rollout_row(1, "cyd", 0, rollout_id="again"),
        rollout_row(9, "ada", 0),
        rollout_row(2, "cyd", 7, response="x" * (1 << 20) + "\\boxed{5}"),
        rollout_row(2, "cyd", 8, response="I do not know."),
    ]
    selection = SelectionSettings(exclude_models=("bea",), min_rollouts=1)
    counts = counts_of(toys.build(selection=selection))
    assert counts == {
        "read": len(toys.rollouts),
        "other_model": sum(row["model"] == "bea" for row in toys.rollouts),
        "unknown_problem": 1,
        "oversize": 1,
        "unusable_problem": 4,
        "repeated": 1,
        "incorrect": 4,
        "correct": 9,
        "used": 9,
    }
    assert sum(counts.values()) - counts["used"] == 2 * counts["read"]


def test_the_rule_is_the_setting_else_the_problem_s_own(tmp_path: Path) -> None:
    toys = Toys.of(tmp_path, 1)
    toys.problems[0]["answer_rule"] = "gsm8k"  # wants "####"
    with pytest.raises(InputError, match="0 of 6 distinct rollouts are correct"):
        toys.build()
    selection = SelectionSettings(answer_rule=AnswerRule.AUTO)
    assert counts_of(toys.build(selection=selection))["correct"] == 5


# Input that cannot be used ends a build with one sentence and nothing written.


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ({"exclude_models": ("eve",)}, "the model 'eve'; the models are: ada, bea, cyd$"),
        ({"only_models": ("Ada",)}, "^no rollout has the model 'Ada'"),
        ({"exclude_models": ("ada", "bea", "cyd")}, "leave out all 36 rollouts$"),
        ({"trust_labels": True}, "has the column correct"),
    ],
)
def test_a_selection_that_finds_nothing_is_an_error(
    six: Toys, selection: dict[str, Any], sentence: str
) -> None:
    for row in six.rollouts:
        row["correct"] = None
    with pytest.raises(InputError, match=sentence):
        six.build(selection=SelectionSettings(**selection))
    assert len(list(six.folder.iterdir())) == 2  # the inputs


def test_a_bad_row_stops_before_anything_is_written_or_is_counted(six: Toys) -> None:
    six.rollouts.append({"problem_id": "p0001"})
    with pytest.raises(DataError, match=r"rollouts.jsonl:37: response is missing"):
        six.build()
    assert not any(path.exists() for path in outputs(six.folder).all())
    assert counts_of(six.build(on_error="skip"))["skipped"] == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda row: row.update(extraction=None), "extraction: "),
        (lambda row: row.update(extraction={"candidates": []}), "correct_rollouts: "),
        (lambda row: row["extraction"]["candidates"][1].update(type="x"), "candidates.1.type: "),
    ],
)
def test_bad_candidates_are_named(
    built: Built, tmp_path: Path, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    rows = built[0].rows("dataset.candidates")
    change(rows[1])
    path = write_rows(tmp_path / "candidates.jsonl", rows)
    paths = OutputPaths(tmp_path / "refined.jsonl")
    with pytest.raises(DataError, match=f"problem 'p0002': {sentence}.*consensusbench extract$"):
        refine_candidates(path, paths, ToyRefiner())
    report = refine_candidates(path, paths, ToyRefiner(), on_error="skip")
    assert (report.skipped_rows, report.problems.written.total()) == (1, 5)


# Problems that fail, and builds that go on.


@pytest.mark.parametrize(
    ("text", "stage", "sentence"),
    [
        ("RAISE", "extract", "ZeroDivisionError: division by zero (1 problem failed;"),
        ("CRASH", "extract", "its worker process ended (-11) (1 problem failed;"),
        ("REFINING FAILS", "refine", "this one cannot be refined (1 problem failed;"),
    ],
)
def test_a_problem_that_fails_ends_the_build_or_is_skipped(
    tmp_path: Path, text: str, stage: str, sentence: str
) -> None:
    toys = Toys.of(tmp_path, 4)
    toys.problems[1]["problem"] = text
    with pytest.raises(ConsensusPRError) as caught:
        toys.build()
    assert str(caught.value).startswith(f"problem 'p0002': {sentence}")
    assert not any(path.exists() for path in outputs(tmp_path).all())
    report = toys.build(on_error="skip")
    assert report.resumed == (4 if stage == "refine" else 3)
    assert dict(report.problems.excluded) == {"failed": 1}
    assert report.problems.written.total() == 3
    assert [row["stage"] for row in toys.excluded()] == [stage]
    excluded = [bool(row["excluded"]) for row in toys.rows("dataset.candidates")]
    assert excluded == [False, stage == "extract", False, False]


@pytest.mark.parametrize(
    ("text", "change", "resumed"),
    [
        ("", {}, 5),
        (" Please.", {}, 4),
        (" Please.", {"refiner": ToyRefiner(1)}, 4),
        ("", {"extractor": ToyExtractor(version=2)}, 0),
    ],
)
def test_a_build_goes_on_after_a_failure_but_for_changed_problems_and_settings(
    six: Toys, built: Built, text: str, change: dict[str, Any], resumed: int
) -> None:
    last = six.problems[-1]["problem"]
    six.problems[-1]["problem"] = "RAISE"
    with pytest.raises(ConsensusPRError):
        six.build()
    six.problems[-1]["problem"] = last
    six.problems[1]["problem"] += text
    assert six.build(**change).resumed == resumed
    if not (text or change):
        assert written(outputs(six.folder)) == written(outputs(built[0].folder))


def test_two_builds_of_one_output_do_not_meet(six: Toys) -> None:
    with Journal(six.folder / "dataset.jsonl.partial", "extraction") as journal:
        with pytest.raises(InputError, match=r"in use by another run"):
            six.build()
        assert journal.path.exists()


# Extraction by a model: many problems at once, in order, and no reply is lost.

PROBLEMS = 20


@pytest.fixture
def twenty(tmp_path: Path) -> Toys:
    """Twenty problems, one of which gets no reply."""
    toys = Toys.of(tmp_path, PROBLEMS)
    toys.problems[6]["problem"] = "NO REPLY"
    return toys


def test_a_model_makes_the_same_dataset_in_the_same_order(twenty: Toys) -> None:
    model = ToyAsyncExtractor([], fail="-")
    report = twenty.build(extractor=model)
    assert (model.most, model.now) == (4, -1)  # four at once, and closed in the end
    assert len(model.asked) == PROBLEMS
    assert twenty.made()["provenance"]["extraction"] == {"name": "toy-model"}
    assert twenty.build(paths=outputs(twenty.folder, "ruled")).digest == report.digest


@pytest.mark.parametrize(
    ("model", "error", "least"),
    [
        (ToyAsyncExtractor([]), ConsensusPRError, PROBLEMS - 1),
        (ToyAsyncExtractor([], fail="-", last=10), BudgetSpent, 7),
    ],
)
def test_replies_are_kept_for_the_next_run(
    twenty: Toys, model: ToyAsyncExtractor, error: type[ConsensusPRError], least: int
) -> None:
    asked = twenty.job(extractor=model)
    with pytest.raises(error):
        build(asked)
    assert model.now == -1 and not twenty.path().exists()
    again = ToyAsyncExtractor([], fail="-")
    report = build(replace(asked, extractor=again))
    assert len(again.asked) == PROBLEMS - report.resumed
    assert least <= report.resumed <= max(10, least)
