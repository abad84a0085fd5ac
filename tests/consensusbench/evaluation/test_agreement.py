"""Nodes of two annotations: which state the same, how they are paired, and the figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from consensusbench.evaluation.agreement import (
    agreement_of_files,
    compare_nodes,
    one_to_one,
    same_statements,
)
from consensusbench.evaluation.tables import agreement_notes
from consensuspr.data import Node, Problem, read_problems
from consensuspr.errors import InputError
from tests.rows import write_rows


def node(*expressions: str, node_id: str = "n", derived: tuple[str, ...] | None = None) -> Node:
    return Node(node_id, expressions, derived=derived)


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("14*118=1652", r"14 \times 118 = 1{,}652", True),
        ("118*14=1652", "14*118=1652", True),  # as a statement
        ("5*100+700=1200", "700+500=1200", True),  # by a derived form
        ("9*2+4=22", "9*2=18", False),  # by a part of a statement
        ("1652", "14*118=1652", True),
        ("14*118=1652", "1652", True),
        ("14*118=1652", "14*118=1653", False),
        ("65", "1652", False),
        ("x=5", "y=5", False),
        ("2x+6y=40", "x=20-3y", True),  # as an equal equation
        ("2x+6y=40", "x=20-2y", False),
    ],
)
def test_what_states_the_same(ours: str, theirs: str, same: bool) -> None:
    assert same_statements([node(ours)], [node(theirs)]).tolist() == [[same]]
    assert same_statements([node(theirs)], [node(ours)]).tolist() == [[same]]


def test_stored_forms_are_the_forms() -> None:
    other = [node("a dozen", derived=())]
    assert not same_statements([node("twelve", derived=())], other).any()
    assert same_statements([node("twelve", derived=("a dozen",))], other).all()


def test_one_node_captures_one_human_node() -> None:
    ours = Problem("p", nodes=(node("3*4=12", "12+5=17", node_id="a"), node("9-2=7", node_id="b")))
    theirs = Problem("p", nodes=(node("3*4=12", node_id="x"), node("12+5=17", node_id="y")))
    found = compare_nodes(ours, theirs)
    assert (found.ours, found.theirs, len(found.pairs)) == (2, 2, 1)
    assert found.pairs[0][0] == "a" and found.pairs[0][1] in ("x", "y")
    assert len(found.missed) == 1 and found.added == (("b", "9-2=7"),)


def test_as_many_pairs_as_there_can_be() -> None:
    # Taking the first that fits would leave the second row without a partner.
    assert one_to_one(np.array([[True, True], [True, False]])) == {0: 1, 1: 0}


def write(path: Path, nodes_of: dict[str, list[str]]) -> Path:
    rows = [
        {"problem_id": name, "nodes": [{"expressions": [e], "derived": []} for e in expressions]}
        for name, expressions in nodes_of.items()
    ]
    return write_rows(path, rows)


def test_the_figures_by_hand(tmp_path: Path) -> None:
    ours = {
        "p1": ["3*4=12", "12+5=17", "17-2=15"],  # two of theirs, one more
        "p2": ["6*6=36"],  # one of two
        "p3": [],  # none of one
        "p4": ["8/2=4"],  # nobody annotated a node
        "p5": [],
        "p6": ["1+1=2"],
    }
    human = {
        "p1": ["3*4=12", "12+5=17"],
        "p2": ["36", "36+4=40"],
        "p3": ["5*5=25"],
        "p4": [],
        "p5": [],
        "p7": ["7*7=49"],
    }
    found = agreement_of_files(
        write(tmp_path / "o.jsonl", ours), write(tmp_path / "h.jsonl", human)
    )
    assert (found.num_ours, found.num_theirs, found.num_pairs) == (5, 5, 3)
    assert found.consistency.value == pytest.approx(3 / (5 + 5 - 3))
    assert found.recall.value == pytest.approx(3 / 5)
    assert found.precision.value == pytest.approx(3 / 5)
    assert found.consistency_by_problem.value == pytest.approx((2 / 3 + 1 / 2 + 0 + 0) / 4)
    assert found.recall_by_problem.value == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert found.precision_by_problem.value == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert (found.num_without_nodes, found.num_only_ours, found.num_only_theirs) == (1, 1, 1)
    assert found.only_theirs == ("p7",)
    assert found.recall.low is not None and found.recall.high is not None
    assert 0 <= found.recall.low < 0.6 < found.recall.high <= 1
    result = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert result["problems"][1]["missed"] == [["n2", "36+4=40"]]
    notes = list(agreement_notes(found, 0.95))
    assert "1 problem of the reference not in the dataset, left out: p7" in notes
    assert "1 problem without nodes in either, left out" in notes


def test_a_dataset_agrees_with_itself(repository: Path) -> None:
    sample = repository / "examples/sample/dataset.jsonl"
    found = agreement_of_files(sample, sample)
    assert (found.consistency.value, found.recall.value) == (1.0, 1.0)
    assert found.num_pairs == sum(len(problem.nodes) for problem in read_problems(sample))


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    ours = write(tmp_path / "o.jsonl", {"p": ["3*4=12"], "q": []})
    human = write(tmp_path / "h.jsonl", {"q": []})
    with pytest.raises(InputError, match="no problem with nodes in common"):
        agreement_of_files(ours, human)
    with pytest.raises(InputError, match=r"above 0 and below 1, got 2"):
        agreement_of_files(ours, ours, 2.0)
