"""Read a node expression into sides, a tree each, and the relation signs between them.

A side that is not arithmetic as the parser knows it becomes one symbol that is moved as a
whole, if its brackets close and nothing in it hints at more than one statement; otherwise
the text is prose and nothing is derived from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from consensuspr.core.expressions.evaluate import Expression, Symbol, Unreadable
from consensuspr.core.expressions.parser import (
    CLOSING,
    Token,
    TokenKind,
    is_sentence_word,
    parse_side,
    read_words,
    tokenize,
)

MAX_LENGTH = 512  # characters; longer node expressions are not derived from
MAX_SIDES = 8

# Two formulas side by side ("$x=5$ $y=2$"), or lines.
_SEVERAL_STATEMENTS = re.compile(r"\$\s+\$|\\\)\s*\\\(|[\n\r]|\\\\")

# Commands that may stand in a side that is moved as a whole; others may join statements.
_MOVABLE = re.compile(
    r"_|\\(?:sum|prod|int|lim|log|ln|sin|cos|tan|angle|triangle|overline|overrightarrow|vec|hat|bar|"
    r"cdots|ldots|dots|infty|pm|mp|lfloor|rfloor|lceil|rceil|cup|cap|setminus|mathbb|mathcal|"
    r"emptyset|varnothing|partial|nabla|prime|perp|parallel|max|min|gcd|det|deg)(?![A-Za-z])"
)


# Looked up once: a member of an enumeration costs more than all that is done with it.
_OPEN, _CLOSE, _RELATION = TokenKind.OPEN, TokenKind.CLOSE, TokenKind.RELATION


@dataclass(slots=True)
class Statement:
    """``sides[0] relations[0] sides[1] ...``, then the tail of a congruence.

    Attributes:
        sides: at least one tree.
        relations: the signs between them.
        tail: " (mod 7)" and the like, as written; empty where there is none.
        dropped_units: words were taken for units and left out.
        num_digits: digits of all numbers as written, leading zeros aside.
    """

    sides: list[Expression]
    relations: list[str]
    tail: str
    dropped_units: bool
    num_digits: int


def parse_statement(text: str) -> Statement | None:
    """Parse a node expression.

    Args:
        text: the expression as written, any string.

    Returns:
        The statement, or None where the text is prose or beyond the limits.
    """
    text = text.strip().rstrip(".;")
    if len(text) > MAX_LENGTH or _SEVERAL_STATEMENTS.search(text):
        return None
    all_tokens = tokenize(text)
    tail = ""
    if len(all_tokens) > 1 and all_tokens[-2].kind is TokenKind.MODULO:
        tail = " " + all_tokens.pop(-2).text
    tokens, dropped_units = read_words(all_tokens)
    pieces, relations = _split(tokens)
    if len(pieces) > MAX_SIDES:
        return None
    originals = pieces if tokens is all_tokens else _split(all_tokens)[0]
    sides: list[Expression] = []
    for piece, original in zip(pieces, originals, strict=True):
        side: Expression | None
        try:
            side = parse_side(piece)
        except Unreadable:
            side = _opaque(original, text) if relations else None
        if side is None:
            return None
        sides.append(side)
    numbers = (token.text for token in tokens if token.kind is TokenKind.NUMBER)
    digits = sum(len(number.replace(".", "").lstrip("0")) for number in numbers)
    return Statement(sides, relations, tail, dropped_units, digits)


def _split(tokens: list[Token]) -> tuple[list[list[Token]], list[str]]:
    """Split at the relation signs that stand in no bracket."""
    pieces: list[list[Token]] = [[]]
    relations: list[str] = []
    depth = 0
    piece = pieces[0]
    for token in tokens[:-1]:
        kind = token.kind
        if kind is _RELATION and depth == 0:
            relations.append(token.text)
            piece = []
            pieces.append(piece)
            continue
        if kind is _OPEN:
            depth += 1
        elif kind is _CLOSE:
            depth -= 1
        piece.append(token)
    return pieces, relations


def _opaque(tokens: list[Token], text: str) -> Symbol | None:
    """Return the tokens' text as one symbol, or None where moving it could change its meaning."""
    expected: list[str] = []
    for token in tokens:
        if token.kind is TokenKind.OPEN:
            expected.append(CLOSING[token.text])
        elif token.kind is TokenKind.CLOSE:
            if not expected or expected.pop() != token.text:
                return None
        elif not _is_movable(token, inside=bool(expected)):
            return None
    if expected or not tokens:
        return None
    return Symbol(text[tokens[0].start : tokens[-1].end])


def _is_movable(token: Token, inside: bool) -> bool:
    """Tell whether a token, inside brackets or not, is sure not to join two statements."""
    match token.kind:
        case TokenKind.OTHER:
            return (inside and token.text in ",:") or _MOVABLE.match(token.text) is not None
        case TokenKind.WORD:
            return not is_sentence_word(token.text)
    return token.kind is not TokenKind.MODULO
