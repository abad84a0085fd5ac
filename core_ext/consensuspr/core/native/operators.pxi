# Operators, relations, punctuation and Markdown; as pure/operators.py.

cdef enum:
    MOST_PRIMES = 3
    MOST_INDEX_DIGITS = 6

# Values of sides from which on they are not worked out.
cdef int64_t SIDE_LIMIT = 1000000000000000000


cdef Py_ssize_t relation(Pass* s, uint32_t code, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    drop_units(s)
    write_product(s)
    put_code(s, code, at, end)
    note(s, K_RELATION, C_OTHER)
    after(s, K_RELATION)
    return end


cdef Py_ssize_t operator(
    Pass* s, uint32_t code, Py_ssize_t at, Py_ssize_t end, int content
) noexcept nogil:
    drop_units(s)
    write_product(s)
    put_code(s, code, at, end)
    note(s, K_OPERATOR, content)
    after(s, K_OPERATOR)
    return end


cdef Py_ssize_t punctuation(
    Pass* s, uint32_t code, Py_ssize_t at, Py_ssize_t end, int kind
) noexcept nogil:
    write_product(s)
    put_code(s, code, at, end)
    note(s, kind, C_OTHER)
    after(s, kind)
    return end


cdef Py_ssize_t other(Pass* s, uint32_t code, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    write_product(s)
    if s.last == K_SENTENCE and s.gap > GAP_GLUE:
        separate(s, K_OTHER, at)
    put_code(s, code, at, end)
    note(s, K_OTHER, C_OTHER)
    after(s, K_OTHER)
    return end


cdef Py_ssize_t run_end(
    const Pass* s, Py_ssize_t at, Py_ssize_t end, uint32_t code, Py_ssize_t* count
) noexcept nogil:
    """Return the end of the run of ``code`` at ``at`` and its length; [at, end) if another."""
    cdef Unit unit = unit_at(s, at)
    if unit.code != code:
        count[0] = 1
        return end
    count[0] = 0
    while unit.code == code:
        at += unit.width
        count[0] += 1
        unit = unit_at(s, at)
    return at


cdef Py_ssize_t arrow(Pass* s, Py_ssize_t end) noexcept nogil:
    widen(s, GAP_BREAK)
    s.unit_words = -1
    s.flags &= ~F_LINE_START
    return end


cdef Py_ssize_t equals(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t count
    cdef Unit unit
    end = run_end(s, at, end, u'=', &count)
    if count >= 3:
        widen(s, GAP_BREAK)
        return end
    unit = unit_at(s, end)
    if unit.cls == CH_GREATER:
        return arrow(s, end + unit.width)
    return relation(s, u'=', at, end)


cdef Py_ssize_t less(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, end)
    cdef Unit third
    if unit.cls == CH_EQUALS:
        third = unit_at(s, end + unit.width)
        if third.cls == CH_GREATER:
            return arrow(s, end + unit.width + third.width)
        return relation(s, 0x2264, at, end + unit.width)
    if unit.cls == CH_LESS:
        widen(s, GAP_MARK)
        return end + unit.width
    return relation(s, u'<', at, end)


cdef Py_ssize_t greater(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, end)
    if s.flags & F_LINE_START and is_blank(unit.cls):
        return end
    if unit.cls == CH_EQUALS:
        return relation(s, 0x2265, at, end + unit.width)
    if unit.cls == CH_GREATER:
        widen(s, GAP_MARK)
        return end + unit.width
    return relation(s, u'>', at, end)


cdef Py_ssize_t bullet(Pass* s, Py_ssize_t end) noexcept nogil:
    """Let a list mark vanish; at a line's start it begins a paragraph."""
    if s.flags & F_LINE_START:
        begin_paragraph(s, end)
    widen(s, GAP_BREAK)
    s.flags &= ~F_LINE_START
    return end


cdef Py_ssize_t minus(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Unit right = unit_at(s, end)
    cdef Unit unit
    cdef Py_ssize_t count, run, stop
    # A real minus sign is neither a bullet nor a hyphen.
    cdef bint dash = code_of(s, at) != 0x2212
    if dash and s.flags & F_LINE_START and is_blank(right.cls):
        return bullet(s, end)
    run = run_end(s, at, end, u'-', &count)
    unit = unit_at(s, run)
    if unit.cls == CH_GREATER:
        return arrow(s, run + unit.width)
    if count >= 3:
        widen(s, GAP_BREAK)
        return run
    if s.product:
        pass
    elif s.gap <= GAP_GLUE and s.last in (K_WORD, K_LETTER, K_NUMBER):
        stop = plain_word_end(s, end, True) if dash else 0
        if stop:
            return hyphen(s, at, end, stop)
    elif s.gap >= GAP_THIN and is_blank(right.cls) and is_dash(s, end):
        return bullet(s, end)
    elif is_sign(s, right.cls):
        separate(s, K_OPERATOR, at)
        s.unit_words = -1
    return operator(s, u'-', at, end, C_SUM)


cdef bint is_dash(const Pass* s, Py_ssize_t end) noexcept nogil:
    """Tell a dash between blanks from a difference."""
    cdef Py_ssize_t stop = skip_spaces(s, end)
    cdef int cls
    if s.gap == GAP_BREAK:
        cls = class_of(s, stop)
        if cls in (CH_BAR, CH_NEWLINE) or stop >= s.length:
            return True
    return plain_word_end(s, stop, True) > 0 and plain_word_end(s, stop, False) == 0


cdef inline bint is_sign(const Pass* s, int right) noexcept nogil:
    """Tell a sign, tight before its operand, from a difference."""
    if s.last == K_WORD:
        if s.gap < GAP_THIN or s.gap == GAP_MARK:
            return False
    elif s.gap != GAP_BREAK or not ends_operand(s.last):
        return False
    return right in (CH_DIGIT, CH_LETTER, CH_SYMBOL, CH_OPEN, CH_POINT, CH_BACKSLASH)


cdef Py_ssize_t plain_word_end(const Pass* s, Py_ssize_t at, bint stop_words) noexcept nogil:
    """Return the end of the word of two letters or more at ``at``, 0 where none stands."""
    cdef uint8_t lower[16]
    cdef Py_ssize_t end = at
    cdef int length = 0
    cdef bint named = True
    cdef const WordEntry* entry
    cdef Unit unit = unit_at(s, end)
    memset(lower, 0, 16)
    while unit.cls == CH_LETTER:
        if unit.code >= 0x80 or length >= 16:
            named = False
        else:
            lower[length] = LOWER[unit.code]
        if length < MANY_TOKENS:
            length += 1
        end += unit.width
        unit = unit_at(s, end)
    if length < 2:
        return 0
    if named:
        entry = find_word(&WORD_NAMES.any, word_shape(lower, length), lower, length)
        if entry != NULL and entry.meaning == W_STOP:
            return end if stop_words else 0
        if entry != NULL and entry.meaning == W_MINUTES:
            return 0 if unit.cls in (CH_OPEN, CH_UNDERSCORE) else end
        if entry != NULL and entry.meaning not in (W_GLUED_UNIT, W_CURRENCY):
            return 0
    return end


cdef void append_letters(
    Pass* s, uint8_t sign, Py_ssize_t at, Py_ssize_t start, Py_ssize_t stop
) noexcept nogil:
    """Write ``sign`` and the letters [start, stop) as a part of the last word."""
    cdef Unit unit
    put_byte(s, sign, at, stop)
    while start < stop:
        unit = unit_at(s, start)
        put_code(s, LOWER[unit.code] if unit.code < 0x80 else unit.code, at, stop)
        start += unit.width
    note(s, K_WORD, C_WORDS)
    after(s, K_WORD)


cdef Py_ssize_t hyphen(Pass* s, Py_ssize_t at, Py_ssize_t end, Py_ssize_t stop) noexcept nogil:
    """A hyphen inside a word, no operator."""
    cdef int words = s.unit_words
    if s.last != K_WORD:
        words = -1
    append_letters(s, c'-', at, end, stop)
    s.unit_words = words
    return stop


cdef Py_ssize_t times(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    drop_units(s)
    if not ends_operand(s.last) and s.last != K_SENTENCE:
        return operator(s, u'*', at, end, C_PRODUCT)
    write_product(s)
    s.product = True
    s.product_at = at
    s.product_end = end
    s.gap = GAP_NONE
    s.unit_words = -1
    s.flags &= ~F_LINE_START
    return end


cdef bint star_multiplies(const Pass* s, Py_ssize_t end) noexcept nogil:
    cdef bint spaced_left, spaced_right
    cdef Unit right
    if s.last == K_SENTENCE:
        if s.size == 0 or s.out[s.size - 1] != c'!':
            return False
    elif not ends_operand(s.last) or s.product:
        return False
    spaced_left = s.gap > GAP_GLUE
    right = unit_at(s, end)
    spaced_right = is_blank(right.cls)
    if spaced_left and not spaced_right:
        if s.last == K_WORD or s.gap == GAP_BREAK:
            return False
        if right.cls == CH_LETTER and class_of(s, end + right.width) == CH_LETTER:
            return False
    elif spaced_right and not spaced_left:
        if s.last == K_WORD:
            return False
        end = skip_spaces(s, end)
        right = unit_at(s, end)
        if right.cls == CH_NEWLINE:
            return False
        if right.cls == CH_LETTER and class_of(s, end + right.width) == CH_LETTER:
            return False
    elif spaced_right:
        return True
    if right.cls == CH_POINT:
        return starts_number(s, end)
    return right.cls == CH_MINUS or starts_factor(right.cls)


cdef bint closes_apart(const Pass* s, Py_ssize_t end) noexcept nogil:
    """Tell whether an asterisk between blanks ends an emphasis."""
    cdef Unit right
    if not is_blank(class_of(s, end)):
        return False
    end = skip_spaces(s, end)
    if plain_word_end(s, end, True) and not plain_word_end(s, end, False):
        return True
    right = unit_at(s, end)
    return not (right.cls == CH_MINUS or starts_factor(right.cls) or starts_number(s, end))


cdef inline bint starts_factor(int cls) noexcept nogil:
    return cls in (
        CH_DIGIT, CH_LETTER, CH_SYMBOL, CH_ROOT, CH_OPEN, CH_BRACKET_OPEN, CH_BACKSLASH,
        CH_BRACE_OPEN, CH_FRACTION, CH_MARK,
    )


cdef Py_ssize_t star(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t count
    cdef Py_ssize_t run = run_end(s, at, end, u'*', &count)
    cdef int right
    cdef bint tight, closes
    cdef Unit following
    if count == 2 and s.gap <= GAP_GLUE and ends_factor(s.last):
        right = class_of(s, run)
        if right in (CH_DIGIT, CH_LETTER, CH_SYMBOL, CH_OPEN):
            return caret_sign(s, at, run)
    if count > 1:
        widen(s, GAP_MARK)
        return run
    if s.flags & F_LINE_START and is_blank(class_of(s, end)):
        return bullet(s, end)
    tight = s.gap <= GAP_GLUE
    following = unit_at(s, end)
    closes = s.emphasis and (
        is_blank(following.cls) or (following.cls == CH_MARK and following.code != u'$')
        if tight
        else closes_apart(s, end)
    )
    if not closes and star_multiplies(s, end):
        return times(s, at, end)
    s.emphasis = not closes and not (tight and ends_operand(s.last))
    widen(s, GAP_MARK)
    return end


cdef void bare_numerator(Pass* s) noexcept nogil:
    cdef bint free_, sign
    if not s.has_closed or s.last != K_CLOSE or s.closed_end != s.size:
        return
    if s.closed_end - s.closed_position > REWRITE_LIMIT or s.closed_tokens == 0:
        return
    if s.closed_content & ~(C_PRODUCT | C_LEADING_MINUS):
        return
    free_ = before_is_free(s.closed_before)
    if s.closed_content & C_LEADING_MINUS and not (free_ or s.closed_separated):
        return
    sign = s.closed_position > 0 and s.out[s.closed_position - 1] in b"+-"
    if not (free_ or s.closed_separated or (s.closed_before == K_OPERATOR and sign)):
        return
    s.size = s.closed_end - 1
    remove_open(s, s.closed_position)
    s.has_closed = False


cdef Py_ssize_t slash(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t start, stop
    if rate_end(s, end, &start, &stop):
        rate(s, at, start, stop)
        return argument_end(s, stop) if start > skip_spaces(s, end) else stop
    drop_units(s)
    write_product(s)
    bare_numerator(s)
    put_byte(s, c'/', at, end)
    note(s, K_OPERATOR, C_QUOTIENT)
    after(s, K_OPERATOR)
    return end


cdef bint rate_end(
    const Pass* s, Py_ssize_t end, Py_ssize_t* start, Py_ssize_t* stop
) noexcept nogil:
    """Find the unit after a bar as in 5 km/h or 10/day; False where none stands."""
    cdef Unit unit
    cdef Py_ssize_t inside
    if s.unit_words < 0 or s.unit_words >= UNIT_WORDS_LIMIT or s.product:
        return False
    if s.gap == GAP_BREAK:
        return False
    start[0] = skip_spaces(s, end)
    if code_of(s, start[0]) == u'\\':
        inside = skip_name(s, start[0], b"\\text{")
        if inside < 0:
            inside = skip_name(s, start[0], b"\\mathrm{")
        if inside < 0:
            return False
        start[0] = skip_spaces(s, inside)
        stop[0] = plain_word_end(s, start[0], False)
        return stop[0] > 0 and argument_end(s, stop[0]) > 0
    stop[0] = plain_word_end(s, start[0], False)
    if stop[0]:
        return True
    if s.unit_words == 0:
        return False
    unit = unit_at(s, end)
    start[0] = end
    stop[0] = end + unit.width
    return unit.cls == CH_LETTER and class_of(s, stop[0]) != CH_LETTER


cdef Py_ssize_t argument_end(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Return the index past the brace that closes at ``at``, 0 where none does."""
    cdef Unit unit
    at = skip_spaces(s, at)
    unit = unit_at(s, at)
    return at + unit.width if unit.cls == CH_BRACE_CLOSE else 0


cdef void rate(Pass* s, Py_ssize_t at, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Write the ``/word`` of a unit, apart from its number."""
    cdef int words = s.unit_words
    if s.last == K_NUMBER:
        s.gap = GAP_SPACE
        separate(s, K_WORD, at)
    append_letters(s, c'/', at, start, stop)
    s.unit_words = words + 1


cdef Py_ssize_t skip_name(const Pass* s, Py_ssize_t at, const char* name) noexcept nogil:
    """Return the index past the ASCII ``name`` at ``at``, or -1."""
    cdef Unit unit
    while name[0]:
        unit = unit_at(s, at)
        if unit.code != <uint32_t>(<uint8_t>name[0]):
            return -1
        at += unit.width
        name += 1
    return at


cdef Py_ssize_t caret(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, end)
    cdef bint brace = unit.cls == CH_BRACE_OPEN
    cdef Py_ssize_t inner = end + unit.width if brace else end
    cdef Py_ssize_t stop, more
    cdef int which, count, index
    for which in range(3):
        count = 1
        if which == 0:
            stop = skip_name(s, inner, b"\\circ")
        elif which == 1:
            stop = skip_name(s, inner, b"\\prime")
            while stop >= 0 and count < MOST_PRIMES:
                more = skip_name(s, stop, b"\\prime")
                if more < 0:
                    break
                stop = more
                count += 1
        else:
            unit = unit_at(s, inner)
            stop = inner + unit.width if unit.code == 0xB0 else -1
        if stop < 0:
            continue
        if which < 2 and class_of(s, stop) == CH_LETTER:
            continue
        if brace:
            unit = unit_at(s, stop)
            if unit.cls != CH_BRACE_CLOSE:
                continue
            stop += unit.width
        if which == 1:
            for index in range(count):
                prime_sign(s, at, stop)
        else:
            s.flags |= F_DEGREE
        return stop
    return caret_sign(s, at, end)


cdef Py_ssize_t caret_sign(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    write_product(s)
    put_byte(s, c'^', at, end)
    note(s, K_OPERATOR, C_NONE)
    after(s, K_CARET)
    return end


cdef Py_ssize_t braced_index(Pass* s, Py_ssize_t at) noexcept nogil:
    """Write the digits of ``{12}`` at ``at`` and return the index past it; -1 if it is none."""
    cdef Py_ssize_t first = skip_spaces(s, at + unit_at(s, at).width)
    cdef Py_ssize_t stop = first
    cdef Py_ssize_t close, index
    cdef int count = 0
    cdef Unit unit = unit_at(s, stop)
    while unit.cls == CH_DIGIT and count < MOST_INDEX_DIGITS:
        stop += unit.width
        count += 1
        unit = unit_at(s, stop)
    close = skip_spaces(s, stop)
    unit = unit_at(s, close)
    if count == 0 or unit.cls != CH_BRACE_CLOSE:
        return -1
    close += unit.width
    index = first
    while index < stop:
        unit = unit_at(s, index)
        put_code(s, unit.code, index, index + unit.width)
        index += unit.width
    stop = close
    extend_last(s, stop)
    after(s, K_LETTER)
    s.flags |= F_SEALED
    return stop


cdef Py_ssize_t underscore(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t count, stop
    cdef Py_ssize_t run = run_end(s, at, end, u'_', &count)
    cdef bint tight = s.gap <= GAP_GLUE and ends_operand(s.last) and not s.product
    cdef int right = class_of(s, end)
    cdef bint subscript_ = right in (
        CH_DIGIT, CH_LETTER, CH_SYMBOL, CH_BRACE_OPEN, CH_BACKSLASH, CH_OPEN
    )
    if count > 1 or not tight or not subscript_:
        widen(s, GAP_BREAK if count >= 3 else GAP_MARK)
        return run
    if s.last == K_LETTER and not (s.size > 0 and c'0' <= s.out[s.size - 1] <= c'9'):
        if right == CH_DIGIT:
            return end
        if right == CH_BRACE_OPEN:
            stop = braced_index(s, end)
            if stop >= 0:
                return stop
    put_byte(s, c'_', at, end)
    note(s, K_OPERATOR, C_NONE)
    after(s, K_UNDERSCORE)
    return end


cdef Py_ssize_t prime(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef int words = s.unit_words
    cdef Py_ssize_t stop = end
    cdef Unit unit = unit_at(s, end)
    if s.gap <= GAP_GLUE and not s.product and s.last == K_WORD and unit.cls == CH_LETTER:
        while unit.cls == CH_LETTER:
            stop += unit.width
            unit = unit_at(s, stop)
        append_letters(s, c"'", at, end, stop)
        s.unit_words = words
        return stop
    return prime_sign(s, at, end)


cdef Py_ssize_t prime_sign(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """A prime, an apostrophe at a word's end or a quotation mark."""
    cdef int last = s.last
    cdef int words = s.unit_words
    if s.gap <= GAP_GLUE and not s.product and ends_operand(last) and last != K_NUMBER:
        put_byte(s, c"'", at, end)
        after(s, last)
        if last == K_WORD:
            s.unit_words = words  # 5 kids' toys
    else:
        widen(s, GAP_MARK)
    return end


cdef bint is_factorial(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Tell 5!=120 and n!=n(n-1)! from 2!=3; ``at`` is behind the equals sign."""
    cdef Unit unit = unit_at(s, at)
    cdef uint64_t right = 0, value = 0, product = 1
    cdef Py_ssize_t start
    cdef int count = 0
    if s.gap != GAP_NONE or s.product:
        return False
    if ends_factorial(s) or side_counts(s):
        return True
    if s.last == K_LETTER:
        return unit.cls == CH_LETTER and unit.code == s.out[s.size - 1] and unit.code < 0x80
    if s.last != K_NUMBER:
        return False
    while unit.cls == CH_DIGIT and count < 19:
        right = 10 * right + (unit.code - 48)
        at += unit.width
        count += 1
        unit = unit_at(s, at)
    if count == 0 or unit.cls == CH_DIGIT:
        return False
    start = number_start(s)
    if start == s.size or s.size - start > 2:
        return False
    for at in range(start, s.size):
        if s.out[at] == c'.':
            return False
        value = 10 * value + (s.out[at] - c'0')
    if right == value:
        return True
    if value > 20:
        return False
    for count in range(2, <int>value + 1):
        product *= <uint64_t>count
    return right == product or (
        right < <uint64_t>SIDE_LIMIT and <int64_t>right == side_value(s)
    )


cdef int64_t side_value(const Pass* s) noexcept nogil:
    """Return the value of the side at the output's end with a factorial behind it.

    -1 if it is no whole number, holds more than whole numbers and operators, or is large.
    """
    cdef Py_ssize_t at = s.size
    cdef Py_ssize_t stop = max(s.base, s.size - REWRITE_LIMIT)
    cdef int64_t total = 0, product, value
    cdef uint8_t sign = c'+', operator_
    while at > stop and (c'0' <= s.out[at - 1] <= c'9' or s.out[at - 1] in b"+-*/^"):
        at -= 1
    if at > s.base and s.out[at - 1] not in b" \n=<>,;:(":
        return -1
    while True:
        product = 1
        operator_ = c'*'
        while operator_ in b"*/":
            value = side_factor(s, &at)
            if value < 0:
                return -1
            if operator_ == c'/':
                if value == 0 or product % value:
                    return -1
                product //= value
            elif value and product > (SIDE_LIMIT - 1) // value:
                return -1
            else:
                product *= value
            operator_ = s.out[at] if at < s.size else 0
            at += 1
        total += -product if sign == c'-' else product
        if not -SIDE_LIMIT < total < SIDE_LIMIT:
            return -1
        if operator_ == 0:
            return total if total >= 0 else -1
        if operator_ not in b"+-":
            return -1
        sign = operator_


cdef int64_t side_factor(const Pass* s, Py_ssize_t* at) noexcept nogil:
    """Read a number and its exponent; -1 if there is none, or it is large."""
    cdef int64_t base = side_number(s, at, 18)
    cdef int64_t exponent, value = 1
    if base < 0 or at[0] >= s.size or s.out[at[0]] != c'^':
        return base
    at[0] += 1
    exponent = side_number(s, at, 2)
    if exponent < 0:
        return -1
    exponent = min(exponent, 64)
    while exponent > 0 and (base != 1 or value != 1):
        if base and value > (SIDE_LIMIT - 1) // base:
            return -1
        value *= base
        exponent -= 1
        if base <= 1:
            break
    return value


cdef int64_t side_number(const Pass* s, Py_ssize_t* at, int most) noexcept nogil:
    """Read a number of at most so many digits, or the factorial at the side's end."""
    cdef Py_ssize_t start = at[0]
    cdef int64_t value = 0, product = 1
    cdef int factor
    while at[0] < s.size and c'0' <= s.out[at[0]] <= c'9':
        if at[0] - start == most:
            return -1
        value = value * 10 + (s.out[at[0]] - c'0')
        at[0] += 1
    if at[0] == start:
        return -1
    if at[0] < s.size:
        return value
    if value > 19:
        return -1
    for factor in range(2, <int>value + 1):
        product *= factor
    return product


cdef bint side_counts(const Pass* s) noexcept nogil:
    """Tell whether the side at the output's end has a factorial or a binomial coefficient."""
    cdef Py_ssize_t start = s.size
    cdef Py_ssize_t stop = max(s.base, s.size - REWRITE_LIMIT)
    cdef uint8_t byte, before
    if not ends_factor(s.last):
        return False
    while start > stop:
        byte = s.out[start - 1]
        if not (
            is_output_letter(byte)
            or c'(' <= byte <= c'9' and byte != c'.'
            or byte in (c'^', c'!')
        ):
            return False
        start -= 1
        before = s.out[start - 1] if start > 0 else 0
        if byte == c'C' and start + 1 < s.size and s.out[start + 1] == c'(':
            if not is_output_letter(before):
                return True
        elif byte == c'!' and start > stop:
            if c'0' <= before <= c'9' or before == c')':
                return True
            if is_output_letter(before) and (start < 2 or not is_output_letter(s.out[start - 2])):
                return True
    return False


cdef Py_ssize_t bang(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, end)
    if unit.cls == CH_EQUALS and not is_factorial(s, end + unit.width):
        return relation(s, 0x2260, at, end + unit.width)
    write_product(s)
    put_byte(s, c'!', at, end)
    note(s, K_SENTENCE, C_NONE)
    after(s, K_SENTENCE)
    return end


cdef Py_ssize_t colon(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, end)
    if unit.cls == CH_EQUALS:
        return relation(s, u'=', at, end + unit.width)
    return punctuation(s, u':', at, end, K_PUNCTUATION)


cdef Py_ssize_t comma(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef bint listing = s.last == K_NUMBER and s.gap == GAP_NONE and not s.product
    punctuation(s, u',', at, end, K_PUNCTUATION)
    set_flag(s, F_LISTING, listing)
    return end


cdef Py_ssize_t point(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t stop
    if end < s.length and BYTE_CLASS[s.data[end]] == CH_POINT and code_of(s, at) == u'.':
        stop = skip_name(s, end, b"..")
        if stop >= 0:
            return other(s, 0x2026, at, stop)
    if (
        s.last == K_NUMBER
        and s.gap == GAP_NONE
        and not s.product
        and class_of(s, end) == CH_DIGIT
    ):
        return punctuation(s, u'.', at, end, K_PUNCTUATION)
    return punctuation(s, u'.', at, end, K_SENTENCE)


cdef Py_ssize_t bar(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef bint blank_right
    cdef Py_ssize_t stop
    if s.bar_open and s.gap == GAP_NONE:
        return absolute(s, at, end)
    if s.flags & F_LINE_START:
        stop = table_rule(s, end)
        if stop:
            widen(s, GAP_BREAK)
            return stop
    blank_right = is_blank(class_of(s, end)) or end >= s.length
    if s.flags & F_LINE_START and blank_right:
        s.table_row = True
    if blank_right or (s.table_row and s.gap in (GAP_SPACE, GAP_BREAK)):
        widen(s, GAP_BREAK)
        s.flags &= ~F_LINE_START
        return end
    return absolute(s, at, end)


cdef Py_ssize_t table_rule(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Return the end of a line such as ``|---|:-:|``, 0 if the line is none."""
    cdef bint dashes = False
    cdef Unit unit = unit_at(s, at)
    while at < s.length and unit.cls in (CH_BAR, CH_MINUS, CH_COLON, CH_SPACE):
        dashes = dashes or unit.cls == CH_MINUS
        at += unit.width
        unit = unit_at(s, at)
    return at if dashes and (at >= s.length or unit.cls == CH_NEWLINE) else 0


cdef Py_ssize_t absolute(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """A bar that is part of the formula; every other one opens an operand."""
    if not s.bar_open:
        junction(s, K_OPEN, at, end)
    s.bar_open = not s.bar_open
    return other(s, u'|', at, end)
