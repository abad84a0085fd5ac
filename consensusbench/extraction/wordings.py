"""Wordings that no node should have: false, garbled, or words that name nothing.

::

    from consensusbench.extraction.wordings import fault_of

    fault_of("25 + 8 = **33**")  # Fault.MARKUP
    fault_of("2=C(4,2)C(6,2)")  # Fault.FALSE
    fault_of("25 + 8 = 33")  # None

Everything here is a pure function of the text, linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from consensusbench.extraction.statements import (
    Truth,
    cut_outside_brackets,
    lonely_brackets,
    normal_form,
    truth_of,
)
from consensuspr.core import Matcher
from consensuspr.core.pure.algebra.sides import Side, read_side


class Fault(StrEnum):
    """What is wrong with a wording, in words that complete "a wording with …"."""

    FALSE = "a false equality"
    BRACKET = "an unpaired bracket"
    MARKUP = "stray markup"
    OPERATOR = "a dangling operator"
    WORDS = "words that name nothing"


# A number with only these words states no conclusion.
_JUNK: Final = frozenset(
    "and or nor of the a an in on at to for from by with as that this these those so then thus "
    "hence which who whom whose he she they it its we us me you i than if but when because since "
    "into onto out up down over under again before have has had not no also will would can could "
    "do does did done him her his their our your my here where while during now already still "
    "another other others same such what how mod modulo wait hmm ok okay well yes that's it's "
    "there's here's let's i'll ensure ensures".split()
)
# Words that name no quantity beside a number.
STOP_WORDS: Final = _JUNK.union(
    "is are was were be been each per every more less fewer times left total altogether remaining "
    "after only must both either all one two three four five six seven eight nine ten first "
    "second third last next there plus minus divided multiplied multiply equals equal gives give "
    "given get gets got yields makes answer step around about approximately nearly almost just "
    "exactly problem question part case line option number numbers value values result results "
    "means mean let find therefore much many divide dividing subtract subtracting add adding "
    "multiplying convert converting calculate calculating compute round rounding".split()
)
# Words that leave a statement unfinished at its end, or join it to another one at its beginning.
_OPEN_ENDS: Final = frozenset(
    "and or nor of the an in on at to for from by with is are was were be as that this these so "
    "then thus hence which who if but when because since into while where we mod modulo than not "
    "therefore let find get gives give".split()
)
_JOINING: Final = frozenset(
    "and or so then thus hence which but because since if when where while therefore".split()
)

# Longer statements are not evaluated.
MAX_CHARS: Final = 512

_RELATIONS: Final = "=<>≤≥≈≡≠"
_RELATION: Final = re.compile(f"[{_RELATIONS}]")
# [0,1) and (2,5] are intervals.
_INTERVAL: Final = re.compile(r"\[[^][()]{1,80},[^][()]{1,80}\)|\([^][()]{1,80},[^][()]{1,80}\]")
_LEFT: Final = re.compile(r"\\left(?![A-Za-z])")
_RIGHT: Final = re.compile(r"\\right(?![A-Za-z])")
_HALF_OPEN: Final = re.compile(r"\\(?:left|right)\s*\.")
_ENVIRONMENT: Final = re.compile(r"\\(?:begin|end)\{")
_MARKUP: Final = re.compile(
    r"`|\A\s*#{1,6}\s|\\(?:tag|label|hline)\b|</?(?:br|b|i|em|strong|p|div|span|su[bp]|code)\s*/?>"
    # Bold text, but not a power in Python: 2**3.
    r"|(?:\A|[^\w)\]}\s])\s{0,8}\*\*|\*\*(?=\s{0,8}(?:\Z|[^\w(\[{\\√.\s+-]))"
)
_ALIGNED: Final = re.compile(r"(?<!\\)&|\\\\")
_DISPLAY: Final = re.compile(r"[^\s$]\s*\$\$[\s$]*[^\s$]")
_AMOUNT: Final = re.compile(r"\\\$|\$(?=\s?[\d.])|(?<=\d)\$")
_OPERATORLESS: Final = re.compile(
    rf"\A[*/^<>≤≥≠]|[-+*/^√{_RELATIONS}]\Z"
    rf"|[-+*/√][*/{_RELATIONS}]|[{_RELATIONS}][*/^{_RELATIONS}]|[(\[][*/]|[-+*/√][)\]]"
)
_WORD: Final = re.compile(r"[a-z][a-z'-]*")
_NUMBER: Final = re.compile(r"\d[\d.]*")
_PROSE: Final = re.compile(r"[a-z'\d.,$ -]+")
_COMMAND: Final = re.compile(r"\\[A-Za-z]+")
# Letters that may make a unit of a number, beside those of C(4,2).
_UNIT: Final = re.compile(r"(?!mod|C\()(?<![A-Za-z])[A-Za-z]{2,}|\d\s+(?!C\()[A-Za-z](?![A-Za-z])")
_LETTERS: Final = re.compile(
    r"(?!sin|cos|tan|log|ln|C\()(?:[A-Za-z]{1,3}'?|[α-ωΑ-Ω])(?:_\w{1,4}|\d{1,2})?|∠[A-Za-z]{1,3}"
)
_LONG_NAME: Final = re.compile(r"(?<![A-Za-z])(?!sin|cos|tan|log)[A-Za-z]{4,}| ")
_SMALL: Final = re.compile(r"-?\d{1,2}")
_PRODUCT: Final = re.compile(rf"{_NUMBER.pattern}(?:\*{_NUMBER.pattern})+")
_SUM: Final = re.compile(rf"{_NUMBER.pattern}(?:\+{_NUMBER.pattern})+")
_CALL: Final = re.compile(
    r"(?:[A-Za-z]{1,4}'?(?:_\w{1,4})?\([^()A-Za-z]{1,40}\)|(?:sin|cos|tan|log|ln)[\w^*π.]{1,40})"
)
# Signs that truth_of does not read.
_BEYOND_ARITHMETIC: Final = re.compile(r"C\(|[!√≡]| mod ")
_ROUNDED: Final = re.compile(r"\d\.\d|%|≈|\.\.")
_MODULO: Final = re.compile(r" mod (\d{1,9})\Z")


def fault_of(wording: str) -> Fault | None:
    """Return what is wrong with a wording, the first in the order of :class:`Fault`.

    Args:
        wording: of a node, plain text or LaTeX.

    Returns:
        None for a sound wording, and for one that cannot be read or decided.
    """
    normal = normal_form(wording)
    if is_false(wording):
        return Fault.FALSE
    if _HALF_OPEN.search(wording) is None and lonely_brackets(_INTERVAL.sub("", wording)):
        return Fault.BRACKET
    if len(_LEFT.findall(wording)) != len(_RIGHT.findall(wording)):
        return Fault.BRACKET
    if _has_markup(wording):
        return Fault.MARKUP
    if ".." not in wording[-4:] and _OPERATORLESS.search(normal):
        return Fault.OPERATOR
    return Fault.WORDS if _names_nothing(normal) else None


def _has_markup(wording: str) -> bool:
    if _MARKUP.search(wording) or _DISPLAY.search(wording):
        return True
    if _ALIGNED.search(wording) and not _ENVIRONMENT.search(wording):
        return True
    # An odd number of dollar signs, those of amounts aside: $5 + $3 = $8.
    return wording.count("$") % 2 == 1 == _AMOUNT.sub("", wording).count("$") % 2


def _names_nothing(normal: str) -> bool:
    """Return whether a number stands with stop words alone, or a statement ends in one."""
    lowered = normal.lower()
    tokens = lowered.split()
    if not tokens:
        return False
    if _RELATION.search(lowered):
        return tokens[0] in _JOINING or tokens[-1] in _OPEN_ENDS
    words = _WORD.findall(lowered)
    # Several numbers are a list: 110, 134 and 179.
    if not words or not _PROSE.fullmatch(lowered) or len(_NUMBER.findall(lowered)) > 1:
        return False
    # A letter is a quantity: 2i.
    return all(
        len(word) > 1 and (word in _JUNK or (word.endswith("ly") and word not in STOP_WORDS))
        for word in words
    )


def is_false(wording: str) -> bool:
    """Return whether exact arithmetic refutes a wording, binomials and congruences included."""
    truth = truth_of(wording)
    normal = normal_form(wording)
    if truth is not Truth.UNCHECKED or len(normal) > MAX_CHARS:
        return truth is Truth.FALSE
    if not _BEYOND_ARITHMETIC.search(normal):
        return False
    # A word may be a unit: 2 dozen = 24.
    if _UNIT.search(_COMMAND.sub("", wording)):
        return False
    if _ROUNDED.search(normal) or not set(_RELATION.findall(normal)) <= {"=", "≡"}:
        return False
    modulo = _MODULO.search(normal)
    pieces = list(cut_outside_brackets(normal[: modulo.start()] if modulo else normal, "=≡,;"))
    if any(sign in ",;" for _, sign in pieces if sign):
        return False
    known = [value for value in (_value_of(text) for text, _ in pieces) if value is not None]
    if "≡" not in normal and modulo is None:
        return len(set(known)) > 1
    if modulo is None or any(value.denominator > 1 for value in known):
        return False
    return any((a - b) % max(1, int(modulo[1])) for a, b in pairwise(known))


def _side(text: str) -> Side | None:
    return read_side(text.encode("utf-8", "surrogatepass"))


def _value_of(text: str) -> Fraction | None:
    side = _side(text)
    return side.exact[-1] if side is not None and side.is_closed else None


class _Kind(StrEnum):
    LETTER = "letter"  # u, OP
    CALL = "call"  # h(1/4)
    COMPOUND = "compound"  # a^2+2ab
    CLOSED = "closed"  # C(4,4)
    PRODUCT = "product"  # 24*3
    SUM = "sum"  # 48+24, and not 24+24+24


# Two sides of these kinds share a whole value below the limit by chance.
_BY_CHANCE: Final = {
    (_Kind.CALL, _Kind.CALL): 10,
    (_Kind.CALL, _Kind.COMPOUND): 10,
    (_Kind.CALL, _Kind.LETTER): 10,
    (_Kind.COMPOUND, _Kind.LETTER): 100,
    (_Kind.CALL, _Kind.CLOSED): 2,
    (_Kind.CLOSED, _Kind.LETTER): 2,
    (_Kind.CLOSED, _Kind.COMPOUND): 2,
    (_Kind.PRODUCT, _Kind.SUM): 100,
}  # fmt: skip
# Wordings of one node that are compared with each other.
_MAX_COMPARED: Final = 24


class _Small(NamedTuple):
    """A wording that gives something a small whole value.

    Attributes:
        shapes: the other sides, with ``x`` for each name.
        kinds: kinds of these sides.
    """

    wording: str
    value: int
    shapes: frozenset[str]
    kinds: frozenset[_Kind]


def merged_values(wordings: Sequence[str]) -> tuple[str, str] | None:
    """Return two wordings of one node that share only a small value, or None.

    Examples are ``u=0`` and ``h(1/4)=0``, ``p=27`` and ``a^2+2ab=27``, or ``48+24=72`` and
    ``24*3=72``.  Other computations are not, because they may be two ways to one conclusion.  Nor
    are a computation and a letter, or one equation with other letters.
    """
    found = [small for small in map(_small, wordings) if small is not None]
    for a, b in combinations(found[:_MAX_COMPARED], 2):
        pairs = ((min(i, j), max(i, j)) for i in a.kinds for j in b.kinds)
        limits = [_BY_CHANCE.get(pair, 0) for pair in pairs]
        is_chance = a.value == b.value and a.shapes.isdisjoint(b.shapes)
        if not is_chance or abs(a.value) >= min(limits, default=0):
            continue
        if not Matcher([[a.wording]]).match(b.wording)[0]:
            return a.wording, b.wording
    return None


def named_value(wording: str) -> Fraction | None:
    """Return the value that a wording gives a name, as in ``OP = 11``, or None."""
    sides = [text for text, _ in cut_outside_brackets(normal_form(wording), "=")]
    if len(sides) != 2:
        return None
    names = [text for text in sides if _LETTERS.fullmatch(text)]
    values = [value for value in map(_value_of, sides) if value is not None]
    return values[0] if len(names) == len(values) == 1 else None


def _small(wording: str) -> _Small | None:
    """Return a wording with its small value; None for arithmetic and for names in words."""
    normal = normal_form(wording)
    if len(normal) > MAX_CHARS or set(_RELATION.findall(normal)) != {"="}:
        return None
    if _LONG_NAME.search(normal):
        return None
    texts = [text for text, _ in cut_outside_brackets(normal, "=")]
    if any("," in text and text[-1:] != ")" for text in texts):
        return None  # several statements, or a list
    value = next((int(text) for text in texts if _SMALL.fullmatch(text)), None)
    if value is None:
        return None
    sides = [_side(text) for text in texts]
    named = [(text, side) for text, side in zip(texts, sides, strict=True) if side is not None]
    kinds = {text: _kind_of(text, side) for text, side in named}
    shapes = frozenset(_LETTERS.sub("x", text) for text, kind in kinds.items() if kind is not None)
    return _Small(wording, value, shapes, frozenset(kind for kind in kinds.values() if kind))


def _kind_of(text: str, side: Side) -> _Kind | None:
    if side.is_closed:
        if re.search("[C!]", text):
            return _Kind.CLOSED
        if _PRODUCT.fullmatch(text):
            return _Kind.PRODUCT
        is_sum = _SUM.fullmatch(text) and len({*text.split("+")}) > 1
        return _Kind.SUM if is_sum else None
    if _CALL.fullmatch(text):
        return _Kind.CALL
    return _Kind.LETTER if _LETTERS.fullmatch(text) else _Kind.COMPOUND
