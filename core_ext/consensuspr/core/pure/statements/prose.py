"""Prose and LaTeX to tokens, up to the next stop.

One pass over the canonical characters of a region, from left to right.  What cannot be within a
statement ends a stretch: a full stop, a comma, a blank line, a comparison, most punctuation.
Emphasis, delimiters and fonts leave nothing behind; commands of LaTeX become what they stand for;
whatever is unknown becomes a NAME, which an expression must not touch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any

from consensuspr.core.pure.characters import char_class
from consensuspr.core.pure.statements.arithmetic import AS_IT_IS, REPEATS, Shown
from consensuspr.core.pure.statements.numbers import WHOLE
from consensuspr.core.statements import (
    ARGUMENT,
    MANIFOLDS,
    MAX_ARGUMENT,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_IDEOGRAPHS,
    MAX_NAMED,
    MAX_STRETCH,
    MAX_SUBSCRIPT,
    PARTS,
    UNNAMED,
    WORDS,
    Meaning,
)
from consensuspr.core.tables import (
    COMMANDS,
    DISPLAYS,
    FRACTIONS,
    LOOKAHEAD,
    REPEATING,
    SUPERSCRIPTS,
    UNIT_LETTERS,
    Char,
    Command,
)


class ProseKind(IntEnum):
    """Kinds of tokens."""

    NUMBER = 0
    FRACTION = 1  # a numerator and a denominator written as one: ½, or \\frac12
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
class ProseToken:
    """A token, at characters [start, end).

    Attributes:
        gap: blanks or a line's end stand before it.
        op: an operator or a sign of equality, as it stands in an item.
        number: of a number; a fraction's numerator; what a word multiplies by ("twice").
        denominator: of a fraction; what a word divides by ("half").
        shown: how a number is written.
        meaning: of a word.
        letters: of a word.
        single: a word of one letter that is neither a word nor a unit.
        times: an x, which may stand for a multiplication.
        name: what the line says before its first sign of equality.
    """

    kind: ProseKind
    start: int
    end: int
    gap: bool
    op: str = ""
    number: Fraction = Fraction(1)
    denominator: Fraction = Fraction(1)
    shown: Shown = AS_IT_IS
    meaning: Meaning = Meaning.PLAIN
    letters: int = 0
    single: bool = False
    times: bool = False
    name: str = ""


def read_stretches(text: str, start: int, end: int) -> Iterator[list[ProseToken]]:
    """Yield the tokens of each stretch of ``text[start:end]`` that may hold a statement.

    Args:
        text: canonical characters.
        start: first character of a region of prose.
        end: character after its last one.
    """
    scanner = _Scanner(text, start, end)
    while scanner.at < end:
        scanner.step()
        yield from scanner.finished()
    scanner.stop()
    yield from scanner.finished()


class _Brace(IntEnum):
    """What the closing brace of an open one stands for."""

    GROUP = 0
    NOTHING = 1
    NUMERATOR = 2
    DENOMINATOR = 3


_LIST_MARK = re.compile(r"(?:\**[0-9]{1,3}\**[.)]\**|\([0-9]{1,3}\))[ ]+(?![-+*/×=^ ])")
_DEGREES = re.compile(r"\^[ ]*(?:\{[ ]*\\circ[ ]*\}|\\circ(?![A-Za-z]))")
_NUMBER = re.compile(rf"(?P<whole>{WHOLE})?(?P<decimals>\.[0-9]+)?")
_REPEATING = re.compile(rf"\\(?:{'|'.join(REPEATING)})[ ]*(?:\{{[ ]*([0-9]+)[ ]*\}}|([0-9]))")
_POINT_REPEATING = re.compile(rf"\.{_REPEATING.pattern}")
_NOT_DIGITS = re.compile(r"[^0-9]+")
_FRACTION = re.compile(
    2 * r"[ ]*(?:\{[ ]*([0-9]+)[ ]*\}|([0-9]))"  # \frac{1}{2}, \frac12, \frac1{12}
)
_SUBSCRIPT = re.compile(rf"_(?:\{{[{ARGUMENT}]{{0,{MAX_SUBSCRIPT}}}\}}|[0-9A-Za-z])")
_ARGUMENT = re.compile(rf"[ ]*\{{[{ARGUMENT}]{{0,{MAX_ARGUMENT}}}\}}")
_AFTER_FACTORIAL = re.compile(r"[ ]*[-+*/×=^<>)]")
_AFTER_ABBREVIATION = re.compile(r"[ ]+[*+×/=]")
_BEHIND_UNITS = (Char.PLUS, Char.MINUS, Char.STAR, Char.TIMES, Char.SLASH, Char.EQUALS, Char.CLOSE)


def _is_ideograph(char: str) -> bool:
    """Tell whether a character is one of East Asian scripts or a pictograph; no sign of others."""
    return char_class(char) is Char.OTHER and ("\u3040" <= char < "\ud800" or char >= "\U0001f000")


class _Scanner:
    """Reads one region of prose, token by token."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.at = start
        self._text = text
        self._end = end
        self._finished: list[list[ProseToken]] = []
        self._tokens: list[ProseToken] = []
        self._not_words = 0  # of these tokens
        self._braces: list[_Brace] = []
        self._lost_braces = 0  # opened beyond the depth that is remembered
        self._gap = True
        self._line_start = True
        self._line_at = start
        self._line_named = False
        self._table_row = False

    def finished(self) -> list[list[ProseToken]]:
        """Hand out the stretches that have ended since this was last asked."""
        finished, self._finished = self._finished, []
        return finished

    def step(self) -> None:
        """Read what stands at this place."""
        start = self.at
        char = self._text[start]
        cls = char_class(char)
        if cls in (Char.SPACE, Char.NEWLINE):
            self._blanks(cls)
            return
        at_line_start, self._line_start = self._line_start, False
        if at_line_start and self._list_mark(cls):
            return
        if cls is Char.LETTER:
            self._word()
        elif cls is Char.DIGIT or (cls is Char.POINT and self._class(start + 1) is Char.DIGIT):
            self._number()
        else:
            self.at += 1
            self._sign(char, cls, start)

    def stop(self) -> None:
        """End the stretch; it is of no use without a sign of equality or a verb."""
        if any(
            token.kind is ProseKind.EQUALS or token.meaning in (Meaning.VERB, Meaning.EQUAL)
            for token in self._tokens
        ):
            self._finished.append(self._tokens)
        self._tokens = []
        self._not_words = 0
        self._gap = True
        self._braces = []
        self._lost_braces = 0

    # -- what stands at a place --

    def _peek(self, at: int | None = None) -> str:
        at = self.at if at is None else at
        return self._text[at] if at < self._end else ""

    def _class(self, at: int) -> Char:
        return char_class(self._text[at]) if at < self._end else Char.NEWLINE

    def _take(self, pattern: re.Pattern[str], start: int) -> re.Match[str] | None:
        """Go behind what matches from ``start`` on, if anything does."""
        match = pattern.match(self._text, start, self._end)
        if match is not None:
            self.at = match.end()
        return match

    def _skip(self, chars: str) -> None:
        while self.at < self._end and self._text[self.at] in chars:
            self.at += 1

    def _skip_spaces(self) -> None:
        while self._class(self.at) is Char.SPACE:
            self.at += 1

    def _last(self, *kinds: ProseKind) -> bool:
        return bool(self._tokens) and self._tokens[-1].kind in kinds

    def _touches(self, *kinds: ProseKind) -> bool:
        """Tell whether such a token stands before this place without a blank."""
        return not self._gap and self._last(*kinds)

    # -- tokens --

    def _put(self, kind: ProseKind, start: int, **fields: Any) -> None:
        if kind is not ProseKind.WORD:
            if self._not_words >= MAX_STRETCH:
                self.stop()
            self._not_words += 1
        self._tokens.append(ProseToken(kind, start, self.at, self._gap, **fields))
        self._gap = False

    def _operator(self, op: str, start: int) -> None:
        self._put(ProseKind.OPERATOR, start, op=op)

    def _fraction(self, start: int, numerator: str, denominator: str) -> None:
        if max(len(numerator), len(denominator)) > MAX_DIGITS:
            self._put(ProseKind.NAME, start)
            return
        above, below = Fraction(int(numerator)), Fraction(int(denominator))
        self._put(ProseKind.FRACTION, start, number=above, denominator=below)

    # -- lines --

    def _blanks(self, cls: Char) -> None:
        lines = line = 0
        while cls in (Char.SPACE, Char.NEWLINE):
            if cls is Char.NEWLINE and self._text[self.at : self.at + 2] != "\r\n":
                lines += 1
                line = self.at + 1
            self.at += 1
            if self.at >= self._end:
                break
            cls = self._class(self.at)
        self._gap = True
        if lines == 2 and self.at - line <= LOOKAHEAD:
            # A blank line before display mathematics is a line break.
            lines -= self._text.startswith(DISPLAYS, self.at, self._end)
        if lines:
            self._line_break(lines)

    def _line_break(self, lines: int) -> None:
        """Begin a line; what was said goes on behind a sign or an operator."""
        self._begin_line()
        self._line_named = False
        self._table_row = False
        if lines > 1:
            self.stop()
        elif not (
            self._last(ProseKind.EQUALS, ProseKind.OPERATOR, ProseKind.LINE)
            or (self._last(ProseKind.STAR) and self._tokens[-1].gap)
        ):
            self._put(ProseKind.LINE, self.at)
            self._gap = True

    def _begin_line(self) -> None:
        self._line_start = True
        self._line_at = self.at

    def _list_mark(self, cls: Char) -> bool:
        """Pass over a mark of a list, which ends what was said before."""
        bullet = cls in (Char.MINUS, Char.STAR, Char.PLUS) and (
            self._class(self.at + 1) is Char.SPACE
        )
        if bullet or cls is Char.BULLET:
            self.at += 1
        elif not self._take(_LIST_MARK, self.at):
            if cls is Char.BAR:
                self._table_row = True
            return False
        self.stop()
        self._begin_line()
        return True

    # -- words --

    def _word(self) -> None:
        start = self.at
        if (
            self._text[start] in "xX"
            and self._touches(ProseKind.NUMBER)
            and self._class(start + 1) is Char.DIGIT
        ):
            self.at += 1
            self._put(ProseKind.WORD, start, letters=1, times=True, single=True)
            return
        letters, plain = self._letters()
        word = self._text[start : self.at].lower()
        if self.at == start + 1:
            self._letter(start, word)
        elif (
            self._peek() == "("
            and word not in WORDS
            and not self._last(
                ProseKind.NUMBER, ProseKind.FRACTION, ProseKind.CLOSE, ProseKind.WORD
            )
        ):
            self._put(ProseKind.NAME, start)
        elif plain and WORDS.get(word) is Meaning.PERCENT:
            self._put(ProseKind.PERCENT, start)
        else:
            self._put(
                ProseKind.WORD,
                start,
                letters=letters,
                meaning=WORDS.get(word, Meaning.PLAIN) if plain else Meaning.PLAIN,
                number=Fraction(MANIFOLDS.get(word, 1)),
                denominator=Fraction(PARTS.get(word, 1)),
            )

    def _letters(self) -> tuple[int, bool]:
        """Go behind a word: its letters, and whether it is of nothing else (but - and ')."""
        letters = 0
        plain = True
        while True:
            cls, following = self._class(self.at), self._class(self.at + 1)
            if cls is Char.LETTER:
                letters += 1
            elif cls is Char.DIGIT:
                plain = False
            elif cls is Char.UNDERSCORE and following in (Char.LETTER, Char.DIGIT):
                plain = False
            elif not (
                following is Char.LETTER
                and (cls is Char.PRIME or (cls is Char.MINUS and self._peek() != "−"))
            ):
                return letters, plain
            self.at += 1

    def _letter(self, start: int, word: str) -> None:
        """Put a word of one letter: a multiplication, "a", a unit, or a variable."""
        touched = self._touches(ProseKind.NUMBER)
        following = self._class(self.at)
        if word == "x":
            self._put(ProseKind.WORD, start, letters=1, times=True, single=True)
        elif (
            word in "ai"
            and not touched
            and following not in (Char.CARET, Char.UNDERSCORE, Char.OPEN)
        ):
            self._put(ProseKind.WORD, start, letters=1, meaning=WORDS[word])
        elif self._text[start] in UNIT_LETTERS and (touched or following is not Char.OPEN):
            self._put(ProseKind.WORD, start, letters=1, meaning=Meaning.UNIT)
        else:
            self._put(ProseKind.WORD, start, letters=1, single=True)

    # -- numbers --

    def _number(self) -> None:
        start = self.at
        match = self._take(_NUMBER, start)
        assert match is not None
        whole = _NOT_DIGITS.sub("", match["whole"] or "")
        decimals = (match["decimals"] or ".")[1:]
        if repeating := self._take(_REPEATING if decimals else _POINT_REPEATING, self.at):
            self._repeating(start, whole, decimals, repeating[1] or repeating[2])
            return
        digits = (whole + decimals).lstrip("0")
        if len(digits) > MAX_DIGITS or len(decimals) > MAX_DIGITS:
            self._put(ProseKind.NAME, start)
            return
        number = Fraction(int(digits or "0"), 10 ** len(decimals))
        if self._peek() == "." and self._class(self.at + 1) is Char.DIGIT:
            self._put(ProseKind.NAME, start)  # a version, or an address
            return
        zeros = 0 if decimals or not digits else len(digits) - len(digits.rstrip("0"))
        self._put(ProseKind.NUMBER, start, number=number, shown=Shown(len(decimals), zeros))

    def _repeating(self, start: int, whole: str, decimals: str, repeated: str) -> None:
        """Put the exact value of a decimal that repeats: 0.1\\overline{36} is 3/22."""
        places = len(decimals) + len(repeated)
        digits = whole + decimals + repeated
        if places > MAX_DIGITS or len(digits.lstrip("0")) > MAX_DIGITS:
            self._put(ProseKind.NAME, start)
            return
        number = Fraction(
            int(digits) - int(whole + decimals or "0"), 10**places - 10 ** len(decimals)
        )
        self._put(ProseKind.NUMBER, start, number=number, shown=REPEATS)

    def _superscript(self, start: int) -> None:
        digits = SUPERSCRIPTS[self._text[start]]
        while self._class(self.at) is Char.SUPERSCRIPT:
            digits += SUPERSCRIPTS[self._text[self.at]]
            self.at += 1
        if self._touches(ProseKind.WORD):
            return  # cm²
        if not digits.isdigit() or len(digits) > 2:
            self._put(ProseKind.NAME, start)
            return
        self._operator("^", start)
        self._put(ProseKind.NUMBER, start, number=Fraction(int(digits)))

    # -- signs --

    def _sign(self, char: str, cls: Char, start: int) -> None:
        """Read a character that is no letter, digit or blank; ``at`` stands behind it."""
        match cls:
            case Char.PLUS:
                self._operator("+", start)
            case Char.MINUS:
                self._minus(char, start)
            case Char.STAR:
                behind = self.at
                self._skip("*")
                # Three and more are a line of Markdown, or its strongest emphasis.
                if self.at - behind < 2:
                    self._put(ProseKind.STAR if self.at == behind else ProseKind.STARS, start)
            case Char.TIMES:
                self._operator("*", start)
            case Char.BULLET if self._last(ProseKind.NUMBER, ProseKind.CLOSE):
                self._operator("*", start)
            case Char.SLASH if self._peek() != "/":
                self._operator("/", start)
            case Char.CARET:
                if self._take(_DEGREES, start):
                    self._skip_scale()
                else:
                    self._operator("^", start)
            case Char.SUPERSCRIPT:
                self._superscript(start)
            case Char.UNDERSCORE:
                if self._touches(ProseKind.WORD, ProseKind.NAME, ProseKind.CLOSE):
                    self._take(_SUBSCRIPT, start)
            case Char.EQUALS:
                self._equals(start)
            case Char.RELATION if char == "≈":
                self._put(ProseKind.EQUALS, start, op="≈")
            case Char.LESS | Char.GREATER:
                self._skip("<>=")
                self.stop()
            case Char.OPEN | Char.BRACKET_OPEN:
                self._put(ProseKind.OPEN, start)
            case Char.CLOSE | Char.BRACKET_CLOSE:
                self._put(ProseKind.CLOSE, start)
            case Char.BRACE_OPEN:
                self._open_brace(_Brace.GROUP, start)
            case Char.BRACE_CLOSE:
                self._close_brace(start)
            case Char.COLON:
                self._put(ProseKind.COLON, start)
            case Char.BANG if not self._gap and _AFTER_FACTORIAL.match(
                self._text, self.at, self._end
            ):
                self._put(ProseKind.NAME, start)
            case Char.MARK if char in "$`":
                pass
            case Char.DROP if char == "%":
                self._put(ProseKind.PERCENT, start)
            case Char.DROP:
                self._skip_scale()
            case Char.BAR if not self._table_row:
                self._put(ProseKind.NAME, start)
            case Char.AMPERSAND:
                self._put(ProseKind.AMPERSAND, start)
            case Char.BACKSLASH:
                self._command(start)
            case Char.FRACTION:
                self._fraction(start, *FRACTIONS[char].split("/"))
            case Char.SYMBOL | Char.ROOT | Char.PLUS_MINUS:
                self._put(ProseKind.NAME, start)
            case Char.SUBSCRIPT:
                if not self._touches(ProseKind.WORD, ProseKind.NAME):
                    self._put(ProseKind.NAME, start)
            case Char.POINT:
                self._point(start)
            case _ if char == "…":
                self._put(ProseKind.DOTS, start)
            case Char.OTHER if _is_ideograph(char) and self._ideographic_unit():
                pass
            case _:
                self.stop()

    def _ideographic_unit(self) -> bool:
        """Pass over a unit in ideographs between a number and an operation: 3米 + 4米 = 7米."""
        at = self.at
        while at - self.at < MAX_IDEOGRAPHS - 1 and _is_ideograph(self._peek(at)):
            at += 1
        behind = at
        while self._peek(behind) == " ":
            behind += 1
        cls = self._class(behind)
        bullet = self._gap and cls is Char.MINUS
        if not self._last(ProseKind.NUMBER) or cls not in _BEHIND_UNITS or bullet:
            return False
        self.at = at
        return True

    def _minus(self, char: str, start: int) -> None:
        if char == "-" and self._peek() in ("-", ">"):
            self._skip("->")
            self.stop()
        elif (
            char == "-"
            and self._touches(ProseKind.NUMBER)
            and self._class(self.at) is Char.LETTER
            and self._class(self.at + 1) is Char.LETTER
        ):
            self._gap = True  # 8-hour days: the word is a unit
        else:
            self._operator("-", start)

    def _skip_scale(self) -> None:
        """Pass over the letter of a temperature: 30°C."""
        if self._peek() in ("C", "F") and self._class(self.at + 1) is not Char.LETTER:
            self.at += 1

    def _equals(self, start: int) -> None:
        before = self._text[start - 1 : start]
        after, second = self._peek(), self._peek(self.at + 1)
        # Comparisons and assignments are none; << and >> are brackets of a calculator's remark.
        if (
            before in ("!", "~", ":")
            or after in ("=", "~")
            or (after in ("<", ">") and after != second)
        ):
            self._skip("=<>~")
            self.stop()
        else:
            self._put(ProseKind.EQUALS, start, op="=", name=self._line_name(start))

    def _line_name(self, sign: int) -> str:
        """Return what stands before the first sign of its line, without blanks and marks."""
        if self._line_named:
            return ""
        self._line_named = True
        if sign - self._line_at > MAX_NAMED:
            return ""
        name = "".join(char for char in self._text[self._line_at : sign] if char not in UNNAMED)
        return name if name.isascii() and any(map(str.isalpha, name)) else ""

    def _point(self, start: int) -> None:
        if self._peek() == ".":
            self._skip(".")
            self._put(ProseKind.DOTS, start)
        elif not (
            self._touches(ProseKind.WORD)
            and _AFTER_ABBREVIATION.match(self._text, self.at, self._end)
        ):
            self.stop()

    # -- LaTeX --

    def _open_brace(self, brace: _Brace, start: int) -> None:
        if len(self._braces) >= MAX_DEPTH:
            self._lost_braces += 1
            self._put(ProseKind.NAME, start)
            return
        self._braces.append(brace)
        if brace is not _Brace.NOTHING:
            self._put(ProseKind.OPEN, start)

    def _close_brace(self, start: int) -> None:
        if self._lost_braces:
            self._lost_braces -= 1
            self._put(ProseKind.NAME, start)
            return
        brace = self._braces.pop() if self._braces else _Brace.GROUP
        if brace is _Brace.NOTHING:
            return
        self._put(ProseKind.CLOSE, start)
        if brace is _Brace.DENOMINATOR:
            self._put(ProseKind.CLOSE, start)
        elif brace is _Brace.NUMERATOR:
            self._denominator(start)

    def _command(self, start: int) -> None:
        name = self._command_name()
        action, payload = COMMANDS.get(name, (Command.WORD, ""))
        match action:
            case Command.EMIT:
                self._sign(payload, char_class(payload), start)
            case Command.SPACE | Command.THIN:
                self._gap = True
            case Command.NOTHING if name == "%":
                self._put(ProseKind.PERCENT, start)
            case Command.NOTHING if name == "{":
                self._put(ProseKind.OPEN, start)
            case Command.NOTHING if name == "}":
                self._put(ProseKind.CLOSE, start)
            case Command.NOTHING | Command.MARK:
                pass
            case Command.DELIMITER:
                if self._peek() == ".":
                    self.at += 1
            case Command.BREAK if name in ("\\", "newline", "linebreak"):
                self._line_break(1)
            case Command.BREAK:
                self.stop()
            case Command.WRAP | Command.TEXT | Command.UPRIGHT:
                self._skip_spaces()
                if self._peek() == "{":
                    self.at += 1
                    self._open_brace(_Brace.NOTHING, start)
                if action is not Command.WRAP:
                    self._gap = True
            case Command.DISCARD:
                self._take(_ARGUMENT, self.at)
            case Command.ENVIRONMENT:
                self._take(_ARGUMENT, self.at)
                self.stop()
            case Command.FRAC:
                self._fraction_command(start)
            case _:
                self._put(ProseKind.NAME, start)

    def _command_name(self) -> str:
        start = self.at
        while (char := self._peek()).isascii() and char.isalpha():
            self.at += 1
        if self.at == start:  # of one character
            self.at += len(char)
            return char
        name = self._text[start : self.at]
        if char == "*":
            self.at += 1
        return name

    def _fraction_command(self, start: int) -> None:
        if match := self._take(_FRACTION, self.at):
            above, below = filter(None, match.groups())
            self._fraction(start, above, below)
            return
        self._skip_spaces()
        if self._peek() == "{":
            self.at += 1
            self._put(ProseKind.OPEN, start)
            self._open_brace(_Brace.NUMERATOR, start)
        elif self._class(self.at) is Char.DIGIT:
            self._put(ProseKind.OPEN, start)
            self._digit(start)
            self._denominator(start)
        else:
            self._put(ProseKind.NAME, start)

    def _denominator(self, start: int) -> None:
        self._skip_spaces()
        self._operator("/", start)
        if self._peek() == "{":
            self.at += 1
            self._open_brace(_Brace.DENOMINATOR, self.at - 1)
            return
        if self._class(self.at) is Char.DIGIT:
            self._digit(start)
        else:
            self._put(ProseKind.NAME, start)
        self._put(ProseKind.CLOSE, start)

    def _digit(self, start: int) -> None:
        """Read a digit that is an argument without braces."""
        self.at += 1
        self._put(ProseKind.NUMBER, start, number=Fraction(int(self._text[self.at - 1])))
