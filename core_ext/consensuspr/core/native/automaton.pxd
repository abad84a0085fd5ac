"""A dense Aho–Corasick automaton over the bytes of a normal form.

Bytes that occur in no pattern share one column, so that the table of a problem with 40
patterns (about 400 states, 40 columns) stays in the first-level cache.  Rows are padded to a
power of two: a state is stored as the offset of its row and the next one is one load away.
Offsets count from the first final row, so that a state is final if it is not negative: four
lanes of a scan are asked at once by the sign of their conjunction.

One owner: whoever called `automaton_build` calls `automaton_free`.  Immutable in between,
and therefore safe to scan with from any number of threads.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef struct Automaton:
    uint8_t column[256]       # column of a byte; 0: in no pattern
    int32_t* table            # states * width entries: next state's row offset - first_final
    uint32_t states           # state 0 is the root
    uint32_t shift            # a row has 1 << shift entries
    # Rows from this offset on belong to states in which some pattern ends; the root's state
    # is therefore -first_final.
    int32_t first_final
    # For final state f (counted from the first): own patterns are
    # outputs[output_start[f]] ... outputs[output_start[f + 1] - 1], and `suffix[f]` is the final
    # state (same count) of the longest proper suffix that is one, -1 for none.
    uint32_t* output_start
    int32_t* suffix
    uint32_t* outputs
    size_t nbytes             # of all allocations

# Build the automaton of `count` patterns, pattern i being data[starts[i]:starts[i + 1]], none
# empty.  Returns 0, or -1 when memory runs out, with nothing left allocated.
cdef int automaton_build(
    Automaton* automaton, const uint8_t* data, const uint32_t* starts, uint32_t count
) noexcept nogil

# Free what automaton_build allocated; harmless on a zeroed struct and when called twice.
cdef void automaton_free(Automaton* automaton) noexcept nogil
