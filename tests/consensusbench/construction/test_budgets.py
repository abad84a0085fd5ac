"""Budgets of the guard: what right rollouts state, and a dataset that gets budgets afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import BuildJob, OutputPaths, SelectionSettings, build
from consensusbench.construction.budgets import Stated, budget_of, stated_in
from consensusbench.construction.pipeline import add_budgets
from consensusbench.extraction.refine import PaperRefiner
from consensusbench.extraction.rules import RulesExtractor
from consensuspr.data import open_writer, read_problems
from consensuspr.errors import InputError

SHORT = "3 * 10 = 30, so 30 + 12 = 42. Answer: 42"
LONG = SHORT + "".join(f"\nCheck {n} + 1 = {n + 1}." for n in range(100, 120))


def write(path: Path, *rows: dict[str, Any]) -> Path:
    with open_writer(path) as out:
        for row in rows:
            out.write(row)
    return path


def rollouts(*responses: str, correct: bool = True) -> list[dict[str, Any]]:
    about = {"problem_id": "p", "problem": "How many?", "ground_truth": "42"}
    return [
        {**about, "rollout_id": f"{correct}-{at}", "model": f"m{at}", "response": response,
         "correct": correct}
        for at, response in enumerate(responses)
    ]  # fmt: skip


def job(folder: Path, *rows: dict[str, Any], dataset: Path | None = None) -> BuildJob:
    return BuildJob(
        (write(folder / "rollouts.jsonl", *rows),),
        OutputPaths(folder / "out.jsonl"),
        RulesExtractor(),
        PaperRefiner(),
        problems=dataset,
        selection=SelectionSettings(trust_labels=True),
    )


def test_the_most_that_one_response_states() -> None:
    assert stated_in([]) == Stated(0, 0)
    assert stated_in(["nothing"]) == Stated(0, 0, 7)
    assert stated_in([SHORT]) == Stated(2, 5, 40)  # 30 and 42; 3, 10, 30, 12, 42
    assert stated_in(["1 2 3 4 5 6 7", SHORT]) == Stated(2, 7, 40)
    assert Stated(1, 9, 40).most(Stated(3, 2, 7)) == Stated(3, 9, 40)
    # A program works out 24 and 72 and writes 48 and 2.
    program = "```python\na = 48\nb = a / 2\nc = a + b\n```"
    assert stated_in([program]) == Stated(2, 2, len(program))
    assert stated_in([program.replace("c = a + b", "c = a + b\nd = c * b\ne = d - a")]).numbers == 4


@pytest.mark.parametrize(
    ("stated", "num_nodes", "budget"),
    [
        (Stated(0, 0), 3, (10, 21, 0)),
        (Stated(7, 15, 99), 3, (11, 23, 99)),
        (Stated(100, 200), 3, (150, 300, 0)),
        (Stated(100, 200), 500, (1004, 1512, 0)),
    ],
)
def test_half_as_much_again_and_never_too_little(
    stated: Stated, num_nodes: int, budget: tuple[int, int, int]
) -> None:
    assert budget_of(stated, num_nodes) == budget


def test_a_build_stores_budgets_of_all_right_rollouts(tmp_path: Path) -> None:
    many = "".join(f"\nWe try {n} * 2 = {2 * n}." for n in range(100, 150))
    rows = rollouts(SHORT, SHORT + " Yes.", SHORT + " Indeed.", LONG)
    build(job(tmp_path, *rows, *rollouts(many, correct=False)))
    (problem,) = read_problems(tmp_path / "out.jsonl")
    # The wrong one counts for nothing, however much it states.
    assert problem.budget == budget_of(stated_in([LONG]), len(problem.nodes))
    assert problem.budget == (33, 41, len(LONG))


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
    dataset = write(tmp_path / "dataset.jsonl", *rows)
    report = add_budgets(job(tmp_path, *rollouts(LONG), dataset=dataset))
    assert report.budgets == 1
    before, after = (list(read_problems(path)) for path in (dataset, tmp_path / "out.jsonl"))
    # One right rollout is enough; a problem without keeps what it has.
    assert [one.budget for one in after] == [(33, 41, len(LONG)), (5, 6, 0), None]
    for one in (*before, *after):
        one.budget = None
    assert before == after
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(written[0])["budget"] == {
        "statements": 33, "numbers": 41, "length": len(LONG), "note": "kept",
    }  # fmt: skip


@pytest.mark.parametrize(("weight", "weights"), [(None, [0.5, 1.0]), (0.25, [0.25, None])])
def test_nodes_without_weights_get_them_with_the_budgets(
    tmp_path: Path, weight: float | None, weights: list[float | None]
) -> None:
    nodes = [{"expressions": ["3*10=30"], "weight": weight}, {"expressions": ["30+12=42"]}]
    dataset = write(
        tmp_path / "dataset.jsonl", {"problem_id": "p", "ground_truth": "42", "nodes": nodes}
    )
    wrong = rollouts("3 * 10 = 30. Answer: 30", "Answer: 1", correct=False)
    report = add_budgets(job(tmp_path, *rollouts(SHORT, LONG), *wrong, dataset=dataset))
    (problem,) = read_problems(tmp_path / "out.jsonl")
    assert [node.weight for node in problem.nodes] == weights
    assert report.to_json()["weighted"] == (weight is None)


def test_weights_count_the_forms_that_a_server_makes(tmp_path: Path) -> None:
    problem = {"problem_id": "p", "ground_truth": "42", "nodes": [{"expressions": ["84=2x"]}]}
    dataset = write(tmp_path / "dataset.jsonl", problem)
    right = rollouts("2x = 84. Answer: 42", "So 2x = 84. Answer: 42")
    add_budgets(job(tmp_path, *right, *rollouts("Answer: 1", correct=False), dataset=dataset))
    (weighed,) = read_problems(tmp_path / "out.jsonl")
    assert [(node.weight, node.derived) for node in weighed.nodes] == [(1.0, None)]


def test_weights_do_not_count_forms_of_another_version(tmp_path: Path) -> None:
    """A server makes those anew, and so what they reach is nobody's NCR."""
    problem = {
        "problem_id": "p", "ground_truth": "42",
        "nodes": [{"expressions": ["84=2x"], "derived": ["42=x"]}],
        "metadata": {"construction": {"provenance": {"normal_form": "0", "forms": "0.0"}}},
    }  # fmt: skip
    dataset = write(tmp_path / "dataset.jsonl", problem)
    right = rollouts("2x = 84. Answer: 42", "So 2x = 84. Answer: 42")
    add_budgets(job(tmp_path, *right, *rollouts("42 = x", correct=False), dataset=dataset))
    (weighed,) = read_problems(tmp_path / "out.jsonl")
    assert [(node.weight, node.derived) for node in weighed.nodes] == [(1.0, ("42=x",))]


def test_without_a_right_rollout_nothing_is_written(tmp_path: Path) -> None:
    dataset = write(tmp_path / "d.jsonl", {"problem_id": "p", "ground_truth": "42", "nodes": []})
    with pytest.raises(InputError, match="no problem of the dataset has a correct rollout"):
        add_budgets(job(tmp_path, *rollouts(SHORT, correct=False), dataset=dataset))
    assert not (tmp_path / "out.jsonl").exists()
