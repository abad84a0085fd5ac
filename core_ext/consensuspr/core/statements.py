"""What the statement channel reads: limits, words, keys; shared by both engines.

A *statement* is ``expression = value`` with an operation on at least one side, true in exact
arithmetic (``docs/concepts/statements.md``).  It reaches a node by its *key*: the exact value of
the side with the operation and the multiset of the magnitudes of its operands, without ones.
Both engines read the same language; the words and limits of that language stand here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

# --- limits -------------------------------------------------------------------------------

# Items (numbers, operators, brackets) on one side of a sign, and brackets inside one another.
MAX_SIDE: Final = 60
MAX_DEPTH: Final = 24
# A stretch without any stop (full stop, comma, blank line) is read in pieces of so many tokens
# that are no words.
MAX_STRETCH: Final = 256
# Words after a number that still belong to it: 12 eggs in a full carton.
MAX_UNIT_WORDS: Final = 6
# Characters of a unit in ideographs: 3公里.
MAX_IDEOGRAPHS: Final = 4
# Letters from which on an unknown word that touches its number is a unit: 5apples, but not 5ab.
MIN_GLUED: Final = 4
# Tokens of a bracketed remark after a number: 48 grains (1959 penny).
MAX_REMARK: Final = 12
# Words between "of" and its number: 20% of the remaining 45.
MAX_OF_WORDS: Final = 4
# Digits of one number; with the exact arithmetic in 64 bits on both sides of the fraction bar.
MAX_DIGITS: Final = 18
MAX_INT: Final = (1 << 63) - 1
MAX_EXPONENT: Final = 63
# Names of all code of one text that are remembered, and the tokens of one of its lines.
MAX_NAMES: Final = 1024
MAX_LINE: Final = 256
# Characters before a sign that name what it says: Total cost = ...
MAX_NAMED: Final = 64
# Of so many distinct equations (value and operands) at least one value is counted: a text that
# writes each value in many ways would be counted for few.  Honest solutions write 1.3 (GSM8K) to
# 2.1 (long thinking) equations a value, 99 in 100 of them.
EQUATIONS_A_VALUE: Final = 2
# Left out of that name.
UNNAMED: Final = " $*`&()[]{}\\"
# Characters of a subscript that belongs to a name: x_{max}.
MAX_SUBSCRIPT: Final = 12
# Characters of the argument of a command that is passed over, and which ones it may have.
MAX_ARGUMENT: Final = 40
ARGUMENT: Final = "A-Za-z0-9_+*/^()=:.@-"


class Meaning(IntEnum):
    """What a lower-cased word is for the reader of prose."""

    PLAIN = 0
    STOP = 1  # ends whatever was being said
    VERB = 2  # stands for the equals sign where an operation is on its left
    FILLER = 3  # may stand between a sign or verb and its number
    ROUGHLY = 4  # a filler that makes the sign an approximate one
    PLUS = 5
    MINUS = 6
    TIMES = 7
    DIVIDED = 8  # "divided by"
    MULTIPLIED = 9
    BY = 10
    OF = 11
    PERCENT = 12
    UNIT = 13  # belongs to a number even where it touches it: 5cm
    EQUAL = 14  # a verb of its own, and a filler after one: "is equal to"
    PART = 15  # half of, a third of
    MANIFOLD = 16  # twice


PARTS: Final = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "tenth": 10}
MANIFOLDS: Final = {"twice": 2, "double": 2, "thrice": 3, "triple": 3}


def _words() -> dict[str, Meaning]:
    table: dict[str, Meaning] = {}

    def put(words: str, meaning: Meaning) -> None:
        for word in words.split():
            table[word] = meaning

    put(
        "and or so then which that but because since if when while we he she they i it you have "
        "has had there this these those let not therefore thus hence now next means also where "
        "what how can will would should do does did than as be been who whose why",
        Meaning.STOP,
    )
    put("is are was were equals gives give makes make leaves leave totals yields", Meaning.VERB)
    put("equal", Meaning.EQUAL)
    put("to a an the total of exactly only just us you", Meaning.FILLER)
    put("about approximately roughly around nearly almost", Meaning.ROUGHLY)
    table["plus"] = Meaning.PLUS
    table["minus"] = Meaning.MINUS
    table["times"] = Meaning.TIMES
    table["divided"] = Meaning.DIVIDED
    table["multiplied"] = Meaning.MULTIPLIED
    table["by"] = Meaning.BY
    table["of"] = Meaning.OF
    table["percent"] = Meaning.PERCENT
    put(
        "g kg kgs mg m cm mm km mi ft in yd l ml cl dl oz lb lbs s h sec secs min mins hr hrs "
        "mph kph gb mb kb tb usd eur gbp cents pt qt gal",
        Meaning.UNIT,
    )
    put(" ".join(PARTS), Meaning.PART)
    put(" ".join(MANIFOLDS), Meaning.MANIFOLD)
    return table


WORDS: Final[dict[str, Meaning]] = _words()


# Fenced code in these languages is read as Python; fences without one where it plainly is.
CODE_LANGUAGES: Final = ("python", "py", "python3", "sage", "tool_code", "repl", "ipython")


class Key(NamedTuple):
    """What makes a statement reach a node.

    Attributes:
        value: (numerator, denominator) of the side with the operation, reduced.
        operands: its operands' magnitudes as such pairs, sorted, ones left out.
    """

    value: tuple[int, int]
    operands: tuple[tuple[int, int], ...]


_MASK: Final = (1 << 64) - 1


def operands_hash(operands: Iterable[tuple[int, int]]) -> int:
    """Return the hash of a multiset of operands by which the compiled reader knows it."""
    return sum(_fraction_hash(*operand) for operand in operands) & _MASK


def key_hash(key: Key) -> int:
    """Return the hash by which the compiled reader knows a key; never 0."""
    operands = operands_hash(key.operands) * 0xD6E8FEB86659FD93 & _MASK
    return mixed(_fraction_hash(*key.value) ^ operands) or 1


def _fraction_hash(numerator: int, denominator: int) -> int:
    return mixed(numerator * 0x9E3779B97F4A7C15 + mixed(denominator))


def mixed(value: int) -> int:
    """Return 64 bits that depend on every bit of ``value`` (the last steps of splitmix64)."""
    value &= _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def is_computed(code: str) -> bool:
    """Tell whether statements of code reach nodes without their results.

    Args:
        code: "written" if the text has to write the result as a number too, or "computed".

    Raises:
        ValueError: it is neither.
    """
    if code not in ("written", "computed"):
        raise ValueError(f"code must be 'written' or 'computed', got {code!r}")
    return code == "computed"


class TrueStatement(NamedTuple):
    """A true statement, or a part of one, with its place in the text.

    Attributes:
        key: see :class:`Key`.
        start: first byte of the statement.
        end: byte after its last one.
        whole: it is a whole side, not a part of it; only such make a node's keys.
        code: it was read from program code.
        written: its result is shown.  A result of code is shown only if the text writes it as a
            number: in prose, a comment, a string or a later line of code.
    """

    key: Key
    start: int
    end: int
    whole: bool
    code: bool
    written: bool
