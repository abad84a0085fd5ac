"""The compiled equation reader: equations with names in a normal form, without the GIL."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from consensuspr.core.native.hash_set cimport HashSet
from consensuspr.core.native.statements cimport Keys, KeySlot

# What reaches the nodes of a matcher; zeroed before its first use.
cdef struct EquationTable:
    uint32_t wanted     # bits of algebra.FactGroup: what is read and counted
    Keys keys
    HashSet shapes      # of the equations that these were made of
    uint32_t renamed_names      # bits: how many names they have

# Where an equation reached a node, in the normal form, and by which key.
cdef struct EquationPlace:
    uint32_t start, end, key

cdef struct Algebra

# What one thread needs; zeroed before its first use.
cdef struct AlgebraWorkspace:
    Algebra* reader

cdef void algebra_free(AlgebraWorkspace* workspace) noexcept nogil
cdef int equation_table_build(
    EquationTable* table, const uint64_t* hashes, const uint32_t* nodes, const uint64_t* shapes,
    const uint32_t* names, Py_ssize_t count
) noexcept nogil
cdef void equation_table_free(EquationTable* table) noexcept nogil
cdef Py_ssize_t equation_table_nbytes(const EquationTable* table) noexcept nogil

# Begin a text; then read whole paragraphs of its normal form one after another.  Nodes that
# equations reach are set to `channel` in `matched` where nothing is set, and their places in
# `places` unless that is NULL, shifted by `base`.  -1 where memory runs out.
cdef int algebra_begin(AlgebraWorkspace* workspace) noexcept nogil
cdef int read_equations(
    AlgebraWorkspace* workspace, const uint8_t* form, Py_ssize_t length, Py_ssize_t base,
    const EquationTable* table, uint8_t* matched, uint8_t channel, EquationPlace* places
) noexcept nogil

# How many equations the guard counts of all that was read since the text began.
cdef uint32_t num_equations(const AlgebraWorkspace* workspace) noexcept nogil
