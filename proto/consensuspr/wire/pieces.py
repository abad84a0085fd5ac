"""Cutting a batch into pieces that are bounded in bytes and in number.

The client's requests, the server's steps of work and the in-process client's are cut by
this one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

# About a mebibyte amortises what an RPC costs and still lets several requests of one batch
# be in work at once; the number bounds the reply where responses are short.
PIECE_BYTES = 1 << 20
PIECE_ROLLOUTS = 256


def cut(
    items: Iterable[T], size: Callable[[T], int], max_bytes: int, max_items: int
) -> Iterator[list[T]]:
    """Yield the items in order, as many at a time as the bounds allow.

    Lazy: an item is not looked at before its piece is built.  A single item larger than
    ``max_bytes`` is a piece of its own; no items are one empty piece, because an empty
    batch has an outcome too.

    Args:
        items: what to cut.
        size: bytes of one item.
        max_bytes: of a piece that holds more than one item.
        max_items: of a piece, at least 1.
    """
    piece: list[T] = []
    piece_bytes = 0
    any_yet = False
    for item in items:
        item_bytes = size(item)
        if piece and (len(piece) >= max_items or piece_bytes + item_bytes > max_bytes):
            yield piece
            any_yet = True
            piece, piece_bytes = [], 0
        piece.append(item)
        piece_bytes += item_bytes
    if piece or not any_yet:
        yield piece
