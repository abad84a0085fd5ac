"""Split the text of a node expression into the tokens that the parser reads.

One regular expression of plain alternatives without nested repetition, matched at
successive positions: linear in the length of the text.  Typesetting that the normal
form drops too (delimiters, spacing, ``\\left``, currency, degree signs) yields no token;
anything that is not known yields ``OTHER``, which no expression may hold.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """What a token is."""

    NUMBER = 0
    VULGAR = 1  # one of the characters ½ ¼ ...
    NAME = 2  # one letter or a Greek letter, with its subscript and primes
    WORD = 3  # two letters or more, or the text of \text{...}
    FUNCTION = 4  # sin, log, ...
    FRACTION = 5  # \frac
    ROOT = 6  # \sqrt
    BINOMIAL = 7  # \binom
    ADD = 8
    SUBTRACT = 9
    MULTIPLY = 10
    DIVIDE = 11
    POWER = 12
    SUPERSCRIPT = 13  # ² and the like: the exponent itself
    PERCENT = 14
    FACTORIAL = 15
    OPEN = 16  # ( [ { and the \{ of a set
    CLOSE = 17
    BAR = 18
    RELATION = 19
    MODULO = 20  # the tail of a congruence, \pmod{7}
    OTHER = 21
    END = 22


class Token(NamedTuple):
    """A token at the half-open place [start, end) of the text."""

    kind: Kind
    text: str
    start: int
    end: int
    spaced: bool  # white space, or something that is dropped, precedes


VULGAR_FRACTIONS = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5),
    "⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
}  # fmt: skip

# Kept from being read as unit words or as products of letters.
_FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp gcd lcm max min "
    "det dim ker deg arg lim sup inf mod bmod".split()
)

_GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "pi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma "
    "Upsilon Phi Psi Omega ell".split()
)

_DROPPED_COMMANDS = frozenset(
    "left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle textstyle boxed circ "
    "degree".split()
)

# Every relation has one canonical sign; the normal form knows all of their spellings.
_SIGNS: dict[str, tuple[Kind, str]] = {
    **dict.fromkeys(("+", "plus"), (Kind.ADD, "+")),
    **dict.fromkeys(("-", "−", "–", "minus"), (Kind.SUBTRACT, "-")),
    **dict.fromkeys(
        ("*", "×", "·", "⋅", "∗", "\\cdot", "\\times", "\\ast", "times"), (Kind.MULTIPLY, "*")
    ),
    **dict.fromkeys(("/", "÷", "\\div", "divided by"), (Kind.DIVIDE, "/")),
    **dict.fromkeys(("^", "**"), (Kind.POWER, "^")),
    **dict.fromkeys(("%", "\\%", "percent"), (Kind.PERCENT, "%")),
    **dict.fromkeys(("|", "\\vert"), (Kind.BAR, "|")),
    "!": (Kind.FACTORIAL, "!"),
    "(": (Kind.OPEN, "("), "[": (Kind.OPEN, "["), "{": (Kind.OPEN, "{"),
    ")": (Kind.CLOSE, ")"), "]": (Kind.CLOSE, "]"), "}": (Kind.CLOSE, "}"),
    "\\{": (Kind.OPEN, "\\{"), "\\}": (Kind.CLOSE, "\\}"),
    **dict.fromkeys(("=", "==", "equals", "is equal to"), (Kind.RELATION, "=")),
    **dict.fromkeys(("<", "\\lt"), (Kind.RELATION, "<")),
    **dict.fromkeys((">", "\\gt"), (Kind.RELATION, ">")),
    **dict.fromkeys(("<=", "≤", "⩽", "\\le", "\\leq", "\\leqslant"), (Kind.RELATION, "<=")),
    **dict.fromkeys((">=", "≥", "⩾", "\\ge", "\\geq", "\\geqslant"), (Kind.RELATION, ">=")),
    **dict.fromkeys(("!=", "≠", "\\ne", "\\neq"), (Kind.RELATION, "≠")),
    **dict.fromkeys(("≈", "\\approx"), (Kind.RELATION, "≈")),
    **dict.fromkeys(("≡", "\\equiv"), (Kind.RELATION, "≡")),
    **dict.fromkeys(("\\frac", "\\dfrac", "\\tfrac", "\\cfrac"), (Kind.FRACTION, "\\frac")),
    **dict.fromkeys(("\\sqrt", "√", "sqrt"), (Kind.ROOT, "\\sqrt")),
    **dict.fromkeys(("\\binom", "\\dbinom", "\\tbinom"), (Kind.BINOMIAL, "\\binom")),
}  # fmt: skip

# \w also holds characters such as ² and ½, which are no letters.
_LETTER = r"[^\W\d_⁰¹²³⁴⁵⁶⁷⁸⁹₀-₉½⅓⅔¼¾⅕⅖⅗⅘⅙⅛⅜⅝⅞]"
_SUBSCRIPT = r"(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9+\-,]{1,16}\})|[₀-₉]{1,4})?'{0,3}"
_TOKEN = re.compile(
    r"""
    (?P<dropped>  (?: \s | \\[,;:!\ ] | [~&$£€¥°] | \\[$()\[\]]
                    | \^\s?\\circ\b | \^\s?\{\s?\\circ\s?\} )+ )
  | (?P<number>   \d{1,3} (?: (?: , | \{,\} | ,\\! ) \d{3} (?!\d) )+ (?:\.\d+)?
                | \d+ (?:\.\d+)? | \.\d+ )
  | (?P<modulo>   \\pmod\s?(?:\{[^{}]{1,32}\}|\d) | \(\s?\\?b?mod\b[^()]{1,32}\) )
  | (?P<sign>     \*\* | == | != | <= | >= | \\[%{}] | [=<>≤≥⩽⩾≠≈≡+\-−–*×·⋅∗/÷^%!|()\[\]{}√] )
  | (?P<exponent> [⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4} )
  | (?P<vulgar>   [½⅓⅔¼¾⅕⅖⅗⅘⅙⅛⅜⅝⅞] )
  | (?P<text>     \\(?:text|textbf|textit|mathrm|mathbf|mathit|operatorname|mbox)\s?
                  \{ \s? (?P<inner>[A-Za-z][A-Za-z\ '/\-]*) \} (?P<index>SUBSCRIPT) )
  | (?P<command>  \\[A-Za-z]+ (?:SUBSCRIPT) )
  | (?P<phrase>   (?:is\ equal\ to|divided\ by)\b )
  | (?P<word>     LETTER{2,}(?:['’\-]LETTER+)*(?:SUBSCRIPT) )
  | (?P<name>     LETTER(?:SUBSCRIPT) )
  | (?P<other>    . )
    """.replace("SUBSCRIPT", _SUBSCRIPT).replace("LETTER", _LETTER),
    re.VERBOSE | re.DOTALL,
)  # fmt: skip


_NUMBER = Kind.NUMBER


def tokenize(text: str) -> list[Token]:
    """Return the tokens of ``text``, ending with one ``END`` token."""
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        group = match.lastgroup
        if group == "dropped":
            spaced = True
            continue
        start, end = match.span()
        kind: Kind | None
        if group == "number":
            kind, value = _NUMBER, _plain_number(match[0])
        elif group == "sign":
            kind, value = _SIGNS[match[0]]
        else:
            spaced = spaced or (group == "text" and "{ " in match[0])
            kind, value = _classify(group, match)
        if kind is not None:
            tokens.append(Token(kind, value, start, end, spaced))
            spaced = False
    tokens.append(Token(Kind.END, "", len(text), len(text), spaced))
    return tokens


def _classify(group: str | None, match: re.Match[str]) -> tuple[Kind | None, str]:
    """Return the kind and canonical text of a match that is neither a number nor a sign.

    The kind is None where it is dropped.
    """
    text = match[0]
    match group:
        case "phrase":
            return _SIGNS[text]
        case "name":
            return Kind.NAME, text
        case "word":
            return _word(text)
        case "command":
            return _command(text)
        case "text":
            words = match["inner"].strip()
            return (Kind.NAME if len(words) == 1 else Kind.WORD), words + match["index"]
        case "exponent":
            return Kind.SUPERSCRIPT, text
        case "vulgar":
            return Kind.VULGAR, text
        case "modulo":
            return Kind.MODULO, text
    return Kind.OTHER, text


def _plain_number(text: str) -> str:
    """Drop thousands separators and complete ``.5``."""
    if text.isdecimal():
        return text
    plain = text.replace("{,}", "").replace(",\\!", "").replace(",", "")
    return "0" + plain if plain[0] == "." else plain


def _word(text: str) -> tuple[Kind, str]:
    lowered = text.lower()
    if lowered in _FUNCTIONS:
        return Kind.FUNCTION, lowered
    return _SIGNS.get(lowered, (Kind.WORD, text))


def _command(text: str) -> tuple[Kind | None, str]:
    name = text[1:].rstrip("'").partition("_")[0]
    if name in _GREEK:
        return Kind.NAME, text
    if text[1:] != name:
        return Kind.OTHER, text
    if name in _FUNCTIONS:
        return Kind.FUNCTION, text
    if name in _DROPPED_COMMANDS:
        return None, ""
    return _SIGNS.get(text, (Kind.OTHER, text))
