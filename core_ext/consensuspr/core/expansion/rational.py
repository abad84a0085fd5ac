"""The spellings of a rational number: decimal, fraction and percent.

A number within a product is worth more spellings than one that stands alone: ``12*0.5``
is also ``12/2``, ``12*1/2`` and ``50%*12``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

MAX_DECIMAL_PLACES = 4
MAX_DENOMINATOR = 1000
MAX_NUMERATOR = 1_000_000
MAX_PERCENT = 1000


@lru_cache(maxsize=4096)
def decimal(value: Fraction) -> str | None:
    """Return the decimal of a value, None for an integer or where there is no short one."""
    if value.denominator == 1 or value.denominator > 10**MAX_DECIMAL_PLACES:
        return None
    for places in range(1, MAX_DECIMAL_PLACES + 1):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = str(scaled.numerator).rjust(places + 1, "0")
            return f"{digits[:-places]}.{digits[-places:]}"
    return None


@lru_cache(maxsize=4096)
def fraction(value: Fraction) -> tuple[str, str] | None:
    """Return numerator and denominator in lowest terms, None for an integer or a large one."""
    if value.denominator == 1 or value.denominator > MAX_DENOMINATOR:
        return None
    if value.numerator > MAX_NUMERATOR:
        return None
    return str(value.numerator), str(value.denominator)


@lru_cache(maxsize=4096)
def percentage(value: Fraction) -> str | None:
    """Return the number of percent without its sign, None where it is not short."""
    scaled = value * 100
    if value.denominator == 1 or scaled > MAX_PERCENT:
        return None
    if scaled.denominator == 1:
        return str(scaled.numerator)
    return decimal(scaled) if scaled.denominator in (2, 5, 10) else None
