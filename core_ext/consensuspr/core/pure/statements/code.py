"""Program code: which lines of a text are Python, and what they state.

Nothing is executed.  Code is read line by line as if every line ran once, with one table of names
for the whole text; an operation that is assigned, printed or returned is a statement.  A name is
unknown after anything that may give it another value: a loop, a branch, a comprehension, a call
that is not seen through.  Comments and strings are read as prose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import IntEnum
from fractions import Fraction
from itertools import zip_longest
from typing import NamedTuple

from consensuspr.core.patterns import encode
from consensuspr.core.pure.characters import canonical_characters
from consensuspr.core.pure.statements.arithmetic import (
    OPERAND_ENDS,
    ArithmeticItem,
    ItemKind,
    SeenThrough,
    evaluate,
)
from consensuspr.core.pure.statements.equations import StatementLog
from consensuspr.core.pure.statements.numbers import WrittenNumber, written_numbers
from consensuspr.core.statements import CODE_LANGUAGES, MAX_DIGITS, MAX_LINE, MAX_NAMES

# --- where code stands --------------------------------------------------------------------

_NAME = r"[A-Za-z_][A-Za-z_0-9]*+"
_FENCE = re.compile(r"[ \t]*(?:```|~~~)[ ]*([A-Za-z0-9_+-]*)")
# A line that only a program has, and one that may stand in a program.
_DECISIVE = re.compile(
    rf"[ ]*(?:(?:def|class)[ ]+{_NAME}.*:|print\(.*|for[ ]+{_NAME}(?>.*?[ ]in[ ]).*:)"
    rf"|(?:import|from)[ ]+{_NAME}.*|[ ]+return(?:[ ].*)?"
)
_PYTHONIC = re.compile(
    rf"[ ]*(?:\#.*|(?:for|while|if|elif|with|except)(?![A-Za-z0-9_]).*:|(?:else|try|finally)[ ]*:"
    rf"|{_NAME}(?:[ ]*,[ ]*{_NAME})*+[ ]*(?:[-+*/]|//|\*\*)?=(?!=).*|[)\]}}].*"
    r"|pass|break|continue)"
)
_TRIPLE_QUOTES = ('"""', "'''")


class CodeRegion(NamedTuple):
    """Characters [start, end) of a text, program code or not."""

    start: int
    end: int
    is_code: bool


def split_code(text: str) -> Iterator[CodeRegion]:
    """Yield the regions of a text: fenced blocks and runs of lines that are Python, and prose."""
    prose = start = 0
    while start < len(text):
        end = _line_end(text, start)
        if not text[start:end].strip(" \r"):
            start = end + 1
            continue
        block = start
        if fence := _FENCE.match(text, start, end):
            block = min(end + 1, len(text))
            closing = _closing_fence(text, block)
            language = fence[1].lower()
            is_code = language in CODE_LANGUAGES or (
                not language and _python_lines(text, block, closing) == (closing, True)
            )
            start = _line_end(text, closing) + 1
        else:
            closing, is_code = _python_lines(text, block, len(text))
            start = max(closing, end + 1)
        if is_code:
            yield CodeRegion(prose, block, False)
            yield CodeRegion(block, closing, True)
            prose = closing
    yield CodeRegion(prose, len(text), False)


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
    quotes = ""  # of a string that goes on
    last = opened = start
    while start < limit:
        end = min(_line_end(text, start), limit)
        following = min(end + 1, limit)
        line = text[start:end].rstrip(" \r")
        if quotes:
            if quotes in line:
                quotes = ""
                last = following
        elif line.strip(" "):
            if _DECISIVE.fullmatch(line):
                decisive = True
            elif not _PYTHONIC.fullmatch(line) and not (
                decisive and line.lstrip(" ").startswith(_TRIPLE_QUOTES)
            ):
                break
            quotes = next((mark for mark in _TRIPLE_QUOTES if line.count(mark) % 2), "")
            if quotes:
                opened = following
            else:
                last = following
        start = end + 1
    # A string that is never closed: what follows is not a string.
    return (opened if quotes else last), decisive


# --- tokens -------------------------------------------------------------------------------


class CodeTokenKind(IntEnum):
    """Kinds of tokens of code."""

    NUMBER = 0
    NAME = 1
    OPERATOR = 2  # also commas, brackets, colons
    OTHER = 3  # strings and whatever no statement is made of


class CodeToken(NamedTuple):
    """A token of code, at characters [start, end)."""

    kind: CodeTokenKind
    text: str
    start: int
    end: int


_CODE_TOKEN = re.compile(
    rf"(?P<NUMBER>[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)|(?P<NAME>{_NAME})"
    r"|(?P<OPERATOR>\*\*=?|//=?|[-+*/]=?|==|!=|<=|>=|:=|->|[=(),:\[\]{}<>%])"
)


class _Line(NamedTuple):
    """One logical line; ``whole`` where no tokens of it were left out."""

    indent: int
    tokens: list[CodeToken]
    whole: bool


class _Lexer:
    """Reads the logical lines of one region.

    Args:
        text: canonical characters.
        start: first character of the region.
        end: character after its last one.
        log: receives the numbers that are written.
        read_prose: reads the characters [start, end) of a comment or a string.
    """

    def __init__(
        self,
        text: str,
        start: int,
        end: int,
        log: StatementLog,
        read_prose: Callable[[int, int], None],
    ) -> None:
        self._text = text
        self._at = start
        self._end = end
        self._log = log
        self._read_prose = read_prose

    def lines(self) -> Iterator[_Line]:
        while self._at < self._end:
            line = self._line()
            if line.tokens:
                yield line

    def _line(self) -> _Line:
        start = self._at
        while self._at < self._end and self._text[self._at] in " \t":
            self._at += 1
        indent = self._at - start
        tokens: list[CodeToken] = []
        depth = 0
        whole = True
        while self._at < self._end:
            char = self._text[self._at]
            if char in " \t":
                self._at += 1
            elif char in "\n\r":
                self._at += 1
                if depth == 0:
                    break
            elif char == ";" and depth == 0:
                self._at += 1
                break
            elif char == "#":
                start, self._at = self._at, min(_line_end(self._text, self._at), self._end)
                self._read_prose(start + 1, self._at)
            elif char == "\\" and self._text[self._at + 1 : self._at + 2] in ("\n", "\r"):
                self._at += 2
            else:
                token = self._token()
                depth = max(depth + _nesting(token), 0)
                if len(tokens) < MAX_LINE:
                    tokens.append(token)
                else:
                    whole = False
        return _Line(indent, tokens, whole)

    def _token(self) -> CodeToken:
        start = self._at
        if self._text[start] in "\"'":
            self._string(self._text[start])
            return CodeToken(CodeTokenKind.OTHER, "", start, self._at)
        if match := _CODE_TOKEN.match(self._text, start, self._end):
            self._at = match.end()
            kind = CodeTokenKind[match.lastgroup or ""]
            if kind is CodeTokenKind.NUMBER and (number := _number(match[0])) is not None:
                decimals = len(match[0].partition(".")[2])
                self._log.count(WrittenNumber(number, decimals), start)
            return CodeToken(kind, match[0], start, self._at)
        self._at += 1
        return CodeToken(CodeTokenKind.OTHER, self._text[start], start, self._at)

    def _string(self, quote: str) -> None:
        """Read a string; one that is not closed ends with its line, or with the code."""
        if self._text.startswith(quote * 3, self._at, self._end):
            start = self._at + 3
            closing = self._text.find(quote * 3, start, self._end)
            end = self._end if closing < 0 else closing
            self._at = min(end + 3, self._end)
        else:
            start = end = self._at + 1
            while end < self._end and self._text[end] not in f"{quote}\n\r":
                end += 2 if self._text[end] == "\\" else 1
            end = min(end, self._end)
            self._at = end + self._text.startswith(quote, end, self._end)
        self._read_prose(start, end)


def _nesting(token: CodeToken) -> int:
    """Return by how much a token changes the depth of brackets."""
    if token.kind is not CodeTokenKind.OPERATOR:
        return 0
    return (token.text in "([{") - (token.text in ")]}")


def _number(text: str) -> Fraction | None:
    whole, _, decimals = text.replace("_", "").partition(".")
    if len((whole + decimals).lstrip("0")) > MAX_DIGITS or len(decimals) > MAX_DIGITS:
        return None
    return Fraction(int(whole + decimals or "0"), 10 ** len(decimals))


def _depths(tokens: list[CodeToken], start: int, end: int) -> Iterator[tuple[int, str, int]]:
    """Yield index and text of tokens[start:end], and the depth of brackets they stand in."""
    depth = 0
    for index in range(start, end):
        depth += _nesting(tokens[index])
        yield index, tokens[index].text, depth


def _split(tokens: list[CodeToken], start: int, end: int) -> list[tuple[int, int]]:
    """Split at the commas that stand in no bracket; empty pieces are left out."""
    commas = [at for at, text, depth in _depths(tokens, start, end) if text == "," and depth == 0]
    pieces = zip([start, *(comma + 1 for comma in commas)], [*commas, end], strict=True)
    return [(first, last) for first, last in pieces if first < last]


# --- lines --------------------------------------------------------------------------------

_FUNCTIONS = {
    "int": SeenThrough.INT,
    "float": SeenThrough.FLOAT,
    "round": SeenThrough.ROUND,
    "abs": SeenThrough.ABS,
    "Rational": SeenThrough.RATIONAL,
    "Fraction": SeenThrough.RATIONAL,
    "Integer": SeenThrough.INT,
}
_OPERATORS = {"+": "+", "-": "-", "*": "*", "/": "/", "//": "F", "**": "^"}
_AUGMENTED = {f"{text}=": op for text, op in _OPERATORS.items()}
_PUNCTUATION = {"(": ItemKind.OPEN, ")": ItemKind.CLOSE, ",": ItemKind.COMMA}
# What is indented below these may not run, or run more than once.
_CONDITIONAL = ("for", "while", "if", "elif", "else", "except", "match", "case", "async")
# Lines that state nothing themselves; what is indented below them runs.
_STRAIGHT = (
    *("with", "try", "finally", "class", "def"),
    *("import", "from", "global", "nonlocal", "del", "lambda"),
)
# Lines any name of which may be bound by them.
_BINDING = ("for", "def", "class", "import", "from", "global", "nonlocal", "del", "with", "except")
# What follows a name that a line may bind.
_ASSIGNING = ("=", ",", ":", ")", *_AUGMENTED)
_MAIN = "__name__"  # if __name__ == "__main__" does run


class CodeStep(NamedTuple):
    """An expression with an operation, names being their values, at character ``start``."""

    items: list[ArithmeticItem]
    value: Fraction
    start: int


def code_steps(text: str) -> list[CodeStep]:
    """Return what the code of a text works out, in order."""
    chars, _ = canonical_characters(encode(text))
    program = Program(chars, StatementLog(), lambda start, end: None)
    for start, end, is_code in split_code(chars):
        if is_code:
            program.read(start, end)
    return program.steps


class Program:
    """Reads the code of one text, region by region; names outlive a region.

    Args:
        text: canonical characters.
        log: receives what is stated.
        read_prose: reads the characters [start, end) of a comment or a string.
    """

    def __init__(
        self, text: str, log: StatementLog, read_prose: Callable[[int, int], None]
    ) -> None:
        self._text = text
        self._log = log
        self._read_prose = read_prose
        # None: a name whose value is unknown.
        self._names: dict[str, Fraction | None] = {}
        self.steps: list[CodeStep] = []

    def read(self, start: int, end: int) -> None:
        """Read characters [start, end) of the text."""
        for number in written_numbers(self._text, start, end):
            self._log.count(number, None)
        conditional: int | None = None  # the indentation of the outermost loop or branch
        for line in _Lexer(self._text, start, end, self._log, self._read_prose).lines():
            self._forget_inner(line.tokens)
            first = line.tokens[0]
            keyword = first.text if first.kind is CodeTokenKind.NAME else ""
            if conditional is not None and line.indent <= conditional:
                conditional = None
            if keyword in _CONDITIONAL:
                if _MAIN in (token.text for token in line.tokens[:3]):
                    continue
                if conditional is None:
                    conditional = line.indent
                self._forget(line.tokens)
            elif conditional is not None or not line.whole or keyword in _STRAIGHT:
                self._forget(line.tokens)
            else:
                self._line(keyword, line.tokens)

    def _line(self, keyword: str, tokens: list[CodeToken]) -> None:
        end = len(tokens)
        if keyword == "return":
            self._stated(tokens, 1, end)
        elif keyword == "print" and end > 2 and (tokens[1].text, tokens[-1].text) == ("(", ")"):
            for piece in _split(tokens, 2, end - 1):
                self._stated(tokens, *piece)
        elif keyword and end > 2 and tokens[1].text in _AUGMENTED:
            self._bind(keyword, self._augmented(tokens))
        # Below 0: a bracket that an earlier line opened has been closed.
        elif signs := [
            at for at, sign, depth in _depths(tokens, 0, end) if sign == "=" and depth <= 0
        ]:
            self._assignment(tokens, signs)
        else:
            self._forget(tokens)

    # -- names --

    def _forget(self, tokens: list[CodeToken]) -> None:
        """Every name that this line may bind is unknown from here on."""
        binding = tokens[0].text in _BINDING
        for index, token in enumerate(tokens):
            if token.kind is CodeTokenKind.NAME and (
                binding or (index + 1 < len(tokens) and tokens[index + 1].text in _ASSIGNING)
            ):
                self._unknown(token.text)

    def _forget_inner(self, tokens: list[CodeToken]) -> None:
        """The names that a comprehension or := binds within a line are unknown, too."""
        bound = False
        for index, token in enumerate(tokens):
            if token.kind is not CodeTokenKind.NAME:
                continue
            if token.text in ("for", "in"):
                bound = token.text == "for" and index > 0
            elif bound or (index + 1 < len(tokens) and tokens[index + 1].text == ":="):
                self._unknown(token.text)

    def _unknown(self, name: str) -> None:
        if name in self._names:
            self._names[name] = None

    def _bind(self, name: str, value: Fraction | None) -> None:
        if name in self._names or len(self._names) < MAX_NAMES:
            self._names[name] = value

    # -- assignments and expressions --

    def _assignment(self, tokens: list[CodeToken], signs: list[int]) -> None:
        """Read ``a = b, c = 3, 4``: each piece on the right states, each name is bound."""
        pieces = _split(tokens, signs[-1] + 1, len(tokens))
        values = [self._stated(tokens, *piece) for piece in pieces]
        for begin, sign in zip([0, *(sign + 1 for sign in signs)], signs, strict=False):
            targets = _split(tokens, begin, sign)
            same = len(targets) == len(values)
            for index, (start, end) in enumerate(targets):
                annotated = end - start > 1 and tokens[start + 1].text == ":"
                if tokens[start].kind is CodeTokenKind.NAME and (end - start == 1 or annotated):
                    self._bind(tokens[start].text, values[index] if same else None)

    def _augmented(self, tokens: list[CodeToken]) -> Fraction | None:
        """Read ``x += 2`` as the operation that it is."""
        name, sign, last = tokens[0], tokens[1], tokens[-1]
        items = self._items(tokens[2:])
        known = self._names.get(name.text)
        if items is None or known is None:
            return None
        if len(items) > 1:
            opening = ArithmeticItem(ItemKind.OPEN, sign.start, sign.end)
            items = [opening, *items, ArithmeticItem(ItemKind.CLOSE, last.end, last.end)]
        before = ArithmeticItem(ItemKind.NUMBER, name.start, name.end, known)
        op = ArithmeticItem(ItemKind.OPERATOR, sign.start, sign.end, op=_AUGMENTED[sign.text])
        return self._value([before, op, *items], name.start, last.end)

    def _stated(self, tokens: list[CodeToken], start: int, end: int) -> Fraction | None:
        items = self._items(tokens[start:end])
        return self._value(items, tokens[start].start, tokens[end - 1].end) if items else None

    def _value(self, items: list[ArithmeticItem], start: int, end: int) -> Fraction | None:
        result = evaluate(items, 0, len(items))
        if result is None:
            return None
        value, parts = result
        self._log.state(parts, start, end, code=True)
        if value.operations:
            self.steps.append(CodeStep(items, value.number, start))
        return value.number

    def _items(self, tokens: list[CodeToken]) -> list[ArithmeticItem] | None:
        """Return an expression's items, names being their values; None for anything else."""
        items: list[ArithmeticItem] = []
        function = SeenThrough.NONE  # whose bracket this is
        for token, following in zip_longest(tokens, tokens[1:]):
            item = ArithmeticItem(ItemKind.NUMBER, token.start, token.end)
            match token.kind:
                case CodeTokenKind.NUMBER:
                    number = _number(token.text)
                    if number is None:
                        return None
                    item.number = number
                case CodeTokenKind.NAME if following is not None and following.text == "(":
                    function = _FUNCTIONS.get(token.text, SeenThrough.NONE)
                    if function is SeenThrough.NONE:
                        return None
                    continue
                case CodeTokenKind.NAME:
                    known = self._names.get(token.text)
                    if known is None:
                        return None
                    item.number = known
                case CodeTokenKind.OPERATOR if token.text in _OPERATORS:
                    item.kind, item.op = ItemKind.OPERATOR, _OPERATORS[token.text]
                case CodeTokenKind.OPERATOR if token.text in _PUNCTUATION:
                    item.kind, item.seen = _PUNCTUATION[token.text], function
                    called = not function and bool(items) and items[-1].kind in OPERAND_ENDS
                    if called and item.kind is ItemKind.OPEN:
                        return None  # 2(3) does not run
                    function = SeenThrough.NONE
                case _:
                    return None
            items.append(item)
        return items
