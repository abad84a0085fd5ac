"""The statement reader of the pure-Python twin: true arithmetic in prose, LaTeX and code.

One pass from left to right.  :class:`_Scanner` turns prose into tokens up to the next stop;
:func:`_fold` drops what means nothing between numbers (units, currency, emphasis) and leaves
items: numbers, operators, brackets, signs of equality, stops and unknowns; :func:`_pair` reads
around each sign the longest run that is an expression and compares both sides.  Code is read
line by line, with a table of names (:class:`_Code`).  See ``docs/statements.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import NamedTuple

from consensuspr.core.patterns import encode
from consensuspr.core.pure.characters import canonical_characters, char_class
from consensuspr.core.statements import (
    ARGUMENT,
    CODE_LANGUAGES,
    MANIFOLDS,
    MAX_ARGUMENT,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_EXPONENT,
    MAX_INT,
    MAX_LINE,
    MAX_NAMED,
    MAX_NAMES,
    MAX_OF_WORDS,
    MAX_REMARK,
    MAX_SIDE,
    MAX_STRETCH,
    MAX_SUBSCRIPT,
    MAX_UNIT_WORDS,
    MIN_GLUED,
    PARTS,
    UNNAMED,
    WORDS,
    Key,
    Meaning,
    Statement,
)
from consensuspr.core.tables import COMMANDS, FRACTIONS, SUPERSCRIPTS, Char, Command


class Reading(NamedTuple):
    """What a text states.

    Attributes:
        statements: in the order in which they were read.
        values: distinct values of all statements.
        numbers: distinct magnitudes of all numbers written.
    """

    statements: list[Statement]
    values: int
    numbers: int


def read_statements(text: str | bytes) -> Reading:
    """Return all true statements of a text, and what the guard counts in it."""
    chars, offsets = canonical_characters(encode(text))
    reader = _Reader(chars)
    for start, end, is_code in regions(chars):
        if is_code:
            _Code(reader, start, end).read()
        else:
            _Scanner(reader, start, end).read()
    statements = [
        one._replace(start=offsets[one.start], end=offsets[one.end]) for one in reader.statements
    ]
    return Reading(
        statements,
        len({one.key.value for one in statements}),
        len(reader.numbers),
    )


def expression_keys(text: str) -> list[Key]:
    """Return the keys of a node's expression: of its true equations with an operation."""
    return [one.key for one in read_statements(text).statements if one.whole]


# --- values -------------------------------------------------------------------------------


class _Value(NamedTuple):
    """One side or a part of it; ``shown`` where it is one number as written."""

    number: Fraction
    operands: tuple[Fraction, ...]
    operations: int
    shown: _Shown | None = None


class _Shown(NamedTuple):
    """How a number is written: how many decimals it shows, how many zeros end it."""

    decimals: int
    zeros: int


class _NoValueError(Exception):
    """No expression, or beyond what is computed."""


def _fits(number: Fraction) -> Fraction:
    if abs(number.numerator) > MAX_INT or number.denominator > MAX_INT:
        raise _NoValueError
    return number


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent.numerator) > MAX_EXPONENT:
        raise _NoValueError
    if base == 0 and exponent <= 0:
        raise _NoValueError
    return _fits(Fraction(base**exponent.numerator))


def _compute(op: str, left: Fraction, right: Fraction) -> Fraction:
    if op == "+":
        return _fits(left + right)
    if op == "-":
        return _fits(left - right)
    if op == "*":
        return _fits(left * right)
    if op == "^":
        return _power(left, right)
    if right == 0:
        raise _NoValueError
    if op == "/":
        return _fits(left / right)
    return _fits(Fraction(left // right))


def _key(value: _Value) -> Key:
    operands = sorted(
        (operand.numerator, operand.denominator) for operand in value.operands if operand != 1
    )
    return Key((value.number.numerator, value.number.denominator), tuple(operands))


def _agree(left: _Value, right: _Value, approximate: bool) -> bool:
    """Tell whether an equation is true, a shown number being allowed its rounding."""
    if left.number == right.number:
        return True
    return _rounds_to(left, right, approximate) or _rounds_to(right, left, approximate)


def _rounds_to(exact: _Value, rounded: _Value, approximate: bool) -> bool:
    shown = rounded.shown
    if shown is None:
        return False
    difference = abs(exact.number - rounded.number)
    # Half a unit of the last place shown.
    places = -shown.zeros if approximate and not shown.decimals else shown.decimals
    unit = Fraction(1, 10**places) if places >= 0 else Fraction(10**-places)
    return difference * 2 <= unit


# --- items --------------------------------------------------------------------------------


class _Kind(IntEnum):
    NUMBER = 0
    OPERATOR = 1
    OPEN = 2
    CLOSE = 3
    SIGN = 4  # of equality
    STOP = 5
    UNKNOWN = 6
    COMMA = 7  # in code alone


class _Seen(IntEnum):
    """Functions of code that are seen through."""

    NONE = 0
    INT = 1
    FLOAT = 2
    ROUND = 3
    ABS = 4
    RATIONAL = 5


@dataclass(slots=True)
class _Item:
    kind: _Kind
    start: int
    end: int
    number: Fraction = Fraction(0)
    decimals: int = 0
    zeros: int = 0
    op: str = ""
    percent: bool = False
    approximate: bool = False
    verb: bool = False
    name: str = ""
    plain: bool = True  # a number as written, which may be the shown side of an equation
    seen: _Seen = _Seen.NONE


class _Parser:
    """Recursive descent over items[start:end]; notes every operation as it is carried out."""

    def __init__(self, items: list[_Item], start: int, end: int) -> None:
        self.items = items
        self.at = start
        self.end = end
        self.depth = 0
        self.parts: list[_Value] = []

    def whole(self) -> _Value:
        value = self.sum()
        if self.at != self.end:
            raise _NoValueError
        return value

    def _peek(self) -> _Item | None:
        return self.items[self.at] if self.at < self.end else None

    def _operator(self, ops: str) -> str:
        item = self._peek()
        if item is not None and item.kind is _Kind.OPERATOR and item.op in ops:
            self.at += 1
            return item.op
        return ""

    def _joined(self, op: str, left: _Value, right: _Value) -> _Value:
        value = _Value(
            _compute(op, left.number, right.number),
            left.operands + right.operands,
            left.operations + right.operations + 1,
        )
        self.parts.append(value)
        return value

    def sum(self) -> _Value:
        left = self.product()
        while op := self._operator("+-"):
            left = self._joined(op, left, self.product())
        return left

    def product(self) -> _Value:
        left = self.signed()
        while True:
            op = self._operator("*/F")
            if not op:
                item = self._peek()
                if item is None or item.kind is not _Kind.OPEN:
                    return left
                op = "*"
            left = self._joined(op, left, self.signed())

    def signed(self) -> _Value:
        negative = False
        while op := self._operator("+-"):
            negative ^= op == "-"
        value = self.power()
        if not negative:
            return value
        value = value._replace(number=-value.number)
        if value.operations:
            self.parts.append(value)
        return value

    def power(self) -> _Value:
        base = self.atom()
        if not self._operator("^"):
            return base
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _NoValueError
        exponent = self.signed()
        self.depth -= 1
        return self._joined("^", base, exponent)

    def atom(self) -> _Value:
        item = self._peek()
        if item is None:
            raise _NoValueError
        self.at += 1
        if item.kind is _Kind.NUMBER:
            shown = _Shown(item.decimals, item.zeros) if item.plain else None
            return _Value(item.number, (abs(item.number),), 0, shown)
        if item.kind is not _Kind.OPEN:
            raise _NoValueError
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _NoValueError
        value = self.sum()
        if item.seen is not _Seen.NONE:
            value = self._seen_through(item.seen, value)
        closing = self._peek()
        if closing is None or closing.kind is not _Kind.CLOSE:
            raise _NoValueError
        self.at += 1
        self.depth -= 1
        return value

    def _seen_through(self, seen: _Seen, value: _Value) -> _Value:
        """Apply int, float, round, abs or Rational; the operation inside has been noted."""
        second = None
        item = self._peek()
        if item is not None and item.kind is _Kind.COMMA:
            self.at += 1
            second = self.sum()
        number = value.number
        if seen is _Seen.RATIONAL:
            return value if second is None else self._joined("/", value, second)
        if second is not None and seen is not _Seen.ROUND:
            raise _NoValueError
        if seen is _Seen.ABS:
            number = abs(number)
        elif seen is _Seen.INT:
            number = Fraction(int(number))
        elif seen is _Seen.ROUND:
            places = Fraction(0) if second is None else second.number
            if places.denominator != 1 or not 0 <= places <= MAX_DIGITS:
                raise _NoValueError
            number = _fits(round_half_even(number, places.numerator))
        return value._replace(number=number, shown=None)


def round_half_even(number: Fraction, places: int) -> Fraction:
    """Round as Python's round() does on exact numbers."""
    return Fraction(round(_fits(number * 10**places)), 10**places)


def _evaluate(items: list[_Item], start: int, end: int) -> tuple[_Value, list[_Value]] | None:
    """Return the value of items[start:end] and its parts, the whole being the last of them."""
    if end - start > MAX_SIDE:
        return None
    parser = _Parser(items, start, end)
    try:
        return parser.whole(), parser.parts
    except _NoValueError:
        return None


def _run_after(items: list[_Item], start: int, stop: int) -> int:
    """Return the end of the longest expression that begins at ``start``; 0 for none.

    None also where it was cut off at an operator or an unknown name.
    """
    depth = 0
    good = 0
    expects = True
    for at in range(start, min(stop, start + MAX_SIDE + 1)):
        kind = items[at].kind
        if expects:
            if kind is _Kind.NUMBER:
                expects = False
            elif kind is _Kind.OPEN:
                depth += 1
            elif kind is not _Kind.OPERATOR or items[at].op not in "+-":
                return _before_bracket(items, good)
        elif kind is _Kind.OPERATOR:
            expects = True
        elif kind is _Kind.OPEN:
            depth += 1
            expects = True
        elif kind is _Kind.CLOSE and depth:
            depth -= 1
        elif kind is _Kind.UNKNOWN:
            return 0
        else:
            return good if depth == 0 else _before_bracket(items, good)
        if depth == 0 and not expects:
            good = at + 1
    if stop > start + MAX_SIDE:
        return 0
    return good if depth == 0 and not expects else _before_bracket(items, good)


def _before_bracket(items: list[_Item], good: int) -> int:
    """Return ``good`` where the run goes on from there with a bracket, which may be a remark."""
    return good if good and items[good].kind is _Kind.OPEN else 0


def _run_before(items: list[_Item], end: int, stop: int) -> int:
    """Return the start of the longest expression that ends at ``end``; ``end`` for none."""
    depth = 0
    good = end
    expects = True  # something that ends an operand
    at = end - 1
    while at >= stop and end - at <= MAX_SIDE + 1:
        kind = items[at].kind
        if expects:
            if kind is _Kind.NUMBER:
                expects = False
            elif kind is _Kind.CLOSE:
                depth += 1
            else:
                return _after_bracket(items, good, end)
        elif kind is _Kind.OPERATOR:
            left = items[at - 1].kind if at > stop else _Kind.STOP
            if left in (_Kind.NUMBER, _Kind.CLOSE):
                expects = True
            elif left is _Kind.UNKNOWN or items[at].op not in "+-":
                return _after_bracket(items, good, end)
            # A sign: the operator before it is the next to be read.
        elif kind is _Kind.OPEN and depth:
            depth -= 1
        elif kind is _Kind.CLOSE and items[at + 1].kind is _Kind.OPEN:
            depth += 1
            expects = True
        elif kind is _Kind.NUMBER and items[at + 1].kind is _Kind.OPEN:
            pass
        elif kind is _Kind.UNKNOWN:
            return end
        else:
            return good if depth == 0 else _after_bracket(items, good, end)
        if depth == 0 and not expects:
            good = at
        at -= 1
    if at >= stop:
        return end
    return good if depth == 0 and not expects else _after_bracket(items, good, end)


def _after_bracket(items: list[_Item], good: int, end: int) -> int:
    return good if good < end and items[good - 1].kind is _Kind.CLOSE else end


class _Side:
    """One run and its value, worked out once."""

    def __init__(self, items: list[_Item], start: int, end: int) -> None:
        self.start = items[start].start
        self.end = items[end - 1].end
        self.last = end
        self.result = _evaluate(items, start, end)
        self.stated = False


class _Reader:
    """What has been found so far in one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.statements: list[Statement] = []
        self.numbers: set[Fraction] = set()
        self.names: dict[str, Fraction | None] = {}
        # The last line "name = ..." and its right side: the next may give the value.
        self.named = ""
        self.named_side: _Side | None = None

    def count(self, number: Fraction) -> None:
        self.numbers.add(number)

    def state(self, parts: list[_Value], start: int, end: int, code: bool) -> None:
        for index, part in enumerate(parts):
            whole = index == len(parts) - 1
            self.statements.append(Statement(_key(part), start, end, whole, code))

    def equations(self, items: list[_Item]) -> None:
        """Read the statements around each sign of equality."""
        signs = [index for index, item in enumerate(items) if item.kind is _Kind.SIGN]
        if not signs:
            return
        before: list[_Side | None] = []
        after: list[_Side | None] = []
        for number, sign in enumerate(signs):
            stop = signs[number - 1] + 1 if number else 0
            shared = after[-1] if number else None
            start = _run_before(items, sign, stop)
            if start == sign:
                before.append(None)
            elif shared is not None and start == stop and shared.last == sign:
                before.append(shared)
            else:
                before.append(_Side(items, start, sign))
            limit = signs[number + 1] if number + 1 < len(signs) else len(items)
            end = _run_after(items, sign + 1, limit)
            after.append(_Side(items, sign + 1, end) if end else None)
        for number, sign in enumerate(signs):
            left = before[number]
            item = items[sign]
            if left is None:
                if item.name:
                    self._restated(item, after[number])
                continue
            self._pair(left, after[number], item)
            if number + 1 < len(signs):
                between = items[sign + 1 : signs[number + 1]]
                if len(between) <= MAX_SIDE and all(one.kind is not _Kind.STOP for one in between):
                    following = items[signs[number + 1]]
                    both = _Item(
                        _Kind.SIGN,
                        0,
                        0,
                        approximate=item.approximate or following.approximate,
                        verb=item.verb or following.verb,
                    )
                    self._pair(left, after[number + 1], both)

    def _restated(self, sign: _Item, right: _Side | None) -> None:
        """Read "speed = 120 / 3" and, on a later line, "speed = 40" as one equation."""
        if right is None:
            return
        if self.named_side is not None:
            if self.named == sign.name:
                self._pair(self.named_side, right, sign)
            else:
                self._solved(self.named_side, sign.name, right)
        self.named, self.named_side = sign.name, copy(right)

    def _solved(self, product: _Side, name: str, right: _Side) -> None:
        """Read "3x = 48" and then "x = 16" as 48/3 = 16."""
        rest = self.named.lstrip("0123456789")
        factor = self.named[: len(self.named) - len(rest)]
        if rest != name or not 0 < len(factor) <= MAX_DIGITS or int(factor) == 0:
            return
        if product.result is None or right.result is None:
            return
        whole, part = product.result[0], right.result[0]
        if whole.operations or part.operations or part.number * int(factor) != whole.number:
            return
        operands = (*whole.operands, Fraction(int(factor)))
        self.state([_Value(part.number, operands, 1)], product.start, right.end, code=False)

    def _pair(self, left: _Side, right: _Side | None, sign: _Item) -> None:
        if right is None or left.result is None or right.result is None:
            return
        first, second = left.result[0], right.result[0]
        if not first.operations and (sign.verb or not second.operations):
            return
        if not _agree(first, second, sign.approximate):
            return
        for side in (left, right):
            if not side.stated:
                side.stated = True
                assert side.result is not None
                self.state(side.result[1], left.start, right.end, code=False)


# --- prose --------------------------------------------------------------------------------


class _Token(IntEnum):
    NUMBER = 0
    FRACTION = 1  # a numerator and a denominator written as one: 1/2 as a sign, or \\frac12
    OPERATOR = 2
    STAR = 3  # * that may be Markdown's
    STARS = 4
    OPEN = 5
    CLOSE = 6
    EQUALS = 7
    WORD = 8
    NAME = 9  # of something unknown: a symbol, a command, a function
    DOTS = 10
    PERCENT = 11
    COLON = 12
    AMPERSAND = 13
    LINE = 14


@dataclass(slots=True)
class _Raw:
    kind: _Token
    start: int
    end: int
    gap: bool  # blanks or a line's end before it
    op: str = ""
    number: Fraction = Fraction(0)
    denominator: Fraction = Fraction(1)
    decimals: int = 0
    zeros: int = 0
    meaning: Meaning = Meaning.PLAIN
    letters: int = 0
    single: bool = False  # one letter that is neither a word nor a unit
    times: bool = False  # x between numbers
    name: str = ""  # what the line says before this sign, if it is the first


# What the closing brace of each open one stands for.
class _Brace(IntEnum):
    GROUP = 0
    NOTHING = 1
    NUMERATOR = 2
    DENOMINATOR = 3


_LIST_MARK = re.compile(
    r"\**[0-9]{1,3}\**[.)]\**[ ]+(?![-+*/×=^ ])|\([0-9]{1,3}\)[ ]+(?![-+*/×=^ ])"
)
_DEGREES = re.compile(r"\^[ ]*(?:\{[ ]*\\circ[ ]*\}|\\circ(?![A-Za-z]))")
_NUMBER = re.compile(
    r"(?P<whole>[0-9]{1,3}(?:(?:,|\{,\}|\\,)[0-9]{3}(?![0-9]))+(?![0-9])|[0-9]+)?(?P<decimals>\.[0-9]+)?"
)
_SHORT_FRACTION = re.compile(r"[ ]*([0-9])[ ]*([0-9])")
_BRACED_FRACTION = re.compile(r"[ ]*\{[ ]*([0-9]+)[ ]*\}[ ]*\{[ ]*([0-9]+)[ ]*\}")
_SUBSCRIPT = re.compile(rf"_(?:\{{[{ARGUMENT}]{{0,{MAX_SUBSCRIPT}}}\}}|[0-9A-Za-z])")
_ARGUMENT = re.compile(rf"[ ]*\{{[{ARGUMENT}]{{0,{MAX_ARGUMENT}}}\}}")
_OPERATOR_NEXT = re.compile(r"[ ]*[-+*/×=^<>)]")


class _Scanner:
    """Reads one region of prose; hands every stretch between two stops on."""

    def __init__(self, reader: _Reader, start: int, end: int) -> None:
        self.reader = reader
        self.text = reader.text
        self.at = start
        self.end = end
        self.tokens: list[_Raw] = []
        self.others = 0  # tokens that are no words
        self.braces: list[_Brace] = []
        self.lost_braces = 0
        self.gap = True
        self.line_start = True
        self.line_at = start
        self.line_named = False
        self.table_row = False

    def read(self) -> None:
        while self.at < self.end:
            start = self.at
            char = self.text[start]
            cls = char_class(char)
            if cls in (Char.SPACE, Char.NEWLINE):
                self._blank(cls)
                continue
            at_line_start, self.line_start = self.line_start, False
            if at_line_start and self._list_mark(cls):
                continue
            if cls is Char.LETTER:
                self._word()
            elif cls is Char.DIGIT or (cls is Char.POINT and self._digit_at(start + 1)):
                self._number()
            else:
                self.at += 1
                self._sign(char, cls, start)
        self._stop()

    # -- what stands at a place --

    def _peek(self, at: int) -> str:
        return self.text[at] if at < self.end else ""

    def _class(self, at: int) -> Char:
        return char_class(self.text[at]) if at < self.end else Char.NEWLINE

    def _digit_at(self, at: int) -> bool:
        return self._class(at) is Char.DIGIT

    def _last(self, *kinds: _Token) -> bool:
        return bool(self.tokens) and self.tokens[-1].kind in kinds

    def _touches(self, *kinds: _Token) -> bool:
        """Tell whether such a token stands before this place without a blank."""
        return not self.gap and self._last(*kinds)

    # -- tokens --

    def _put(self, kind: _Token, start: int, **fields: object) -> None:
        if kind is not _Token.WORD:
            if self.others >= MAX_STRETCH:
                self._stop()
            self.others += 1
        self.tokens.append(_Raw(kind, start, self.at, self.gap, **fields))  # type: ignore[arg-type]
        self.gap = False

    def _stop(self) -> None:
        """Read the stretch that ends here."""
        if any(token.kind is _Token.EQUALS for token in self.tokens) or any(
            token.meaning in (Meaning.VERB, Meaning.EQUAL) for token in self.tokens
        ):
            self.reader.equations(_Folder(self.tokens).items)
        self.tokens = []
        self.others = 0
        self.gap = True
        self.braces = []
        self.lost_braces = 0

    def _blank(self, cls: Char) -> None:
        lines = 0
        while self.at < self.end and cls in (Char.SPACE, Char.NEWLINE):
            if cls is Char.NEWLINE and self.text[self.at : self.at + 2] != "\r\n":
                lines += 1
            self.at += 1
            cls = self._class(self.at)
        self.gap = True
        if lines:
            self._line_break(lines)

    def _line_break(self, lines: int) -> None:
        self.line_start = True
        self.line_at = self.at
        self.line_named = False
        self.table_row = False
        if lines > 1:
            self._stop()
        elif not (
            self._last(_Token.EQUALS, _Token.OPERATOR, _Token.LINE)
            or (self._last(_Token.STAR) and self.tokens[-1].gap)
        ):
            self._put(_Token.LINE, self.at)
            self.gap = True

    def _list_mark(self, cls: Char) -> bool:
        if cls in (Char.MINUS, Char.STAR, Char.PLUS, Char.BULLET):
            marked = self._class(self.at + 1) is Char.SPACE
        else:
            marked = False
        if marked or cls is Char.BULLET:
            self.at += 1
        elif match := _LIST_MARK.match(self.text, self.at, self.end):
            self.at = match.end()
            number = re.search(r"[0-9]+", match[0])
            assert number is not None
            self.reader.count(Fraction(int(number[0])))
        else:
            if cls is Char.BAR:
                self.table_row = True
            return False
        self._stop()
        self.line_start = True
        self.line_at = self.at
        return True

    def _word(self) -> None:
        start = self.at
        if self.text[start] in "xX" and self._touches(_Token.NUMBER) and self._digit_at(start + 1):
            self.at += 1
            self._put(_Token.WORD, start, letters=1, times=True, single=True)
            return
        letters = 0
        plain = True  # letters only
        while True:
            cls = self._class(self.at)
            if cls is Char.LETTER:
                letters += 1
            elif cls is Char.DIGIT:
                plain = False
            elif cls is Char.UNDERSCORE and self._class(self.at + 1) in (Char.LETTER, Char.DIGIT):
                plain = False
            elif (
                cls not in (Char.PRIME, Char.MINUS)
                or self._class(self.at + 1) is not Char.LETTER
                or self.text[self.at] == "−"
            ):
                break
            self.at += 1
        word = self.text[start : self.at].lower()
        if letters == 1 and self.at == start + 1:
            if word == "x":
                self._put(_Token.WORD, start, letters=1, times=True, single=True)
            elif word in "ai" and not (
                self._touches(_Token.NUMBER)
                or self._class(self.at) in (Char.CARET, Char.UNDERSCORE, Char.OPEN)
            ):
                self._put(_Token.WORD, start, letters=1, meaning=WORDS[word])
            elif WORDS.get(self.text[start]) is Meaning.UNIT and (
                self._touches(_Token.NUMBER) or self._class(self.at) is not Char.OPEN
            ):
                self._put(_Token.WORD, start, letters=1, meaning=Meaning.UNIT)
            else:
                self._put(_Token.WORD, start, letters=1, single=True)
            return
        if self._peek(self.at) == "(" and word not in WORDS and not self._after_number():
            self._put(_Token.NAME, start)
            return
        meaning = WORDS.get(word, Meaning.PLAIN) if plain else Meaning.PLAIN
        if meaning is Meaning.PERCENT:
            self._put(_Token.PERCENT, start)
        else:
            part = PARTS.get(word, 1)
            self._put(
                _Token.WORD,
                start,
                letters=letters,
                meaning=meaning,
                number=Fraction(MANIFOLDS.get(word, 1)),
                denominator=Fraction(part),
            )

    def _after_number(self) -> bool:
        return self._last(_Token.NUMBER, _Token.FRACTION, _Token.CLOSE, _Token.WORD)

    def _number(self) -> None:
        start = self.at
        match = _NUMBER.match(self.text, start, self.end)
        assert match is not None
        self.at = match.end()
        whole = re.sub(r"[^0-9]", "", match["whole"] or "")
        decimals = (match["decimals"] or ".")[1:]
        digits = (whole + decimals).lstrip("0")
        if len(digits) > MAX_DIGITS or len(decimals) > MAX_DIGITS:
            self._put(_Token.NAME, start)
            return
        number = Fraction(int(digits or "0"), 10 ** len(decimals))
        self.reader.count(number)
        if self._peek(self.at) == "." and self._digit_at(self.at + 1):
            self._put(_Token.NAME, start)  # a version, or an address
            return
        zeros = 0 if decimals or not digits else len(digits) - len(digits.rstrip("0"))
        self._put(_Token.NUMBER, start, number=number, decimals=len(decimals), zeros=zeros)

    def _fraction(self, start: int, numerator: str, denominator: str) -> None:
        if len(numerator) > MAX_DIGITS or len(denominator) > MAX_DIGITS:
            self._put(_Token.NAME, start)
            return
        above, below = Fraction(int(numerator)), Fraction(int(denominator))
        self.reader.count(above)
        self.reader.count(below)
        self._put(_Token.FRACTION, start, number=above, denominator=below)

    def _operator(self, op: str, start: int) -> None:
        self._put(_Token.OPERATOR, start, op=op)

    def _sign(self, char: str, cls: Char, start: int) -> None:
        """Read a character that is no letter, digit or blank; ``at`` stands behind it."""
        match cls:
            case Char.PLUS:
                self._operator("+", start)
            case Char.MINUS:
                self._minus(char, start)
            case Char.STAR:
                count = 1
                while self._peek(self.at) == "*":
                    self.at += 1
                    count += 1
                if count <= 2:
                    self._put(_Token.STAR if count == 1 else _Token.STARS, start)
            case Char.TIMES:
                self._operator("*", start)
            case Char.BULLET:
                if self._last(_Token.NUMBER, _Token.CLOSE):
                    self._operator("*", start)
                else:
                    self._stop()
            case Char.SLASH:
                if self._peek(self.at) == "/":
                    self._stop()
                else:
                    self._operator("/", start)
            case Char.CARET:
                if degrees := _DEGREES.match(self.text, start, self.end):
                    self.at = degrees.end()
                    self._scale()
                else:
                    self._operator("^", start)
            case Char.SUPERSCRIPT:
                self._superscript(start)
            case Char.UNDERSCORE:
                if self._touches(_Token.WORD, _Token.NAME, _Token.CLOSE) and (
                    subscript := _SUBSCRIPT.match(self.text, start, self.end)
                ):
                    self.at = subscript.end()
            case Char.EQUALS:
                self._equals(start)
            case Char.RELATION if char == "≈":
                self._put(_Token.EQUALS, start, op="≈")
            case Char.LESS | Char.GREATER:
                while self._peek(self.at) in ("<", ">", "="):
                    self.at += 1
                self._stop()
            case Char.OPEN | Char.BRACKET_OPEN:
                self._put(_Token.OPEN, start)
            case Char.CLOSE | Char.BRACKET_CLOSE:
                self._put(_Token.CLOSE, start)
            case Char.BRACE_OPEN:
                self._open_brace(_Brace.GROUP, start)
            case Char.BRACE_CLOSE:
                self._close_brace(start)
            case Char.COLON:
                self._put(_Token.COLON, start)
            case Char.BANG:
                if not self.gap and _OPERATOR_NEXT.match(self.text, self.at, self.end):
                    self._put(_Token.NAME, start)
                else:
                    self._stop()
            case Char.MARK if char in "$`":
                pass
            case Char.DROP:
                if char == "%":
                    self._put(_Token.PERCENT, start)
                else:
                    self._scale()
            case Char.BAR:
                if self.table_row:
                    self._stop()
                else:
                    self._put(_Token.NAME, start)
            case Char.AMPERSAND:
                self._put(_Token.AMPERSAND, start)
            case Char.BACKSLASH:
                self._command(start)
            case Char.FRACTION:
                above, below = FRACTIONS[char].split("/")
                self._fraction(start, above, below)
            case Char.SYMBOL | Char.ROOT | Char.PLUS_MINUS:
                self._put(_Token.NAME, start)
            case Char.SUBSCRIPT:
                if not self._touches(_Token.WORD, _Token.NAME):
                    self._put(_Token.NAME, start)
            case Char.POINT:
                self._point(start)
            case _ if char == "…":
                self._put(_Token.DOTS, start)
            case _:
                self._stop()

    def _minus(self, char: str, start: int) -> None:
        if char == "-" and self._peek(self.at) in (">", "-"):
            while self._peek(self.at) in (">", "-"):
                self.at += 1
            self._stop()
        elif (
            char == "-"
            and self._touches(_Token.NUMBER)
            and self._class(self.at) is Char.LETTER
            and self._class(self.at + 1) is Char.LETTER
        ):
            self.gap = True  # 8-hour days: the word is a unit
        else:
            self._operator("-", start)

    def _scale(self) -> None:
        """Pass over the letter of a temperature: 30°C."""
        if self._peek(self.at) in ("C", "F") and self._class(self.at + 1) is not Char.LETTER:
            self.at += 1

    def _superscript(self, start: int) -> None:
        digits = SUPERSCRIPTS[self.text[start]]
        while self._class(self.at) is Char.SUPERSCRIPT:
            digits += SUPERSCRIPTS[self.text[self.at]]
            self.at += 1
        if self._touches(_Token.WORD):
            return  # cm²
        if not digits.isdigit() or len(digits) > 2:
            self._put(_Token.NAME, start)
            return
        self._operator("^", start)
        self.reader.count(Fraction(int(digits)))
        self._put(_Token.NUMBER, start, number=Fraction(int(digits)))

    def _equals(self, start: int) -> None:
        before = self.text[start - 1] if start else ""
        after = self._peek(self.at)
        if (
            before in ("!", "~", ":")
            or after in ("=", "~")
            or (after == ">" and self._peek(self.at + 1) != ">")
            or (after == "<" and self._peek(self.at + 1) != "<")
        ):
            while self._peek(self.at) in ("=", ">", "<", "~"):
                self.at += 1
            self._stop()
        else:
            self._put(_Token.EQUALS, start, op="=", name=self._name(start))

    def _name(self, sign: int) -> str:
        """Return what stands before the first sign of its line, without blanks and marks."""
        if self.line_named:
            return ""
        self.line_named = True
        if sign - self.line_at > MAX_NAMED:
            return ""
        name = "".join(char for char in self.text[self.line_at : sign] if char not in UNNAMED)
        return name if name.isascii() and any(map(str.isalpha, name)) else ""

    def _point(self, start: int) -> None:
        if self._peek(self.at) == ".":
            while self._peek(self.at) == ".":
                self.at += 1
            self._put(_Token.DOTS, start)
        elif not (
            self._touches(_Token.WORD)
            and re.compile(r"[ ]+[*+×/=]").match(self.text, self.at, self.end)
        ):
            self._stop()

    def _open_brace(self, brace: _Brace, start: int) -> None:
        if len(self.braces) >= MAX_DEPTH:
            self.lost_braces += 1
            self._put(_Token.NAME, start)
            return
        self.braces.append(brace)
        if brace is not _Brace.NOTHING:
            self._put(_Token.OPEN, start)

    def _close_brace(self, start: int) -> None:
        if self.lost_braces:
            self.lost_braces -= 1
            self._put(_Token.NAME, start)
            return
        brace = self.braces.pop() if self.braces else _Brace.GROUP
        if brace is _Brace.NOTHING:
            return
        self._put(_Token.CLOSE, start)
        if brace is _Brace.DENOMINATOR:
            self._put(_Token.CLOSE, start)
        elif brace is _Brace.NUMERATOR:
            self._skip_spaces()
            self._operator("/", start)
            if self._peek(self.at) == "{":
                self.at += 1
                self._open_brace(_Brace.DENOMINATOR, self.at - 1)
            else:
                self._put(_Token.NAME, start)
                self._put(_Token.CLOSE, start)

    def _skip_spaces(self) -> None:
        while self._class(self.at) is Char.SPACE:
            self.at += 1

    def _command(self, start: int) -> None:
        first = self._peek(self.at)
        if not (first.isascii() and first.isalpha()):
            self.at += 1 if first else 0
            name = first
        else:
            while (char := self._peek(self.at)).isascii() and char.isalpha():
                self.at += 1
            name = self.text[start + 1 : self.at]
            if self._peek(self.at) == "*":
                self.at += 1
        action, payload = COMMANDS.get(name, (Command.WORD, ""))
        match action:
            case Command.EMIT:
                self._sign(payload, char_class(payload), start)
            case Command.SPACE | Command.THIN:
                self.gap = True
            case Command.NOTHING if name == "%":
                self._put(_Token.PERCENT, start)
            case Command.NOTHING if name == "{":
                self._put(_Token.OPEN, start)
            case Command.NOTHING if name == "}":
                self._put(_Token.CLOSE, start)
            case Command.NOTHING | Command.MARK:
                pass
            case Command.DELIMITER:
                if self._peek(self.at) == ".":
                    self.at += 1
            case Command.BREAK if name in ("\\", "\n", "newline", "linebreak"):
                self._line_break(1)
            case Command.WRAP | Command.TEXT:
                self._skip_spaces()
                if self._peek(self.at) == "{":
                    self.at += 1
                    self._open_brace(_Brace.NOTHING, start)
                if action is Command.TEXT:
                    self.gap = True
            case Command.DISCARD | Command.ENVIRONMENT:
                if argument := _ARGUMENT.match(self.text, self.at, self.end):
                    self.at = argument.end()
                if action is Command.ENVIRONMENT:
                    self._stop()
            case Command.FRAC:
                self._frac(start)
            case Command.BREAK:
                self._stop()
            case _:
                self._put(_Token.NAME, start)

    def _frac(self, start: int) -> None:
        if match := _BRACED_FRACTION.match(self.text, self.at, self.end) or _SHORT_FRACTION.match(
            self.text, self.at, self.end
        ):
            self.at = match.end()
            self._fraction(start, match[1], match[2])
            return
        self._skip_spaces()
        if self._peek(self.at) == "{":
            self.at += 1
            self._put(_Token.OPEN, start)
            self._open_brace(_Brace.NUMERATOR, start)
        else:
            self._put(_Token.NAME, start)


# --- folding ------------------------------------------------------------------------------

_OPERAND_ENDS = (_Kind.NUMBER, _Kind.CLOSE)
_WORD_OPERATORS = {Meaning.PLUS: "+", Meaning.MINUS: "-", Meaning.TIMES: "*"}


class _Folder:
    """Tokens of one stretch to items, by one pass; ``items`` is the result."""

    def __init__(self, tokens: list[_Raw]) -> None:
        self.tokens = _without_emphasis(tokens)
        self.items: list[_Item] = []
        self.at = 0
        self.after_unit = False
        self.unit_words = 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self._one(token)

    # -- what is there --

    def _operand_ends(self) -> bool:
        return bool(self.items) and self.items[-1].kind in _OPERAND_ENDS

    def _kind(self, at: int) -> _Token | None:
        return self.tokens[at].kind if at < len(self.tokens) else None

    def _operand_begins(self, at: int) -> bool:
        kind = self._kind(at)
        if kind in (_Token.NUMBER, _Token.FRACTION, _Token.OPEN):
            return True
        return (
            kind is _Token.OPERATOR
            and self.tokens[at].op in "+-"
            and self._kind(at + 1) in (_Token.NUMBER, _Token.FRACTION, _Token.OPEN)
            and not self.tokens[at + 1].gap
        )

    def _operator_at(self, at: int) -> bool:
        return self._kind(at) is _Token.OPERATOR

    # -- items --

    def _put(self, kind: _Kind, token: _Raw, op: str = "") -> None:
        self.items.append(_Item(kind, token.start, token.end, op=op))
        self.after_unit = False

    def _stop(self, token: _Raw) -> None:
        if self.items and self.items[-1].kind is not _Kind.STOP:
            self._put(_Kind.STOP, token)
        self.after_unit = False

    def _one(self, token: _Raw) -> None:
        self.at += 1
        match token.kind:
            case _Token.NUMBER:
                self._number(token)
            case _Token.FRACTION:
                self._fraction(token)
            case _Token.OPERATOR:
                self._operator(token)
            case _Token.OPEN:
                self._open(token)
            case _Token.CLOSE:
                self._put(_Kind.CLOSE, token)
            case _Token.EQUALS:
                self._equals(token)
            case _Token.WORD:
                self._word(token)
            case _Token.NAME:
                self._put(_Kind.UNKNOWN, token)
            case _Token.DOTS:
                if (self.items and self.items[-1].kind is _Kind.OPERATOR) or self._operator_at(
                    self.at
                ):
                    self._put(_Kind.UNKNOWN, token)
                else:
                    self._stop(token)
            case _Token.PERCENT:
                if self._operand_ends():
                    self._put(_Kind.UNKNOWN, token)  # a remainder
            case _Token.COLON:
                self._colon(token)
            case _Token.AMPERSAND | _Token.LINE:
                following = self.at
                while self._kind(following) in (_Token.AMPERSAND, _Token.LINE):
                    following += 1
                if self._kind(following) is not _Token.EQUALS and not (
                    self.items and self.items[-1].kind in (_Kind.SIGN, _Kind.OPERATOR)
                ):
                    self._stop(token)

    def _number(self, token: _Raw) -> None:
        if self.after_unit:
            self._stop(token)
        item = _Item(
            _Kind.NUMBER,
            token.start,
            token.end,
            number=token.number,
            decimals=token.decimals,
            zeros=token.zeros,
        )
        self.items.append(item)
        if not token.decimals:
            self._mixed(item)
        if self._kind(self.at) is _Token.PERCENT and not (
            self.tokens[self.at].gap and self._operand_begins(self.at + 1)
        ):
            item.number /= 100
            if item.number.denominator > MAX_INT:
                item.kind = _Kind.UNKNOWN
            item.percent = True
            item.decimals += 2
            item.plain = item.plain and item.decimals <= MAX_DIGITS
            item.zeros = 0
            item.end = self.tokens[self.at].end
            self.at += 1

    def _mixed(self, item: _Item) -> None:
        """Join 7 1/2 to one number."""
        following = self.tokens[self.at : self.at + 4]
        if following and following[0].kind is _Token.FRACTION:
            above, below, used = following[0].number, following[0].denominator, 1
        elif (
            len(following) >= 3
            and following[0].kind is _Token.NUMBER
            and following[0].gap
            and following[1].kind is _Token.OPERATOR
            and following[1].op == "/"
            and not following[1].gap
            and following[2].kind is _Token.NUMBER
            and not following[2].gap
            and not (following[0].decimals or following[2].decimals)
            and not (
                len(following) == 4
                and following[3].kind is _Token.OPERATOR
                and following[3].op in "/^"
                and not following[3].gap
            )
        ):
            above, below, used = following[0].number, following[2].number, 3
        else:
            return
        if not 0 < above < below:
            return
        number = item.number + above / below
        if abs(number.numerator) > MAX_INT:
            return
        item.number = number
        item.plain = False
        item.end = following[used - 1].end
        self.at += used

    def _fraction(self, token: _Raw) -> None:
        if self.after_unit:
            self._stop(token)
        self._put(_Kind.OPEN, token)
        self.items.append(_Item(_Kind.NUMBER, token.start, token.end, number=token.number))
        self._put(_Kind.OPERATOR, token, "/")
        self.items.append(_Item(_Kind.NUMBER, token.start, token.end, number=token.denominator))
        self._put(_Kind.CLOSE, token)

    def _operator(self, token: _Raw) -> None:
        following = self.tokens[self.at] if self.at < len(self.tokens) else None
        if self.after_unit and token.op == "^" and following and following.kind is _Token.NUMBER:
            self.at += 1  # 12 cm^2
            return
        if (
            token.op == "/"
            and self._operand_ends()
            and following is not None
            and following.kind is _Token.WORD
            and not following.single
        ):
            if not self.after_unit:
                self.after_unit = True  # 15 USD/hour: what follows is a part of the unit
                self.unit_words = 0
            return
        self._put(_Kind.OPERATOR, token, token.op)

    def _open(self, token: _Raw) -> None:
        if self._operand_ends() and (token.gap or self.after_unit):
            closing, words, signs = self._remark()
            if signs:
                self._stop(token)
            elif closing and (words or self.after_unit):
                self.at = closing + 1
                self.after_unit = True
                return
            elif self.after_unit:
                self._stop(token)
        self._put(_Kind.OPEN, token)

    def _remark(self) -> tuple[int, bool, bool]:
        """Look at the bracket that has been opened: its end (0: far), words in it, signs."""
        depth = 1
        words = signs = False
        for at in range(self.at, min(len(self.tokens), self.at + MAX_REMARK)):
            token = self.tokens[at]
            if token.kind is _Token.OPEN:
                depth += 1
            elif token.kind is _Token.CLOSE:
                depth -= 1
                if depth == 0:
                    return at, words, signs
            elif token.kind is _Token.WORD:
                words = words or not (token.meaning in _WORD_OPERATORS or token.times)
            elif token.kind is _Token.EQUALS:
                signs = True
        return 0, words, signs

    def _equals(self, token: _Raw) -> None:
        last = self.items[-1] if self.items else None
        if last is not None and last.kind is _Kind.SIGN:
            last.approximate = last.approximate or token.op == "≈"
            last.verb = False
        else:
            self._put(_Kind.SIGN, token)
            self.items[-1].approximate = token.op == "≈"
            self.items[-1].name = token.name
        self._fillers(self.items[-1])

    def _fillers(self, sign: _Item) -> None:
        """Pass over "about", "a total of" between a sign and its number."""
        at = self.at
        roughly = False
        while at < len(self.tokens) and at - self.at < MAX_OF_WORDS:
            meaning = self.tokens[at].meaning
            if self.tokens[at].kind is not _Token.WORD or self.tokens[at].single:
                break
            if meaning is Meaning.ROUGHLY:
                roughly = True
            elif meaning not in (Meaning.FILLER, Meaning.EQUAL, Meaning.OF):
                break
            at += 1
        if at > self.at and self._operand_begins(at):
            self.at = at
            sign.approximate = sign.approximate or roughly

    def _colon(self, token: _Raw) -> None:
        following = self.tokens[self.at] if self.at < len(self.tokens) else None
        if (
            self.items
            and self.items[-1].kind is _Kind.NUMBER
            and not self.after_unit
            and following is not None
            and following.kind is _Token.NUMBER
            and following.gap == token.gap
        ):
            # A ratio, or a time of day.
            self._put(_Kind.UNKNOWN, token)
            self._put(_Kind.UNKNOWN, following)
            self.at += 1
        else:
            self._stop(token)

    # -- words --

    def _word(self, token: _Raw) -> None:
        """Read one word; what precedes it is the items' end."""
        meaning = token.meaning
        if token.times and self._operand_ends() and self._operand_begins(self.at):
            self._put(_Kind.OPERATOR, token, "*")
        elif token.single:
            self._single(token)
        elif meaning in _WORD_OPERATORS and self._operand_ends() and self._operand_begins(self.at):
            self._put(_Kind.OPERATOR, token, _WORD_OPERATORS[meaning])
        elif (
            meaning in (Meaning.DIVIDED, Meaning.MULTIPLIED)
            and self._operand_ends()
            and self._kind(self.at) is _Token.WORD
            and self.tokens[self.at].meaning is Meaning.BY
            and self._operand_begins(self.at + 1)
        ):
            self.at += 1
            self._put(_Kind.OPERATOR, token, "/" if meaning is Meaning.DIVIDED else "*")
        elif meaning is Meaning.PART and self._part(token):
            pass
        elif meaning is Meaning.MANIFOLD and self._operand_begins(self.at):
            self.items.append(_Item(_Kind.NUMBER, token.start, token.end, number=token.number))
            self._put(_Kind.OPERATOR, token, "*")
        elif meaning is Meaning.OF and self._of(token):
            pass
        elif meaning in (Meaning.VERB, Meaning.EQUAL):
            self._verb(token)
        elif meaning is Meaning.STOP:
            self._stop(token)
            self._name_before_operator(token)
        elif self._operand_ends():
            self._unit_word(token)
        elif self.items and self.items[-1].kind is _Kind.OPERATOR:
            self._put(_Kind.UNKNOWN, token)
        elif not self._name_before_operator(token):
            self._stop(token)

    def _name_before_operator(self, token: _Raw) -> bool:
        following = self.tokens[self.at] if self.at < len(self.tokens) else None
        if following is not None and (
            following.kind is _Token.OPERATOR
            and not (following.gap and following.op in "+-" and self._operand_begins(self.at))
        ):
            self._put(_Kind.UNKNOWN, token)
            return True
        return False

    def _single(self, token: _Raw) -> None:
        following = self.tokens[self.at] if self.at < len(self.tokens) else None
        if (
            self._operand_ends()
            or (self.items and self.items[-1].kind in (_Kind.OPERATOR, _Kind.UNKNOWN))
            or (
                following is not None
                and (following.kind is _Token.OPERATOR or not following.gap)
                and following.kind is not _Token.EQUALS
            )
        ):
            self._put(_Kind.UNKNOWN, token)
        else:
            self._stop(token)

    def _unit_word(self, token: _Raw) -> None:
        if not self.after_unit:
            self.unit_words = 0
            if not token.gap and token.letters < MIN_GLUED and token.meaning is not Meaning.UNIT:
                self._put(_Kind.UNKNOWN, token)
                return
        self.unit_words += 1
        if self.unit_words > MAX_UNIT_WORDS:
            self._stop(token)
            self._name_before_operator(token)
            return
        self.after_unit = True

    def _part(self, token: _Raw) -> bool:
        """Read "half of 26" as a product."""
        if self._operand_ends() or self._kind(self.at) is not _Token.WORD:
            return False
        following = self.tokens[self.at]
        if following.meaning is not Meaning.OF:
            return False
        self._fraction(token)
        self.at += 1
        if self._of(following):
            return True
        self.at -= 1
        del self.items[-5:]
        return False

    def _of(self, token: _Raw) -> bool:
        if self.after_unit or not self._operand_ends():
            return False
        last = self.items[-1]
        fraction = (
            len(self.items) >= 3
            and last.kind is _Kind.NUMBER
            and self.items[-2].kind is _Kind.OPERATOR
            and self.items[-2].op == "/"
            and self.items[-3].kind is _Kind.NUMBER
        )
        if not (last.kind is _Kind.CLOSE or last.percent or fraction):
            return False
        at = self.at
        while (
            at - self.at < MAX_OF_WORDS
            and self._kind(at) is _Token.WORD
            and self.tokens[at].meaning in (Meaning.PLAIN, Meaning.FILLER)
            and not self.tokens[at].single
        ):
            at += 1
        if not self._operand_begins(at):
            return False
        self.at = at
        self._put(_Kind.OPERATOR, token, "*")
        return True

    def _verb(self, token: _Raw) -> None:
        if not self._operand_ends():
            self._stop(token)
            return
        sign = _Item(_Kind.SIGN, token.start, token.end, verb=True)
        before = self.at
        self._fillers(sign)
        if self.at == before and not self._operand_begins(self.at):
            self._stop(token)
            return
        self.items.append(sign)
        self.after_unit = False


def _without_emphasis(tokens: list[_Raw]) -> list[_Raw]:
    """Turn stars between operands into operators and drop the others."""
    kept: list[_Raw] = []
    gap = False
    for index, token in enumerate(tokens):
        if token.kind not in (_Token.STAR, _Token.STARS):
            token.gap = token.gap or gap
            gap = False
            kept.append(token)
            continue
        before = token.gap or gap
        after = index + 1 == len(tokens) or tokens[index + 1].gap
        between = bool(kept) and index + 1 < len(tokens)
        if between:
            left, right = kept[-1].kind, tokens[index + 1].kind
            numbers = left in _LEFT_NUMBERS and right in _RIGHT_NUMBERS
            single = token.kind is _Token.STAR
            if (
                left in _LEFT_OPERANDS
                and right in _RIGHT_OPERANDS
                and (before == after or (single and numbers))
            ):
                token.kind = _Token.OPERATOR
                token.op = "*" if single else "^"
                token.gap = before
                gap = False
                kept.append(token)
                continue
        gap = before or after
    return kept


_LEFT_NUMBERS = (_Token.NUMBER, _Token.FRACTION, _Token.CLOSE, _Token.PERCENT)
_RIGHT_NUMBERS = (_Token.NUMBER, _Token.FRACTION, _Token.OPEN, _Token.OPERATOR)
_LEFT_OPERANDS = (*_LEFT_NUMBERS, _Token.WORD, _Token.NAME)
_RIGHT_OPERANDS = (*_RIGHT_NUMBERS, _Token.WORD, _Token.NAME)


# --- code ---------------------------------------------------------------------------------

_FENCE = re.compile(r"[ \t]*(?:```|~~~)[ ]*([A-Za-z0-9_+-]*)")
_NAME = r"[A-Za-z_][A-Za-z_0-9]*"
_DECISIVE = re.compile(
    rf"[ ]*(?:(?:def|class)[ ]+{_NAME}.*:|print\(.*|for[ ]+{_NAME}.*[ ]in[ ].*:)"
    rf"|(?:import|from)[ ]+{_NAME}.*|[ ]+return(?:[ ].*)?"
)
_PYTHONIC = re.compile(
    rf"[ ]*(?:\#.*|(?:for|while|if|elif|with|except)(?![A-Za-z0-9_]).*:|(?:else|try|finally)[ ]*:"
    rf"|{_NAME}(?:[ ]*,[ ]*{_NAME})*[ ]*(?:[-+*/]|//|\*\*)?=(?!=).*|[)\]}}].*"
    r"|pass|break|continue)"
)
_TRIPLE_QUOTES = ('"""', "'''")


def regions(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, is code) of a text: fenced blocks, and runs of lines that are Python."""
    prose = start = 0
    while start < len(text):
        end = _line_end(text, start)
        if not text[start:end].strip(" \r"):
            start = end + 1
            continue
        fence = _FENCE.match(text, start, end)
        if fence is not None:
            first = end + 1
            closing = _closing_fence(text, first)
            language = fence[1].lower()
            if language in CODE_LANGUAGES or (
                not language and _python_lines(text, first, closing) == (closing, True)
            ):
                yield prose, first, False
                yield first, closing, True
                prose = closing
            start = _line_end(text, closing) + 1
            continue
        block, is_code = _python_lines(text, start, len(text))
        if is_code:
            yield prose, start, False
            yield start, block, True
            prose = block
        start = max(block, end + 1)
    yield prose, len(text), False


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _closing_fence(text: str, start: int) -> int:
    """Return where the line of the next fence begins, or the text's end."""
    while start < len(text):
        end = _line_end(text, start)
        if _FENCE.match(text, start, end):
            return start
        start = end + 1
    return len(text)


def _python_lines(text: str, start: int, limit: int) -> tuple[int, bool]:
    """Return where the lines from ``start`` on end that may be Python, and whether they are."""
    decisive = False
    quotes = ""
    last = opened = start
    while start < limit:
        end = min(_line_end(text, start), limit)
        line = text[start:end].rstrip(" \r")
        if quotes:
            if quotes in line:
                quotes = ""
                last = min(end + 1, limit)
        elif line.strip(" "):
            if _DECISIVE.fullmatch(line):
                decisive = True
            elif not _PYTHONIC.fullmatch(line) and not (
                decisive and line.lstrip(" ").startswith(_TRIPLE_QUOTES)
            ):
                break
            for mark in _TRIPLE_QUOTES:
                if line.count(mark) % 2:
                    quotes = mark
                    opened = min(end + 1, limit)
                    break
            else:
                last = min(end + 1, limit)
        start = end + 1
    if quotes:
        last = opened  # never closed: what follows is not a string
    return last, decisive


class _Mark(IntEnum):
    """Kinds of tokens of code."""

    NUMBER = 0
    NAME = 1
    OPERATOR = 2  # also commas, brackets, colons
    OTHER = 3  # strings and whatever no statement is made of


class _Lexeme(NamedTuple):
    mark: _Mark
    text: str
    start: int
    end: int


_CODE_TOKEN = re.compile(
    rf"(?P<number>(?:[0-9][0-9_]*)(?:\.[0-9]*)?|\.[0-9]+)|(?P<name>{_NAME})"
    r"|(?P<operator>\*\*=?|//=?|[-+*/]=?|==|!=|<=|>=|:=|->|[=(),:\[\]{}<>%])"
)
_OPENING = {"(": ")", "[": "]", "{": "}"}
_FUNCTIONS = {
    "int": _Seen.INT,
    "float": _Seen.FLOAT,
    "round": _Seen.ROUND,
    "abs": _Seen.ABS,
    "Rational": _Seen.RATIONAL,
    "Fraction": _Seen.RATIONAL,
    "Integer": _Seen.INT,
}
_CONDITIONAL = ("for", "while", "if", "elif", "else", "except", "match", "case", "async")
_STRAIGHT = ("with", "try", "finally", "class", "def")
_MAIN = "__name__"


class _Code:
    """Reads one region of code, line by line; nothing is carried out but arithmetic."""

    def __init__(self, reader: _Reader, start: int, end: int) -> None:
        self.reader = reader
        self.text = reader.text
        self.at = start
        self.end = end
        # Lines that are indented deeper than this may not be reached, or reached again.
        self.conditional: int | None = None

    def read(self) -> None:
        while self.at < self.end:
            indent, line, whole = self._line()
            if line:
                self._statement(indent, line, whole)

    # -- lexing --

    def _line(self) -> tuple[int, list[_Lexeme], bool]:
        """Read one logical line: its indentation, its tokens, whether these are all of them."""
        indent = 0
        while self.at < self.end and self.text[self.at] in " \t":
            indent += 1
            self.at += 1
        line: list[_Lexeme] = []
        depth = 0
        whole = True
        while self.at < self.end:
            char = self.text[self.at]
            start = self.at
            if char in "\n\r":
                self.at += 1
                if depth == 0:
                    break
                continue
            if char in " \t":
                self.at += 1
                continue
            if char == ";" and depth == 0:
                self.at += 1
                break
            if char == "#":
                self.at = min(_line_end(self.text, start), self.end)
                continue
            if char == "\\" and self._newline(start + 1):
                self.at += 2
                continue
            if char in "\"'":
                self._string(char)
                token = _Lexeme(_Mark.OTHER, "", start, self.at)
            elif match := _CODE_TOKEN.match(self.text, start, self.end):
                self.at = match.end()
                mark = _Mark[(match.lastgroup or "").upper()]
                token = _Lexeme(mark, match[0], start, self.at)
                if mark is _Mark.NUMBER:
                    self.reader_counts(match[0])
                if match[0] in _OPENING:
                    depth += 1
                elif match[0] in (")", "]", "}"):
                    depth = max(depth - 1, 0)
            else:
                self.at += 1
                token = _Lexeme(_Mark.OTHER, char, start, self.at)
            if len(line) >= MAX_LINE:
                whole = False
            else:
                line.append(token)
        return indent, line, whole

    def _newline(self, at: int) -> bool:
        return at < self.end and self.text[at] in "\n\r"

    def reader_counts(self, text: str) -> None:
        number = _code_number(text)
        if number is not None:
            self.reader.count(number)

    def _string(self, quote: str) -> None:
        """Pass over a string; one that is not closed ends with its line, or with the code."""
        if self.text.startswith(quote * 3, self.at, self.end):
            closing = self.text.find(quote * 3, self.at + 3, self.end)
            self.at = self.end if closing < 0 else closing + 3
            return
        self.at += 1
        while self.at < self.end and self.text[self.at] not in "\n\r":
            char = self.text[self.at]
            self.at += 1
            if char == quote:
                return
            if char == "\\" and self.at < self.end:
                self.at += 1

    # -- statements --

    def _statement(self, indent: int, line: list[_Lexeme], whole: bool) -> None:
        if self.conditional is not None and indent <= self.conditional:
            self.conditional = None
        self._forget_inner(line)
        first = line[0].text if line[0].mark is _Mark.NAME else ""
        if first in _CONDITIONAL:
            if _MAIN not in (token.text for token in line[:3]):
                if self.conditional is None:
                    self.conditional = indent
                self._forget(line)
            return
        if first in _STRAIGHT or first in ("import", "from", "global", "nonlocal", "del", "lambda"):
            self._forget(line)
            return
        if not whole or self.conditional is not None:
            self._forget(line)
            return
        if first == "return":
            self._stated(line, 1, len(line))
        elif first == "print" and len(line) > 2 and line[1].text == "(" and line[-1].text == ")":
            for start, end in _arguments(line, 2, len(line) - 1):
                self._stated(line, start, end)
        else:
            self._assignment(line)

    def _forget(self, line: list[_Lexeme]) -> None:
        """Every name that this line may bind is unknown from here on."""
        binding = line[0].text in _BINDING
        for index, token in enumerate(line):
            if token.mark is _Mark.NAME and (
                binding or (index + 1 < len(line) and line[index + 1].text in _ASSIGNING)
            ):
                self._unknown(token.text)

    def _forget_inner(self, line: list[_Lexeme]) -> None:
        """The names that a comprehension or := binds within a line are unknown, too."""
        bound = False
        for index, token in enumerate(line):
            if token.mark is _Mark.NAME:
                if token.text in ("for", "in"):
                    bound = token.text == "for" and index > 0
                elif bound or (index + 1 < len(line) and line[index + 1].text == ":="):
                    self._unknown(token.text)

    def _unknown(self, name: str) -> None:
        if name in self.reader.names:
            self.reader.names[name] = None

    def _assignment(self, line: list[_Lexeme]) -> None:
        signs = [
            index
            for index, token in enumerate(line)
            if token.text == "=" and token.mark is _Mark.OPERATOR and not _inside(line, index)
        ]
        if len(line) > 2 and line[0].mark is _Mark.NAME and line[1].text in _AUGMENTED:
            op = _AUGMENTED[line[1].text]
            items = self._items(line, 2, len(line))
            known = self.reader.names.get(line[0].text)
            value = None
            if items is not None and known is not None:
                before = _Item(_Kind.NUMBER, line[0].start, line[0].end, number=known)
                sign = _Item(_Kind.OPERATOR, line[1].start, line[1].end, op=op)
                left = _Item(_Kind.OPEN, line[1].start, line[1].end)
                right = _Item(_Kind.CLOSE, line[-1].end, line[-1].end)
                bracket = [left, *items, right] if len(items) > 1 else items
                value = self._value([before, sign, *bracket], line[0].start, line[-1].end)
            self._bind(line[0].text, value)
            return
        if not signs:
            self._forget(line)
            return
        values = [
            self._stated(line, start, end)
            for start, end in _arguments(line, signs[-1] + 1, len(line))
        ]
        begin = 0
        for sign in signs:
            targets = _arguments(line, begin, sign)
            for index, (start, end) in enumerate(targets):
                name = line[start]
                if name.mark is not _Mark.NAME or end - start > 1 and line[start + 1].text != ":":
                    continue
                value = values[index] if len(targets) == len(values) else None
                self._bind(name.text, value)
            begin = sign + 1

    def _bind(self, name: str, value: Fraction | None) -> None:
        names = self.reader.names
        if name in names or len(names) < MAX_NAMES:
            names[name] = value

    def _stated(self, line: list[_Lexeme], start: int, end: int) -> Fraction | None:
        items = self._items(line, start, end)
        if not items:
            return None
        return self._value(items, line[start].start, line[end - 1].end)

    def _value(self, items: list[_Item], start: int, end: int) -> Fraction | None:
        result = _evaluate(items, 0, len(items))
        if result is None:
            return None
        self.reader.state(result[1], start, end, code=True)
        return result[0].number

    def _items(self, line: list[_Lexeme], start: int, end: int) -> list[_Item] | None:
        """Return an expression's items, names being their values; None for anything else."""
        items: list[_Item] = []
        at = start
        while at < end:
            token = line[at]
            at += 1
            match token.mark:
                case _Mark.NUMBER:
                    number = _code_number(token.text)
                    if number is None:
                        return None
                    items.append(_Item(_Kind.NUMBER, token.start, token.end, number=number))
                case _Mark.NAME if at < end and line[at].text == "(":
                    seen = _FUNCTIONS.get(token.text)
                    if seen is None:
                        return None
                    items.append(_Item(_Kind.OPEN, token.start, token.end, seen=seen))
                    at += 1
                case _Mark.NAME:
                    known = self.reader.names.get(token.text)
                    if known is None:
                        return None
                    items.append(_Item(_Kind.NUMBER, token.start, token.end, number=known))
                case _Mark.OPERATOR if token.text in _CODE_OPERATORS:
                    op = _CODE_OPERATORS[token.text]
                    items.append(_Item(_Kind.OPERATOR, token.start, token.end, op=op))
                case _Mark.OPERATOR if token.text in "(),":
                    kind = {"(": _Kind.OPEN, ")": _Kind.CLOSE, ",": _Kind.COMMA}[token.text]
                    # A call of what is no function, as in 2(3), does not run.
                    if kind is _Kind.OPEN and items and items[-1].kind in _OPERAND_ENDS:
                        return None
                    items.append(_Item(kind, token.start, token.end))
                case _:
                    return None
        return items


_AUGMENTED = {"+=": "+", "-=": "-", "*=": "*", "/=": "/", "//=": "F", "**=": "^"}
_CODE_OPERATORS = {"+": "+", "-": "-", "*": "*", "/": "/", "//": "F", "**": "^"}
_ASSIGNING = ("=", ",", ":", ")", *_AUGMENTED)
_BINDING = ("for", "def", "class", "import", "from", "global", "nonlocal", "del", "with", "except")


def _code_number(text: str) -> Fraction | None:
    text = text.replace("_", "")
    whole, _, decimals = text.partition(".")
    if len((whole + decimals).lstrip("0")) > MAX_DIGITS or len(decimals) > MAX_DIGITS:
        return None
    return Fraction(int(whole + decimals or "0"), 10 ** len(decimals))


def _inside(line: list[_Lexeme], index: int) -> bool:
    """Tell whether a token stands in a bracket."""
    depth = 0
    for token in line[:index]:
        if token.mark is _Mark.OPERATOR:
            depth += (token.text in "([{") - (token.text in ")]}")
    return depth > 0


def _arguments(line: list[_Lexeme], start: int, end: int) -> list[tuple[int, int]]:
    """Split at the commas that stand in no bracket; empty pieces are left out."""
    pieces = []
    depth = 0
    begin = start
    for at in range(start, end):
        token = line[at]
        if token.mark is not _Mark.OPERATOR:
            continue
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "," and depth == 0:
            pieces.append((begin, at))
            begin = at + 1
    pieces.append((begin, end))
    return [(first, last) for first, last in pieces if first < last]
