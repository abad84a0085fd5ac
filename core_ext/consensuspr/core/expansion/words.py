"""Read the words among the tokens: units go, ``x`` between numbers and ``of`` are products.

The same readings as those of the normal form, made before parsing so that an expression
such as ``5 cups * $2 = $10`` has a tree.  Whatever words remain name a quantity
(``total cost``) or make the expression prose, which is not derived from.
"""

from __future__ import annotations

from consensuspr.core.expansion.lexer import Kind, Token

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
    (Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY, Kind.DIVIDE, Kind.RELATION, Kind.CLOSE, Kind.END)
)


_LETTERS = (Kind.WORD, Kind.NAME)
_COUNTED = (Kind.NUMBER, Kind.PERCENT, Kind.VULGAR)


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
            token = Token(Kind.MULTIPLY, "*", token.start, token.end, token.spaced)
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
        if token.kind is Kind.DIVIDE and tokens[index + 1].kind is Kind.WORD:
            index += 1
            token = tokens[index]
        elif token.kind is not Kind.WORD:
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
    if not kept or following.kind not in (Kind.NUMBER, Kind.VULGAR, Kind.FRACTION):
        return False
    if _is_times_letter(token):
        return kept[-1].kind in (Kind.NUMBER, Kind.CLOSE, Kind.PERCENT)
    return token.text == "of" and _is_share(kept)


def _is_times_letter(token: Token) -> bool:
    return token.kind is Kind.NAME and token.text in ("x", "X")


def _is_share(kept: list[Token]) -> bool:
    """Tell whether the tokens end with a share that may precede "of": ``25%``, ``1/2``, ½."""
    last = kept[-1].kind
    if last in (Kind.PERCENT, Kind.VULGAR):
        return True
    if last is Kind.CLOSE:
        return any(token.kind is Kind.FRACTION for token in kept)
    return last is Kind.NUMBER and len(kept) > 1 and kept[-2].kind is Kind.DIVIDE
