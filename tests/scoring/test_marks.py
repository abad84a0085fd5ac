"""Cutting a response at its hits: nothing is lost, marked wrongly or torn."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.scoring.marks import Mark, Piece, cut_at_marks, parts_to_show, words_found


@pytest.mark.parametrize(
    ("response", "marks", "pieces"),
    [
        ("", [], []),
        ("no hit", [], [Piece("no hit")]),
        (
            "so 6*7=42, done",
            [Mark(3, 9, 2)],
            [Piece("so "), Piece("6*7=42", 2, (2,), (2,)), Piece(", done")],
        ),
        (
            "5*2=10",
            [Mark(0, 6, 1), Mark(4, 6, 2)],
            [Piece("5*2=", 1, (1,)), Piece("10", 2, (2,), (2, 1))],
        ),
        (
            "abcdef",
            [Mark(2, 6, 2), Mark(0, 4, 1)],
            [Piece("ab", 1, (1,)), Piece("cd", 1, (2,), (1,)), Piece("ef", 2, (), (2,))],
        ),
        ("10", [Mark(0, 2, 2), Mark(0, 2, 1)], [Piece("10", 1, (1, 2), (2, 1))]),
    ],
)
def test_pieces(response: str, marks: list[Mark], pieces: list[Piece]) -> None:
    assert list(cut_at_marks(response, marks)) == pieces


def test_parts_begin_and_end_between_words() -> None:
    text = "word " * 1000 + "6*7=42" + " word" * 1000
    parts = parts_to_show(text, [Mark(5000, 5006, 1)])
    assert len(parts) == 3
    words = {word for start, end in parts for word in text[start:end].split()}
    assert words == {"word", "6*7=42"}


def test_a_gap_that_is_shorter_than_its_note_is_shown() -> None:
    text = "a" * 1000
    assert parts_to_show(text, [Mark(550, 551, 1)], 10, 440) == [(0, 1000)]
    assert len(parts_to_show(text, [], 10, 430)) == 2


@given(
    st.text("ab \n", max_size=2000),
    st.lists(st.tuples(st.integers(0, 1900), st.integers(1, 60), st.integers(1, 9)), max_size=8),
)
def test_every_hit_is_in_a_part_and_pieces_are_the_text(
    response: str, spans: list[tuple[int, int, int]]
) -> None:
    marks = [Mark(a, a + n, node) for a, n, node in spans if a + n <= len(response)]
    parts = parts_to_show(response, marks, whole_chars=100, context_chars=20)
    assert parts[-1][1] == len(response)
    assert all(first[1] < second[0] for first, second in pairwise(parts))
    pieces = [p for start, end in parts for p in cut_at_marks(response, marks, start, end)]
    assert "".join(piece.text for piece in pieces) == "".join(response[a:b] for a, b in parts)
    for found in ("begins", "ends"):
        nodes = [node for piece in pieces for node in getattr(piece, found)]
        assert sorted(nodes) == sorted(mark.node for mark in marks)


@pytest.mark.parametrize(
    ("text", "expression", "words"),
    [
        ("b = 21 - 13", "b=8", "b = 21 - 13"),
        ("4·12 = 48", "4*12=48", ""),
        ("3,875 ÷ 35 ≈ 110.7", r"\frac{3875}{35} \approx 110.7", ""),
        (r"4 \cdot 12 = 48", r"4\times 12=48", ""),
        ("y = 3$ and $x = 2", "x=2, y=3", "y = 3 and x = 2"),
        ("107 - 3 = **104", "107-3=104", ""),
        (r"1 + 115 = \boxed{116", "115+1=116", "1 + 115 = 116"),
        (r"x = \boxed{\frac{1}{2}}", "x=0.5", r"x = \boxed{\frac{1}{2}}"),
        ("2**3 = 2 ** 3", "2^3=8", "2**3 = 2 ** 3"),
        ("7, 5$ and $3", r"\{3,5,7\}", "7, 5 and 3"),
        ("x &= 3y \\\\\n&= 27", "x=27", "x = 3y = 27"),
        (r"V = \left(6\right)^3", "V=216", r"V = \left(6\right)^3"),
        ("x=" + "1+" * 60 + "1", "x=61", "x=" + "1+" * 38 + "1…"),
    ],
)
def test_the_words_of_a_hit_are_one_line(text: str, expression: str, words: str) -> None:
    assert words_found(f"so {text}.", (3, 3 + len(text)), expression) == words
    assert words_found(text, None, expression) == ""
