# cython: language_level=3, freethreading_compatible=True
"""Construction of the dense automaton; scanning is inlined where it is used."""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset


# States, appended one after the other.
cdef struct States:
    uint32_t* items
    size_t capacity, used


cdef struct State:
    uint32_t fail       # the longest proper suffix
    uint32_t number     # among the states of the automaton
    int32_t first       # first pattern that ends here, -1 for none
    uint32_t example    # a pattern that begins with the text of this state
    uint32_t depth      # bytes of that text
    int32_t link        # the longest proper suffix with givens, -1 for none
    bint final          # something is open or given here
    # See Final; lists of states of the trie, each with its length.
    uint32_t open, num_open, given, num_given


# Working storage of one construction, freed at its end.
cdef struct Trie:
    uint32_t* next      # row of state s starts at s << shift; 0: no edge, as the root has no parent
    State* states
    uint32_t num_states
    uint32_t* order     # states but the root, breadth first
    int32_t* sibling    # next pattern that ends in the same state, -1 for none
    States opens, givens


cdef int states_append(States* states, uint32_t state) noexcept nogil:
    """Append a state; -1 when memory runs out."""
    cdef size_t capacity
    cdef uint32_t* grown
    if states.used == states.capacity:
        capacity = 2 * states.capacity + 64
        if capacity > 0x7FFFFFFF:
            return -1
        grown = <uint32_t*>realloc(states.items, capacity * sizeof(uint32_t))
        if grown == NULL:
            return -1
        states.items = grown
        states.capacity = capacity
    states.items[states.used] = state
    states.used += 1
    return 0


cdef int trie_allocate(Trie* trie, uint32_t most, uint32_t shift, uint32_t count) noexcept nogil:
    """Allocate for at most ``most`` states; -1 when memory runs out."""
    cdef uint32_t state
    memset(trie, 0, sizeof(Trie))
    # Offsets of rows are 31 bits wide.  A table beyond that is 8 GiB.
    if <size_t>most << shift > 0x7FFFFFFF:
        return -1
    trie.next = <uint32_t*>calloc(<size_t>most << shift, sizeof(uint32_t))
    trie.states = <State*>calloc(most, sizeof(State))
    trie.order = <uint32_t*>calloc(most, sizeof(uint32_t))
    trie.sibling = <int32_t*>malloc((count + 1) * sizeof(int32_t))
    if trie.next == NULL or trie.states == NULL or trie.order == NULL or trie.sibling == NULL:
        return -1
    for state in range(most):
        trie.states[state].first = trie.states[state].link = -1
    return 0


cdef void trie_free(Trie* trie) noexcept nogil:
    free(trie.next)
    free(trie.states)
    free(trie.order)
    free(trie.sibling)
    free(trie.opens.items)
    free(trie.givens.items)


cdef void automaton_free(Automaton* automaton) noexcept nogil:
    free(automaton.table)
    free(automaton.finals)
    free(automaton.outputs)
    free(automaton.opens)
    free(automaton.givens)
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


cdef void insert_patterns(
    const Automaton* automaton, Trie* trie, const uint8_t* data, const uint32_t* starts,
    uint32_t count
) noexcept nogil:
    cdef uint32_t pattern, index, state, cell
    trie.num_states = 1
    # Backwards and prepending, so that equal patterns end up in their own order.
    for pattern in range(count, 0, -1):
        pattern -= 1
        state = 0
        for index in range(starts[pattern], starts[pattern + 1]):
            cell = (state << automaton.shift) + automaton.column[data[index]]
            if trie.next[cell] == 0:
                trie.next[cell] = trie.num_states
                trie.states[trie.num_states].example = pattern
                trie.states[trie.num_states].depth = index + 1 - starts[pattern]
                trie.num_states += 1
            state = trie.next[cell]
        trie.sibling[pattern] = trie.states[state].first
        trie.states[state].first = <int32_t>pattern


cdef void link_states(const Automaton* automaton, Trie* trie) noexcept nogil:
    """Complete all transitions breadth first; remember that order."""
    cdef uint32_t width = 1u << automaton.shift, head = 0, tail = 0, state, child, column
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
        fallback = trie.next + (<size_t>trie.states[state].fail << automaton.shift)
        for column in range(width):
            child = row[column]
            if child:
                trie.states[child].fail = fallback[column]
                trie.order[tail] = child
                tail += 1
            else:
                row[column] = fallback[column]


cdef int settle_suffixes(
    Automaton* automaton, Trie* trie, const uint8_t* data, const uint32_t* starts,
    const uint32_t* edges, Judge judge
) noexcept nogil:
    """Judge in each state all that ends there, as far as its text tells; -1 without memory.

    A verdict of the longest suffix stays.  A pattern that is open there may be settled here, where
    the text begins earlier.
    """
    cdef const uint8_t* text
    cdef uint32_t index, at, number, part
    cdef State* state
    cdef State* fail
    cdef Left left
    for index in range(trie.num_states - 1):
        number = trie.order[index]
        state = &trie.states[number]
        fail = &trie.states[state.fail]
        text = data + starts[state.example]
        state.link = <int32_t>state.fail if fail.num_given else fail.link
        state.open = <uint32_t>trie.opens.used
        state.given = <uint32_t>trie.givens.used
        # Longest first: its own text, then what is open in its longest suffix.
        for at in range(fail.num_open + 1):
            part = number if at == 0 else trie.opens.items[fail.open + at - 1]
            if trie.states[part].first < 0:
                continue
            left = judge(
                text, state.depth, state.depth - trie.states[part].depth,
                edges[trie.states[part].first],
            )
            if left == LEFT_OPEN and states_append(&trie.opens, part):
                return -1
            if left == LEFT_FREE and states_append(&trie.givens, part):
                return -1
        state.num_open = <uint32_t>trie.opens.used - state.open
        state.num_given = <uint32_t>trie.givens.used - state.given
        state.final = state.num_open or state.num_given or state.link >= 0
        automaton.crowded = automaton.crowded or state.num_open > 1
    return 0


cdef uint32_t* numbered(const Trie* trie, const States* states, uint32_t inner) noexcept nogil:
    """Return a copy of a list as final states, NULL when memory runs out."""
    cdef uint32_t* copy = <uint32_t*>malloc((states.used + 1) * sizeof(uint32_t))
    cdef size_t at
    if copy != NULL:
        for at in range(states.used):
            copy[at] = trie.states[states.items[at]].number - inner
    return copy


cdef int lay_out(
    Automaton* automaton, Trie* trie, const uint32_t* edges, uint32_t count
) noexcept nogil:
    """Number final states last and write the automaton; -1 when memory runs out."""
    cdef uint32_t width = 1u << automaton.shift, inner = 1, number = 1, index, column, written = 0
    cdef int32_t pattern
    cdef size_t target, entries = <size_t>trie.num_states << automaton.shift
    cdef State* state
    cdef Final* final
    for index in range(trie.num_states - 1):
        inner += not trie.states[trie.order[index]].final
    for index in range(trie.num_states - 1):
        state = &trie.states[trie.order[index]]
        if state.final:
            state.number = inner + automaton.num_finals
            automaton.num_finals += 1
        else:
            state.number = number
            number += 1
    automaton.states = trie.num_states
    automaton.first_final = <int32_t>(inner << automaton.shift)
    automaton.table = <int32_t*>malloc(entries * sizeof(int32_t))
    automaton.finals = <Final*>malloc((<size_t>automaton.num_finals + 1) * sizeof(Final))
    automaton.outputs = <uint32_t*>malloc((<size_t>count + 1) * sizeof(uint32_t))
    automaton.opens = numbered(trie, &trie.opens, inner)
    automaton.givens = numbered(trie, &trie.givens, inner)
    if (
        automaton.table == NULL or automaton.finals == NULL or automaton.outputs == NULL
        or automaton.opens == NULL or automaton.givens == NULL
    ):
        return -1
    automaton.nbytes = (
        (entries + count + trie.opens.used + trie.givens.used + 3) * sizeof(uint32_t)
        + (<size_t>automaton.num_finals + 1) * sizeof(Final)
    )
    for index in range(trie.num_states):
        number = 0 if index == 0 else trie.order[index - 1]
        state = &trie.states[number]
        target = <size_t>state.number << automaton.shift
        for column in range(width):
            automaton.table[target + column] = <int32_t>(
                trie.states[trie.next[(<size_t>number << automaton.shift) + column]].number
                << automaton.shift
            ) - automaton.first_final
        if not state.final:
            continue
        # Breadth first is also the order of the final numbers: lists come out in a row.
        final = &automaton.finals[state.number - inner]
        final.output = written
        pattern = state.first
        while pattern >= 0:
            automaton.outputs[written] = <uint32_t>pattern
            written += 1
            pattern = trie.sibling[pattern]
        final.edges = (
            edges[state.first] if state.first >= 0
            else automaton.finals[trie.states[state.fail].number - inner].edges
        )
        final.open = state.open
        final.given = state.given
        final.link = (-1 if state.link < 0 else <int32_t>(trie.states[state.link].number - inner))
    final = &automaton.finals[automaton.num_finals]
    final.output = written
    final.open = <uint32_t>trie.opens.used
    final.given = <uint32_t>trie.givens.used
    return 0


cdef int automaton_build(
    Automaton* automaton, const uint8_t* data, const uint32_t* starts, const uint32_t* edges,
    uint32_t count, Judge judge
) noexcept nogil:
    cdef Trie trie
    cdef int failed = -1
    memset(automaton, 0, sizeof(Automaton))
    number_columns(automaton, data, starts[count])
    if trie_allocate(&trie, starts[count] + 1, automaton.shift, count) == 0:
        insert_patterns(automaton, &trie, data, starts, count)
        link_states(automaton, &trie)
        failed = settle_suffixes(automaton, &trie, data, starts, edges, judge) or lay_out(
            automaton, &trie, edges, count
        )
    trie_free(&trie)
    if failed:
        automaton_free(automaton)
    return failed
