# Answers in a box or behind an answer mark, for nodes like \boxed{45}; as pure/boxes.py.

cdef enum:
    # patterns.MAX_ANSWER_BYTES; a test compares.
    MAX_ANSWER_BYTES = 200
    MAX_MARK_BLANKS = 8
    # Room for the normal form of a box, and for what is written before it is taken back.
    ANSWER_CAPACITY = 512


# A pattern that is an answer in a box.
cdef struct Box:
    const uint8_t* data
    uint32_t length, pattern


cdef inline bint is_punctuation(uint8_t byte) noexcept nogil:
    return byte in b" .,:;?\n"


cdef Py_ssize_t after_blanks(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at, const char* blanks
) noexcept nogil:
    """Return the index past at most so many bytes of ``blanks``."""
    cdef int count
    for count in range(MAX_MARK_BLANKS):
        if at >= length or data[at] == 0 or strchr(blanks, data[at]) == NULL:
            break
        at += 1
    return at


cdef inline Py_ssize_t after_bytes(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at, const char* name, Py_ssize_t size
) noexcept nogil:
    """Return the index past ``name``, 0 where it does not stand at ``at``."""
    if length - at < size or memcmp(data + at, name, size):
        return 0
    return at + size


cdef inline Py_ssize_t after_colon(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at
) noexcept nogil:
    if at < length and data[at] == c':':
        return at + 1
    return after_bytes(data, length, at, b"\xef\xbc\x9a", 3)


cdef Py_ssize_t may_be_colon(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    """Return the index past blanks and a colon, ``at`` where none stands."""
    cdef Py_ssize_t end = after_colon(data, length, after_blanks(data, length, at, b" \t*"))
    return end if end else at


cdef bint is_word(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at, const char* name
) noexcept nogil:
    """Tell whether these lower-case letters stand at ``at``, in any case."""
    while name[0]:
        if at >= length or data[at] | 0x20 != <uint8_t>name[0] or not is_letter(data[at]):
            return False
        at += 1
        name += 1
    return True


cdef Py_ssize_t after_answer(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    """Return the index past "answer is", "Answer:" or "<answer>" at ``at``, 0 for none."""
    cdef Py_ssize_t end = at + 6
    if not is_word(data, length, at, b"answer"):
        return 0
    if end < length and data[end] | 0x20 == c's':
        end += 1
    if end < length and data[end] == c'>':
        return end + 1
    end = after_blanks(data, length, end, b" \t")
    if after_bytes(data, length, end, b"**", 2) or after_bytes(data, length, end, b"__", 2):
        end += 2
    elif end < length and data[end] in b"}_":
        end += 1
    end = after_blanks(data, length, end, b" \t")
    at = after_colon(data, length, end)
    if at:
        return at
    if is_word(data, length, end, b"is"):
        end += 2
    elif is_word(data, length, end, b"are"):
        end += 3
    else:
        return 0
    return 0 if end < length and is_letter(data[end]) else may_be_colon(data, length, end)


cdef Py_ssize_t mark_end(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at, bint* box
) noexcept nogil:
    """Return the index past an answer mark or the opening brace of a box at ``at``; 0 for none."""
    cdef Py_ssize_t end = 0
    cdef uint8_t byte = data[at]
    box[0] = False
    if byte == c'\\':
        end = after_bytes(data, length, at, b"\\boxed", 6)
        if not end:
            end = after_bytes(data, length, at, b"\\fbox", 5)
        if end:
            end = after_blanks(data, length, end, b" \t\n")
            box[0] = end < length and data[end] == c'{'
        return end + 1 if box[0] else 0
    if byte == c'#':
        end = at
        while end < length and data[end] == c'#':
            end += 1
        return end if end - at >= 4 else 0
    if byte == 0xE7:
        end = after_bytes(data, length, at, b"\xe7\xad\x94\xe6\xa1\x88", 6)
        if not end:
            return 0
        at = after_blanks(data, length, end, b" \t*")
        end = after_colon(data, length, at)
        if end:
            return end
        end = after_bytes(data, length, at, b"\xe6\x98\xaf", 3)
        if not end:
            end = after_bytes(data, length, at, b"\xe4\xb8\xba", 3)
        return may_be_colon(data, length, end) if end else 0
    if byte | 0x20 == c'a':
        end = after_answer(data, length, at)
    if not end and byte in b"A \t*" and (at == 0 or data[at - 1] == c'\n'):
        at = after_blanks(data, length, at, b" \t*")
        if at < length and data[at] == c'A':
            end = after_colon(data, length, after_blanks(data, length, at + 1, b" \t*"))
    return end


cdef Py_ssize_t box_end(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    """Return the index past the brace that closes the one before ``at``; 0 if it is too far."""
    cdef Py_ssize_t end = min(length, at + MAX_ANSWER_BYTES)
    cdef int depth = 1
    while at < end:
        if data[at] == c'\\' and at + 1 < end:
            at += 1
        elif data[at] == c'{':
            depth += 1
        elif data[at] == c'}':
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return 0


cdef void find_answers(
    const Search* search, const uint8_t* data, Py_ssize_t length, uint8_t* matched, Found* found
) noexcept nogil:
    """Match the boxed patterns of nodes that are missing with the answers of a text.

    ``found`` receives their places in the text, and the number of the pattern p as -2 - p.
    """
    cdef Py_ssize_t at = 0, end
    cdef bint box
    if not boxes_missing(search, matched):
        return
    while at < length:
        end = 0
        if data[at] == 0xE7 or data[at] in b"\\#aA \t*":
            end = mark_end(data, length, at, &box)
        if not end:
            at += 1
            continue
        read_answer(search, data, length, at, end, box, matched, found)
        at = end


cdef bint boxes_missing(const Search* search, const uint8_t* matched) noexcept nogil:
    cdef uint32_t index
    for index in range(search.num_boxes):
        if not matched[search.patterns[search.boxes[index].pattern].node]:
            return True
    return False


cdef void read_answer(
    const Search* search, const uint8_t* data, Py_ssize_t length, Py_ssize_t at, Py_ssize_t end,
    bint box, uint8_t* matched, Found* found
) noexcept nogil:
    """Look for missing boxed patterns in the box, or behind the mark, at [at, end)."""
    cdef uint8_t form[ANSWER_CAPACITY]
    cdef uint32_t offsets[2 * ANSWER_CAPACITY]
    cdef uint32_t* starts = NULL if found == NULL else offsets
    cdef uint32_t* ends = NULL if found == NULL else offsets + ANSWER_CAPACITY
    cdef Py_ssize_t begin = at, stop, size, first = 0, last
    cdef const uint8_t* newline
    cdef bint cut = False
    cdef uint32_t index
    cdef const Box* sought
    cdef const Pattern* pattern
    if box:
        stop = box_end(data, length, end)
        if not stop:
            return
    else:
        begin = after_blanks(data, length, end, b" \t\r\n*")
        stop = min(length, begin + MAX_ANSWER_BYTES)
        newline = <const uint8_t*>memchr(data + begin, c'\n', stop - begin)
        if newline != NULL:
            stop = newline - data
        cut = stop - begin == MAX_ANSWER_BYTES and stop < length
    size = normal_form(data + begin, stop - begin, form, starts, ends)
    while first < size and is_punctuation(form[first]):
        first += 1
    for index in range(search.num_boxes):
        sought = &search.boxes[index]
        pattern = &search.patterns[sought.pattern]
        last = first + sought.length
        if matched[pattern.node] or last > size:
            continue
        if memcmp(form + first, sought.data, sought.length):
            continue
        if box:
            while size > last and is_punctuation(form[size - 1]):
                size -= 1
            if last != size:
                continue
        elif (cut and last == size) or not right_free(form, size, last, pattern.edges):
            continue
        matched[pattern.node] = CHANNEL_PATTERN
        if found != NULL:
            found[pattern.node].pattern = -2 - <int32_t>sought.pattern
            found[pattern.node].start = <uint32_t>(at if box else begin + starts[first])
            found[pattern.node].end = <uint32_t>(stop if box else begin + ends[last - 1])
