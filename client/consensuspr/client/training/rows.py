"""What rows of training data hold for the scorer: nodes, and the ground truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from consensuspr.errors import InputError
from consensuspr.scoring.types import InlineNode


def inline_nodes(nodes: Any) -> list[InlineNode] | None:
    """Return the nodes of a row, as mappings with ``expressions`` or as plain lists of them.

    Raises:
        InputError: they have another shape.
    """
    if nodes is None:
        return None
    try:
        return [_inline_node(node) for node in nodes]
    except (TypeError, KeyError):
        raise InputError(
            "extra_info.nodes must be a list of {node_id, expressions, derived} or of lists of"
            f" expressions, got {str(nodes)[:200]!r}"
        ) from None


def _inline_node(node: Any) -> InlineNode:
    if isinstance(node, str):
        raise TypeError(node)
    if not isinstance(node, Mapping):
        return InlineNode(_texts(node))
    derived = node.get("derived")
    return InlineNode(
        expressions=_texts(node["expressions"]),
        node_id=str(node.get("node_id") or ""),
        derived=() if derived is None else _texts(derived),
    )


def _texts(values: Any) -> list[str]:
    if isinstance(values, str):
        raise TypeError(values)
    texts = list(values)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(texts)
    return texts


def ground_truth_text(value: Any, name: str) -> str | None:
    """Return a row's ground truth as text; Parquet columns also hold it as numbers.

    A whole number in a column of floats is written without its fraction, as it was meant:
    strict answer rules compare texts, and "42.0" is not "42".

    Raises:
        InputError: it is neither; ``name`` says which column.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} must be a text, got {value!r:.80}")
    return str(int(value)) if isinstance(value, int) or value.is_integer() else str(value)
