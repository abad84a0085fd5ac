"""Formulas: values with limits, and quotients that are equal exactly where SymPy finds them so."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core.expressions import (
    BeyondLimits,
    Unreadable,
    closed_value,
)
from consensuspr.core.expressions.formulas import (
    MAX_CLOSED_BITS,
    MAX_CLOSED_FACTORIAL,
)
from consensuspr.core.expressions.parser import (
    MAX_FORMULA_DEPTH,
    MAX_FORMULA_DIGITS,
    MAX_FORMULA_TOKENS,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("--7", 7),
        ("0.25", Fraction(1, 4)),
        (".25", Fraction(1, 4)),
        ("1+5/8", Fraction(13, 8)),
        ("2-3-4", -5),
        ("2*3+4", 10),
        ("12/4/3", 1),
        ("-2^2", -4),
        ("2^3^2", 512),
        ("2^{10}", 1024),
        ("2^{-1}", Fraction(1, 2)),
        ("10^-3", Fraction(1, 1000)),
        ("(2)(3)", 6),
        ("2(3+4)", 14),
        (r"\frac{1}{2}", Fraction(1, 2)),
        (r"\frac{1+2}{4}", Fraction(3, 4)),
        (r"1\frac{5}{8}", Fraction(13, 8)),
        (r"-1\frac{1}{2}", Fraction(-3, 2)),
        (r"\frac{1}{2}\frac{1}{3}", Fraction(1, 6)),
        ("5!", 120),
        ("3!!", 720),
        (r"\frac{5!}{3!}", 20),
        (r"\binom{5}{2}", 10),
        (r"\binom{5}{0}^2", 1),
        (r"\sqrt{144}", 12),
        (r"\sqrt{\frac{1}{4}}", Fraction(1, 2)),
        ("7*10^3", 7000),
        ("0^5", 0),
        ("(-1)^{1001}", -1),
    ],
)
def test_rationals_are_exact(text: str, number: int | Fraction) -> None:
    value = closed_value(text)
    assert value.exact
    assert value.number == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (r"3\sqrt{13}", 3 * math.sqrt(13)),
        (r"\frac{9}{4}\pi", 9 * math.pi / 4),
        (r"2\pi+1", 2 * math.pi + 1),
        (r"\sqrt[3]{2}", 2 ** (1 / 3)),
        ("2^{1/2}", math.sqrt(2)),
        (r"\pi^2", math.pi**2),
        (r"-\frac{\sqrt{7}}{12}", -math.sqrt(7) / 12),
    ],
)
def test_roots_and_pi_are_floats(text: str, number: float) -> None:
    value = closed_value(text)
    assert not value.exact
    assert value.number == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["", "x", "2x", "1,2", "(1", "1)", "1+", "*1", r"\frac{1}", r"\frac{1}{0}", "1/0", "0^0",
     "0^{-1}", r"\sqrt{-1}", r"\sin{1}", "1 2", r"2/3\pi", r"2\frac{1}{\pi}", "[1)", "2.5!",
     "(-3)!", "(-8)^{1/3}", "1..2", "é", "(" * 60 + "1" + ")" * 60,
     "1+" * MAX_FORMULA_TOKENS + "1",
     r"\sqrt[65]{2}", r"\binom{2}{3}", r"\pi_1", r"\pi(10)", "(-2)^{0.5}"],
)  # fmt: skip
def test_other_things_are_not_closed(text: str) -> None:
    with pytest.raises(Unreadable):
        closed_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "10^{10^{10}}",
        "9^9^9^9",
        f"2^{{{MAX_CLOSED_BITS}}}",
        "(10^{10})!",
        f"{MAX_CLOSED_FACTORIAL + 1}!",
        "((10!)!)!",
        "1" * (MAX_FORMULA_DIGITS + 1),
        r"\pi^{1000}",
        "*".join([f"2^{{{MAX_CLOSED_BITS - 10}}}"] * 4),
    ],
)
def test_sizes_are_limited(text: str) -> None:
    with pytest.raises(BeyondLimits):
        closed_value(text)


def test_the_limits_leave_room_for_published_answers() -> None:
    value = closed_value(r"\frac{2021055^{2011} - 2019044^{2011}}{2011^2}")
    assert value.number == Fraction(2021055**2011 - 2019044**2011, 2011**2)
    nested = "(" * MAX_FORMULA_DEPTH + "1" + ")" * MAX_FORMULA_DEPTH
    assert closed_value(nested).number == 1


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("7", 1.0),
        (r"3*\pi", 3 * math.pi),
        (r"10^5\sqrt{2}-10^5\sqrt{2}", 1e5 * math.sqrt(2)),
    ],
)
def test_the_largest_magnitude_on_the_way_is_kept(text: str, scale: float) -> None:
    assert closed_value(text).scale == pytest.approx(scale, rel=1e-12)


def test_a_decimal_point_is_remembered() -> None:
    assert closed_value("1.0+2").decimal
    assert not closed_value("1+2").decimal


@given(
    st.recursive(
        st.integers(0, 99).map(str),
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
            lambda parts: f"({parts[0]}){parts[1]}({parts[2]})"
        ),
        max_leaves=8,
    )
)
def test_integer_arithmetic_is_pythons(text: str) -> None:
    # The strategy makes digits, brackets and three operators; nothing else is evaluated.
    assert closed_value(text).number == eval(text)


@given(st.text(alphabet="0123456789.+-*/^(){}[]! \\fracsqrtpi", max_size=120))
def test_anything_else_is_refused_and_never_an_error(text: str) -> None:
    try:
        value = closed_value(text)
    except Unreadable:
        return
    assert value.number == value.number
