"""Exact values, and the limits within which there is one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from consensuspr.core.expressions.evaluate import evaluate, is_constant
from consensuspr.core.expressions.parser import parse_side, tokenize


def value(text: str) -> Fraction | None:
    """Return the value of one side."""
    return evaluate(parse_side(tokenize(text)[:-1]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1+0.2", Fraction(3, 10)),
        ("1/3*3", Fraction(1)),
        ("2^64", Fraction(2**64)),
        ("0^2", Fraction(0)),
        ("20!", Fraction(2432902008176640000)),
    ],
)
def test_values_are_exact(text: str, expected: Fraction) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    ["x", "x-x", "\\sqrt{4}", "f(2)", "2^65", "2^{1/2}", "0^{-1}", "0^0", "21!", "0.5!",
     "(10^{60})^{60}", "((9^{64})^{64})^{64}"],
)  # fmt: skip
def test_what_has_no_small_rational_value_has_none(text: str) -> None:
    assert value(text) is None


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("2+3", True), ("16\\pi", True), ("\\sqrt{2}/2", True), ("5!", True), ("2^{10}", True),
        ("\\pi r^2", False), ("f(2)", False), ("\\sqrt{x}", False), ("x^2", False),
    ],
)  # fmt: skip
def test_constants(text: str, constant: bool) -> None:
    assert is_constant(parse_side(tokenize(text)[:-1])) is constant
