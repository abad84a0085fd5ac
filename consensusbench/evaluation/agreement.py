"""How far the nodes of a dataset agree with those that people annotated (paper, appendix D.2).

The paper reports "the exact agreement probability" (consistency) and "the recall of
human-annotated nodes, defined as the proportion of human-identified key steps successfully
captured", and says neither when two nodes are equal nor how they are paired.  Here:

- Two nodes of a problem **state the same** where an expression of either is matched by the
  other, as in a rollout: by the core's normal form or as a whole statement, derived forms included.
  That is generous in one way: the value node ``12`` and the equation ``3*4=12`` state the same.
- Nodes are **paired one to one**, as many pairs as there can be (maximum bipartite matching):
  a node that restates two human nodes captures one of them.
- **Consistency** is the Jaccard index ``pairs / (ours + theirs - pairs)``: the chance that a
  node of either annotation is in both.
- **Recall** is ``pairs / theirs``, **precision** ``pairs / ours``.

Headline figures pool the nodes of all problems, as "proportion of steps" says; the mean over
problems stands beside each.  Intervals are clustered by problem.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from consensusbench import require
from consensusbench.evaluation.estimates import (
    MAX_NAMED,
    SHARE,
    Estimate,
    check_resampling,
    mean_estimate,
    ratio_estimate,
)
from consensusbench.evaluation.scored import Bools, Floats
from consensusbench.tables import JsonResult
from consensuspr.core import Matcher, derive_forms, expression_keys
from consensuspr.data import Node, Problem, read_problems
from consensuspr.errors import InputError
from consensuspr.version import VERSION

SCHEMA: Final = "consensusbench.agreement/1"


@dataclass(frozen=True, slots=True)
class ProblemAgreement(JsonResult):
    """The two annotations of one problem.

    Attributes:
        pairs: (node id of ours, node id of theirs), one to one.
        missed: (node id, label or first expression) of human nodes without a partner.
        added: the same of our nodes without one.
    """

    problem_id: str
    ours: int
    theirs: int
    pairs: tuple[tuple[str, str], ...]
    missed: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Agreement(JsonResult):
    """A dataset against human annotation.

    Attributes:
        consistency_by_problem, recall_by_problem, precision_by_problem: mean over problems.
        num_ours, num_theirs, num_pairs: nodes, over all problems that are in both.
        problems: each problem that is in both and has nodes in either.
        num_without_nodes: problems that are in both and have nodes in neither.
        num_only_ours, num_only_theirs: problems that are in one of the two.
        only_theirs: ids of the first :data:`MAX_NAMED` problems that only people annotated.
    """

    consistency: Estimate
    recall: Estimate
    precision: Estimate
    consistency_by_problem: Estimate
    recall_by_problem: Estimate
    precision_by_problem: Estimate
    num_ours: int
    num_theirs: int
    num_pairs: int
    problems: tuple[ProblemAgreement, ...]
    num_without_nodes: int
    num_only_ours: int
    num_only_theirs: int
    only_theirs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything ready for ``json.dumps``; ``docs/evaluate.md`` names the keys."""
        about = {"schema": SCHEMA, "version": VERSION, "num_problems": len(self.problems)}
        return about | JsonResult.to_json(self)


def agreement_of_files(
    dataset: str | os.PathLike[str],
    human: str | os.PathLike[str],
    confidence: float = 0.95,
) -> Agreement:
    """Compare a dataset with a human annotation in the same format.

    Args:
        human: theirs; held in memory as a whole.
        confidence: of intervals, in (0, 1).

    Raises:
        DataError: a file is bad.
        InputError: no problem is in both, or none of those has nodes.
    """
    check_resampling(confidence)
    theirs = {problem.problem_id: problem for problem in read_problems(human)}
    compared: list[ProblemAgreement] = []
    num_without_nodes = num_only_ours = 0
    for problem in read_problems(dataset):
        annotated = theirs.pop(problem.problem_id, None)
        if annotated is None:
            num_only_ours += 1
        elif not problem.nodes and not annotated.nodes:
            num_without_nodes += 1
        else:
            compared.append(compare_nodes(problem, annotated))
    if not compared:
        raise InputError(f"{dataset} and {human} have no problem with nodes in common")
    return _agreement(compared, num_without_nodes, num_only_ours, tuple(theirs), confidence)


def compare_nodes(ours: Problem, theirs: Problem) -> ProblemAgreement:
    """Pair the nodes of two annotations of one problem."""
    partner = one_to_one(same_statements(ours.nodes, theirs.nodes))
    paired = set(partner.values())
    return ProblemAgreement(
        ours.problem_id,
        len(ours.nodes),
        len(theirs.nodes),
        tuple(
            (ours.nodes[mine].node_id, theirs.nodes[other].node_id)
            for mine, other in sorted(partner.items())
        ),
        tuple(_named(node) for at, node in enumerate(theirs.nodes) if at not in paired),
        tuple(_named(node) for at, node in enumerate(ours.nodes) if at not in partner),
    )


def same_statements(ours: Sequence[Node], theirs: Sequence[Node]) -> Bools:
    """Say which nodes state the same: (len(ours), len(theirs)) truth values."""
    same = np.zeros((len(ours), len(theirs)), dtype=np.bool_)
    if ours and theirs:
        mine, other = _matcher(ours), _matcher(theirs)
        for at, node in enumerate(theirs):
            for expression in node.expressions:
                same[:, at] |= np.array(mine.match(expression), dtype=np.bool_)
        for at, node in enumerate(ours):
            for expression in node.expressions:
                same[at] |= np.array(other.match(expression), dtype=np.bool_)
        keys = [_keys(node) for node in theirs]
        same |= [[not _keys(node).isdisjoint(one) for one in keys] for node in ours]
    return same


def _matcher(nodes: Sequence[Node]) -> Matcher:
    # Without statements: a part of what a node states is not what it states.
    return Matcher([_written(node) for node in nodes], statements=False)


def _keys(node: Node) -> set[Hashable]:
    return {key for text in _written(node) for key in expression_keys(text)}


def _written(node: Node) -> Sequence[str]:
    if node.derived is not None:
        return (*node.expressions, *node.derived)
    forms = [form for expression in node.expressions for form in derive_forms(expression)]
    return (*node.expressions, *forms)


def one_to_one(same: Bools) -> dict[int, int]:
    """Return as many pairs as there can be, row by column, each row and column once."""
    if not same.size:
        return {}
    sparse = require("scipy.sparse", "pairing nodes")
    graph = require("scipy.sparse.csgraph", "pairing nodes")
    columns = graph.maximum_bipartite_matching(sparse.csr_array(same), perm_type="column")
    return {row: column for row, column in enumerate(columns.tolist()) if column >= 0}


def _named(node: Node) -> tuple[str, str]:
    return node.node_id, node.label or node.expressions[0]


def _agreement(
    compared: Sequence[ProblemAgreement],
    num_without_nodes: int,
    num_only_ours: int,
    only_theirs: tuple[str, ...],
    confidence: float,
) -> Agreement:
    pairs = np.array([len(problem.pairs) for problem in compared], dtype=np.float64)
    ours = np.array([problem.ours for problem in compared], dtype=np.float64)
    theirs = np.array([problem.theirs for problem in compared], dtype=np.float64)
    numbers = np.arange(len(compared))

    def pooled(whole: Floats) -> Estimate:
        return ratio_estimate(pairs, whole, numbers, confidence, bounds=SHARE)

    def by_problem(whole: Floats) -> Estimate:
        shares = np.divide(pairs, whole, out=np.full(len(pairs), np.nan), where=whole > 0)
        return mean_estimate(shares, numbers, confidence, bounds=SHARE)

    return Agreement(
        consistency=pooled(ours + theirs - pairs),
        recall=pooled(theirs),
        precision=pooled(ours),
        consistency_by_problem=by_problem(ours + theirs - pairs),
        recall_by_problem=by_problem(theirs),
        precision_by_problem=by_problem(ours),
        num_ours=int(ours.sum()),
        num_theirs=int(theirs.sum()),
        num_pairs=int(pairs.sum()),
        problems=tuple(compared),
        num_without_nodes=num_without_nodes,
        num_only_ours=num_only_ours,
        num_only_theirs=len(only_theirs),
        only_theirs=only_theirs[:MAX_NAMED],
    )
