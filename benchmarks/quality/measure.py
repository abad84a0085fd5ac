"""How well NCR finds nodes on outside data: GSM8K's gold equations, and two files of rollouts.

A gold node is one calculation of GSM8K's own solution of a problem; its equation is
``expression=value``.  It states the final answer where its value is the answer.

Recall and false positives are pooled over nodes (micro averages), mean NCR is over rollouts
(equation 1 of the paper), AUROC is the probability that a right rollout has the higher NCR of a
right and a wrong one, ties counting half.

"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.texts import json_lines
from consensusbench.evaluation.metrics import Consistency, consistency_of
from consensuspr.client import LocalClient, Rollout
from consensuspr.core import derive_forms
from consensuspr.data import Node, Problem, open_writer, problem_to_row
from consensuspr.scoring import Score, Status
from consensuspr.wire.server_info import DatasetInfo

GOLD_NODES = Path("data/nodes/gsm8k_test_calc_nodes.jsonl.gz")

# Two files of rollouts for the same problems: what they are called, where they are.
ROLLOUTS = {
    "GPT-3": Path("data/rollouts/gsm8k_gpt3.jsonl.gz"),
    "GPT-3.5, GPT-4o mini": Path("data/rollouts/gsm8k_gpt4o_mini_and_older.jsonl.gz"),
}

# Of one pool; a problem of a dataset may have 1,024 nodes.
MAX_POOL_NODES = 1000

# GSM8K's models were trained to write <<48/2=24>> for a calculator: the node itself.
CALCULATOR = re.compile(r"<<[^<>]*>>")

# Deriving and loading take seconds; on the pure-Python twin a pass over all nodes takes long.
TIMEOUT_S = 3600.0
# Figures must not depend on what else the machine does: an answer gets all the time it needs.
ANSWER_BUDGET_S = 60.0
# Two ways to use the nodes: with derived forms, and as written.
DERIVED, WRITTEN = "derived", "as written"
# What a policy could print to hit nodes without solving anything.
ENUMERATION = "\n".join(f"={value}" for value in range(301))


@dataclass(frozen=True, slots=True)
class Response:
    """One rollout: the text without annotations, and whether its answer is right."""

    problem_id: str
    text: str
    correct: bool
    model: str


def read_gold(shared: Path, derive: bool = True) -> list[Problem]:
    """Return the problems that have gold nodes, in the order of the file.

    Without ``derive`` no equal forms are stored in the nodes, and none are made later.
    """
    problems = []
    for row in json_lines(shared / GOLD_NODES):
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
    """A problem without an answer that has the nodes of many, and of each node its owner.

    Rollouts scored against all pools show which nodes of every other problem they hit: the
    exact rate of false positives, with no choice of other problems to add noise.
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
            text=CALCULATOR.sub("", row["response"]),
            correct=row["correct"],
            model=row["model"],
        )
        for row in json_lines(path)
        if row["problem_id"] in problem_ids
    ]


def hit_rate(rows: Iterable[Iterable[bool]]) -> float:
    """Return the share of nodes that are matched, over all rollouts (a row of flags each) together.

    The recall of gold equations for right rollouts, the rate of false positives for
    rollouts of other problems.

    Raises:
        ValueError: there is no node.
    """
    flags = [flag for row in rows for flag in row]
    if not flags:
        raise ValueError("no node was looked for, so there is no rate")
    return sum(flags) / len(flags)


def consistency(rows: Sequence[Sequence[bool]], correct: Sequence[bool]) -> Consistency:
    """Return how NCR goes together with the labels, over rollouts that have a node to reach."""
    ncr = np.array([sum(row) / len(row) if row else float("nan") for row in rows])
    right = np.array(correct, float)
    # As if of one problem: the page gives no intervals, and none are drawn.
    return consistency_of(ncr, right, np.zeros(len(ncr), int), confidence=0.95, seed=0)


def score(
    client: LocalClient, dataset: str, rollouts: Sequence[Rollout], wanted: Status
) -> list[Score]:
    """Score rollouts against a dataset.

    Raises:
        SystemExit: a rollout has another status than the one wanted: figures would be wrong.
    """
    scores = client.score(rollouts, dataset=dataset)
    for rollout, one in zip(rollouts, scores, strict=True):
        if one.status is not wanted:
            raise SystemExit(
                f"a rollout of {rollout.problem_id} has the status {one.status}, "
                f"{wanted} was expected: {one.message}"
            )
    return scores


@dataclass(frozen=True, slots=True)
class Figures:
    """What the report says about one file of rollouts under one set of nodes.

    ``every`` is over all nodes, ``inner`` without those that state the final answer.
    """

    acc_agreement: float
    recall: float
    false_positives: float
    every: Consistency
    inner: Consistency


@dataclass(slots=True)
class Results:
    """All that was measured.

    Attributes:
        figures: by file of rollouts, then by ``DERIVED`` and ``WRITTEN``.
        datasets: what is loaded of the two datasets.
        enumerated: share of nodes hit by ``ENUMERATION``: equations, and bare values.
        normal_form_version: of the core that was used.
        backend: of the core that was used.
    """

    figures: dict[str, dict[str, Figures]]
    datasets: dict[str, DatasetInfo]
    enumerated: tuple[float, float]
    normal_form_version: str
    backend: str


def measure(shared: Path) -> Results:
    """Score everything in this process."""
    gold = {DERIVED: read_gold(shared), WRITTEN: read_gold(shared, derive=False)}
    nodes = {problem.problem_id: problem.nodes for problem in gold[DERIVED]}
    pools = pool(gold[DERIVED])
    figures: dict[str, dict[str, Figures]] = {}
    with TemporaryDirectory() as folder:
        paths = {}
        for name, problems in gold.items():
            pooled = [one.problem for one in pool(problems)]
            for dataset, rows in ((name, problems), (_pooled(name), pooled)):
                paths[dataset] = Path(folder) / f"{dataset.replace(' ', '-')}.jsonl"
                write_dataset(paths[dataset], rows)
        with LocalClient(paths, timeout_s=TIMEOUT_S, answer_budget_s=ANSWER_BUDGET_S) as client:
            for file, path in ROLLOUTS.items():
                responses = read_responses(shared / path, set(nodes))
                figures[file] = {}
                for name in gold:
                    rollouts = [Rollout(one.problem_id, one.text) for one in responses]
                    scores = score(client, name, rollouts, Status.OK)
                    others = _beside_others(client, _pooled(name), pools, responses)
                    figures[file][name] = _figures(responses, scores, nodes, hit_rate(others))
            # The share of equations, and of their bare values, that ENUMERATION hits.
            equations = [Rollout(problem_id, ENUMERATION) for problem_id in nodes]
            values = [
                Rollout(
                    problem_id,
                    ENUMERATION,
                    nodes=[[node.expressions[0].rpartition("=")[2]] for node in own],
                )
                for problem_id, own in nodes.items()
            ]
            by_equations, by_values = (
                hit_rate(one.matched for one in score(client, DERIVED, rollouts, Status.OK))
                for rollouts in (equations, values)
            )
            info = client.server_info()
    return Results(
        figures=figures,
        datasets={dataset.name: dataset for dataset in info.datasets},
        enumerated=(by_equations, by_values),
        normal_form_version=info.normal_form_version,
        backend=info.core_backend,
    )


def _pooled(name: str) -> str:
    """Return the name of the dataset with the same nodes in pools."""
    return f"{name} pooled"


def _beside_others(
    client: LocalClient, dataset: str, pools: Iterable[Pool], responses: list[Response]
) -> Iterator[list[bool]]:
    """Score each response against the nodes of all other problems; yield rows of flags."""
    for one_pool in pools:
        rollouts = [Rollout(one_pool.problem.problem_id, one.text) for one in responses]
        scores = score(client, dataset, rollouts, Status.NO_GROUND_TRUTH)
        for response, one in zip(responses, scores, strict=True):
            flags = zip(one.matched, one_pool.owners, strict=True)
            yield [hit for hit, owner in flags if owner != response.problem_id]


def _figures(
    responses: list[Response],
    scores: list[Score],
    nodes: Mapping[str, tuple[Node, ...]],
    false_positives: float,
) -> Figures:
    correct = [one.correct for one in responses]
    every = [one.matched for one in scores]
    inner = [
        [hit for hit, node in zip(row, nodes[one.problem_id], strict=True) if not node.is_final]
        for one, row in zip(responses, every, strict=True)
    ]
    agreeing = sum(bool(of_one.acc) == right for of_one, right in zip(scores, correct, strict=True))
    return Figures(
        acc_agreement=agreeing / len(scores),
        recall=hit_rate(row for row, right in zip(every, correct, strict=True) if right),
        false_positives=false_positives,
        every=consistency(every, correct),
        inner=consistency(inner, correct),
    )
