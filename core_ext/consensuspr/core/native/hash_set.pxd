"""A growing set of hashes that are not 0: open addressing, at most half full."""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport uint64_t
from libc.string cimport memset

# Zeroed before its first use.
cdef struct HashSet:
    uint64_t* slots
    Py_ssize_t capacity     # a power of two, or 0
    Py_ssize_t size

cdef enum:
    FIRST_SLOTS = 64
    KEPT_SLOTS = 4096       # of more the memory is given back


cdef inline uint64_t* set_slot(const HashSet* found, uint64_t value) noexcept nogil:
    """Return where a value stands, or the free place for it; the set has room."""
    cdef uint64_t mask = <uint64_t>found.capacity - 1
    cdef uint64_t slot = value & mask
    while found.slots[slot] and found.slots[slot] != value:
        slot = (slot + 1) & mask
    return &found.slots[slot]


cdef inline int set_grow(HashSet* found) noexcept nogil:
    cdef HashSet grown
    cdef Py_ssize_t index
    grown.capacity = 2 * found.capacity if found.capacity else FIRST_SLOTS
    grown.size = found.size
    grown.slots = <uint64_t*>PyMem_RawCalloc(grown.capacity, sizeof(uint64_t))
    if grown.slots == NULL:
        return -1
    for index in range(found.capacity):
        if found.slots[index]:
            set_slot(&grown, found.slots[index])[0] = found.slots[index]
    PyMem_RawFree(found.slots)
    found[0] = grown
    return 0


cdef inline int set_add(HashSet* found, uint64_t value) noexcept nogil:
    """Add a value; -1 if memory runs out."""
    cdef uint64_t* slot
    if 2 * found.size >= found.capacity and set_grow(found) < 0:
        return -1
    slot = set_slot(found, value)
    found.size += slot[0] == 0
    slot[0] = value
    return 0


cdef inline bint set_has(const HashSet* found, uint64_t value) noexcept nogil:
    return found.capacity and set_slot(found, value)[0] == value


cdef inline void set_free(HashSet* found) noexcept nogil:
    PyMem_RawFree(found.slots)
    memset(found, 0, sizeof(HashSet))


cdef inline void set_clear(HashSet* found) noexcept nogil:
    """Empty a set; give the memory of a large one back."""
    if found.capacity > KEPT_SLOTS:
        set_free(found)
    elif found.size:
        memset(found.slots, 0, found.capacity * sizeof(uint64_t))
    found.size = 0
