"""Texts that solve nothing and may still hit nodes: the attacks of the probes.

All texts are deterministic and use no nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from consensuspr.core.algebra import KEYS_AN_EQUATION
from consensuspr.scoring.guard import GuardBudget

# The text of an equation and what it states: its value in units of 10^-4, or its number.
Equation: TypeAlias = tuple[str, int]


class Attack(StrEnum):
    """A way to earn nodes without solving the problem."""

    VALUES = "values"
    QUANTITIES = "quantities"
    PAIRS = "pairs"
    DEEP = "deep"
    COMMENTS = "comments"
    PRINTED = "printed"
    LETTERS = "letters"
    SUMS = "sums"
    GRID = "grid"
    UNRELATED = "unrelated"


DESCRIPTIONS: Final = {
    Attack.VALUES: 'common values: the lines "=1" to "=300", and 40 larger values',
    Attack.QUANTITIES: 'counting with the nouns behind the problem\'s numbers, "1 hours" onwards',
    Attack.PAIRS: "pairs of the problem's numbers combined by + - * /",
    Attack.DEEP: "pairs of pairs: the results of all pairs combined with all numbers and results",
    Attack.COMMENTS: "pairs of pairs in Python comments",
    Attack.PRINTED: "pairs of pairs in strings that Python prints",
    Attack.LETTERS: "x = 2 to x = 40, for each letter of the problem",
    Attack.SUMS: "x + y = 1 to x + y = 99, with two letters of the problem",
    Attack.GRID: "ax + by = c: a and b from 1 to 5, c from 1 to 12, with the same letters",
    Attack.UNRELATED: "rollouts of other problems of the same source: the level of chance",
}

# NCR from which on an attack is reported without wrong rollouts to compare it with; competition
# problems stay below.
BOUNDS: Final = {
    Attack.VALUES: 0.07,
    Attack.LETTERS: 0.05,
    Attack.SUMS: 0.02,
    Attack.GRID: 0.025,
}
LAST_ENUMERATED: Final = 300
# Larger values that competition problems have.
COMMON_VALUES: Final = (
    324, 343, 360, 361, 400, 432, 441, 484, 500, 512, 529, 540, 576, 600, 625, 648, 676, 720, 729,
    784, 800, 841, 864, 900, 961, 1000, 1023, 1024, 1296, 1331, 1728, 2000, 2023, 2024, 2025, 2048,
    2187, 4096, 5040, 10000,
)  # fmt: skip
# Of an attack two steps deep: some five thousand tokens.
MAX_DEEP_CHARS: Final = 1 << 14
# A build measures shorter attacks on each problem.
SHORT_CHARS: Final = 500
SHORT_DEEP_CHARS: Final = 1 << 12

# A question with more numbers than this has a table in it.
MAX_NUMBERS: Final = 16
MAX_NOUNS: Final = 4
# Of a result that is combined further.
MAX_VALUE: Final = 10**9
_ONE: Final = 10**4

MAX_LETTERS: Final = 4
_FORMULA: Final = re.compile(r"\$([^$]{1,400})\$|\\\((.{1,400}?)\\\)", re.DOTALL)
_COMMAND: Final = re.compile(r"\\[A-Za-z]+")
_LETTER: Final = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
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
_WRITTEN: Final = re.compile(r"\d+(?:\.\d+)?")


class AttackText(NamedTuple):
    """One attack on one problem.

    Attributes:
        text: all of it.
        within: what of it keeps to the guard's budget, as a careful attacker would; the same text
            if it is the guard that has to count it.
    """

    attack: Attack
    text: str
    within: str


def attacks_on(problem: str, budget: GuardBudget, chars: int) -> Iterator[AttackText]:
    """Yield the attacks on a problem; without its text only the values.

    Args:
        budget: what the guard allows.
        chars: length of the attack that could go on without end.
    """
    yield _cut(Attack.VALUES, values(), budget.statements, budget.numbers)
    if not problem.strip():
        return
    numbers = numbers_in(problem)
    counting = quantities(problem, chars)
    yield AttackText(Attack.QUANTITIES, counting, counting)
    yield _cut(Attack.PAIRS, pairs_of(numbers), budget.statements, budget.numbers)
    deep = pairs_of_pairs(numbers)
    for attack, text in ((Attack.DEEP, prose(deep)), *wrapped(deep)):
        yield AttackText(attack, text, text)
    letters = letters_in(problem)
    for attack, lines in (
        (Attack.LETTERS, [f"{x} = {c}" for x in letters for c in range(2, 41)]),
        (Attack.SUMS, [f"{letters[0]} + {letters[1]} = {c}" for c in range(1, 100)]),
        (Attack.GRID, grid(*letters[:2])),
    ):
        equations = [(line, at) for at, line in enumerate(lines)]
        # Each line is one key.
        yield _cut(attack, equations, KEYS_AN_EQUATION * budget.equations, budget.numbers)


def _cut(
    attack: Attack, equations: Sequence[Equation], stated: float, numbers: float
) -> AttackText:
    return AttackText(attack, prose(equations), prose(within_budget(equations, stated, numbers)))


def short_attacks(problem: str, guard_budget: tuple[float, ...]) -> Iterator[tuple[Attack, str]]:
    """Yield the attacks on a problem that a build measures."""
    if problem.strip():
        numbers = numbers_in(problem)
        yield Attack.QUANTITIES, quantities(problem, SHORT_CHARS)
        yield Attack.PAIRS, prose(within_budget(pairs_of(numbers), *guard_budget[:2]))
        yield from wrapped(pairs_of_pairs(numbers, SHORT_DEEP_CHARS))


def values() -> list[Equation]:
    """Return "=1" to "=300", which solutions of any problem hold, and larger values."""
    return [(f"={value}", 0) for value in (*range(1, LAST_ENUMERATED + 1), *COMMON_VALUES)]


def letters_in(problem: str) -> list[str]:
    """Return the distinct letters of a text's formulas, then x and y; 2 to ``MAX_LETTERS``."""
    formulas = "\n".join(a or b for a, b in _FORMULA.findall(problem))
    found = dict.fromkeys(_LETTER.findall(_COMMAND.sub(" ", formulas)))
    return list(found | {"x": None, "y": None})[:MAX_LETTERS]


def grid(x: str, y: str) -> list[str]:
    """Return the lines of ax + by = c."""
    steps = range(1, 6)
    return [f"{a}{x} + {b}{y} = {c}" for a in steps for b in steps for c in range(1, 13)]


def quantities(problem: str, chars: int) -> str:
    """Return counted nouns of a problem's text: "1 hours, 1 miles, 2 hours, …"."""
    nouns = nouns_in(problem)
    counted = (f"{value} {noun}" for value in count(1) for noun in nouns)
    return _within(chars, counted if nouns else (), ", ")


def _within(chars: int, pieces: Iterable[str], separator: str) -> str:
    taken: list[str] = []
    for piece in pieces:
        chars -= len(piece) + len(separator)
        if chars + len(separator) < 0:
            break
        taken.append(piece)
    return separator.join(taken)


def nouns_in(problem: str) -> list[str]:
    """Return the distinct words behind the numbers of a text, at most ``MAX_NOUNS``."""
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
        if value is not None and 0 < value <= MAX_VALUE and len(found) < MAX_NUMBERS:
            found[value] = None
    return list(found)


def pairs_of(numbers: list[Fraction]) -> list[Equation]:
    """Return every pair of numbers combined."""
    return _combined(numbers, 1, MAX_DEEP_CHARS)


def pairs_of_pairs(numbers: list[Fraction], chars: int = MAX_DEEP_CHARS) -> list[Equation]:
    """Return every pair of numbers combined, and the results with all of these."""
    return _combined(numbers, 2, chars)


def prose(equations: Iterable[Equation]) -> str:
    """Return a line for each equation."""
    return "\n".join(text for text, _ in equations)


def wrapped(equations: Sequence[Equation]) -> Iterator[tuple[Attack, str]]:
    """Yield the same lines in wrappers that the guard may fail to count."""
    yield Attack.COMMENTS, _fenced(f"# {text}" for text, _ in equations)
    yield Attack.PRINTED, _fenced(f"print('{text}')" for text, _ in equations)


def _fenced(lines: Iterable[str]) -> str:
    return "\n".join(["```python", *lines, "```"])


def within_budget(
    equations: Sequence[Equation], statements: float, numbers: float
) -> Sequence[Equation]:
    """Return the first equations, as many as a budget of the guard allows."""
    values: set[int] = set()
    written: set[str] = set()
    for at, (text, value) in enumerate(equations):
        values.add(value)
        written.update(_WRITTEN.findall(text))
        if len(values) > statements or len(written) > numbers:
            return equations[:at]
    return equations


def _combined(numbers: list[Fraction], depth: int, chars: int) -> list[Equation]:
    """Return equations in levels, each of which combines all results before it.

    Values are ints in units of 10^-4, because fractions take ten times as long.
    """
    scaled = [number * _ONE for number in numbers]
    level = [number.numerator for number in scaled if number.denominator == 1]
    seen = dict.fromkeys(level)
    made: list[Equation] = []
    for done in range(depth):
        results: list[int] = []
        known = list(seen)
        for place, left in enumerate(level):
            # In the first level each pair is met once, and each number with itself.
            for right in known if done else known[place:]:
                for text, value in _equations(left, right):
                    chars -= len(text) + 1
                    if chars < 0:
                        return made
                    made.append((text, value))
                    if value not in seen:
                        seen[value] = None
                        results.append(value)
        level = results
    return made


def _equations(left: int, right: int) -> Iterator[Equation]:
    """Yield the results of two values that have at most four decimals."""
    a, b = _decimal(left), _decimal(right)
    larger, smaller = (a, b) if left >= right else (b, a)
    most, least = max(left, right), min(left, right)
    limit = MAX_VALUE * _ONE
    product, beyond = divmod(left * right, _ONE)
    if not beyond and 0 < product <= limit:
        yield f"{a}*{b}={_decimal(product)}", product
    if left + right <= limit:
        yield f"{a}+{b}={_decimal(left + right)}", left + right
    if most > least:
        yield f"{larger}-{smaller}={_decimal(most - least)}", most - least
    quotient, beyond = divmod(most * _ONE, least)
    if not beyond and quotient <= limit:
        yield f"{larger}/{smaller}={_decimal(quotient)}", quotient
    quotient, beyond = divmod(least * _ONE, most)
    if not beyond and quotient:
        yield f"{smaller}/{larger}={_decimal(quotient)}", quotient


def _decimal(scaled: int) -> str:
    whole, decimals = divmod(scaled, _ONE)
    return f"{whole}.{decimals:04d}".rstrip("0") if decimals else str(whole)
