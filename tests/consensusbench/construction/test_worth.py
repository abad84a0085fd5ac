"""Budgets of the guard, weights of nodes, and how NCR separates right from wrong rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import BuildJob, BuildReport, OutputPaths, SelectionSettings, build
from consensusbench.construction.budgets import Stated, budget_of, stated_in
from consensusbench.construction.pipeline import add_budgets
from consensusbench.extraction.refine import PaperRefiner
from consensusbench.extraction.rules import RulesExtractor
from consensuspr.data import Problem, problem_to_row, read_problems
from tests.rows import write_rows

FIRST, SECOND, LAST = "Each has 3 * 10 = 30.", "With 30 + 22 = 52 of them", "52 - 10 = 42."
RIGHT = f"{FIRST} {SECOND}, {LAST} Answer: 42"
WRONG = f"{FIRST} Answer: 30"
PADDING = " and so on" * 60
TABLE = "\n".join(f"{a} * {b} = {a * b}" for a in range(3, 40) for b in range(3, 11))


def job(
    folder: Path, right: list[str], wrong: list[str], text: str = "How many?", **changes: Any
) -> BuildJob:
    """Return a build of one problem with labelled rollouts of a model each."""
    about = {"problem_id": "p", "problem": text, "ground_truth": "42"}
    rows = [
        {**about, "model": f"m{at}", "response": response, "correct": responses is right}
        for responses in (right, wrong)
        for at, response in enumerate(responses)
    ]
    return BuildJob(
        (write_rows(folder / "rollouts.jsonl", rows),),
        OutputPaths(folder / "dataset.jsonl"),
        RulesExtractor(),
        PaperRefiner(),
        selection=SelectionSettings(trust_labels=True),
        **changes,
    )


def built(
    folder: Path, right: list[str], wrong: list[str], text: str = "How many?"
) -> tuple[Problem, BuildReport]:
    report = build(job(folder, right, wrong, text))
    (problem,) = read_problems(folder / "dataset.jsonl")
    return problem, report


def numbered(texts: list[str], end: str) -> list[str]:
    """Return texts that differ, since a text counts once."""
    return [f"{text} {end} {number}" for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("wrong", "weights"),
    [
        ([], {"3 * 10 = 30": None, "30 + 22 = 52": None, "the answer is 42": None}),
        # Reached by all right ones, and by all, half or none of the wrong ones.
        ([WRONG, WRONG], {"3 * 10 = 30": 0.0, "30 + 22 = 52": 1.0, "the answer is 42": 1.0}),
        (
            [WRONG, f"{FIRST} {SECOND}. Answer: 52"],
            {"3 * 10 = 30": 0.0, "30 + 22 = 52": 0.5, "the answer is 42": 1.0},
        ),
        (["Answer: 1"], {"3 * 10 = 30": 1.0, "30 + 22 = 52": 1.0, "the answer is 42": 1.0}),
    ],
)
def test_a_weight_is_what_right_rollouts_reach_more_often(
    tmp_path: Path, wrong: list[str], weights: dict[str, float | None]
) -> None:
    problem, report = built(tmp_path, numbered([RIGHT] * 4, "Yes"), numbered(wrong, "No"))
    assert {node.label: node.weight for node in problem.nodes} == weights
    counts = report.to_json()
    assert counts["weighted"] == counts["separation"]["problems"] == bool(wrong)
    assert problem.metadata["construction"]["wrong_rollouts"] == len(wrong)


@pytest.mark.parametrize(
    ("right", "wrong", "separation"),
    [
        # Half of the right ones are longer than any wrong one, and every one states more.
        ([RIGHT + PADDING] * 2 + [RIGHT] * 2, [WRONG + " " + "so " * 60] * 2, (1.0, 1.0, 0.5)),
        # A wrong one that lists everything reaches all nodes, but for the guard.
        ([RIGHT] * 4, [f"{RIGHT[:-2]}41\n{TABLE}"], (1.0, 0.5, 0.0)),
    ],
)
def test_the_report_has_the_auroc_of_ncr_and_of_length(
    tmp_path: Path, right: list[str], wrong: list[str], separation: tuple[float, float, float]
) -> None:
    _, report = built(tmp_path, numbered(right, "Yes"), numbered(wrong, "No"))
    names = ("problems", "ncr", "ncr_raw", "length")
    assert report.to_json()["separation"] == dict(zip(names, (1, *separation), strict=True))


def test_an_attack_that_pays_better_than_wrong_rollouts_is_a_warning(tmp_path: Path) -> None:
    # Two of three nodes combine numbers of the problem; wrong rollouts reach none.
    text = "There are 3 boxes of 10 pens, 22 pens more, and 10 are taken."
    wrong = numbered(["Answer: 41"] * 2, "No")
    problem, report = built(tmp_path, numbered([RIGHT] * 4, "Yes"), wrong, text)
    earned = problem.metadata["construction"]["earned"]
    assert list(earned) == ["wrong", "quantities", "pairs", "comments", "printed"]
    # One node of three, which the guard lowers.
    assert earned["wrong"] == earned["quantities"] == 0.0 < earned["pairs"] < 1 / 3
    assert len(report.warnings()) == 1


# Budgets, in a build and added to a dataset.

SHORT = "3 * 10 = 30, so 30 + 12 = 42. Answer: 42"
LONG = SHORT + "".join(f"\nCheck {n} + 1 = {n + 1}." for n in range(100, 120))
PROGRAM = "```python\na = 48\nb = a / 2\nc = a + b\n```"


@pytest.mark.parametrize(
    ("responses", "stated"),
    [
        ([], (0, 0, 0)),
        (["nothing"], (0, 0, 7)),
        ([SHORT], (2, 5, 40)),  # 30 and 42; 3, 10, 30, 12, 42
        (["1 2 3 4 5 6 7", SHORT], (2, 7, 40)),
        ([PROGRAM], (2, 2, len(PROGRAM))),  # works out 24 and 72, and writes 48 and 2
    ],
)
def test_the_most_that_a_response_states(
    responses: list[str], stated: tuple[int, int, int]
) -> None:
    assert stated_in(responses) == Stated(*stated)


@pytest.mark.parametrize(
    ("stated", "num_nodes", "budget"),
    [
        (Stated(0, 0), 3, (10, 21, 0)),
        (Stated(7, 15, 99), 3, (11, 23, 99)),
        (Stated(100, 200), 500, (1004, 1512, 0)),
    ],
)
def test_a_budget_has_room_for_half_as_much_again(
    stated: Stated, num_nodes: int, budget: tuple[int, int, int]
) -> None:
    assert budget_of(stated, num_nodes) == (*budget, 0)


def test_a_build_stores_budgets_of_all_right_rollouts(tmp_path: Path) -> None:
    many = "".join(f"\nWe try {n} * 2 = {2 * n}." for n in range(100, 150))
    problem, _ = built(tmp_path, [SHORT, SHORT + " Yes.", SHORT + " Indeed.", LONG], [many])
    # The wrong one counts for nothing, however much it states.
    assert problem.budget == budget_of(stated_in([LONG]), len(problem.nodes))
    assert problem.budget == (33, 41, len(LONG), 0)


def with_budgets(
    folder: Path, right: list[str], wrong: list[str], *rows: dict[str, Any]
) -> tuple[list[Problem], BuildReport]:
    """Add budgets to a dataset; return its problems."""
    dataset = write_rows(folder / "before.jsonl", rows)
    report = add_budgets(job(folder, right, wrong, problems=dataset))
    return list(read_problems(folder / "dataset.jsonl")), report


def test_budgets_are_added_and_nothing_else_changes(tmp_path: Path) -> None:
    node = {"node_id": "n", "expressions": ["3*10=30"], "weight": 0.5, "note": "kept"}
    rows: list[dict[str, Any]] = [
        {"problem_id": "p", "ground_truth": "42", "nodes": [node, {**node, "node_id": "o"}],
         "metadata": {"level": 3}, "mine": 1,
         "budget": {"statements": 1, "numbers": 1, "note": "kept"}},
        {"problem_id": "q", "ground_truth": "1", "nodes": [node],
         "budget": {"statements": 5, "numbers": 6}},
        {"problem_id": "r", "ground_truth": "1", "nodes": [node]},
    ]  # fmt: skip
    after, report = with_budgets(tmp_path, [LONG], [], *rows)
    assert report.budgets == 1
    # One right rollout is enough; a problem without any keeps its budget.
    assert [problem.budget for problem in after] == [(33, 41, len(LONG), 0), (5, 6, 0, 0), None]
    first = problem_to_row(after[0])
    assert first["budget"]["note"] == "kept"
    before = list(read_problems(tmp_path / "before.jsonl"))
    for problem in (*before, *after):
        problem.budget = None
    assert before == after


@pytest.mark.parametrize(
    ("right", "wrong", "problem", "weights"),
    [
        ([SHORT, LONG], ["3 * 10 = 30. Answer: 30", "Answer: 1"],
         {"nodes": [{"expressions": ["3*10=30"]}, {"expressions": ["30+12=42"]}]}, [0.5, 1.0]),
        ([SHORT, LONG], ["Answer: 1"],
         {"nodes": [{"expressions": ["3*10=30"], "weight": 0.25},
                    {"expressions": ["30+12=42"]}]}, [0.25, None]),
        # Forms that a server makes count, and those of another version do not: it makes new ones.
        (["2x = 84. Answer: 42", "So 2x = 84. Answer: 42"], ["Answer: 1"],
         {"nodes": [{"expressions": ["84=2x"]}]}, [1.0]),
        (["2x = 84. Answer: 42", "So 2x = 84. Answer: 42"], ["42 = x"],
         {"nodes": [{"expressions": ["84=2x"], "derived": ["42=x"]}], "metadata":
          {"construction": {"provenance": {"normal_form": "0", "forms": "0.0"}}}}, [1.0]),
        # The problem's own equation reaches no node, as on a server.
        (["So $4x - 3y = 7/2 + 4k$. Answer: 42", "$4x - 3y = 7/2 + 4k$. Answer: 42"],
         ["As given, $8x - 6y = 8k + 7$. Answer: 1"],
         {"problem": "Let $8x - 6y = 8k + 7$.", "nodes": [{"expressions": ["4x-3y=7/2+4k"]}]},
         [1.0]),
    ],
)  # fmt: skip
def test_nodes_without_weights_get_them_with_the_budgets(
    tmp_path: Path,
    right: list[str],
    wrong: list[str],
    problem: dict[str, Any],
    weights: list[float | None],
) -> None:
    row = {"problem_id": "p", "ground_truth": "42", **problem}
    [weighed], _ = with_budgets(tmp_path, right, wrong, row)
    assert [node.weight for node in weighed.nodes] == weights
