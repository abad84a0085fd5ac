# Fractions and binomials; as pure/groups.py.

cdef int numerator_goes(const Pass* s, const Frame* frame) noexcept nogil:
    cdef int before = frame.before
    cdef bint number
    if s.size - frame.position - 1 > REWRITE_LIMIT:
        return KEEP_BRACKET
    if s.tokens == 0:
        return TAKE_OUT
    if s.content & (C_SUM | C_QUOTIENT | C_OTHER):
        return KEEP_BRACKET
    if s.content & C_LEADING_MINUS:
        return TAKE_OUT if before_is_free(before) or frame.separated else KEEP_BRACKET
    number = s.first == K_NUMBER
    if frame.separated:
        return TAKE_OUT
    if before == K_NUMBER:
        if not number:
            return TAKE_OUT
        return c'*' if frame.product else c' '
    if before in (K_LETTER, K_CLOSE):
        return c'*' if number else TAKE_OUT
    if before == K_WORD:
        return c' '
    return TAKE_OUT


cdef bint read_argument(
    const Pass* s, Py_ssize_t at, Py_ssize_t* start, Py_ssize_t* stop, bint* brace
) noexcept nogil:
    """Find a fraction's argument at ``at``; False where there is none to be read."""
    cdef Unit unit
    at = skip_spaces(s, at)
    unit = unit_at(s, at)
    start[0] = at
    stop[0] = at + unit.width
    brace[0] = unit.cls == CH_BRACE_OPEN
    return brace[0] or unit.cls in (CH_DIGIT, CH_LETTER, CH_SYMBOL)


cdef bint fraction_multiplies(const Pass* s, Py_ssize_t at, int group) noexcept nogil:
    """Tell whether the fraction with its arguments at ``at`` is a factor of what is before it."""
    if s.gap >= GAP_MARK:
        return False
    if s.last == K_LETTER:
        return not s.flags & F_WORDY
    return s.last == K_NUMBER and not (group == G_NUMERATOR and is_plain_fraction(s, at))


cdef bint is_plain_fraction(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Tell whether both arguments at ``at`` are whole numbers."""
    cdef int argument, count
    cdef bint brace
    cdef Unit unit
    for argument in range(2):
        at = skip_spaces(s, at)
        unit = unit_at(s, at)
        brace = unit.cls == CH_BRACE_OPEN
        if brace:
            at = skip_spaces(s, at + unit.width)
            unit = unit_at(s, at)
        count = 0
        while unit.cls == CH_DIGIT and count < (UNIT_DIGITS_LIMIT if brace else 1):
            at += unit.width
            count += 1
            unit = unit_at(s, at)
        if count == 0:
            return False
        if brace:
            at = skip_spaces(s, at)
            unit = unit_at(s, at)
            if unit.cls != CH_BRACE_CLOSE:
                return False
            at += unit.width
    return True


cdef void write_argument(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, at)
    cdef int kind = K_NUMBER if unit.cls == CH_DIGIT else K_LETTER
    put_code(s, unit.code, at, end)
    note(s, kind, C_NONE)
    after(s, kind)


cdef Py_ssize_t read_denominator(Pass* s, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t start, stop
    cdef bint brace
    if not read_argument(s, end, &start, &stop, &brace):
        return end
    put_byte(s, c'/', end, start)
    note(s, K_OPERATOR, C_QUOTIENT)
    after(s, K_OPERATOR)
    if brace:
        if not full(s):
            open_bracket(s, G_DENOMINATOR, start, stop, K_OPERATOR, False, False)
        return stop
    write_argument(s, start, stop)
    if s.last == K_NUMBER:
        start_units(s)
    s.flags |= F_SEALED
    return stop


cdef Py_ssize_t close_numerator(
    Pass* s, const Frame* frame, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    cdef int verdict = numerator_goes(s, frame)
    if verdict == KEEP_BRACKET:
        keep_bracket(s, frame, at, end)
    else:
        drop_bracket(s, frame, verdict, end)
    return read_denominator(s, end)


cdef Py_ssize_t close_denominator(
    Pass* s, const Frame* frame, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    cdef Py_ssize_t length = s.size - frame.position - 1
    cdef bint single = one_factor(s)
    cdef bint name = s.content == C_WORDS and holds_words(s, frame.position + 1, False, False)
    if (single and length <= REWRITE_LIMIT) or name:
        drop_bracket(s, frame, TAKE_OUT, end)
    else:
        keep_bracket(s, frame, at, end)
    return end


cdef Py_ssize_t close_binom_top(
    Pass* s, const Frame* frame, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    cdef Py_ssize_t start, stop
    cdef bint brace
    cdef Frame lower
    put_byte(s, c',', at, end)
    after(s, K_PUNCTUATION)
    if not read_argument(s, end, &start, &stop, &brace):
        keep_bracket(s, frame, at, end)
        return end
    if brace:
        # The same bracket goes on; its frame now closes with the lower argument.
        lower = frame[0]
        lower.group = G_BINOM_BOTTOM
        s.frames[s.depth] = lower
        s.depth += 1
        s.braces += 1
        return stop
    write_argument(s, start, stop)
    keep_bracket(s, frame, start, stop)
    return stop


cdef Py_ssize_t open_fraction(Pass* s, Py_ssize_t at, Py_ssize_t end, int group) noexcept nogil:
    cdef Py_ssize_t start, stop
    cdef bint brace, product = False, separated = False
    cdef int before
    cdef Frame frame
    if not read_argument(s, end, &start, &stop, &brace):
        return end
    if full(s):
        return end
    before = s.last
    if s.product and ends_factor(before):
        product = True
        s.product = False
        s.gap = GAP_NONE
    elif s.product:
        write_product(s)
        before = K_OPERATOR
    elif s.gap <= GAP_THIN and ends_factorial(s):
        put_product(s, at)
        before = K_OPERATOR
    elif fraction_multiplies(s, end, group):
        product = before == K_NUMBER
        s.gap = GAP_NONE
    elif s.gap != GAP_NONE and needs_separator(s, K_NUMBER, at, end):
        separated = separate(s, K_NUMBER, at)
    if group == G_BINOM_TOP:
        put_byte(s, c'C', at, start)
        note(s, K_LETTER, C_NONE)
        before = K_LETTER
        separated = False
        product = False
    open_bracket(s, group, at, stop if brace else start, before, separated, product)
    if brace:
        return stop
    write_argument(s, start, stop)
    frame = pop(s)
    if group == G_BINOM_TOP:
        return close_binom_top(s, &frame, start, stop)
    return close_numerator(s, &frame, start, stop)
