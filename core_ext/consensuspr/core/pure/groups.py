"""Groups: brackets, braces and the rules that take them away (rules 10 to 13)."""

from __future__ import annotations

import re

from consensuspr.core.pure.state import (
    BINDING,
    FACTOR_ENDS,
    PAREN_GROUPS,
    Closed,
    Content,
    Frame,
    Gap,
    Group,
    Kind,
    State,
    fold_case,
)
from consensuspr.core.tables import (
    COLUMN_ENVIRONMENTS,
    MAX_OPEN_GROUPS,
    MAX_REWRITE_BYTES,
    MAX_UNIT_BRACKET,
    MAX_UNIT_DIGITS,
    MAX_UNIT_WORDS,
    MIN_NAME,
    PARAGRAPH,
    Char,
)

# A group whose brackets are being decided may follow one of these without multiplying.
_FREE = (Kind.START, Kind.RELATION, Kind.OPEN, Kind.PUNCTUATION)
_LETTERS = re.compile(rb"[a-z]+")
# n-k is a difference, well-known is a word.
_DIFFERENCE = re.compile(rb"(?<![a-z])[a-z]{1,2}-[a-z]{1,2}(?![a-z])")


class Groups(State):
    """Opening and closing of groups."""

    # --- frames ----------------------------------------------------------------------------

    def push(
        self, group: Group, before: Kind, separated: bool = False, product: bool = False
    ) -> None:
        """Open a frame at the end of the output; groups that write no bracket share content."""
        self.frames.append(
            Frame(
                group,
                len(self.out),
                before,
                separated,
                product,
                self.applied,
                self.tokens,
                self.factors,
                self.first,
                self.content,
            )
        )
        if group not in PAREN_GROUPS:
            self.braces += 1

    def open_bracket(
        self, group: Group, at: int, end: int, before: Kind, separated: bool, product: bool
    ) -> None:
        """Write ``(`` for [at, end) and open a frame whose content is counted anew."""
        self.push(group, before, separated, product)
        self.write("(", at, end)
        self.after(Kind.OPEN)
        self.empty_content()

    def empty_content(self) -> None:
        """Begin to count a group's content."""
        self.tokens, self.factors, self.first, self.content = 0, 0, Kind.START, Content.NONE

    def full(self) -> bool:
        """Count a group for which no frame is free."""
        if len(self.frames) < MAX_OPEN_GROUPS:
            return False
        self.overflow += 1
        return True

    def begin_paragraph(self, at: int) -> None:
        """End all that is pending: what stands from ``at`` on is read as a text of its own."""
        self.write_product()
        if len(self.out) > self.base:
            self.write(PARAGRAPH, at, at)
        self.base, self.origin = len(self.out), at
        self.frames.clear()
        self.braces = self.overflow = 0
        self.root_index = False
        self.closed = None
        self.empty_content()
        self.past_unit_end = -1
        self.bar_open = self.table_row = self.emphasis = False
        self.after(Kind.START)
        self.gap = Gap.BREAK

    def pop(self) -> Frame:
        """Close the innermost frame and return to its parent's content."""
        frame = self.frames.pop()
        if frame.group not in PAREN_GROUPS:
            self.braces -= 1
        return frame

    def restore(self, frame: Frame) -> None:
        """Count the parent's content again, as it was when the frame opened."""
        self.tokens, self.factors = frame.tokens, frame.factors
        self.first, self.content = frame.first, frame.content

    # --- brackets of the text ------------------------------------------------------------------

    def open_paren(self, at: int, end: int) -> int:
        """``(``."""
        tag = self.tag_end(end)
        if tag:
            return self.bullet(tag)
        if len(self.frames) < MAX_OPEN_GROUPS and self.mod_follows(end):
            self.widen(Gap.SPACE)
            self.push(Group.MOD_PAREN, self.last)
            return end
        before, product, separated = self.last, False, False
        unit_at, unit_words = self.unit_at, -1
        if self.product is not None and (before in FACTOR_ENDS or self.ends_factorial()):
            product = True
            self.product = None
            self.gap = Gap.NONE
        elif self.product is not None:
            self.write_product()
            before = Kind.OPERATOR
        else:
            unit_words = self.unit_words
            product = self.gap <= Gap.THIN and self.ends_factorial()
            separated = not product and self.junction(Kind.OPEN, at, end)
        if self.full():
            self.write("(", at, end)
            self.note(Kind.OPEN, Content.OTHER)
            self.after(Kind.OPEN)
        else:
            self.open_bracket(Group.PAREN, at, end, before, separated, product)
            self.frames[-1].unit_at, self.frames[-1].unit_words = unit_at, unit_words
        return end

    def tag_end(self, at: int) -> int:
        """Return the index past a tag ``(1) `` or ``(ii) `` at a line's start, else 0.

        ``at`` is the index past its opening bracket.  What an operator follows is no tag.
        """
        if not self.line_start:
            return 0
        end = at
        while self.classes[end] in (Char.DIGIT, Char.LETTER) and end - at < 3:
            end += 1
        if end == at or self.classes[end] is not Char.CLOSE:
            return 0
        if self.classes[end + 1] is not Char.SPACE:
            return 0
        end = self.skip_spaces(end + 1)
        if self.chars[end : end + 1] in ("x", "X") and self.classes[end + 1] is Char.SPACE:
            return end if self.classes[self.skip_spaces(end + 1)] is Char.EQUALS else 0
        return end if self.classes[end] in (Char.DIGIT, Char.LETTER, Char.MARK) else 0

    def bullet(self, end: int) -> int:
        """Let a list mark vanish; at a line's start it begins a paragraph."""
        if self.line_start:
            self.begin_paragraph(end)
        self.widen(Gap.BREAK)
        self.line_start = False
        return end

    def mod_follows(self, at: int) -> bool:
        """Tell whether ``mod`` follows, so that the bracket belongs to it (rule 18)."""
        at = self.skip_spaces(at)
        for wrapper in ("\\text{", "\\mathrm{", "\\bmod", "\\pmod", "\\mod"):
            if self.chars[at : at + len(wrapper)] == wrapper:
                at += len(wrapper) if wrapper[-1] == "{" else len(wrapper) - 3
                break
        mod = fold_case(self.chars[at : at + 3]) == "mod"
        return mod and self.classes[at + 3] is not Char.LETTER

    def close_paren(self, at: int, end: int) -> int:
        """``)``."""
        if self.overflow:
            self.overflow -= 1
            return self.close_raw(")", at, end)
        if not self.frames or self.frames[-1].group not in PAREN_GROUPS:
            return self.close_raw(")", at, end)
        frame = self.pop()
        if frame.group is Group.MOD_PAREN:
            self.gap = Gap.NONE
            if self.ends and self.product is None:
                self.ends[-1] = end
            return end
        self.write_product()
        self.gap = Gap.NONE
        # 48 grains (1959 penny) + 36: behind a word of a unit a remark may hold numbers too.
        unit = frame.unit_words >= 0 and self.holds_words(
            frame.position + 1, frame.separated, numbers=frame.unit_words > 0
        )
        if not unit and (
            frame.before in (Kind.OPERATOR, Kind.RELATION)
            or self.classes[self.skip_spaces(end)]
            in (Char.PLUS, Char.MINUS, Char.STAR, Char.TIMES, Char.SLASH, Char.EQUALS)
        ):
            self.drop_lone_unit()
        verdict = self.paren_goes(frame)
        if verdict is not None:
            self.drop_bracket(frame, verdict, end)
            return end
        self.keep_bracket(frame, at, end)
        if unit:
            # 4 hours (driving) + 6: the bracket belongs to the unit.
            self.unit_at = frame.unit_at
            self.unit_words = min(frame.unit_words + 1, MAX_UNIT_WORDS)
        return end

    def drop_lone_unit(self) -> None:
        """Take the unit away where the group holds a number and its unit only (rule 3)."""
        if (
            self.unit_words > 0
            and self.first is Kind.NUMBER
            and self.content is Content.WORDS
            and self.tokens == 1 + self.unit_words
        ):
            self.drop_units()
            self.tokens = self.factors = 1
            self.content = Content.NONE

    def holds_words(self, position: int, apart: bool, numbers: bool = False) -> bool:
        """Tell whether the output from ``position`` on is a few words and nothing else.

        Args:
            position: where to begin.
            apart: whether a blank stands before them; 3(ab) is a product.
            numbers: whether numbers may stand among them.
        """
        words = bytes(self.out[position:])
        if not 2 <= len(words) <= MAX_UNIT_BRACKET or _DIFFERENCE.search(words):
            return False
        longest = max(map(len, _LETTERS.findall(words)), default=0)
        signs = b"abcdefghijklmnopqrstuvwxyz-'/., " + (b"0123456789" if numbers else b"")
        return longest >= (2 if apart else MIN_NAME) and all(byte in signs for byte in words)

    def close_raw(self, text: str, at: int, end: int) -> int:
        """Write a closing bracket as it stands."""
        self.write_product()
        self.write(text, at, end)
        self.closed = None
        self.note(Kind.CLOSE, Content.OTHER)
        self.after(Kind.CLOSE)
        return end

    def paren_goes(self, frame: Frame) -> str | None:
        """Decide on the brackets of a closing ``(...)``: None keeps them (rule 11).

        Otherwise the text that takes the place of the opening bracket: nothing, or the
        product sign that the bracket stood for.
        """
        length = len(self.out) - frame.position - 1
        if length > MAX_REWRITE_BYTES or self.tokens == 0:
            return None
        before = frame.before
        if self.tokens == 1 and self.content is Content.NONE:
            if self.first not in (Kind.NUMBER, Kind.LETTER):
                return None
            sign = "*" if self.first is Kind.NUMBER else ""
            if before is Kind.NUMBER:
                return None if frame.separated else sign
            if before is Kind.CLOSE or (before is Kind.SENTENCE and frame.product):
                return "" if frame.separated else sign
            if before is Kind.LETTER:
                return sign if frame.product else None
            if before is Kind.WORD and frame.applied:
                return ""
            if before in (Kind.WORD, Kind.SENTENCE):
                return "" if frame.separated else None
            return ""
        if before is Kind.CARET and self.tokens == 1 and self.content is Content.LEADING_MINUS:
            return ""
        under = frame.position > 0 and self.out[frame.position - 1] == ord("/")
        if before is Kind.OPERATOR and under and self.one_factor():
            return ""
        return None

    def one_factor(self) -> bool:
        """Tell whether the group holds one factor: 2, x^2, 5!, √3; but not 2x."""
        return self.factors <= 1 and self.content is Content.NONE

    def keep_bracket(self, frame: Frame, at: int, end: int) -> None:
        """Write ``)``; the group is one factor of its parent."""
        self.closed = Closed(
            frame.position,
            len(self.out) + 1,
            frame.before,
            frame.separated,
            self.tokens,
            self.content,
        )
        self.restore(frame)
        self.write(")", at, end)
        self.last = frame.before  # what binds the group to its left
        self.note(Kind.CLOSE)
        self.after(Kind.CLOSE)

    def drop_bracket(self, frame: Frame, instead: str, end: int) -> None:
        """Take the opening bracket away; the content becomes its parent's.

        Args:
            frame: the group, already popped.
            instead: ``""`` or one ASCII character in the bracket's place.
            end: index past the last character that the content now stands for.
        """
        tokens, factors, first, content = self.tokens, self.factors, self.first, self.content
        empty = len(self.out) == frame.position + 1
        last = frame.before if empty else self.last
        if instead:
            self.out[frame.position : frame.position + 1] = instead.encode()
        else:
            self.remove_open(frame.position)
        if not empty:
            self.ends[-1] = end
        self.restore(frame)
        if tokens:
            if self.tokens == 0:
                self.first = first
            self.tokens += tokens
            self.factors += 0 if frame.before in BINDING else factors
            self.content |= content & ~Content.LEADING_MINUS
            if content & Content.LEADING_MINUS:
                self.content |= Content.SUM
            if instead == "*":
                self.content |= Content.PRODUCT
        self.after(last)
        self.sealed = True
        if last is Kind.NUMBER:
            self.unit_at = len(self.out)
            self.unit_words = 0

    # --- braces ------------------------------------------------------------------------------

    def open_brace(self, at: int, end: int) -> int:
        """``{``: the argument of a power, an index or a root, otherwise nothing."""
        if self.full():
            return end
        group = {
            Kind.CARET: Group.SUPERSCRIPT,
            Kind.UNDERSCORE: Group.SUBSCRIPT,
            Kind.ROOT: Group.ROOT,
        }.get(self.last)
        if group is None or self.product is not None:
            self.push(Group.WRAP, self.last)
        else:
            self.open_bracket(group, at, end, self.last, separated=False, product=False)
        return end

    def close_brace(self, at: int, end: int) -> int:
        """``}``: closes the innermost brace; brackets left open inside it stay as they are."""
        if self.overflow:
            self.overflow -= 1
            return end
        if not self.braces:
            return end
        while self.frames[-1].group in PAREN_GROUPS:
            self.leave_open(self.pop())
        frame = self.pop()
        match frame.group:
            case Group.WRAP:
                return end
            case Group.TEXT:
                if self.gap is not Gap.NONE or not self.argument_follows(end):
                    self.widen(Gap.MARK)
                return end
            case Group.DISCARD | Group.ENVIRONMENT:
                return self.close_discarded(frame, end)
        self.write_product()
        self.gap = Gap.NONE
        if frame.group in (Group.NUMERATOR, Group.DENOMINATOR):
            self.drop_lone_unit()
        match frame.group:
            case Group.NUMERATOR:
                return self.close_numerator(frame, at, end)
            case Group.DENOMINATOR:
                return self.close_denominator(frame, at, end)
            case Group.BINOM_TOP:
                return self.close_binom_top(frame, at, end)
            case Group.BINOM_BOTTOM:
                self.keep_bracket(frame, at, end)
                return end
        single = self.tokens <= 1 and not self.content & ~(Content.LEADING_MINUS | Content.WORDS)
        if frame.group is Group.ROOT and self.content:
            single = False
        if single and len(self.out) - frame.position - 1 <= MAX_REWRITE_BYTES:
            self.drop_bracket(frame, "", end)
        else:
            self.keep_bracket(frame, at, end)
        if frame.group is Group.SUBSCRIPT:
            self.last = Kind.LETTER
            self.sealed = True
            self.unit_words = -1
        return end

    def argument_follows(self, end: int) -> bool:
        """Tell whether a bracket stands tight behind a name: \\text{Var}(X)."""
        return any(
            self.chars[end : end + len(name)] == name
            for name in ("(", "[", "\\left(", "\\left[", "\\bigl(", "\\bigl[")
        )

    def leave_open(self, frame: Frame) -> None:
        """Give up a bracket that was never closed; what it held belongs to its parent."""
        if frame.group is Group.PAREN:
            self.restore(frame)
            self.note(Kind.OPEN, Content.OTHER)

    def close_discarded(self, frame: Frame, end: int) -> int:
        """Throw an argument away unless it is too long to be one."""
        columns = False
        if len(self.out) - frame.position <= MAX_REWRITE_BYTES:
            name = bytes(self.out[frame.position :]).strip().decode(errors="replace")
            columns = frame.group is Group.ENVIRONMENT and name in COLUMN_ENVIRONMENTS
            # Units dropped inside the argument can have reached back past its beginning; then
            # what was written since may have a character of several bytes there.
            position = frame.position
            while position < len(self.out) and self.out[position] & 0xC0 == 0x80:
                position -= 1
            self.truncate(position)
            self.restore(frame)
            self.closed = None
            self.product = None
            self.after(frame.before)
            self.sealed = True
        self.gap = Gap.BREAK if frame.group is Group.ENVIRONMENT else Gap.MARK
        if columns and self.classes[end] is Char.BRACE_OPEN and not self.full():
            self.push(Group.DISCARD, self.last)
            return end + 1
        return end

    # --- fractions and binomials ---------------------------------------------------------------

    def close_numerator(self, frame: Frame, at: int, end: int) -> int:
        """Decide on the numerator's brackets, then read the denominator (rule 10)."""
        verdict = self.numerator_goes(frame)
        if verdict is None:
            self.keep_bracket(frame, at, end)
        else:
            self.drop_bracket(frame, verdict, end)
        return self.read_denominator(end)

    def numerator_goes(self, frame: Frame) -> str | None:
        """Decide on a numerator's brackets, see :meth:`paren_goes`."""
        if len(self.out) - frame.position - 1 > MAX_REWRITE_BYTES:
            return None
        if self.tokens == 0:
            return ""
        if self.content & (Content.SUM | Content.QUOTIENT | Content.OTHER):
            return None
        before = frame.before
        if self.content & Content.LEADING_MINUS:
            return "" if before in _FREE or frame.separated else None
        number = self.first is Kind.NUMBER
        if frame.separated:
            return ""
        if before is Kind.NUMBER:
            # 2\frac12 is a mixed number, 2\cdot\frac12 a product.
            return ("*" if frame.product else " ") if number else ""
        if before in (Kind.LETTER, Kind.CLOSE):
            return "*" if number else ""
        if before is Kind.WORD:
            return " "
        return ""

    def close_denominator(self, frame: Frame, at: int, end: int) -> int:
        """Decide on the denominator's brackets (rule 10).

        They go around one factor or a name in words.  Around a product they stay, although
        many write 1/2x for it: ``\\frac{1}{2x}`` and ``\\frac{1}{2}x`` are two statements.
        """
        length = len(self.out) - frame.position - 1
        single = self.one_factor()
        name = self.content is Content.WORDS and self.holds_words(frame.position + 1, apart=False)
        if (single and length <= MAX_REWRITE_BYTES) or name:
            self.drop_bracket(frame, "", end)
        else:
            self.keep_bracket(frame, at, end)
        return end

    def close_binom_top(self, frame: Frame, at: int, end: int) -> int:
        """Write the comma of ``C(n,k)`` and read the lower argument."""
        self.write(",", at, end)
        self.after(Kind.PUNCTUATION)
        argument = self.read_argument(end)
        if argument is None:
            self.keep_bracket(frame, at, end)
            return end
        start, stop, brace = argument
        if brace:
            # The same bracket goes on; its frame now closes with the lower argument.  A frame
            # is free: this one was just popped.
            frame.group = Group.BINOM_BOTTOM
            self.frames.append(frame)
            self.braces += 1
            return stop
        self.write_argument(start, stop)
        self.keep_bracket(frame, start, stop)
        return stop

    def read_argument(self, at: int) -> tuple[int, int, bool] | None:
        """Find a fraction's argument at ``at``: start and end of what opens it, and if a brace.

        None where no argument can be read: a command or nothing at all.
        """
        at = self.skip_spaces(at)
        cls = self.classes[at]
        if cls is Char.BRACE_OPEN:
            return at, at + 1, True
        if cls in (Char.DIGIT, Char.LETTER, Char.SYMBOL):
            return at, at + 1, False
        return None

    def write_argument(self, at: int, end: int) -> None:
        """Write a one-character argument inside its bracket."""
        kind = Kind.NUMBER if self.classes[at] is Char.DIGIT else Kind.LETTER
        self.write(self.chars[at], at, end)
        self.note(kind)
        self.after(kind)

    def open_fraction(self, at: int, end: int, group: Group) -> int:
        """``\\frac`` or ``\\binom`` at [at, end): open its first argument."""
        argument = self.read_argument(end)
        if argument is None or self.full():
            return end
        before, product, separated = self.last, False, False
        if self.product is not None and before in FACTOR_ENDS:
            product = True
            self.product = None
            self.gap = Gap.NONE
        elif self.product is not None:
            self.write_product()
            before = Kind.OPERATOR
        elif self.gap <= Gap.THIN and self.ends_factorial():
            self.product = (at, at)  # the command is longer than what it writes
            self.write_product()
            before = Kind.OPERATOR
        elif self.fraction_multiplies(end, group):
            product = before is Kind.NUMBER
            self.gap = Gap.NONE
        elif self.gap is not Gap.NONE and self.needs_separator(Kind.NUMBER, at, end):
            separated = self.separate(Kind.NUMBER, at)
        start, stop, brace = argument
        if group is Group.BINOM_TOP:
            self.write("C", at, start)
            self.note(Kind.LETTER)
            before, separated, product = Kind.LETTER, False, False
        self.open_bracket(group, at, stop if brace else start, before, separated, product)
        if brace:
            return stop
        self.write_argument(start, stop)
        frame = self.pop()
        if group is Group.BINOM_TOP:
            return self.close_binom_top(frame, start, stop)
        return self.close_numerator(frame, start, stop)

    def fraction_multiplies(self, at: int, group: Group) -> bool:
        """Tell whether the fraction with its arguments at ``at`` is a factor of what is before it.

        A number and a fraction of numbers are a mixed number.
        """
        if self.gap >= Gap.MARK:
            return False
        if self.last is Kind.LETTER:
            return not self.wordy
        return self.last is Kind.NUMBER and not (
            group is Group.NUMERATOR and self.is_plain_fraction(at)
        )

    def is_plain_fraction(self, at: int) -> bool:
        """Tell whether both arguments at ``at`` are whole numbers."""
        for _ in range(2):
            at = self.skip_spaces(at)
            brace = self.classes[at] is Char.BRACE_OPEN
            first = at = self.skip_spaces(at + 1) if brace else at
            while self.classes[at] is Char.DIGIT and at - first < (MAX_UNIT_DIGITS if brace else 1):
                at += 1
            if at == first:
                return False
            if brace:
                at = self.skip_spaces(at)
                if self.classes[at] is not Char.BRACE_CLOSE:
                    return False
                at += 1
        return True

    def read_denominator(self, end: int) -> int:
        """Open a fraction's denominator if there is one."""
        argument = self.read_argument(end)
        if argument is None:
            return end
        start, stop, brace = argument
        self.write("/", end, start)
        self.note(Kind.OPERATOR, Content.QUOTIENT)
        self.after(Kind.OPERATOR)
        if brace:
            if not self.full():
                self.open_bracket(
                    Group.DENOMINATOR, start, stop, Kind.OPERATOR, separated=False, product=False
                )
            return stop
        self.write_argument(start, stop)
        if self.last is Kind.NUMBER:
            self.unit_at = len(self.out)
            self.unit_words = 0
        self.sealed = True
        return stop
