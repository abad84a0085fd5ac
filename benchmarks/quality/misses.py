"""Why a right solution misses a gold equation: a sorting by rules.

Each miss gets the first kind whose test it passes.  The tests look at the equation's
numbers, at the raw text and at its normal form; they are coarse, and ``docs/quality.md``
says what reading a sample showed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from benchmarks.quality.run import Miss
from consensuspr.core import derive_forms, normalize
from consensuspr.core.expansion.evaluate import evaluate
from consensuspr.core.expansion.statement import parse_statement

_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))")
_SENTENCE = re.compile(r"\n|(?<=[.!?])\s")
_SHARE = re.compile(
    rf"({_NUMBER})\s*(?:\\?%|percent)|(\d+)\s*/\s*(\d+)|\\d?frac\{{(\d+)\}}\{{(\d+)\}}"
)

# Signs with what may stand between them and their numbers: words, units, typesetting.
_SIGNS = {
    "+": r"\+",
    "-": r"[-−–]",
    "*": r"(?:\*|×|\\times|\\cdot|[xX])",
    "/": r"(?:/|÷|\\div|\}\s*\{)",
}
_WORDED = {
    "+": r"(?:plus|and|more|added)",
    "-": r"(?:minus|less|from|subtract|remain|left)",
    "*": r"(?:times|multipl|each|of|per|by|every|twice|half)",
    "/": r"(?:divid|into|per|each|by|of)",
}
_GAP = r"[^\d\n=]{0,60}?"


@dataclass
class Case:
    """A miss with what the tests look at."""

    miss: Miss

    @cached_property
    def equation(self) -> str:
        """The gold equation."""
        return self.miss.node.expressions[0]

    @cached_property
    def left(self) -> str:
        """Its left side."""
        return self.equation.rpartition("=")[0].lstrip("+")

    @cached_property
    def value(self) -> Fraction:
        """Its right side."""
        return Fraction(self.equation.rpartition("=")[2])

    @cached_property
    def operands(self) -> list[Fraction]:
        """The numbers of its left side."""
        return [Fraction(number) for number in re.findall(_NUMBER, self.left)]

    @cached_property
    def text(self) -> str:
        """The response without thousands separators."""
        return _THOUSANDS.sub("", self.miss.response.text)

    @cached_property
    def sentences(self) -> list[tuple[str, set[Fraction]]]:
        """Its sentences and lines, with the numbers that they hold."""
        return [(part, _numbers(part)) for part in _SENTENCE.split(self.text)]

    @cached_property
    def numbers(self) -> set[Fraction]:
        """All numbers that it holds."""
        return set().union(*(numbers for _, numbers in self.sentences))

    @cached_property
    def normal(self) -> str:
        """Its normal form."""
        return normalize(self.miss.response.text)


def _numbers(text: str) -> set[Fraction]:
    return {Fraction(number) for number in re.findall(_NUMBER, text)}


def _number_pattern(text: str) -> str:
    """Return a pattern of a number in any of its decimal spellings, standing alone."""
    value = Fraction(text)
    whole, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0")
    fraction = rf"\.{decimals}0*" if decimals else r"(?:\.0+)?"
    return rf"(?<![\d.]){'0?' if value < 1 else whole.lstrip('0')}{fraction}(?![\d]|\.\d)"


@lru_cache(maxsize=4096)
def _binary_patterns(equation: str) -> tuple[re.Pattern[str], re.Pattern[str]] | None:
    """Return patterns of ``a op b = v`` with words between, and of the operation in words."""
    match = re.fullmatch(rf"({_NUMBER})([-+*/])({_NUMBER})=({_NUMBER})", equation)
    if match is None:
        return None
    first, sign, second, value = match.groups()
    a, b, v = map(_number_pattern, (first, second, value))
    orders = [(a, b), (b, a)] if sign in "+*" else [(a, b)]
    signed = "|".join(f"{x}{_GAP}{_SIGNS[sign]}{_GAP}{y}{_GAP}={_GAP}{v}" for x, y in orders)
    orders = [(a, b), (b, a)]
    worded = "|".join(f"{x}{_GAP}{_WORDED[sign]}{_GAP}{y}{_GAP}{v}" for x, y in orders)
    return re.compile(signed), re.compile(worded)


@lru_cache(maxsize=4096)
def _left_forms(left: str) -> tuple[str, ...]:
    return tuple(normalize(form) for form in (left, *derive_forms(left)))


def _no_operation(case: Case) -> bool:
    return not re.search(r"[-+*/]", case.left)


def _rounded(case: Case) -> bool:
    statement = parse_statement(case.left)
    return statement is not None and evaluate(statement.sides[0]) != case.value


def _words_between(case: Case) -> bool:
    patterns = _binary_patterns(case.equation)
    return patterns is not None and patterns[0].search(case.text) is not None


def _operation_in_words(case: Case) -> bool:
    patterns = _binary_patterns(case.equation)
    return patterns is not None and any(
        case.value in numbers and patterns[1].search(sentence)
        for sentence, numbers in case.sentences
        if "=" not in sentence
    )


def _operation_found(case: Case) -> list[tuple[str, str]]:
    """Return what stands left and right of each place where the operation is written."""
    return [
        (case.normal[: match.start()][-1:], case.normal[match.end() :][:1])
        for form in _left_forms(case.left)
        for match in re.finditer(rf"(?<![\d.]){re.escape(form)}(?![\d]|\.\d)", case.normal)
    ]


def _inside_longer(case: Case) -> bool:
    return any(
        (left and left in "+-*/(^") or (right and right in "+-*/)^")
        for left, right in _operation_found(case)
    )


def _without_result(case: Case) -> bool:
    return bool(_operation_found(case))


def _other_share(case: Case) -> bool:
    shares = set()
    for percent, above, below, upper, lower in _SHARE.findall(case.text):
        if percent:
            shares |= {Fraction(percent) / 100, 1 - Fraction(percent) / 100}
        elif int(below or lower):
            shares.add(Fraction(int(above or upper), int(below or lower)))
    absent = [number for number in case.operands if number not in case.numbers]
    if not absent or case.value not in case.numbers:
        return False
    return all(number and (number in shares or 1 / number in shares) for number in absent)


def _other_numbers(case: Case) -> bool:
    results = re.findall(rf"=\s*({_NUMBER})(?![\d]|\.\d)", case.normal)
    return case.value in {Fraction(number) for number in results}


def _stated_only(case: Case) -> bool:
    return case.value in case.numbers


KINDS: dict[str, Callable[[Case], bool]] = {
    "gold node without an operation": _no_operation,
    "gold result rounded": _rounded,
    "words or units between the numbers": _words_between,
    "operation in words": _operation_in_words,
    "part of a longer expression": _inside_longer,
    "operation without its result beside it": _without_result,
    "another share (fraction, percent)": _other_share,
    "same result from other numbers": _other_numbers,
    "result stated without an equation": _stated_only,
    "result never stated": lambda case: True,
}


def kind_of(miss: Miss) -> str:
    """Return the first kind whose test the miss passes."""
    case = Case(miss)
    return next(kind for kind, test in KINDS.items() if test(case))


def count_kinds(misses: Iterable[Miss]) -> dict[str, Counter[str]]:
    """Return the number of misses of each kind, by file of rollouts."""
    counts: dict[str, Counter[str]] = {}
    for miss in misses:
        counts.setdefault(miss.file, Counter())[kind_of(miss)] += 1
    return counts
