"""A dataset row is a problem, or a sentence that says why not."""

from __future__ import annotations

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.data import Node, Problem, parse_problem, problem_to_row
from consensuspr.data.schema import (
    ANSWER_RULES,
    PROBLEMS_FOR_ROLLOUTS,
    ROLLOUTS_FOR_PROBLEMS,
    check_rollout,
)
from consensuspr.errors import DataError
from consensuspr.scoring.types import AnswerRule

FULL = {
    "problem_id": "p1",
    "data_source": "math",
    "problem": "Find $x$.",
    "ground_truth": "5",
    "nodes": [
        {
            "node_id": "a",
            "label": "first",
            "type": "equation",
            "expressions": ["x=5", "5=x"],
            "derived": ["x = 10/2"],
            "support": 7,
            "is_final": True,
            "weight": 0.25,
            "comment": "ours",
        }
    ],
    "split": "train",
    "metadata": {"level": 3},
    "answer_rule": "boxed",
    "budget": {"statements": 20, "numbers": 35, "length": 900, "note": "ours"},
    "source_url": "somewhere",
}


def test_a_full_row_keeps_every_key() -> None:
    problem = parse_problem(copy.deepcopy(FULL))
    node = problem.nodes[0]
    assert problem.extra == {"source_url": "somewhere"}
    assert problem.metadata == {"level": 3}
    assert node.extra == {"comment": "ours"}
    assert (node.expressions, node.derived) == (("x=5", "5=x"), ("x = 10/2",))
    assert (node.support, node.is_final, node.type) == (7, True, "equation")
    assert (problem.budget, problem.budget_extra) == ((20, 35, 900, 0), {"note": "ours"})
    assert node.weight == 0.25
    assert problem_to_row(problem) == FULL


@pytest.mark.parametrize("nodes", [None, []])
def test_only_the_id_is_required(nodes: object) -> None:
    expected = Problem("p")
    assert parse_problem({"problem_id": "p", "nodes": nodes}) == expected
    assert parse_problem({"problem_id": "p"}) == expected


def test_a_node_needs_only_expressions() -> None:
    problem = parse_problem({"problem_id": "p", "nodes": [{"expressions": ["1"]}] * 2})
    assert problem.nodes == (Node("n1", ("1",)), Node("n2", ("1",)))
    assert problem.nodes[0].derived is None


@pytest.mark.parametrize("blank", [None, "", "  \n"])
def test_a_blank_ground_truth_is_an_unknown_one(blank: str | None) -> None:
    assert parse_problem({"problem_id": "p", "ground_truth": blank}).ground_truth is None


NODE = {"expressions": ["x"]}
NO_OBJECT = 'nodes[0] must be an object such as {"expressions": ["2x = 6"]}, got '
BAD_PROBLEMS = [
    ({}, "problem_id is missing"),
    ({"problem_id": "p", "response": "r"}, ROLLOUTS_FOR_PROBLEMS),
    ({"problem_id": True}, "problem_id must be a string, got true"),
    ({"problem_id": ""}, "problem_id is empty"),
    ({"problem_id": "i" * 1025}, "problem_id has 1025 characters, the limit is 1024"),
    ({"ground_truth": math.nan}, "ground_truth must be a string, got nan"),
    ({"data_source": "s" * 1025}, "data_source has 1025 characters, the limit is 1024"),
    ({"problem": {}}, "problem must be a string, got an object"),
    ({"split": "valid"}, "split must be train or test or null, got 'valid'"),
    (
        {"answer_rule": "exact"},
        "answer_rule must be auto, dapo, boxed or gsm8k or null, got 'exact'",
    ),
    *[
        ({"budget": budget}, f"budget{reason}")
        for budget, reason in [
            (20, " must be an object with statements and numbers, got 20"),
            ({"statements": 20}, ".numbers must be a whole number from 1 to 4294967295, got null"),
            (
                {"statements": 0, "numbers": 9},
                ".statements must be a whole number from 1 to 4294967295, got 0",
            ),
            (
                {"statements": 9, "numbers": 9, "length": -1},
                ".length must be a whole number from 0 to 2147483647, got -1",
            ),
        ]
    ],
    ({"metadata": "level 3"}, "metadata must be an object, got 'level 3'"),
    ({"nodes": {}}, "nodes must be a list, got an object"),
    ({"nodes": [NODE] * 1025}, "nodes holds 1025 nodes, the limit is 1024"),
    ({"nodes": ["x=5"]}, NO_OBJECT + "'x=5'"),
    ({"nodes": [["2x = 6"]]}, NO_OBJECT + "a list of 1"),
    ({"nodes": [{}]}, "nodes[0] has no expressions"),
    ({"nodes": [NODE, {"expressions": []}]}, "nodes[1] has no expressions"),
    ({"nodes": [{**NODE, "node_id": "n2"}, NODE]}, "nodes[1] repeats node_id 'n2' of nodes[0]"),
    *[
        ({"nodes": [{**NODE, key: value}]}, f"nodes[0].{key}{reason}")
        for key, value, reason in [
            ("expressions", "x=5", " must be a list of strings, got 'x=5'"),
            ("expressions", ["a", 5], "[1] must be a string, got 5"),
            ("expressions", ["a", "b" * 65537], "[1] has 65537 characters, the limit is 65536"),
            ("expressions", ["a"] * 4097, " holds 4097 expressions, the limit is 4096"),
            ("derived", "b", " must be a list of strings, got 'b'"),
            ("type", "lemma", " must be equation, value, proposition or expression, got 'lemma'"),
            ("support", -1, " must be a whole number of 0 or more, got -1"),
            ("is_final", "yes", " must be true or false, got 'yes'"),
            ("node_id", 3, " must be a string, got 3"),
            ("weight", -0.5, " must be a number from 0 to 1e+06, got -0.5"),
            ("rare", "x=5", " must be a list of strings, got 'x=5'"),
            ("rare", ["y=5"], " holds 'y=5', which is not among its expressions"),
            ("weight", math.nan, " must be a number from 0 to 1e+06, got nan"),
        ]
    ],
]


@pytest.mark.parametrize(("changes", "reason"), BAD_PROBLEMS, ids=[r for _, r in BAD_PROBLEMS])
def test_a_bad_problem_is_refused_in_one_clause(changes: dict[str, object], reason: str) -> None:
    row = changes if not changes or "problem_id" in changes else {"problem_id": "p", **changes}
    with pytest.raises(DataError) as caught:
        parse_problem(row, "set.jsonl", 12)
    assert str(caught.value) == f"set.jsonl:12: {reason}"
    assert (caught.value.path, caught.value.line, caught.value.reason) == ("set.jsonl", 12, reason)


BAD_ROLLOUTS = [
    ({"problem_id": None}, "problem_id is missing; the row has response"),
    ({"response": None}, "response is missing; the row has problem_id"),
    (
        {"response": None, **dict.fromkeys("abcdefgh", 1)},
        "response is missing; the row has problem_id, a, b, c, d, e, f, g and 1 more",
    ),
    ({"response": None, "nodes": []}, PROBLEMS_FOR_ROLLOUTS),
    *[
        ({key: value}, f"{key} {reason}")
        for key, value, reason in [
            ("response", 5, "must be a string, got 5"),
            ("rollout_id", "n" * 1025, "has 1025 characters, the limit is 1024"),
            ("ground_truth", 18, "must be a string, got 18"),
            ("num_tokens", "9", "must be a whole number, got '9'"),
            ("num_tokens", 9.5, "must be a whole number, got 9.5"),
            ("correct", 1, "must be true or false, got 1"),
        ]
    ],
]


@pytest.mark.parametrize("missing", ["left out", "null"])
@pytest.mark.parametrize(("changes", "reason"), BAD_ROLLOUTS, ids=[r for _, r in BAD_ROLLOUTS])
def test_a_bad_rollout_is_refused_in_one_clause(
    changes: dict[str, object], reason: str, missing: str
) -> None:
    row = {"problem_id": "p", "response": "r", **changes}
    if missing == "left out":
        row = {key: value for key, value in row.items() if value is not None}
    with pytest.raises(DataError) as caught:
        check_rollout(row, "rollouts.jsonl", 3)
    assert str(caught.value) == f"rollouts.jsonl:3: {reason}"


def test_a_rollout_keeps_its_columns_and_whole_floats_become_token_counts() -> None:
    row = {"problem_id": "p", "response": "", "num_tokens": 12.0, "score": [1, {"a": None}]}
    checked = check_rollout(row)
    assert checked == {
        "problem_id": "p",
        "response": "",
        "num_tokens": 12,
        "score": [1, {"a": None}],
    }
    assert type(checked["num_tokens"]) is int


def test_the_answer_rules_are_those_of_scoring() -> None:
    assert list(ANSWER_RULES) == [rule.value for rule in AnswerRule]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(["problem_id", "response", "nodes", "ground_truth", "metadata", "split"])
NODE_KEYS = st.sampled_from(["expressions", "derived", "type", "node_id", "support", "is_final"])
NODES = st.lists(st.dictionaries(NODE_KEYS, ANYTHING) | ANYTHING, max_size=3)


@given(st.dictionaries(KEYS, ANYTHING | NODES | st.text(min_size=1)))
def test_any_object_is_either_read_or_refused_by_name(row: dict[str, object]) -> None:
    for check in (parse_problem, check_rollout):
        try:
            check(dict(row), "f", 1)
        except DataError as error:
            assert str(error).startswith("f:1: ")
            assert "\n" not in str(error)
