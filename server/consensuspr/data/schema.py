"""The rows of a dataset: problems and their consensus nodes.

Plain slotted dataclasses that hold what a file said, unknown keys included, so that
a row that is read and written again loses nothing.  Whether a row is acceptable is
decided in :mod:`consensuspr.data.validation`; nothing here checks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]

NODE_TYPES = ("equation", "value", "proposition", "expression")
SPLITS = ("train", "test")

# The rules of docs/answers.md; a dataset that names none leaves the choice to the request.
ANSWER_RULES = ("auto", "dapo", "boxed", "gsm8k")


@dataclass(slots=True)
class Node:
    """One consensus node: an intermediate conclusion, written in one or more ways.

    Attributes:
        node_id: name of the node, unique within its problem.
        expressions: the ways to write it, as written; the node is matched by any.
        label: what a person reads.
        type: one of :data:`NODE_TYPES`.
        derived: equal forms made when the dataset was built; None where the row has no
            such key (they may then be made at load time), empty where it has none to offer.
        support: rollouts that reached the node, None where unknown.
        is_final: the node states the final answer.
        extra: all other keys of the row.
    """

    node_id: str
    expressions: tuple[str, ...]
    label: str = ""
    type: str = "expression"
    derived: tuple[str, ...] | None = None
    support: int | None = None
    is_final: bool = False
    extra: Row = field(default_factory=dict)


@dataclass(slots=True)
class Problem:
    """One problem of a dataset.

    Attributes:
        problem_id: key, unique within the dataset.
        ground_truth: the answer as written; None where unknown.
        nodes: consensus nodes in order, possibly none.
        data_source: label for metrics.
        problem: the text of the problem.
        split: one of :data:`SPLITS`, None where unknown.
        answer_rule: one of :data:`ANSWER_RULES`, None where the dataset names none.
        metadata: free keys such as ``level`` and ``subject``.
        extra: all other keys of the row.
    """

    problem_id: str
    ground_truth: str | None = None
    nodes: tuple[Node, ...] = ()
    data_source: str = ""
    problem: str = ""
    split: str | None = None
    answer_rule: str | None = None
    metadata: Row = field(default_factory=dict)
    extra: Row = field(default_factory=dict)


def problem_to_row(problem: Problem) -> Row:
    """Return the row that reads back as ``problem``, known keys first."""
    row: Row = {
        "problem_id": problem.problem_id,
        "data_source": problem.data_source,
        "problem": problem.problem,
        "ground_truth": problem.ground_truth,
        "nodes": [_node_to_row(node) for node in problem.nodes],
        "split": problem.split,
        "metadata": problem.metadata,
    }
    if problem.answer_rule is not None:
        row["answer_rule"] = problem.answer_rule
    return row | problem.extra


def _node_to_row(node: Node) -> Row:
    row: Row = {
        "node_id": node.node_id,
        "label": node.label,
        "type": node.type,
        "expressions": list(node.expressions),
    }
    if node.derived is not None:
        row["derived"] = list(node.derived)
    if node.support is not None:
        row["support"] = node.support
    row["is_final"] = node.is_final
    return row | node.extra
