# What the normaliser remembers between characters; as pure/state.py.

cdef enum TokenKind:
    K_START = 0, K_NUMBER, K_LETTER, K_WORD, K_CLOSE, K_OPEN, K_OPERATOR, K_RELATION, K_PUNCTUATION
    K_SENTENCE, K_OTHER, K_ROOT, K_CARET, K_UNDERSCORE

cdef enum GapKind:
    GAP_NONE = 0, GAP_GLUE, GAP_THIN, GAP_SPACE, GAP_MARK, GAP_SPACED_MARK, GAP_BREAK

# What is known of the last token; one word, because every token resets all of it.
cdef enum TokenFlag:
    F_NONE = 0
    F_SEALED = 1      # digits that follow do not extend it
    F_FUNCTION = 2    # it is a function's name
    F_WORDY = 4       # it is a letter that is a word of prose, like "a"
    F_LISTING = 8     # it is a comma tight after a number
    F_APPLIED = 32    # ... of a function whose argument may follow without brackets
    F_DEGREE = 64      # a degree sign stands behind it
    F_LINE_START = 16  # nothing but marks stands between the line's start and here

cdef enum ContentFlag:
    C_NONE = 0, C_SUM = 1, C_PRODUCT = 2, C_QUOTIENT = 4, C_OTHER = 8, C_WORDS = 16
    C_LEADING_MINUS = 32

cdef enum GroupKind:
    G_PAREN = 0, G_MOD_PAREN, G_WRAP, G_TEXT, G_DISCARD, G_ENVIRONMENT, G_NUMERATOR, G_DENOMINATOR
    G_BINOM_TOP, G_BINOM_BOTTOM, G_SUPERSCRIPT, G_SUBSCRIPT, G_ROOT

cdef enum:
    OPEN_GROUPS = 32       # tables.MAX_OPEN_GROUPS
    # Longer runs of letters or digits are all the same to every rule.
    MANY_TOKENS = 1000000

# Small fields: a frame is copied whole when its bracket closes.
cdef struct Frame:
    Py_ssize_t position, tokens, factors, unit_at
    uint8_t group     # GroupKind
    uint8_t before    # TokenKind
    uint8_t separated, product, applied
    uint8_t first     # TokenKind
    uint8_t content   # ContentFlag
    int8_t unit_words

cdef struct Pass:
    const uint8_t* data
    Py_ssize_t length
    uint8_t* out
    Py_ssize_t size           # bytes in out
    Py_ssize_t base           # where the paragraph begins in out
    Py_ssize_t limit          # twice that, without three times where it begins in data
    uint32_t* starts          # NULL: offsets are not wanted
    uint32_t* ends
    # What every token sets: four bytes side by side, which compilers store at once.
    uint8_t last              # TokenKind
    uint8_t gap               # GapKind
    uint8_t flags             # TokenFlag
    int8_t unit_words         # -1: no unit can follow
    bint product              # a product sign is pending ...
    Py_ssize_t product_at     # ... and stands at these input bytes
    Py_ssize_t product_end, unit_at
    Py_ssize_t dropped_at     # where a unit was last dropped; its operator stands there
    Py_ssize_t letter_at      # where a letter that may be a unit was last written
    Py_ssize_t factor_at      # where a factor was last written whose product sign was not
    Py_ssize_t past_unit_at, past_unit_end
    Frame frames[OPEN_GROUPS]
    int depth                 # frames in use
    int braces                # of them closed by a brace
    Py_ssize_t overflow
    bint has_closed           # the closed_* fields are valid
    Py_ssize_t closed_position, closed_end
    int closed_before
    bint closed_separated
    Py_ssize_t closed_tokens
    int closed_content
    bint root_index, bar_open, table_row, emphasis
    Py_ssize_t tokens, factors
    int first, content


# --- reading --------------------------------------------------------------

cdef inline Unit unit_at(const Pass* s, Py_ssize_t at) noexcept nogil:
    cdef Unit unit
    if at >= s.length:
        # The end of a text is the end of a line: a paragraph reads alone as it does in a text.
        unit.code = 0
        unit.cls = CH_NEWLINE
        unit.width = 0
        return unit
    if s.data[at] < 0x80:
        return UNIT_OF_BYTE[s.data[at]]
    return decode(s.data, s.length, at)


cdef inline int class_of(const Pass* s, Py_ssize_t at) noexcept nogil:
    cdef int cls
    if at >= s.length:
        return CH_NEWLINE
    cls = BYTE_CLASS[s.data[at]]
    return cls if cls != CH_MULTIBYTE else decode(s.data, s.length, at).cls


cdef inline uint32_t code_of(const Pass* s, Py_ssize_t at) noexcept nogil:
    return unit_at(s, at).code


cdef inline Py_ssize_t skip_spaces(const Pass* s, Py_ssize_t at) noexcept nogil:
    cdef Unit unit
    while True:
        unit = unit_at(s, at)
        if unit.cls != CH_SPACE:
            return at
        at += unit.width


cdef inline bint starts_number(const Pass* s, Py_ssize_t at) noexcept nogil:
    cdef Unit unit = unit_at(s, at)
    if unit.cls in (CH_DIGIT, CH_FRACTION):
        return True
    return unit.cls == CH_POINT and class_of(s, at + unit.width) == CH_DIGIT


cdef Py_ssize_t skip_marks(const Pass* s, Py_ssize_t at) noexcept nogil:
    cdef int limit = LOOKAHEAD_LIMIT
    cdef bint in_text = s.depth > 0 and s.frames[s.depth - 1].group == G_TEXT
    cdef Unit unit
    cdef uint32_t code
    while limit > 0:
        at = skip_spaces(s, at)
        unit = unit_at(s, at)
        if unit.code == u'$' or (in_text and unit.code == u'}'):
            at += unit.width
        elif unit.code == u'\\':
            code = code_of(s, at + unit.width)
            if code not in (u'$', u'('):
                break
            at += unit.width
            at += unit_at(s, at).width
        else:
            break
        limit -= 1
    return skip_spaces(s, at)


cdef bint word_follows(const Pass* s, Py_ssize_t at) noexcept nogil:
    cdef uint8_t lower[16]
    cdef const WordEntry* entry
    cdef Unit unit
    cdef int length = 0
    if class_of(s, at) != CH_SPACE:
        return False
    at = skip_spaces(s, at)
    unit = unit_at(s, at)
    # Letters that are not ASCII are in no word with a meaning.
    while unit.cls == CH_LETTER and length < 16:
        lower[length] = LOWER[unit.code] if unit.code < 0x80 else 0xFF
        length += 1
        at += unit.width
        unit = unit_at(s, at)
    if length < 2:
        return False
    memset(lower + length, 0, 16 - length)
    entry = find_word(&WORD_NAMES.any, word_shape(lower, length), lower, length)
    return entry == NULL or entry.meaning not in (W_EQUALS, W_PLUS, W_MINUS, W_TIMES)


cdef inline bint ends_operand(int kind) noexcept nogil:
    return K_NUMBER <= kind <= K_CLOSE


cdef inline bint ends_factor(int kind) noexcept nogil:
    return kind in (K_NUMBER, K_LETTER, K_CLOSE)


cdef inline bint is_blank(int cls) noexcept nogil:
    return cls in (CH_SPACE, CH_NEWLINE)


# --- writing --------------------------------------------------------------

cdef inline void put_byte(Pass* s, uint8_t byte, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    s.out[s.size] = byte
    if s.starts != NULL:
        s.starts[s.size] = <uint32_t>start
        s.ends[s.size] = <uint32_t>end
    s.size += 1


cdef inline void put_code(Pass* s, uint32_t code, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Write a code point as UTF-8."""
    if code < 0x80:
        put_byte(s, <uint8_t>code, start, end)
    elif code < 0x800:
        put_byte(s, <uint8_t>(0xC0 | code >> 6), start, end)
        put_byte(s, <uint8_t>(0x80 | (code & 0x3F)), start, end)
    elif code < 0x10000:
        put_byte(s, <uint8_t>(0xE0 | code >> 12), start, end)
        put_byte(s, <uint8_t>(0x80 | (code >> 6 & 0x3F)), start, end)
        put_byte(s, <uint8_t>(0x80 | (code & 0x3F)), start, end)
    else:
        put_byte(s, <uint8_t>(0xF0 | code >> 18), start, end)
        put_byte(s, <uint8_t>(0x80 | (code >> 12 & 0x3F)), start, end)
        put_byte(s, <uint8_t>(0x80 | (code >> 6 & 0x3F)), start, end)
        put_byte(s, <uint8_t>(0x80 | (code & 0x3F)), start, end)


cdef inline void extend_last(Pass* s, Py_ssize_t end) noexcept nogil:
    """Let the last output byte stand for the input up to ``end``."""
    if s.ends != NULL and s.size > 0:
        s.ends[s.size - 1] = <uint32_t>end


cdef void remove_open(Pass* s, Py_ssize_t position) noexcept nogil:
    """Take the bracket at ``position`` out; its source now belongs to what it held."""
    cdef Py_ssize_t rest = s.size - position - 1
    cdef uint32_t start
    memmove(s.out + position, s.out + position + 1, rest)
    if s.starts != NULL:
        start = s.starts[position]
        memmove(s.starts + position, s.starts + position + 1, rest * sizeof(uint32_t))
        memmove(s.ends + position, s.ends + position + 1, rest * sizeof(uint32_t))
        if rest > 0:
            s.starts[position] = start
    s.size -= 1


cdef inline bint at_limit(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Tell whether one more byte would take the paragraph's output to its limit."""
    return 2 * s.size > 3 * at + s.limit


cdef inline bint separate(Pass* s, int kind, Py_ssize_t at) noexcept nogil:
    cdef bint prose
    if at_limit(s, at):
        return False
    prose = s.last in (K_WORD, K_SENTENCE) or kind == K_WORD
    # A bracket goes on a phrase.
    prose = prose or s.gap < (GAP_BREAK if kind == K_OPEN else GAP_MARK)
    put_byte(s, c' ' if prose else c'\n', at, at)
    return True


cdef inline void note(Pass* s, int kind, int content) noexcept nogil:
    if content & C_SUM and s.tokens == 0 and s.size > 0 and s.out[s.size - 1] == c'-':
        s.content |= C_LEADING_MINUS
        return
    s.first = kind if s.tokens == 0 else s.first
    s.tokens += 1
    # A power, an index or a root binds to the token before; signs are no factors.
    s.factors += s.last < K_ROOT and kind not in (K_OPERATOR, K_SENTENCE)
    s.content |= content


cdef inline void after(Pass* s, int kind) noexcept nogil:
    s.last = kind
    s.gap = GAP_NONE
    s.flags = F_NONE
    s.unit_words = -1


# The gap that two gaps make together; the larger one, but a mark and a space are both.
cdef uint8_t WIDER[8 * 8]


cdef inline void set_flag(Pass* s, int flag, bint on) noexcept nogil:
    # A bint in C is any number but 0.
    s.flags |= (on != 0) * flag


cdef inline void widen(Pass* s, int gap) noexcept nogil:
    s.gap = WIDER[s.gap << 3 | gap]


cdef inline void delimit(Pass* s, Py_ssize_t end) noexcept nogil:
    """Note a delimiter: a word that begins another formula is not a unit: $x=2$ $ab=3$."""
    if s.gap == GAP_SPACED_MARK and s.unit_words == 0 and class_of(s, end) == CH_LETTER:
        s.unit_words = -1
    widen(s, GAP_MARK)


cdef inline bint needs_separator(
    const Pass* s, int kind, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    cdef int last = s.last
    cdef int gap = s.gap
    if gap == GAP_NONE:
        return kind == K_NUMBER and s.flags & F_SEALED and last in (K_NUMBER, K_LETTER)
    if last == K_SENTENCE:
        return gap > GAP_GLUE
    if last == K_WORD and s.flags & F_FUNCTION:
        if kind == K_OPEN:
            return False
        if s.flags & F_APPLIED and kind != K_WORD and gap < GAP_MARK:
            return False
    if gap >= GAP_MARK:
        return ends_operand(last)
    if last == K_WORD:
        return kind != K_OPEN or gap == GAP_SPACE
    if last == K_NUMBER:
        if kind == K_LETTER:
            return class_of(s, at) == CH_LETTER and word_follows(s, end)
        return kind != K_OPEN or (gap == GAP_SPACE and not bracket_multiplies(s, at))
    if kind == K_OPEN and gap == GAP_SPACE and last in (K_LETTER, K_CLOSE):
        return remark_follows(s, at, end)
    if last == K_LETTER:
        return kind in (K_WORD, K_NUMBER) or (
            kind == K_LETTER and s.flags & F_WORDY and gap == GAP_SPACE
        )
    return False


cdef bint bracket_multiplies(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Tell whether the bracket at ``at``, a blank behind a number, is a factor."""
    cdef Py_ssize_t number, end
    cdef int length
    cdef bint power
    if class_of(s, at) != CH_OPEN:
        return False
    number = number_start(s)
    power = number > s.base and s.out[number - 1] == c'^'
    if not (power or s.flags & F_SEALED):
        return False
    end = factor_end(s, at + unit_at(s, at).width, &length)
    if not end:
        return False
    if power and (length > LABEL_LIMIT or (number > 1 and s.out[number - 2] == c')')):
        return True
    end = skip_spaces(s, end)
    if class_of(s, end) == CH_BACKSLASH:
        return skip_name(s, end, b"\\cdot") >= 0 or skip_name(s, end, b"\\times") >= 0
    return class_of(s, end) in (
        CH_OPEN, CH_STAR, CH_TIMES, CH_PLUS, CH_MINUS, CH_SLASH, CH_CARET, CH_EQUALS
    )


cdef bint remark_follows(const Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Tell whether the bracket [at, end), a blank behind an operand, begins with a word."""
    cdef uint8_t lower[16]
    cdef const WordEntry* entry
    cdef int length = 0
    cdef Unit unit
    if class_of(s, at) != CH_OPEN or c'A' <= s.out[s.size - 1] <= c'Z':
        return False
    memset(lower, 0, 16)
    unit = unit_at(s, end)
    while unit.cls == CH_LETTER and length < 16:
        # Letters that are not ASCII are in no word with a meaning.
        lower[length] = LOWER[unit.code] if unit.code < 0x80 else 0xFF
        length += 1
        end += unit.width
        unit = unit_at(s, end)
    if length < 2:
        return False
    if length == 16:
        return True
    entry = find_word(&WORD_NAMES.any, word_shape(lower, length), lower, length)
    if entry != NULL and entry.meaning == W_STOP:
        return True
    return length > 2 and (entry == NULL or entry.meaning == W_PLAIN)


cdef Py_ssize_t factor_end(const Pass* s, Py_ssize_t at, int* length) noexcept nogil:
    """Return the index past the bracket whose content, a factor, begins at ``at``; else 0.

    ``length`` receives the characters of the content.
    """
    cdef Unit unit, following
    cdef bint command = False   # the letters belong to a command's name
    cdef int count
    for count in range(FACTOR_LIMIT):
        unit = unit_at(s, at)
        if unit.width == 0:
            return 0
        at += unit.width
        if unit.cls == CH_CLOSE:
            length[0] = count
            return at
        if unit.cls == CH_BACKSLASH:
            command = class_of(s, at) == CH_LETTER
            if not command:
                return 0
        elif unit.cls == CH_LETTER:
            following = unit_at(s, at)
            if following.cls == CH_LETTER and not command:
                return 0
        else:
            command = False
            if unit.cls not in (
                CH_DIGIT, CH_POINT, CH_SPACE, CH_PLUS, CH_MINUS, CH_STAR, CH_TIMES, CH_SLASH,
                CH_CARET, CH_UNDERSCORE, CH_SYMBOL, CH_ROOT, CH_BRACE_OPEN, CH_BRACE_CLOSE,
                CH_FRACTION, CH_SUPERSCRIPT, CH_SUBSCRIPT,
            ):
                return 0
    return 0


cdef bint ends_factorial(const Pass* s) noexcept nogil:
    """Tell whether the last token is the sign of a factorial, not the end of a sentence."""
    cdef uint8_t byte
    if s.last != K_SENTENCE or s.size < s.base + 2 or s.out[s.size - 1] != c'!':
        return False
    byte = s.out[s.size - 2]
    if is_output_letter(byte):
        return s.size < s.base + 3 or not is_output_letter(s.out[s.size - 3])
    return c'0' <= byte <= c'9' or byte == c')'


cdef inline bint is_output_letter(uint8_t byte) noexcept nogil:
    return c'a' <= (byte | 0x20) <= c'z'


cdef void put_product(Pass* s, Py_ssize_t at) noexcept nogil:
    """Write a product sign that stands for nothing in the input."""
    s.product = True
    s.product_at = at
    s.product_end = at
    write_product(s)


cdef bint ends_short(const Pass* s) noexcept nogil:
    """Tell whether the word at the end of the output is too short for a name: ab*c is abc.

    A segment is a name: AB*c.
    """
    cdef Py_ssize_t at
    if c'A' <= s.out[s.size - 1] <= c'Z':
        return False
    if s.size < SHORTEST_NAME:
        return True
    for at in range(s.size - SHORTEST_NAME, s.size):
        if not c'a' <= (s.out[at] | 0x20) <= c'z':
            return True
    return False


cdef void write_product(Pass* s) noexcept nogil:
    if s.product:
        put_byte(s, c'*', s.product_at, s.product_end)
        note(s, K_OPERATOR, C_PRODUCT)
        s.product = False
        after(s, K_OPERATOR)


cdef enum:
    SEPARATES_MAYBE = 2  # needs_separator has to be asked

# needs_separator by kind (K_OPEN at most), last token and gap, see separates_index.
cdef uint8_t SEPARATES[8 * 16 * 8]


cdef inline int separates_index(int kind, int last, int gap) noexcept nogil:
    return (kind << 4 | last) << 3 | gap


cdef inline bint junction(Pass* s, int kind, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef uint8_t verdict
    if s.product:
        if (
            kind in (K_NUMBER, K_WORD)
            or not (
                ends_factor(s.last)
                or ends_factorial(s)
                or (s.last == K_WORD and kind == K_LETTER and ends_short(s))
            )
        ):
            write_product(s)
        else:
            s.factor_at = s.size
        s.product = False
        s.gap = GAP_NONE
        return False
    if s.last == K_SENTENCE and kind != K_WORD and s.gap <= GAP_THIN and ends_factorial(s):
        if kind == K_NUMBER and not at_limit(s, at):
            put_product(s, at)
        return False
    verdict = SEPARATES[separates_index(kind, s.last, s.gap)]
    if verdict == SEPARATES_MAYBE:
        verdict = needs_separator(s, kind, at, end)
    if verdict:
        return separate(s, kind, at)
    return False


cdef inline void drop_units(Pass* s) noexcept nogil:
    if s.unit_words > 0:
        s.size = s.unit_at
        s.dropped_at = s.size
        s.last = K_NUMBER
        s.gap = GAP_NONE
        s.flags &= ~F_SEALED
        s.unit_words = 0


cdef inline void start_units(Pass* s) noexcept nogil:
    """A number ends here; units may follow."""
    s.unit_at = s.size
    s.unit_words = 0
