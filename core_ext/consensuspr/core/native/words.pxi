# Letters, words and the signs that words stand for; as pure/operands.py.

cdef Py_ssize_t operand(Pass* s, uint32_t code, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Write an operand of one symbol."""
    cdef bint index = s.last == K_UNDERSCORE
    junction(s, K_LETTER, at, end)
    put_code(s, code, at, end)
    note(s, K_LETTER, C_NONE)
    after(s, K_LETTER)
    set_flag(s, F_SEALED, index)
    return end


cdef inline bint fold_last_letter(Pass* s) noexcept nogil:
    """Lower-case the output's last letter; tell whether it ends with one of ASCII."""
    cdef uint8_t previous
    if s.size == 0:
        return False
    previous = s.out[s.size - 1]
    if not c'a' <= (previous | 0x20) <= c'z':
        return False
    s.out[s.size - 1] = LOWER[previous]
    return True


cdef bint letter_multiplies(const Pass* s, Py_ssize_t end) noexcept nogil:
    cdef bint counted, spaced
    cdef Unit unit
    cdef Py_ssize_t at
    if s.product or s.gap == GAP_BREAK:
        return False
    counted = s.last == K_NUMBER or s.unit_words > 0
    if not counted and not (s.last == K_CLOSE and s.gap >= GAP_THIN):
        return False
    unit = unit_at(s, end)
    spaced = unit.cls == CH_SPACE
    if s.gap >= GAP_THIN and unit.cls == CH_DIGIT:
        return False
    at = skip_marks(s, end)
    if starts_number(s, at):
        return True
    if counted and spaced and s.gap >= GAP_THIN:
        unit = unit_at(s, at)
        if unit.cls == CH_OPEN:
            return starts_number(s, skip_marks(s, at + unit.width))
    return False


cdef Py_ssize_t single_letter(Pass* s, uint32_t code, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef int before
    cdef bint wordy, index, separated
    cdef uint8_t lower
    if code in (u'x', u'X') and letter_multiplies(s, end):
        return times(s, at, end)
    if s.last == K_NUMBER and code < 0x80 and UNIT_LETTER[code] and not s.product:
        if s.flags & F_DEGREE and UNIT_LETTER[code] & UNIT_OF_DEGREES and names_degrees(s, end):
            return end
        if UNIT_LETTER[code] & UNIT_OF_NUMBER and s.gap != GAP_BREAK:
            if unit_apart(s) or is_unit(s, end):
                widen(s, GAP_SPACE)
                lower = LOWER[code]
                return plain_word(s, &lower, 1, W_PLAIN, at, end)
            s.letter_at = s.size
    before = s.last
    index = before == K_UNDERSCORE
    # Only a plain space makes prose of a letter: in "So $a b$" both are variables.
    wordy = s.gap == GAP_SPACE and (before == K_WORD or s.flags & F_WORDY)
    separated = junction(s, K_LETTER, at, end)
    if before == K_LETTER and not separated and code < 0x80 and fold_last_letter(s):
        code = LOWER[code]
    put_code(s, code, at, end)
    note(s, K_LETTER, C_NONE)
    after(s, K_LETTER)
    set_flag(s, F_SEALED, index)
    set_flag(s, F_WORDY, separated and wordy)
    return end


cdef bint apostrophe_goes_on(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Tell whether the letter before the apostrophe at ``at`` begins a word like s'mores."""
    cdef Unit unit
    at += unit_at(s, at).width
    unit = unit_at(s, at)
    return unit.cls == CH_LETTER and class_of(s, at + unit.width) == CH_LETTER


cdef Py_ssize_t letters_end(const Pass* s, Py_ssize_t at) noexcept nogil:
    cdef Unit unit = unit_at(s, at)
    while unit.cls == CH_LETTER:
        at += unit.width
        unit = unit_at(s, at)
    return at


cdef inline bint are_capitals(const uint8_t* text) noexcept nogil:
    return c'A' <= text[0] <= c'Z' and c'A' <= text[1] <= c'Z'


cdef inline Py_ssize_t letters(Pass* s, Py_ssize_t at) noexcept nogil:
    """A run of letters; most words are folded straight into their place in the output."""
    cdef Py_ssize_t end = at + 1
    cdef Py_ssize_t length
    cdef bint separated
    cdef uint8_t* target
    cdef const WordEntry* entry
    cdef int meaning
    if end >= s.length or (
        BYTE_CLASS[s.data[end]] != CH_LETTER and BYTE_CLASS[s.data[end]] != CH_MULTIBYTE
    ):
        if end < s.length and s.data[end] == c"'" and apostrophe_goes_on(s, end):
            return letters_as_word(s, at, at, letters_end(s, end + 1))
        return single_letter(s, s.data[at], at, end)
    separated = SEPARATES[separates_index(K_WORD, s.last, s.gap)]
    target = s.out + s.size + separated
    length = fold_letters(s.data + at, s.length - at, target)
    end = at + length
    if end < s.length and s.data[end] >= 0x80:
        return letters_of_any_script(s, at)
    # Stop words and glued units matter only to units, after a number.
    entry = find_word(
        &WORD_NAMES.any
        if s.unit_words >= 0 or s.last == K_NUMBER
        else &WORD_NAMES.signs,
        word_shape(s.data + at, length),
        target,
        length,
    )
    meaning = W_PLAIN if entry == NULL else entry.meaning
    if (
        (meaning > W_FUNCTION and meaning != W_APPLIED)
        or s.product
        or s.last == K_UNDERSCORE
        or (
            length == 2 and meaning == W_PLAIN
            and (s.last == K_NUMBER or are_capitals(s.data + at))
        )
        or at_limit(s, at)
    ):
        return word(s, <const char*>s.data + at, length, at, end)
    if separated:
        put_byte(s, c' ', at, at)
    finish_word(s, length, meaning, s.size - separated, at, end)
    return end


cdef Py_ssize_t letters_of_any_script(Pass* s, Py_ssize_t at) noexcept nogil:
    """A run of letters that are not all ASCII."""
    cdef Py_ssize_t end = at
    cdef Unit unit = unit_at(s, at)
    cdef Unit following = unit_at(s, at + unit.width)
    if following.cls != CH_LETTER:
        end = at + unit.width
        if following.cls == CH_PRIME and apostrophe_goes_on(s, end):
            return letters_as_word(s, at, at, letters_end(s, end + following.width))
        return single_letter(s, unit.code, at, end)
    while True:
        unit = unit_at(s, end)
        if unit.cls != CH_LETTER:
            break
        end += unit.width
    return letters_as_word(s, at, at, end)


cdef Py_ssize_t letters_as_word(
    Pass* s, Py_ssize_t at, Py_ssize_t text_at, Py_ssize_t end
) noexcept nogil:
    """A word whose letters are the input bytes [text_at, end), in any spelling."""
    # Canonical letters never take more bytes than their source; they are made up past the
    # end of the output, leaving room for a separator or a product sign before them.
    cdef Py_ssize_t scratch = s.size + 4
    cdef Py_ssize_t size = s.size
    cdef uint32_t* starts = s.starts
    cdef Unit unit
    cdef Py_ssize_t length
    s.starts = NULL
    s.size = scratch
    while text_at < end:
        unit = unit_at(s, text_at)
        put_code(s, unit.code, 0, 0)
        text_at += unit.width
    length = s.size - scratch
    s.size = size
    s.starts = starts
    return word(s, <const char*>s.out + scratch, length, at, end)


cdef Py_ssize_t word(
    Pass* s, const char* text, Py_ssize_t length, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """A word: a sign in disguise, a symbol's name, a unit or plain prose."""
    cdef const uint8_t* raw = <const uint8_t*>text
    cdef uint8_t lower[16]
    cdef const WordEntry* entry = NULL
    cdef Py_ssize_t index
    cdef int meaning = W_PLAIN
    if length < 16:
        memset(lower, 0, 16)
        for index in range(length):
            lower[index] = LOWER[raw[index]]
        entry = find_word(&WORD_NAMES.any, word_shape(lower, length), lower, length)
        if entry != NULL:
            meaning = entry.meaning
    if meaning <= W_FUNCTION:
        pass
    elif meaning == W_EQUALS:
        return relation(s, u'=', at, end)
    elif meaning == W_TO:
        if ends_with(s, b"is equal", 8):
            return spelled_out(s, 8, u'=', end)
    elif meaning == W_BY:
        if number_follows(s, end):
            if ends_with(s, b"divided", 7):
                return spelled_out(s, 7, u'/', end)
            if ends_with(s, b"multiplied", 10):
                return spelled_out(s, 10, u'*', end)
    elif meaning in (W_PLUS, W_MINUS):
        if number_follows(s, end):
            return operator(s, entry.payload, at, end, C_SUM)
    elif meaning == W_TIMES:
        if (ends_factor(s.last) or s.unit_words > 0) and number_follows(s, end):
            return times(s, at, end)
    elif meaning == W_PERCENT:
        return end
    elif meaning == W_CURRENCY:
        if ends_amount(s):
            return end
    elif meaning == W_SYMBOL:
        return operand(s, entry.payload, at, end)
    elif meaning == W_SQRT:
        if root_follows(s, end):
            return root(s, entry.payload, at, end)
    elif meaning == W_MOD:
        widen(s, GAP_SPACE)
    elif meaning == W_GLUED_UNIT:
        if s.last == K_NUMBER and not s.product:
            widen(s, GAP_GLUE)
            reach_unit(s)
    elif meaning == W_MINUTES:
        index = class_of(s, end)
        if s.last == K_NUMBER and not s.product and index not in (CH_OPEN, CH_UNDERSCORE):
            meaning = W_GLUED_UNIT
            widen(s, GAP_GLUE)
            reach_unit(s)
        else:
            meaning = W_FUNCTION
    return plain_word(s, raw, length, meaning, at, end)


cdef inline bint is_segment(
    const Pass* s, const uint8_t* text, Py_ssize_t length, int meaning
) noexcept nogil:
    """Tell whether a word names a segment, like AB (rule 15); CD is a unit behind a number."""
    if length != 2 or not are_capitals(text):
        return False
    return meaning == W_PLAIN or (
        meaning == W_GLUED_UNIT and (s.last != K_NUMBER or s.product)
    )


cdef Py_ssize_t plain_word(
    Pass* s, const uint8_t* text, Py_ssize_t length, int meaning, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """Write a word that stands for itself."""
    cdef bint index = s.last == K_UNDERSCORE
    cdef Py_ssize_t before = s.size
    cdef Py_ssize_t position
    cdef uint8_t* target
    cdef int units = s.unit_words
    cdef int gap
    cdef bint segment = is_segment(s, text, length, meaning)
    if segment:
        meaning = W_PLAIN
    if length == 2 and meaning == W_PLAIN and is_factor_pair(s, text, end):
        s.gap = GAP_NONE
    # What junction settles is put back for finish_word, which judges by the state before.
    gap = s.gap
    # A short word next to a product sign is a product itself: 4*ac is 4ac, but AB*CD is not.
    cdef bint factor = s.product and meaning == W_PLAIN and is_short(text, length)
    if segment and (s.last == K_LETTER or s.last == K_WORD):
        factor = False
    if factor and s.last == K_LETTER:
        fold_last_letter(s)
    junction(s, K_LETTER if factor else K_WORD, at, end)
    target = s.out + s.size
    # Left to right, one byte at a time: text may lie a few bytes further on in the output.
    for position in range(length):
        target[position] = text[position] if segment else LOWER[text[position]]
    s.gap = gap
    s.unit_words = units
    finish_word(s, length, meaning, before, at, end)
    if index:
        s.last = K_LETTER
        s.flags |= F_SEALED
    return end


cdef inline bint is_short(const uint8_t* text, Py_ssize_t length) noexcept nogil:
    """Tell whether a word has fewer letters than a name."""
    cdef Py_ssize_t index
    cdef int letters_ = 0
    if length >= 4 * SHORTEST_NAME:
        return False
    for index in range(length):
        letters_ += text[index] & 0xC0 != 0x80
    return letters_ < SHORTEST_NAME


cdef inline void finish_word(
    Pass* s, Py_ssize_t length, int meaning, Py_ssize_t before, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """Settle a word whose ``length`` bytes stand at the output's end; it can be a unit.

    ``before`` is the output's length without the separator of the word.
    """
    cdef int units = s.unit_words
    cdef int gap = s.gap
    cdef Py_ssize_t position
    if s.starts != NULL:
        for position in range(length):
            s.starts[s.size + position] = <uint32_t>at
            s.ends[s.size + position] = <uint32_t>end
    s.size += length
    note(s, K_WORD, C_WORDS)
    after(s, K_WORD)
    if meaning in (W_FUNCTION, W_APPLIED, W_MOD):
        s.flags = F_FUNCTION
        if meaning == W_APPLIED:
            s.flags = F_FUNCTION | F_APPLIED
        elif meaning == W_MOD:
            s.gap = GAP_SPACE
    if units < 0:
        return
    if (
        units < UNIT_WORDS_LIMIT
        and meaning in (W_PLAIN, W_GLUED_UNIT, W_PERCENT, W_CURRENCY)
        and gap not in (GAP_BREAK, GAP_NONE)
    ):
        s.unit_words = units + 1
    else:
        s.past_unit_at = s.unit_at
        s.past_unit_end = before


cdef inline bint number_follows(const Pass* s, Py_ssize_t end) noexcept nogil:
    return starts_number(s, skip_marks(s, end))


cdef inline bint root_follows(const Pass* s, Py_ssize_t end) noexcept nogil:
    cdef int cls = class_of(s, skip_spaces(s, end))
    return cls in (CH_OPEN, CH_BRACE_OPEN, CH_DIGIT)


cdef bint ends_with(const Pass* s, const char* words, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t cut = s.size - length
    if s.last != K_WORD or s.gap == GAP_NONE or cut < 0:
        return False
    if memcmp(s.out + cut, words, length) != 0:
        return False
    return cut == 0 or s.out[cut - 1] in b" \n.,;:?!()[]|=<>$"


cdef bint ends_amount(const Pass* s) noexcept nogil:
    """Tell whether the output ends with a number, perhaps of thousands or millions."""
    if s.product:
        return False
    if s.last == K_NUMBER:
        return True
    return s.unit_words == 1 and (
        ends_with(s, b"hundred", 7)
        or ends_with(s, b"thousand", 8)
        or ends_with(s, b"million", 7)
        or ends_with(s, b"billion", 7)
        or ends_with(s, b"trillion", 8)
    )


cdef void join_variable(Pass* s) noexcept nogil:
    """Join ``2 x`` at the end of the output: what kept them apart was no word of prose."""
    cdef Py_ssize_t at = s.size - 2
    if at < 1 or s.out[at] != c' ' or not c'0' <= s.out[at - 1] <= c'9':
        return
    if not c'a' <= (s.out[at + 1] | 0x20) <= c'z':
        return
    s.out[at] = s.out[at + 1]
    if s.starts != NULL:
        s.starts[at] = s.starts[at + 1]
        s.ends[at] = s.ends[at + 1]
    s.size -= 1


cdef Py_ssize_t spelled_out(
    Pass* s, Py_ssize_t length, uint32_t sign, Py_ssize_t end
) noexcept nogil:
    cdef Py_ssize_t cut = s.size - length
    cdef Py_ssize_t start = 0 if s.starts == NULL else <Py_ssize_t>s.starts[cut]
    cdef uint8_t tail
    if cut > s.base and s.out[cut - 1] in b" \n":
        cut -= 1
    if s.past_unit_end == cut:
        cut = s.past_unit_at
    s.size = cut
    join_variable(s)
    if s.size == s.base:
        after(s, K_START)
    else:
        tail = s.out[s.size - 1]
        after(s, K_NUMBER if c'0' <= tail <= c'9' else K_CLOSE)
    if sign == u'=':
        return relation(s, u'=', start, end)
    if sign == u'/':
        return slash(s, start, end)
    return times(s, start, end)
