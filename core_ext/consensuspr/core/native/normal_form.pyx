# cython: language_level=3, freethreading_compatible=True
"""The compiled normaliser, with the rules of ``pure/normal_form.py``."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int8_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset

from consensuspr.core import tables
from consensuspr.core.patterns import encode

include "tables.pxi"
include "state.pxi"
include "groups.pxi"
include "fractions.pxi"
include "operators.pxi"
include "numbers.pxi"
include "units.pxi"
include "words.pxi"
include "latex.pxi"


# --- lines --------------------------------------------------------------

cdef inline void end_line(Pass* s) noexcept nogil:
    s.gap = GAP_BREAK
    s.flags |= F_LINE_START
    s.bar_open = False
    s.table_row = False


cdef Py_ssize_t newlines(Pass* s, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t count = 0, line = 0, blanks = 0
    cdef Unit unit = unit_at(s, at)
    cdef Unit following
    while unit.width and is_blank(unit.cls):
        at += unit.width
        blanks += 1
        following = unit_at(s, at)
        # A CR and the LF behind it are one line break.
        if unit.cls == CH_NEWLINE and not (unit.code == u'\r' and following.code == u'\n'):
            count += 1
            line = at
            blanks = 0
        unit = following
    if (
        count == 2
        and s.size > s.base
        and blanks <= LOOKAHEAD_LIMIT
        and display_begins(s.data, s.length, at)
    ):
        s.emphasis = False
    elif count > 1 or s.size == s.base:
        begin_paragraph(s, line)
    end_line(s)
    return at


cdef Py_ssize_t list_number(Pass* s, Py_ssize_t at) noexcept nogil:
    """Return the index past a list mark at a line's start, else 0."""
    cdef Unit unit
    at += unit_at(s, at).width
    unit = unit_at(s, at)
    if unit.cls == CH_DIGIT:
        at += unit.width
        unit = unit_at(s, at)
    if unit.cls not in (CH_POINT, CH_CLOSE):
        return 0
    at += unit.width
    if class_of(s, at) != CH_SPACE:
        return 0
    at = skip_spaces(s, at)
    if at >= s.length or class_of(s, at) == CH_NEWLINE:
        return 0
    return bullet(s, at)


# --- square brackets --------------------------------------------------------------

cdef Py_ssize_t bracket_open(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    if s.last == K_ROOT:
        s.root_index = True
    else:
        junction(s, K_OPEN, at, end)
    put_byte(s, c'[', at, end)
    note(s, K_OPEN, C_OTHER)
    after(s, K_OPEN)
    return end


cdef Py_ssize_t bracket_close(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    close_raw(s, c']', at, end)
    if s.root_index:
        s.root_index = False
        s.last = K_ROOT
    return end


# --- the pass --------------------------------------------------------------

cdef inline Py_ssize_t dispatch(
    Pass* s, uint32_t code, int cls, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """Handle the character ``code`` of class ``cls``, which stands for the input [at, end).

    Letters have been handled; blanks, digits and points stand at ``at`` themselves, because
    no command stands for one of them.
    """
    cdef uint32_t emitted
    while True:
        if cls == CH_SPACE:
            widen(s, GAP_SPACE)
            return skip_spaces(s, end)
        elif cls == CH_DIGIT:
            return digit(s, at)
        elif cls == CH_NEWLINE:
            return newlines(s, at)
        elif cls == CH_BACKSLASH:
            end = command(s, at, &emitted)
            if emitted == 0:
                return end
            # It stands for a character, none for another command: once more with that one.
            code = emitted
            cls = CLASS_OF[code]
            continue
        elif cls == CH_COMMA:
            return comma(s, at, end)
        elif cls == CH_POINT:
            return number(s, at) if leads_number(s, at, end) else point(s, at, end)
        elif cls == CH_MARK:
            delimit(s, end)
            if code == u'$':
                s.flags &= ~F_LINE_START
            return end
        elif cls == CH_EQUALS:
            return equals(s, at, end)
        elif cls == CH_OPEN:
            return open_paren(s, at, end)
        elif cls == CH_CLOSE:
            return close_paren(s, at, end)
        elif cls == CH_BRACE_OPEN:
            return open_brace(s, at, end)
        elif cls == CH_BRACE_CLOSE:
            return close_brace(s, at, end)
        elif cls == CH_STAR:
            return star(s, at, end)
        elif cls == CH_TIMES:
            return times(s, at, end)
        elif cls == CH_PLUS:
            return operator(s, u'+', at, end, C_SUM)
        elif cls == CH_MINUS:
            return minus(s, at, end)
        elif cls == CH_SLASH:
            return slash(s, at, end)
        elif cls == CH_CARET:
            return caret(s, at, end)
        elif cls == CH_UNDERSCORE:
            return underscore(s, at, end)
        elif cls == CH_SYMBOL:
            return operand(s, code, at, end)
        elif cls == CH_ROOT:
            return root(s, code, at, end)
        elif cls == CH_RELATION:
            return relation(s, code, at, end)
        elif cls == CH_PLUS_MINUS:
            return operator(s, code, at, end, C_SUM)
        elif cls == CH_LESS:
            return less(s, at, end)
        elif cls == CH_GREATER:
            return greater(s, at, end)
        elif cls == CH_BRACKET_OPEN:
            return bracket_open(s, at, end)
        elif cls == CH_BRACKET_CLOSE:
            return bracket_close(s, at, end)
        elif cls == CH_SENTENCE_END:
            return punctuation(s, code, at, end, K_SENTENCE)
        elif cls == CH_BANG:
            return bang(s, at, end)
        elif cls == CH_COLON:
            return colon(s, at, end)
        elif cls == CH_PRIME:
            return prime(s, at, end)
        elif cls == CH_DROP:
            set_flag(s, F_DEGREE, code == 0xB0)
            return end
        elif cls == CH_BAR:
            return bar(s, at, end)
        elif cls in (CH_AMPERSAND, CH_HASH):
            widen(s, GAP_MARK)
            return end
        elif cls == CH_BULLET:
            if (
                code == 0x2022
                and s.last == K_NUMBER
                and s.gap != GAP_BREAK
                and not s.product
                and number_follows(s, end)
            ):
                return times(s, at, end)
            return bullet(s, end)
        elif cls == CH_ARROW:
            return arrow(s, end)
        elif cls == CH_SUPERSCRIPT:
            return superscript(s, at, end)
        elif cls == CH_SUBSCRIPT:
            return subscript(s, at, end)
        elif cls == CH_FRACTION:
            return vulgar_fraction(s, code, at, end)
        return other(s, code, at, end)


cdef inline Py_ssize_t step(Pass* s, Py_ssize_t at) noexcept nogil:
    """Handle what stands at ``at`` and return the index past it."""
    cdef uint8_t byte = s.data[at]
    cdef int cls = BYTE_CLASS[byte]
    cdef uint32_t code
    cdef Py_ssize_t end = at + 1
    cdef Unit unit
    # Words come first: they are half of all tokens, and a branch is cheaper than the switch.
    if cls == CH_LETTER:
        return letters(s, at)
    code = CANONICAL[byte]
    if cls == CH_MULTIBYTE:
        unit = decode(s.data, s.length, at)
        if unit.cls == CH_LETTER:
            return letters_of_any_script(s, at)
        code = unit.code
        cls = unit.cls
        end = at + unit.width
    # The only call, so that compilers make it a part of the pass's loop.
    return dispatch(s, code, cls, at, end)


cdef inline Py_ssize_t general(Pass* s, Py_ssize_t at) noexcept nogil:
    """Handle a space, if one stands at ``at``, and what follows it."""
    if s.data[at] == c' ':
        # Behind most tokens; the rest of a run is skipped by the switch.
        widen(s, GAP_SPACE)
        at += 1
        if at == s.length:
            return at
    return step(s, at)


cdef Py_ssize_t output_capacity(Py_ssize_t length) noexcept nogil:
    # 128 bytes: what a rule writes beyond the bound before it takes bytes back.
    return length + length // 2 + 128


cdef Py_ssize_t normal_form(
    const uint8_t* data, Py_ssize_t length, uint8_t* out, uint32_t* starts, uint32_t* ends
) noexcept nogil:
    cdef Pass s
    cdef Py_ssize_t at = 0
    # The frames need no clearing: only those below depth are read.
    s.data = data
    s.length = length
    s.out = out
    s.size = 0
    s.starts = starts
    s.ends = ends
    s.product = False
    s.product_at = 0
    s.product_end = 0
    s.unit_at = 0
    s.dropped_at = -1
    s.letter_at = -1
    s.factor_at = -1
    s.past_unit_at = 0
    s.past_unit_end = -1
    s.base = 0
    s.limit = 0
    s.closed_position = 0
    s.closed_end = 0
    s.closed_before = K_START
    s.closed_separated = False
    s.closed_tokens = 0
    s.closed_content = C_NONE
    begin_paragraph(&s, 0)
    s.flags |= F_LINE_START
    while at < length:
        at = general(&s, at)
    write_product(&s)
    if s.size == s.base and s.size > 0:
        s.size -= 2  # the end of a paragraph that none follows
    return s.size


cdef Unit character_at(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    return UNIT_OF_BYTE[data[at]] if data[at] < 0x80 else decode(data, length, at)


cdef bint display_begins(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t index = 0, end
    cdef const char* name
    cdef Unit unit
    if at >= length:
        return False
    unit = character_at(data, length, at)
    if unit.code not in (u'\\', u'$'):
        return False
    while index < MOST_DISPLAYS and DISPLAYS[index][0]:
        name = DISPLAYS[index]
        end = at
        while name[0] and end < length:
            unit = character_at(data, length, end)
            if unit.code != <uint32_t>(<uint8_t>name[0]):
                break
            end += unit.width
            name += 1
        if not name[0]:
            return True
        index += 1
    return False


cdef bint display_follows(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    cdef Unit unit
    cdef int _blank
    for _blank in range(LOOKAHEAD_LIMIT + 1):
        if at >= length:
            return False
        unit = character_at(data, length, at)
        if unit.cls != CH_SPACE:
            return display_begins(data, length, at)
        at += unit.width
    return False


cdef int class_at(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    cdef uint32_t code = data[at]
    if code >= 0x80:
        code = decode(data, length, at).code
    return CLASS_OF[code] if code < DIRECT_CODES else CH_OTHER


cdef int class_before(const uint8_t* data, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t start = at - 1
    while start > 0 and data[start] & 0xC0 == 0x80:
        start -= 1
    return class_at(data, at, start)


def normalize(text) -> str:
    """Return the normal form of ``text`` as a str."""
    cdef bytes data = encode(text)
    cdef Py_ssize_t length = len(data)
    cdef const uint8_t* raw = data
    cdef uint8_t* out = <uint8_t*>PyMem_RawMalloc(output_capacity(length))
    cdef Py_ssize_t size
    if out == NULL:
        raise MemoryError(f"no memory to normalise {length} bytes")
    try:
        with nogil:
            size = normal_form(raw, length, out, NULL, NULL)
        return out[:size].decode("utf-8")
    finally:
        PyMem_RawFree(out)


def normal_form_with_offsets(text) -> tuple[bytes, list[int], list[int]]:
    """Return the normal form, and for each of its bytes the input bytes [start, end) behind it."""
    cdef bytes data = encode(text)
    cdef Py_ssize_t length = len(data)
    cdef Py_ssize_t capacity = output_capacity(length)
    cdef const uint8_t* raw = data
    cdef uint8_t* out = <uint8_t*>PyMem_RawMalloc(capacity)
    cdef uint32_t* starts = <uint32_t*>PyMem_RawMalloc(2 * capacity * sizeof(uint32_t))
    cdef Py_ssize_t size, index
    if out == NULL or starts == NULL:
        PyMem_RawFree(out)
        PyMem_RawFree(starts)
        raise MemoryError(f"no memory to normalise {length} bytes")
    try:
        with nogil:
            size = normal_form(raw, length, out, starts, starts + capacity)
        return (
            out[:size],
            [starts[index] for index in range(size)],
            [starts[capacity + index] for index in range(size)],
        )
    finally:
        PyMem_RawFree(out)
        PyMem_RawFree(starts)


cdef void fill_separators() noexcept nogil:
    """Tabulate needs_separator where it looks at the last token and the gap alone."""
    cdef Pass s
    cdef int last, gap, kind
    s.flags = F_NONE
    s.data = NULL
    s.length = 0
    for kind in range(K_OPEN + 1):
        for last in range(K_UNDERSCORE + 1):
            for gap in range(GAP_BREAK + 1):
                s.last = last
                s.gap = gap
                SEPARATES[separates_index(kind, last, gap)] = (
                    SEPARATES_MAYBE
                    if separates_maybe(kind, last, gap)
                    else needs_separator(&s, kind, 0, 0)
                )


cdef bint separates_maybe(int kind, int last, int gap) noexcept nogil:
    """Tell where needs_separator looks at a flag or at what follows."""
    if gap == GAP_NONE:
        return kind == K_NUMBER and last in (K_NUMBER, K_LETTER)
    if kind == K_OPEN and last in (K_NUMBER, K_LETTER, K_CLOSE):
        return gap == GAP_SPACE
    if last == K_WORD:
        return kind == K_OPEN or (kind != K_WORD and gap < GAP_MARK)
    return kind == K_LETTER and last in (K_NUMBER, K_LETTER) and gap < GAP_MARK


cdef void fill_gaps() noexcept nogil:
    """Tabulate what two gaps make together."""
    cdef int first, second, wider
    for first in range(GAP_BREAK + 1):
        for second in range(GAP_BREAK + 1):
            wider = max(first, second)
            if wider == GAP_MARK and GAP_THIN <= min(first, second) <= GAP_SPACE:
                wider = GAP_SPACED_MARK
            WIDER[first << 3 | second] = <uint8_t>wider


_fill_tables()
fill_gaps()
fill_separators()
