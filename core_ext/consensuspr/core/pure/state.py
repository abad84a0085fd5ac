"""What the normaliser remembers between characters: output, last token, open groups.

The rules live in :mod:`normal_form`, :mod:`operators`, :mod:`groups` and :mod:`latex`; this
module holds the state that they share and the two questions that all of them ask: does a
separator belong between the last token and the next, and is a pending product written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from consensuspr.core.pure.characters import char_class
from consensuspr.core.tables import (
    LOOKAHEAD,
    MAX_FACTOR,
    MAX_LABEL,
    MAX_UNIT_DIGITS,
    MAX_WORD,
    MIN_NAME,
    WORDS,
    Char,
    Word,
    classes_of,
)

# What a bracket that is a factor holds beside letters and commands, and what goes on behind it.
_IN_FACTOR: Final = classes_of("0. +-*×/^_α√{}½²₁")
_FACTOR_GOES_ON: Final = classes_of("(*×+-/^=")
_SIGN_WORDS: Final = (Word.EQUALS, Word.PLUS, Word.MINUS, Word.TIMES)


class Kind(IntEnum):
    """Kind of the last token in the output."""

    START = 0
    NUMBER = 1
    LETTER = 2  # an operand of one letter or symbol, with its index if it has one
    WORD = 3
    CLOSE = 4  # ) or ]
    OPEN = 5
    OPERATOR = 6
    RELATION = 7
    PUNCTUATION = 8
    SENTENCE = 9  # . ? ; !
    OTHER = 10
    ROOT = 11  # binds to the next operand
    CARET = 12
    UNDERSCORE = 13


class Gap(IntEnum):
    """What stood between the last token and the next character, weakest first."""

    NONE = 0
    GLUE = 1  # the end of a command's name: tight, but a word of its own
    THIN = 2  # a thin space of LaTeX
    SPACE = 3
    MARK = 4  # a delimiter that vanishes and still keeps operands apart
    SPACED_MARK = 5  # a delimiter and a space
    BREAK = 6  # a line break, a bullet, a table bar


class Content(IntFlag):
    """What a group holds besides single operands; decides whether its brackets can go."""

    NONE = 0
    SUM = 1
    PRODUCT = 2
    QUOTIENT = 4
    OTHER = 8
    WORDS = 16
    LEADING_MINUS = 32


class Group(IntEnum):
    """Kind of an open group."""

    PAREN = 0
    MOD_PAREN = 1  # the brackets of (mod 7), which vanish
    WRAP = 2  # braces that vanish
    TEXT = 3
    DISCARD = 4
    ENVIRONMENT = 5
    NUMERATOR = 6
    DENOMINATOR = 7
    BINOM_TOP = 8
    BINOM_BOTTOM = 9
    SUPERSCRIPT = 10
    SUBSCRIPT = 11
    ROOT = 12


# What binds the token behind it to the one before.
BINDING: Final = (Kind.CARET, Kind.UNDERSCORE, Kind.ROOT)
PAREN_GROUPS: Final = (Group.PAREN, Group.MOD_PAREN)
OPERAND_ENDS: Final = (Kind.NUMBER, Kind.LETTER, Kind.WORD, Kind.CLOSE)
FACTOR_ENDS: Final = (Kind.NUMBER, Kind.LETTER, Kind.CLOSE)


@dataclass(slots=True)
class Frame:
    """An open group: where it began, in which context, and its parent's content so far."""

    group: Group
    position: int  # of its opening byte in the output, or the output's length
    before: Kind  # the token before it
    separated: bool  # a separator was written before it
    product: bool  # a product sign stood before it and was not written
    applied: bool  # a function stands before it whose argument it is
    tokens: int  # of the parent
    factors: int
    first: Kind
    content: Content
    unit_at: int = 0  # units before it, for a bracket that holds only words
    unit_words: int = -1


@dataclass(slots=True)
class Closed:
    """The bracketed group that closed last, for a fraction bar that may follow."""

    position: int
    end: int
    before: Kind
    separated: bool
    tokens: int
    content: Content


def fold_case(text: str) -> str:
    """Lower-case the ASCII letters of ``text``, as the compiled core does it."""
    return text.lower() if text.isascii() else "".join(map(_fold_char, text))


def _fold_char(char: str) -> str:
    return char.lower() if char.isascii() else char


class State:
    """Output and memory of one pass over canonical characters."""

    def __init__(self, chars: str, offsets: Sequence[int]) -> None:
        self.chars = chars
        self.length = len(chars)
        self.offsets = offsets
        # The end of a text is the end of a line, so that a paragraph reads alone as it does in
        # a text; two of them, so that looking ahead needs no check.
        self.classes = [char_class(char) for char in chars] + [Char.NEWLINE] * 2
        self.out = bytearray()
        self.starts: list[int] = []  # per output byte: index of the first character behind it
        self.ends: list[int] = []  # per output byte: index past the last character behind it
        self.base = 0  # where the paragraph begins in the output ...
        self.origin = 0  # ... and in the characters
        self.last = Kind.START
        self.gap = Gap.BREAK
        self.sealed = False  # digits that follow do not extend the last token
        self.function = False  # the last word is a function's name
        self.applied = False  # ... whose argument may follow without brackets
        self.wordy = False  # the last letter is a word of prose, like "a"
        self.listing = False  # the last token is a comma tight after a number
        self.degree = False  # a degree sign stands behind the last token
        self.line_start = True
        self.product: tuple[int, int] | None = None  # a product sign not yet written
        # Units: where the last number ended, and how many unit words followed (-1: none can).
        self.unit_at = 0
        self.unit_words = -1
        # The units that the last word of prose put an end to, for "20 cups divided by 5".
        self.past_unit_at = 0
        self.past_unit_end = -1
        # Where a unit was last dropped in the output: its operator stands there.
        self.dropped_at = -1
        # Where a letter that may be a unit was last written behind a number.
        self.letter_at = -1
        # Where a factor was last written whose product sign was not: a letter there is no unit.
        self.factor_at = -1
        self.frames: list[Frame] = []
        self.braces = 0  # frames that a } closes
        self.overflow = 0  # groups opened while no frame was free
        self.closed: Closed | None = None
        self.root_index = False  # inside the [3] of \sqrt[3]{8}
        self.bar_open = False  # an absolute value is open
        self.table_row = False  # the line began with a table's bar
        self.emphasis = False  # an asterisk of this paragraph opened an emphasis
        # Content of the innermost group.
        self.tokens = 0
        self.factors = 0  # tokens that no power, root or factorial sign binds to another
        self.first = Kind.START
        self.content = Content.NONE

    # --- looking ahead ---------------------------------------------------------------------

    def skip_spaces(self, at: int) -> int:
        """Return the first index from ``at`` on that is not a space; line breaks stay."""
        classes = self.classes
        while classes[at] is Char.SPACE:
            at += 1
        return at

    def starts_number(self, at: int) -> bool:
        """Tell whether a number starts at ``at``."""
        cls = self.classes[at]
        return cls in (Char.DIGIT, Char.FRACTION) or (
            cls is Char.POINT and self.classes[at + 1] is Char.DIGIT
        )

    def skip_marks(self, at: int) -> int:
        """Skip spaces and at most ``LOOKAHEAD`` characters of currency and delimiters."""
        limit = LOOKAHEAD
        in_text = bool(self.frames) and self.frames[-1].group is Group.TEXT
        while limit > 0:
            at = self.skip_spaces(at)
            if self.chars[at : at + 1] == "$":
                at += 1
            elif in_text and self.chars[at : at + 1] == "}":
                at += 1
            elif self.chars[at : at + 1] == "\\" and self.chars[at + 1 : at + 2] in ("$", "("):
                at += 2
            else:
                break
            limit -= 1
        return self.skip_spaces(at)

    def bracket_multiplies(self, at: int) -> bool:
        """Tell whether the bracket at ``at``, a blank behind a number, is a factor.

        It is one behind a power and behind a number in brackets or a fraction: ``\\pi (3)^2 (8)``
        and ``\\frac12 (3)(4)``.  What may be a remark or a label is none.
        """
        if self.classes[at] is not Char.OPEN:
            return False
        number = self.number_start()
        power = number > self.base and self.out[number - 1] == ord("^")
        if not (power or self.sealed):
            return False
        end = self.factor_end(at + 1)
        if not end:
            return False
        if power and (end - at - 2 > MAX_LABEL or self.out[number - 2 : number - 1] == b")"):
            return True
        end = self.skip_spaces(end)
        return self.classes[end] in _FACTOR_GOES_ON or any(
            self.chars[end : end + len(name)] == name for name in ("\\cdot", "\\times")
        )

    def remark_follows(self, at: int, end: int) -> bool:
        """Tell whether the bracket [at, end), a blank behind an operand, begins with a word.

        A capital may be a function: ``P (win)``.
        """
        if self.classes[at] is not Char.OPEN or self.out[-1:].isupper():
            return False
        stop = end
        while self.classes[stop] is Char.LETTER:
            stop += 1
        if stop - end < 2 or stop - end > MAX_WORD:
            return stop - end > MAX_WORD
        meaning, _ = self.meaning(fold_case(self.chars[end:stop]))
        if stop - end == 2:
            return meaning is Word.STOP
        return meaning in (Word.PLAIN, Word.STOP)

    def factor_end(self, at: int) -> int:
        """Return the index past the bracket whose content, a factor, begins at ``at``; else 0."""
        for end in range(at, min(at + MAX_FACTOR, self.length)):
            cls = self.classes[end]
            if cls is Char.CLOSE:
                return end + 1
            if cls is Char.BACKSLASH:
                if self.classes[end + 1] is not Char.LETTER:
                    return 0
            elif cls is Char.LETTER:
                # Letters side by side are a word, unless they are a command's name.
                if self.classes[end + 1] is Char.LETTER and not self.names_command(at, end):
                    return 0
            elif cls not in _IN_FACTOR:
                return 0
        return 0

    def names_command(self, start: int, at: int) -> bool:
        """Tell whether the letter at ``at`` belongs to a command that begins behind ``start``."""
        while at > start and self.classes[at] is Char.LETTER:
            at -= 1
        return self.classes[at] is Char.BACKSLASH

    def number_start(self) -> int:
        """Return where the number at the end of the output begins; 0 if it is too long."""
        at = len(self.out)
        while at > self.base and self.out[at - 1] in b"0123456789.":
            at -= 1
            if len(self.out) - at > MAX_UNIT_DIGITS:
                return 0
        return at

    def word_follows(self, at: int) -> bool:
        """Tell whether a space and then a word of two letters or more stands at ``at``.

        Words that are signs do not count.
        """
        if self.classes[at] is not Char.SPACE:
            return False
        end = at = self.skip_spaces(at)
        while self.classes[end] is Char.LETTER and end - at <= MAX_WORD:
            end += 1
        if end - at < 2:
            return False
        return self.meaning(fold_case(self.chars[at:end]))[0] not in _SIGN_WORDS

    # --- writing ---------------------------------------------------------------------------

    def write(self, text: str, start: int, end: int) -> None:
        """Append ``text``, which stands for the characters [start, end)."""
        data = text.encode()
        self.out += data
        self.starts += [start] * len(data)
        self.ends += [end] * len(data)

    def truncate(self, length: int) -> None:
        """Cut the output back to ``length`` bytes."""
        del self.out[length:], self.starts[length:], self.ends[length:]

    def remove_open(self, position: int) -> None:
        """Take the bracket at ``position`` out; its source now belongs to what it held."""
        start = self.starts[position]
        del self.out[position], self.starts[position], self.ends[position]
        if position < len(self.out):
            self.starts[position] = start

    def at_limit(self, at: int) -> bool:
        """Tell whether one more byte would take the paragraph's output to its limit."""
        read = self.offsets[at] - self.offsets[self.origin]
        return 2 * (len(self.out) - self.base + 1) > 3 * read + 2

    def separate(self, kind: Kind, at: int) -> bool:
        """Write the separator before a token of ``kind`` unless the output is at its limit.

        Prose is separated by spaces however it was broken into lines; two operands that a
        line break or a delimiter kept apart are separated by a line break, so that ``2`` and
        ``1/2`` on two lines are no mixed number.  A bracket goes on a phrase: ``$3$ (odd)``.

        A paragraph's output never exceeds 1.5 times its input and 1 byte; only optional
        separators can get there, in text made for it, and are left out then.
        """
        if self.at_limit(at):
            return False
        prose = self.last in (Kind.WORD, Kind.SENTENCE) or kind is Kind.WORD
        joined = self.gap < (Gap.BREAK if kind is Kind.OPEN else Gap.MARK)
        self.write(" " if prose or joined else "\n", at, at)
        return True

    def note(self, kind: Kind, content: Content = Content.NONE) -> None:
        """Count a token of the innermost group."""
        if content & Content.SUM and self.tokens == 0 and self.out[-1:] == b"-":
            self.content |= Content.LEADING_MINUS
            return
        if self.tokens == 0:
            self.first = kind
        self.tokens += 1
        bound = self.last in BINDING or kind in (Kind.OPERATOR, Kind.SENTENCE)
        self.factors += not bound
        self.content |= content

    def after(self, kind: Kind) -> None:
        """Settle the state after a token of ``kind`` was written."""
        self.last = kind
        self.gap = Gap.NONE
        self.sealed = False
        self.function = False
        self.applied = False
        self.wordy = False
        self.listing = False
        self.degree = False
        self.line_start = False
        self.unit_words = -1

    def widen(self, gap: Gap) -> None:
        """Remember the strongest gap since the last token."""
        if gap is Gap.MARK and self.gap in (Gap.THIN, Gap.SPACE):
            self.gap = Gap.SPACED_MARK
        elif gap in (Gap.THIN, Gap.SPACE) and self.gap is Gap.MARK:
            self.gap = Gap.SPACED_MARK
        elif gap > self.gap:
            self.gap = gap

    # --- the two questions -------------------------------------------------------------------

    def needs_separator(self, kind: Kind, at: int, end: int) -> bool:
        """Tell whether a separator belongs between the last token and an operand (rule 1)."""
        last, gap = self.last, self.gap
        if gap is Gap.NONE:
            return kind is Kind.NUMBER and self.sealed and last in (Kind.NUMBER, Kind.LETTER)
        if last is Kind.SENTENCE:
            return gap > Gap.GLUE
        if last is Kind.WORD and self.function:
            if kind is Kind.OPEN:
                return False
            if self.applied and kind is not Kind.WORD and gap < Gap.MARK:
                return False
        if gap >= Gap.MARK:
            return last in OPERAND_ENDS
        if last is Kind.WORD:
            return kind is not Kind.OPEN or gap is Gap.SPACE
        if last is Kind.NUMBER:
            if kind is Kind.LETTER:
                return self.classes[at] is Char.LETTER and self.word_follows(end)
            if kind is Kind.OPEN:
                return gap is Gap.SPACE and not self.bracket_multiplies(at)
            return True
        if kind is Kind.OPEN and gap is Gap.SPACE and last in (Kind.LETTER, Kind.CLOSE):
            return self.remark_follows(at, end)
        if last is Kind.LETTER:
            prose = self.wordy and gap is Gap.SPACE
            return kind in (Kind.WORD, Kind.NUMBER) or (kind is Kind.LETTER and prose)
        return False

    def junction(self, kind: Kind, at: int, end: int) -> bool:
        """Join the operand [at, end) to the last token; tell whether a separator was written.

        A pending product sign is written where leaving it out would change the meaning
        (rule 9): ``2*3`` and ``x*2`` keep it, ``2*x`` is ``2x``.
        """
        if self.product is not None:
            factors = (
                self.last in FACTOR_ENDS
                or self.ends_factorial()
                or (self.last is Kind.WORD and kind is Kind.LETTER and self.ends_short())
            )
            if kind in (Kind.NUMBER, Kind.WORD) or not factors:
                self.write_product()
            else:
                self.factor_at = len(self.out)
            self.product = None
            self.gap = Gap.NONE
            return False
        if kind is not Kind.WORD and self.gap <= Gap.THIN and self.ends_factorial():
            if kind is Kind.NUMBER and not self.at_limit(at):
                self.product = (at, at)
                self.write_product()
            return False
        if self.needs_separator(kind, at, end):
            return self.separate(kind, at)
        return False

    def ends_factorial(self) -> bool:
        """Tell whether the last token is the sign of a factorial, not the end of a sentence."""
        if self.last is not Kind.SENTENCE or len(self.out) < self.base + 2:
            return False
        tail = self.out[max(self.base, len(self.out) - 3) :]
        if tail[-1:] != b"!":
            return False
        letter = tail[-2:-1].isalpha() and not (len(tail) > 2 and tail[:1].isalpha())
        return letter or tail[-2:-1].isdigit() or tail[-2:-1] == b")"

    def ends_short(self) -> bool:
        """Tell whether the word at the end of the output is too short for a name: ab*c is abc.

        A segment is a name: AB*c.
        """
        tail = self.out[-MIN_NAME:]
        return not tail[-1:].isupper() and (not tail.isalpha() or len(tail) < MIN_NAME)

    def write_product(self) -> None:
        """Write the pending product sign."""
        if self.product is not None:
            self.write("*", *self.product)
            self.note(Kind.OPERATOR, Content.PRODUCT)
            self.product = None
            self.after(Kind.OPERATOR)

    def drop_units(self) -> None:
        """Take back the unit words after the last number: an operator follows (rule 3)."""
        if self.unit_words > 0:
            self.truncate(self.unit_at)
            self.dropped_at = self.unit_at
            self.last = Kind.NUMBER
            self.gap = Gap.NONE
            self.sealed = False
            self.unit_words = 0

    def meaning(self, word: str) -> tuple[Word, str]:
        """Return what a lower-cased word means."""
        return WORDS.get(word, (Word.PLAIN, ""))
