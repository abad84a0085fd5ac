"""Parse the tokens of one side of a statement into an expression tree.

Recursive descent, one function per precedence, with limits on depth, leaves and digits, so
that its time is bounded whatever the text.  Nothing is evaluated from text: no ``eval``,
no ``sympify``, no ``parse_expr``.

What could be read in two ways is not read at all: in ``1/2x`` and ``6/2(1+2)`` it is
open what divides, and ``n(n+1)`` keeps its parts adjacent, as a function of n+1 must.
"""

from __future__ import annotations

from fractions import Fraction

from consensuspr.core.expansion.evaluate import CONSTANTS, evaluate
from consensuspr.core.expansion.lexer import VULGAR_FRACTIONS, Kind, Token
from consensuspr.core.expansion.tree import (
    Call,
    Expression,
    Number,
    Power,
    Product,
    Spelling,
    Sum,
    Symbol,
)
from consensuspr.core.expansion.words import is_sentence_word

MAX_DEPTH = 16  # brackets within brackets
MAX_LEAVES = 32  # of one side
MAX_DIGITS = 18  # of one literal

CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

# What multiplies by standing behind an operand; a number never does.
_JUXTAPOSED = (Kind.NAME, Kind.FRACTION, Kind.ROOT, Kind.BINOMIAL, Kind.OPEN)

# Looked up once: a member of an enumeration costs more than most of what is done with it.
_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE = Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY, Kind.DIVIDE
_POWER, _SUPERSCRIPT, _PERCENT = Kind.POWER, Kind.SUPERSCRIPT, Kind.PERCENT
_FACTORIAL, _NUMBER, _END = Kind.FACTORIAL, Kind.NUMBER, Kind.END
_FRACTION, _VULGAR = Kind.FRACTION, Kind.VULGAR
_INTEGER = Spelling.INTEGER


class NotArithmeticError(Exception):
    """The tokens are not an expression that this module knows; never leaves the package."""


def parse_side(tokens: list[Token]) -> Expression:
    """Return the tree of the tokens of one side.

    Raises:
        NotArithmeticError: they are not one expression within the limits.
    """
    last = tokens[-1].end if tokens else 0
    return _Parser([*tokens, Token(Kind.END, "", last, last, False)]).parse()


class _Parser:
    """One pass over the tokens of one side."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._leaves = 0

    def parse(self) -> Expression:
        if self._tokens[0].kind is Kind.WORD:
            return self._quantity()
        tree = self._sum()
        if self._peek() is not _END:
            raise NotArithmeticError
        return tree

    def _peek(self) -> Kind:
        return self._tokens[self._position].kind

    def _take(self) -> Token:
        token = self._tokens[self._position]
        if token.kind is _END:
            raise NotArithmeticError
        self._position += 1
        return token

    def _quantity(self) -> Expression:
        """Read a side of words, such as ``total cost``."""
        tokens = self._tokens[:-1]
        for token in tokens:
            if token.kind not in (Kind.WORD, Kind.NAME) or is_sentence_word(token.text):
                raise NotArithmeticError
        return Symbol(" ".join(token.text for token in tokens))

    def _sum(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotArithmeticError
        sign = self._sign()
        tree = self._product()
        if sign < 0:
            tree = add(Sum([]), sign, tree)
        while (kind := self._peek()) is _ADD or kind is _SUBTRACT:
            self._position += 1
            tree = add(tree, -1 if kind is _SUBTRACT else 1, self._product())
        self._depth -= 1
        return tree

    def _sign(self) -> int:
        kind = self._peek()
        if kind is not _ADD and kind is not _SUBTRACT:
            return 1
        self._position += 1
        return -1 if kind is _SUBTRACT else 1

    def _product(self) -> Expression:
        tree = self._factor()
        divided = False
        while True:
            kind = self._peek()
            if kind is _MULTIPLY or kind is _DIVIDE:
                self._position += 1
                divided = kind is _DIVIDE
                tree = multiply(tree, divided, self._factor())
            elif kind in _JUXTAPOSED:
                token = self._tokens[self._position]
                if divided or (token.text == "(" and token.spaced):
                    raise NotArithmeticError  # 1/2x; a tag such as "5 (1)"
                tree = multiply(tree, False, self._power())
            else:
                return tree

    def _factor(self) -> Expression:
        if self._sign() < 0:
            return add(Sum([]), -1, self._power())
        return self._power()

    def _power(self) -> Expression:
        base = self._postfix()
        kind = self._peek()
        if kind is _SUPERSCRIPT:
            digits = self._take().text.translate(_SUPERSCRIPTS)
            return Power(base, self._number(digits))
        if kind is not _POWER:
            return base
        self._take()
        sign = self._sign()
        exponent = self._primary()
        if self._peek() in (_POWER, _SUPERSCRIPT, _FACTORIAL, _PERCENT):
            raise NotArithmeticError
        return Power(base, exponent if sign > 0 else add(Sum([]), sign, exponent))

    def _postfix(self) -> Expression:
        tree = self._primary()
        kind = self._peek()
        if kind is _PERCENT:
            self._take()
            if not isinstance(tree, Number) or tree.spelling is Spelling.PERCENT:
                raise NotArithmeticError
            return Number(tree.value / 100, tree.text + "%", Spelling.PERCENT)
        if kind is _FACTORIAL:
            self._take()
            tight = isinstance(tree, (Number, Symbol))
            return Call(("", "!") if tight else ("(", ")!"), [tree])
        return tree

    def _primary(self) -> Expression:
        token = self._take()
        if token.kind is _NUMBER:
            return self._number_or_mixed(token)
        match token.kind:
            case Kind.VULGAR:
                return self._quotient(*VULGAR_FRACTIONS[token.text])
            case Kind.NAME:
                return self._name(token.text)
            case Kind.OPEN:
                return self._bracketed(token)
            case Kind.FRACTION:
                return self._fraction()
            case Kind.ROOT:
                return self._root()
            case Kind.BINOMIAL:
                upper, lower = self._braced(), self._braced()
                return Call(("\\binom{", "}{", "}"), [upper, lower])
            case Kind.FUNCTION:
                opening = self._take()
                if opening.text != "(":
                    raise NotArithmeticError
                return Call((token.text + "(", ")"), [self._bracketed(opening)])
            case Kind.BAR:
                inside = self._sum()
                self._close(Kind.BAR, "|")
                return Call(("|", "|"), [inside])
        raise NotArithmeticError

    def _number(self, text: str) -> Number:
        self._leaves += 1
        if self._leaves > MAX_LEAVES or len(text) > MAX_DIGITS:
            raise NotArithmeticError
        if "." not in text:
            return Number(Fraction(int(text)), text, _INTEGER)
        return Number(Fraction(text), text, Spelling.DECIMAL)

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
        return multiply(self._number(str(numerator)), True, self._number(str(denominator)))

    def _name(self, text: str) -> Expression:
        self._leaves += 1
        if self._leaves > MAX_LEAVES:
            raise NotArithmeticError
        following = self._tokens[self._position]
        if following.text != "(" or text in CONSTANTS:
            return Symbol(text)
        self._take()
        return Call((text + "(", ")"), [self._bracketed(following)])

    def _bracketed(self, opening: Token) -> Expression:
        if opening.text == "\\{":
            raise NotArithmeticError  # a set
        tree = self._sum()
        self._close(Kind.CLOSE, CLOSING[opening.text])
        return tree

    def _close(self, kind: Kind, text: str) -> None:
        token = self._take()
        if token.kind is not kind or token.text != text:
            raise NotArithmeticError

    def _braced(self) -> Expression:
        token = self._take()
        if token.text != "{":
            raise NotArithmeticError
        return self._bracketed(token)

    def _fraction(self) -> Expression:
        """Read what follows \\frac: ``{a}{b}``, ``12`` or ``{72}5``."""
        token = self._tokens[self._position]
        if token.kind is Kind.NUMBER and len(token.text) == 2 and token.text.isdigit():
            self._take()
            return self._quotient(int(token.text[0]), int(token.text[1]))
        return multiply(self._fraction_part(), True, self._fraction_part())

    def _fraction_part(self) -> Expression:
        token = self._tokens[self._position]
        if token.kind is Kind.NUMBER and len(token.text) == 1:
            self._take()
            return self._number(token.text)
        return self._braced()

    def _root(self) -> Expression:
        token = self._take()
        index = ""
        if token.text == "[":
            number = self._take()
            if number.kind is not Kind.NUMBER:
                raise NotArithmeticError
            self._close(Kind.CLOSE, "]")
            index = f"[{number.text}]"
            token = self._take()
        if token.kind is Kind.OPEN:
            inside = self._bracketed(token)
        elif token.kind is Kind.NUMBER:
            inside = self._number(token.text)
        elif token.kind is Kind.NAME:
            inside = Symbol(token.text)
        else:
            raise NotArithmeticError
        return Call((f"\\sqrt{index}{{", "}"), [inside])


def add(left: Expression, sign: int, right: Expression) -> Expression:
    """Return ``left + sign * right`` as one flat sum."""
    terms: list[tuple[int, Expression]]
    terms = [*left.terms] if isinstance(left, Sum) else [(1, left)]
    if isinstance(right, Sum):
        terms.extend((sign * inner, term) for inner, term in right.terms)
    else:
        terms.append((sign, right))
    if len(terms) == 1 and terms[0][0] > 0:
        return terms[0][1]
    return Sum(terms)


def multiply(left: Expression, divide: bool, right: Expression) -> Expression:
    """Return the product, or the quotient where ``divide``, as one flat product.

    Raises:
        NotArithmeticError: the divisor is the number 0.
    """
    if divide and evaluate(right) == 0:
        raise NotArithmeticError
    factors: list[tuple[bool, Expression]]
    factors = [*left.factors] if isinstance(left, Product) else [(False, left)]
    if isinstance(right, Product):
        factors.extend((divide != inner, factor) for inner, factor in right.factors)
    else:
        factors.append((divide, right))
    return Product(factors)
