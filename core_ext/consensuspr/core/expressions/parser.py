r"""Read mathematics as it is written into a tree: tokens, words, precedence.

Two notations have one parser.  *Node expressions* are what people and models write: LaTeX or
plain text, words and units among the numbers (``5 cups * $2 = $10``).  *Formulas* are final
answers, brought to one spelling before (``consensuspr.scoring.answers.normalize``): no words,
letters side by side are a product, braces around every argument.  :class:`_Parser` reads
node expressions; :class:`_FormulaParser` says where formulas part from them, mostly in what could
be read in two ways.  Such a node expression is not read at all: in ``1/2x`` and ``6/2(1+2)`` it is
open what divides, and ``n(n+1)`` keeps its parts adjacent, as a function of n+1 must.

Time and depth are bounded whatever the text, because a policy under training writes it: each
tokenizer is one regular expression of plain alternatives without nested repetition, matched at
successive positions, and the parser is recursive descent with the limits below.  Nothing is
evaluated from text: no ``eval``, no ``sympify``, no ``parse_expr``.
"""

from __future__ import annotations

import re
from enum import IntEnum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import factorial
from typing import NamedTuple

from consensuspr.core.expressions.evaluate import (
    CONSTANTS,
    BeyondLimits,
    Call,
    Expression,
    Number,
    Power,
    Product,
    Spelling,
    Sum,
    Symbol,
    Unreadable,
    evaluate,
)

# Of one side of a node expression: brackets within brackets, numbers and names, digits of one
# literal.
MAX_DEPTH = 16
MAX_LEAVES = 32
MAX_DIGITS = 18

# Of a formula: answers hold long numbers, and matrices are read element by element.
MAX_FORMULA_DEPTH = 24
MAX_FORMULA_TOKENS = 200
MAX_FORMULA_DIGITS = 1000


class TokenKind(IntEnum):
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

    kind: TokenKind
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
_SIGNS: dict[str, tuple[TokenKind, str]] = {
    **dict.fromkeys(("+", "plus"), (TokenKind.ADD, "+")),
    **dict.fromkeys(("-", "−", "–", "minus"), (TokenKind.SUBTRACT, "-")),
    **dict.fromkeys(
        ("*", "×", "·", "⋅", "∗", "\\cdot", "\\times", "\\ast", "times"), (TokenKind.MULTIPLY, "*")
    ),
    **dict.fromkeys(("/", "÷", "\\div", "divided by"), (TokenKind.DIVIDE, "/")),
    **dict.fromkeys(("^", "**"), (TokenKind.POWER, "^")),
    **dict.fromkeys(("%", "\\%", "percent"), (TokenKind.PERCENT, "%")),
    **dict.fromkeys(("|", "\\vert"), (TokenKind.BAR, "|")),
    "!": (TokenKind.FACTORIAL, "!"),
    "(": (TokenKind.OPEN, "("), "[": (TokenKind.OPEN, "["), "{": (TokenKind.OPEN, "{"),
    ")": (TokenKind.CLOSE, ")"), "]": (TokenKind.CLOSE, "]"), "}": (TokenKind.CLOSE, "}"),
    "\\{": (TokenKind.OPEN, "\\{"), "\\}": (TokenKind.CLOSE, "\\}"),
    **dict.fromkeys(("=", "==", "equals", "is equal to"), (TokenKind.RELATION, "=")),
    **dict.fromkeys(("<", "\\lt"), (TokenKind.RELATION, "<")),
    **dict.fromkeys((">", "\\gt"), (TokenKind.RELATION, ">")),
    **dict.fromkeys(("<=", "≤", "⩽", "\\le", "\\leq", "\\leqslant"), (TokenKind.RELATION, "<=")),
    **dict.fromkeys((">=", "≥", "⩾", "\\ge", "\\geq", "\\geqslant"), (TokenKind.RELATION, ">=")),
    **dict.fromkeys(("!=", "≠", "\\ne", "\\neq"), (TokenKind.RELATION, "≠")),
    **dict.fromkeys(("≈", "\\approx"), (TokenKind.RELATION, "≈")),
    **dict.fromkeys(("≡", "\\equiv"), (TokenKind.RELATION, "≡")),
    **dict.fromkeys(("\\frac", "\\dfrac", "\\tfrac", "\\cfrac"), (TokenKind.FRACTION, "\\frac")),
    **dict.fromkeys(("\\sqrt", "√", "sqrt"), (TokenKind.ROOT, "\\sqrt")),
    **dict.fromkeys(("\\binom", "\\dbinom", "\\tbinom"), (TokenKind.BINOMIAL, "\\binom")),
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


# Looked up once: a member of an enumeration costs more than most of what is done with it.
_ADD, _SUBTRACT = TokenKind.ADD, TokenKind.SUBTRACT
_MULTIPLY, _DIVIDE, _POWER = TokenKind.MULTIPLY, TokenKind.DIVIDE, TokenKind.POWER
_NUMBER, _NAME, _OPEN = TokenKind.NUMBER, TokenKind.NAME, TokenKind.OPEN
_FRACTION, _VULGAR, _END = TokenKind.FRACTION, TokenKind.VULGAR, TokenKind.END
_ROOT, _BINOMIAL, _FACTORIAL = TokenKind.ROOT, TokenKind.BINOMIAL, TokenKind.FACTORIAL
_CLOSE, _INTEGER = TokenKind.CLOSE, Spelling.INTEGER


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a node expression, ending with one ``END`` token.

    Typesetting that the normal form drops too (delimiters, spacing, ``\\left``, currency, degree
    signs) yields no token; what is not known yields ``OTHER``, which no expression may hold.
    """
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        group = match.lastgroup
        if group == "dropped":
            spaced = True
            continue
        start, end = match.span()
        kind: TokenKind | None
        if group == "number":
            kind, value = _NUMBER, _plain_number(match[0])
        elif group == "sign":
            if match[0] == "!=" and _is_factorial(tokens, spaced, text, start, end):
                tokens.append(Token(_FACTORIAL, "!", start, start + 1, False))
                tokens.append(Token(TokenKind.RELATION, "=", start + 1, end, False))
                continue
            kind, value = _SIGNS[match[0]]
        else:
            spaced = spaced or (group == "text" and "{ " in match[0])
            kind, value = _classify(group, match)
        if kind is not None:
            tokens.append(Token(kind, value, start, end, spaced))
            spaced = False
    tokens.append(Token(TokenKind.END, "", len(text), len(text), spaced))
    return tokens


_FACTORIAL_OF = re.compile(r"[0-9]{1,18}(?![0-9])|[A-Za-z]")


def _is_factorial(tokens: list[Token], spaced: bool, text: str, start: int, end: int) -> bool:
    """Tell ``5!=120`` and ``n!=n(n-1)!`` from ``2!=3``, as the normal form does (its rule 18)."""
    if spaced or not tokens or tokens[-1].end != start:
        return False
    if tokens[-1].kind in (_NUMBER, _NAME, _CLOSE, _FACTORIAL) and _side_counts(tokens):
        return True
    found = _FACTORIAL_OF.match(text, end)
    if found is None:
        return False
    left, right = tokens[-1].text, found[0]
    if left == right:
        return tokens[-1].kind is _NAME or (tokens[-1].kind is _NUMBER and len(left) <= 2)
    if tokens[-1].kind is not _NUMBER or not (left.isdecimal() and right.isdecimal()):
        return False
    if len(left) > 2 or int(left) > 20:
        return False
    product, at = factorial(int(left)), len(tokens) - 2
    while product < int(right) and at > 0 and tokens[at].kind is _MULTIPLY:
        if not tokens[at - 1].text.isdecimal():
            return False
        product *= int(tokens[at - 1].text)
        at -= 2
    return product == int(right)


def _side_counts(tokens: list[Token]) -> bool:
    """Tell whether the last side so far has a factorial or a binomial coefficient."""
    for token in reversed(tokens):
        if token.kind is TokenKind.RELATION:
            return False
        if token.kind in (_FACTORIAL, _BINOMIAL):
            return True
    return False


def _classify(group: str | None, match: re.Match[str]) -> tuple[TokenKind | None, str]:
    """Return the kind and canonical text of a match that is neither a number nor a sign.

    The kind is None where it is dropped.
    """
    text = match[0]
    match group:
        case "phrase":
            return _SIGNS[text]
        case "name":
            return TokenKind.NAME, text
        case "word":
            return _word(text)
        case "command":
            return _command(text)
        case "text":
            words = match["inner"].strip()
            return (TokenKind.NAME if len(words) == 1 else TokenKind.WORD), words + match["index"]
        case "exponent":
            return TokenKind.SUPERSCRIPT, text
        case "vulgar":
            return TokenKind.VULGAR, text
        case "modulo":
            return TokenKind.MODULO, text
    return TokenKind.OTHER, text


def _plain_number(text: str) -> str:
    """Drop thousands separators and complete ``.5``."""
    if text.isdecimal():
        return text
    plain = text.replace("{,}", "").replace(",\\!", "").replace(",", "")
    return "0" + plain if plain[0] == "." else plain


def _word(text: str) -> tuple[TokenKind, str]:
    lowered = text.lower()
    if lowered in _FUNCTIONS:
        return TokenKind.FUNCTION, lowered
    return _SIGNS.get(lowered, (TokenKind.WORD, text))


def _command(text: str) -> tuple[TokenKind | None, str]:
    name = text[1:].rstrip("'").partition("_")[0]
    if name in _GREEK:
        return TokenKind.NAME, text
    if text[1:] != name:
        return TokenKind.OTHER, text
    if name in _FUNCTIONS:
        return TokenKind.FUNCTION, text
    if name in _DROPPED_COMMANDS:
        return None, ""
    return _SIGNS.get(text, (TokenKind.OTHER, text))


# Words among the tokens are read as the normal form reads them, before parsing: units go, ``x``
# between numbers and ``of`` are products.  Whatever words remain name a quantity (``total cost``)
# or make the expression prose, which has no tree.

# A unit is at most this many words: "cups of" is none, "fluid ounces" is two.
MAX_UNIT_WORDS = 3

# Capitals up to this many name a line or a figure by its points.
MAX_POINTS = 4

# Words that make a sentence, never part of the name of a quantity ("number of cups").
_SENTENCE_WORDS = frozenset(
    "and or so then thus hence therefore because since if when where which that this these those "
    "is are was were be been has have had we he she they it you let get gets gives given find "
    "means must can cannot not but also there such than equal whenever implies either".split()
)

# Words that are no part of a unit either.
_NO_UNIT_WORDS = frozenset("of the a an for with from by to in on at as".split())

# Units that are written tight behind a number; other letters there are variables (2ab).
_TIGHT_UNITS = frozenset(
    "kg kgs km kms cm mm ml mg lb lbs oz ft yd hr hrs min mins sec secs mph kph am pm st nd rd th "
    "inch inches feet foot miles meters hours minutes seconds dollars cents".split()
)

_OPERATORS = frozenset(
    (
        TokenKind.ADD,
        TokenKind.SUBTRACT,
        TokenKind.MULTIPLY,
        TokenKind.DIVIDE,
        TokenKind.RELATION,
        TokenKind.CLOSE,
        TokenKind.END,
    )
)


_LETTERS = (TokenKind.WORD, TokenKind.NAME)
_COUNTED = (TokenKind.NUMBER, TokenKind.PERCENT, TokenKind.VULGAR)


def read_words(tokens: list[Token]) -> tuple[list[Token], bool]:
    """Return the tokens without units and with ``x`` and ``of`` as signs, and whether units went.

    Args:
        tokens: the tokens of a whole expression, ``END`` last.
    """
    if not any(token.kind in _LETTERS for token in tokens):
        return tokens, False
    kept: list[Token] = []
    dropped_units = False
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if kept and kept[-1].kind in _COUNTED:
            after = _skip_unit(tokens, index)
            if after > index:
                dropped_units = True
                index = after
                continue
        if token.kind in _LETTERS and _is_product(token, kept, tokens[index + 1]):
            token = Token(TokenKind.MULTIPLY, "*", token.start, token.end, token.spaced)
        kept.append(token)
        index += 1
    return kept, dropped_units


def is_sentence_word(text: str) -> bool:
    """Tell whether a word makes what holds it a sentence."""
    return text.lower() in _SENTENCE_WORDS


def _skip_unit(tokens: list[Token], start: int) -> int:
    """Return the index behind the unit that begins at ``start``; ``start`` where there is none."""
    index = start
    words = 0
    while words < MAX_UNIT_WORDS:
        token = tokens[index]
        if token.kind is TokenKind.DIVIDE and tokens[index + 1].kind is TokenKind.WORD:
            index += 1
            token = tokens[index]
        elif token.kind is not TokenKind.WORD:
            break
        if is_sentence_word(token.text) or token.text.lower() in _NO_UNIT_WORDS:
            return start
        if not words and _is_variable(token):
            return start
        index += 1
        words += 1
    if not words:
        return start
    following = tokens[index]
    ends = following.kind in _OPERATORS or _is_times_letter(following)
    return index if ends else start


def _is_variable(token: Token) -> bool:
    """Tell whether letters behind a number are a factor: ``2ab``, ``2\\text{length}``, ``2 AB``."""
    if token.text.isupper() and len(token.text) <= MAX_POINTS:
        return True
    return not token.spaced and token.text.lower() not in _TIGHT_UNITS


def _is_product(token: Token, kept: list[Token], following: Token) -> bool:
    """Tell whether ``x`` or ``of`` stands for a product between what is around it."""
    if not kept or following.kind not in (TokenKind.NUMBER, TokenKind.VULGAR, TokenKind.FRACTION):
        return False
    if _is_times_letter(token):
        return kept[-1].kind in (TokenKind.NUMBER, TokenKind.CLOSE, TokenKind.PERCENT)
    return token.text == "of" and _is_share(kept)


def _is_times_letter(token: Token) -> bool:
    return token.kind is TokenKind.NAME and token.text in ("x", "X")


def _is_share(kept: list[Token]) -> bool:
    """Tell whether the tokens end with a share that may precede "of": ``25%``, ``1/2``, ½."""
    last = kept[-1].kind
    if last in (TokenKind.PERCENT, TokenKind.VULGAR):
        return True
    if last is TokenKind.CLOSE:
        return any(token.kind is TokenKind.FRACTION for token in kept)
    return last is TokenKind.NUMBER and len(kept) > 1 and kept[-2].kind is TokenKind.DIVIDE


# What a formula is made of.  A name is one letter, so that xy is a product.
_FORMULA_GREEK = (
    "alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|vartheta|kappa|lambda|mu|nu|xi|rho"
    "|sigma|tau|phi|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega|pi"
)
_FORMULA_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?|\.\d+)"
    rf"|((?:[A-Za-z]|\\(?:{_FORMULA_GREEK})(?![A-Za-z]))"
    r"(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9]{1,8}\}))?)"
    r"|(\\(?:frac|sqrt|binom)(?![A-Za-z])|[-+*/^(){}\[\]!]))"
)


_token = tuple.__new__  # a third of the time that Token(...) takes


def _tokenize_formula(text: str) -> tuple[list[Token], set[str]]:
    """Return the tokens of a formula, ``END`` last, and its names, \\pi apart."""
    tokens: list[Token] = []
    names: set[str] = set()
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _FORMULA_TOKEN.match(text, position)
        if found is None or len(tokens) >= MAX_FORMULA_TOKENS:
            raise Unreadable
        group = found.lastindex or 0
        value, position = found[group], found.end()
        if group == 1:
            if len(value) > MAX_FORMULA_DIGITS:
                raise BeyondLimits
            kind = _NUMBER
        elif group == 2:
            kind = _NAME
            if value != "\\pi":
                names.add(value)
        else:
            kind = _SIGNS[value][0]
        tokens.append(_token(Token, (kind, value, position, position, False)))
    tokens.append(Token(_END, "", end, end, False))
    return tokens, names


CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

# What multiplies by standing behind an operand; a number never does.
_JUXTAPOSED = (_NAME, _FRACTION, _ROOT, _BINOMIAL, _OPEN)
_CONTINUES_PRODUCT = (_MULTIPLY, _DIVIDE, *_JUXTAPOSED)


def parse_side(tokens: list[Token]) -> Expression:
    """Return the tree of one side of a node expression; nested sums and products are flat.

    Raises:
        Unreadable: the tokens are not one expression within the limits.
    """
    last = tokens[-1].end if tokens else 0
    return _Parser([*tokens, Token(_END, "", last, last, False)]).parse()


class _Parser:
    """One pass over the tokens of a side, one method per precedence; its words are read already."""

    max_depth = MAX_DEPTH

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._leaves = 0

    def parse(self) -> Expression:
        """Return the tree of all tokens.

        Raises:
            Unreadable: they are not one expression within the limits.
        """
        if self._peek() is TokenKind.WORD:
            return self._quantity()
        tree = self._sum()
        if self._peek() is not _END:
            raise Unreadable
        return tree

    def _peek(self) -> TokenKind:
        return self._tokens[self._position].kind

    def _take(self) -> Token:
        token = self._tokens[self._position]
        if token.kind is _END:
            raise Unreadable
        self._position += 1
        return token

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > self.max_depth:
            raise Unreadable

    def _sum(self) -> Expression:
        self._enter()
        sign, tree = self._leading_sign(), self._product()
        kind = self._tokens[self._position].kind
        if sign < 0 or kind is _ADD or kind is _SUBTRACT:
            terms = [(sign, tree)]
            while (kind := self._peek()) is _ADD or kind is _SUBTRACT:
                self._position += 1
                terms.append((-1 if kind is _SUBTRACT else 1, self._product()))
            tree = self._sum_of(terms)
        self._depth -= 1
        return tree

    def _product(self) -> Expression:
        tree = self._factor()
        kind = self._tokens[self._position].kind
        if kind not in _CONTINUES_PRODUCT:
            return tree
        factors = [(False, tree)]
        divided = False
        while True:
            kind = self._peek()
            if kind is _MULTIPLY or kind is _DIVIDE:
                self._position += 1
                divided = kind is _DIVIDE
                factors.append((divided, self._factor()))
            elif kind in _JUXTAPOSED:
                if divided:
                    raise Unreadable  # 1/2x: half of x, or one over 2x?
                self._before_juxtaposed(self._tokens[self._position])
                factors.append((False, self._power()))
            else:
                return self._product_of(factors)

    def _sign(self) -> int:
        kind = self._peek()
        if kind is not _ADD and kind is not _SUBTRACT:
            return 1
        self._position += 1
        return -1 if kind is _SUBTRACT else 1

    def _primary(self) -> Expression:
        token = self._take()
        kind = token.kind
        if kind is _NUMBER:
            return self._number_or_mixed(token)
        if kind is _NAME:
            return self._name(token)
        if kind is _OPEN:
            return self._bracketed(token)
        if kind is _FRACTION:
            return self._fraction()
        if kind is _ROOT:
            return self._root()
        if kind is _BINOMIAL:
            return Call(("\\binom{", "}{", "}"), [self._braced(), self._braced()])
        return self._rare(token)

    def _bracketed(self, opening: Token) -> Expression:
        if opening.text == "\\{":
            raise Unreadable  # a set
        tree = self._sum()
        self._close(_CLOSE, CLOSING[opening.text])
        return tree

    def _close(self, kind: TokenKind, text: str) -> None:
        token = self._take()
        if token.kind is not kind or token.text != text:
            raise Unreadable

    def _braced(self) -> Expression:
        token = self._take()
        if token.text != "{":
            raise Unreadable
        return self._bracketed(token)

    def _quantity(self) -> Expression:
        """Read a side of words, such as ``total cost``."""
        tokens = self._tokens[:-1]
        for token in tokens:
            if token.kind not in _LETTERS or is_sentence_word(token.text):
                raise Unreadable
        return Symbol(" ".join(token.text for token in tokens))

    def _leading_sign(self) -> int:
        return self._sign()

    def _sum_of(self, terms: list[tuple[int, Expression]]) -> Expression:
        flat: list[tuple[int, Expression]] = []
        for sign, term in terms:
            if isinstance(term, Sum):
                flat.extend((sign * inner, part) for inner, part in term.terms)
            else:
                flat.append((sign, term))
        return flat[0][1] if len(flat) == 1 and flat[0][0] > 0 else Sum(flat)

    def _product_of(self, factors: list[tuple[bool, Expression]]) -> Expression:
        flat: list[tuple[bool, Expression]] = []
        for divides, factor in factors:
            if divides and evaluate(factor) == 0:
                raise Unreadable
            if isinstance(factor, Product):
                flat.extend((divides != inner, part) for inner, part in factor.factors)
            else:
                flat.append((divides, factor))
        return Product(flat)

    def _before_juxtaposed(self, token: Token) -> None:
        if token.text == "(" and token.spaced:
            raise Unreadable  # a tag such as "5 (1)"

    def _signed(self, sign: int, tree: Expression) -> Expression:
        return tree if sign > 0 else self._sum_of([(sign, tree)])

    def _factor(self) -> Expression:
        return self._signed(self._sign(), self._power())

    def _power(self) -> Expression:
        base = self._postfix()
        kind = self._peek()
        if kind is TokenKind.SUPERSCRIPT:
            digits = self._take().text.translate(_SUPERSCRIPTS)
            return Power(base, self._number(digits))
        if kind is not _POWER:
            return base
        self._take()
        exponent = self._signed(self._sign(), self._primary())
        if self._peek() in (_POWER, TokenKind.SUPERSCRIPT, _FACTORIAL, TokenKind.PERCENT):
            raise Unreadable
        return Power(base, exponent)

    def _postfix(self) -> Expression:
        tree = self._primary()
        kind = self._peek()
        if kind is TokenKind.PERCENT:
            self._take()
            if not isinstance(tree, Number) or tree.spelling is Spelling.PERCENT:
                raise Unreadable
            return Number(tree.value / 100, tree.text + "%", Spelling.PERCENT)
        if kind is _FACTORIAL:
            self._take()
            if isinstance(tree, Call) and tree.pieces[0].endswith("(") and tree.pieces[0] != "(":
                raise Unreadable  # n(n-1)!: a product with a factorial, or that of a function
            tight = isinstance(tree, (Number, Symbol))
            return Call(("", "!") if tight else ("(", ")!"), [tree])
        return tree

    def _rare(self, token: Token) -> Expression:
        match token.kind:
            case TokenKind.VULGAR:
                return self._quotient(*VULGAR_FRACTIONS[token.text])
            case TokenKind.FUNCTION:
                opening = self._take()
                if opening.text != "(":
                    raise Unreadable
                return Call((token.text + "(", ")"), [self._bracketed(opening)])
            case TokenKind.BAR:
                inside = self._sum()
                self._close(TokenKind.BAR, "|")
                return Call(("|", "|"), [inside])
        raise Unreadable

    def _number(self, text: str) -> Number:
        self._leaves += 1
        if self._leaves > MAX_LEAVES or len(text) > MAX_DIGITS:
            raise Unreadable
        return _literal(text)

    def _number_or_mixed(self, token: Token) -> Expression:
        number = self._number(token.text)
        kind = self._peek()
        if (kind is not _FRACTION and kind is not _VULGAR) or number.spelling is not _INTEGER:
            return number
        start = self._position
        part = self._primary()
        value = evaluate(part)
        if value is None or not 0 < value < 1:
            self._position = start  # 5\frac{x}{2} is a product
            return number
        proper = f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
        return Number(number.value + value, token.text + proper, Spelling.MIXED)

    def _quotient(self, numerator: int, denominator: int) -> Expression:
        parts = [(False, self._number(str(numerator))), (True, self._number(str(denominator)))]
        return self._product_of(list(parts))

    def _name(self, token: Token) -> Expression:
        self._leaves += 1
        if self._leaves > MAX_LEAVES:
            raise Unreadable
        following = self._tokens[self._position]
        if following.text != "(" or token.text in CONSTANTS:
            return Symbol(token.text)
        self._take()
        return Call((token.text + "(", ")"), [self._bracketed(following)])

    def _fraction(self) -> Expression:
        """Read what follows \\frac: ``{a}{b}``, ``12`` or ``{72}5``."""
        token = self._tokens[self._position]
        if token.kind is _NUMBER and len(token.text) == 2 and token.text.isdigit():
            self._take()
            return self._quotient(int(token.text[0]), int(token.text[1]))
        return self._product_of([(False, self._fraction_part()), (True, self._fraction_part())])

    def _fraction_part(self) -> Expression:
        token = self._tokens[self._position]
        if token.kind is _NUMBER and len(token.text) == 1:
            self._take()
            return self._number(token.text)
        return self._braced()

    def _root(self) -> Expression:
        token = self._take()
        index = ""
        if token.text == "[":
            number = self._take()
            if number.kind is not _NUMBER:
                raise Unreadable
            self._close(TokenKind.CLOSE, "]")
            index = f"[{number.text}]"
            token = self._take()
        if token.kind is _OPEN:
            inside = self._bracketed(token)
        elif token.kind is _NUMBER:
            inside = self._number(token.text)
        elif token.kind is _NAME:
            inside = Symbol(token.text)
        else:
            raise Unreadable
        return Call((f"\\sqrt{index}{{", "}"), [inside])


def _literal(text: str) -> Number:
    if "." not in text:
        return Number(Fraction(int(text)), text, _INTEGER)
    return Number(Fraction(text), text, Spelling.DECIMAL)


# Before a letter they make a differential or a difference of it: dx, \Delta x.
_DIFFERENTIAL = ("d", "\\delta", "\\Delta")
_BRACKETS = frozenset("(){}[]")


class Formula(NamedTuple):
    """A formula with what its tree does not hold.

    Attributes:
        tree: sums and products nested as they are written; a fraction is a call, and so is a mixed
            number, ``("", "\\frac{", "}{", "}")``.
        names: the letters in it, \\pi apart.
        decimal: a decimal point was written.
        depth: brackets within brackets.
        counts_primes: ``\\pi(10)`` was written, which is not only a product.
        ambiguous: what is a factor or an exponent may be an argument or a mark, as in ``f(2)``,
            ``dx`` and ``y^{(2)}``.
    """

    tree: Expression
    names: frozenset[str]
    decimal: bool
    depth: int
    counts_primes: bool
    ambiguous: bool


@lru_cache(maxsize=64)  # most are read for their value first and as a quotient next
def parse_formula(text: str) -> Formula:
    """Return the tree of a formula, which nobody may change.

    Raises:
        BeyondLimits: a literal is longer than any answer's.
        Unreadable: the text is no formula, or none within the limits.
    """
    tokens, names = _tokenize_formula(text)
    parser = _FormulaParser(tokens, names)
    return Formula(
        parser.parse(),
        frozenset(name.replace("{", "").replace("}", "") for name in names),
        "." in text,
        parser.most_brackets,
        parser.counts_primes,
        parser.ambiguous,
    )


class _FormulaParser(_Parser):
    """Reads a formula as it stands: nothing is flattened, nothing evaluated."""

    max_depth = MAX_FORMULA_DEPTH + 1

    def __init__(self, tokens: list[Token], names: set[str]) -> None:
        super().__init__(tokens)
        self._has_names = bool(names)
        self._base = ""  # the name at which the last factor began, "" where it was none
        self._brackets = self.most_brackets = 0
        self.counts_primes = False
        # {d}y is dy.
        beside = pairwise(token for token in tokens if token.text != "}") if names else ()
        self.ambiguous = any(a.text in _DIFFERENTIAL and _is_letter(b) for a, b in beside)

    def _leading_sign(self) -> int:
        return 1

    def _sum_of(self, terms: list[tuple[int, Expression]]) -> Expression:
        return Sum(terms) if len(terms) > 1 else terms[0][1]

    def _product_of(self, factors: list[tuple[bool, Expression]]) -> Expression:
        return Product(factors)

    def _bracketed(self, opening: Token) -> Expression:
        self._brackets += 1
        if self._brackets > self.most_brackets:
            self.most_brackets = self._brackets
        tree = self._sum()
        if self._tokens[self._position].text != CLOSING[opening.text]:
            raise Unreadable
        self._position += 1
        self._brackets -= 1
        return tree

    def _before_juxtaposed(self, token: Token) -> None:
        if self._base and token.kind is _OPEN and self._may_be_argument(self._base):
            self.ambiguous = True

    def _may_be_argument(self, name: str) -> bool:
        """Tell whether the bracket that opens here may hold an argument: y(0), T(n) or T(n-1).

        It is a factor for certain where the name stands in the bracket too, as in x(x+1); pi before
        more than one number or letter, and a small letter before a sum with letters, are taken for
        one.
        """
        level = 0
        for end in range(self._position, len(self._tokens)):
            kind = self._tokens[end].kind
            level += (kind is _OPEN) - (kind is TokenKind.CLOSE)
            if not level:
                break
        inside = [t for t in self._tokens[self._position : end] if t.text not in _BRACKETS]
        if any(token.text == name for token in inside):
            return False
        if name == "\\pi":
            return len(inside) < 2
        is_sum = any(token.kind is _ADD or token.kind is _SUBTRACT for token in inside[1:])
        return not (is_sum and name[:1].islower() and any(map(_is_letter, inside)))

    def _factor(self) -> Expression:
        sign = 1
        while (kind := self._tokens[self._position].kind) is _ADD or kind is _SUBTRACT:
            self._position += 1
            sign = -sign if kind is _SUBTRACT else sign
        tree = self._power()
        return tree if sign > 0 else Sum([(-1, tree)])

    def _power(self) -> Expression:
        token = self._tokens[self._position]
        tree = self._raised(self._primary())
        self._base = token.text if token.kind is _NAME else ""
        return tree

    def _raised(self, base: Expression) -> Expression:
        while (kind := self._tokens[self._position].kind) is _FACTORIAL:
            self._position += 1
            base = Call(("", "!"), [base])
        if kind is not _POWER:
            return base
        self._position += 1
        start = self._position
        sign = self._sign()
        first = self._tokens[self._position]
        self._enter()
        if first.kind is _NUMBER and self._has_names:
            self._position += 1
            exponent: Expression = _literal(first.text)  # x^2\frac{1}{3} is a product
        else:
            exponent = self._primary()
        # y^{(2)} is a derivative.
        braced = first.text == "{" and first is self._tokens[start]
        plain = self._tokens[start + 1].text != "(" if braced else first.text.isdigit()
        if self._peek() is _POWER or not plain:
            self.ambiguous = True
        exponent = self._raised(exponent)
        self._depth -= 1
        return Power(base, exponent if sign > 0 else Sum([(-1, exponent)]))

    def _number_or_mixed(self, token: Token) -> Expression:
        number = _literal(token.text)
        if self._peek() is not _FRACTION:
            return number
        if number.spelling is not _INTEGER:
            self.ambiguous = True  # 2.5\\frac{1}{2}
            return number
        self._position += 1
        return Call(("", "\\frac{", "}{", "}"), [number, self._braced(), self._braced()])

    def _name(self, token: Token) -> Expression:
        if token.text == "\\pi":
            following = self._tokens[self._position : self._position + 3]
            if [t.text for t in following[::2]] == ["(", ")"]:
                self.counts_primes = True
            return Symbol("\\pi")
        return Symbol(token.text.replace("{", "").replace("}", ""))

    def _fraction(self) -> Expression:
        return Call(("\\frac{", "}{", "}"), [self._braced(), self._braced()])

    def _root(self) -> Expression:
        start: tuple[str, ...] = ("\\sqrt",)
        degree: list[Expression] = []
        if self._tokens[self._position].text == "[":
            start, degree = ("\\sqrt[", "]"), [self._bracketed(self._take())]
        if self._tokens[self._position].text == "{":
            return Call((*start[:-1], start[-1] + "{", "}"), [*degree, self._braced()])
        self.ambiguous = True  # \sqrt2x
        self._enter()
        radicand = self._primary()
        self._depth -= 1
        return Call((*start, ""), [*degree, radicand])


def _is_letter(token: Token) -> bool:
    return token.kind is _NAME and token.text != "\\pi"
