# Numbers in any notation; as pure/operands.py.

cdef inline Py_ssize_t digit(Pass* s, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t end
    if s.flags & F_LINE_START:
        end = list_number(s, at)
        if end:
            return end
    return number(s, at)


cdef inline bint leads_number(const Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef bint tight = s.gap == GAP_NONE and not s.product
    if class_of(s, end) != CH_DIGIT:
        return False
    if tight and s.size > 0 and s.out[s.size - 1] == c'.':
        return False  # 0..3
    return not (tight and ends_operand(s.last))


cdef inline Py_ssize_t write_digits(Pass* s, Py_ssize_t at, int* count) noexcept nogil:
    cdef Unit unit
    while at < s.length and c'0' <= s.data[at] <= c'9':
        put_byte(s, s.data[at], at, at + 1)
        at += 1
        if count[0] < MANY_TOKENS:
            count[0] += 1
    unit = unit_at(s, at)
    while unit.cls == CH_DIGIT:
        put_byte(s, <uint8_t>unit.code, at, at + unit.width)
        at += unit.width
        if count[0] < MANY_TOKENS:
            count[0] += 1
        unit = unit_at(s, at)
    return at


cdef inline Py_ssize_t thousands_separator(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Return the index past ``,`` ``{,}`` ``,\\!`` or ``\\,`` at ``at``, else 0."""
    cdef uint32_t code = code_of(s, at)
    cdef Py_ssize_t stop
    if code == u',':
        stop = skip_name(s, at, b",\\!")
        return stop if stop >= 0 else skip_name(s, at, b",")
    if code == u'{':
        stop = skip_name(s, at, b"{,}")
    elif code == u'\\':
        stop = skip_name(s, at, b"\\,")
    else:
        return 0
    return stop if stop >= 0 else 0


cdef Py_ssize_t whole_part(Pass* s, Py_ssize_t at, bint plain) noexcept nogil:
    cdef int count = 0, index
    cdef Py_ssize_t end = write_digits(s, at, &count)
    cdef Py_ssize_t start, stop
    cdef Unit unit
    if plain or count > 3:
        return end
    while True:
        start = thousands_separator(s, end)
        if start == 0:
            return end
        stop = start
        for index in range(3):
            unit = unit_at(s, stop)
            if unit.cls != CH_DIGIT:
                return end
            stop += unit.width
        if class_of(s, stop) == CH_DIGIT or list_goes_on(s, stop):
            return end
        end = write_digits(s, start, &count)


cdef bint list_goes_on(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Tell whether a comma and a number that is no group of three digits stand at ``at``."""
    cdef Unit unit = unit_at(s, at)
    cdef int count = 0
    if unit.code != u',':
        return False
    at += unit.width
    unit = unit_at(s, at)
    while unit.cls == CH_DIGIT and count <= 3:
        at += unit.width
        count += 1
        unit = unit_at(s, at)
    return count > 0 and count != 3


cdef bint repeating_part(
    const Pass* s, Py_ssize_t at, Py_ssize_t* first, Py_ssize_t* stop, Py_ssize_t* end
) noexcept nogil:
    """Find the digits of ``\\overline{36}`` at ``at``, where a backslash stands."""
    cdef Py_ssize_t past = skip_name(s, at, b"\\overline")
    cdef Unit unit
    if past < 0:
        past = skip_name(s, at, b"\\bar")
    if past < 0:
        past = skip_name(s, at, b"\\overbar")
    if past < 0:
        return False
    past = skip_spaces(s, past)
    unit = unit_at(s, past)
    if unit.cls == CH_DIGIT:
        first[0] = past
        stop[0] = end[0] = past + unit.width
        return True
    if unit.cls != CH_BRACE_OPEN:
        return False
    past = skip_spaces(s, past + unit.width)
    first[0] = past
    unit = unit_at(s, past)
    while unit.cls == CH_DIGIT:
        past += unit.width
        unit = unit_at(s, past)
    stop[0] = past
    past = skip_spaces(s, past)
    unit = unit_at(s, past)
    end[0] = past + unit.width
    return unit.cls == CH_BRACE_CLOSE and stop[0] > first[0]


cdef Py_ssize_t write_repeating(
    Pass* s, Py_ssize_t at, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t end
) noexcept nogil:
    """Write the digits [first, stop) in brackets, which stand for the input [at, end)."""
    cdef Unit unit
    put_byte(s, c'(', at, first)
    while first < stop:
        unit = unit_at(s, first)
        put_byte(s, <uint8_t>unit.code, first, first + unit.width)
        first += unit.width
    put_byte(s, c')', stop, end)
    return end


cdef Py_ssize_t decimal_part(
    Pass* s, Py_ssize_t at, bint may_repeat, bint* repeats
) noexcept nogil:
    """Write the point at ``at`` and what is behind it, without trailing zeros."""
    cdef Py_ssize_t mark = s.size
    cdef Py_ssize_t first, stop, past
    cdef Unit unit = unit_at(s, at)
    cdef Py_ssize_t end = at + unit.width
    cdef int count = 0
    put_byte(s, c'.', at, end)
    end = write_digits(s, end, &count)
    unit = unit_at(s, end)
    if unit.cls == CH_BACKSLASH and may_repeat and repeating_part(s, end, &first, &stop, &past):
        repeats[0] = True
        return write_repeating(s, end, first, stop, past)
    if not (unit.cls == CH_POINT and class_of(s, end + unit.width) == CH_DIGIT):
        while s.out[s.size - 1] == c'0':
            s.size -= 1
        if s.size == mark + 1:
            s.size = mark
    extend_last(s, end)
    return end


cdef inline Py_ssize_t plain_number_end(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Return the end of a number that is a few digits and stands for itself, else 0."""
    cdef Py_ssize_t end = at
    if s.last == K_UNDERSCORE:
        return 0
    if s.gap == GAP_NONE and s.last in (K_LETTER, K_WORD):
        return 0
    while end < s.length and c'0' <= s.data[end] <= c'9':
        end += 1
    if end < s.length and not NUMBER_ENDS[s.data[end]]:
        return 0
    return end if end > at else 0


cdef Py_ssize_t number(Pass* s, Py_ssize_t at) noexcept nogil:
    """A number in decimal notation."""
    cdef Py_ssize_t end = plain_number_end(s, at)
    cdef Py_ssize_t index
    if end == 0:
        return decimal_number(s, at)
    junction(s, K_NUMBER, at, at)
    for index in range(at, end):
        put_byte(s, s.data[index], index, index + 1)
    note(s, K_NUMBER, C_NONE)
    after(s, K_NUMBER)
    start_units(s)
    return end


cdef Py_ssize_t decimal_number(Pass* s, Py_ssize_t at) noexcept nogil:
    """A number with a point, separators of thousands, or a letter that it belongs to."""
    cdef bint listing = s.flags & F_LISTING and s.gap == GAP_NONE
    cdef bint glued = (
        s.gap == GAP_NONE
        and not s.product
        and s.last in (K_LETTER, K_WORD)
        and not s.flags & F_SEALED
    )
    cdef bint index = s.last == K_UNDERSCORE
    cdef int last = s.last
    cdef bint function = s.flags & F_FUNCTION
    cdef bint repeats = False
    cdef Py_ssize_t end, first, stop, past
    cdef int following
    cdef Unit unit = unit_at(s, at)
    junction(s, K_NUMBER, at, at)
    if unit.cls == CH_POINT:
        put_byte(s, c'0', at, at)
        end = at
    else:
        end = whole_part(s, at, listing or glued or index)
    unit = unit_at(s, end)
    if unit.cls == CH_POINT:
        following = class_of(s, end + unit.width)
        if following == CH_DIGIT:
            end = decimal_part(s, end, not (glued or index), &repeats)
        elif following == CH_BACKSLASH and not (glued or index):
            if repeating_part(s, end + unit.width, &first, &stop, &past):
                repeats = True
                put_byte(s, c'.', end, end + unit.width)
                end = write_repeating(s, end + unit.width, first, stop, past)
    if glued:
        after(s, last)
        set_flag(s, F_FUNCTION, function)
        return end
    note(s, K_NUMBER, C_NONE)
    after(s, K_LETTER if index else K_NUMBER)
    set_flag(s, F_SEALED, index or repeats)
    if not index:
        start_units(s)
    return end


cdef Py_ssize_t vulgar_fraction(
    Pass* s, uint32_t code, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    cdef const char* text = FRACTION_TEXT[code]
    if s.gap == GAP_NONE and not s.product and s.last == K_NUMBER:
        separate(s, K_NUMBER, at)
    else:
        junction(s, K_NUMBER, at, end)
    while text[0]:
        put_byte(s, <uint8_t>text[0], at, end)
        text += 1
    note(s, K_NUMBER, C_QUOTIENT)
    after(s, K_NUMBER)
    s.flags |= F_SEALED
    start_units(s)
    return end


cdef inline Py_ssize_t write_script(Pass* s, Py_ssize_t at, int cls) noexcept nogil:
    cdef Unit unit = unit_at(s, at)
    while unit.cls == cls:
        put_byte(s, SCRIPT_TEXT[unit.code], at, at + unit.width)
        at += unit.width
        unit = unit_at(s, at)
    return at


cdef Py_ssize_t superscript(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    write_product(s)
    put_byte(s, c'^', at, at)
    note(s, K_OPERATOR, C_NONE)
    s.last = K_CARET
    at = write_script(s, at, CH_SUPERSCRIPT)
    note(s, K_NUMBER, C_NONE)
    after(s, K_NUMBER)
    s.flags |= F_SEALED
    return at


cdef Py_ssize_t subscript(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    write_product(s)
    if s.last != K_LETTER or s.gap != GAP_NONE:
        put_byte(s, c'_', at, at)
    at = write_script(s, at, CH_SUBSCRIPT)
    after(s, K_LETTER)
    s.flags |= F_SEALED
    return at
