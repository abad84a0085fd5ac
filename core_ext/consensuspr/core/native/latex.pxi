# LaTeX commands; as pure/normal_form.py, roots as pure/operands.py.

cdef Py_ssize_t command(Pass* s, Py_ssize_t at, uint32_t* emitted) noexcept nogil:
    """Handle the command at ``at``, or give the character to be handled in its place.

    ``emitted`` receives that character's canonical code point, 0 where all is done.
    """
    cdef Py_ssize_t end = at + unit_at(s, at).width
    cdef Py_ssize_t name_at = end
    cdef uint8_t name[KEY_BYTES]
    cdef int length = 0, action, cls
    cdef Unit unit
    cdef const Entry* entry = NULL
    cdef Py_ssize_t stop
    emitted[0] = 0
    # Nearly all names are plain ASCII; what else is a letter follows below.
    while end < s.length and BYTE_CLASS[s.data[end]] == CH_LETTER:
        if length < KEY_BYTES:
            name[length] = s.data[end]
            length += 1
        end += 1
    unit = unit_at(s, end)
    while unit.cls == CH_LETTER and unit.code < 0x80:
        if length < KEY_BYTES:
            name[length] = <uint8_t>unit.code
            length += 1
        end += unit.width
        unit = unit_at(s, end)
    if length == 0:
        if unit.cls == CH_NEWLINE:
            widen(s, GAP_BREAK)
            s.flags &= ~F_LINE_START
            return end
        if unit.code >= 0x80:
            return other(s, u'\\', at, end)
        name[0] = <uint8_t>unit.code
        entry = find_name(&COMMAND_NAMES, name, 1)
        if entry == NULL:
            return other(s, u'\\', at, end)
        end += unit.width
    elif length < KEY_BYTES:
        entry = find_name(&COMMAND_NAMES, name, length)
    action = CMD_WORD if entry == NULL else entry.action
    if action == CMD_WORD:
        return named_word(s, at, name_at, end, length)
    if action == CMD_EMIT:
        if entry.payload == u'|':
            return other(s, u'|', at, end)
        cls = CLASS_OF[entry.payload]
        if cls == CH_ROOT or (entry.payload == 0x394 and name[0] == c't'):
            # An angle or a triangle binds to what follows, at whatever distance.
            if cls == CH_SYMBOL:
                operand(s, entry.payload, at, end)
            else:
                root(s, entry.payload, at, end)
            return skip_spaces(s, end)
        emitted[0] = entry.payload
        return end
    if action == CMD_SPACE:
        widen(s, GAP_SPACE)
    elif action == CMD_BAR:
        return absolute(s, at, end)
    elif action == CMD_THIN:
        widen(s, GAP_THIN)
    elif action == CMD_DELIMITER:
        return delimiter(s, end)
    elif action == CMD_MARK:
        delimit(s, end)
        s.flags &= ~F_LINE_START
    elif action == CMD_BREAK:
        widen(s, GAP_BREAK)
        s.flags &= ~F_LINE_START
        return optional_length(s, end)
    elif CMD_WRAP <= action <= CMD_ENVIRONMENT or action == CMD_UPRIGHT:
        return wrapper(s, action, end)
    elif action == CMD_FRAC:
        return open_fraction(s, at, end, G_NUMERATOR)
    elif action == CMD_BINOM:
        return open_fraction(s, at, end, G_BINOM_TOP)
    elif action == CMD_SQRT:
        stop = skip_name(s, end, b"[3]")
        if stop >= 0:
            return root(s, 0x221B, at, stop)
        stop = skip_name(s, end, b"[4]")
        if stop >= 0:
            return root(s, 0x221C, at, stop)
        return root(s, 0x221A, at, end)
    elif action == CMD_NOT:
        stop = struck_out(s, at, end)
        return stop if stop else named_word(s, at, name_at, end, length)
    elif action == CMD_MOD:
        widen(s, GAP_SPACE)
        word(s, b"mod", 3, at, end)
        s.gap = GAP_SPACE
    return end


cdef Py_ssize_t struck_out(Pass* s, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """``\\not`` and the relation that it strikes out; 0 where none follows."""
    cdef uint8_t name[KEY_BYTES]
    cdef const Entry* entry
    cdef Py_ssize_t stop = skip_spaces(s, end)
    cdef Unit unit = unit_at(s, stop)
    cdef uint32_t code = unit.code
    cdef int length = 0, index
    stop += unit.width
    if code == u'\\':
        unit = unit_at(s, stop)
        while unit.cls == CH_LETTER and unit.code < 0x80:
            if length == KEY_BYTES:
                return 0
            name[length] = <uint8_t>unit.code
            length += 1
            stop += unit.width
            unit = unit_at(s, stop)
        entry = find_name(&COMMAND_NAMES, name, length) if 0 < length < KEY_BYTES else NULL
        if entry == NULL or entry.action != CMD_EMIT:
            return 0
        code = entry.payload
    for index in range(NEGATIONS):
        if code and code == NEGATED[0][index]:
            return relation(s, NEGATED[1][index], at, stop)
    return 0


cdef Py_ssize_t named_word(
    Pass* s, Py_ssize_t at, Py_ssize_t name_at, Py_ssize_t end, int length
) noexcept nogil:
    if s.gap == GAP_NONE:
        s.gap = GAP_GLUE
    if length == 1:
        single_letter(s, unit_at(s, name_at).code, at, end)
    else:
        letters_as_word(s, at, name_at, end)
    if s.gap == GAP_NONE:
        s.gap = GAP_GLUE
    return end


cdef Py_ssize_t delimiter(Pass* s, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, end)
    if unit.code == u'|':
        return absolute(s, end, end + unit.width)
    if unit.cls == CH_POINT and class_of(s, end + unit.width) != CH_DIGIT:
        return end + unit.width
    return end


cdef Py_ssize_t optional_length(const Pass* s, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, end)
    cdef Unit first
    cdef Py_ssize_t stop
    cdef int count
    if unit.cls != CH_BRACKET_OPEN:
        return end
    stop = end + unit.width
    first = unit_at(s, stop)
    for count in range(LOOKAHEAD_LIMIT - 1):
        unit = unit_at(s, stop)
        if unit.cls == CH_NEWLINE:
            break
        stop += unit.width
        if unit.cls == CH_BRACKET_CLOSE:
            if first.cls in (CH_DIGIT, CH_POINT, CH_MINUS):
                return stop
            break
    return end


cdef bint is_letter_name(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Tell whether the braces at ``at`` hold one letter that is a name."""
    cdef Unit unit = unit_at(s, at)
    if s.last == K_WORD or unit.cls != CH_BRACE_OPEN:
        return False
    at += unit.width
    unit = unit_at(s, at)
    if unit.cls != CH_LETTER:
        return False
    at += unit.width
    unit = unit_at(s, at)
    if unit.cls != CH_BRACE_CLOSE:
        return False
    return s.last != K_NUMBER or argument_follows(s, at + unit.width)


cdef Py_ssize_t wrapper(Pass* s, int action, Py_ssize_t end) noexcept nogil:
    cdef Unit unit = unit_at(s, end)
    cdef Py_ssize_t stop = end + unit.width if unit.code == u'*' else end
    cdef int group = G_WRAP
    stop = skip_spaces(s, stop)
    if action == CMD_UPRIGHT:
        action = CMD_WRAP if is_letter_name(s, stop) else CMD_TEXT
    if action == CMD_TEXT:
        widen(s, GAP_MARK)
        group = G_TEXT
    elif action == CMD_DISCARD:
        group = G_DISCARD
    elif action == CMD_ENVIRONMENT:
        widen(s, GAP_BREAK)
        group = G_ENVIRONMENT
    unit = unit_at(s, stop)
    if unit.cls != CH_BRACE_OPEN:
        return end
    if not full(s):
        push(s, group, s.last, False, False)
    return stop + unit.width


cdef Py_ssize_t root(Pass* s, uint32_t code, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    junction(s, K_LETTER, at, end)
    put_code(s, code, at, end)
    note(s, K_ROOT, C_NONE)
    after(s, K_ROOT)
    return end
