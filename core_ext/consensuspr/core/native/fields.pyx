# cython: language_level=3, freethreading_compatible=True, boundscheck=False
"""How many fields a message in protobuf's wire format has; the twin says what for."""

from libc.stdint cimport uint8_t, uint64_t

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
    _count(&reading, 0, len(message), 0)
    return reading.count


cdef bint _count(Reading* reading, Py_ssize_t at, Py_ssize_t end, Py_ssize_t kind) noexcept nogil:
    """Count the fields in [at, end); False where that was stopped."""
    cdef uint64_t tag, size
    cdef uint8_t inner
    while at < end:
        reading.count += 1
        if reading.count > reading.limit or not _varint(reading.data, &at, end, &tag):
            return False
        if tag & 7 == LENGTH:
            if not _varint(reading.data, &at, end, &size) or size > <uint64_t>(end - at):
                return False
            inner = 0
            if tag >> 3 < KIND_FIELDS:
                inner = reading.table[kind * KIND_FIELDS + <Py_ssize_t>(tag >> 3)]
            if inner and not _count(reading, at, at + <Py_ssize_t>size, inner):
                return False
            at += <Py_ssize_t>size
        elif tag & 7 == VARINT:
            if not _varint(reading.data, &at, end, &size):
                return False
        elif tag & 7 == EIGHT_BYTES:
            at += 8
        elif tag & 7 == FOUR_BYTES:
            at += 4
        elif tag & 7 != GROUP and tag & 7 != GROUP_END:
            return False
    return True


cdef bint _varint(
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
