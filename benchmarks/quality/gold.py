"""The outside data: gold equations as datasets, and the rollouts to score.

A gold node is one calculation of GSM8K's own solution of a problem; its equation is
``expression=value``.  It states the final answer where its value is the answer.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from consensuspr.core import derive_forms
from consensuspr.data import Node, Problem, open_writer, problem_to_row

GOLD_NODES = Path("data/nodes/gsm8k_test_calc_nodes.jsonl.gz")

# Two files of rollouts for the same problems: what they are called, where they are.
ROLLOUTS = {
    "GPT-3": Path("data/rollouts/gsm8k_gpt3.jsonl.gz"),
    "GPT-3.5, GPT-4o mini": Path("data/rollouts/gsm8k_gpt4o_mini_and_older.jsonl.gz"),
}

# Of one pool; a problem of a dataset may have 1,024 nodes.
MAX_POOL_NODES = 1000

# GSM8K's models were trained to write <<48/2=24>> for a calculator: the node itself.
_ANNOTATION = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True, slots=True)
class Response:
    """One rollout: the text without annotations, and whether its answer is right."""

    problem_id: str
    text: str
    correct: bool
    model: str


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a gzip'd JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def read_gold(shared: Path, derive: bool = True) -> list[Problem]:
    """Return the problems that have gold nodes, in the order of the file.

    Args:
        shared: folder of the outside data.
        derive: store equal forms in the nodes; else none, and none are made later.
    """
    problems = []
    for row in read_rows(shared / GOLD_NODES):
        nodes = tuple(
            _node(position, gold, row["ground_truth"], derive)
            for position, gold in enumerate(row["nodes"])
        )
        if nodes:
            problems.append(
                Problem(
                    problem_id=row["problem_id"],
                    ground_truth=row["ground_truth"],
                    nodes=nodes,
                    data_source="openai/gsm8k",
                    problem=row["problem"],
                )
            )
    return problems


def _node(position: int, gold: dict[str, str], answer: str, derive: bool) -> Node:
    equation = f"{gold['expr']}={gold['value']}"
    return Node(
        node_id=f"step-{position}",
        label=gold["text"],
        type="equation",
        expressions=(equation,),
        derived=tuple(derive_forms(equation)) if derive else (),
        is_final=_value(gold["value"]) == _value(answer),
    )


def _value(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


@dataclass(frozen=True, slots=True)
class Pool:
    """A problem without an answer that has the nodes of many.

    Rollouts scored against all pools show which nodes of every other problem they hit: the
    exact rate of false positives, with no choice of other problems to add noise.

    Attributes:
        problem: to be scored against.
        owners: for each node the problem that it was taken from.
    """

    problem: Problem
    owners: tuple[str, ...]


def pool(problems: list[Problem], max_nodes: int = MAX_POOL_NODES) -> list[Pool]:
    """Return the nodes of all problems in pools of at most ``max_nodes``, in order."""
    owned = [(problem.problem_id, node) for problem in problems for node in problem.nodes]
    pools = []
    for start in range(0, len(owned), max_nodes):
        part = owned[start : start + max_nodes]
        nodes = tuple(
            replace(node, node_id=f"{owner}/{node.node_id}", is_final=False) for owner, node in part
        )
        problem = Problem(f"pool-{start}", nodes=nodes, data_source="openai/gsm8k")
        pools.append(Pool(problem, tuple(owner for owner, _ in part)))
    return pools


def write_dataset(path: Path, problems: list[Problem]) -> None:
    """Write a dataset that a server can load."""
    with open_writer(path) as out:
        for problem in problems:
            out.write(problem_to_row(problem))


def read_responses(path: Path, problem_ids: set[str]) -> list[Response]:
    """Return the rollouts of these problems, calculator annotations taken out."""
    return [
        Response(
            problem_id=row["problem_id"],
            text=_ANNOTATION.sub("", row["response"]),
            correct=row["correct"],
            model=row["model"],
        )
        for row in read_rows(path)
        if row["problem_id"] in problem_ids
    ]
