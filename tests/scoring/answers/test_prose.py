"""Numbers that sentences state: only where nothing in the sentence changes them."""

from __future__ import annotations

import pytest

from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.answers.extract import numbers_in_sentence, only_number

# (text, its numbers)
STATED = [
    ("Jim is 8 years old", ["8"]),
    ("4 blue shoeboxes and 6 red shoeboxes", ["4", "6"]),
    ("it lies between 23 and 24", ["23", "24"]),
    ("Answer: Not enough information.", []),
    ("Ann's total was $1,234.50 then.", ["$1,234.50"]),
    ("The temperature fell -5 degrees", ["-5"]),
]
NOT_STATED = [
    # signs and functions
    "10^2 square meters", "2π square units", "36π cubic inches", "sqrt(16) square units",
    "2*sqrt(3) square units", "5! total ways", "3×10^5 km per second", "√16 square units",
    "3 + 4 apples total", "1/2 of the pie", "x = 5 total apples", "5² square meters",
    r"5\pi square units", "(about) 5 apples", "log 100 plus nothing", "between 3-4 apples",
    # digits that touch letters
    "1e6 meters away", "3 to the 5th power", "the 3rd place", "5m tall poles", "x2 total apples",
    # words that are numbers or change them
    "minus 5 degrees celsius", "negative 5 apples", "5 squared apples total", "2 cubed apples",
    "3 dozen eggs total", "5 million dollars total", "half of the apples", "5 percent of them",
    "twenty apples total", "root 16 apples", "2 pi square units", "a third of them",
    "5 below the freezing point", "twenty-five apples total", "infinity is the answer",
    # two numbers that are one quantity
    "1 hour and 30 minutes", "5 feet 3 inches", "1 out of 3 people", "2 dollars and 50 cents",
    "3 to 1 odds against them",
    # no sentence
    "5", "5 apples", "no", "x+y",
]  # fmt: skip


@pytest.mark.parametrize(("text", "numbers"), STATED)
def test_reads_the_numbers_of_a_plain_sentence(text: str, numbers: list[str]) -> None:
    assert numbers_in_sentence(text) == numbers


@pytest.mark.parametrize("text", NOT_STATED)
def test_reads_no_number_that_something_may_change(text: str) -> None:
    assert numbers_in_sentence(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Ann is 24", "24"),
        (r"Ann pays \$24 then", "$24"),
        ("The temperature is minus 5 degrees", None),
        ("The area is sqrt(16) square units", None),
        ("Ann has 3 dozen eggs", None),
        ("Ann came in 3rd of them all", None),
        ("between 23 and 24", None),
        ("24", None),
    ],
)
def test_reads_the_only_number_of_a_plain_text(text: str, number: str | None) -> None:
    assert only_number(text) == number


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("100", "10^2 square meters"),
        (r"2\pi", "2π square units"),
        (r"36\pi", "36π cubic inches"),
        ("4", "sqrt(16) square units"),
        (r"2\sqrt3", "2*sqrt(3) square units"),
    ],
)
def test_arithmetic_in_a_sentence_is_worked_out(
    verifier: AnswerVerifier, gold: str, answer: str
) -> None:
    verdict = verifier.verify(gold, rf"\boxed{{{answer}}}")
    assert (verdict.correct, verdict.method) == (True, "symbolic")
