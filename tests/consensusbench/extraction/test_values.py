"""The values that wordings give."""

from __future__ import annotations

from fractions import Fraction

import pytest

from consensusbench.extraction.statements import stated_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("15*12=180", {180}),
        ("x = 7", {7}),
        ("A=bh/2=24", {24}),
        ("x=\\frac{1}{2}", {Fraction(1, 2)}),
        ("180 pens", {180}),
        ("a total of 1,200 pens in 3 boxes", {1200, 3}),
        ("a+b=c", set()),
        ("n is even", set()),
        ("so there are " + "9" * 5000, set()),
        ("", set()),
    ],
)
def test_values(text: str, values: set[Fraction]) -> None:
    assert stated_values(text) == values
