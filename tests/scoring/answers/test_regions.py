"""Intervals, unions and inequalities against membership of points."""

from __future__ import annotations

import operator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.scoring.answers.compare import compare_regions, read_region
from consensuspr.scoring.answers.normalize import canonical

# Ends are whole; halves tell what lies between two of them.
POINTS = [Fraction(n, 2) for n in range(-22, 42)]
INTERVAL = st.tuples(
    st.sampled_from("(["), st.integers(-10, 9), st.integers(1, 10), st.sampled_from(")]")
)
UNION = st.lists(INTERVAL, min_size=1, max_size=4)
Interval = tuple[str, int, int, str]


def _text(intervals: list[Interval]) -> str:
    return r" \cup ".join(f"{a}{low},{low + width}{b}" for a, low, width, b in intervals)


def _holds(intervals: list[Interval], point: Fraction) -> bool:
    return any(
        (point > low or (a == "[" and point == low))
        and (point < low + width or (b == "]" and point == low + width))
        for a, low, width, b in intervals
    )


@given(UNION, UNION)
def test_unions_are_equal_if_they_hold_the_same_points(
    one: list[Interval], other: list[Interval]
) -> None:
    a, b = read_region(canonical(_text(one))), read_region(canonical(_text(other)))
    assert a is not None and b is not None
    same = all(_holds(one, point) is _holds(other, point) for point in POINTS)
    assert compare_regions(a, b, _text(one)) is same


SIGNS = {"<": operator.lt, ">": operator.gt, r"\le ": operator.le, r"\ge ": operator.ge}
LINE = st.tuples(
    st.integers(-3, 3).filter(bool), st.integers(-6, 6), st.sampled_from(sorted(SIGNS))
)


@given(LINE, LINE)
def test_inequalities_are_equal_if_the_same_points_solve_them(
    one: tuple[int, int, str], other: tuple[int, int, str]
) -> None:
    regions = [read_region(canonical(f"{a}x{sign}{b}")) for a, b, sign in (one, other)]
    assert regions[0] is not None and regions[1] is not None
    # Bounds are multiples of 1/3 and 1/2: sixths lie on them and between them.
    points = [Fraction(n, 12) for n in range(-100, 101)]
    solved = [[SIGNS[sign](a * x, b) for x in points] for a, b, sign in (one, other)]
    assert compare_regions(regions[0], regions[1], "") is (solved[0] == solved[1])


@pytest.mark.parametrize(
    "text",
    ["", "5", "(1,2", "(2,1)", "(1,x)", r"(1,\sqrt{2})", "x<", "x<y", "x<1<2", "|x|<1", "x^2<1",
     "(0,1)" + r"\cup(0,1)" * 20, "(1,2,3)", "0<x<0"],
)  # fmt: skip
def test_reads_nothing_else(text: str) -> None:
    assert read_region(canonical(text)) is None
