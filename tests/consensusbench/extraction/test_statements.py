"""What is proved about statements: whether they are true, and give the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.statements import (
    Truth,
    forms_beyond,
    states_answer,
    truth_of,
)


def test_forms_beyond_add_something_each() -> None:
    assert forms_beyond(["x=15*12", "12*15=x"]) == ("x=12*15", "15*12=x")
    assert forms_beyond(["x=15*12", "y=1/2"], limit=1) == ("x=12*15",)


# Which wordings state the final answer.


@pytest.mark.parametrize(
    ("expression", "ground_truth", "states"),
    [
        ("4*3=12", "12", True),
        ("12=4*3", "12", True),
        ("4*3 = 12 apples", "12", True),
        ("total = 12 dollars", "12", True),
        ("x=12", "x=12", True),
        ("12", "12", True),
        ("There are 12 apples", "12", True),
        ("$x = 5$ or $x=12$", "12", True),
        ("x=\\frac{1}{2}", "0.5", True),
        ("P=25\\%", "25", True),
        ("x=1,200", "1200", True),
        ("x=-5", "-5", True),
        ("x=-5", "5", False),
        ("(1,2)", "(1,2)", True),
        ("c=\\sqrt{2}", "\\sqrt2", True),
        ("4*3=12", "#### 12", True),
        ("4*3=12", "so \\boxed{12}", True),
        ("12*2=24", "12", False),
        ("x<12", "12", False),
        ("f(12)=3", "12", False),
        ("n is even", "12", False),
        ("n is even", "even", False),
        ("4*3=12", None, False),
        ("4*3=12", "", False),
        ("", "12", False),
    ],
)
def test_states_answer(expression: str, ground_truth: str | None, states: bool) -> None:
    assert states_answer(expression, ground_truth) is states


# Arithmetic that holds, that does not, and that nobody can tell.

TRUE, ROUNDED, FALSE, UNCHECKED = Truth.TRUE, Truth.ROUNDED, Truth.FALSE, Truth.UNCHECKED


@pytest.mark.parametrize(
    ("expression", "truth"),
    [
        ("15 \\times 12 = 180", TRUE),
        ("$15 * $12 = $180", TRUE),
        ("12*4=6*8=48", TRUE),
        ("\\frac{1}{2}+\\frac13=\\frac{5}{6}", TRUE),
        ("25% of 80 = 20", TRUE),
        ("7 - 3 = 4 apples", TRUE),
        ("3^2+4^2=5^2", TRUE),
        ("2 < 3 \\le 3", TRUE),
        ("17 \\equiv 2 \\pmod 5", TRUE),
        ("17 = 2 \\pmod{5}", TRUE),
        # A percent sign as a unit.
        ("30/120*100=25%", TRUE),
        ("100-30 = 70\\%", TRUE),
        # Two factorial is two, and differs from three.
        ("2!*2!=4", TRUE),
        ("2! * 3! = 12", TRUE),
        ("3!=6", TRUE),
        ("2!=3", TRUE),
        ("3!=3", FALSE),
        # As many digits as were written.
        ("10/3=3.33", ROUNDED),
        ("20/3=6.66", ROUNDED),
        ("10/3≈3.3", ROUNDED),
        ("18*3.14159 = 56.54866 ≈ 56.5", ROUNDED),
        ("2+2=5", FALSE),
        ("15*12=181", FALSE),
        (" $15*12=181,$ ", FALSE),
        ("10/3=3.5", FALSE),
        ("0.5+0.5=1.09", FALSE),
        ("4*3=12=5", FALSE),
        ("3*4=12+5=17", FALSE),
        ("x=5=7", FALSE),
        ("3<2", FALSE),
        ("2+2≈5", FALSE),
        ("17 \\equiv 3 \\pmod 5", FALSE),
        ("100-30 = 71%", FALSE),
        ("x=3", UNCHECKED),
        ("2x+3x=5x", UNCHECKED),
        ("\\sqrt{2}=1.5", UNCHECKED),
        ("12_5=7", UNCHECKED),
        ("17 mod 5 = 2", UNCHECKED),
        ("gcd(12,8)=4", UNCHECKED),
        # Units that are numbers.
        ("2 dozen = 24", UNCHECKED),
        ("60 minutes = 1 hour", UNCHECKED),
        ("180", UNCHECKED),
        ("15*12", UNCHECKED),
        ("n is even", UNCHECKED),
        ("", UNCHECKED),
        ("9" * 400 + "=1", UNCHECKED),
        ("2^{9999999}=1", UNCHECKED),
    ],
)
def test_truth(expression: str, truth: Truth) -> None:
    assert truth_of(expression) is truth


@given(st.integers(0, 9999), st.integers(0, 9999), st.integers(-50, 50).filter(bool))
def test_a_sum_is_true_with_its_value_and_false_with_any_other(a: int, b: int, off: int) -> None:
    assert truth_of(f"{a} + {b} = {a + b}") is Truth.TRUE
    assert truth_of(f"{a} + {b} = {a + b + off}".replace("= -", "= 0 - ")) is Truth.FALSE
