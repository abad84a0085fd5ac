"""LaTeX commands (rules 8, 10, 12, 13 and 18)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from consensuspr.core.pure.characters import char_class
from consensuspr.core.pure.operators import Operators
from consensuspr.core.pure.state import Gap, Group, Kind
from consensuspr.core.tables import COMMANDS, LOOKAHEAD, MAX_COMMAND, NEGATED, Char, Command


class Latex(Operators, ABC):
    """Rules for what begins with a backslash."""

    @abstractmethod
    def dispatch(self, char: str, at: int, end: int) -> int:
        """Handle one canonical character; defined by the normaliser."""

    @abstractmethod
    def word(self, text: str, at: int, end: int) -> int:
        """Handle a word of two letters or more; defined by the normaliser."""

    @abstractmethod
    def single_letter(self, text: str, at: int, end: int) -> int:
        """Handle a lone letter; defined by the normaliser."""

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
        action, payload = (
            COMMANDS.get(name, (Command.WORD, "")) if len(name) <= MAX_COMMAND
            else (Command.WORD, "")
        )  # fmt: skip
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
                self.widen(Gap.MARK)
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
            group = {
                Command.WRAP: Group.WRAP,
                Command.TEXT: Group.TEXT,
                Command.DISCARD: Group.DISCARD,
                Command.ENVIRONMENT: Group.ENVIRONMENT,
            }[action]
            self.push(group, self.last)
        return stop + 1

    def root(self, text: str, at: int, end: int) -> int:
        """A prefix that binds to what follows."""
        self.junction(Kind.LETTER, at, end)
        self.write(text, at, end)
        self.note(Kind.ROOT)
        self.after(Kind.ROOT)
        return end

    def modulo(self, at: int, end: int) -> int:
        """``\\pmod{7}``, ``\\mod 7`` and ``mod 7`` are one word and its operand (rule 18)."""
        self.widen(Gap.SPACE)
        self.word("mod", at, end)
        self.gap = Gap.SPACE
        return end
