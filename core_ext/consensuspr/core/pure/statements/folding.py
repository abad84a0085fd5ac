"""Tokens to items: what means nothing between numbers is dropped.

Units in words, remarks in brackets, currency, emphasis and line breaks go; words for operations
and for equality become what they stand for; a percentage and a mixed number become one number.  A
word that belongs to nothing ends the expression, and one beside an operator makes it unknown.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from consensuspr.core.pure.statements.arithmetic import (
    OPERAND_ENDS,
    ArithmeticItem,
    ItemKind,
    Shown,
)
from consensuspr.core.pure.statements.prose import ProseKind, ProseToken
from consensuspr.core.statements import (
    MAX_DIGITS,
    MAX_INT,
    MAX_OF_WORDS,
    MAX_REMARK,
    MAX_UNIT_WORDS,
    MIN_GLUED,
    Meaning,
)


def fold(tokens: list[ProseToken]) -> list[ArithmeticItem]:
    """Return the items of one stretch."""
    folder = _Folder(_without_emphasis(tokens))
    folder.read()
    return folder.items


# --- emphasis -----------------------------------------------------------------------------

_LEFT_NUMBERS = (ProseKind.NUMBER, ProseKind.FRACTION, ProseKind.CLOSE, ProseKind.PERCENT)
_RIGHT_NUMBERS = (ProseKind.NUMBER, ProseKind.FRACTION, ProseKind.OPEN, ProseKind.OPERATOR)
_LEFT_OPERANDS = (*_LEFT_NUMBERS, ProseKind.WORD, ProseKind.NAME)
_RIGHT_OPERANDS = (*_RIGHT_NUMBERS, ProseKind.WORD, ProseKind.NAME)


def _without_emphasis(tokens: list[ProseToken]) -> list[ProseToken]:
    """Turn stars between operands into operators and drop the others.

    A star is an operator with blanks on both sides or on none; emphasis has one on its outside.
    """
    kept: list[ProseToken] = []
    gap = False  # before the next token, where dropped stars stood
    for index, token in enumerate(tokens):
        before = token.gap or gap
        if token.kind not in (ProseKind.STAR, ProseKind.STARS):
            token.gap = before
            kept.append(token)
            gap = False
            continue
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        after = following is None or following.gap
        if kept and following is not None:
            left, right = kept[-1].kind, following.kind
            single = token.kind is ProseKind.STAR
            numbers = left in _LEFT_NUMBERS and right in _RIGHT_NUMBERS
            operands = left in _LEFT_OPERANDS and right in _RIGHT_OPERANDS
            if operands and (before == after or (single and numbers)):
                token.kind = ProseKind.OPERATOR
                token.op = "*" if single else "^"
                token.gap = before
                kept.append(token)
                gap = False
                continue
        gap = before or after
    return kept


# --- items --------------------------------------------------------------------------------

_OPERAND_BEGINNINGS = (ProseKind.NUMBER, ProseKind.FRACTION, ProseKind.OPEN)
_WORD_OPERATORS = {Meaning.PLUS: "+", Meaning.MINUS: "-", Meaning.TIMES: "*"}
_BY_OPERATORS = {Meaning.DIVIDED: "/", Meaning.MULTIPLIED: "*"}
_FILLERS = (Meaning.ROUGHLY, Meaning.FILLER, Meaning.EQUAL, Meaning.OF)
# Behind the last token: something that nothing is made of.
_END = ProseToken(ProseKind.NAME, 0, 0, gap=True)


class _Remark(NamedTuple):
    """What stands in a bracket: where it ends (0: too far), and what is in it."""

    closing: int
    has_words: bool
    has_signs: bool


class _Folder:
    """Reads one stretch; ``items`` is the result."""

    def __init__(self, tokens: list[ProseToken]) -> None:
        self.items: list[ArithmeticItem] = []
        self._tokens = tokens
        self._at = 0  # of the token that is read next
        self._after_unit = False  # the last item is an operand and has its unit
        self._unit_words = 0

    def read(self) -> None:
        while self._at < len(self._tokens):
            self._at += 1
            self._one(self._tokens[self._at - 1])

    # -- what is there --

    def _token(self, at: int) -> ProseToken:
        return self._tokens[at] if at < len(self._tokens) else _END

    @property
    def _next(self) -> ProseToken:
        return self._token(self._at)

    def _last(self, *kinds: ItemKind) -> bool:
        return bool(self.items) and self.items[-1].kind in kinds

    def _operand_ends(self) -> bool:
        return self._last(*OPERAND_ENDS)

    def _operand_begins(self, at: int) -> bool:
        token, following = self._token(at), self._token(at + 1)
        return token.kind in _OPERAND_BEGINNINGS or (
            token.kind is ProseKind.OPERATOR
            and token.op in "+-"
            and following.kind in _OPERAND_BEGINNINGS
            and not following.gap
        )

    # -- items --

    def _put(self, kind: ItemKind, token: ProseToken, op: str = "") -> None:
        self.items.append(ArithmeticItem(kind, token.start, token.end, op=op))
        self._after_unit = False

    def _put_number(self, token: ProseToken, number: Fraction) -> None:
        self.items.append(ArithmeticItem(ItemKind.NUMBER, token.start, token.end, number))

    def _put_fraction(self, token: ProseToken) -> None:
        self._put(ItemKind.OPEN, token)
        self._put_number(token, token.number)
        self._put(ItemKind.OPERATOR, token, "/")
        self._put_number(token, token.denominator)
        self._put(ItemKind.CLOSE, token)

    def _stop(self, token: ProseToken) -> None:
        if self.items and not self._last(ItemKind.STOP):
            self._put(ItemKind.STOP, token)
        self._after_unit = False

    def _one(self, token: ProseToken) -> None:
        match token.kind:
            case ProseKind.NUMBER:
                self._number(token)
            case ProseKind.FRACTION:
                if self._after_unit:
                    self._stop(token)
                self._put_fraction(token)
            case ProseKind.OPERATOR:
                self._operator(token)
            case ProseKind.OPEN:
                self._open(token)
            case ProseKind.CLOSE:
                self._put(ItemKind.CLOSE, token)
            case ProseKind.EQUALS:
                self._equals(token)
            case ProseKind.WORD:
                self._word(token)
            case ProseKind.NAME:
                self._put(ItemKind.UNKNOWN, token)
            case ProseKind.DOTS:
                # 1 + 2 + ... + 9 leaves something out.
                if self._last(ItemKind.OPERATOR) or self._next.kind is ProseKind.OPERATOR:
                    self._put(ItemKind.UNKNOWN, token)
                else:
                    self._stop(token)
            case ProseKind.PERCENT if self._operand_ends():
                self._put(ItemKind.UNKNOWN, token)  # a remainder
            case ProseKind.COLON:
                self._colon(token)
            case ProseKind.AMPERSAND | ProseKind.LINE:
                self._line(token)

    def _number(self, token: ProseToken) -> None:
        if self._after_unit:
            self._stop(token)
        number, shown, end = token.number, token.shown, token.end
        item = ArithmeticItem(ItemKind.NUMBER, token.start, end, number, shown)
        self.items.append(item)
        if not shown.decimals:
            self._mixed(item)
        percent = self._next
        if percent.kind is ProseKind.PERCENT and not (
            percent.gap and self._operand_begins(self._at + 1)  # 7 % 3 is a remainder
        ):
            self._at += 1
            item.percent = True
            item.end = percent.end
            item.number /= 100
            if item.number.denominator > MAX_INT:
                item.kind = ItemKind.UNKNOWN
            if item.shown is not None:
                decimals = item.shown.decimals + 2
                item.shown = Shown(decimals) if decimals <= MAX_DIGITS else None

    def _mixed(self, item: ArithmeticItem) -> None:
        """Join 7 1/2, and 7½, to one number."""
        above, bar, below = (self._token(self._at + index) for index in range(3))
        if above.kind is ProseKind.FRACTION:
            numerator, denominator, last, used = above.number, above.denominator, above, 1
        elif (
            above.kind is below.kind is ProseKind.NUMBER
            and above.gap
            and (bar.kind, bar.op) == (ProseKind.OPERATOR, "/")
            and not bar.gap
            and not below.gap
            and not (above.shown.decimals or below.shown.decimals)
            and not self._binds_closer(self._token(self._at + 3))
        ):
            numerator, denominator, last, used = above.number, below.number, below, 3
        else:
            return
        if not 0 < numerator < denominator:
            return
        number = item.number + numerator / denominator
        if number.numerator > MAX_INT:
            return
        item.number = number
        item.shown = None
        item.end = last.end
        self._at += used

    @staticmethod
    def _binds_closer(token: ProseToken) -> bool:
        """Tell whether this takes the denominator from a fraction before it: 7 1/2/3."""
        return token.kind is ProseKind.OPERATOR and token.op in "/^" and not token.gap

    def _operator(self, token: ProseToken) -> None:
        following = self._next
        if self._after_unit and token.op == "^" and following.kind is ProseKind.NUMBER:
            self._at += 1  # 12 cm^2
        elif (
            token.op == "/"
            and self._operand_ends()
            and following.kind is ProseKind.WORD
            and not following.single
        ):
            if not self._after_unit:  # 15 USD/hour: what follows is a part of the unit
                self._after_unit = True
                self._unit_words = 0
        else:
            self._put(ItemKind.OPERATOR, token, token.op)

    def _open(self, token: ProseToken) -> None:
        """Read a bracket, or pass over a remark: 48 grains (1959 penny)."""
        if self._operand_ends() and (token.gap or self._after_unit):
            remark = self._remark()
            if remark.closing and not remark.has_signs and (remark.has_words or self._after_unit):
                self._at = remark.closing + 1
                self._after_unit = True
                return
            if remark.has_signs or self._after_unit:
                self._stop(token)
        self._put(ItemKind.OPEN, token)

    def _remark(self) -> _Remark:
        """Look at the bracket that has been opened."""
        depth = 1
        has_words = has_signs = False
        for at in range(self._at, min(len(self._tokens), self._at + MAX_REMARK)):
            token = self._tokens[at]
            if token.kind is ProseKind.OPEN:
                depth += 1
            elif token.kind is ProseKind.CLOSE:
                depth -= 1
                if depth == 0:
                    return _Remark(at, has_words, has_signs)
            elif token.kind is ProseKind.WORD:
                has_words |= not (token.meaning in _WORD_OPERATORS or token.times)
            elif token.kind is ProseKind.EQUALS:
                has_signs = True
        return _Remark(0, has_words, has_signs)

    def _equals(self, token: ProseToken) -> None:
        if not self._last(ItemKind.SIGN):
            self._put(ItemKind.SIGN, token)
            self.items[-1].name = token.name
        sign = self.items[-1]
        sign.approximate |= token.op == "≈"
        sign.verb = False
        self._fillers(sign)

    def _fillers(self, sign: ArithmeticItem) -> None:
        """Pass over "about", "a total of" between a sign and its number."""
        operand = self._after_words(self._at, _FILLERS)
        if operand > self._at and self._operand_begins(operand):
            fillers = self._tokens[self._at : operand]
            sign.approximate |= any(token.meaning is Meaning.ROUGHLY for token in fillers)
            self._at = operand

    def _colon(self, token: ProseToken) -> None:
        following = self._next
        if (
            self._last(ItemKind.NUMBER)
            and not self._after_unit
            and following.kind is ProseKind.NUMBER
            and following.gap == token.gap
        ):
            # A ratio, or a time of day.
            self._put(ItemKind.UNKNOWN, token)
            self._put(ItemKind.UNKNOWN, following)
            self._at += 1
        else:
            self._stop(token)

    def _line(self, token: ProseToken) -> None:
        """Stop at a line's end, unless a sign or an operator stands on either side of it."""
        at = self._at
        while self._token(at).kind in (ProseKind.AMPERSAND, ProseKind.LINE):
            at += 1
        if self._token(at).kind is not ProseKind.EQUALS and not self._last(
            ItemKind.SIGN, ItemKind.OPERATOR
        ):
            self._stop(token)

    # -- words --

    def _word(self, token: ProseToken) -> None:
        """Read one word: an operation, a verb, a part of a unit, or the end of what was said."""
        meaning = token.meaning
        between = self._operand_ends() and self._operand_begins(self._at)
        if token.times and between:
            self._put(ItemKind.OPERATOR, token, "*")
        elif token.single:
            self._single(token)
        elif meaning in _WORD_OPERATORS and between:
            self._put(ItemKind.OPERATOR, token, _WORD_OPERATORS[meaning])
        elif meaning in _BY_OPERATORS and self._by(token):
            pass
        elif meaning is Meaning.PART and self._part(token):
            pass
        elif meaning is Meaning.MANIFOLD and self._operand_begins(self._at):
            self._put_number(token, token.number)
            self._put(ItemKind.OPERATOR, token, "*")
        elif meaning is Meaning.OF and self._of(token):
            pass
        elif meaning in (Meaning.VERB, Meaning.EQUAL):
            self._verb(token)
        elif meaning is Meaning.STOP:
            self._stop(token)
            self._operand_of_next(token)
        elif self._operand_ends():
            self._unit_word(token)
        elif self._last(ItemKind.OPERATOR):
            self._put(ItemKind.UNKNOWN, token)
        elif not self._operand_of_next(token):
            self._stop(token)

    def _operand_of_next(self, token: ProseToken) -> bool:
        """Take a word before an operator for its left operand; a sign of a number is none."""
        following = self._next
        if following.kind is not ProseKind.OPERATOR or (
            following.gap and following.op in "+-" and self._operand_begins(self._at)
        ):
            return False
        self._put(ItemKind.UNKNOWN, token)
        return True

    def _single(self, token: ProseToken) -> None:
        """Read a variable: unknown where it is a part of an expression."""
        following = self._next
        if self._last(*OPERAND_ENDS, ItemKind.OPERATOR, ItemKind.UNKNOWN) or (
            following.kind is not ProseKind.EQUALS
            and (following.kind is ProseKind.OPERATOR or not following.gap)
        ):
            self._put(ItemKind.UNKNOWN, token)
        else:
            self._stop(token)

    def _unit_word(self, token: ProseToken) -> None:
        if not self._after_unit:
            self._unit_words = 0
            if not token.gap and token.letters < MIN_GLUED and token.meaning is not Meaning.UNIT:
                self._put(ItemKind.UNKNOWN, token)  # 5ab
                return
        self._unit_words += 1
        if self._unit_words > MAX_UNIT_WORDS:
            self._stop(token)
            self._operand_of_next(token)
        else:
            self._after_unit = True

    def _by(self, token: ProseToken) -> bool:
        """Read "divided by" between operands."""
        if not (
            self._operand_ends()
            and self._next.meaning is Meaning.BY
            and self._operand_begins(self._at + 1)
        ):
            return False
        self._at += 1
        self._put(ItemKind.OPERATOR, token, _BY_OPERATORS[token.meaning])
        return True

    def _part(self, token: ProseToken) -> bool:
        """Read "half of 26" as a product."""
        of = self._next
        if self._operand_ends() or of.meaning is not Meaning.OF:
            return False
        operand = self._operand_after_of(self._at + 1)
        if not operand:
            return False
        self._put_fraction(token)
        self._put(ItemKind.OPERATOR, of, "*")
        self._at = operand
        return True

    def _of(self, token: ProseToken) -> bool:
        """Read "of" as a product after a fraction, a percentage or a bracket."""
        if self._after_unit or not self._operand_ends():
            return False
        last = self.items[-1]
        is_fraction = [item.kind for item in self.items[-3:]] == [
            ItemKind.NUMBER,
            ItemKind.OPERATOR,
            ItemKind.NUMBER,
        ] and self.items[-2].op == "/"
        operand = self._operand_after_of(self._at)
        if not (last.kind is ItemKind.CLOSE or last.percent or is_fraction) or not operand:
            return False
        self._at = operand
        self._put(ItemKind.OPERATOR, token, "*")
        return True

    def _operand_after_of(self, at: int) -> int:
        """Return where the operand begins that "of" belongs to, a few words on; 0 for none."""
        operand = self._after_words(at, (Meaning.PLAIN, Meaning.FILLER))
        return operand if self._operand_begins(operand) else 0

    def _after_words(self, at: int, meanings: tuple[Meaning, ...]) -> int:
        """Return the place behind some words, at most ``MAX_OF_WORDS``, of these meanings."""
        end = at + MAX_OF_WORDS
        while at < end:
            token = self._token(at)
            if token.kind is not ProseKind.WORD or token.single or token.meaning not in meanings:
                break
            at += 1
        return at

    def _verb(self, token: ProseToken) -> None:
        sign = ArithmeticItem(ItemKind.SIGN, token.start, token.end, verb=True)
        before = self._at
        if self._operand_ends():
            self._fillers(sign)
            if self._at > before or self._operand_begins(self._at):
                self.items.append(sign)
                self._after_unit = False
                return
        self._stop(token)
