"""The fast comparison of two answers: microseconds, and certain, or no verdict.

A :class:`Form` is the canonical spelling of an answer with its structure: a number, words, a tuple,
set or list, an equation, or opaque.  :mod:`consensuspr.core.expressions` reads numbers, letters,
roots and pi.  Intervals, their unions and inequalities in one letter are a :class:`Region`.
:func:`compare` decides only what is certain, and the rest (None) is a case for math-verify.  Where
both would decide, they agree, except in the places that ``docs/concepts/answers.md`` lists.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from consensuspr.core.expressions import (
    Closed,
    Quotient,
    Unreadable,
    Value,
    closed_value,
    compare_equations,
    compare_quotients,
    exact_quotient,
    linear_bound,
)
from consensuspr.scoring.answers.normalize import canonical

# Distinct answers of some hundred groups in flight; the model chooses them, so they are short.
_MEMO_ENTRIES = 4096
_MEMO_CHARS = 64
# What may stand for a large number.
_GROWS = re.compile(r"[\^!]|\*\*|binom|choose")
MAX_PARTS = 64
MAX_NESTING = 4

_FRACTION = re.compile(r"(-?)\\[dtc]?frac\{(-?\d{1,400})\}\{([1-9]\d{0,399})\}")
_INTEGER = re.compile(r"-?\d{1,400}")
_DECIMAL = re.compile(r"-?(?:\d{1,400}\.\d{0,400}|\.\d{1,400})")
_SCIENTIFIC = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?[eE][+-]?\d{1,3}")
_REPEATING = re.compile(r"(-?)(\d{0,40})\.(\d{0,40})\\(?:overline|bar)\{?(\d{1,40})\}?")
_MIXED = re.compile(r"(-?)(\d+) (\d+/\d+)")
_NUMERIC = re.compile(
    r"[-+*/^(){}\[\]!.0-9\s]*(?:\\(?:frac|sqrt|pi|binom)\b[-+*/^(){}\[\]!.0-9\s]*)*"
)
_WORDS = re.compile(r"\(?[A-Za-z][A-Za-z' -]*\)?")
# The left side of an assignment: symbols, no arithmetic on them.
_ASSIGNED = re.compile(r"[A-Za-z\\(|][A-Za-z0-9\\_{}(),|:'; ]*")
_RELATION = re.compile(r"\\(?:in|approx|equiv)(?![A-Za-z])\s*|=")
_MATRIX = re.compile(
    r"\\begin\{([pbB]?)matrix\}((?:[^\\]|\\(?!begin|end)(?:[A-Za-z]+|.))*+)\\end\{\1matrix\}"
)
_NOT_APPLICABLE = "n/a"
_RESIDUE = re.compile(r"(.{1,400}?)\\pmod\{?(\d{1,40})\}?")
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
# x-x and ab-c are differences, well-known is a word.
_DIFFERENCE = re.compile(r"(?!.*[A-Za-z]{4})\(?[A-Za-z]+(?:-[A-Za-z]+)+\)?")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne|notin|subset)(?![A-Za-z])")

_OPEN, _CLOSE = "([{", ")]}"
_TUPLES = ("()", "[]", "(]", "[)")


class Form:
    """One answer, read; what it has none of is None."""

    percent: bool = False  # a percent sign was taken off
    value: Value | None = None  # of a closed expression
    words: str | None = None  # plain words, lower case, brackets taken off
    parts: tuple[Form, ...] | None = None  # of a tuple, interval, set or list; of a matrix by rows
    brackets: str = ""  # the two around parts; "" for a bare list; the shape of a matrix, 2x3
    left: str = ""  # canonical left side of an equation
    right: Form | None = None  # its right side, after its last sign
    residue: tuple[int, int] | None = None  # number and modulus (1 or more) of 3\pmod{5}

    def __init__(self, text: str) -> None:
        if text[-1:] == "%" and len(text) > 1:
            self.percent = True
            text = text[:-1]
        self.text = text  # canonical

    @cached_property
    def quotient(self) -> Quotient | None:
        """The answer as an exact quotient."""
        return exact_quotient(self.text)

    @cached_property
    def region(self) -> Region | None:
        """The answer as a set of real numbers."""
        return read_region(self.text)

    @property
    def is_ordered(self) -> bool:
        """Whether it is a tuple or an interval."""
        return self.brackets in _TUPLES

    @property
    def is_matrix(self) -> bool:
        """Whether its parts are the elements of a matrix."""
        return "x" in self.brackets


def form_of(text: str) -> Form:
    """Return the form of an answer that the caller has clipped."""
    if len(text) <= _MEMO_CHARS and text.isascii() and _GROWS.search(text) is None:
        return memoised_form(text)
    return _form(text)


def _form(text: str) -> Form:
    # Integers and plain fractions, the most frequent answers, need no other spelling.
    if _INTEGER.fullmatch(text):
        return _read(text, 0)
    if (fraction := _FRACTION.fullmatch(text)) is not None:
        form = Form(f"{fraction[1]}\\frac{{{fraction[2]}}}{{{fraction[3]}}}")
        value = Fraction(int(fraction[2]), int(fraction[3]))
        form.value = Value(-value if fraction[1] else value, False, 1.0)
        return form
    return _read(canonical(text), 0)


memoised_form = lru_cache(_MEMO_ENTRIES)(_form)


def _read(text: str, nesting: int) -> Form:
    form = Form(text)
    text = form.text
    form.value = _number(text)
    if form.value is not None or nesting > MAX_NESTING:
        return form
    if text.casefold() == _NOT_APPLICABLE or (
        _WORDS.fullmatch(text) and not ("-" in text and _DIFFERENCE.fullmatch(text))
    ):
        form.words = text.strip("() ").casefold()
        return form
    if text.startswith("\\begin"):
        _read_matrix(form, text, nesting)
        return form
    if "\\pmod" in text:
        form.residue = _residue(text, nesting)
        if form.residue is not None:
            return form
    text = _without_outer_brackets(form, text)
    cuts = _cuts(text)
    if cuts is None:
        return form
    commas, signs = cuts
    if commas and len(commas) < MAX_PARTS:
        edges = [-1, *commas, len(text)]
        parts = [text[start + 1 : end].strip() for start, end in itertools.pairwise(edges)]
        if form.brackets in ("", "{}"):
            parts = [value for part in parts for value in _both_signs(part)]
        form.parts = tuple(_read(part, nesting + 1) for part in parts if part)
    elif form.brackets in ("()", "[]", "{}") and not signs:
        # Brackets around one thing carry nothing: (5), [5], {5}; a set of one is its element.
        inner = _read(text, nesting + 1)
        inner.percent = inner.percent or form.percent
        return inner
    elif signs and not form.brackets:
        form.left = text[: signs[0][0]].strip()
        form.right = _read(text[signs[-1][1] :].strip(), nesting + 1)
    elif not form.brackets and len(values := _both_signs(text)) > 1:
        form.parts = tuple(_read(value, nesting + 1) for value in values)
    return form


def _residue(text: str, nesting: int) -> tuple[int, int] | None:
    found = _RESIDUE.fullmatch(text)
    if found is None or not int(found[2]):
        return None
    value = _read(found[1].strip(), nesting + 1).value
    return (value.number, int(found[2])) if value and isinstance(value.number, int) else None


def _read_matrix(form: Form, text: str, nesting: int) -> None:
    found = _MATRIX.fullmatch(text)
    if found is None:
        return
    rows = [row.split("&") for row in found[2].strip().removesuffix("\\\\").split("\\\\")]
    columns = len(rows[0])
    if any(len(row) != columns for row in rows) or len(rows) * columns > MAX_PARTS:
        return
    form.brackets = f"{len(rows)}x{columns}"
    form.parts = tuple(_read(part.strip(), nesting + 1) for row in rows for part in row)


def _both_signs(text: str) -> list[str]:
    """Return the two values of an element with one plus-minus sign, others as they are."""
    signs = list(_PLUS_MINUS.finditer(text)) if "\\" in text else []
    if len(signs) != 1:
        return [text]
    before, after = text[: signs[0].start()], text[signs[0].end() :].lstrip()
    return [f"{before}{sign}{after}".removeprefix("+") for sign in "+-"]


def _number(text: str) -> Value | None:
    if _INTEGER.fullmatch(text):
        return Value(int(text), False, 1.0)
    if _DECIMAL.fullmatch(text) or _SCIENTIFIC.fullmatch(text):
        return Value(Fraction(text), True, 1.0)
    if _NUMERIC.fullmatch(text):
        mixed = _MIXED.fullmatch(text)
        if mixed is not None:
            text = f"{mixed[1]}({mixed[2]}+{mixed[3]})"
        with contextlib.suppress(Unreadable):
            return closed_value(text)
    elif "." in text and (repeating := _REPEATING.fullmatch(text)) is not None:
        sign, whole, start, period = repeating.groups()  # of 0.1\overline{6}
        shift = 10 ** len(start)
        tail = Fraction(int(period), shift * (10 ** len(period) - 1))
        number = Fraction(int(whole + start or "0"), shift) + tail
        return Value(-number if sign else number, False, 1.0)
    return None


def _without_outer_brackets(form: Form, text: str) -> str:
    """Take off brackets that enclose all of ``text`` and note them in the form."""
    width = 2 if text.startswith("\\{") and text.endswith("\\}") else 1
    first, last = text[width - 1 : width], text[-1:]
    if not text or first not in _OPEN or last not in _CLOSE or not _encloses(text):
        return text
    form.brackets = first + last
    return text[width:-width].strip()


def _encloses(text: str) -> bool:
    """Return whether the first bracket is closed by the last character and not before."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth <= 0 and character in _CLOSE:
            return position == len(text) - 1
    return False


def _cuts(text: str) -> tuple[list[int], list[tuple[int, int]]] | None:
    """Return top-level separators and relation signs; None where brackets do not match.

    Semicolons win over commas, for ``1,2;3,4`` is a list of pairs.  Where there is an
    inequality, ``=`` is not an equation.
    """
    depth = 0
    commas: list[int] = []
    semicolons: list[int] = []
    top: set[int] = set()
    for position, character in enumerate(text):
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
            if depth < 0:
                return None
        elif depth == 0:
            if character == ",":
                commas.append(position)
            elif character == ";":
                semicolons.append(position)
            elif character in "=\\":
                top.add(position)
    if depth:
        return None
    if not top or _INEQUALITY.search(text):
        return semicolons or commas, []
    signs = [found.span() for found in _RELATION.finditer(text) if found.start() in top]
    return semicolons or commas, signs


# --- sets of real numbers

MAX_PIECES = 16

# An end of a piece: which infinity (-1, 1) or 0, the number, and which side of it: an end
# just below the number is -1, just above it 1.  Ends order as tuples do.
_End = tuple[int, int | Fraction, int]
_BELOW_ALL: _End = (-1, 0, 0)
_ABOVE_ALL: _End = (1, 0, 0)
_INFINITIES = {"\\infty": _ABOVE_ALL, "-\\infty": _BELOW_ALL}

_INTERVAL = re.compile(r"\s*([(\[])([^,;()\[\]]+),([^,;()\[\]]+)([)\]])\s*")
_SIGN = re.compile(r"(<|>|\\le(?![A-Za-z])|\\ge(?![A-Za-z]))")
_LETTER = re.compile(r"[A-Za-z]")
_ONLY_A_SET = re.compile(r"[\[\]]|\\cup|\\infty")


class Region(NamedTuple):
    """A set of real numbers: sorted disjoint pieces with exact rational ends.

    Two are equal if and only if their pieces are.
    """

    pieces: tuple[tuple[_End, _End], ...]
    name: str = ""  # the letter of an inequality

    @property
    def is_point(self) -> bool:
        """Whether it holds one number alone, as [5,5] does."""
        return len(self.pieces) == 1 and self.pieces[0][0][:2] == self.pieces[0][1][:2]


def read_region(text: str) -> Region | None:
    """Return the set that the canonical ``text`` writes, None if it is none."""
    if "<" in text or ">" in text or "\\le" in text or "\\ge" in text:
        return _inequality(text)
    if text[:1] not in ("(", "["):
        return None
    parts = text.split("\\cup")
    if len(parts) > MAX_PIECES:
        return None
    pieces = [piece for piece in map(_interval, parts) if piece is not None]
    if len(pieces) < len(parts):
        return None
    merged: list[tuple[_End, _End]] = []
    for lower, upper in sorted(pieces):
        if merged and lower <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(upper, merged[-1][1]))
        else:
            merged.append((lower, upper))
    return Region(tuple(merged))


def _interval(text: str) -> tuple[_End, _End] | None:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        return None
    lower = _end(found[2].strip(), -1 if found[1] == "[" else 1)
    upper = _end(found[3].strip(), 1 if found[4] == "]" else -1)
    return (lower, upper) if lower and upper and lower < upper else None


def _end(text: str, side: int) -> _End | None:
    if text in _INFINITIES:
        return _INFINITIES[text]
    with contextlib.suppress(Unreadable):
        value = closed_value(text)
        if not (isinstance(value.number, float) or value.decimal):
            return 0, value.number, side
    return None


def _inequality(text: str) -> Region | None:
    parts = [part.strip() for part in _SIGN.split(text)]
    if len(parts) == 3:
        return _half_line(*parts)
    if len(parts) != 5 or _LETTER.fullmatch(parts[2]) is None:
        return None
    below, above = _half_line(*parts[:3]), _half_line(*parts[2:])
    if below is None or above is None:
        return None
    lower = max(below.pieces[0][0], above.pieces[0][0])
    upper = min(below.pieces[0][1], above.pieces[0][1])
    return Region(((lower, upper),), parts[2]) if lower < upper else None


def _half_line(left: str, sign: str, right: str) -> Region | None:
    """Solve an inequality that is linear in its one letter."""
    a, b = exact_quotient(left), exact_quotient(right)
    bound = None if a is None or b is None else linear_bound(a, b)
    if bound is None:
        return None
    name, slope, offset = bound
    upwards = (sign in (">", "\\ge")) == (slope > 0)
    inside = -1 if upwards else 1
    end: _End = (0, Fraction(-offset, slope), inside if sign.startswith("\\") else -inside)
    return Region(((end, _ABOVE_ALL) if upwards else (_BELOW_ALL, end),), name)


def compare_regions(gold: Region, answer: Region, gold_text: str) -> bool | None:
    """Return whether two sets are equal; None where the ground truth may be a point."""
    if gold.name and answer.name and gold.name != answer.name:
        return None if gold.name.casefold() == answer.name.casefold() else False
    if answer.name and not gold.name and _ONLY_A_SET.search(gold_text) is None:
        return None
    return gold.pieces == answer.pieces


# --- the comparison

# math-verify compares decimals after rounding to six digits.
DECIMAL_PLACES = 6
_TINY = Fraction(1, 100_000)
# Floats agree to about 15 digits; what differs in the tenth differs for certain.
_RELATIVE_ERROR = 1e-10
# Element comparisons of two sets that are no plain numbers: a bound on the calling thread.
MAX_PAIRS = 128

# An option of a multiple-choice question with its text: (C) 5, C. 5
_CHOICE = re.compile(r"\(?([A-J])[).:]")
# A number with its base.
_BASED = re.compile(r"(-?\d{1,400})_\{?\d{1,3}\}?")
# Letters in a row: an order or a name; a word; or none of these.
_CAPITALS = re.compile(r"\(?[A-Z]{3,}\)?")
_SHORT_WORDS = frozenset(
    "no on not now won own one two ten six few low odd even any all yes tie top up was saw".split()
)
_PRODUCT = re.compile(r"[abcxyz]+|[b-df-hj-np-tv-z]+")
_TIME = re.compile(r"\d{1,2}:\d{2}(?:am|pm)")

Outcome = tuple[bool | None, str]
_UNKNOWN: Outcome = (None, "")


def compare(gold: Form, answer: Form) -> Outcome:
    """Compare an answer with the ground truth.

    Returns:
        Whether they are equal (None: not decided here) and the method that decided.
    """
    if gold.text == answer.text:
        # A percent sign on one side only: the unit is understood, as a missing "cm" is.
        return True, "canonical"
    a, b = gold.value, answer.value
    if a is not None and b is not None:
        if type(a.number) is int and type(b.number) is int and gold.percent == answer.percent:
            return a.number == b.number, "rational"
        outcome = _compare_values(a, b, gold.percent, answer.percent)
        return _compare_exactly(gold, answer) if outcome[0] is None else outcome
    if gold.right is None and answer.right is None and (gold.residue or answer.residue):
        return _compare_residues(gold, answer)
    if gold.text in _INFINITIES or answer.text in _INFINITIES:
        finite = answer if gold.text in _INFINITIES else gold
        certain = finite.value is not None or finite.text in _INFINITIES
        return (False, "text") if certain else _UNKNOWN
    if gold.right is not None or answer.right is not None:
        return _compare_equations(gold, answer)
    if gold.words is not None or answer.words is not None:
        return _compare_words(gold, answer)
    if gold.parts is not None or answer.parts is not None:
        return _compare_parts(gold, answer)
    regions = _compare_as_regions(gold, answer)
    if regions[0] is not None:
        return regions
    if _BASED.fullmatch(gold.text) or _BASED.fullmatch(answer.text):
        return _compare_based(gold, answer)
    if _TIME.fullmatch(gold.text) and _TIME.fullmatch(answer.text):
        return False, "text"  # math-verify drops am and pm as units
    return _compare_exactly(gold, answer)


def _compare_exactly(gold: Form, answer: Form) -> Outcome:
    """Compare expressions with letters, roots and pi."""
    if gold.percent or answer.percent:
        return _UNKNOWN
    a, b = gold.quotient, answer.quotient
    return _UNKNOWN if a is None or b is None else (compare_quotients(a, b), "algebraic")


def _compare_as_regions(gold: Form, answer: Form) -> Outcome:
    """Compare intervals and inequalities; neither is a number but where it is one point."""
    a, b = gold.region, answer.region
    if a is not None and b is not None:
        return compare_regions(a, b, gold.text), "elements"
    region, single = (a, answer) if a is not None else (b, gold)
    certain = region is not None and not region.is_point and single.value is not None
    return (False, "elements") if certain else _UNKNOWN


def _compare_based(gold: Form, answer: Form) -> Outcome:
    """Compare 52_8 as it is written; the base may be left out."""
    a, b = _BASED.fullmatch(gold.text), _BASED.fullmatch(answer.text)
    if a is not None and b is not None:
        return False, "text"
    based, value = (a, answer.value) if a is not None else (b, gold.value)
    if based is None or value is None or not value.exact:
        return _UNKNOWN
    return value.number == int(based[1]), "text"


def _compare_residues(gold: Form, answer: Form) -> Outcome:
    """Compare numbers modulo another; the remainder itself may stand for the congruence."""
    a, b = gold.residue, answer.residue
    if a is not None and b is not None:
        return ((a[0] - b[0]) % a[1] == 0, "rational") if a[1] == b[1] else _UNKNOWN
    residue, value = (a, answer.value) if a is not None else (b, gold.value)
    if residue is None or value is None or not isinstance(value.number, int):
        return _UNKNOWN
    remainder, modulus = residue
    if (value.number - remainder) % modulus:
        return False, "rational"
    return (True, "rational") if 0 <= remainder == value.number < modulus else _UNKNOWN


def _compare_values(a: Value, b: Value, a_percent: bool, b_percent: bool) -> Outcome:
    outcome = _compare_numbers(a, b)
    if outcome[0] is False and a_percent != b_percent:
        # 28% is 28 with its unit, and it is 0.28.
        as_ratio = _compare_numbers(
            _hundredth(a) if a_percent else a, _hundredth(b) if b_percent else b
        )
        if as_ratio[0] is not False:
            return as_ratio
    return outcome


def _hundredth(value: Value) -> Value:
    number = value.number
    return value._replace(number=(number if isinstance(number, float) else Fraction(number)) / 100)


def _compare_numbers(a: Value, b: Value) -> Outcome:
    if a.exact and b.exact:
        if a.number == b.number:
            return True, "rational"
        if a.decimal or b.decimal:
            return _round(a.number) == _round(b.number) and not _vanishes(a, b), "rational"
        return False, "rational"
    try:
        x, y = float(a.number), float(b.number)
    except OverflowError:
        return False, "numeric"  # one is beyond all floats, the other is a float
    error = _RELATIVE_ERROR * max(1.0, a.scale, b.scale, abs(x), abs(y))
    if a.decimal or b.decimal:
        rounded = _rounded(a, x, error), _rounded(b, y, error)
        return _UNKNOWN if None in rounded else (rounded[0] == rounded[1], "numeric")
    return (False, "numeric") if abs(x - y) > error else _UNKNOWN


def _rounded(value: Value, approximate: float, error: float) -> Fraction | None:
    """Return the value to six places, None where the error of a float leaves two choices."""
    if value.exact:
        return _round(value.number)
    low, high = approximate - error, approximate + error
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    return _round(low) if _round(low) == _round(high) else None


def _round(number: Closed) -> Fraction:
    return round(Fraction(number), DECIMAL_PLACES)


def _vanishes(a: Value, b: Value) -> bool:
    """Return whether rounding to fixed places made a small number equal to nothing like it."""
    x, y = abs(Fraction(a.number)), abs(Fraction(b.number))
    return max(x, y) < _TINY and 10 * min(x, y) < 9 * max(x, y)


def _compare_words(gold: Form, answer: Form) -> Outcome:
    if gold.words is None or answer.words is None:
        choice = _CHOICE.match(answer.text) if gold.words and len(gold.words) == 1 else None
        if choice is not None:
            return choice[1].casefold() == gold.words, "text"
        value = answer.value if gold.words is not None else gold.value
        # A word is no number and no list; anything else may be a product of letters.
        exact = value is not None and value.exact
        return (False, "text") if exact else _compare_exactly(gold, answer)
    if gold.words.replace(" ", "") == answer.words.replace(" ", ""):
        return True, "text"
    if sorted(gold.words) != sorted(answer.words):
        return False, "text"
    # xy and yx: letters may be variables; no and on, BCA and ABC are something else.
    if _CAPITALS.fullmatch(gold.text) and _CAPITALS.fullmatch(answer.text):
        return False, "text"
    if gold.words in _SHORT_WORDS or answer.words in _SHORT_WORDS:
        return False, "text"
    product = _PRODUCT.fullmatch(gold.text) and _PRODUCT.fullmatch(answer.text)
    return _compare_exactly(gold, answer) if product else _UNKNOWN


def _compare_equations(gold: Form, answer: Form) -> Outcome:
    """Follow the ground truth: x=5 is 5, but 2x+z=1 is not 1."""
    if gold.right is None:
        assert answer.right is not None
        return compare(gold, answer.right)
    is_assignment = _ASSIGNED.fullmatch(gold.left) is not None  # it only names something
    if is_assignment and (answer.right is None or gold.left == answer.left):
        return compare(gold.right, answer.right or answer)
    sides = _sides(gold)
    if answer.right is None:
        # An equation between expressions is not an expression or a number.
        if sides is None or answer.quotient is None or any(map(_is_symbol, sides)):
            return _UNKNOWN
        return False, "algebraic"
    answer_sides = _sides(answer)
    if sides is None or answer_sides is None:
        return _UNKNOWN
    return compare_equations(sides, answer_sides), "algebraic"


def _sides(form: Form) -> tuple[Quotient, Quotient] | None:
    """Return both sides of an equation with one sign, where both are expressions."""
    if form.right is None or form.text.count("=") != 1:
        return None
    left, right = exact_quotient(form.left), form.right.quotient
    return None if left is None or right is None else (left, right)


def _is_symbol(side: Quotient) -> bool:
    return side.single and len(side.names) == 1


def _compare_parts(gold: Form, answer: Form) -> Outcome:
    if any(form.is_ordered and _PLUS_MINUS.search(form.text) for form in (gold, answer)):
        return _UNKNOWN  # one element that is two
    if gold.parts is None or answer.parts is None:
        regions = _compare_as_regions(gold, answer)
        return _compare_with_single(gold, answer) if regions[0] is None else regions
    if gold.is_matrix or answer.is_matrix:
        if gold.brackets == answer.brackets:
            return _compare_in_order(gold, answer)
        # A vector may have been meant as a tuple; what is no matrix is left open.
        return (False, "elements") if gold.is_matrix and answer.is_matrix else _UNKNOWN
    if gold.is_ordered and answer.is_ordered:
        return _compare_in_order(gold, answer)
    if gold.is_ordered or answer.is_ordered:
        # (1,3) may be written for 1,3; [1,3] is an interval.
        round_brackets = "()" in (gold.brackets, answer.brackets)
        equal = _compare_in_order(gold, answer)[0] if round_brackets else None
        return (True, "elements") if equal else _UNKNOWN
    return _compare_sets(_flat(gold, answer), _flat(answer, gold))


def _compare_with_single(gold: Form, answer: Form) -> Outcome:
    """Compare several elements with one number, which they are not if two of them differ."""
    single, several = (answer, gold) if gold.parts is not None else (gold, answer)
    if single.value is None or several.parts is None:
        return _UNKNOWN
    values = [part.value.number for part in several.parts if part.value and part.value.exact]
    if len(values) == len(several.parts):
        distinct = len(set(values)) > 1
    else:
        distinct = len(several.parts) > 1 and compare(*several.parts[:2])[0] is False
    if not distinct:
        return _UNKNOWN
    if single.value.decimal and several.text.replace(",", ".", 1) == single.text:
        return True, "rational"  # 1,5 for 1.5
    return False, "elements"


def _compare_in_order(gold: Form, answer: Form) -> Outcome:
    assert gold.parts is not None and answer.parts is not None
    if len(gold.parts) != len(answer.parts):
        return False, "elements"
    outcomes = [compare(a, b)[0] for a, b in zip(gold.parts, answer.parts, strict=True)]
    if False in outcomes:
        return False, "elements"
    if None in outcomes:
        return _UNKNOWN
    if gold.brackets == answer.brackets or not (gold.is_ordered and answer.is_ordered):
        return True, "elements"
    # How an interval is closed at infinity carries nothing.
    return _compare_as_regions(gold, answer)[0] is True, "elements"


def _flat(form: Form, other: Form) -> list[Form]:
    """Return the elements; a list of lists is one list where the other side is."""
    assert form.parts is not None and other.parts is not None
    if any(part.parts for part in other.parts):
        return list(form.parts)
    nested = (part.parts if part.parts and not part.brackets else (part,) for part in form.parts)
    return [element for elements in nested for element in elements]


def _compare_sets(gold: list[Form], answer: list[Form]) -> Outcome:
    """Match elements in any order; repeated elements count once, as in a set."""
    if all(map(_is_plain, (*gold, *answer))):
        return _numbers(gold) == _numbers(answer), "elements"
    if len(gold) * len(answer) > MAX_PAIRS:
        return _UNKNOWN
    doubtful = missing = False
    seen: set[int] = set()
    for element in gold:
        outcomes = [compare(element, candidate)[0] for candidate in answer]
        matches = [place for place, equal in enumerate(outcomes) if equal]
        if not matches and None not in outcomes:
            return False, "elements"
        seen.update(matches)
        missing = missing or not matches
        doubtful = doubtful or None in outcomes
    if not missing and len(seen) == len(answer):
        return True, "elements"
    return _UNKNOWN if doubtful else (False, "elements")


def _is_plain(part: Form) -> bool:
    value = part.value
    return value is not None and value.exact and not value.decimal and not part.percent


def _numbers(parts: list[Form]) -> set[Closed]:
    return {part.value.number for part in parts if part.value is not None}
