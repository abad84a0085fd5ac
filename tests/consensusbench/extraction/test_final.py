"""Which wordings state the final answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.statements import states_answer


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


@given(st.text(max_size=60), st.text(max_size=30))
def test_any_text_is_decided(expression: str, ground_truth: str) -> None:
    assert states_answer(expression, ground_truth) in (True, False)
