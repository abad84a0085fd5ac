"""Every fault of every bad row, in the words of the schema itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.quality import Code, DatasetFinding
from consensusbench.quality.validate import RowCounts, checked_problems, row_faults
from consensuspr.data import DataError, parse_problem

SOUND = {"expressions": ["1+1=2"]}


@pytest.mark.parametrize(
    ("row", "faults"),
    [
        ({}, ["problem_id is missing"]),
        (
            {"problem_id": 3, "split": "dev", "ground_truth": 4},
            [
                "problem_id must be a string, got 3",
                "split must be train or test or null, got 'dev'",
                "ground_truth must be a string, got 4",
            ],
        ),
        (
            {
                "problem_id": "p",
                "nodes": [
                    SOUND,
                    {"expressions": [], "type": "sum"},
                    7,
                    {"expressions": ["x", 5], "is_final": 1, "support": -1},
                ],
            },
            [
                "nodes[1] has no expressions",
                "nodes[1].type must be equation, value, proposition or expression, got 'sum'",
                "nodes[2] must be an object, got 7",
                "nodes[3].expressions[1] must be a string, got 5",
                "nodes[3].is_final must be true or false, got 1",
                "nodes[3].support must be a whole number of 0 or more, got -1",
            ],
        ),
        (
            {"problem_id": "p", "nodes": [SOUND | {"node_id": "n"}, SOUND | {"node_id": "n"}]},
            ["nodes[1] repeats node_id 'n' of nodes[0]"],
        ),
        ({"problem_id": "p", "nodes": "n"}, ["nodes must be a list, got 'n'"]),
        ({"problem_id": "p", "nodes": [SOUND]}, []),
    ],
)
def test_all_faults_of_a_row_are_named(row: dict[str, Any], faults: list[str]) -> None:
    assert row_faults(row) == faults


def test_good_rows_come_through_and_bad_ones_are_told(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    lines = [
        json.dumps({"problem_id": "a", "nodes": [SOUND], "answer_rule": "auto"}),
        "{not json",
        json.dumps({"problem_id": "a"}),
        json.dumps({"problem_id": "b", "answer_rule": "dapo"}),
        json.dumps({"problem_id": "c", "split": 1, "nodes": 2}),
        json.dumps({"problem_id": "d"}),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    counts, told = RowCounts(), list[DatasetFinding]()
    good = [(line, one.problem_id) for line, one in checked_problems(path, counts, told.append)]
    assert good == [(1, "a"), (6, "d")]
    assert (counts.good, counts.bad) == (2, 4)
    assert {one.code for one in told} == {Code.SCHEMA}
    assert [(one.line, one.problem_id) for one in told] == [
        (2, None),
        (3, "a"),
        (4, "b"),
        (5, "c"),
        (5, "c"),
    ]
    assert "is not JSON" in told[0].message
    assert "is already that of line 1" in told[1].message
    assert "differs from 'auto' of line 1" in told[2].message


def test_a_file_that_is_none_stops(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(checked_problems(tmp_path / "none.jsonl", RowCounts(), lambda finding: None))


_LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "test"])
_NODE_KEYS = ("node_id", "label", "type", "expressions", "derived", "support", "is_final", "other")
_NODES = st.dictionaries(st.sampled_from(_NODE_KEYS), _LEAVES | st.lists(_LEAVES, max_size=2))
_KEYS = ("problem_id", "data_source", "problem", "ground_truth", "split", "metadata", "answer_rule")
_ROWS = st.dictionaries(
    st.sampled_from(_KEYS), _LEAVES | st.lists(_LEAVES, max_size=2)
) | st.fixed_dictionaries({"problem_id": _LEAVES, "nodes": st.lists(_LEAVES | _NODES, max_size=3)})


@given(_ROWS)
def test_a_row_has_faults_exactly_where_the_schema_refuses_it(row: dict[str, Any]) -> None:
    try:
        parse_problem(row)
    except DataError as fault:
        assert fault.reason in row_faults(row)
    else:
        assert row_faults(row) == []
