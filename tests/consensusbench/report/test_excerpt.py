"""Cutting responses: nothing is lost, marked wrongly or too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consensusbench.report.data import Block, BlockKind, cut
from consensuspr.scoring.marks import WHOLE_CHARS, Mark, Piece


def text_of(blocks: list[Block]) -> str:
    return "".join(piece.text for block in blocks for piece in block.pieces)


def test_a_short_response_is_whole_and_its_hit_is_marked() -> None:
    [block] = cut("so 6*7=42, done", [Mark(3, 9, 2)], 1000)
    assert block.kind is BlockKind.SHOWN
    assert block.pieces == (Piece("so "), Piece("6*7=42", 2, (2,), (2,)), Piece(", done"))


def test_of_overlapping_hits_the_inner_one_is_on_top_and_each_ends_once() -> None:
    [block] = cut("5*2=10", [Mark(0, 6, 1), Mark(4, 6, 2)], 1000)
    assert block.pieces == (Piece("5*2=", 1, (1,)), Piece("10", 2, (2,), (2, 1)))


def test_a_long_response_is_folded_between_its_hits() -> None:
    text = "a" * 4000 + "6*7=42" + "b" * 4000
    blocks = cut(text, [Mark(4000, 4006, 1)], 100_000)
    assert [block.kind for block in blocks] == [
        BlockKind.SHOWN, BlockKind.FOLDED, BlockKind.SHOWN, BlockKind.FOLDED, BlockKind.SHOWN,
    ]  # fmt: skip
    assert text_of(blocks) == text
    [marked] = [piece for block in blocks for piece in block.pieces if piece.node]
    assert marked.text == "6*7=42"


def test_parts_begin_and_end_between_words() -> None:
    text = "word " * 1000 + "6*7=42" + " word" * 1000
    blocks = cut(text, [Mark(5000, 5006, 1)], 100_000)
    assert text_of(blocks) == text
    for block in blocks:
        shown = "".join(piece.text for piece in block.pieces)
        assert {part for part in shown.split() if part != "6*7=42"} == {"word"}


def test_what_does_not_fit_is_left_out_and_the_hits_stay() -> None:
    text = "a" * 50_000 + "6*7=42" + "b" * 50_000
    blocks = cut(text, [Mark(50_000, 50_006, 1)], 2000)
    assert [block.kind for block in blocks] == [
        BlockKind.SHOWN, BlockKind.LEFT_OUT, BlockKind.SHOWN, BlockKind.LEFT_OUT, BlockKind.SHOWN,
    ]  # fmt: skip
    assert sum(block.chars for block in blocks) == len(text)
    assert "6*7=42" in text_of(blocks)


def test_an_empty_response_has_no_blocks() -> None:
    assert cut("", [], 1000) == []


@given(
    st.integers(0, 3 * WHOLE_CHARS),
    st.lists(st.tuples(st.integers(0, 9500), st.integers(1, 60), st.integers(1, 12)), max_size=8),
    st.integers(0, 9500),
)
def test_blocks_are_the_response_in_order(
    length: int, spans: list[tuple[int, int, int]], max_chars: int
) -> None:
    text = "".join(chr(97 + at % 26) for at in range(length))
    hits = [Mark(start, start + size, node) for start, size, node in spans]
    blocks = cut(text, hits, max_chars)
    assert sum(block.chars for block in blocks) == length
    embedded = [block for block in blocks if block.kind is not BlockKind.LEFT_OUT]
    assert sum(block.chars for block in embedded) <= max_chars
    at = 0
    for block in blocks:
        if block.kind is not BlockKind.LEFT_OUT:
            assert "".join(piece.text for piece in block.pieces) == text[at : at + block.chars]
        at += block.chars
    if max_chars >= length:
        inside = [hit for hit in hits if hit.end <= length]
        ends = sorted(node for block in blocks for piece in block.pieces for node in piece.ends)
        assert ends == sorted(hit.node for hit in inside)
