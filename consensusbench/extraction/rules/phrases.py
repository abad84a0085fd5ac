"""Numbers in prose: ``30 minutes`` and ``earns 30``, and numbers that are distinctive alone.

Many a solution says in words what another writes as an equation ("that leaves 30 minutes").
A phrase is never a conclusion of its own, only another wording of one that a formula gives;
a bare number is one where it is distinctive.  Numbers of the problem itself are no wording:
to repeat them is no step.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from consensusbench.extraction.rules.chains import prose_of
from consensuspr.core import normalize

# Beside a number these name no quantity.
_STOP_WORDS = frozenset(
    "and or nor of the a an in on at to for from by with is are was were be been as that this "
    "these those so then thus hence which who whom whose he she they it its we you i each per "
    "every more less fewer times than if but when because since into onto out up down over "
    "under again left total altogether remaining after before has have had not no also only "
    "will would can could must do does did done him her his their our your my all both either "
    "one two three four five six seven eight nine ten first second third last next there here "
    "where while during plus minus divided multiplied multiply equals equal gives give given "
    "get gets got yields makes answer step around about approximately nearly almost just "
    "exactly problem question part case line option number numbers value values result results "
    "means mean let find therefore now already still another other others same such what how "
    "many much".split()
)  # fmt: skip

_NUMBER = r"\d{1,18}(?:\.\d{1,9})?"
_WORD = r"[a-z][a-z'-]{1,31}"
_AFTER = re.compile(rf"(?<![\w.,/*+^√-])({_NUMBER}) ({_WORD})(?: ({_WORD}))?(?![\w'-])")
_BEFORE = re.compile(rf"(?<![\w'-])({_WORD}) ({_NUMBER})(?![\w/*+^=√-]|\.\d|,\d)")
_BARE = re.compile(rf"(?<![\w.])({_NUMBER})(?!\w|\.\d)")

# "1 use", "2 possibilities": words that any text may hold.
MIN_COUNTED = 3

# Digits from which on a number is unlikely to turn up by chance; 125 is among the numbers
# that counting to 300 prints, so that a whole number needs one digit more.
MIN_SIGNIFICANT_DIGITS = 3
MIN_DISTINCTIVE_WHOLE = 1000


class Phrase(NamedTuple):
    """A number of a response with the words that make it a quantity.

    Attributes:
        value: the number.
        words: the phrase as it stands in the normal form.
        position: of its first mention, as a share of the normal form.
        is_bare: the number stands alone.
    """

    value: Fraction
    words: str
    position: float
    is_bare: bool


def read_phrases(response: str, limit: int) -> list[Phrase]:
    """Return the distinct phrases and distinctive numbers of a response.

    Args:
        response: its text.
        limit: on the numbers with a word behind them, with a word before them and alone that
            are looked at, each from the beginning.
    """
    normal = normalize(prose_of(response))
    found: dict[str, Phrase] = {}

    def add(number: str, words: str, start: int, is_bare: bool = False) -> None:
        value = Fraction(number)
        if words not in found and (value.denominator > 1 or value >= MIN_COUNTED):
            found[words] = Phrase(value, words, start / len(normal), is_bare)

    for match in islice(_AFTER.finditer(normal), limit):
        number, noun, second = match.groups()
        if noun not in _STOP_WORDS:
            add(number, f"{number} {noun}", match.start())
        elif noun == "per" and second is not None:
            add(number, f"{number} {noun} {second}", match.start())
    for match in islice(_BEFORE.finditer(normal), limit):
        if match[1] not in _STOP_WORDS and not is_small(Fraction(match[2])):
            add(match[2], match[0], match.start())
    for match in islice(_BARE.finditer(normal), limit):
        if is_distinctive(match[1]):
            add(match[1], match[1], match.start(), is_bare=True)
    return list(found.values())


def is_small(value: Fraction) -> bool:
    """Tell whether a number is a digit, which stands beside many a word by chance."""
    return value.denominator == 1 and value < 10


def is_distinctive(number: str) -> bool:
    """Tell whether a number is unlikely to be printed by chance or by counting."""
    digits = number.replace(".", "").lstrip("0")
    if "." not in number:
        digits = digits.rstrip("0")
        return len(digits) >= MIN_SIGNIFICANT_DIGITS and int(number) >= MIN_DISTINCTIVE_WHOLE
    return len(digits) >= MIN_SIGNIFICANT_DIGITS


def numbers_of(text: str) -> frozenset[Fraction]:
    """Return the numbers that a text holds, as its normal form spells them."""
    return frozenset(Fraction(number) for number in re.findall(_NUMBER, normalize(text)))
