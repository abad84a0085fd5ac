"""The normal form of a text: one pass of rules over canonical characters.

``docs/reference/matching.md`` states the rules with their numbers, which the comments here cite.
The compiled core implements the same rules over bytes; a property test demands that both
give the same output and the same offsets on arbitrary input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from consensuspr.core.patterns import encode
from consensuspr.core.pure.characters import canonical_characters, char_class
from consensuspr.core.pure.operands import Operands
from consensuspr.core.pure.state import Content, Gap, Group, Kind
from consensuspr.core.tables import (
    COMMANDS,
    DISPLAYS,
    LOOKAHEAD,
    NEGATED,
    PARAGRAPH,
    Char,
    Command,
)


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A normal form and the way back from it.

    Attributes:
        data: the normal form, UTF-8.
        starts: for each byte of ``data`` the offset of the first input byte behind it.
        ends: for each byte of ``data`` the offset past the last input byte behind it.
    """

    data: bytes
    starts: Sequence[int]
    ends: Sequence[int]


def normal_form(text: str | bytes) -> NormalForm:
    """Return the normal form of ``text`` with its offsets into the UTF-8 of ``text``."""
    chars, offsets = canonical_characters(encode(text))
    reader = _Reader(chars, offsets)
    reader.run()
    return NormalForm(
        bytes(reader.out),
        [offsets[index] for index in reader.starts],
        [offsets[index] for index in reader.ends],
    )


def normalize(text: str | bytes) -> str:
    """Return the normal form of ``text`` as a str; see ``docs/reference/matching.md``."""
    return normal_form(text).data.decode()


class _Reader(Operands):
    """One left-to-right pass; the handlers return the index to go on at."""

    def run(self) -> None:
        at = 0
        while at < self.length:
            at = self.step(at)
        self.write_product()
        if 0 < self.base == len(self.out):
            self.truncate(self.base - len(PARAGRAPH))

    def step(self, at: int) -> int:
        match self.classes[at]:
            case Char.LETTER:
                return self.letters(at)
            case Char.SPACE:
                self.widen(Gap.SPACE)
                return self.skip_spaces(at)
            case Char.DIGIT:
                return self.list_number(at) or self.number(at)
            case Char.POINT if self.leads_number(at):
                return self.number(at)
            case Char.BACKSLASH:
                return self.command(at)
            case Char.NEWLINE:
                return self.newlines(at)
        return self.dispatch(self.chars[at], at, at + 1)

    def dispatch(self, char: str, at: int, end: int) -> int:
        """Handle ``char``, which stands for the characters [at, end)."""
        handle = _HANDLERS.get(char_class(char))
        return self.other(char, at, end) if handle is None else handle(self, char, at, end)

    def vanish(self, char: str, end: int) -> int:
        """Let a sign vanish that keeps operands apart."""
        self.delimit(end)
        if char == "$":
            self.line_start = False
        return end

    def delimit(self, end: int) -> None:
        """Note a delimiter: a word that begins another formula is not a unit: $x=2$ $ab=3$."""
        if (
            self.gap is Gap.SPACED_MARK
            and self.unit_words == 0
            and self.classes[end] is Char.LETTER
        ):
            self.unit_words = -1
        self.widen(Gap.MARK)

    def drop(self, char: str, end: int) -> int:
        """Let a sign vanish without a trace."""
        self.degree = self.degree or char == "°"
        return end

    # --- lines -------------------------------------------------------------------------------

    def newlines(self, at: int) -> int:
        """Line breaks; a blank line ends all that is pending."""
        count = line = 0
        while at < self.length and self.classes[at] in (Char.NEWLINE, Char.SPACE):
            # A CR and the LF behind it are one line break.
            pair = self.chars[at : at + 2] == "\r\n"
            if self.classes[at] is Char.NEWLINE and not pair:
                count += 1
                line = at + 1
            at += 1
        if count == 2 and len(self.out) > self.base and self.display_follows(line, at):
            self.emphasis = False
        elif count > 1 or len(self.out) == self.base:
            self.begin_paragraph(line)
        self.widen(Gap.BREAK)
        self.line_start = True
        self.bar_open = self.table_row = False
        return at

    def display_follows(self, line: int, at: int) -> bool:
        """Tell whether display mathematics begins at ``at``, on the line that begins at ``line``.

        The blank line before it is a line break: the sentence goes on.
        """
        return at - line <= LOOKAHEAD and self.chars.startswith(DISPLAYS, at)

    def list_number(self, at: int) -> int:
        """Return the index past a list mark ``1. `` or ``1) `` at a line's start, else 0."""
        if not self.line_start:
            return 0
        end = at + 1
        if self.classes[end] is Char.DIGIT:
            end += 1
        if self.classes[end] not in (Char.POINT, Char.CLOSE):
            return 0
        if self.classes[end + 1] is not Char.SPACE:
            return 0
        stop = self.skip_spaces(end + 1)
        if stop >= self.length or self.classes[stop] is Char.NEWLINE:
            return 0
        return self.bullet(stop)

    def dot(self, char: str, at: int, end: int) -> int:
        """A bullet; a round one between two numbers of one line is a product sign."""
        number = self.last is Kind.NUMBER and self.gap is not Gap.BREAK
        if char == "•" and number and self.product is None and self.number_follows(end):
            return self.times(at, end)
        return self.bullet(end)

    # --- square brackets -----------------------------------------------------------------------

    def bracket_open(self, at: int, end: int) -> int:
        """``[``: an interval, a list or the index of a root."""
        if self.last is Kind.ROOT:
            self.root_index = True
        else:
            self.junction(Kind.OPEN, at, end)
        self.write("[", at, end)
        self.note(Kind.OPEN, Content.OTHER)
        self.after(Kind.OPEN)
        return end

    def bracket_close(self, at: int, end: int) -> int:
        """``]``."""
        self.close_raw("]", at, end)
        if self.root_index:
            self.root_index = False
            self.last = Kind.ROOT
        return end

    # --- LaTeX commands (rules 8, 10, 12, 13 and 18) -----------------------------------------

    def command(self, at: int) -> int:
        """Handle the command at ``at`` and return the index past it."""
        end = at + 1
        while self.classes[end] is Char.LETTER and self.chars[end].isascii():
            end += 1
        if end == at + 1:
            if self.classes[end] is Char.NEWLINE:
                self.widen(Gap.BREAK)
                self.line_start = False
                return end
            name = self.chars[end]
            if name not in COMMANDS:
                return self.other("\\", at, end)
            end += 1
        else:
            name = self.chars[at + 1 : end]
        action, payload = COMMANDS.get(name, (Command.WORD, ""))
        match action:
            case Command.WORD:
                return self.named_word(name, at, end)
            case Command.EMIT:
                if payload == "|":
                    return self.other("|", at, end)
                if name == "triangle" or char_class(payload) is Char.ROOT:
                    # Binds to what follows, at whatever distance.
                    self.dispatch(payload, at, end)
                    return self.skip_spaces(end)
                return self.dispatch(payload, at, end)
            case Command.SPACE:
                self.widen(Gap.SPACE)
            case Command.BAR:
                return self.absolute(at, end)
            case Command.THIN:
                self.widen(Gap.THIN)
            case Command.NOTHING:
                pass
            case Command.DELIMITER:
                return self.delimiter(end)
            case Command.MARK:
                self.delimit(end)
                self.line_start = False
            case Command.BREAK:
                self.widen(Gap.BREAK)
                self.line_start = False
                return self.optional_length(end)
            case (
                Command.WRAP
                | Command.TEXT
                | Command.UPRIGHT
                | Command.DISCARD
                | Command.ENVIRONMENT
            ):
                return self.wrapper(action, end)
            case Command.FRAC:
                return self.open_fraction(at, end, Group.NUMERATOR)
            case Command.BINOM:
                return self.open_fraction(at, end, Group.BINOM_TOP)
            case Command.SQRT:
                for index, sign in (("[3]", "∛"), ("[4]", "∜")):
                    if self.chars[end : end + 3] == index:
                        return self.root(sign, at, end + 3)
                return self.root("√", at, end)
            case Command.NOT:
                return self.struck_out(at, end) or self.named_word(name, at, end)
            case Command.MOD:
                return self.modulo(at, end)
        return end

    def struck_out(self, at: int, end: int) -> int:
        """``\\not`` and the relation that it strikes out (rule 18); 0 where none follows."""
        start = self.skip_spaces(end)
        char, stop = self.chars[start : start + 1], start + 1
        if char == "\\":
            while self.classes[stop] is Char.LETTER and self.chars[stop].isascii():
                stop += 1
            action, char = COMMANDS.get(self.chars[start + 1 : stop], (Command.WORD, ""))
            if action is not Command.EMIT:
                return 0
        negated = NEGATED.get(char)
        return self.relation(negated, at, stop) if negated else 0

    def named_word(self, name: str, at: int, end: int) -> int:
        """Let a command without a meaning of its own be a word."""
        if self.gap is Gap.NONE:
            self.gap = Gap.GLUE
        if len(name) == 1:
            self.single_letter(name, at, end)
        else:
            self.word(name, at, end)
        if self.gap is Gap.NONE:
            self.gap = Gap.GLUE
        return end

    def delimiter(self, end: int) -> int:
        """``\\left`` and its kin vanish with the point of an absent delimiter."""
        if self.chars[end : end + 1] == "|":
            return self.absolute(end, end + 1)
        if self.classes[end] is Char.POINT and self.classes[end + 1] is not Char.DIGIT:
            return end + 1
        return end

    def optional_length(self, end: int) -> int:
        """Skip the ``[4pt]`` of a line break."""
        if self.classes[end] is Char.BRACKET_OPEN:
            for stop in range(end + 1, end + LOOKAHEAD):
                if self.classes[stop] is Char.BRACKET_CLOSE:
                    if self.classes[end + 1] in (Char.DIGIT, Char.POINT, Char.MINUS):
                        return stop + 1
                    break
                if self.classes[stop] is Char.NEWLINE:
                    break
        return end

    def wrapper(self, action: Command, end: int) -> int:
        """Open the braces of a command whose braces vanish."""
        stop = end + 1 if self.chars[end : end + 1] == "*" else end
        stop = self.skip_spaces(stop)
        if action is Command.UPRIGHT:
            name = self.classes[stop : stop + 3] == [Char.BRACE_OPEN, Char.LETTER, Char.BRACE_CLOSE]
            if self.last is Kind.NUMBER:
                name = name and self.argument_follows(stop + 3)
            name = name and self.last is not Kind.WORD
            action = Command.WRAP if name else Command.TEXT
        if action is Command.TEXT:
            self.widen(Gap.MARK)
        elif action is Command.ENVIRONMENT:
            self.widen(Gap.BREAK)
        if self.classes[stop] is not Char.BRACE_OPEN:
            return end
        if not self.full():
            self.push(Group[action.name], self.last)
        return stop + 1

    def modulo(self, at: int, end: int) -> int:
        """``\\pmod{7}``, ``\\mod 7`` and ``mod 7`` are one word and its operand (rule 18)."""
        self.widen(Gap.SPACE)
        self.word("mod", at, end)
        self.gap = Gap.SPACE
        return end


_HANDLERS: Final[dict[Char, Callable[[_Reader, str, int, int], int]]] = {
    Char.COMMA: lambda self, _, at, end: self.comma(at, end),
    Char.POINT: lambda self, _, at, end: self.point(at, end),
    Char.EQUALS: lambda self, _, at, end: self.equals(at, end),
    Char.OPEN: lambda self, _, at, end: self.open_paren(at, end),
    Char.CLOSE: lambda self, _, at, end: self.close_paren(at, end),
    Char.BRACE_OPEN: lambda self, _, at, end: self.open_brace(at, end),
    Char.BRACE_CLOSE: lambda self, _, at, end: self.close_brace(at, end),
    Char.BRACKET_OPEN: lambda self, _, at, end: self.bracket_open(at, end),
    Char.BRACKET_CLOSE: lambda self, _, at, end: self.bracket_close(at, end),
    Char.STAR: lambda self, _, at, end: self.star(at, end),
    Char.TIMES: lambda self, _, at, end: self.times(at, end),
    Char.PLUS: lambda self, char, at, end: self.operator(char, at, end, Content.SUM),
    Char.PLUS_MINUS: lambda self, char, at, end: self.operator(char, at, end, Content.SUM),
    Char.MINUS: lambda self, _, at, end: self.minus(at, end),
    Char.SLASH: lambda self, _, at, end: self.slash(at, end),
    Char.CARET: lambda self, _, at, end: self.caret(at, end),
    Char.UNDERSCORE: lambda self, _, at, end: self.underscore(at, end),
    Char.SYMBOL: lambda self, char, at, end: self.operand(Kind.LETTER, char, at, end),
    Char.ROOT: lambda self, char, at, end: self.root(char, at, end),
    Char.RELATION: lambda self, char, at, end: self.relation(char, at, end),
    Char.LESS: lambda self, _, at, end: self.less(at, end),
    Char.GREATER: lambda self, _, at, end: self.greater(at, end),
    Char.SENTENCE_END: lambda self, char, at, end: self.punctuation(char, at, end, Kind.SENTENCE),
    Char.BANG: lambda self, _, at, end: self.bang(at, end),
    Char.COLON: lambda self, _, at, end: self.colon(at, end),
    Char.PRIME: lambda self, _, at, end: self.prime(at, end),
    Char.MARK: lambda self, char, _, end: self.vanish(char, end),
    Char.AMPERSAND: lambda self, char, _, end: self.vanish(char, end),
    Char.HASH: lambda self, char, _, end: self.vanish(char, end),
    Char.DROP: lambda self, char, _, end: self.drop(char, end),
    Char.BAR: lambda self, _, at, end: self.bar(at, end),
    Char.BULLET: lambda self, char, at, end: self.dot(char, at, end),
    Char.ARROW: lambda self, _, at, end: self.arrow(end),
    Char.SUPERSCRIPT: lambda self, _, at, end: self.superscript(at, end),
    Char.SUBSCRIPT: lambda self, _, at, end: self.subscript(at, end),
    Char.FRACTION: lambda self, char, at, end: self.vulgar_fraction(char, at, end),
}
