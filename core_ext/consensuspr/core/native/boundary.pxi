# The match rule: what may stand beside a hit; as pure/boundary.py.

cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return c'0' <= byte <= c'9'


cdef inline bint is_radical(const uint8_t* data) noexcept nogil:
    """Tell a radical from the angle signs of the same class; data holds three bytes."""
    return data[0] == 0xE2 and data[1] == 0x88 and 0x9A <= data[2] <= 0x9C


cdef enum:
    # tables.MAX_REWRITE_BYTES and MIN_NAME, which a test compares.
    BRACKET_LIMIT = 96
    LETTERS_OF_NAME = 4


cdef inline bint is_letter(uint8_t byte) noexcept nogil:
    return c'a' <= (byte | 0x20) <= c'z'


cdef bint is_factorial_sign(const uint8_t* data, Py_ssize_t at) noexcept nogil:
    """Tell whether the ! at ``at`` stands behind a number, a bracket or a single letter."""
    if at == 0:
        return False
    if is_digit(data[at - 1]) or data[at - 1] == c')':
        return True
    return is_letter(data[at - 1]) and (at == 1 or not is_letter(data[at - 2]))


cdef bint begins_word(const uint8_t* data, Py_ssize_t length, Py_ssize_t start) noexcept nogil:
    """Tell whether a word of prose stands at ``start``, or a name: no product of letters."""
    cdef Py_ssize_t end = start
    while end < length and end - start < LETTERS_OF_NAME and is_letter(data[end]):
        end += 1
    return end - start == LETTERS_OF_NAME or (
        end - start > 1 and end < length and data[end] == c' '
    )


cdef bint closes_absolute(const uint8_t* data, Py_ssize_t start) noexcept nogil:
    """Tell whether the bar before ``start`` is an even one of its line."""
    cdef Py_ssize_t at = start
    cdef bint even = True
    while at > 0 and start - at < BRACKET_LIMIT and data[at - 1] != c'\n':
        at -= 1
        even ^= data[at] == c'|'
    return even


cdef bint closes_factor(const uint8_t* data, Py_ssize_t start) noexcept nogil:
    """Tell whether the bracket that closes before ``start`` is a factor, no remark or label."""
    cdef uint8_t close = data[start - 1]
    cdef uint8_t opening = c'(' if close == c')' else c'['
    cdef uint8_t byte, left
    cdef bint signs = False, word = False, hyphen, beside
    cdef int depth = 0, letters = 0
    cdef Py_ssize_t at = start
    while at > 0 and start - at < BRACKET_LIMIT:
        at -= 1
        byte = data[at]
        if byte == close:
            depth += 1
        elif byte == opening:
            depth -= 1
            if depth == 0:
                break
        if is_letter(byte):
            letters += 1
            word = word or letters == LETTERS_OF_NAME
            continue
        left = data[at - 1] if at > 0 else 0
        hyphen = byte == c'-' and letters > 0 and is_letter(left)
        beside = letters > 0 or is_letter(left)
        if (byte == c' ' and beside) or byte in b"\n,;:?=<>":
            return False
        if byte == 0xE2 and data[at + 1] == 0x89:
            return False
        signs = signs or (byte in b"+-*/^|!" and not hyphen)
        # A product of a number and a letter, or a root.
        signs = signs or (is_digit(byte) and beside)
        signs = signs or (byte == 0xE2 and data[at + 1] == 0x88 and data[at + 2] == 0x9A)
        letters = 0
    if depth or data[at] != opening:
        return False
    if signs:
        return True
    if word or close != c')' or at == 0:
        return False
    left = data[at - 1]
    return is_letter(left) or is_digit(left) or left in b")]"


cdef bint stands_behind(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t start, int before, uint32_t edges
) noexcept nogil:
    """Tell whether what ends with a bracket, a bar or ``!`` is no factor of the hit behind it."""
    if edges & EDGE_LEFT_SIGN:
        return not (before == CH_CLOSE or (before == CH_BAR and closes_absolute(data, start)))
    if is_digit(data[start]) or begins_word(data, length, start):
        return True
    if before == CH_BAR:
        return not closes_absolute(data, start)
    if before == CH_BANG:
        return not is_factorial_sign(data, start - 1)
    return not closes_factor(data, start)


cdef bint left_free(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t start, uint32_t edges
) noexcept nogil:
    cdef int before
    if not edges & EDGE_LEFT_OPERAND or start == 0:
        return True
    before = class_before(data, start)
    if before == CH_SPACE:
        return not (edges & EDGE_LEFT_FRACTION and start >= 2 and is_digit(data[start - 2]))
    if before in (CH_NEWLINE, CH_EQUALS):
        return True
    if before in (CH_DIGIT, CH_LETTER, CH_SYMBOL):
        return False
    if before in (CH_PLUS, CH_MINUS, CH_PLUS_MINUS, CH_STAR, CH_SLASH, CH_CARET, CH_UNDERSCORE):
        return False
    if before == CH_ROOT:
        return not is_radical(data + start - 3)
    if before == CH_POINT:
        return start < 2 or not is_digit(data[start - 2])
    # Twice, so that compilers keep what is rare out of what is not.
    if before in (CH_CLOSE, CH_BRACKET_CLOSE):
        return stands_behind(data, length, start, before, edges)
    if before in (CH_BAR, CH_BANG):
        return stands_behind(data, length, start, before, edges)
    if before == CH_PRIME:
        return not edges & EDGE_LEFT_BRACKET
    if before == CH_OPEN and edges & EDGE_RELATES:
        return start < 2 or not (is_letter(data[start - 2]) or data[start - 2] in b"_^")
    return True


cdef bint opened_within(const uint8_t* text, Py_ssize_t start) noexcept nogil:
    """Tell whether `closes_factor` looks at nothing before a text in which a bracket closes."""
    cdef uint8_t close = text[start - 1]
    cdef uint8_t opening = c'(' if close == c')' else c'['
    cdef int depth = 0
    cdef Py_ssize_t at = start
    # What stands before the opening bracket counts too.
    while at > 1 and start - at < BRACKET_LIMIT:
        at -= 1
        depth += (text[at] == close) - (text[at] == opening)
        if depth == 0:
            return True
    return start > BRACKET_LIMIT


cdef Left judge_left(
    const uint8_t* text, Py_ssize_t length, Py_ssize_t start, uint32_t edges
) noexcept nogil:
    """Judge what begins at ``start`` of a text and ends with it, wherever that text stands.

    Open is what `left_free` may look beyond the text for.
    """
    cdef int before
    cdef bint beyond
    if not edges & EDGE_LEFT_OPERAND:
        return LEFT_FREE
    if start == 0:
        return LEFT_OPEN
    before = class_before(text, start)
    if before == CH_BAR:
        beyond = start <= BRACKET_LIMIT
    elif before == CH_BANG:
        beyond = start < 3
    elif before in (CH_CLOSE, CH_BRACKET_CLOSE):
        beyond = not opened_within(text, start)
    elif before in (CH_SPACE, CH_POINT, CH_OPEN) and start < 2:
        return LEFT_OPEN
    else:
        return LEFT_FREE if left_free(text, length, start, edges) else LEFT_REFUSED
    if edges & EDGE_LEFT_SIGN:
        beyond = beyond and before == CH_BAR
    else:
        # The character behind its letters decides whether a word is prose.
        beyond = beyond or length - start <= LETTERS_OF_NAME
        beyond = beyond and not is_digit(text[start])
    if beyond:
        return LEFT_OPEN
    return LEFT_FREE if left_free(text, length, start, edges) else LEFT_REFUSED


cdef inline int class_or_other(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at
) noexcept nogil:
    return class_at(data, length, at) if at < length else CH_OTHER


cdef bint goes_on(int cls) noexcept nogil:
    return cls in (
        CH_DIGIT, CH_LETTER, CH_SYMBOL, CH_ROOT, CH_OPEN, CH_BRACKET_OPEN, CH_MINUS, CH_BAR
    )


cdef bint factorial_goes_on(int cls) noexcept nogil:
    return cls in (
        CH_DIGIT, CH_LETTER, CH_SYMBOL, CH_ROOT, CH_OPEN, CH_CLOSE, CH_BRACKET_CLOSE, CH_COMMA,
        CH_PLUS, CH_MINUS, CH_PLUS_MINUS, CH_STAR, CH_SLASH, CH_CARET, CH_EQUALS, CH_LESS,
        CH_GREATER, CH_RELATION,
    )


cdef bint fraction_at(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    """Tell whether at most three digits and a fraction bar stand at ``at``."""
    cdef Py_ssize_t stop = at
    while stop < length and stop - at < 3 and is_digit(data[stop]):
        stop += 1
    return stop > at and stop < length and data[stop] == c'/'


cdef bint repeats(const uint8_t* data, Py_ssize_t end) noexcept nogil:
    """Tell whether the digits before ``end`` are the repeating ones of a decimal: 0.1(36)."""
    cdef Py_ssize_t start = end
    while start > 0 and end - start < BRACKET_LIMIT and is_digit(data[start - 1]):
        start -= 1
    if start == 0 or data[start - 1] != c'(':
        return False
    start -= 1
    end = start
    while start > 0 and end - start < BRACKET_LIMIT and is_digit(data[start - 1]):
        start -= 1
    return start > 1 and data[start - 1] == c'.' and is_digit(data[start - 2])


cdef bint right_free(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t end, uint32_t edges
) noexcept nogil:
    cdef int after
    cdef Py_ssize_t width
    if not edges & EDGE_RIGHT_OPERAND or end == length:
        return True
    after = class_at(data, length, end)
    if after == CH_SPACE:
        return not (edges & EDGE_RIGHT_DIGIT and fraction_at(data, length, end + 1))
    if after in (CH_DIGIT, CH_LETTER, CH_SYMBOL):
        return False
    if after in (CH_STAR, CH_CARET, CH_UNDERSCORE, CH_OPEN):
        return False
    if after == CH_ROOT:
        return not is_radical(data + end)
    if after in (CH_PLUS, CH_MINUS, CH_PLUS_MINUS, CH_SLASH):
        width = 1 if data[end] < 0x80 else 2 if data[end] < 0xE0 else 3
        return not goes_on(class_or_other(data, length, end + width))
    if after == CH_POINT:
        after = class_or_other(data, length, end + 1)
        if after == CH_OPEN:  # 0.(2) repeats
            return class_or_other(data, length, end + 2) != CH_DIGIT
        return after != CH_DIGIT
    if after == CH_CLOSE:
        return not (edges & EDGE_RIGHT_DIGIT and repeats(data, end))
    if after == CH_BANG:
        return not factorial_goes_on(class_or_other(data, length, end + 1))
    if after == CH_PRIME:
        return not edges & EDGE_RIGHT_LETTER
    return True
