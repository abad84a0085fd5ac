"""What one rollout may ask of the scorer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one rollout; past one of them the rollout gets a status, never a score.

    Attributes:
        max_response_bytes: UTF-8 bytes of the response (OVERSIZE).
        max_inline_nodes: nodes sent with the rollout (INVALID_NODES, like all that follow).
        max_expressions_per_node: expressions of one such node, derived ones included.
        max_expression_bytes: UTF-8 bytes of one such expression.
        max_inline_bytes: UTF-8 bytes of all such expressions together.  Far above what nodes
            need (a benchmark's problem has some 1 KB); at the limit, random text compiles
            in some 50 ms to some 20 MB.
    """

    max_response_bytes: int = 16 << 20
    max_inline_nodes: int = 64
    max_expressions_per_node: int = 128
    max_expression_bytes: int = 4096
    max_inline_bytes: int = 16 << 10


DEFAULT_LIMITS = Limits()


def exceeds(response: str | bytes, limit: int) -> int | None:
    """Return the size of a response in UTF-8 bytes if it is above ``limit``, else None.

    A lone surrogate counts as the three bytes that it would take.
    """
    size = len(response)
    if isinstance(response, str) and size * 4 > limit and not response.isascii():
        # Too long for sure without encoding; otherwise at most four times the limit is.
        size = size if size > limit else len(response.encode("utf-8", "surrogatepass"))
    return size if size > limit else None
