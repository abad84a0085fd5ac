"""Consensus nodes that arrive with a rollout: checked, hashed, compiled through the cache.

They are patterns only: nothing is derived from them, since deriving has no place on the
path of a request.  The same nodes sent again, as for all rollouts of a group, hit the
cache by their content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from consensuspr.core import Matcher
from consensuspr.data import Node
from consensuspr.scoring.index_cache import MatcherCache
from consensuspr.scoring.limits import Limits
from consensuspr.scoring.types import InlineNode


class InvalidNodesError(Exception):
    """Inline nodes break a rule; the text is the sentence for the rollout's message.

    Never leaves the scoring package, where it turns into the status INVALID_NODES.
    """


def compile_inline(
    nodes: Sequence[InlineNode | Sequence[str]], limits: Limits, cache: MatcherCache
) -> Matcher:
    """Return the matcher of inline nodes.

    Raises:
        InvalidNodesError: a node without expressions, an expression that is no string, or more
            of something than the limits allow.
    """
    patterns = _patterns(nodes, limits)
    # ASCII on purpose: no expression is longer in UTF-8 than in escaped JSON.
    content = json.dumps(patterns, separators=(",", ":")).encode("ascii")
    if len(content) > min(limits.max_expression_bytes, limits.max_inline_bytes):
        _check_sizes(patterns, limits)
    key = hashlib.blake2b(content, digest_size=16).digest()
    return cache.get(key, lambda: Matcher(patterns))


def inline_as_nodes(nodes: Sequence[InlineNode | Sequence[str]]) -> tuple[Node, ...]:
    """Return valid inline nodes in the form of a dataset's."""
    return tuple(
        Node(
            node_id=getattr(node, "node_id", "") or f"n{position}",
            expressions=tuple(node.expressions if isinstance(node, InlineNode) else node),
            derived=tuple(node.derived) if isinstance(node, InlineNode) else (),
        )
        for position, node in enumerate(nodes, start=1)
    )


def _patterns(nodes: Sequence[InlineNode | Sequence[str]], limits: Limits) -> list[list[str]]:
    if len(nodes) > limits.max_inline_nodes:
        raise InvalidNodesError(
            f"{len(nodes)} inline nodes were sent; the limit is {limits.max_inline_nodes}"
        )
    return [_texts(node, f"inline node {at}", limits) for at, node in enumerate(nodes)]


def _texts(node: InlineNode | Sequence[str], which: str, limits: Limits) -> list[str]:
    """Return what one node is matched by: expressions, then derived forms."""
    written, derived = (
        (node.expressions, node.derived) if isinstance(node, InlineNode) else (node, ())
    )
    # A string is a sequence of strings too: its letters, as which nobody means it.
    if isinstance(written, (str, bytes)) or not hasattr(written, "__len__"):
        raise InvalidNodesError(f"{which} is no list of expressions")
    if not len(written):
        raise InvalidNodesError(f"{which} has no expressions")
    count = len(written) + len(derived)
    if count > limits.max_expressions_per_node:
        limit = limits.max_expressions_per_node
        raise InvalidNodesError(f"{which} has {count} expressions; the limit is {limit}")
    texts = [*written, *derived]
    for text in texts:
        if not isinstance(text, str):
            raise InvalidNodesError(f"{which} has a {type(text).__name__} among its expressions")
    return texts


def _check_sizes(patterns: list[list[str]], limits: Limits) -> None:
    total = 0
    for position, texts in enumerate(patterns):
        for text in texts:
            size = len(text.encode("utf-8", "surrogatepass"))
            total += size
            if size > limits.max_expression_bytes:
                raise InvalidNodesError(
                    f"inline node {position} has an expression of {size} bytes; "
                    f"the limit is {limits.max_expression_bytes}"
                )
    if total > limits.max_inline_bytes:
        raise InvalidNodesError(
            f"the inline nodes hold {total} bytes of expressions; "
            f"the limit is {limits.max_inline_bytes}"
        )
