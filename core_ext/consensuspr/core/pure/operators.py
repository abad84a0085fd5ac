"""Operators, relations, punctuation and the Markdown that looks like them."""

from __future__ import annotations

import re
from math import factorial

from consensuspr.core.pure.groups import Groups
from consensuspr.core.pure.state import OPERAND_ENDS, Content, Gap, Kind, fold_case
from consensuspr.core.tables import (
    MAX_REWRITE_BYTES,
    MAX_UNIT_WORDS,
    Char,
    Word,
    classes_of,
)

# What may stand to the right of a product sign.
_FACTOR_STARTS = classes_of("0aα√([\\{½$")
_SUBSCRIPT_STARTS = classes_of("0aα{\\(")
_BLANKS = (Char.SPACE, Char.NEWLINE)
_TABLE_RULE = (Char.BAR, Char.MINUS, Char.COLON, Char.SPACE)
_RAISED = ("\\circ", "\\prime", "°")
# What a side of an equation with factorials is made of, a name of one letter included.
_IN_SIDE = frozenset(b"0123456789+-*/^!(),abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SIDE_OF_NUMBERS = re.compile(r"[0-9]{1,18}(?:[-+*/][0-9]{1,18}|\^[0-9]{1,2}(?![0-9^]))*!")
_TERM = re.compile(r"([-+]?)([0-9*/^!]+)")
_FACTOR = re.compile(r"([*/]?)([0-9]+!?)(?:\^([0-9]+!?))?")
_SIDE_LIMIT = 10**18
_COUNTS = re.compile(rb"(?:[0-9)]|(?<![A-Za-z])[A-Za-z])!|(?<![A-Za-z])C\(")
_MOST_PRIMES = 3
_MOST_INDEX_DIGITS = 6
# What a sign stands tight before.
_SIGNED = classes_of("0aα(.\\")


def _counted(number: str) -> int:
    """Return a number's value, or that of its factorial; large ones are all the same."""
    if number[-1] != "!":
        return int(number)
    value = int(number[:-1])
    return factorial(value) if value <= 19 else _SIDE_LIMIT


class Operators(Groups):
    """Rules for everything between operands."""

    def relation(self, text: str, at: int, end: int) -> int:
        """Write a relation; white space and units before it vanish."""
        self.drop_units()
        self.write_product()
        self.write(text, at, end)
        self.note(Kind.RELATION, Content.OTHER)
        self.after(Kind.RELATION)
        return end

    def operator(self, text: str, at: int, end: int, content: Content) -> int:
        """Write an operator; white space and units before it vanish."""
        self.drop_units()
        self.write_product()
        self.write(text, at, end)
        self.note(Kind.OPERATOR, content)
        self.after(Kind.OPERATOR)
        return end

    def punctuation(self, text: str, at: int, end: int, kind: Kind) -> int:
        """Write a sign that ends an expression."""
        self.write_product()
        self.write(text, at, end)
        self.note(kind, Content.OTHER)
        self.after(kind)
        return end

    def other(self, text: str, at: int, end: int) -> int:
        """Pass a character through that is no part of the language."""
        self.write_product()
        if self.last is Kind.SENTENCE and self.gap > Gap.GLUE:
            self.separate(Kind.OTHER, at)
        self.write(text, at, end)
        self.note(Kind.OTHER, Content.OTHER)
        self.after(Kind.OTHER)
        return end

    def run_end(self, at: int, end: int, char: str) -> tuple[int, int]:
        """Return the end of the run of ``char`` at ``at`` and its length.

        A command stands for one character: its end is ``end``, and its run is 1.
        """
        if self.chars[at] != char:
            return end, 1
        stop = at
        while self.chars[stop : stop + 1] == char:
            stop += 1
        return stop, stop - at

    def arrow(self, end: int) -> int:
        """Let an arrow vanish; what it separates stays apart (rule 18)."""
        self.widen(Gap.BREAK)
        self.unit_words = -1
        self.line_start = False
        return end

    def equals(self, at: int, end: int) -> int:
        """``=``, ``==``, ``=>`` and the ruled line ``=====``."""
        end, count = self.run_end(at, end, "=")
        if count >= 3:
            self.widen(Gap.BREAK)
            return end
        if self.classes[end] is Char.GREATER:
            return self.arrow(end + 1)
        return self.relation("=", at, end)

    def less(self, at: int, end: int) -> int:
        """``<``, ``<=``, ``<=>`` and the annotation mark ``<<``."""
        if self.classes[end] is Char.EQUALS:
            if self.classes[end + 1] is Char.GREATER:
                return self.arrow(end + 2)
            return self.relation("≤", at, end + 1)
        if self.classes[end] is Char.LESS:
            self.widen(Gap.MARK)
            return end + 1
        return self.relation("<", at, end)

    def greater(self, at: int, end: int) -> int:
        """``>``, ``>=``, ``>>`` and the quotation mark at a line's start."""
        if self.line_start and self.classes[end] in _BLANKS:
            return end
        if self.classes[end] is Char.EQUALS:
            return self.relation("≥", at, end + 1)
        if self.classes[end] is Char.GREATER:
            self.widen(Gap.MARK)
            return end + 1
        return self.relation(">", at, end)

    def minus(self, at: int, end: int) -> int:
        """A minus sign, a hyphen, a bullet, an arrow or a ruled line."""
        dash = self.chars[at] != "−"  # a real minus sign is neither a bullet nor a hyphen
        if dash and self.line_start and self.classes[end] in _BLANKS:
            return self.bullet(end)
        run, count = self.run_end(at, end, "-")
        if self.classes[run] is Char.GREATER:
            return self.arrow(run + 1)
        if count >= 3:
            self.widen(Gap.BREAK)
            return run
        if self.product is None:
            if self.gap <= Gap.GLUE and self.last in (Kind.WORD, Kind.LETTER, Kind.NUMBER):
                stop = self.plain_word_end(end, stop_words=True) if dash else 0
                if stop:
                    return self.hyphen(at, end, stop)
            elif self.gap >= Gap.THIN and self.classes[end] in _BLANKS and self.is_dash(end):
                return self.bullet(end)
            elif self.is_sign(end):
                self.separate(Kind.OPERATOR, at)
                self.unit_words = -1
        return self.operator("-", at, end, Content.SUM)

    def is_dash(self, end: int) -> bool:
        """Tell a dash between blanks from a difference.

        It stands before a stop word of prose, or alone in the cell of a table.
        """
        stop = self.skip_spaces(end)
        if self.gap is Gap.BREAK:
            cell = self.classes[stop] in (Char.BAR, Char.NEWLINE) or stop >= self.length
            if cell:
                return True
        return self.plain_word_end(stop, True) > 0 and not self.plain_word_end(stop, False)

    def is_sign(self, end: int) -> bool:
        """Tell a sign, tight before its operand, from a difference.

        It is one after a word of prose and at a line's start; between operands of one line
        it is a difference however it is spaced.
        """
        if self.last is Kind.WORD:
            if self.gap < Gap.THIN or self.gap is Gap.MARK:
                return False
        elif self.gap is not Gap.BREAK or self.last not in OPERAND_ENDS:
            return False
        return self.classes[end] in _SIGNED

    def plain_word_end(self, at: int, stop_words: bool) -> int:
        """Return the end of the word of two letters or more at ``at``, 0 where none stands.

        Words with a meaning do not count; stop words only if ``stop_words``.
        """
        end = at
        while self.classes[end] is Char.LETTER:
            end += 1
        if end - at < 2:
            return 0
        meaning, _ = self.meaning(fold_case(self.chars[at:end]))
        if meaning is Word.STOP:
            return end if stop_words else 0
        if meaning is Word.MINUTES:
            return 0 if self.classes[end] in (Char.OPEN, Char.UNDERSCORE) else end
        return end if meaning in (Word.PLAIN, Word.GLUED_UNIT, Word.CURRENCY) else 0

    def append_letters(self, sign: str, at: int, start: int, stop: int) -> None:
        """Write ``sign`` and the letters [start, stop) as a part of the last word."""
        self.write(sign + fold_case(self.chars[start:stop]), at, stop)
        self.note(Kind.WORD, Content.WORDS)
        self.after(Kind.WORD)

    def hyphen(self, at: int, end: int, stop: int) -> int:
        """A hyphen inside a word, no operator: 45 roll-ups, 3-packs, n-gon."""
        words, unit_at = self.unit_words, self.unit_at
        if self.last is not Kind.WORD:
            words = -1
        self.append_letters("-", at, end, stop)
        self.unit_words, self.unit_at = words, unit_at
        return stop

    def times(self, at: int, end: int) -> int:
        """Remember a product sign until its right side is known (rules 8 and 9)."""
        self.drop_units()
        if self.last not in OPERAND_ENDS and self.last is not Kind.SENTENCE:
            return self.operator("*", at, end, Content.PRODUCT)
        self.write_product()
        self.product = (at, end)
        self.gap = Gap.NONE
        self.unit_words = -1
        self.line_start = False
        return end

    def star(self, at: int, end: int) -> int:
        """An asterisk: product, power, bullet or emphasis (rules 8, 12 and 14)."""
        run, count = self.run_end(at, end, "*")
        if count == 2:
            tight = self.gap <= Gap.GLUE and self.last in (Kind.NUMBER, Kind.LETTER, Kind.CLOSE)
            if tight and self.classes[run] in (Char.DIGIT, Char.LETTER, Char.SYMBOL, Char.OPEN):
                return self.caret_sign(at, run)
        if count > 1:
            self.widen(Gap.MARK)
            return run
        if self.line_start and self.classes[end] in _BLANKS:
            return self.bullet(end)
        tight = self.gap <= Gap.GLUE
        quoted = self.classes[end] is Char.MARK and self.chars[end] != "$"
        closes = self.emphasis and (
            quoted or self.classes[end] in _BLANKS if tight else self.closes_apart(end)
        )
        if not closes and self._star_multiplies(end):
            return self.times(at, end)
        self.emphasis = not closes and not (tight and self.last in OPERAND_ENDS)
        self.widen(Gap.MARK)
        return end

    def closes_apart(self, end: int) -> bool:
        """Tell whether an asterisk between blanks ends an emphasis: *A=9\\pi * and so on."""
        if self.classes[end] not in _BLANKS:
            return False
        at = self.skip_spaces(end)
        if self.plain_word_end(at, True) and not self.plain_word_end(at, False):
            return True
        right = self.classes[at]
        operand = right in _FACTOR_STARTS or right is Char.MINUS or self.starts_number(at)
        return not operand

    def _star_multiplies(self, end: int) -> bool:
        if self.last is Kind.SENTENCE:
            if self.out[-1:] != b"!":
                return False
        elif self.last not in OPERAND_ENDS or self.product is not None:
            return False
        spaced_left = self.gap > Gap.GLUE
        right = self.classes[end]
        spaced_right = right in _BLANKS
        if spaced_left and not spaced_right:
            if self.last is Kind.WORD or self.gap is Gap.BREAK:
                return False
            if right is Char.LETTER and self.classes[end + 1] is Char.LETTER:
                return False
        elif spaced_right and not spaced_left:
            if self.last is Kind.WORD:
                return False
            end = self.skip_spaces(end)
            right = self.classes[end]
            if right is Char.NEWLINE:
                return False
            if right is Char.LETTER and self.classes[end + 1] is Char.LETTER:
                return False
        elif spaced_right:
            return True
        return (
            right in _FACTOR_STARTS
            or right is Char.MINUS
            or (right is Char.POINT and self.starts_number(end))
        )

    def slash(self, at: int, end: int) -> int:
        """A fraction bar; brackets around a pure product before it go (rule 10)."""
        start, stop = self.rate_end(end)
        if stop:
            self.rate(at, start, stop)
            return self.argument_end(stop) if start > self.skip_spaces(end) else stop
        self.drop_units()
        self.write_product()
        self._bare_numerator()
        self.write("/", at, end)
        self.note(Kind.OPERATOR, Content.QUOTIENT)
        self.after(Kind.OPERATOR)
        return end

    def rate_end(self, end: int) -> tuple[int, int]:
        """Return where the unit after a bar stands as in 5 km/h or 10/day; it ends at 0 if none."""
        if self.unit_words < 0 or self.unit_words >= MAX_UNIT_WORDS or self.product is not None:
            return end, 0
        if self.gap is Gap.BREAK:
            return end, 0
        start = self.skip_spaces(end)
        for name in ("\\text{", "\\mathrm{"):
            if self.chars[start : start + len(name)] == name:
                start = self.skip_spaces(start + len(name))
                stop = self.plain_word_end(start, stop_words=False)
                return start, stop if stop and self.argument_end(stop) else 0
        stop = self.plain_word_end(start, stop_words=False)
        if stop:
            return start, stop
        # A single letter is a unit only after one: km/h, but 3/x is a quotient.
        letter = self.unit_words > 0 and self.classes[end] is Char.LETTER
        return end, end + 1 if letter and self.classes[end + 1] is not Char.LETTER else 0

    def argument_end(self, at: int) -> int:
        """Return the index past the brace that closes at ``at``, 0 where none does."""
        at = self.skip_spaces(at)
        return at + 1 if self.classes[at] is Char.BRACE_CLOSE else 0

    def rate(self, at: int, start: int, stop: int) -> None:
        """Write the ``/word`` of a unit, apart from its number (rule 3)."""
        words, unit_at = self.unit_words, self.unit_at
        if self.last is Kind.NUMBER:
            self.gap = Gap.SPACE
            self.separate(Kind.WORD, at)
        self.append_letters("/", at, start, stop)
        self.unit_words, self.unit_at = words + 1, unit_at

    def _bare_numerator(self) -> None:
        closed = self.closed
        if closed is None or self.last is not Kind.CLOSE or closed.end != len(self.out):
            return
        if closed.end - closed.position > MAX_REWRITE_BYTES or closed.tokens == 0:
            return
        if closed.content & ~(Content.PRODUCT | Content.LEADING_MINUS):
            return
        free = closed.before in (Kind.START, Kind.RELATION, Kind.OPEN, Kind.PUNCTUATION)
        if closed.content & Content.LEADING_MINUS and not (free or closed.separated):
            return
        sign = closed.position > 0 and self.out[closed.position - 1] in b"+-"
        if not (free or closed.separated or (closed.before is Kind.OPERATOR and sign)):
            return
        self.truncate(closed.end - 1)
        self.remove_open(closed.position)
        self.closed = None

    def caret(self, at: int, end: int) -> int:
        """A power, or the degree sign written as one (rules 12 and 17)."""
        brace = self.classes[end] is Char.BRACE_OPEN
        inner = end + 1 if brace else end
        for name in _RAISED:
            stop, count = inner, 0
            while self.chars[stop : stop + len(name)] == name and count < _MOST_PRIMES:
                stop += len(name)
                count += 1
                if name != "\\prime":
                    break
            if not count or (name != "°" and self.classes[stop] is Char.LETTER):
                continue
            if brace:
                if self.classes[stop] is not Char.BRACE_CLOSE:
                    continue
                stop += 1
            if name == "\\prime":
                for _ in range(count):
                    self.prime_sign(at, stop)
            else:
                self.degree = True
            return stop
        return self.caret_sign(at, end)

    def caret_sign(self, at: int, end: int) -> int:
        """Write ``^``."""
        self.write_product()
        self.write("^", at, end)
        self.note(Kind.OPERATOR)
        self.after(Kind.CARET)
        return end

    def underscore(self, at: int, end: int) -> int:
        """A subscript (rule 12) or Markdown emphasis (rule 14)."""
        run, count = self.run_end(at, end, "_")
        tight = self.gap <= Gap.GLUE and self.last in OPERAND_ENDS and self.product is None
        right = self.classes[end]
        if count > 1 or not tight or right not in _SUBSCRIPT_STARTS:
            self.widen(Gap.BREAK if count >= 3 else Gap.MARK)
            return run
        if self.last is Kind.LETTER and not self.out[-1:].isdigit():
            if right is Char.DIGIT:
                return end
            if right is Char.BRACE_OPEN:
                first = stop = self.skip_spaces(end + 1)
                while self.classes[stop] is Char.DIGIT and stop - first < _MOST_INDEX_DIGITS:
                    stop += 1
                close = self.skip_spaces(stop)
                if stop > first and self.classes[close] is Char.BRACE_CLOSE:
                    for index in range(first, stop):
                        self.write(self.chars[index], index, index + 1)
                    self.ends[-1] = close + 1
                    self.after(Kind.LETTER)
                    self.sealed = True
                    return close + 1
        self.write("_", at, end)
        self.note(Kind.OPERATOR)
        self.after(Kind.UNDERSCORE)
        return end

    def prime(self, at: int, end: int) -> int:
        """An apostrophe: a prime or a part of a word, otherwise a quotation mark."""
        tight = self.gap <= Gap.GLUE and self.product is None
        if tight and self.last is Kind.WORD and self.classes[end] is Char.LETTER:
            stop = end
            while self.classes[stop] is Char.LETTER:
                stop += 1
            words, unit_at = self.unit_words, self.unit_at
            self.append_letters("'", at, end, stop)  # that's, Beatrice's
            self.unit_words, self.unit_at = words, unit_at
            return stop
        return self.prime_sign(at, end)

    def prime_sign(self, at: int, end: int) -> int:
        """A prime, an apostrophe at a word's end or a quotation mark."""
        tight = self.gap <= Gap.GLUE and self.product is None
        if tight and self.last in OPERAND_ENDS and self.last is not Kind.NUMBER:
            last, words = self.last, self.unit_words
            self.write("'", at, end)
            self.after(last)
            if last is Kind.WORD:
                self.unit_words = words  # 5 kids' toys
        else:
            self.widen(Gap.MARK)  # a quotation mark, or feet
        return end

    def bang(self, at: int, end: int) -> int:
        """A factorial, the end of a sentence, or ``!=`` (rule 18)."""
        if self.classes[end] is Char.EQUALS and not self.is_factorial(end + 1):
            return self.relation("≠", at, end + 1)
        self.write_product()
        self.write("!", at, end)
        self.note(Kind.SENTENCE)
        self.after(Kind.SENTENCE)
        return end

    def is_factorial(self, at: int) -> bool:
        """Tell ``5!=120`` and ``n!=n(n-1)!`` from ``2!=3``; ``at`` is behind the equals sign.

        It is one beside another factorial or a binomial coefficient.  What ``!=`` would deny of a
        number, or the product that ends with it, and its factorial, or of anything and itself, is
        meant as a factorial.
        """
        if self.gap is not Gap.NONE or self.product is not None:
            return False
        if self.ends_factorial() or self.side_counts():
            return True
        if self.last is Kind.LETTER:
            letter = self.chars[at : at + 1]
            return self.classes[at] is Char.LETTER and self.out[-1:] == letter.encode()
        end = at
        while self.classes[end] is Char.DIGIT and end - at < 19:
            end += 1
        if self.last is not Kind.NUMBER or end == at or self.classes[end] is Char.DIGIT:
            return False
        start = self.number_start()
        number = self.out[start:]
        if not (number.isdigit() and len(number) <= 2):
            return False
        right = int(self.chars[at:end])
        value = int(number)
        if right == value:
            return True
        return (value <= 20 and right == factorial(value)) or right == self.side_value()

    def side_value(self) -> int | None:
        """Return the value of the side at the output's end with a factorial behind it.

        None if it holds more than whole numbers and operators, or is large.
        """
        start = len(self.out)
        stop = max(self.base, start - MAX_REWRITE_BYTES)
        while start > stop and self.out[start - 1] in b"0123456789+-*/^":
            start -= 1
        if start > self.base and self.out[start - 1] not in b" \n=<>,;:(":
            return None
        side = self.out[start:].decode() + "!"
        if not _SIDE_OF_NUMBERS.fullmatch(side):
            return None
        total = 0
        for sign, term in _TERM.findall(side):
            product = 1
            for operator, number, exponent in _FACTOR.findall(term):
                value = _counted(number)
                if exponent:
                    value = value ** min(_counted(exponent), 64)
                if operator == "/":
                    if not value or product % value:
                        return None
                    product //= value
                else:
                    product *= value
                if max(product, value) >= _SIDE_LIMIT:
                    return None
            total += -product if sign == "-" else product
            if abs(total) >= _SIDE_LIMIT:
                return None
        return total

    def side_counts(self) -> bool:
        """Tell whether the side at the output's end has a factorial or a binomial coefficient."""
        if self.last not in (Kind.NUMBER, Kind.LETTER, Kind.CLOSE):
            return False
        start = len(self.out)
        stop = max(self.base, start - MAX_REWRITE_BYTES)
        while start > stop and self.out[start - 1] in _IN_SIDE:
            start -= 1
        return _COUNTS.search(self.out, start) is not None

    def colon(self, at: int, end: int) -> int:
        """A colon, or the definition sign ``:=``."""
        if self.classes[end] is Char.EQUALS:
            return self.relation("=", at, end + 1)
        return self.punctuation(":", at, end, Kind.PUNCTUATION)

    def comma(self, at: int, end: int) -> int:
        """A comma; one tight after a number starts a list."""
        listing = self.last is Kind.NUMBER and self.gap is Gap.NONE and self.product is None
        self.punctuation(",", at, end, Kind.PUNCTUATION)
        self.listing = listing
        return end

    def point(self, at: int, end: int) -> int:
        """A point that starts no number: an ellipsis, a version or the end of a sentence."""
        if self.chars[at] == "." and self.chars[end : end + 2] == "..":
            return self.other("…", at, end + 2)
        if (
            self.last is Kind.NUMBER
            and self.gap is Gap.NONE
            and self.product is None
            and self.classes[end] is Char.DIGIT
        ):
            return self.punctuation(".", at, end, Kind.PUNCTUATION)
        return self.punctuation(".", at, end, Kind.SENTENCE)

    def bar(self, at: int, end: int) -> int:
        """A table's bar if white space is beside it, otherwise an absolute value (rule 14)."""
        if self.bar_open and self.gap is Gap.NONE:
            return self.absolute(at, end)
        if self.line_start and (stop := self.table_rule(end)):
            self.widen(Gap.BREAK)
            return stop
        blank_right = self.classes[end] in _BLANKS or end >= self.length
        if self.line_start and blank_right:
            self.table_row = True
        blank_left = self.gap in (Gap.SPACE, Gap.BREAK)
        if blank_right or (blank_left and self.table_row):
            self.widen(Gap.BREAK)
            self.line_start = False
            return end
        return self.absolute(at, end)

    def table_rule(self, at: int) -> int:
        """Return the end of a line such as ``|---|:-:|``, 0 if the line is none."""
        dashes = False
        while at < self.length and self.classes[at] in _TABLE_RULE:
            dashes = dashes or self.classes[at] is Char.MINUS
            at += 1
        ends = at >= self.length or self.classes[at] is Char.NEWLINE
        return at if dashes and ends else 0

    def absolute(self, at: int, end: int) -> int:
        """A bar that is part of the formula; every other one opens an operand."""
        if not self.bar_open:
            self.junction(Kind.OPEN, at, end)
        self.bar_open = not self.bar_open
        return self.other("|", at, end)
