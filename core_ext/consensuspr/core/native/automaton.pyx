# cython: language_level=3, freethreading_compatible=True
"""Construction of the dense automaton; scanning is inlined where it is used."""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset


# States in a row, each with its part [at[state], at[state] + size[state]).
cdef struct Lists:
    uint32_t* items
    size_t capacity, used
    uint32_t* at
    uint32_t* size


# Working storage of one construction, freed at its end.
cdef struct Trie:
    uint32_t* next      # row of state s starts at s << shift; 0: no edge, as the root has no parent
    uint32_t* fail      # state of the longest proper suffix
    uint32_t* order     # states but the root, breadth first
    uint32_t* number    # final numbering of a state
    int32_t* first      # first pattern that ends in a state, -1 for none
    int32_t* sibling    # next pattern that ends in the same state, -1 for none
    uint32_t* example   # a pattern that begins with the text of a state
    uint32_t* depth     # bytes of that text
    int32_t* link       # state of the longest proper suffix with givens, -1 for none
    uint8_t* final      # something is open or given here
    Lists opens         # see Automaton, of states of the trie
    Lists givens


cdef void trie_free(Trie* trie) noexcept nogil:
    free(trie.next)
    free(trie.fail)
    free(trie.order)
    free(trie.number)
    free(trie.first)
    free(trie.sibling)
    free(trie.example)
    free(trie.depth)
    free(trie.link)
    free(trie.final)
    free(trie.opens.items)
    free(trie.opens.at)
    free(trie.opens.size)
    free(trie.givens.items)
    free(trie.givens.at)
    free(trie.givens.size)


cdef int lists_append(Lists* lists, uint32_t state, uint32_t item) noexcept nogil:
    """Append to the part of a state, which is the last one; -1 when memory runs out."""
    cdef size_t capacity
    cdef uint32_t* grown
    if lists.used == lists.capacity:
        capacity = 2 * lists.capacity + 64
        if capacity > 0x7FFFFFFF:
            return -1
        grown = <uint32_t*>realloc(lists.items, capacity * sizeof(uint32_t))
        if grown == NULL:
            return -1
        lists.items = grown
        lists.capacity = capacity
    if lists.size[state] == 0:
        lists.at[state] = <uint32_t>lists.used
    lists.items[lists.used] = item
    lists.used += 1
    lists.size[state] += 1
    return 0


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
    trie.example = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.depth = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.link = <int32_t*>malloc(most * sizeof(int32_t))
    trie.final = <uint8_t*>calloc(most, 1)
    trie.opens.at = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.opens.size = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.givens.at = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.givens.size = <uint32_t*>calloc(most, sizeof(uint32_t))
    if (
        trie.next == NULL
        or trie.fail == NULL
        or trie.order == NULL
        or trie.number == NULL
        or trie.first == NULL
        or trie.sibling == NULL
        or trie.example == NULL
        or trie.depth == NULL
        or trie.link == NULL
        or trie.final == NULL
        or trie.opens.at == NULL
        or trie.opens.size == NULL
        or trie.givens.at == NULL
        or trie.givens.size == NULL
    ):
        return -1
    memset(trie.first, 0xFF, most * sizeof(int32_t))
    memset(trie.link, 0xFF, most * sizeof(int32_t))
    return 0


cdef void automaton_free(Automaton* automaton) noexcept nogil:
    free(automaton.table)
    free(automaton.output_start)
    free(automaton.outputs)
    free(automaton.edges)
    free(automaton.open_start)
    free(automaton.opens)
    free(automaton.given_start)
    free(automaton.givens)
    free(automaton.given_link)
    memset(automaton, 0, sizeof(Automaton))


cdef void number_columns(Automaton* automaton, const uint8_t* data, uint32_t length) noexcept nogil:
    """Give each byte that occurs in a pattern a column, and settle the width of a row."""
    cdef uint32_t columns = 1, index
    for index in range(length):
        if automaton.column[data[index]] == 0:
            # At most 255 distinct bytes: 0xFF occurs in no well-formed UTF-8.
            automaton.column[data[index]] = <uint8_t>columns
            columns += 1
    automaton.shift = 0
    while 1u << automaton.shift < columns:
        automaton.shift += 1


cdef uint32_t insert_patterns(
    const Automaton* automaton, Trie* trie, const uint8_t* data, const uint32_t* starts,
    uint32_t count
) noexcept nogil:
    """Fill the trie; return its number of states."""
    cdef uint32_t states = 1, pattern, index, state, cell
    # Backwards and prepending, so that equal patterns end up in their own order.
    for pattern in range(count, 0, -1):
        pattern -= 1
        state = 0
        for index in range(starts[pattern], starts[pattern + 1]):
            cell = (state << automaton.shift) + automaton.column[data[index]]
            if trie.next[cell] == 0:
                trie.next[cell] = states
                trie.example[states] = pattern
                trie.depth[states] = index + 1 - starts[pattern]
                states += 1
            state = trie.next[cell]
        trie.sibling[pattern] = trie.first[state]
        trie.first[state] = <int32_t>pattern
    return states


cdef void link_states(const Automaton* automaton, Trie* trie) noexcept nogil:
    """Complete all transitions breadth first; remember that order."""
    cdef uint32_t width = 1u << automaton.shift
    cdef uint32_t head = 0, tail = 0, state, child, column
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


cdef int settle_suffixes(
    Automaton* automaton, Trie* trie, uint32_t states, const uint8_t* data, const uint32_t* starts,
    const uint32_t* edges, Judge judge
) noexcept nogil:
    """Judge in each state all that ends there, as far as its text tells; -1 without memory.

    What its longest suffix has settled stays settled.  What is open there can be settled here,
    where more is known of what stands before it.
    """
    cdef const uint8_t* text
    cdef uint32_t index, at, state, fail, part
    cdef Left left
    for index in range(states - 1):
        state = trie.order[index]
        fail = trie.fail[state]
        text = data + starts[trie.example[state]]
        trie.link[state] = <int32_t>fail if trie.givens.size[fail] else trie.link[fail]
        # Itself first, if a pattern ends with its whole text, then what is open in its suffix.
        for at in range(trie.opens.size[fail] + 1):
            part = state if at == 0 else trie.opens.items[trie.opens.at[fail] + at - 1]
            if trie.first[part] < 0:
                continue
            left = judge(
                text,
                trie.depth[state],
                trie.depth[state] - trie.depth[part],
                edges[trie.first[part]],
            )
            if left == LEFT_OPEN:
                if lists_append(&trie.opens, state, part):
                    return -1
            elif left == LEFT_FREE:
                if lists_append(&trie.givens, state, part):
                    return -1
        trie.final[state] = (
            trie.opens.size[state] or trie.givens.size[state] or trie.link[state] >= 0
        )
        automaton.crowded = automaton.crowded or trie.opens.size[state] > 1
    return 0


cdef void lay_out_list(
    const Trie* trie, const Lists* lists, uint32_t state, uint32_t inner, uint32_t* written,
    uint32_t* target,
) noexcept nogil:
    """Write a state's part of a list as final states."""
    cdef uint32_t at
    for at in range(lists.at[state], lists.at[state] + lists.size[state]):
        target[written[0]] = trie.number[lists.items[at]] - inner
        written[0] += 1


cdef int lay_out(
    Automaton* automaton, Trie* trie, uint32_t states, const uint32_t* edges, uint32_t count
) noexcept nogil:
    """Number final states last and write the automaton; -1 when memory runs out."""
    cdef uint32_t width = 1u << automaton.shift
    cdef uint32_t inner = 1, index, state, column, finals, final, written = 0, opened = 0, given = 0
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
    automaton.finals = finals
    automaton.first_final = <int32_t>(inner << automaton.shift)
    automaton.table = <int32_t*>malloc((<size_t>states << automaton.shift) * sizeof(int32_t))
    automaton.output_start = <uint32_t*>malloc((<size_t>finals + 1) * sizeof(uint32_t))
    automaton.outputs = <uint32_t*>malloc((<size_t>count + 1) * sizeof(uint32_t))
    automaton.edges = <uint32_t*>malloc((<size_t>finals + 1) * sizeof(uint32_t))
    automaton.open_start = <uint32_t*>malloc((<size_t>finals + 1) * sizeof(uint32_t))
    automaton.opens = <uint32_t*>malloc((trie.opens.used + 1) * sizeof(uint32_t))
    automaton.given_start = <uint32_t*>malloc((<size_t>finals + 1) * sizeof(uint32_t))
    automaton.givens = <uint32_t*>malloc((trie.givens.used + 1) * sizeof(uint32_t))
    automaton.given_link = <int32_t*>malloc((<size_t>finals + 1) * sizeof(int32_t))
    if (
        automaton.table == NULL
        or automaton.output_start == NULL
        or automaton.outputs == NULL
        or automaton.edges == NULL
        or automaton.open_start == NULL
        or automaton.opens == NULL
        or automaton.given_start == NULL
        or automaton.givens == NULL
        or automaton.given_link == NULL
    ):
        return -1
    automaton.nbytes = (
        (<size_t>states << automaton.shift)
        + 5 * (<size_t>finals + 1)
        + count
        + trie.opens.used
        + trie.givens.used
        + 3
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
        # Breadth first is also the order of the final numbers: lists come out in a row.
        final = trie.number[state] - inner
        automaton.output_start[final] = written
        pattern = trie.first[state]
        while pattern >= 0:
            automaton.outputs[written] = <uint32_t>pattern
            written += 1
            pattern = trie.sibling[pattern]
        automaton.edges[final] = (
            edges[trie.first[state]]
            if trie.first[state] >= 0
            else automaton.edges[trie.number[trie.fail[state]] - inner]
        )
        automaton.open_start[final] = opened
        lay_out_list(trie, &trie.opens, state, inner, &opened, automaton.opens)
        automaton.given_start[final] = given
        lay_out_list(trie, &trie.givens, state, inner, &given, automaton.givens)
        automaton.given_link[final] = (
            -1 if trie.link[state] < 0 else <int32_t>(trie.number[trie.link[state]] - inner)
        )
    automaton.output_start[finals] = written
    automaton.open_start[finals] = opened
    automaton.given_start[finals] = given
    return 0


cdef int automaton_build(
    Automaton* automaton, const uint8_t* data, const uint32_t* starts, const uint32_t* edges,
    uint32_t count, Judge judge
) noexcept nogil:
    cdef Trie trie
    cdef uint32_t states
    cdef int failed = -1
    memset(automaton, 0, sizeof(Automaton))
    number_columns(automaton, data, starts[count])
    if trie_allocate(&trie, starts[count] + 1, automaton.shift, count) == 0:
        states = insert_patterns(automaton, &trie, data, starts, count)
        link_states(automaton, &trie)
        failed = settle_suffixes(automaton, &trie, states, data, starts, edges, judge)
        if not failed:
            failed = lay_out(automaton, &trie, states, edges, count)
    trie_free(&trie)
    if failed:
        automaton_free(automaton)
    return failed
