"""Spellings that are one, and spellings that are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.scoring.answers.normalize import canonical
from tests.linear import assert_linear

# Each group has one canonical spelling.
SAME = [
    ["12", " 12 ", "12.", "$12$", r"\$12", "$12", "**12**", r"\(12\)", "12,", "+12", "１２"],
    ["1234", "1,234", "1{,}234", r"1,\!234", "1 234", "1\u202f234"],
    ["0.5", "0.5.", "**0.5**"],
    [".5", "$.5$"],
    [r"\frac{1}{2}", r"\dfrac{1}{2}", r"\tfrac12", r"\frac12", r"\frac{1}2", r"\frac1{2}"],
    [r"\sqrt{3}", r"\sqrt3", "√3", r"\sqrt 3"],
    ["90", r"90^\circ", r"90^{\circ}", "90°", "90 degrees", r"90 \text{ degrees}"],
    ["28%", r"28\%", "28 percent", "28 pct", "28 %", r"28 \%", "28％"],
    ["15", r"15\mbox{ cm}^2", r"15 \text{ cm}^{2}", "15 cm^2", "15 square centimeters", "15 cm²"],
    ["72", "72Mb/hour", "72 kJ", "72 km/h", "72 lbs", "72 mph", "72 men", "72 KB", "72 eggs"],
    ["8", "8th", "8 ft", "8 ft^3", "8 hrs.", "8 inches squared"],
    ["125", "125 miles", r"125\textnormal{ miles}", "125 miles per hour", "125 km/h"],
    ["C", r"\text{C}", r"\textbf{C}", r"\mathrm{C}", "C."],
    ["(0,1)", "(0, 1)", r"\left(0, 1\right)", r"\bigl( 0,\, 1 \bigr)", "（0，1）"],
    [r"\{1,2\}", r"\left\{1, 2\right\}", r"\lbrace 1,2 \rbrace"],
    ["1,2,3", "1、2、3", "1, 2 and 3", "1, 2, and 3", r"1,2 \text{ and } 3", "1 or 2 or 3"],
    ["12x", "12*x", r"12 \cdot x", "12 x", "12·x"],
    ["2*3", r"2 \times 3", "2×3", r"2\cdot3"],
    ["x^2", "x^{2}", "x**2", "x²"],
    ["x_1", "x_{1}", "x₁"],
    [r"x\le5", r"x \leq 5", "x <= 5", "x ≤ 5", r"x \leqslant 5"],
    [r"x\ne3", r"x \neq 3", "x != 3", "x ≠ 3"],
    [r"(1,\infty)", r"(1, +\infty)", "(1, ∞)"],
    ["-5", "−5", "– 5", "$-5$"],
    ["5000000", "5 million", "5 million dollars"],
    ["4:30pm", "4:30 p.m.", r"4:30 \text{ p.m.}", r"\text{4:30 p.m.}", "4:30 PM"],
    [r"\emptyset", r"\varnothing", "∅", r"\{\}", r"\left\{ \right\}"],
    ["30", "30元", "30 个", r"30\text{ 人}", "30千克", "30 分钟"],
    [r"0.\overline{3}", r"0.\dot{3}"],
]  # fmt: skip

DIFFERENT = [
    ("11/2", "1 1/2"), (r"2\frac12", r"\frac{21}{2}"), ("5 million", "5"), ("4:30 AM", "4:30 PM"),
    ("x^{2}3", "x^{23}"), ("5 sin x", "5"), (".5", "5"), ("1,2", "12"), ("12 34", "1234"),
    ("A", "a"), ("3千", "3"), ("5万元", "5"), ("(0,1)", "[0,1]"),
    (r"\text{Mon}\text{ and Tue}", r"\text{Mon}"),
]  # fmt: skip

# Runs that a backtracking pattern would read again and again.
RUNS = [
    "((", "{{", "\\[", "12 34 ", "ab ", "\\frac", "\\text{", "^", " ", "$", ",", "1,", "a_", "\\ ",
    "&", "\\text{a} ", "5 a ", "{,", "\\sqrt ", "= ", "and ", "x^{", "~\\,", "\\frac{a", ". ", "%",
    "a.m ", "<=",
]  # fmt: skip


@pytest.mark.parametrize("spellings", SAME, ids=lambda group: str(group[0]))
def test_spellings_of_one_answer_are_one(spellings: list[str]) -> None:
    assert {canonical(text) for text in spellings} == {spellings[0]}


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_different_answers_stay_different(first: str, second: str) -> None:
    assert canonical(first) != canonical(second)


@given(st.text(max_size=200))
def test_any_text_has_a_spelling(text: str) -> None:
    assert isinstance(canonical(text), str)


@given(
    st.integers(), st.sampled_from(["{}", "${}$", r"\({}\)", "{} apples", r"{}\text{{ cm}}", "{}."])
)
def test_what_surrounds_an_integer_does_not_matter(number: int, style: str) -> None:
    assert canonical(style.format(number)) == str(number)


@pytest.mark.parametrize("run", RUNS)
def test_time_grows_linearly(run: str) -> None:
    assert_linear(canonical, lambda size: run * (size // len(run)))
    assert_linear(canonical, lambda size: "7" + run * (size // len(run)) + "!")
