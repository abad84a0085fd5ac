"""Packed problems are the compact JSON that the digest's recipe names."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from consensuspr.data import NODE_TYPES, Node, Problem
from consensuspr.scoring.dataset_index import pack, read_head, read_nodes, read_patterns

TEXTS = st.text(max_size=6) | st.sampled_from(['"', "\\frac{1}{2}", "\n", "\ud800", "\0\x1f\x7f"])
NODES = st.builds(
    Node,
    node_id=TEXTS,
    expressions=st.lists(TEXTS, min_size=1, max_size=3).map(tuple),
    label=TEXTS,
    type=st.sampled_from(NODE_TYPES),
    derived=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    support=st.none() | st.integers(0, 2**40),
    is_final=st.booleans(),
)
PROBLEMS = st.builds(
    Problem,
    problem_id=TEXTS,
    ground_truth=st.none() | TEXTS,
    nodes=st.lists(NODES, max_size=4).map(tuple),
    data_source=TEXTS,
)


@settings(max_examples=200, deadline=None)
@given(PROBLEMS)
def test_a_record_is_three_lines_of_compact_json(problem: Problem) -> None:
    nodes = problem.nodes
    lines: tuple[list[object], ...] = (
        [problem.ground_truth, problem.data_source, len(nodes)],
        [
            problem.problem_id,
            problem.ground_truth,
            [[node.node_id, node.expressions, node.derived or []] for node in nodes],
        ],
        [[node.label, node.type, node.is_final, node.support] for node in nodes],
    )
    expected = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines]
    record = pack(problem)
    assert record == "\n".join(expected).encode("utf-8", "surrogatepass")
    assert read_head(record) == (problem.ground_truth, problem.data_source, len(nodes))
    for node in nodes:
        node.derived = node.derived or ()
    assert read_nodes(record) == nodes
    assert read_patterns(record) == [[*node.expressions, *(node.derived or ())] for node in nodes]
