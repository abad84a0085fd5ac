# Letters behind a number that are units, and those that are factors; as pure/operands.py.  Unit
# words are in core/tables.py.

cdef inline bint name_goes_on(int cls) noexcept nogil:
    """Tell what makes a name or a factor of a letter before it."""
    return cls in (CH_DIGIT, CH_UNDERSCORE, CH_PRIME, CH_OPEN, CH_SUBSCRIPT)


cdef bint names_degrees(const Pass* s, Py_ssize_t end) noexcept nogil:
    """Tell whether the letter behind a degree sign is its scale."""
    cdef Py_ssize_t at
    if s.gap == GAP_BREAK or name_goes_on(class_of(s, end)):
        return False
    if s.gap in (GAP_THIN, GAP_SPACE) and (class_of(s, skip_spaces(s, end)) == CH_EQUALS):
        at = number_start(s)  # 20° C + 5° C = 25° C, but A = 30° C = 40°
        return at > s.base and s.out[at - 1] in b"+-*/"
    return True


cdef bint is_unit(Pass* s, Py_ssize_t end) noexcept nogil:
    """Tell whether the letter behind a number is a unit, no variable."""
    cdef Py_ssize_t at
    cdef uint8_t sign
    cdef bint dropped
    if name_goes_on(class_of(s, end)) or not unit_ends(s, end):
        return False
    at = number_start(s)
    if at <= s.base:
        return False
    sign = s.out[at - 1]
    if sign not in b"+-*/=":
        return False
    dropped = s.dropped_at == at - 1
    if sign == c'=':
        return drop_unit_letters(s, at - 1) or dropped
    return dropped


cdef void reach_unit(Pass* s) noexcept nogil:
    """Take the letters out of a relation's left side where its right side has a known unit."""
    cdef Py_ssize_t stop, at
    if s.letter_at < s.base or s.size - s.letter_at > 2 * REWRITE_LIMIT:
        return
    at = stop = number_start(s) - 1
    if s.gap == GAP_BREAK or stop < s.base or s.out[stop] != c'=':
        return
    while at > s.base and stop - at < REWRITE_LIMIT and s.out[at - 1] != c'=':
        at -= 1
        if s.out[at] in b"+-*/":
            drop_unit_letters(s, stop)
            return


cdef bint unit_ends(const Pass* s, Py_ssize_t end) noexcept nogil:
    """Tell whether what follows leaves a letter behind a number a unit."""
    cdef Py_ssize_t at = skip_spaces(s, end)
    cdef Unit unit = unit_at(s, at)
    cdef int count = 0, cls
    if unit.cls == CH_LETTER:
        return (unit.code in (u'x', u'X') or class_of(s, at + unit.width) == CH_LETTER)
    if unit.cls not in (CH_PLUS, CH_MINUS):
        return True
    at = skip_spaces(s, at + unit.width)
    unit = unit_at(s, at)
    while unit.cls in (CH_DIGIT, CH_POINT, CH_COMMA):
        at += unit.width
        count += 1
        if count > UNIT_DIGITS_LIMIT:
            return False
        unit = unit_at(s, at)
    if count == 0:
        return False
    cls = class_of(s, skip_spaces(s, at))
    return cls in (CH_LETTER, CH_BACKSLASH)


cdef bint unit_apart(const Pass* s) noexcept nogil:
    """Tell whether a letter is the first one in the braces of \\text behind a number."""
    return (
        s.depth > 0
        and s.frames[s.depth - 1].group == G_TEXT
        and s.frames[s.depth - 1].position == s.size
    )


cdef Py_ssize_t number_start(const Pass* s) noexcept nogil:
    """Return where the number at the end of the output begins; 0 if it is too long."""
    cdef Py_ssize_t at = s.size
    while at > s.base and (c'0' <= s.out[at - 1] <= c'9' or s.out[at - 1] == c'.'):
        at -= 1
        if s.size - at > UNIT_DIGITS_LIMIT:
            return 0
    return at


cdef inline bint is_unit_byte(uint8_t byte) noexcept nogil:
    return UNIT_LETTER[byte] & UNIT_OF_NUMBER != 0


cdef inline bint is_gap_byte(uint8_t byte) noexcept nogil:
    return byte in b" \n"


cdef inline bint in_side(uint8_t byte) noexcept nogil:
    """Tell what a side of a relation between numbers is made of."""
    return (
        c'(' <= byte <= c'9' and byte != c','
        or byte == c'^'
        or is_gap_byte(byte)
        or is_unit_byte(byte)
    )


cdef bint drop_unit_letters(Pass* s, Py_ssize_t stop) noexcept nogil:
    """Take the units of one letter out of the side of a relation that ends at ``stop``.

    Return whether each of its terms had a unit; otherwise nothing is taken out.
    """
    cdef uint8_t removed[REWRITE_LIMIT + 1]
    cdef uint8_t* out = s.out
    cdef Py_ssize_t start = stop
    cdef Py_ssize_t at, first, write
    cdef bint unit = False, any_removed = False
    cdef int index
    cdef uint8_t byte
    while start > s.base and in_side(out[start - 1]):
        start -= 1
        if stop - start > REWRITE_LIMIT:
            return False
        if is_gap_byte(out[start]) and not is_unit_byte(out[start + 1]):
            start += 1
            break
    if start > s.base and out[start - 1] not in b"=<> \n:,;.(":
        return False
    if start <= s.factor_at < stop:
        return False  # 20 * h = 10h
    memset(removed, 0, REWRITE_LIMIT + 1)
    first = stop
    at = start
    while at < stop:
        byte = out[at]
        if byte in b"+-" and at > start:
            if not unit and s.dropped_at != at:
                return False
            unit = False
        elif s.dropped_at == at:
            unit = True
        elif is_unit_byte(byte) or is_gap_byte(byte):
            first = min(first, at)
            if at == start or not c'0' <= out[at - 1] <= c'9':
                return False
            if is_gap_byte(byte):
                removed[at - start] = 1
                at += 1
            if at >= stop or not is_unit_byte(out[at]):
                return False
            while True:
                removed[at - start] = 1
                at += 1
                if at + 1 < stop and out[at] == c'^' and c'0' <= out[at + 1] <= c'9':
                    removed[at - start] = 1
                    removed[at + 1 - start] = 1
                    at += 2
                if at + 1 < stop and out[at] == c'/' and is_unit_byte(out[at + 1]):
                    removed[at - start] = 1
                    at += 1
                    continue
                break
            if at < stop and out[at] not in b"+-*/)":
                return False
            unit = True
            continue
        at += 1
    if not unit and s.dropped_at != stop:
        return False
    if first == stop:
        return True
    for index in range(s.depth):
        if s.frames[index].position > first:
            return False
    write = first
    for at in range(first, s.size):
        if at < stop and removed[at - start]:
            continue
        out[write] = out[at]
        if s.starts != NULL:
            s.starts[write] = s.starts[at]
            s.ends[write] = s.ends[at]
        write += 1
    s.size = write
    s.dropped_at = -1
    s.past_unit_end = -1
    s.has_closed = False
    s.unit_at = s.size
    return True


cdef bint is_factor_pair(const Pass* s, const uint8_t* letters_, Py_ssize_t end) noexcept nogil:
    """Tell whether two letters apart from a number are its factors: 4 ac, 2 xy = 6."""
    cdef Py_ssize_t at
    cdef int cls
    if s.last != K_NUMBER or s.product or letters_[0] >= 0x80:
        return False
    if s.gap not in (GAP_THIN, GAP_SPACE):
        return False
    cls = class_of(s, skip_marks(s, end))
    if are_capitals(letters_) or cls in (
        CH_PLUS, CH_MINUS, CH_STAR, CH_TIMES, CH_CARET, CH_EQUALS
    ):
        return True
    at = number_start(s)
    return at > s.base and s.out[at - 1] in b"+-*/^("
