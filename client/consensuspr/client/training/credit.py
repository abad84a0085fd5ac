"""Which token of a response reached a node, for rewards that are placed where they were earned.

A score says where each node was first hit, in code points of the response's text
(:attr:`~consensuspr.scoring.types.Score.spans`).  A trainer needs the token, of the very ids that
the policy wrote: a text that is encoded again may become other tokens.  The token that reached a
node is the one with which the last code point of its span was complete.

A :data:`Finder` knows the text of one response.  There are two, for the two ways in which
tokenizers write: the bytes of each token one behind the other (:func:`finder_of_bytes`), or
anything else whose text only grows as tokens are added (:func:`finder_of_decoding`).  Special
tokens that the text lacks write nothing, and reach nothing.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Of code points of a text: half-open; None where a node was not reached.
Span: TypeAlias = tuple[int, int] | None

# Returns the token with which so many code points of the text are complete, None where it has less.
Finder: TypeAlias = Callable[[int], int | None]

# What decodes to one U+FFFD becomes one code point that says how many bytes that was: a lone
# surrogate, which no UTF-8 holds.
_COUNTED = "consensuspr-counted"
_BAD_BYTES = 0xDC00
codecs.register_error(
    _COUNTED,
    lambda error: (
        chr(_BAD_BYTES + error.end - error.start),  # type: ignore[attr-defined]
        error.end,  # type: ignore[attr-defined]
    ),
)


def finder_of_bytes(tokens: Sequence[bytes]) -> Finder:
    """Return the finder of a response whose text is the bytes of its tokens.

    Args:
        tokens: the bytes of each token, none of one that the text lacks.  They may be parts of a
            code point, and bytes that are no UTF-8 count as the U+FFFD that they decode to.
    """
    byte_ends = np.cumsum([len(token) for token in tokens], dtype=np.int64)
    written = b"".join(tokens)
    complete = byte_ends
    if not written.isascii():
        complete = np.searchsorted(_code_point_ends(written), byte_ends, side="right")

    def find(end: int) -> int | None:
        token = int(np.searchsorted(complete, end))
        return token if token < len(tokens) else None

    return find


def _code_point_ends(text: bytes) -> NDArray[np.int64]:
    """Return behind which byte each code point ends, as ``decode(errors="replace")`` reads it."""
    decoded = text.decode(errors=_COUNTED).encode("utf-32-le", "surrogatepass")
    points = np.frombuffer(decoded, dtype="<u4").astype(np.int64)
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    bad = points - _BAD_BYTES
    return np.cumsum(np.where((bad > 0) & (bad < 4), bad, sizes))


def finder_of_decoding(ids: Sequence[int], decode: Callable[[Any], str]) -> Finder:
    """Return the finder of a response of any tokenizer whose text only grows with its tokens.

    It decodes beginnings of the response, about twelve for a node of a long one, where
    :func:`finder_of_bytes` looks into a table.  A U+FFFD in the text itself is taken for complete
    with the first token that shows one.

    Args:
        ids: of the response.
        decode: returns the text of ids, as the response was decoded that was scored.
    """
    text = decode(ids)

    @cache
    def beginning(count: int) -> str:
        return decode(ids[:count])

    def find(end: int) -> int | None:
        if end > len(text):
            return None
        # A code point of which bytes are missing is U+FFFD meanwhile, so that texts are compared.
        wanted = text[:end]
        counts = range(1, len(ids) + 1)
        token = bisect_left(counts, True, key=lambda n: beginning(n).startswith(wanted))
        return token if token < len(ids) else None

    return find


def node_tokens(
    spans: Iterable[Span], find: Finder, policy: Sequence[Any] | NDArray[Any] | None = None
) -> list[int | None]:
    """Return the token that reached each node.

    Args:
        spans: of the nodes in the text, in node order.
        find: of that text.
        policy: of each token, whether the policy wrote it; None: it wrote all.

    Returns:
        A token for each node, None where it was not reached, or by a token that a tool or a
        template wrote, which earns nothing.
    """
    tokens = [None if span is None else find(span[1]) for span in spans]
    if policy is None:
        return tokens
    return [None if token is None or not policy[token] else token for token in tokens]
