"""What nodes are worth: their weights, and how NCR separates right from wrong rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from consensusbench.cli.app import app
from consensusbench.construction import BuildJob, BuildReport, OutputPaths, SelectionSettings, build
from consensusbench.extraction.refine import PaperRefiner
from consensusbench.extraction.rules import RulesExtractor
from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.data import Problem, open_writer, read_problems

FIRST, SECOND, LAST = "Each has 3 * 10 = 30.", "With 30 + 22 = 52 of them", "52 - 10 = 42."
RIGHT = f"{FIRST} {SECOND}, {LAST} Answer: 42"
WRONG = f"{FIRST} Answer: 30"
PADDING = " and so on" * 60


def built(
    folder: Path, right: list[str], wrong: list[str], text: str = "How many?"
) -> tuple[Problem, BuildReport]:
    about = {"problem_id": "p", "problem": text, "ground_truth": "42"}
    with open_writer(folder / "rollouts.jsonl") as out:
        for correct, responses in ((True, right), (False, wrong)):
            for at, response in enumerate(responses):
                row: dict[str, Any] = {"model": f"m{at}", "response": response, "correct": correct}
                out.write(about | row)
    report = build(
        BuildJob(
            (folder / "rollouts.jsonl",),
            OutputPaths(folder / "dataset.jsonl"),
            RulesExtractor(),
            PaperRefiner(),
            selection=SelectionSettings(trust_labels=True),
        )
    )
    (problem,) = read_problems(folder / "dataset.jsonl")
    return problem, report


def told_apart(texts: list[str], end: str) -> list[str]:
    """Return texts that differ, since a text counts once."""
    return [f"{text} {end} {number}" for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("wrong", "weights"),
    [
        ([], {"3 * 10 = 30": None, "30 + 22 = 52": None, "52 - 10 = 42": None}),
        # Reached by all right ones, and by all, half or none of the wrong ones.
        ([WRONG, WRONG], {"3 * 10 = 30": 0.0, "30 + 22 = 52": 1.0, "52 - 10 = 42": 1.0}),
        (
            [WRONG, f"{FIRST} {SECOND}. Answer: 52"],
            {"3 * 10 = 30": 0.0, "30 + 22 = 52": 0.5, "52 - 10 = 42": 1.0},
        ),
        (["Answer: 1"], {"3 * 10 = 30": 1.0, "30 + 22 = 52": 1.0, "52 - 10 = 42": 1.0}),
    ],
)
def test_a_weight_is_what_right_rollouts_reach_more_often(
    tmp_path: Path, wrong: list[str], weights: dict[str, float | None]
) -> None:
    problem, report = built(tmp_path, told_apart([RIGHT] * 4, "Yes"), told_apart(wrong, "No"))
    assert {node.label: node.weight for node in problem.nodes} == weights
    assert report.to_json()["weighted"] == bool(wrong)
    assert problem.metadata["construction"]["wrong_rollouts"] == len(wrong)


def test_a_node_that_wrong_rollouts_reach_more_often_weighs_nothing(tmp_path: Path) -> None:
    right = told_apart([RIGHT] * 3 + [f"{SECOND}, {LAST} Answer: 42"], "Yes")
    problem, _ = built(tmp_path, right, told_apart([WRONG] * 2, "No"))
    assert [node.weight for node in problem.nodes if node.label == "3 * 10 = 30"] == [0.0]


def test_stored_weights_are_what_a_weighted_reward_counts(tmp_path: Path) -> None:
    wrong = told_apart([WRONG, f"{FIRST} {SECOND}. Answer: 52"], "No")
    built(tmp_path, told_apart([RIGHT] * 4, "Yes"), wrong)
    with LocalClient(dataset=tmp_path / "dataset.jsonl") as client:
        rollout = Rollout("p", f"{FIRST} {SECOND}. Answer: 52")
        (plain,) = client.score([rollout], reward=RewardSpec.linear(0.5))
        (weighted,) = client.score([rollout], reward=RewardSpec.linear(0.5, ncr="weighted"))
    assert [plain.ncr, weighted.ncr] == pytest.approx([2 / 3, 0.5 / 1.5])


def test_the_report_says_how_ncr_and_length_separate(tmp_path: Path) -> None:
    # Half of the right ones are longer than any wrong one, and every one states more.
    right = told_apart([RIGHT + PADDING] * 2 + [RIGHT] * 2, "Yes")
    wrong = told_apart([WRONG + " " + "so " * 60] * 2, "No")
    _, report = built(tmp_path, right, wrong)
    assert report.to_json()["separation"] == {
        "problems": 1, "ncr": 1.0, "ncr_raw": 1.0, "length": 0.5,
    }  # fmt: skip
    assert report.judge is not None
    assert report.judge.separation.sentence() == (
        "AUROC within problems without final nodes: 1.000, of length alone 0.500 (over 1 problem; "
        "of the rollouts that nodes were made of)"
    )


def test_what_the_guard_changes_stands_beside_it(tmp_path: Path) -> None:
    # A wrong one that lists everything reaches all nodes, but for the guard.
    table = "\n".join(f"{a} * {b} = {a * b}" for a in range(3, 40) for b in range(3, 11))
    wrong = told_apart([f"{RIGHT[:-2]}41\n{table}"], "No")
    problem, report = built(tmp_path, told_apart([RIGHT] * 4, "Yes"), wrong)
    said = report.to_json()["separation"]
    assert (said["ncr"], said["ncr_raw"]) == (1.0, 0.5)
    assert "1.000 (0.500 without the guard)" in report.judge.separation.sentence()  # type: ignore[union-attr]
    assert {node.weight for node in problem.nodes} == {0.0}


def test_an_attack_that_pays_better_than_being_wrong_is_told(tmp_path: Path) -> None:
    # Two of three nodes combine numbers of the problem; wrong rollouts reach none.
    text = "There are 3 boxes of 10 pens, 22 pens more, and 10 are taken."
    wrong = told_apart(["Answer: 41"] * 2, "No")
    problem, report = built(tmp_path, told_apart([RIGHT] * 4, "Yes"), wrong, text)
    earned = problem.metadata["construction"]["earned"]
    assert list(earned) == ["wrong", "quantities", "pairs", "comments", "printed", "subscripts"]
    # One node of three, which the guard lowers.
    assert earned["wrong"] == earned["quantities"] == 0.0 < earned["pairs"] < 1 / 3
    (warning,) = report.warnings()
    most = max(earned.values())
    assert f"scores {100 * most:.1f} % NCR on problems without a source; wrong" in warning
    assert warning.endswith("or drop nodes that need no reasoning")


def test_attacks_that_earn_less_than_wrong_rollouts_are_no_news(tmp_path: Path) -> None:
    wrong = told_apart([f"{FIRST} {SECOND}. Answer: 52"] * 2, "No")
    problem, report = built(tmp_path, told_apart([RIGHT] * 4, "Yes"), wrong)
    assert problem.metadata["construction"]["earned"]["wrong"] == pytest.approx(2 / 3, abs=1e-4)
    assert report.warnings() == []


def test_without_wrong_rollouts_the_command_says_why_there_are_no_weights(tmp_path: Path) -> None:
    built(tmp_path, told_apart([RIGHT] * 4, "Yes"), [])
    command = ["build", str(tmp_path / "rollouts.jsonl"), "--output", str(tmp_path / "d.jsonl")]
    done = CliRunner().invoke(app, [*command, "--no-progress"])
    assert "no problem has right and wrong rollouts: nodes get no weights" in done.stdout
    done = CliRunner().invoke(app, [*command, "--no-progress", "--json"])
    said = json.loads(done.stdout)
    assert (said["weighted"], said["separation"]["problems"]) == (0, 0)
