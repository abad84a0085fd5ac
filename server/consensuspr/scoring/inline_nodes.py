"""Nodes that arrive with a rollout: checked, and compiled like those of a dataset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from consensuspr.core import Matcher
from consensuspr.data import Node
from consensuspr.data.schema import MAX_BUDGET_LENGTH, MAX_WEIGHT, is_weight
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.matcher_cache import MatcherCache
from consensuspr.scoring.types import MAX_UINT32, InlineNode, Limits


class InvalidNodesError(Exception):
    """Inline nodes break a rule; the rollout gets status INVALID_NODES and this message."""


def check_nodes(given: Sequence[InlineNode | Sequence[str]], limits: Limits) -> tuple[Node, ...]:
    """Return inline nodes in the form of a dataset's.

    Raises:
        InvalidNodesError: they break a rule or exceed a limit.
    """
    if len(given) > limits.max_inline_nodes:
        raise InvalidNodesError(
            f"{len(given)} inline nodes were sent; the limit is {limits.max_inline_nodes}"
        )
    nodes = tuple(_checked(node, at, limits) for at, node in enumerate(given))
    total = 0
    for at, node in enumerate(nodes):
        for text in (*node.expressions, *(node.derived or ())):
            size = len(text.encode("utf-8", "surrogatepass"))
            total += size
            if size > limits.max_expression_bytes:
                raise InvalidNodesError(
                    f"inline node {at} has an expression of {size} bytes; "
                    f"the limit is {limits.max_expression_bytes}"
                )
    if total > limits.max_inline_bytes:
        raise InvalidNodesError(
            f"the inline nodes hold {total} bytes of expressions; "
            f"the limit is {limits.max_inline_bytes}"
        )
    return nodes


def _checked(node: InlineNode | Sequence[str], at: int, limits: Limits) -> Node:
    if not isinstance(node, InlineNode):
        node = InlineNode(node)
    written = node.expressions
    # A string is a sequence of strings too.
    if isinstance(written, (str, bytes)) or not hasattr(written, "__len__"):
        raise InvalidNodesError(f"inline node {at} is no list of expressions")
    if not len(written):
        raise InvalidNodesError(f"inline node {at} has no expressions")
    count, limit = len(written) + len(node.derived), limits.max_expressions_per_node
    if count > limit:
        raise InvalidNodesError(f"inline node {at} has {count} expressions; the limit is {limit}")
    texts = [*written, *node.derived]
    for text in texts:
        if not isinstance(text, str):
            raise InvalidNodesError(
                f"inline node {at} has a value of type {type(text).__name__} among its expressions"
            )
    if node.weight is not None and not is_weight(node.weight):
        raise InvalidNodesError(
            f"inline node {at} has the weight {node.weight!r}, which is no number from 0 to "
            f"{MAX_WEIGHT:g}"
        )
    return Node(
        node_id=node.node_id or f"n{at + 1}",
        expressions=tuple(texts[: len(written)]),
        derived=tuple(texts[len(written) :]),
        is_final=bool(node.is_final),
        weight=node.weight,
    )


def check_budget(budget: object) -> None:
    """Check the guard's budget of a rollout with inline nodes.

    Raises:
        InvalidNodesError: it is neither None nor a valid budget.
    """
    if budget is None:
        return
    if not isinstance(budget, GuardBudget):
        raise InvalidNodesError(f"the budget is a {type(budget).__name__}, not a GuardBudget")
    for name, value in budget._asdict().items():
        least, most = (0, MAX_BUDGET_LENGTH) if name == "length" else (1, MAX_UINT32)
        if type(value) is not int or not least <= value <= most:
            raise InvalidNodesError(
                f"the budget's {name} must be a whole number from {least} to {most}, got {value!r}"
            )


def compile_nodes(nodes: Sequence[Node], cache: MatcherCache) -> Matcher:
    """Return the matcher of checked nodes; equal expressions share one."""
    texts = [(node.expressions, node.derived) for node in nodes]
    # ASCII: a lone surrogate has no UTF-8.
    content = json.dumps(texts, separators=(",", ":")).encode("ascii")

    def compile_matcher() -> Matcher:
        return Matcher(
            [node.expressions for node in nodes], derived=[node.derived or () for node in nodes]
        )

    return cache.get(hashlib.blake2b(content, digest_size=16).digest(), compile_matcher)
