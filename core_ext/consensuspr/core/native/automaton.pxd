"""A dense Aho–Corasick automaton over the bytes of a normal form.

Bytes that occur in no pattern share one column, so that the table of a problem with 40 patterns
(about 400 states, 40 columns) stays in the first-level cache.  A row is a power of two wide, and
a state is stored as the offset of its row from the first final row: a final state is not negative.

The caller of `automaton_build` calls `automaton_free`.  In between the automaton never changes, so
any number of threads may scan with it.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t

# The left end of a pattern that ends the text of a state, judged from that text alone.
cdef enum Left:
    LEFT_OPEN       # it depends on the surroundings of that text
    LEFT_FREE       # it is no piece of something larger, in any surroundings
    LEFT_REFUSED    # it is one

# Judge a pattern with these edges that begins at `start` of text[0:length] and ends with it.
ctypedef Left (*Judge)(
    const uint8_t* text, Py_ssize_t length, Py_ssize_t start, uint32_t edges
) noexcept nogil

# A final state f.  Each of its three lists ends where that of f + 1 begins.
cdef struct Final:
    uint32_t output     # outputs: the patterns of its whole text
    uint32_t open       # opens: final states whose patterns are LEFT_OPEN here, longest first
    uint32_t given      # givens: those whose patterns are LEFT_FREE here and in no shorter suffix
    int32_t link        # the longest suffix with givens, -1 for none; links lead to all of them
    uint32_t edges      # of the longest pattern that ends here

cdef struct Automaton:
    uint8_t column[256]       # column of a byte; 0: in no pattern
    int32_t* table            # states * width entries: next state's row offset - first_final
    uint32_t states           # state 0 is the root
    uint32_t shift            # a row has 1 << shift entries
    uint32_t num_finals       # states in which a pattern ends that is not LEFT_REFUSED
    bint crowded              # some final state has several open ones
    int32_t first_final       # offset of the first final row; the root's state is -first_final
    Final* finals             # one more than there are
    uint32_t* outputs
    uint32_t* opens
    uint32_t* givens
    size_t nbytes             # of all allocations

# Build the automaton of `count` patterns, pattern i being data[starts[i]:starts[i + 1]], none
# empty, and with edges[i].  Returns 0, or -1 when memory runs out, with nothing left allocated.
cdef int automaton_build(
    Automaton* automaton, const uint8_t* data, const uint32_t* starts, const uint32_t* edges,
    uint32_t count, Judge judge
) noexcept nogil

# Free what automaton_build allocated; harmless on a zeroed struct and when called twice.
cdef void automaton_free(Automaton* automaton) noexcept nogil
