# The search of a normal form for all patterns of a matcher at once.

cdef uint32_t take_outputs(
    const Search* search,
    uint32_t final,
    const uint8_t* data,
    Py_ssize_t length,
    Py_ssize_t end,
    uint8_t* matched,
    Found* found,
) noexcept nogil:
    """Judge all patterns that end at ``end``; return how many nodes are new."""
    cdef const Automaton* automaton = &search.automaton
    cdef const Pattern* pattern
    cdef int32_t state = <int32_t>final
    cdef uint32_t index, number
    cdef uint32_t fresh = 0
    cdef Py_ssize_t start
    while state >= 0:
        for index in range(automaton.output_start[state], automaton.output_start[state + 1]):
            number = automaton.outputs[index]
            pattern = &search.patterns[number]
            if matched[pattern.node]:
                continue
            start = end - pattern.length
            if left_free(data, length, start, pattern.edges) and right_free(
                data, length, end, pattern.edges
            ):
                matched[pattern.node] = CHANNEL_PATTERN
                fresh += 1
                if found != NULL:
                    found[pattern.node].pattern = <int32_t>number
                    found[pattern.node].start = <uint32_t>start
                    found[pattern.node].end = <uint32_t>end
        state = automaton.suffix[state]
    return fresh


cdef Py_ssize_t scan_lanes(
    const Search* search,
    const uint8_t* data,
    Py_ssize_t length,
    uint8_t* matched,
    uint32_t* missing,
) noexcept nogil:
    """Scan as four lanes at once and return where an ordinary scan has to go on.

    Each step of an automaton waits for the load of the step before; four independent lanes
    keep the processor busy meanwhile.  A lane begins one pattern's length before its part,
    so that no hit is lost at the seams; hits there may be judged twice, to the same end.
    Which hit of a node comes first is not known, so this serves only where nobody asks.
    """
    cdef const int32_t* rows = search.automaton.table + search.automaton.first_final
    cdef const uint8_t* column = search.automaton.column
    cdef uint32_t shift = search.automaton.shift
    cdef Py_ssize_t overlap = search.longest
    # Three lanes lie side by side with their overlaps, the last one ends where they leave off.
    cdef Py_ssize_t part = (length - overlap) // LANES
    cdef const uint8_t* lane1 = data + part
    cdef const uint8_t* lane2 = data + 2 * part
    cdef const uint8_t* lane3 = data + 3 * part
    cdef int32_t state0 = -search.automaton.first_final
    cdef int32_t state1 = -search.automaton.first_final
    cdef int32_t state2 = -search.automaton.first_final
    cdef int32_t state3 = -search.automaton.first_final
    cdef Py_ssize_t at
    for at in range(part + overlap):
        state0 = rows[<Py_ssize_t>state0 + column[data[at]]]
        state1 = rows[<Py_ssize_t>state1 + column[lane1[at]]]
        state2 = rows[<Py_ssize_t>state2 + column[lane2[at]]]
        state3 = rows[<Py_ssize_t>state3 + column[lane3[at]]]
        if (state0 & state1 & state2 & state3) >= 0:
            if state0 >= 0:
                missing[0] -= take_outputs(
                    search, state0 >> shift, data, length, at + 1, matched, NULL
                )
            if state1 >= 0:
                missing[0] -= take_outputs(
                    search,
                    state1 >> shift,
                    data,
                    length,
                    part + at + 1,
                    matched,
                    NULL,
                )
            if state2 >= 0:
                missing[0] -= take_outputs(
                    search,
                    state2 >> shift,
                    data,
                    length,
                    2 * part + at + 1,
                    matched,
                    NULL,
                )
            if state3 >= 0:
                missing[0] -= take_outputs(
                    search,
                    state3 >> shift,
                    data,
                    length,
                    3 * part + at + 1,
                    matched,
                    NULL,
                )
            if missing[0] == 0:
                break
    # Less than four bytes are left; a pattern that ends in them begins in the overlap.
    return max(<Py_ssize_t>0, LANES * part)


cdef uint32_t count_missing(const Search* search, const uint8_t* matched) noexcept nogil:
    """Count the nodes that have not been found."""
    cdef uint32_t missing = 0
    cdef uint32_t node
    for node in range(search.num_nodes):
        missing += matched[node] == 0
    return missing


cdef void scan(
    const Search* search, const uint8_t* data, Py_ssize_t length, uint8_t* matched, Found* found
) noexcept nogil:
    """Set matched[node] for every node found in the normal form data[0:length].

    Nodes that are set already are looked for no more.
    """
    cdef const int32_t* rows
    cdef const uint8_t* column = search.automaton.column
    cdef uint32_t shift = search.automaton.shift
    cdef int32_t state = -search.automaton.first_final
    cdef uint32_t missing = count_missing(search, matched)
    cdef Py_ssize_t at = 0
    if search.num_patterns == 0 or missing == 0:
        return
    if found == NULL and length >= LANES * (<Py_ssize_t>search.longest + LANE_BYTES):
        at = scan_lanes(search, data, length, matched, &missing)
        if missing == 0:
            return
    rows = search.automaton.table + search.automaton.first_final
    for at in range(at, length):
        state = rows[<Py_ssize_t>state + column[data[at]]]
        if state >= 0:
            missing -= take_outputs(
                search, state >> shift, data, length, at + 1, matched, found
            )
            if missing == 0:
                return
