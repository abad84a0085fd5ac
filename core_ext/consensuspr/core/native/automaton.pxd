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

# What is known of the left end of a pattern that ends a state's text, from that text alone.
cdef enum Left:
    LEFT_OPEN       # it depends on what stands around that text
    LEFT_FREE       # it is no piece of something larger, wherever the text stands
    LEFT_REFUSED    # it is one

# Judge a pattern with these edges that begins at `start` of text[0:length] and ends with it.
ctypedef Left (*Judge)(
    const uint8_t* text, Py_ssize_t length, Py_ssize_t start, uint32_t edges
) noexcept nogil

cdef struct Automaton:
    uint8_t column[256]       # column of a byte; 0: in no pattern
    int32_t* table            # states * width entries: next state's row offset - first_final
    uint32_t states           # state 0 is the root
    uint32_t shift            # a row has 1 << shift entries
    uint32_t finals           # states in which a pattern ends that is not LEFT_REFUSED
    bint crowded              # some final state has several open ones
    # Rows from this offset on belong to final states; the root's state is therefore
    # -first_final.
    int32_t first_final
    # Final states are counted from the first.  What ends in f, the patterns of its whole text and
    # of suffixes of it, is judged here once and for all as far as that goes:
    # - the patterns of its whole text are outputs[output_start[f]:output_start[f + 1]];
    # - edges[f] are those of the longest pattern that ends here;
    # - opens[open_start[f]:open_start[f + 1]] are the final states, longest first and f itself
    #   among them, whose patterns are LEFT_OPEN in f;
    # - givens[given_start[f]:given_start[f + 1]] are those whose patterns are LEFT_FREE in f and
    #   in no shorter suffix, and the final state `given_link[f]` (-1: none) the longest suffix
    #   that has any: whoever follows the links meets all that are LEFT_FREE in f.
    uint32_t* output_start
    uint32_t* outputs
    uint32_t* edges
    uint32_t* open_start
    uint32_t* opens
    uint32_t* given_start
    uint32_t* givens
    int32_t* given_link
    size_t nbytes             # of all allocations

# Build the automaton of `count` patterns, pattern i being data[starts[i]:starts[i + 1]], none
# empty, and with edges[i].  Returns 0, or -1 when memory runs out, with nothing left allocated.
cdef int automaton_build(
    Automaton* automaton, const uint8_t* data, const uint32_t* starts, const uint32_t* edges,
    uint32_t count, Judge judge
) noexcept nogil

# Free what automaton_build allocated; harmless on a zeroed struct and when called twice.
cdef void automaton_free(Automaton* automaton) noexcept nogil
