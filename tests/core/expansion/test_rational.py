"""Spellings of rational numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from consensuspr.core.expressions.derive import decimal, fraction, percentage


@pytest.mark.parametrize(
    ("value", "as_decimal", "as_fraction", "as_percentage"),
    [
        (Fraction(1, 2), "0.5", ("1", "2"), "50"),
        (Fraction(1, 4), "0.25", ("1", "4"), "25"),
        (Fraction(3, 8), "0.375", ("3", "8"), "37.5"),
        (Fraction(1, 3), None, ("1", "3"), None),
        (Fraction(5, 2), "2.5", ("5", "2"), "250"),
        (Fraction(1, 100), "0.01", ("1", "100"), "1"),
        (Fraction(1, 10000), "0.0001", None, None),
        (Fraction(1, 100000), None, None, None),
        (Fraction(25, 2), "12.5", ("25", "2"), None),
        (Fraction(2), None, None, None),
    ],
)
def test_spellings(
    value: Fraction,
    as_decimal: str | None,
    as_fraction: tuple[str, str] | None,
    as_percentage: str | None,
) -> None:
    assert decimal(value) == as_decimal
    assert fraction(value) == as_fraction
    assert percentage(value) == as_percentage
