# Brackets, braces and the rules that take them away; as pure/groups.py.

# What a closing bracket does with its opening one: keep it, take it out, or put the
# character of this code in its place.
cdef enum:
    KEEP_BRACKET = -1
    TAKE_OUT = 0


cdef inline bint before_is_free(int kind) noexcept nogil:
    return kind in (K_START, K_RELATION, K_OPEN, K_PUNCTUATION)


cdef inline bint is_paren(int group) noexcept nogil:
    return group in (G_PAREN, G_MOD_PAREN)


cdef void push(Pass* s, int group, int before, bint separated, bint product) noexcept nogil:
    cdef Frame* frame = &s.frames[s.depth]
    frame.group = group
    frame.position = s.size
    frame.before = before
    frame.separated = separated
    frame.product = product
    frame.applied = (s.flags & F_APPLIED) != 0
    frame.tokens = s.tokens
    frame.factors = s.factors
    frame.first = s.first
    frame.content = s.content
    frame.unit_words = -1
    s.depth += 1
    if not is_paren(group):
        s.braces += 1


cdef inline void reset_content(Pass* s) noexcept nogil:
    s.tokens = 0
    s.factors = 0
    s.first = K_START
    s.content = C_NONE


cdef void open_bracket(
    Pass* s, int group, Py_ssize_t at, Py_ssize_t end, int before, bint separated, bint product
) noexcept nogil:
    push(s, group, before, separated, product)
    put_byte(s, c'(', at, end)
    after(s, K_OPEN)
    reset_content(s)


cdef inline bint full(Pass* s) noexcept nogil:
    if s.depth < OPEN_GROUPS:
        return False
    s.overflow += 1
    return True


cdef void begin_paragraph(Pass* s, Py_ssize_t at) noexcept nogil:
    """End all that is pending: what stands from ``at`` on is read as a text of its own."""
    write_product(s)
    if s.size > s.base:
        memcpy(s.out + s.size, b"\n\n", 2)
        if s.starts != NULL:
            s.starts[s.size] = s.starts[s.size + 1] = <uint32_t>at
            s.ends[s.size] = s.ends[s.size + 1] = <uint32_t>at
        s.size += 2
    s.base = s.size
    s.limit = 2 * s.size - 3 * at
    s.depth = 0
    s.braces = 0
    s.overflow = 0
    s.root_index = False
    s.has_closed = False
    reset_content(s)
    s.past_unit_end = -1
    s.bar_open = False
    s.table_row = False
    s.emphasis = False
    after(s, K_START)
    s.gap = GAP_BREAK


cdef inline Frame pop(Pass* s) noexcept nogil:
    s.depth -= 1
    if not is_paren(s.frames[s.depth].group):
        s.braces -= 1
    return s.frames[s.depth]


cdef inline void restore(Pass* s, const Frame* frame) noexcept nogil:
    s.tokens = frame.tokens
    s.factors = frame.factors
    s.first = frame.first
    s.content = frame.content


# --- brackets of the text --------------------------------------------------------------

cdef Py_ssize_t tag_end(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Return the index past a tag ``(1) `` or ``(ii) `` at a line's start, else 0."""
    cdef int count = 0
    cdef Unit unit = unit_at(s, at)
    while count < 3 and unit.cls in (CH_DIGIT, CH_LETTER):
        at += unit.width
        count += 1
        unit = unit_at(s, at)
    if count == 0 or unit.cls != CH_CLOSE:
        return 0
    at += unit.width
    if class_of(s, at) != CH_SPACE:
        return 0
    at = skip_spaces(s, at)
    unit = unit_at(s, at)
    if unit.code in (u'x', u'X') and class_of(s, at + unit.width) == CH_SPACE:
        # (5) x 3 is a product, (1) x = 3 is not.
        return at if class_of(s, skip_spaces(s, at + unit.width)) == CH_EQUALS else 0
    if unit.cls in (CH_DIGIT, CH_LETTER, CH_MARK):
        return at
    return 0


cdef bint mod_follows(const Pass* s, Py_ssize_t at) noexcept nogil:
    cdef Unit unit
    cdef Py_ssize_t stop
    cdef int index
    cdef const char* name = b"mod"
    if at < s.length and not MOD_STARTS[s.data[at]]:
        return False
    at = skip_spaces(s, at)
    unit = unit_at(s, at)
    if unit.code == u'\\':
        stop = skip_name(s, at, b"\\text{")
        if stop < 0:
            stop = skip_name(s, at, b"\\mathrm{")
        if stop < 0:
            stop = at + unit.width
            unit = unit_at(s, stop)
            if unit.code in (u'b', u'p'):
                stop += unit.width
            # What is no command of this name is no operator either: \\Mod is none.
            if skip_name(s, stop, b"mod") < 0:
                return False
        at = stop
    for index in range(3):
        unit = unit_at(s, at)
        if unit.code >= 0x80 or LOWER[unit.code] != <uint8_t>name[index]:
            return False
        at += unit.width
    return class_of(s, at) != CH_LETTER


cdef Py_ssize_t open_paren(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef int before, unit_words = -1
    cdef bint product = False, separated = False
    cdef Py_ssize_t units_at = s.unit_at
    cdef Py_ssize_t tag
    if s.flags & F_LINE_START:
        tag = tag_end(s, end)
        if tag:
            return bullet(s, tag)
    if s.depth < OPEN_GROUPS and mod_follows(s, end):
        widen(s, GAP_SPACE)
        push(s, G_MOD_PAREN, s.last, False, False)
        return end
    before = s.last
    if s.product and (ends_factor(before) or ends_factorial(s)):
        product = True
        s.product = False
        s.gap = GAP_NONE
    elif s.product:
        write_product(s)
        before = K_OPERATOR
    else:
        unit_words = s.unit_words
        product = s.gap <= GAP_THIN and ends_factorial(s)
        separated = not product and junction(s, K_OPEN, at, end)
    if full(s):
        put_byte(s, c'(', at, end)
        note(s, K_OPEN, C_OTHER)
        after(s, K_OPEN)
    else:
        open_bracket(s, G_PAREN, at, end, before, separated, product)
        s.frames[s.depth - 1].unit_at = units_at
        s.frames[s.depth - 1].unit_words = unit_words
    return end


cdef Py_ssize_t close_raw(Pass* s, uint8_t byte, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    write_product(s)
    put_byte(s, byte, at, end)
    s.has_closed = False
    note(s, K_CLOSE, C_OTHER)
    after(s, K_CLOSE)
    return end


cdef inline bint one_factor(const Pass* s) noexcept nogil:
    """Tell whether the group holds one factor: 2, x^2, 5!, a root; but not 2x."""
    return s.factors <= 1 and s.content == C_NONE


cdef int paren_goes(const Pass* s, const Frame* frame) noexcept nogil:
    cdef Py_ssize_t length = s.size - frame.position - 1
    cdef int before = frame.before
    cdef int sign
    if length > REWRITE_LIMIT or s.tokens == 0:
        return KEEP_BRACKET
    if s.tokens == 1 and s.content == C_NONE:
        if s.first not in (K_NUMBER, K_LETTER):
            return KEEP_BRACKET
        sign = c'*' if s.first == K_NUMBER else TAKE_OUT
        if before == K_NUMBER:
            return KEEP_BRACKET if frame.separated else sign
        if before == K_CLOSE or (before == K_SENTENCE and frame.product):
            return TAKE_OUT if frame.separated else sign
        if before == K_LETTER:
            return sign if frame.product else KEEP_BRACKET
        if before == K_WORD and frame.applied:
            return TAKE_OUT
        if before in (K_WORD, K_SENTENCE):
            return TAKE_OUT if frame.separated else KEEP_BRACKET
        return TAKE_OUT
    if before == K_CARET and s.tokens == 1 and s.content == C_LEADING_MINUS:
        return TAKE_OUT
    if (
        before == K_OPERATOR
        and frame.position > 0
        and s.out[frame.position - 1] == c'/'
        and one_factor(s)
    ):
        return TAKE_OUT
    return KEEP_BRACKET


cdef void keep_bracket(Pass* s, const Frame* frame, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    s.has_closed = True
    s.closed_position = frame.position
    s.closed_end = s.size + 1
    s.closed_before = frame.before
    s.closed_separated = frame.separated
    s.closed_tokens = s.tokens
    s.closed_content = s.content
    restore(s, frame)
    put_byte(s, c')', at, end)
    s.last = frame.before  # what binds the group to its left
    note(s, K_CLOSE, C_NONE)
    after(s, K_CLOSE)


cdef void drop_bracket(Pass* s, const Frame* frame, int instead, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t tokens = s.tokens
    cdef Py_ssize_t factors = s.factors
    cdef int first = s.first
    cdef int content = s.content
    cdef bint empty = s.size == frame.position + 1
    cdef int last = frame.before if empty else s.last
    if instead != TAKE_OUT:
        s.out[frame.position] = <uint8_t>instead
    else:
        remove_open(s, frame.position)
    if not empty:
        extend_last(s, end)
    restore(s, frame)
    if tokens:
        if s.tokens == 0:
            s.first = first
        s.tokens += tokens
        if frame.before < K_ROOT:
            s.factors += factors
        s.content |= content & ~C_LEADING_MINUS
        if content & C_LEADING_MINUS:
            s.content |= C_SUM
        if instead == c'*':
            s.content |= C_PRODUCT
    after(s, last)
    s.flags |= F_SEALED
    if last == K_NUMBER:
        start_units(s)


cdef Py_ssize_t close_paren(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Frame frame
    cdef int verdict
    cdef bint unit
    if s.overflow:
        s.overflow -= 1
        return close_raw(s, c')', at, end)
    if s.depth == 0 or not is_paren(s.frames[s.depth - 1].group):
        return close_raw(s, c')', at, end)
    frame = pop(s)
    if frame.group == G_MOD_PAREN:
        s.gap = GAP_NONE
        if not s.product:
            extend_last(s, end)
        return end
    write_product(s)
    s.gap = GAP_NONE
    # Behind a word of a unit a remark may hold numbers too.
    unit = frame.unit_words >= 0 and holds_words(
        s, frame.position + 1, frame.separated, frame.unit_words > 0
    )
    if (
        s.unit_words > 0
        and not unit
        and (
            frame.before in (K_OPERATOR, K_RELATION)
            or is_operator(class_of(s, skip_spaces(s, end)))
        )
    ):
        drop_lone_unit(s)
    verdict = paren_goes(s, &frame)
    if verdict != KEEP_BRACKET:
        drop_bracket(s, &frame, verdict, end)
        return end
    keep_bracket(s, &frame, at, end)
    if unit:
        s.unit_at = frame.unit_at
        s.unit_words = min(frame.unit_words + 1, UNIT_WORDS_LIMIT)
    return end


cdef inline bint is_operator(int cls) noexcept nogil:
    return cls in (CH_PLUS, CH_MINUS, CH_STAR, CH_TIMES, CH_SLASH, CH_EQUALS)


cdef void drop_lone_unit(Pass* s) noexcept nogil:
    """Take the unit away where the group holds a number and its unit only."""
    if (
        s.unit_words > 0
        and s.first == K_NUMBER
        and s.content == C_WORDS
        and s.tokens == 1 + s.unit_words
    ):
        drop_units(s)
        s.tokens = 1
        s.factors = 1
        s.content = C_NONE


cdef bint holds_words(
    const Pass* s, Py_ssize_t position, bint apart, bint numbers
) noexcept nogil:
    """Tell whether the output from ``position`` on is a few words and nothing else.

    ``apart``: a blank stands before them; 3(ab) is a product.  With ``numbers`` these may stand
    among the words.
    """
    cdef Py_ssize_t length = s.size - position
    cdef int run = 0, longest = 0
    cdef bint difference = False  # short letters and a hyphen before the run: n-k
    cdef uint8_t byte
    if length < 2 or length > UNIT_BRACKET_LIMIT:
        return False
    while position < s.size:
        byte = s.out[position]
        position += 1
        if c'a' <= byte <= c'z':
            run += 1
            longest = max(longest, run)
            if position < s.size:
                continue
            byte = 0
        elif byte not in b" -'/.," and not (numbers and c'0' <= byte <= c'9'):
            return False
        if 0 < run <= 2 and difference:
            return False
        difference = byte == c'-' and 0 < run <= 2
        run = 0
    return longest >= (2 if apart else SHORTEST_NAME)


# --- braces --------------------------------------------------------------

cdef Py_ssize_t open_brace(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef int group = G_WRAP
    if full(s):
        return end
    if not s.product:
        if s.last == K_CARET:
            group = G_SUPERSCRIPT
        elif s.last == K_UNDERSCORE:
            group = G_SUBSCRIPT
        elif s.last == K_ROOT:
            group = G_ROOT
    if group == G_WRAP:
        push(s, G_WRAP, s.last, False, False)
    else:
        open_bracket(s, group, at, end, s.last, False, False)
    return end


cdef Py_ssize_t close_discarded(Pass* s, const Frame* frame, Py_ssize_t end) noexcept nogil:
    cdef bint columns = False
    cdef Py_ssize_t first, last
    if s.size - frame.position <= REWRITE_LIMIT:
        if frame.group == G_ENVIRONMENT:
            first = frame.position
            last = s.size
            while first < last and s.out[first] == c' ':
                first += 1
            while last > first and s.out[last - 1] == c' ':
                last -= 1
            columns = (
                last - first == 5 and memcmp(s.out + first, b"array", 5) == 0
            ) or (last - first == 7 and memcmp(s.out + first, b"tabular", 7) == 0)
        # Units dropped inside the argument can have reached back past its beginning; then what
        # was written since may have a character of several bytes there.
        first = min(s.size, frame.position)
        while first < s.size and s.out[first] & 0xC0 == 0x80:
            first -= 1
        s.size = first
        restore(s, frame)
        s.has_closed = False
        s.product = False
        after(s, frame.before)
        s.flags |= F_SEALED
    s.gap = GAP_BREAK if frame.group == G_ENVIRONMENT else GAP_MARK
    if columns and class_of(s, end) == CH_BRACE_OPEN and not full(s):
        push(s, G_DISCARD, s.last, False, False)
        return end + unit_at(s, end).width
    return end


cdef bint argument_follows(const Pass* s, Py_ssize_t end) noexcept nogil:
    """Tell whether a bracket stands tight behind a name: \\text{Var}(X)."""
    cdef uint32_t code = code_of(s, end)
    cdef Py_ssize_t stop
    if code == u'\\':
        stop = skip_name(s, end, b"\\left")
        if stop < 0:
            stop = skip_name(s, end, b"\\bigl")
        if stop < 0:
            return False
        code = code_of(s, stop)
    return code in (u'(', u'[')


cdef Py_ssize_t close_brace(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Frame frame
    cdef bint single
    if s.overflow:
        s.overflow -= 1
        return end
    if s.braces == 0:
        return end
    while is_paren(s.frames[s.depth - 1].group):
        frame = pop(s)
        if frame.group == G_PAREN:
            restore(s, &frame)
            note(s, K_OPEN, C_OTHER)
    frame = pop(s)
    if frame.group == G_WRAP:
        return end
    if frame.group == G_TEXT:
        if s.gap != GAP_NONE or not argument_follows(s, end):
            widen(s, GAP_MARK)
        return end
    if frame.group in (G_DISCARD, G_ENVIRONMENT):
        return close_discarded(s, &frame, end)
    write_product(s)
    s.gap = GAP_NONE
    if frame.group in (G_NUMERATOR, G_DENOMINATOR):
        drop_lone_unit(s)
    if frame.group == G_NUMERATOR:
        return close_numerator(s, &frame, at, end)
    if frame.group == G_DENOMINATOR:
        return close_denominator(s, &frame, at, end)
    if frame.group == G_BINOM_TOP:
        return close_binom_top(s, &frame, at, end)
    if frame.group == G_BINOM_BOTTOM:
        keep_bracket(s, &frame, at, end)
        return end
    single = s.tokens <= 1 and not s.content & ~(C_LEADING_MINUS | C_WORDS)
    if frame.group == G_ROOT and s.content:
        single = False
    if single and s.size - frame.position - 1 <= REWRITE_LIMIT:
        drop_bracket(s, &frame, TAKE_OUT, end)
    else:
        keep_bracket(s, &frame, at, end)
    if frame.group == G_SUBSCRIPT:
        s.last = K_LETTER
        s.flags |= F_SEALED
        s.unit_words = -1
    return end
