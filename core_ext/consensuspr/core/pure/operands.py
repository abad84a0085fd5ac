"""Operands: numbers, letters, words and units (rules 1 to 6, 10, 12, 15 and 16)."""

from __future__ import annotations

from consensuspr.core.pure.operators import Operators
from consensuspr.core.pure.state import FACTOR_ENDS, Content, Gap, Group, Kind, fold_case
from consensuspr.core.tables import (
    AMOUNTS,
    DEGREE_LETTERS,
    FRACTIONS,
    MAX_REWRITE_BYTES,
    MAX_UNIT_DIGITS,
    MAX_UNIT_WORDS,
    MIN_NAME,
    REPEATING,
    SUBSCRIPTS,
    SUPERSCRIPTS,
    UNIT_LETTERS,
    Char,
    Word,
    classes_of,
)

# What makes a name or a factor of a letter before it.
_NAMES_GO_ON = classes_of("0_'(₁")
# What stands behind two letters that are factors.
_JOINS_FACTORS = classes_of("+-*×^=")
_UNIT_BYTES = UNIT_LETTERS.encode()
_SIDE = b"0123456789.+-*/()^ \n" + _UNIT_BYTES


def is_segment(text: str) -> bool:
    """Tell whether a word is two ASCII capitals, like the segment AB (rule 15)."""
    return len(text) == 2 and all("A" <= char <= "Z" for char in text)


class Operands(Operators):
    """Rules for what operators stand between."""

    # --- numbers -----------------------------------------------------------------------------

    def leads_number(self, at: int) -> bool:
        """Tell whether the point at ``at`` begins a number like ``.5`` (rule 4)."""
        if self.classes[at + 1] is not Char.DIGIT:
            return False
        tight = self.gap is Gap.NONE and self.product is None
        if tight and self.out[-1:] == b".":
            return False  # 0..3
        return not (tight and self.last in (Kind.NUMBER, Kind.LETTER, Kind.WORD, Kind.CLOSE))

    def number(self, at: int) -> int:
        """A number in decimal notation (rules 4 and 6)."""
        listing = self.listing and self.gap is Gap.NONE
        glued = (
            self.gap is Gap.NONE
            and self.product is None
            and self.last in (Kind.LETTER, Kind.WORD)
            and not self.sealed
        )
        index = self.last is Kind.UNDERSCORE
        last, function = self.last, self.function
        self.junction(Kind.NUMBER, at, at)
        if self.classes[at] is Char.POINT:
            self.write("0", at, at)
            end = at
        else:
            end = self.whole_part(at, listing or glued or index)
        repeats = False
        if self.classes[end] is Char.POINT:
            decimal = end + 1
            while self.classes[decimal] is Char.DIGIT:
                decimal += 1
            repeating = None if glued or index else self.repeating_part(decimal)
            if repeating is not None:
                repeats = True
                self.write(".", end, end + 1)
                self.write_digits(end + 1, decimal)
                end = self.write_repeating(decimal, *repeating)
            elif decimal > end + 1:
                end = self.decimal_part(end)
        if glued:
            # The digits of x1 belong to the letter before them.
            self.after(last)
            self.function = function
            return end
        self.note(Kind.NUMBER)
        self.after(Kind.LETTER if index else Kind.NUMBER)
        self.sealed = index or repeats
        if not index:
            self.unit_at = len(self.out)
            self.unit_words = 0
        return end

    def repeating_part(self, at: int) -> tuple[int, int, int] | None:
        """Find ``\\overline{36}`` at ``at``: its digits [first, stop) and the index past it."""
        for name in REPEATING:
            first = at + 1 + len(name)
            if self.chars[at:first] != "\\" + name:
                continue
            first = self.skip_spaces(first)
            if self.classes[first] is Char.DIGIT:
                return first, first + 1, first + 1
            if self.classes[first] is not Char.BRACE_OPEN:
                return None
            first = stop = self.skip_spaces(first + 1)
            while self.classes[stop] is Char.DIGIT:
                stop += 1
            end = self.skip_spaces(stop)
            if stop == first or self.classes[end] is not Char.BRACE_CLOSE:
                return None
            return first, stop, end + 1
        return None

    def write_repeating(self, at: int, first: int, stop: int, end: int) -> int:
        """Write the digits [first, stop) in brackets, which stand for the characters [at, end)."""
        self.write("(", at, first)
        self.write_digits(first, stop)
        self.write(")", stop, end)
        return end

    def whole_part(self, at: int, plain: bool) -> int:
        """Write the digits before the point, without the separators of thousands."""
        end = at
        while self.classes[end] is Char.DIGIT:
            end += 1
        self.write_digits(at, end)
        if plain or end - at > 3:
            return end
        while True:
            start = self.thousands_separator(end)
            if not start or any(
                self.classes[start + offset] is not Char.DIGIT for offset in range(3)
            ):
                return end
            if self.classes[start + 3] is Char.DIGIT or self.list_goes_on(start + 3):
                return end
            end = start + 3
            self.write_digits(start, end)

    def list_goes_on(self, at: int) -> bool:
        """Tell whether a comma and a number that is no group of three digits stand at ``at``."""
        if self.chars[at : at + 1] != "," or self.classes[at + 1] is not Char.DIGIT:
            return False
        end = at + 1
        while self.classes[end] is Char.DIGIT and end - at <= 4:
            end += 1
        return end - at != 4

    def thousands_separator(self, at: int) -> int:
        """Return the index past ``,`` ``{,}`` ``,\\!`` or ``\\,`` at ``at``, else 0."""
        for mark in (",\\!", ",", "{,}", "\\,"):
            if self.chars[at : at + len(mark)] == mark:
                return at + len(mark)
        return 0

    def decimal_part(self, at: int) -> int:
        """Write the point at ``at`` and the digits after it, without trailing zeros."""
        end = at + 1
        while self.classes[end] is Char.DIGIT:
            end += 1
        stop = end
        if not (self.classes[end] is Char.POINT and self.classes[end + 1] is Char.DIGIT):
            while self.chars[stop - 1] == "0":
                stop -= 1
        if stop > at + 1:
            self.write(".", at, at + 1)
            self.write_digits(at + 1, stop)
        self.ends[-1] = end
        return end

    def write_digits(self, at: int, end: int) -> None:
        for index in range(at, end):
            self.write(self.chars[index], index, index + 1)

    def vulgar_fraction(self, char: str, at: int, end: int) -> int:
        """``½`` (rule 10); tight after a number it makes a mixed number."""
        if self.gap is Gap.NONE and self.product is None and self.last is Kind.NUMBER:
            self.separate(Kind.NUMBER, at)
        else:
            self.junction(Kind.NUMBER, at, end)
        self.write(FRACTIONS[char], at, end)
        self.note(Kind.NUMBER, Content.QUOTIENT)
        self.after(Kind.NUMBER)
        self.sealed = True
        self.unit_at = len(self.out)
        self.unit_words = 0
        return end

    def superscript(self, at: int, end: int) -> int:
        """``²`` and its kin (rule 12)."""
        self.write_product()
        self.write("^", at, at)
        self.note(Kind.OPERATOR)
        self.last = Kind.CARET
        stop = at
        while self.classes[stop] is Char.SUPERSCRIPT:
            self.write(SUPERSCRIPTS[self.chars[stop]], stop, stop + 1)
            stop += 1
        self.note(Kind.NUMBER)
        self.after(Kind.NUMBER)
        self.sealed = True
        return stop

    def subscript(self, at: int, end: int) -> int:
        """``₁`` and its kin (rule 12)."""
        self.write_product()
        if self.last is not Kind.LETTER or self.gap is not Gap.NONE:
            self.write("_", at, at)
        stop = at
        while self.classes[stop] is Char.SUBSCRIPT:
            self.write(SUBSCRIPTS[self.chars[stop]], stop, stop + 1)
            stop += 1
        self.after(Kind.LETTER)
        self.sealed = True
        return stop

    # --- letters -----------------------------------------------------------------------------

    def operand(self, kind: Kind, text: str, at: int, end: int) -> int:
        """Write an operand of one symbol."""
        index = self.last is Kind.UNDERSCORE
        self.junction(kind, at, end)
        self.write(text, at, end)
        self.note(kind)
        self.after(Kind.LETTER if index else kind)
        self.sealed = index
        return end

    def letters(self, at: int) -> int:
        """A run of letters: a single letter or a word (rules 1, 3, 5, 15 and 16)."""
        end = at + 1
        while self.classes[end] is Char.LETTER:
            end += 1
        if end - at == 1 and self.apostrophe_goes_on(end):
            end += 1
            while self.classes[end] is Char.LETTER:
                end += 1
        if end - at == 1:
            return self.single_letter(self.chars[at], at, end)
        return self.word(self.chars[at:end], at, end)

    def apostrophe_goes_on(self, at: int) -> bool:
        """Tell whether the letter before ``at`` begins a word like s'mores or o'clock."""
        return (
            self.classes[at] is Char.PRIME
            and self.classes[at + 1] is Char.LETTER
            and self.classes[at + 2] is Char.LETTER
        )

    def single_letter(self, text: str, at: int, end: int) -> int:
        """A letter on its own: a variable, an article or a product sign (rule 5)."""
        if text in "xX" and self.letter_multiplies(end):
            return self.times(at, end)
        if self.last is Kind.NUMBER and self.product is None:
            if self.degree and text in DEGREE_LETTERS and self.names_degrees(end):
                return end
            letter = text in UNIT_LETTERS and self.gap is not Gap.BREAK
            if letter and (self.unit_apart() or self.is_unit(end)):
                self.widen(Gap.SPACE)
                return self.plain_word(text.lower(), Word.PLAIN, at, end)
            if letter:
                self.letter_at = len(self.out)
        before, index = self.last, self.last is Kind.UNDERSCORE
        # Only a plain space makes prose of a letter: in "So $a b$" both are variables.
        wordy = self.gap is Gap.SPACE and (before is Kind.WORD or self.wordy)
        separated = self.junction(Kind.LETTER, at, end)
        if before is Kind.LETTER and not separated and text.isascii() and self.fold_last_letter():
            text = text.lower()
        self.write(text, at, end)
        self.note(Kind.LETTER)
        self.after(Kind.LETTER)
        self.sealed = index
        self.wordy = separated and wordy
        return end

    def names_degrees(self, end: int) -> bool:
        """Tell whether the letter behind a degree sign is its scale: 30 °C."""
        if self.gap is Gap.BREAK or self.classes[end] in _NAMES_GO_ON:
            return False
        spaced = self.gap in (Gap.THIN, Gap.SPACE)
        if spaced and self.classes[self.skip_spaces(end)] is Char.EQUALS:
            at = self.number_start()  # 20° C + 5° C = 25° C, but A = 30° C = 40°
            return at > self.base and self.out[at - 1] in b"+-*/"
        return True

    def is_unit(self, end: int) -> bool:
        """Tell whether the letter behind a number is a unit, no variable (rule 3).

        It is one behind the right operand where the left one lost its unit, and behind a relation
        whose left side has a unit in each of its terms.
        """
        if self.classes[end] in _NAMES_GO_ON or not self.unit_ends(end):
            return False
        at = self.number_start()
        if at <= self.base or self.out[at - 1] not in b"+-*/=":
            return False
        dropped = self.dropped_at == at - 1
        if self.out[at - 1] == ord("="):
            return self.drop_unit_letters(at - 1) or dropped
        return dropped

    def reach_unit(self) -> None:
        """Take the letters out of a relation's left side where its right side has a known unit.

        That is 2h * 60 = 120 minutes; 2h = 120 minutes stays as it is.
        """
        if self.letter_at < self.base or len(self.out) - self.letter_at > 2 * MAX_REWRITE_BYTES:
            return
        at = self.number_start()
        if self.gap is not Gap.BREAK and at > self.base and self.out[at - 1] == ord("="):
            side = self.out[max(self.base, at - 1 - MAX_REWRITE_BYTES) : at - 1]
            side = side[side.rfind(b"=") + 1 :]
            if any(byte in b"+-*/" for byte in side):
                self.drop_unit_letters(at - 1)

    def unit_ends(self, end: int) -> bool:
        """Tell whether what follows leaves a letter behind a number a unit.

        A letter does not (3 m n), nor does a sum with a number that has no unit (3h = 2h + 10).
        """
        at = self.skip_spaces(end)
        if self.classes[at] is Char.LETTER:
            return self.classes[at + 1] is Char.LETTER or self.chars[at] in "xX"
        if self.classes[at] in (Char.PLUS, Char.MINUS):
            at = start = self.skip_spaces(at + 1)
            while self.classes[at] in (Char.DIGIT, Char.POINT, Char.COMMA):
                at += 1
                if at - start > MAX_UNIT_DIGITS:
                    return False
            return at > start and self.classes[self.skip_spaces(at)] in (
                Char.LETTER,
                Char.BACKSLASH,
            )
        return True

    def unit_apart(self) -> bool:
        """Tell whether a letter is the first one in the braces of \\text behind a number."""
        frame = self.frames[-1] if self.frames else None
        return frame is not None and frame.group is Group.TEXT and frame.position == len(self.out)

    def drop_unit_letters(self, stop: int) -> bool:
        """Take the units of one letter out of the side of a relation that ends at ``stop``.

        Returns:
            Whether each of its terms had a unit; otherwise nothing is taken out.
        """
        out = self.out
        start = stop
        while start > self.base and out[start - 1] in _SIDE:
            start -= 1
            if stop - start > MAX_REWRITE_BYTES:
                return False
            if out[start] in b" \n" and out[start + 1] not in _UNIT_BYTES:
                start += 1
                break
        if start > self.base and out[start - 1] not in b"=<> \n:,;.(":
            return False
        if start <= self.factor_at < stop:
            return False  # 20 * h = 10h
        removed: list[int] = []
        unit = False
        at = start
        while at < stop:
            if out[at] in b"+-" and at > start:
                if not unit and self.dropped_at != at:
                    return False
                unit = False
            elif self.dropped_at == at:
                unit = True
            elif out[at] in _UNIT_BYTES or out[at] in b" \n":
                if at == start or out[at - 1] not in b"0123456789":
                    return False
                if out[at] in b" \n":
                    removed.append(at)
                    at += 1
                if at >= stop or out[at] not in _UNIT_BYTES:
                    return False
                while True:
                    removed.append(at)
                    at += 1
                    if at + 1 < stop and out[at] == ord("^") and 48 <= out[at + 1] <= 57:
                        removed += (at, at + 1)
                        at += 2
                    if at + 1 < stop and out[at] == ord("/") and out[at + 1] in _UNIT_BYTES:
                        removed.append(at)
                        at += 1
                        continue
                    break
                if at < stop and out[at] not in b"+-*/)":
                    return False
                unit = True
                continue
            at += 1
        if not unit and self.dropped_at != stop:
            return False
        if removed:
            if any(frame.position > removed[0] for frame in self.frames):
                return False
            for at in reversed(removed):
                del self.out[at], self.starts[at], self.ends[at]
            self.dropped_at = -1
            self.past_unit_end = -1
            self.closed = None
            self.unit_at = len(self.out)
        return True

    def fold_last_letter(self) -> bool:
        """Lower-case the output's last letter: letters that come together make a word (rule 15).

        Returns:
            Whether the output ends with an ASCII letter.
        """
        previous = self.out[-1:]
        if not previous.isalpha():
            return False
        self.out[-1:] = previous.lower()
        return True

    def letter_multiplies(self, end: int) -> bool:
        """Tell whether an ``x`` that ends at ``end`` is a product sign (rule 5)."""
        if self.product is not None or self.gap is Gap.BREAK:
            return False
        number = self.last is Kind.NUMBER or self.unit_words > 0
        if not number and not (self.last is Kind.CLOSE and self.gap >= Gap.THIN):
            return False
        spaced = self.classes[end] is Char.SPACE
        if self.gap >= Gap.THIN and self.classes[end] is Char.DIGIT:
            return False  # 2 x1 is a variable with its index
        at = self.skip_marks(end)
        if self.starts_number(at):
            return True
        if number and spaced and self.gap >= Gap.THIN and self.classes[at] is Char.OPEN:
            return self.starts_number(self.skip_marks(at + 1))
        return False

    def word(self, text: str, at: int, end: int) -> int:
        """A word: a sign in disguise, a symbol's name, a unit or plain prose."""
        lower = fold_case(text)
        meaning, payload = self.meaning(lower)
        match meaning:
            case Word.EQUALS:
                return self.relation("=", at, end)
            case Word.TO if self.ends_with("is equal"):
                return self.spelled_out("is equal", "=", end)
            case Word.BY if self.ends_with("divided") and self.number_follows(end):
                return self.spelled_out("divided", "/", end)
            case Word.BY if self.ends_with("multiplied") and self.number_follows(end):
                return self.spelled_out("multiplied", "*", end)
            case Word.PLUS | Word.MINUS if self.number_follows(end):
                return self.operator(payload, at, end, Content.SUM)
            case Word.TIMES if self.number_follows(end) and (
                self.last in FACTOR_ENDS or self.unit_words > 0
            ):
                return self.times(at, end)
            case Word.PERCENT:
                return end
            case Word.CURRENCY if self.ends_amount():
                return end
            case Word.SYMBOL:
                return self.operand(Kind.LETTER, payload, at, end)
            case Word.SQRT if self.root_follows(end):
                return self.root(payload, at, end)
            case Word.MOD:
                self.widen(Gap.SPACE)
            case Word.GLUED_UNIT:
                if self.last is Kind.NUMBER and self.product is None:
                    self.widen(Gap.GLUE)
                    self.reach_unit()
            case Word.MINUTES:
                number = self.last is Kind.NUMBER and self.product is None
                if number and self.classes[end] not in (Char.OPEN, Char.UNDERSCORE):
                    meaning = Word.GLUED_UNIT
                    self.widen(Gap.GLUE)
                    self.reach_unit()
                else:
                    meaning = Word.FUNCTION
        if is_segment(text) and self.can_be_segment(meaning):
            return self.plain_word(text, Word.PLAIN, at, end)
        return self.plain_word(lower, meaning, at, end)

    def can_be_segment(self, meaning: Word) -> bool:
        """Tell whether two capitals with a meaning name a segment: CD is a unit behind a number."""
        unit = self.last is Kind.NUMBER and self.product is None
        return meaning is Word.PLAIN or (meaning is Word.GLUED_UNIT and not unit)

    def plain_word(self, lower: str, meaning: Word, at: int, end: int) -> int:
        """Write a word as it is, and tell whether it can be a unit (rule 3)."""
        if len(lower) == 2 and meaning is Word.PLAIN and self.is_factor_pair(lower, end):
            self.gap = Gap.NONE
        index = self.last is Kind.UNDERSCORE
        units, unit_at, unit_end = self.unit_words, self.unit_at, len(self.out)
        can_be_unit = (
            units >= 0
            and meaning in (Word.PLAIN, Word.GLUED_UNIT, Word.PERCENT, Word.CURRENCY)
            and self.gap is not Gap.BREAK
            and self.gap is not Gap.NONE
            and self.product is None
        )
        # A short word next to a product sign is a product itself: 4*ac is 4ac, but AB*CD is not.
        factor = self.product is not None and len(lower) < MIN_NAME and meaning is Word.PLAIN
        if is_segment(lower) and self.last in (Kind.LETTER, Kind.WORD):
            factor = False
        if factor and self.last is Kind.LETTER:
            self.fold_last_letter()
        self.junction(Kind.LETTER if factor else Kind.WORD, at, end)
        self.write(lower, at, end)
        self.note(Kind.WORD, Content.WORDS)
        self.after(Kind.LETTER if index else Kind.WORD)
        self.sealed = index
        self.function = meaning in (Word.FUNCTION, Word.APPLIED, Word.MOD)
        self.applied = meaning is Word.APPLIED
        if meaning is Word.MOD:
            self.gap = Gap.SPACE
        if can_be_unit and units < MAX_UNIT_WORDS:
            self.unit_words = units + 1
        elif units >= 0:
            self.past_unit_at, self.past_unit_end = unit_at, unit_end
        return end

    def ends_amount(self) -> bool:
        """Tell whether the output ends with a number, perhaps of thousands or millions."""
        if self.product is not None:
            return False
        if self.last is Kind.NUMBER:
            return True
        return self.unit_words == 1 and any(self.ends_with(word) for word in AMOUNTS)

    def is_factor_pair(self, letters: str, end: int) -> bool:
        """Tell whether two letters apart from a number are its factors: 4 ac, 2 xy = 6."""
        if self.last is not Kind.NUMBER or self.product is not None or not letters.isascii():
            return False
        if self.gap not in (Gap.THIN, Gap.SPACE):
            return False
        if is_segment(letters) or self.classes[self.skip_marks(end)] in _JOINS_FACTORS:
            return True
        at = self.number_start()
        return at > self.base and self.out[at - 1] in b"+-*/^("

    def root(self, text: str, at: int, end: int) -> int:
        """A prefix that binds to what follows."""
        self.junction(Kind.LETTER, at, end)
        self.write(text, at, end)
        self.note(Kind.ROOT)
        self.after(Kind.ROOT)
        return end

    def number_follows(self, end: int) -> bool:
        """Tell whether the next operand is a number."""
        return self.starts_number(self.skip_marks(end))

    def root_follows(self, end: int) -> bool:
        """Tell whether a radicand follows the word sqrt."""
        cls = self.classes[self.skip_spaces(end)]
        return cls in (Char.OPEN, Char.BRACE_OPEN, Char.DIGIT)

    def ends_with(self, words: str) -> bool:
        """Tell whether the output ends with ``words``, separated from what comes next."""
        data = words.encode()
        if self.last is not Kind.WORD or self.gap is Gap.NONE or not self.out.endswith(data):
            return False
        before = self.out[-len(data) - 1 : -len(data)]
        return not before or before in b" \n.,;:?!()[]|=<>$"

    def spelled_out(self, words: str, sign: str, end: int) -> int:
        """Replace ``words`` at the end of the output by a sign (rule 16)."""
        cut = len(self.out) - len(words)
        start = self.starts[cut]
        if cut > self.base and self.out[cut - 1] in b" \n":
            cut -= 1
        # Units in front of the words go as they do before the sign itself.
        if self.past_unit_end == cut:
            cut = self.past_unit_at
        self.truncate(cut)
        self.join_variable()
        tail = self.out[self.base :][-1:]
        self.after(Kind.NUMBER if tail.isdigit() else Kind.CLOSE if tail else Kind.START)
        if sign == "=":
            return self.relation("=", start, end)
        if sign == "/":
            return self.slash(start, end)
        return self.times(start, end)

    def join_variable(self) -> None:
        """Join ``2 x`` at the end of the output: what kept them apart was no word of prose."""
        tail = self.out[-3:]
        if len(tail) == 3 and tail[:1].isdigit() and tail[1:2] == b" " and tail[2:].isalpha():
            del self.out[-2], self.starts[-2], self.ends[-2]
