# cython: language_level=3, freethreading_compatible=True, boundscheck=False
"""Two counts: the different phrases of a text, and the fields of a protobuf message."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from consensuspr.core.native.hash_set cimport HashSet, set_add, set_free

from consensuspr.core.patterns import encode


def count_phrases(text, Py_ssize_t limit):
    """Return how many different phrases a text has, at most ``limit``; case is ignored."""
    cdef bytes data = text if isinstance(text, bytes) else encode(text)
    cdef const uint8_t* raw = data
    cdef Py_ssize_t length = len(data)
    cdef Py_ssize_t count
    with nogil:
        count = distinct_phrases(raw, length, limit)
    if count < 0:
        raise MemoryError(f"no memory to count the phrases of {length} bytes")
    return count


cdef inline bint is_letter(uint8_t byte) noexcept nogil:
    return <uint8_t>((byte | 0x20) - c'a') < 26


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    value = (value ^ value >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ value >> 27) * <uint64_t>0x94D049BB133111EB
    return value ^ value >> 31


cdef Py_ssize_t distinct_phrases(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t limit
) noexcept nogil:
    """Return how many phrases there are, -1 if memory runs out."""
    cdef HashSet phrases
    cdef Py_ssize_t at = 0, words = 0
    cdef uint64_t first = 0, second = 0, word
    cdef bint failed = False
    memset(&phrases, 0, sizeof(HashSet))
    while at < length and phrases.size < limit and not failed:
        word = <uint64_t>0xCBF29CE484222325
        if is_letter(data[at]):
            while at < length and is_letter(data[at]):
                word = (word ^ (data[at] | 0x20)) * <uint64_t>0x100000001B3
                at += 1
        elif data[at] >= 0xC0:
            word = (word ^ data[at]) * <uint64_t>0x100000001B3
            at += 1
            while at < length and data[at] & 0xC0 == 0x80:
                word = (word ^ data[at]) * <uint64_t>0x100000001B3
                at += 1
        else:
            at += 1
            continue
        words += 1
        if words >= 3:
            failed = set_add(&phrases, mixed(mixed(mixed(first) + second) + word) | 1)
        first = second
        second = word
    words = -1 if failed else phrases.size
    set_free(&phrases)
    return words


# --- fields ---------------------------------------------------------------

cdef enum:
    KIND_FIELDS = 32  # entries of the table for one kind of message
    MAX_SHIFT = 63
    VARINT = 0
    EIGHT_BYTES = 1
    LENGTH = 2
    GROUP = 3
    GROUP_END = 4
    FOUR_BYTES = 5


cdef struct Reading:
    const uint8_t* data
    const uint8_t* table
    Py_ssize_t limit, count


def count_fields(bytes message not None, bytes table not None, Py_ssize_t limit):
    """Return how many fields a protobuf message has, inner messages included.

    Counting stops at ``limit + 1``, and at bytes that are not a message.

    Raises:
        ValueError: ``table`` is malformed.
    """
    cdef Reading reading
    cdef const uint8_t* kinds = table
    cdef Py_ssize_t size = len(table), at
    if not size or size % KIND_FIELDS:
        raise ValueError(f"a table has {KIND_FIELDS} bytes a kind, got {size}")
    for at in range(size):
        if kinds[at] * KIND_FIELDS >= size:
            raise ValueError(f"the table has no kind {kinds[at]}")
    reading.data = message
    reading.table = kinds
    reading.limit = limit
    reading.count = 0
    read_fields(&reading, 0, len(message), 0)
    return reading.count


cdef bint read_fields(
    Reading* reading, Py_ssize_t at, Py_ssize_t end, Py_ssize_t kind
) noexcept nogil:
    """Count the fields in [at, end); False where that was stopped."""
    cdef uint64_t tag, size
    cdef uint8_t inner
    while at < end:
        reading.count += 1
        if reading.count > reading.limit or not read_varint(reading.data, &at, end, &tag):
            return False
        if tag & 7 == LENGTH:
            if not read_varint(reading.data, &at, end, &size) or size > <uint64_t>(end - at):
                return False
            inner = 0
            if tag >> 3 < KIND_FIELDS:
                inner = reading.table[kind * KIND_FIELDS + <Py_ssize_t>(tag >> 3)]
            if inner and not read_fields(reading, at, at + <Py_ssize_t>size, inner):
                return False
            at += <Py_ssize_t>size
        elif tag & 7 == VARINT:
            if not read_varint(reading.data, &at, end, &size):
                return False
        elif tag & 7 == EIGHT_BYTES:
            at += 8
        elif tag & 7 == FOUR_BYTES:
            at += 4
        elif tag & 7 != GROUP and tag & 7 != GROUP_END:
            return False
    return True


cdef bint read_varint(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, uint64_t* number
) noexcept nogil:
    """Read a number and move past it; False where there is none."""
    cdef int shift = 0
    cdef uint8_t byte
    number[0] = 0
    while at[0] < end and shift <= MAX_SHIFT:
        byte = data[at[0]]
        at[0] += 1
        number[0] |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return True
        shift += 7
    return False
