"""What one answer is: a number, words, a tuple, set or interval, an equation, or opaque.

A :class:`Form` is the canonical spelling of an answer with its structure and, where it is a
closed numeric expression, its value.  Forms of ground truths and answers are memoised: a
group of rollouts shares its ground truth and mostly its answers.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from fractions import Fraction

from consensuspr.scoring.answers.algebra import Expression, read_expression
from consensuspr.scoring.answers.closed_form import NotClosed, Value, closed_value
from consensuspr.scoring.answers.notation import canonical
from consensuspr.scoring.answers.regions import Region, read_region

# Enough for the distinct answers of some hundred groups in flight.  The model chooses the
# keys: only short answers with small numbers are kept, 20 kB each at worst, and a full memo
# starts anew.  Threads may race for an entry; both compute the same.
_MEMO_ENTRIES = 4096
_MEMO_CHARS = 64
_MEMO_BITS = 4096
MAX_PARTS = 64
MAX_NESTING = 4

_INTEGER = re.compile(r"-?\d{1,400}")
_FRACTION = re.compile(r"(-?)\\[dtc]?frac\{(-?\d{1,400})\}\{(\d{1,400})\}")
_DECIMAL = re.compile(r"-?(?:\d{1,400}\.\d{0,400}|\.\d{1,400})")
_SCIENTIFIC = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?[eE][+-]?\d{1,3}")
_REPEATING = re.compile(r"(-?)(\d{0,40})\.(\d{0,40})\\overline\{?(\d{1,40})\}?")
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
PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
# x-x and ab-c are differences, well-known is a word.
_DIFFERENCE = re.compile(r"(?!.*[A-Za-z]{4})\(?[A-Za-z]+(?:-[A-Za-z]+)+\)?")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne|notin|subset)(?![A-Za-z])")

_OPEN, _CLOSE = "([{", ")]}"


class Form:
    """One answer, read.

    Attributes:
        text: canonical spelling, with a percent sign taken off.
        percent: a percent sign was there.
        value: the value of a closed expression, None where it is none.
        words: plain words, lower case, brackets taken off; None where it is something else.
        brackets: the two characters around ``parts``; "" for a bare list; the shape of a
            matrix, as ``2x3``, whose parts are its elements row by row.
        parts: the elements of a tuple, interval, set or list, None for a single thing.
        left: canonical left side of an equation ``left = right``.
        residue: number and modulus (1 or more) of ``3\\pmod{5}``, None where it is none.
        right: the right side (after the last sign), None where there is no equation.
    """

    # Most answers are numbers: what they do not have costs nothing to make.
    percent: bool = False
    value: Value | None = None
    words: str | None = None
    brackets: str = ""
    parts: tuple[Form, ...] | None = None
    left: str = ""
    right: Form | None = None
    residue: tuple[int, int] | None = None
    # None until asked for, then the one that was read.
    _expression: tuple[Expression | None] | None = None
    _region: tuple[Region | None] | None = None

    def __init__(self, text: str) -> None:
        if text[-1:] == "%" and len(text) > 1:
            self.percent = True
            text = text[:-1]
        self.text = text

    @property
    def expression(self) -> Expression | None:
        """The answer as an exact expression, read when it is first asked for; None if none."""
        if self._expression is None:
            self._expression = (read_expression(self.text),)
        return self._expression[0]

    @property
    def region(self) -> Region | None:
        """The answer as a set of real numbers, read when it is first asked for; None if none."""
        if self._region is None:
            self._region = (read_region(self.text),)
        return self._region[0]


_MEMO: dict[str, Form] = {}


def form_of(text: str) -> Form:
    """Return the form of an answer that the caller has clipped."""
    form = _MEMO.get(text)
    if form is None:
        form = _quickly_read(text)
        small = form is not None
        if form is None:
            form = _read(canonical(text), 0)
            small = _bits(form) <= _MEMO_BITS
        if small and len(text) <= _MEMO_CHARS:
            if len(_MEMO) >= _MEMO_ENTRIES:
                _MEMO.clear()
            _MEMO[text] = form
    return form


def forget_forms() -> None:
    """Empty the memo, for measurements."""
    _MEMO.clear()


def _bits(form: Form) -> int:
    if form.parts is not None:
        return sum(map(_bits, form.parts))
    if form.right is not None:
        return _bits(form.right)
    if form.value is None or isinstance(form.value.number, float):
        return 0
    number = form.value.number
    return number.numerator.bit_length() + number.denominator.bit_length()


def _quickly_read(text: str) -> Form | None:
    """Read an integer or a plain fraction, the most frequent answers of all."""
    if (text.isdigit() and text.isascii() and len(text) <= 400) or _INTEGER.fullmatch(text):
        form = Form(text)
        form.value = Value(int(text), False, 1.0)
        return form
    if "frac" not in text:
        return None
    fraction = _FRACTION.fullmatch(text)
    if fraction is None or not int(fraction[3]):
        return None
    sign, top, bottom = fraction.groups()
    form = Form(f"{sign}\\frac{{{top}}}{{{bottom}}}")
    value = Fraction(int(top), int(bottom))
    form.value = Value(-value if sign else value, False, 1.0)
    return form


def _read(text: str, nesting: int) -> Form:
    form = Form(text)
    text = form.text
    if _read_number(form, text):
        return form
    if nesting > MAX_NESTING:
        return form
    if text.casefold() == _NOT_APPLICABLE or (
        _WORDS.fullmatch(text) and not ("-" in text and _DIFFERENCE.fullmatch(text))
    ):
        form.words = text.strip("() ").casefold()
        return form
    if text.startswith("\\begin"):
        _read_matrix(form, text, nesting)
        return form
    if "\\pmod" in text and _read_residue(form, text, nesting):
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
        return _unwrapped(text, form, nesting)
    elif signs and not form.brackets:
        form.left = text[: signs[0][0]].strip()
        form.right = _read(text[signs[-1][1] :].strip(), nesting + 1)
    elif not form.brackets and len(values := _both_signs(text)) > 1:
        form.parts = tuple(_read(value, nesting + 1) for value in values)
    return form


def _read_residue(form: Form, text: str, nesting: int) -> bool:
    found = _RESIDUE.fullmatch(text)
    if found is None or not int(found[2]):
        return False
    value = _read(found[1].strip(), nesting + 1).value
    if value is None or not isinstance(value.number, int):
        return False
    form.residue = value.number, int(found[2])
    return True


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
    signs = list(PLUS_MINUS.finditer(text)) if "\\" in text else []
    if len(signs) != 1:
        return [text]
    before, after = text[: signs[0].start()], text[signs[0].end() :].lstrip()
    return [f"{before}{sign}{after}".removeprefix("+") for sign in "+-"]


def _unwrapped(text: str, form: Form, nesting: int) -> Form:
    inner = _read(text, nesting + 1)
    inner.percent = inner.percent or form.percent
    return inner


def _read_number(form: Form, text: str) -> bool:
    if _INTEGER.fullmatch(text):
        form.value = Value(int(text), False, 1.0)
    elif _DECIMAL.fullmatch(text) or _SCIENTIFIC.fullmatch(text):
        form.value = Value(Fraction(text), True, 1.0)
    elif _NUMERIC.fullmatch(text):
        mixed = _MIXED.fullmatch(text)
        if mixed is not None:
            text = f"{mixed[1]}({mixed[2]}+{mixed[3]})"
        with contextlib.suppress(NotClosed):
            form.value = closed_value(text)
    elif "\\overline" in text:
        repeating = _REPEATING.fullmatch(text)
        if repeating is not None:
            form.value = Value(_repeating(*repeating.groups()), False, 1.0)
    return form.value is not None


def _repeating(sign: str, whole: str, start: str, period: str) -> Fraction:
    """Return the value of a repeating decimal, 0.1\\overline{6}."""
    shift = 10 ** len(start)
    fixed = Fraction(int(whole + start or "0"), shift)
    rest = Fraction(int(period), shift * (10 ** len(period) - 1))
    return -(fixed + rest) if sign else fixed + rest


def _without_outer_brackets(form: Form, text: str) -> str:
    """Take off brackets that enclose all of ``text`` and note them in the form."""
    if text.startswith("\\{") and text.endswith("\\}"):
        inner, pair = text[2:-2], "{}"
    elif text[:1] in _OPEN and text[-1:] in _CLOSE and text[:1]:
        inner, pair = text[1:-1], text[0] + text[-1]
    else:
        return text
    if not _encloses(text):
        return text
    form.brackets = pair
    return inner.strip()


def _encloses(text: str) -> bool:
    """Tell whether the first bracket is closed by the last character and not before."""
    depth = 0
    last = len(text) - 1
    for position, character in enumerate(text):
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
            if depth <= 0:
                return position == last
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


def is_assignment(form: Form) -> bool:
    """Tell whether the form is an equation whose left side only names something."""
    return form.right is not None and _ASSIGNED.fullmatch(form.left) is not None
