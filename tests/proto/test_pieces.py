"""Cutting batches: nothing is lost, nothing is out of order, bounds hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from consensuspr.wire.codec import cut


@given(st.lists(st.integers(0, 50)), st.integers(1, 60), st.integers(1, 7))
def test_pieces_hold_all_items_in_order_within_bounds(
    sizes: list[int], max_bytes: int, max_items: int
) -> None:
    pieces = list(cut(sizes, lambda size: size, max_bytes, max_items))
    assert [size for piece in pieces for size in piece] == sizes
    for piece in pieces:
        assert len(piece) <= max_items
        assert len(piece) <= 1 or sum(piece) <= max_bytes


@given(st.lists(st.integers(0, 50), min_size=2), st.integers(1, 60), st.integers(1, 7))
def test_no_two_neighbours_would_have_fitted_into_one(
    sizes: list[int], max_bytes: int, max_items: int
) -> None:
    pieces = list(cut(sizes, lambda size: size, max_bytes, max_items))
    for piece, following in pairwise(pieces):
        assert len(piece) == max_items or sum(piece) + following[0] > max_bytes


def test_nothing_is_one_empty_piece() -> None:
    assert list(cut([], len, 10, 10)) == [[]]


def test_items_are_drawn_when_their_piece_is_built() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            drawn.append(item)
            yield item

    next(cut(items(), lambda _: 1, 5, 100))
    assert drawn == list(range(6))
