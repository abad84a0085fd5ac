"""How much an expression says."""

from __future__ import annotations

import pytest

from consensusbench.extraction.refine import gives_number, information_of, is_identity


@pytest.mark.parametrize(
    ("expression", "information"),
    [
        ("252 * 2 = 504", 7.5),
        ("x = 3", 1.5),
        ("d < 0", 1.5),
        ("2 + 3 = 5", 3.5),
        ("30000 + 7500 = 37500", 6.5),
        (r"\frac{1}{2} \times 50 = 25", 6.0),
        ("", 0.0),
        ("so", 0.5),
    ],
)
def test_information(expression: str, information: float) -> None:
    assert information_of(expression) == information


@pytest.mark.parametrize(
    ("expression", "identity"),
    [
        ("12 * 1 = 12", True),
        ("1 * 12 = 12", True),
        ("12 / 1 = 12", True),
        ("5 + 0 = 5", True),
        ("0 + 5 = 5", True),
        ("5 - 0 = 5", True),
        ("x^1 = x", True),
        ("12 * 10 = 120", False),
        ("1 + 1 = 2", False),
        ("3 * 1.5 = 4.5", False),
        ("11 * 2 = 22", False),
        ("x = 1", False),
        ("", False),
    ],
)
def test_identities(expression: str, identity: bool) -> None:
    assert is_identity(expression) is identity


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("3 * 4 = 12", True),
        ("x = 12", True),
        ("2x + 6 = 20", True),
        (r"x = \frac{1}{2}", True),
        ("a + b = c", False),
        ("total = 12 + 6", False),
        ("1250", True),
        ("so it is", False),
    ],
)
def test_whether_a_number_is_given(expression: str, number: bool) -> None:
    assert gives_number(expression) is number
