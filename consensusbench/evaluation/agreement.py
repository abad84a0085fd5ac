"""Agreement of a dataset's nodes with nodes that people annotated (paper, appendix D.2).

The paper reports "the exact agreement probability" and "the recall of human-annotated nodes" and
does not say when two nodes are equal nor how they are paired.  Here two nodes **state the same** if
an expression of either is matched by the other, by the core's normal form, as a whole statement or
as an equal equation, derived forms included.  Nodes are **paired one to one**, as many pairs as
there can be.  **Consistency** is ``pairs / (ours + theirs - pairs)``, **recall** ``pairs /
theirs``, **precision** ``pairs / ours``.  Headline figures pool the nodes of all problems.
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
    check_confidence,
    mean_estimate,
    ratio_estimate,
)
from consensusbench.evaluation.scored import Bools, per_node
from consensusbench.tables import JsonResult
from consensuspr.core import Matcher, derive_forms, expression_keys, match_batch
from consensuspr.core.patterns import Channel
from consensuspr.data import Node, Problem, read_problems
from consensuspr.errors import InputError
from consensuspr.version import VERSION

SCHEMA: Final = "consensusbench.agreement/1"


@dataclass(frozen=True, slots=True)
class ProblemAgreement(JsonResult):
    """The two annotations of one problem.

    ``pairs`` are node ids of ours and theirs; ``missed`` are (node id, label) of human nodes
    without a partner, ``added`` the same of ours.
    """

    problem_id: str
    ours: int
    theirs: int
    pairs: tuple[tuple[str, str], ...]
    missed: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Agreement(JsonResult):
    """A dataset against human annotation; ``problems`` are in both, with nodes in either."""

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
        """Return everything ready for ``json.dumps``."""
        about = {"schema": SCHEMA, "version": VERSION, "num_problems": len(self.problems)}
        return about | JsonResult.to_json(self)


def agreement_of_files(
    dataset: str | os.PathLike[str],
    human: str | os.PathLike[str],
    confidence: float = 0.95,
) -> Agreement:
    """Compare a dataset with a human annotation in the same format, which is held in memory.

    Raises:
        DataError: a file is bad.
        InputError: no problem is in both, or none of those has nodes.
    """
    check_confidence(confidence)
    annotated = {problem.problem_id: problem for problem in read_problems(human)}
    compared: list[ProblemAgreement] = []
    num_without_nodes = num_only_ours = 0
    for problem in read_problems(dataset):
        other = annotated.pop(problem.problem_id, None)
        if other is None:
            num_only_ours += 1
        elif not problem.nodes and not other.nodes:
            num_without_nodes += 1
        else:
            compared.append(compare_nodes(problem, other))
    if not compared:
        raise InputError(f"{dataset} and {human} have no problem with nodes in common")
    counts = [(len(problem.pairs), problem.ours, problem.theirs) for problem in compared]
    pairs, ours, theirs = np.array(counts, dtype=np.float64).T
    numbers = np.arange(len(compared))
    wholes = {"consistency": ours + theirs - pairs, "recall": theirs, "precision": ours}
    figures: dict[str, Estimate] = {}
    for name, whole in wholes.items():
        figures[name] = ratio_estimate(pairs, whole, numbers, confidence, bounds=SHARE)
        shares = per_node(pairs, whole)
        figures[f"{name}_by_problem"] = mean_estimate(shares, numbers, confidence, bounds=SHARE)
    return Agreement(
        **figures,
        num_ours=int(ours.sum()),
        num_theirs=int(theirs.sum()),
        num_pairs=int(pairs.sum()),
        problems=tuple(compared),
        num_without_nodes=num_without_nodes,
        num_only_ours=num_only_ours,
        num_only_theirs=len(annotated),
        only_theirs=tuple(annotated)[:MAX_NAMED],
    )


def compare_nodes(ours: Problem, theirs: Problem) -> ProblemAgreement:
    """Pair the nodes of two annotations of one problem."""
    partner = one_to_one(same_statements(ours.nodes, theirs.nodes))
    paired = set(partner.values())
    return ProblemAgreement(
        ours.problem_id,
        len(ours.nodes),
        len(theirs.nodes),
        tuple(
            (ours.nodes[at].node_id, theirs.nodes[other].node_id)
            for at, other in sorted(partner.items())
        ),
        tuple(_named(node) for at, node in enumerate(theirs.nodes) if at not in paired),
        tuple(_named(node) for at, node in enumerate(ours.nodes) if at not in partner),
    )


def same_statements(ours: Sequence[Node], theirs: Sequence[Node]) -> Bools:
    """Return which nodes state the same: (len(ours), len(theirs)) truth values."""
    same = np.zeros((len(ours), len(theirs)), dtype=np.bool_)
    if ours and theirs:
        for one_side, other_side, hits in ((ours, theirs, same), (theirs, ours, same.T)):
            written = [_written(node) for node in one_side]
            # Without statements: a part of a node's statement is another statement.
            matcher, with_equations = Matcher(written, statements=False), Matcher(written)
            for at, node in enumerate(other_side):
                found = match_batch([with_equations] * len(node.expressions), node.expressions)
                for number, expression in enumerate(node.expressions):
                    hits[:, at] |= np.array(matcher.match(expression), dtype=np.bool_)
                    hits[:, at] |= found.channels(number) == Channel.EQUATION
        keys = [_keys(node) for node in theirs]
        same |= [[not _keys(node).isdisjoint(of_theirs) for of_theirs in keys] for node in ours]
    return same


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
