# The search of a normal form for all patterns of a matcher at once.

# One search of one text.
cdef struct Scan:
    const Search* search
    const Workspace* counted    # what the guard counts of the text; NULL where it counts nothing
    uint8_t* uncounted  # of each node, whether a hit of it is not counted
    const uint8_t* data
    Py_ssize_t length
    uint8_t* matched
    Found* found        # NULL where nobody asks which hit is first
    uint32_t missing    # nodes that are not found
    bint boxes          # answers in boxes and lists are no patterns; set before the scan begins
    uint8_t* met        # of each final state, MET_ bits
    # What was judged of beginnings of late, for each lane; NULL where nothing is judged twice.
    uint64_t* judged
    void* memory        # of the two


cdef enum:
    MET_OUTPUTS = 1     # the nodes of the patterns of its whole text are found
    MET_GIVENS = 2      # so are those of all that is given there
    MET_ALL = 4         # and those of all that is open there as well
    # Beginnings that are remembered: all that is open in a state begins within BRACKET_LIMIT
    # bytes, what is as short as a name aside.
    JUDGED = 128
    FOUND_BEFORE = 2    # of a node in `uncounted`: the first search of the text has found it


cdef bint is_counted(const Scan* scan, const Pattern* pattern) noexcept nogil:
    """Tell whether the guard counts the numbers and values of a pattern in the text."""
    cdef const Magnitude* needed = scan.search.needed
    cdef uint32_t index
    for index in range(pattern.first_number, pattern.first_value):
        if not writes_number(scan.counted, &needed[index]):
            return False
    for index in range(pattern.first_value, pattern.past_value):
        if not states_value(scan.counted, &needed[index]):
            return False
    return True


cdef void take_outputs(Scan* scan, uint32_t final, Py_ssize_t end) noexcept nogil:
    """Set the nodes of the patterns of a final state's whole text, which ends at ``end``."""
    cdef const Automaton* automaton = &scan.search.automaton
    cdef const Pattern* pattern
    cdef Found* found
    cdef uint32_t index, number
    scan.met[final] |= MET_OUTPUTS
    for index in range(automaton.finals[final].output, automaton.finals[final + 1].output):
        number = automaton.outputs[index]
        pattern = &scan.search.patterns[number]
        if scan.boxes and (pattern.boxed or pattern.edges & EDGE_LIST):
            continue
        if scan.counted != NULL:
            if scan.uncounted[pattern.node] == FOUND_BEFORE:
                continue
            if not is_counted(scan, pattern):
                scan.uncounted[pattern.node] = True
                continue
        if scan.matched[pattern.node] == 0:
            scan.matched[pattern.node] = CHANNEL_PATTERN
            scan.missing -= 1
        elif scan.found == NULL or scan.found[pattern.node].pattern < 0:
            continue
        if scan.found != NULL:
            found = &scan.found[pattern.node]
            # Of what ends at one place the longest is the first hit; states come in any order.
            if found.pattern < 0 or (found.end == end and found.start > end - pattern.length):
                found.pattern = <int32_t>number
                found.start = <uint32_t>(end - pattern.length)
                found.end = <uint32_t>end


cdef bint begins_free(Scan* scan, int lane, Py_ssize_t start, uint32_t edges) noexcept nogil:
    """Return left_free at ``start``, worked out once while it is remembered.

    Of its edges only EDGE_LEFT_FRACTION and EDGE_RELATES depend on more of a pattern than its
    first character.
    """
    cdef uint64_t* slot
    cdef uint64_t name
    if scan.judged == NULL:
        return left_free(scan.data, scan.length, start, edges)
    slot = scan.judged + lane * JUDGED + (start & (JUDGED - 1))
    name = <uint64_t>(start + 1) << 3 | (
        (2 if edges & EDGE_LEFT_FRACTION else 0) | (4 if edges & EDGE_RELATES else 0)
    )
    if slot[0] | 1 != name | 1:
        slot[0] = name | left_free(scan.data, scan.length, start, edges)
    return slot[0] & 1


cdef void take_free(Scan* scan, int lane, uint32_t final, Py_ssize_t end) noexcept nogil:
    """Do what `take` does, whatever follows."""
    cdef const Automaton* automaton = &scan.search.automaton
    cdef const Pattern* pattern
    cdef uint32_t index, state, output
    cdef int32_t given
    cdef bint done = True
    if scan.met[final] & MET_ALL:
        return
    if not right_free(scan.data, scan.length, end, automaton.finals[final].edges):
        return
    for index in range(automaton.finals[final].open, automaton.finals[final + 1].open):
        state = automaton.opens[index]
        if scan.met[state] & MET_OUTPUTS:
            continue
        output = automaton.finals[state].output
        pattern = &scan.search.patterns[automaton.outputs[output]]
        if scan.matched[pattern.node] and automaton.finals[state + 1].output == output + 1:
            # Unless this might be the first hit, and longer than the one that was met.
            if scan.found == NULL or scan.found[pattern.node].end != end:
                scan.met[state] |= MET_OUTPUTS
                continue
        if begins_free(scan, lane, end - pattern.length, pattern.edges):
            take_outputs(scan, state, end)
        else:
            done = False
    given = <int32_t>final
    while given >= 0 and not scan.met[given] & MET_GIVENS:
        scan.met[given] |= MET_GIVENS
        for index in range(automaton.finals[given].given, automaton.finals[given + 1].given):
            state = automaton.givens[index]
            if not scan.met[state] & MET_OUTPUTS:
                take_outputs(scan, state, end)
        given = automaton.finals[given].link
    if done:
        scan.met[final] |= MET_ALL


cdef inline void take(Scan* scan, int lane, uint32_t final, Py_ssize_t end) noexcept nogil:
    """Judge all patterns that end at ``end``, where the automaton is in a final state."""
    # They end with one character, on which alone their right edges depend.  The most frequent
    # case, a letter or digit behind a piece of something larger, needs no call.
    if (
        end < scan.length
        and (is_letter(scan.data[end]) or is_digit(scan.data[end]))
        and scan.search.automaton.finals[final].edges & EDGE_RIGHT_OPERAND
    ):
        return
    take_free(scan, lane, final, end)


cdef Py_ssize_t scan_lanes(Scan* scan) noexcept nogil:
    """Scan as four lanes at once and return where an ordinary scan has to go on.

    Each step of an automaton waits for the load of the step before; four independent lanes
    keep the processor busy meanwhile.  A lane begins one pattern's length before its part,
    so that no hit is lost at the seams; hits there may be judged twice, to the same end.
    Which hit of a node comes first is not known, so this serves only where nobody asks.
    """
    cdef const Search* search = scan.search
    cdef const int32_t* rows = search.automaton.table + search.automaton.first_final
    cdef const uint8_t* column = search.automaton.column
    cdef uint32_t shift = search.automaton.shift
    cdef Py_ssize_t overlap = search.longest
    # Three lanes lie side by side with their overlaps, the last one ends where they leave off.
    cdef Py_ssize_t part = (scan.length - overlap) // LANES
    cdef const uint8_t* lane0 = scan.data
    cdef const uint8_t* lane1 = lane0 + part
    cdef const uint8_t* lane2 = lane0 + 2 * part
    cdef const uint8_t* lane3 = lane0 + 3 * part
    cdef int32_t state0 = -search.automaton.first_final
    cdef int32_t state1 = -search.automaton.first_final
    cdef int32_t state2 = -search.automaton.first_final
    cdef int32_t state3 = -search.automaton.first_final
    cdef Py_ssize_t at
    for at in range(part + overlap):
        state0 = rows[<Py_ssize_t>state0 + column[lane0[at]]]
        state1 = rows[<Py_ssize_t>state1 + column[lane1[at]]]
        state2 = rows[<Py_ssize_t>state2 + column[lane2[at]]]
        state3 = rows[<Py_ssize_t>state3 + column[lane3[at]]]
        if (state0 & state1 & state2 & state3) >= 0:
            if state0 >= 0:
                take(scan, 0, state0 >> shift, at + 1)
            if state1 >= 0:
                take(scan, 1, state1 >> shift, part + at + 1)
            if state2 >= 0:
                take(scan, 2, state2 >> shift, 2 * part + at + 1)
            if state3 >= 0:
                take(scan, 3, state3 >> shift, 3 * part + at + 1)
            if scan.missing == 0:
                break
    # Less than four bytes are left; a pattern that ends in them begins in the overlap.
    return max(<Py_ssize_t>0, LANES * part)


cdef uint32_t count_missing(const Search* search, const uint8_t* matched) noexcept nogil:
    """Count the nodes that have not been found."""
    cdef uint32_t missing = 0, node
    for node in range(search.num_nodes):
        missing += matched[node] == 0
    return missing


cdef int scan_begin(
    Scan* scan, const Search* search, uint8_t* matched, Found* found, const Workspace* counted
) noexcept nogil:
    """Begin to look for the nodes that are not set in ``matched``; -1 when memory runs out.

    Whoever begins ends with `scan_end`, also where this failed.
    """
    cdef size_t judged = LANES * JUDGED if search.automaton.crowded else 0
    cdef uint64_t* memory = NULL
    scan.search = search
    scan.counted = counted
    scan.matched = matched
    scan.found = found
    scan.missing = count_missing(search, matched) if search.num_patterns else 0
    if scan.missing:
        memory = <uint64_t*>calloc(
            judged * sizeof(uint64_t) + search.automaton.num_finals + search.num_nodes, 1
        )
    scan.memory = memory
    scan.judged = memory if judged else NULL
    scan.met = <uint8_t*>(memory + judged)
    scan.uncounted = scan.met + search.automaton.num_finals
    return -1 if scan.missing and memory == NULL else 0


cdef void scan_end(Scan* scan) noexcept nogil:
    free(scan.memory)
    scan.memory = NULL


cdef bint misses_uncounted(const Scan* scan) noexcept nogil:
    """Tell whether a node that is missing has a hit that is not counted."""
    cdef uint32_t node
    if scan.counted == NULL or scan.missing == 0:
        return False
    for node in range(scan.search.num_nodes):
        if scan.uncounted[node] and not scan.matched[node]:
            return True
    return False


cdef int scan_again(
    Scan* scan, Workspace* workspace, const uint8_t* form, Py_ssize_t size, uint32_t* values,
    uint32_t* numbers,
) noexcept nogil:
    """Count what the normal form of a text states too, and search it; -1 if memory runs out."""
    cdef Found* found = scan.found
    cdef uint32_t node
    scan_end(scan)
    if count_too(workspace, form, size, values, numbers) or scan_begin(
        scan, scan.search, scan.matched, found, workspace
    ):
        return -1
    for node in range(scan.search.num_nodes):
        if scan.matched[node]:
            scan.uncounted[node] = FOUND_BEFORE
    scan_form(scan, form, size)
    return 0


cdef void scan_form(Scan* scan, const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """Look for what is missing in a normal form, or in whole paragraphs of one.

    No pattern holds the end of a paragraph, and nothing beyond it counts for the match rule.
    """
    cdef const Automaton* automaton = &scan.search.automaton
    cdef const int32_t* rows = automaton.table + automaton.first_final
    cdef const uint8_t* column = automaton.column
    cdef uint32_t shift = automaton.shift
    cdef int32_t state = -automaton.first_final
    cdef Py_ssize_t at = 0
    scan.data = data
    scan.length = length
    if scan.judged != NULL:
        memset(scan.judged, 0, LANES * JUDGED * sizeof(uint64_t))
    if scan.found == NULL and length >= LANES * (<Py_ssize_t>scan.search.longest + LANE_BYTES):
        at = scan_lanes(scan)
    if scan.missing:
        for at in range(at, length):
            state = rows[<Py_ssize_t>state + column[data[at]]]
            if state >= 0:
                take(scan, 0, state >> shift, at + 1)
                if scan.missing == 0:
                    break
