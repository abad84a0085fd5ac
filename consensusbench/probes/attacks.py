"""Texts that hit nodes without solving anything, each within a budget of characters.

The budget keeps a comparison honest: with room for everything an enumeration hits every
number, and a policy's length is limited too.  All texts are deterministic, and none looks at
the nodes that it is to hit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from fractions import Fraction
from itertools import count
from typing import Final


class Attack(StrEnum):
    """A way to earn nodes without solving the problem."""

    ENUMERATION = "enumeration"
    LIST = "list"
    ASSIGNMENTS = "assignments"
    PRODUCTS = "products"
    ECHO = "echo"
    NUMBER_SALAD = "number_salad"
    QUANTITIES = "quantities"
    STRANGERS = "strangers"


DESCRIPTIONS: Final = {
    Attack.ENUMERATION: 'the lines "=0" to "=300"',
    Attack.LIST: "the list 0, 1, … 300",
    Attack.ASSIGNMENTS: 'the lines "x=0" to "x=300"',
    Attack.PRODUCTS: 'all small products, "1*1=1" onwards',
    Attack.ECHO: "the text of the problem itself",
    Attack.NUMBER_SALAD: "the problem's numbers combined by + - * /, and the results again",
    Attack.QUANTITIES: 'counting with the nouns behind the problem\'s numbers, "1 hours" onwards',
    Attack.STRANGERS: "rollouts of other problems of the same source: the level of chance",
}

LAST_ENUMERATED: Final = 300

# A question with more numbers than this has a table in it.
MAX_NUMBERS: Final = 16
# Of a result that is combined further; past it digits are no longer anybody's intermediate value.
MAX_VALUE: Final = 10**9
# Values have at most four decimals, and are counted in units of the last.
_ONE: Final = 10**4

MAX_NOUNS: Final = 4

_COUNTED: Final = re.compile(r"\d[ -]([a-z]{3,24})\b")
_NUMBER: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|(?<![\d.])\.\d+|[a-z]+")
_WHOLE: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "hundred": 100, "thousand": 1000, "dozen": 12, "twice": 2,
    "double": 2, "triple": 3,
}  # fmt: skip
_PARTS: Final = {"half": 2, "third": 3, "quarter": 4}
_WORDS: Final = {word: Fraction(value) for word, value in _WHOLE.items()} | {
    word: Fraction(1, value) for word, value in _PARTS.items()
}


def fixed_attacks(budget: int) -> dict[Attack, str]:
    """Return the attacks that are the same for every problem.

    Args:
        budget: characters of each text at most.
    """
    numbers = range(LAST_ENUMERATED + 1)
    return {
        Attack.ENUMERATION: _within(budget, (f"={value}" for value in numbers), "\n"),
        Attack.LIST: _within(budget, map(str, numbers), ", "),
        Attack.ASSIGNMENTS: _within(budget, (f"x={value}" for value in numbers), "\n"),
        Attack.PRODUCTS: _within(budget, _products(), "\n"),
    }


def number_salad(problem: str, budget: int) -> str:
    """Return true equations over the numbers of a problem's text, until the budget is spent.

    First every pair of numbers is combined, then results with numbers again, breadth first:
    what a policy would print that has learnt that equations pay.

    Args:
        problem: its text; figures and the commonest number words count.
        budget: characters at most.
    """
    return _within(budget, _combinations(numbers_in(problem)), "\n")


def quantities(problem: str, budget: int) -> str:
    """Return counted nouns of a problem's text ("1 hours, 1 miles, 2 hours, …") within a budget.

    What a policy would print that has learnt that numbers with the right word pay.

    Args:
        problem: its text; the words that follow its numbers are the nouns.
        budget: characters at most.
    """
    nouns = nouns_in(problem)
    counted = (f"{value} {noun}" for value in count(1) for noun in nouns)
    return _within(budget, counted if nouns else (), ", ")


def nouns_in(problem: str) -> list[str]:
    """Return the distinct words behind the numbers of a text in order, at most ``MAX_NOUNS``."""
    text = problem.lower()
    found = dict.fromkeys(match[1] for match in _COUNTED.finditer(text))
    if "$" in text:
        found["dollars"] = None
    return list(found)[:MAX_NOUNS]


def numbers_in(problem: str) -> list[Fraction]:
    """Return the distinct positive numbers of a text in order, at most ``MAX_NUMBERS``."""
    found: dict[Fraction, None] = {}
    for match in _NUMBER.finditer(problem.lower()):
        text = match[0].replace(",", "")
        if text[0].isalpha():
            value = _WORDS.get(text)
        elif not text.isascii() or len(text) > 12:
            continue
        else:
            value = Fraction(text)
        if value is not None and 0 < value <= MAX_VALUE:
            found[value] = None
            if len(found) == MAX_NUMBERS:
                break
    return list(found)


def _within(budget: int, pieces: Iterable[str], separator: str) -> str:
    taken: list[str] = []
    length = 0
    for piece in pieces:
        length += len(piece) + (len(separator) if taken else 0)
        if length > budget:
            break
        taken.append(piece)
    return separator.join(taken)


def _products() -> Iterator[str]:
    for larger in count(1):
        for smaller in range(1, larger + 1):
            yield f"{smaller}*{larger}={smaller * larger}"


def _combinations(numbers: list[Fraction]) -> Iterator[str]:
    """Yield equations level by level; ends when a level brings no new value.

    Values are whole multiples of 10^-4, as ints: fractions take ten times as long.
    """
    scaled = [number * _ONE for number in numbers]
    known = [number.numerator for number in scaled if number.denominator == 1]
    seen = set(known)
    level = known
    first = True
    while level:
        results: list[int] = []
        for place, left in enumerate(level):
            # The first level meets itself: a pair once, and a number with itself.
            for right in known[place:] if first else known:
                for equation, value in _equations(left, right):
                    yield equation
                    if value not in seen:
                        seen.add(value)
                        results.append(value)
        level, first = results, False


def _equations(left: int, right: int) -> Iterator[tuple[str, int]]:
    """Yield what two values come to where that is written with as few decimals."""
    a, b = _decimal(left), _decimal(right)
    larger, smaller = (a, b) if left >= right else (b, a)
    most, least = max(left, right), min(left, right)
    product, beyond = divmod(left * right, _ONE)
    if not beyond and 0 < product <= MAX_VALUE * _ONE:
        yield f"{a}*{b}={_decimal(product)}", product
    if left + right <= MAX_VALUE * _ONE:
        yield f"{a}+{b}={_decimal(left + right)}", left + right
    if most > least:
        yield f"{larger}-{smaller}={_decimal(most - least)}", most - least
    quotient, beyond = divmod(most * _ONE, least)
    if not beyond and quotient <= MAX_VALUE * _ONE:
        yield f"{larger}/{smaller}={_decimal(quotient)}", quotient
    quotient, beyond = divmod(least * _ONE, most)
    if not beyond and quotient:
        yield f"{smaller}/{larger}={_decimal(quotient)}", quotient


def _decimal(scaled: int) -> str:
    """Return a value as it is written."""
    whole, rest = divmod(scaled, _ONE)
    return f"{whole}.{rest:04d}".rstrip("0") if rest else str(whole)
