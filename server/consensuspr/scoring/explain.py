"""Why a rollout got its score: which expression of which node was found where."""

from __future__ import annotations

from dataclasses import dataclass

from consensuspr.core import Matcher, normalize
from consensuspr.data import Node
from consensuspr.scoring.dataset_index import DatasetIndex
from consensuspr.scoring.matching import compile_inline, inline_as_nodes
from consensuspr.scoring.types import Identity, Limits, Rollout, Score, Status


@dataclass(slots=True)
class NodeExplanation:
    """One node as the rollout met it.

    Attributes:
        node_id: name of the node.
        label: what a person reads.
        matched: one of its expressions was found.
        is_final: the node states the final answer.
        span: code points of the first hit in the response, half-open; None if not matched.
        expression: the expression, written or derived, that was found; empty if none.
        expressions: all expressions as written.
    """

    node_id: str
    label: str
    matched: bool
    is_final: bool
    span: tuple[int, int] | None
    expression: str
    expressions: tuple[str, ...]


@dataclass(slots=True)
class Explanation:
    """A score with its reasons.

    Attributes:
        score: what :meth:`Scorer.score` gives for the rollout, with spans.
        nodes: in order; none where the status leaves NCR unknown.
        normal_form: of the response, as matched; empty for OVERSIZE.
        identity: what a replay needs.
    """

    score: Score
    nodes: tuple[NodeExplanation, ...]
    normal_form: str
    identity: Identity


def explain_nodes(
    rollout: Rollout, score: Score, identity: Identity, index: DatasetIndex, limits: Limits
) -> Explanation:
    """Return the explanation of a rollout that has been scored."""
    if score.status in (Status.OVERSIZE, Status.INTERNAL):
        return Explanation(score, (), "", identity)
    normal_form = normalize(rollout.response)
    if score.ncr is None:
        return Explanation(score, (), normal_form, identity)
    nodes, matcher = _nodes_of(rollout, index, limits)
    explained = tuple(
        NodeExplanation(
            node_id=node.node_id,
            label=node.label,
            matched=hit is not None,
            is_final=node.is_final,
            span=None if hit is None else (hit.start, hit.end),
            expression="" if hit is None else hit.expression,
            expressions=node.expressions,
        )
        for node, hit in zip(nodes, matcher.hits(rollout.response), strict=True)
    )
    return Explanation(score, explained, normal_form, identity)


def _nodes_of(
    rollout: Rollout, index: DatasetIndex, limits: Limits
) -> tuple[tuple[Node, ...], Matcher]:
    """Return the nodes that the score was made with, and their matcher."""
    if rollout.nodes is not None:
        matcher = compile_inline(rollout.nodes, limits, index.cache)
        return inline_as_nodes(rollout.nodes), matcher
    entry = index.entry(rollout.problem_id)
    assert entry is not None  # a rollout without nodes of its own has an NCR only so
    return entry.nodes, entry.matcher
