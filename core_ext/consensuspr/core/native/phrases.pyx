# cython: language_level=3, freethreading_compatible=True, boundscheck=False
"""How many different phrases a text has; the twin says what for."""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport uint8_t, uint64_t

from consensuspr.core.patterns import encode

cdef enum:
    LEAST_SLOTS = 256

# Hashes of phrases; open addressing, at most half full.
cdef struct Phrases:
    uint64_t* slots
    Py_ssize_t capacity   # a power of two, or 0
    Py_ssize_t size


def count_phrases(text, Py_ssize_t limit):
    cdef bytes data = text if isinstance(text, bytes) else encode(text)
    cdef const uint8_t* raw = data
    cdef Py_ssize_t length = len(data)
    cdef Py_ssize_t count
    with nogil:
        count = _count(raw, length, limit)
    if count < 0:
        raise MemoryError(f"no memory to count the phrases of {length} bytes")
    return count


cdef inline bint is_letter(uint8_t byte) noexcept nogil:
    return <uint8_t>((byte | 0x20) - c'a') < 26


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    value = (value ^ value >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ value >> 27) * <uint64_t>0x94D049BB133111EB
    return value ^ value >> 31


cdef Py_ssize_t _count(const uint8_t* data, Py_ssize_t length, Py_ssize_t limit) noexcept nogil:
    """Return how many phrases there are, -1 if memory runs out."""
    cdef Phrases phrases
    cdef Py_ssize_t at = 0, words = 0
    cdef uint64_t first = 0, second = 0, word
    cdef bint failed = False
    phrases.slots = NULL
    phrases.capacity = 0
    phrases.size = 0
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
            failed = not add(&phrases, mixed(mixed(mixed(first) + second) + word) | 1)
        first = second
        second = word
    PyMem_RawFree(phrases.slots)
    return -1 if failed else phrases.size


cdef bint add(Phrases* phrases, uint64_t phrase) noexcept nogil:
    """Add a phrase, never 0; False if memory runs out."""
    cdef Py_ssize_t slot
    if 2 * phrases.size >= phrases.capacity and not grow(phrases):
        return False
    slot = <Py_ssize_t>(phrase & <uint64_t>(phrases.capacity - 1))
    while phrases.slots[slot]:
        if phrases.slots[slot] == phrase:
            return True
        slot = (slot + 1) & (phrases.capacity - 1)
    phrases.slots[slot] = phrase
    phrases.size += 1
    return True


cdef bint grow(Phrases* phrases) noexcept nogil:
    cdef Py_ssize_t capacity = 2 * phrases.capacity if phrases.capacity else LEAST_SLOTS
    cdef uint64_t* slots = <uint64_t*>PyMem_RawCalloc(capacity, sizeof(uint64_t))
    cdef Py_ssize_t index, slot
    if slots == NULL:
        return False
    for index in range(phrases.capacity):
        if phrases.slots[index]:
            slot = <Py_ssize_t>(phrases.slots[index] & <uint64_t>(capacity - 1))
            while slots[slot]:
                slot = (slot + 1) & (capacity - 1)
            slots[slot] = phrases.slots[index]
    PyMem_RawFree(phrases.slots)
    phrases.slots = slots
    phrases.capacity = capacity
    return True
