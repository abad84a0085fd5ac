# cython: language_level=3, freethreading_compatible=True
"""Construction of the dense automaton; scanning is inlined where it is used."""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset


# Working storage of one construction, freed at its end.
cdef struct Trie:
    uint32_t* next      # row of state s starts at s << shift; 0: no edge, as the root has no parent
    uint32_t* fail      # state of the longest proper suffix
    uint32_t* order     # states but the root, breadth first
    uint32_t* number    # final numbering of a state
    int32_t* first      # first pattern that ends in a state, -1 for none
    int32_t* sibling    # next pattern that ends in the same state, -1 for none
    uint8_t* final      # some pattern ends here, or in a suffix of here


cdef void trie_free(Trie* trie) noexcept nogil:
    free(trie.next)
    free(trie.fail)
    free(trie.order)
    free(trie.number)
    free(trie.first)
    free(trie.sibling)
    free(trie.final)


cdef int trie_allocate(Trie* trie, uint32_t most, uint32_t shift, uint32_t count) noexcept nogil:
    """Allocate for at most ``most`` states; -1 when memory runs out."""
    memset(trie, 0, sizeof(Trie))
    # Offsets of rows are 31 bits wide.  A table beyond that is 8 GiB.
    if <size_t>most << shift > 0x7FFFFFFF:
        return -1
    trie.next = <uint32_t*>calloc(<size_t>most << shift, sizeof(uint32_t))
    trie.fail = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.order = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.number = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.first = <int32_t*>malloc(most * sizeof(int32_t))
    trie.sibling = <int32_t*>malloc((count + 1) * sizeof(int32_t))
    trie.final = <uint8_t*>calloc(most, 1)
    if (
        trie.next == NULL
        or trie.fail == NULL
        or trie.order == NULL
        or trie.number == NULL
        or trie.first == NULL
        or trie.sibling == NULL
        or trie.final == NULL
    ):
        return -1
    memset(trie.first, 0xFF, most * sizeof(int32_t))
    return 0


cdef void automaton_free(Automaton* automaton) noexcept nogil:
    free(automaton.table)
    free(automaton.output_start)
    free(automaton.suffix)
    free(automaton.outputs)
    memset(automaton, 0, sizeof(Automaton))


cdef void number_columns(
    Automaton* automaton, const uint8_t* data, uint32_t length
) noexcept nogil:
    """Give each byte that occurs in a pattern a column, and settle the width of a row."""
    cdef uint32_t columns = 1
    cdef uint32_t index
    for index in range(length):
        if automaton.column[data[index]] == 0:
            # At most 255 distinct bytes: 0xFF occurs in no well-formed UTF-8.
            automaton.column[data[index]] = <uint8_t>columns
            columns += 1
    automaton.shift = 0
    while 1u << automaton.shift < columns:
        automaton.shift += 1


cdef uint32_t insert_patterns(
    const Automaton* automaton,
    Trie* trie,
    const uint8_t* data,
    const uint32_t* starts,
    uint32_t count,
) noexcept nogil:
    """Fill the trie; return its number of states."""
    cdef uint32_t states = 1
    cdef uint32_t pattern, index, state, cell
    # Backwards and prepending, so that equal patterns end up in their own order.
    for pattern in range(count, 0, -1):
        pattern -= 1
        state = 0
        for index in range(starts[pattern], starts[pattern + 1]):
            cell = (state << automaton.shift) + automaton.column[data[index]]
            if trie.next[cell] == 0:
                trie.next[cell] = states
                states += 1
            state = trie.next[cell]
        trie.sibling[pattern] = trie.first[state]
        trie.first[state] = <int32_t>pattern
    return states


cdef void link_states(const Automaton* automaton, Trie* trie) noexcept nogil:
    """Complete all transitions breadth first; remember that order and the final states."""
    cdef uint32_t width = 1u << automaton.shift
    cdef uint32_t head = 0
    cdef uint32_t tail = 0
    cdef uint32_t state, child, column
    cdef uint32_t* row
    cdef const uint32_t* fallback
    for column in range(width):
        child = trie.next[column]
        if child:
            trie.order[tail] = child
            tail += 1
    while head < tail:
        state = trie.order[head]
        head += 1
        trie.final[state] = trie.first[state] >= 0 or trie.final[trie.fail[state]]
        row = trie.next + (<size_t>state << automaton.shift)
        fallback = trie.next + (<size_t>trie.fail[state] << automaton.shift)
        for column in range(width):
            child = row[column]
            if child:
                trie.fail[child] = fallback[column]
                trie.order[tail] = child
                tail += 1
            else:
                row[column] = fallback[column]


cdef int lay_out(
    Automaton* automaton, Trie* trie, uint32_t states, uint32_t count
) noexcept nogil:
    """Number final states last and write the automaton; -1 when memory runs out."""
    cdef uint32_t width = 1u << automaton.shift
    cdef uint32_t inner = 1
    cdef uint32_t index, state, column, finals, final, fail
    cdef uint32_t written = 0
    cdef int32_t pattern
    cdef size_t target
    for index in range(states - 1):
        state = trie.order[index]
        if not trie.final[state]:
            trie.number[state] = inner
            inner += 1
    finals = 0
    for index in range(states - 1):
        state = trie.order[index]
        if trie.final[state]:
            trie.number[state] = inner + finals
            finals += 1
    automaton.states = states
    automaton.first_final = <int32_t>(inner << automaton.shift)
    automaton.table = <int32_t*>malloc((<size_t>states << automaton.shift) * sizeof(int32_t))
    automaton.output_start = <uint32_t*>malloc((<size_t>finals + 1) * sizeof(uint32_t))
    automaton.suffix = <int32_t*>malloc((<size_t>finals + 1) * sizeof(int32_t))
    automaton.outputs = <uint32_t*>malloc((<size_t>count + 1) * sizeof(uint32_t))
    if (
        automaton.table == NULL
        or automaton.output_start == NULL
        or automaton.suffix == NULL
        or automaton.outputs == NULL
    ):
        return -1
    automaton.nbytes = (
        (<size_t>states << automaton.shift) + 2 * (<size_t>finals + 1) + count + 1
    ) * sizeof(uint32_t)
    for index in range(states):
        state = 0 if index == 0 else trie.order[index - 1]
        target = <size_t>trie.number[state] << automaton.shift
        for column in range(width):
            automaton.table[target + column] = <int32_t>(
                trie.number[trie.next[(<size_t>state << automaton.shift) + column]]
                << automaton.shift
            ) - automaton.first_final
        if not trie.final[state]:
            continue
        # Breadth first is also the order of the final numbers: outputs come out in a row.
        final = trie.number[state] - inner
        automaton.output_start[final] = written
        pattern = trie.first[state]
        while pattern >= 0:
            automaton.outputs[written] = <uint32_t>pattern
            written += 1
            pattern = trie.sibling[pattern]
        fail = trie.fail[state]
        if not trie.final[fail]:
            automaton.suffix[final] = -1
        elif trie.first[fail] >= 0:
            automaton.suffix[final] = <int32_t>(trie.number[fail] - inner)
        else:
            automaton.suffix[final] = automaton.suffix[trie.number[fail] - inner]
    automaton.output_start[finals] = written
    return 0


cdef int automaton_build(
    Automaton* automaton, const uint8_t* data, const uint32_t* starts, uint32_t count
) noexcept nogil:
    cdef Trie trie
    cdef uint32_t states
    cdef int failed = -1
    memset(automaton, 0, sizeof(Automaton))
    number_columns(automaton, data, starts[count])
    if trie_allocate(&trie, starts[count] + 1, automaton.shift, count) == 0:
        states = insert_patterns(automaton, &trie, data, starts, count)
        link_states(automaton, &trie)
        failed = lay_out(automaton, &trie, states, count)
    trie_free(&trie)
    if failed:
        automaton_free(automaton)
    return failed
