"""Numbers in prose: which phrases name a quantity, and which numbers are distinctive."""

from __future__ import annotations

import pytest

from consensusbench.extraction.rules import is_distinctive, numbers_of, read_phrases


@pytest.mark.parametrize(
    ("response", "phrases"),
    [
        ("That leaves 30 minutes.", ["30 minutes", "leaves 30"]),
        ("He earns $45 per week.", ["45 per week", "earns 45"]),
        ("They are 5 and 7 of them.", []),  # neither word names anything
        ("The answer is 30.", []),
        ("They eat 7 of 9 rolls", ["9 rolls"]),  # before a digit stands any word
        ("There are 2 possibilities and 1 use", []),  # any text may hold these
        ("3 * 10 = 30 minutes", ["30 minutes"]),
        ("It takes 2,500 steps", ["2500 steps", "takes 2500"]),
        ("It takes 2,510 steps", ["2510 steps", "takes 2510", "2510"]),
        ("In all 2.5 km and 30/2 km", ["2.5 km"]),
        ("`30 minutes`", ["30 minutes"]),
        ("```\n30 minutes\n```", []),
        ("", []),
    ],
)
def test_phrases(response: str, phrases: list[str]) -> None:
    assert sorted(phrase.words for phrase in read_phrases(response, 100)) == sorted(phrases)


@pytest.mark.parametrize(
    ("number", "distinctive"),
    [
        ("1250", True),
        ("1234.5", True),
        ("3.75", True),
        ("146410000", True),
        ("250", False),  # counting to 300 prints it
        ("999", False),
        ("2000", False),  # one significant digit
        ("0.25", False),
        ("7", False),
    ],
)
def test_distinctive_numbers(number: str, distinctive: bool) -> None:
    assert is_distinctive(number) is distinctive


def test_numbers_are_read_as_the_normal_form_spells_them() -> None:
    assert numbers_of("Ann has $1,200 and 3.50 more") == numbers_of("1200 or 3.5")


def test_what_is_looked_at_is_bounded() -> None:
    response = " ".join(f"{number} apples." for number in range(10, 500))
    assert len(read_phrases(response, 20)) == 20
