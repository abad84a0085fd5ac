# cython: language_level=3, freethreading_compatible=True
"""Matching: normal form, automaton and match rule joined over batches of texts.

The Python classes check their arguments and hold references; everything between is free
functions without the GIL on C data.  A ``Matcher`` never changes after construction.
"""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memset, strchr
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from consensuspr.core.native.automaton cimport (
    LEFT_FREE, LEFT_OPEN, LEFT_REFUSED, Automaton, Left, automaton_build, automaton_free,
)
from consensuspr.core.native.algebra cimport (
    AlgebraWorkspace, EquationPlace, EquationTable, algebra_begin, algebra_free,
    equation_table_build, equation_table_free, equation_table_nbytes, num_equations,
    read_equations,
)
from consensuspr.core.native.normal_form cimport (
    CH_BANG, CH_BAR, CH_BRACKET_CLOSE, CH_BRACKET_OPEN, CH_CARET, CH_CLOSE, CH_COMMA, CH_DIGIT,
    CH_EQUALS, CH_GREATER, CH_LESS, CH_LETTER, CH_MINUS, CH_NEWLINE, CH_OPEN, CH_OTHER, CH_PLUS,
    CH_PLUS_MINUS, CH_POINT, CH_PRIME, CH_RELATION, CH_ROOT, CH_SLASH, CH_SPACE, CH_STAR, CH_SYMBOL,
    CH_UNDERSCORE, class_at, class_before, display_follows, normal_form, output_capacity,
)

import numpy as np

from consensuspr.core.algebra import equation_keys, groups_of, mark_lists
from consensuspr.core.native.algebra import read_expression_facts
from consensuspr.core.patterns import BatchResult
from consensuspr.core.expressions import derive_forms
from consensuspr.core.native.normal_form import normalize
from consensuspr.core.patterns import Hit, compile_patterns, freeze_nodes, with_forms
from consensuspr.core.patterns import encode

from consensuspr.core.native.sieve cimport (
    Sieve, are_equations, is_weak, may_hold, next_equals, numbers_of, sieve_build,
    sieve_free, sieve_nbytes,
)
from consensuspr.core.native.statements cimport (
    Keys, KeySlot, Magnitude, Place, Workspace, count_too, keys_build, keys_free, magnitude_of,
    read_statements_into, states_value, workspace_free, writes_number,
)
from consensuspr.core.native.statements import expression_statements
from consensuspr.core.patterns import Channel
from consensuspr.core.statements import is_computed

cdef extern from *:
    """
    #define fetch_add(counter) __atomic_fetch_add((counter), 1, __ATOMIC_RELAXED)
    """
    Py_ssize_t fetch_add(Py_ssize_t* counter) noexcept nogil


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

# patterns.Channel, which a test compares.
cdef enum:
    CHANNEL_PATTERN = 1
    CHANNEL_EQUATION = 4

# patterns.Edge, which a test compares.
cdef enum:
    EDGE_LEFT_OPERAND = 1, EDGE_LEFT_SIGN = 2, EDGE_LEFT_BRACKET = 4, EDGE_LEFT_FRACTION = 8
    EDGE_RIGHT_OPERAND = 16, EDGE_RIGHT_DIGIT = 32, EDGE_RIGHT_LETTER = 64, EDGE_LIST = 128
    EDGE_RELATES = 256

# Below this many bytes a batch is not worth waking another thread for.
cdef enum:
    THREAD_BYTES = 1 << 17
    # Lanes of an interleaved scan, and what a lane must hold beside its overlap to pay.
    LANES = 4
    LANE_BYTES = 128

cdef struct Pattern:
    uint32_t length, node, edges
    # What the guard has to count of a text in which it reaches its node.
    uint32_t first_number, first_value, past_value
    bint boxed

include "boxes.pxi"

# All that a scan reads of a matcher.
cdef struct Search:
    Automaton automaton
    Pattern* patterns
    Magnitude* needed     # numbers and then values of each pattern
    uint32_t num_nodes, num_patterns
    uint32_t longest      # bytes of the longest pattern
    Sieve sieve           # which numbers the patterns need
    Keys keys             # of the nodes' arithmetic; none without the statement channel
    EquationTable equations     # of their equations; nothing is wanted without that channel
    Box* boxes            # patterns that are answers in boxes
    uint32_t num_boxes

# The first hit of a node in a normal form; all bits of all fields are set where there is none.
cdef struct Found:
    int32_t pattern
    uint32_t start, end


include "boundary.pxi"
include "scan.pxi"


# --- Python --------------------------------------------------------------

cdef bytes encoded(object text):
    """Return the bytes to match: the caller's own, or UTF-8 with surrogates passed through."""
    return text if isinstance(text, bytes) else encode(text)


cdef Py_ssize_t code_points(const uint8_t* data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t count = 0, at
    for at in range(start, end):
        count += data[at] & 0xC0 != 0x80
    return count


@cython.final
cdef class Matcher:
    """The consensus nodes of one problem, ready to be searched for.

    Immutable after construction, and safe to use from several threads.

    Args:
        nodes: one list of expressions per node.
        expand: search for derived equal forms of the expressions as well.
        statements: reach a node also by a true statement with its value and its operands;
            without it, matching is the paper's own.
        derived: further expressions of each node, equal forms that are stored; one list per node.
        code: when a statement in code reaches a node: "written" if its result is written in the
            text as a number too, "computed" always.
        given: text of the problem; equations that it states reach no node.
        rare: expressions that may be found with other names though they are short, because no
            solution of another problem states them.
    """

    cdef Search search
    cdef readonly tuple expressions   # of each pattern, as the caller wrote it
    cdef tuple key_expressions        # of each key, what it was made of
    cdef tuple equation_expressions   # the same of keys of equations
    cdef Py_ssize_t num_needed        # of search.needed
    cdef bytes _data                  # of the patterns that are answers in boxes
    cdef tuple _nodes
    cdef tuple _derived
    cdef bint _expand, _statements
    cdef object _code, _given, _rare

    def __init__(
        self, nodes, bint expand=False, bint statements=True, derived=(), code="written", given="",
        rare=(),
    ):
        if self._nodes is not None:
            raise TypeError("a Matcher is immutable; build a new one")
        frozen = freeze_nodes(nodes)
        more = freeze_nodes(derived)
        written = with_forms(frozen, derive_forms if expand else None, more)
        stated = {text: expression_statements(text) for texts in written for text in texts}
        patterns = compile_patterns(
            written, normalize, lambda text: (value for _, value in stated[text])
        )
        self._nodes = frozen
        self._derived = more
        self._expand = expand
        self._statements = statements
        self._code = code
        self._given = given
        self._rare = frozenset(rare)
        is_computed(code)
        self.equation_expressions = ()
        if statements:
            self.make_keys(written, stated)
            patterns = self.make_equation_keys(frozen, stated, patterns)
        self.expressions = tuple(pattern.expression for pattern in patterns)
        cdef Py_ssize_t count = len(patterns)
        cdef Py_ssize_t index
        self.search.num_nodes = <uint32_t>len(frozen)
        self.search.num_patterns = <uint32_t>count
        if count == 0:
            return
        cdef bytes data = b"".join([pattern.data for pattern in patterns])
        cdef const uint8_t* raw = data
        cdef uint32_t* starts = <uint32_t*>PyMem_RawMalloc((3 * count + 1) * sizeof(uint32_t))
        cdef uint32_t* edges = starts + count + 1
        cdef uint32_t* owners = edges + count
        self.search.patterns = <Pattern*>PyMem_RawMalloc(count * sizeof(Pattern))
        needed = [[*pattern.numbers, *pattern.values] for pattern in patterns]
        self.num_needed = sum(map(len, needed))
        self.search.needed = <Magnitude*>PyMem_RawMalloc((self.num_needed + 1) * sizeof(Magnitude))
        cdef uint32_t at = 0
        cdef int failed = -1
        if starts != NULL and self.search.patterns != NULL and self.search.needed != NULL:
            starts[0] = 0
            for index in range(count):
                pattern = patterns[index]
                self.search.patterns[index].length = <uint32_t>len(pattern.data)
                self.search.patterns[index].node = owners[index] = pattern.node
                self.search.longest = max(self.search.longest, self.search.patterns[index].length)
                self.search.patterns[index].edges = edges[index] = int(pattern.edges)
                self.search.patterns[index].boxed = pattern.boxed
                self.search.patterns[index].first_number = at
                self.search.patterns[index].first_value = at + <uint32_t>len(pattern.numbers)
                for number in needed[index]:
                    self.search.needed[at] = magnitude_of(number)
                    at += 1
                self.search.patterns[index].past_value = at
                starts[index + 1] = starts[index] + self.search.patterns[index].length
            with nogil:
                failed = automaton_build(
                    &self.search.automaton, raw, starts, edges, self.search.num_patterns, judge_left
                ) or sieve_build(
                    &self.search.sieve, raw, starts, owners, self.search.num_patterns
                )
        PyMem_RawFree(starts)
        if failed:
            raise MemoryError(f"no memory for an automaton of {count} patterns")
        self.make_boxes(patterns)

    cdef int make_boxes(self, list patterns) except -1:
        """Note the patterns that are answers in boxes."""
        cdef Py_ssize_t index, at = 0
        cdef Box* box
        boxed = [index for index, pattern in enumerate(patterns) if pattern.boxed]
        if not boxed:
            return 0
        self._data = b"".join([patterns[index].data for index in boxed])
        self.search.boxes = <Box*>PyMem_RawMalloc(len(boxed) * sizeof(Box))
        if self.search.boxes == NULL:
            raise MemoryError(f"no memory for {len(boxed)} boxed answers")
        for index in boxed:
            box = &self.search.boxes[self.search.num_boxes]
            box.data = <const uint8_t*>PyBytes_AS_STRING(self._data) + at
            box.length = self.search.patterns[index].length
            box.pattern = <uint32_t>index
            at += box.length
            self.search.num_boxes += 1
        return 0

    cdef int make_keys(self, list written, dict stated) except -1:
        """Make the statement channel's keys of all nodes, each in all its ways to be written."""
        keys = [
            (key, node, text)
            for node, expressions in enumerate(written)
            for text in expressions
            for key, _ in stated[text]
        ]
        self.key_expressions = tuple(text for _, _, text in keys)
        if not keys:
            return 0
        cdef Py_ssize_t count = len(keys)
        cdef Py_ssize_t index
        cdef uint64_t* hashes = <uint64_t*>PyMem_RawMalloc(count * sizeof(uint64_t))
        cdef uint32_t* nodes = <uint32_t*>PyMem_RawMalloc(count * sizeof(uint32_t))
        cdef int failed = -1
        if hashes != NULL and nodes != NULL:
            for index in range(count):
                hashes[index], nodes[index] = keys[index][:2]
            failed = keys_build(&self.search.keys, hashes, nodes, count)
        PyMem_RawFree(hashes)
        PyMem_RawFree(nodes)
        if failed:
            raise MemoryError(f"no memory for the keys of {count} equations")
        return 0

    cdef list make_equation_keys(self, tuple nodes, dict stated, list patterns):
        """Make the keys of the nodes' equations; return the patterns, those of lists marked."""
        keys = equation_keys(nodes, read_expression_facts, stated.get, self._given, self._rare)
        if not keys:
            return patterns
        self.equation_expressions = tuple(key.expression for key in keys)
        self.search.equations.wanted = groups_of(keys)
        cdef Py_ssize_t count = len(keys)
        cdef Py_ssize_t index
        cdef uint64_t* hashes = <uint64_t*>PyMem_RawMalloc(2 * count * sizeof(uint64_t))
        cdef uint64_t* shapes = hashes + count
        cdef uint32_t* nodes_of = <uint32_t*>PyMem_RawMalloc(2 * count * sizeof(uint32_t))
        cdef uint32_t* names = nodes_of + count
        cdef int failed = -1
        if hashes != NULL and nodes_of != NULL:
            for index in range(count):
                hashes[index] = keys[index].key
                shapes[index] = keys[index].shape
                nodes_of[index] = keys[index].node
                names[index] = keys[index].names
            failed = equation_table_build(
                &self.search.equations, hashes, nodes_of, shapes, names, count
            )
        PyMem_RawFree(hashes)
        PyMem_RawFree(nodes_of)
        if failed:
            raise MemoryError(f"no memory for the keys of {count} equations")
        return mark_lists(patterns, keys)

    def __dealloc__(self):
        equation_table_free(&self.search.equations)
        automaton_free(&self.search.automaton)
        sieve_free(&self.search.sieve)
        keys_free(&self.search.keys)
        PyMem_RawFree(self.search.patterns)
        PyMem_RawFree(self.search.needed)
        PyMem_RawFree(self.search.boxes)

    def __repr__(self):
        return f"Matcher({self.num_nodes:,} nodes, {self.num_patterns:,} patterns)"

    def __reduce__(self):
        return Matcher, (
            self._nodes, self._expand, self._statements, self._derived, self._code, self._given,
            tuple(self._rare),
        )

    @property
    def num_nodes(self) -> int:
        """Nodes, with those that can never match."""
        return self.search.num_nodes

    @property
    def num_patterns(self) -> int:
        """Distinct patterns over all nodes."""
        return self.search.num_patterns

    @property
    def nbytes(self) -> int:
        """Memory of the automaton, the patterns, their numbers and the keys in bytes."""
        return (
            self.search.automaton.nbytes
            + sieve_nbytes(&self.search.sieve)
            + self.search.num_patterns * sizeof(Pattern)
            + self.search.num_boxes * sizeof(Box)
            + self.num_needed * sizeof(Magnitude)
            + self.search.keys.capacity * sizeof(KeySlot)
            + equation_table_nbytes(&self.search.equations)
        )

    def match(self, text) -> list[bool]:
        """Return for each node whether ``text`` reaches it."""
        return match_batch([self], [text], 1, counts=self._statements).matched(0).tolist()

    def spans(
        self, text, *, bint statements=True, counts=None, code=None
    ) -> list[tuple[int, int] | None]:
        """Return for each node the code points [start, end) of its first hit in ``text``."""
        hits = self.hits(text, statements=statements, counts=counts, code=code)
        return [None if hit is None else (hit.start, hit.end) for hit in hits]

    def hits(self, text, *, bint statements=True, counts=None, code=None) -> list[Hit | None]:
        """Return for each node its first hit.

        That is the first statement in prose that reaches it, the first one in code, or the pattern
        that ends first, the longest of those.  The options are those of :func:`match_batch`;
        ``counts`` is whether the matcher has the statement channel if it is None.
        """
        cdef bytes data = encoded(text)
        cdef const uint8_t* raw = data
        cdef Py_ssize_t length = len(data)
        cdef Py_ssize_t capacity = output_capacity(length)
        cdef Py_ssize_t nodes = self.search.num_nodes
        cdef Py_ssize_t size, node, first, last, at, count
        cdef uint32_t values, numbers
        cdef int failed = 0
        cdef bint computed = is_computed(self._code if code is None else code)
        cdef bint counted = self._statements if counts is None else counts
        cdef bint read = counted or (statements and self._statements)
        cdef bint keyed = statements and self.search.equations.wanted
        cdef AlgebraWorkspace algebra
        cdef EquationPlace* stated = <EquationPlace*>PyMem_RawMalloc(
            (nodes + 1) * sizeof(EquationPlace)
        )
        cdef Workspace workspace
        cdef Scan scan
        cdef uint8_t* out = <uint8_t*>PyMem_RawMalloc(capacity)
        cdef uint32_t* starts = <uint32_t*>PyMem_RawMalloc(2 * capacity * sizeof(uint32_t))
        cdef Found* found = <Found*>PyMem_RawMalloc((nodes + 1) * sizeof(Found))
        cdef Place* places = <Place*>PyMem_RawMalloc((nodes + 1) * sizeof(Place))
        cdef uint8_t* matched = <uint8_t*>PyMem_RawMalloc(nodes + 1)
        memset(&workspace, 0, sizeof(Workspace))
        memset(&algebra, 0, sizeof(AlgebraWorkspace))
        try:
            if (
                out == NULL
                or stated == NULL
                or starts == NULL
                or found == NULL
                or places == NULL
                or matched == NULL
            ):
                raise MemoryError(f"no memory to match {length} bytes")
            with nogil:
                memset(matched, 0, nodes)
                memset(found, 0xFF, nodes * sizeof(Found))
                if read:
                    failed = read_statements_into(
                        &workspace, raw, length, keys_of(&self.search, statements), matched, places,
                        computed, &values, &numbers,
                    )
                scan.boxes = statements and self._statements
                if scan.boxes and not failed:
                    find_answers(&self.search, raw, length, matched, found)
                if not failed:
                    failed = scan_begin(
                        &scan, &self.search, matched, found, &workspace if counted else NULL
                    )
                    if count_missing(&self.search, matched) and not failed:
                        size = normal_form(raw, length, out, starts, starts + capacity)
                        if scan.missing:
                            scan_form(&scan, out, size)
                        if misses_uncounted(&scan):
                            failed = scan_again(&scan, &workspace, out, size, &values, &numbers)
                        if keyed and not failed:
                            failed = algebra_begin(&algebra) or read_equations(
                                &algebra, out, size, 0, &self.search.equations, matched,
                                CHANNEL_EQUATION, stated,
                            )
                    scan_end(&scan)
            if failed:
                raise MemoryError(f"no memory to match {length} bytes")
            hits = []
            edges = set()
            for node in range(nodes):
                if not matched[node]:
                    hits.append(None)
                    continue
                if matched[node] == CHANNEL_PATTERN and found[node].pattern < 0:
                    first = found[node].start
                    last = found[node].end
                    expression = self.expressions[-2 - found[node].pattern]
                elif matched[node] == CHANNEL_PATTERN:
                    first = starts[found[node].start]
                    last = starts[capacity + found[node].end - 1]
                    expression = self.expressions[found[node].pattern]
                elif matched[node] == CHANNEL_EQUATION:
                    first = starts[stated[node].start]
                    last = starts[capacity + stated[node].end - 1]
                    expression = self.equation_expressions[stated[node].key]
                else:
                    first = places[node].start
                    last = places[node].end
                    expression = self.key_expressions[places[node].key]
                edges.add(first)
                edges.add(last)
                hits.append((first, last, expression, Channel(matched[node])))
            # One pass over the text for all hits together.
            before = {}
            at = count = 0
            for edge in sorted(edges):
                count += code_points(raw, at, edge)
                at = edge
                before[edge] = count
            return [
                None if hit is None else Hit(before[hit[0]], before[hit[1]], hit[2], hit[3])
                for hit in hits
            ]
        finally:
            PyMem_RawFree(out)
            PyMem_RawFree(starts)
            PyMem_RawFree(found)
            PyMem_RawFree(places)
            PyMem_RawFree(matched)
            PyMem_RawFree(stated)
            workspace_free(&workspace)
            algebra_free(&algebra)


cdef const Keys* keys_of(const Search* search, bint statements) noexcept nogil:
    """Return the keys by which statements reach nodes, NULL if they do not."""
    return &search.keys if statements and search.keys.size else NULL


# One text of a batch.
cdef struct Task:
    const uint8_t* data
    Py_ssize_t length
    const Search* search
    bint read           # what it states
    bint counted        # a pattern reaches its node only if the guard counts what it tells
    bint computed       # code reaches nodes without its results
    bint keyed          # equations reach nodes
    bint boxes          # answers in boxes are looked for as such
    uint8_t* matched
    uint32_t values     # what it states and counts
    uint32_t numbers
    uint32_t equations


cdef class _Batch:
    """C view of a batch; several threads take tasks from it until none is left."""

    cdef Task* tasks
    cdef Py_ssize_t count
    cdef Py_ssize_t next      # the first task that nobody has taken
    cdef bint statements      # whether statements reach nodes
    cdef bint counts          # whether statements and numbers are counted
    cdef double until         # when to stop, by clock_s()
    cdef list keep            # whatever owns the bytes of the tasks

    def __cinit__(self, Py_ssize_t count):
        self.tasks = <Task*>PyMem_RawMalloc((count + 1) * sizeof(Task))
        if self.tasks == NULL:
            raise MemoryError(f"no memory for a batch of {count} texts")
        self.count = count
        self.keep = []

    def __dealloc__(self):
        PyMem_RawFree(self.tasks)

    cdef Py_ssize_t add(self, Py_ssize_t index, object text, Matcher matcher) except -1:
        """Describe one text; return its length in bytes."""
        cdef Task* task = &self.tasks[index]
        cdef bytes data
        if isinstance(text, str):
            try:
                # Cached inside the str: no copy for ASCII, one for the rest.
                task.data = <const uint8_t*>PyUnicode_AsUTF8AndSize(text, &task.length)
            except UnicodeEncodeError:
                data = encoded(text)
                self.keep.append(data)
                task.data = <const uint8_t*>PyBytes_AS_STRING(data)
                task.length = PyBytes_GET_SIZE(data)
        else:
            data = encoded(text)
            self.keep.append(data)
            task.data = <const uint8_t*>PyBytes_AS_STRING(data)
            task.length = PyBytes_GET_SIZE(data)
        task.search = &matcher.search
        task.counted = self.counts
        task.boxes = self.statements and matcher._statements
        task.read = self.counts or task.boxes
        task.keyed = self.statements and matcher.search.equations.wanted
        task.equations = 0
        return task.length

    def work(self):
        """Take tasks until none is left; several threads may be at it."""
        cdef int ended
        with nogil:
            ended = run_tasks(self)
        if ended == OUT_OF_MEMORY:
            raise MemoryError("no memory to match a text")
        if ended == OUT_OF_TIME:
            raise TimeoutError(f"the deadline passed before {self.count} texts were matched")


cdef enum:
    OUT_OF_MEMORY = -1
    OUT_OF_TIME = -2
    # Bytes of text between two looks at the clock: a quarter of a millisecond of usual work.
    LOOK_BYTES = 1 << 15
    # Text is normalised and searched in parts of whole paragraphs of at least so many bytes: what
    # follows the last missing node is not read, and a part's normal form stays in the cache.
    BLOCK_BYTES = 1 << 13
    # Of so many where a part is passed over that lacks the numbers of all that is missing, and of
    # so many for each pattern of the sieve, so that asking it costs less than it saves.
    SIEVED_BYTES = 1 << 8
    NEED_BYTES = 8
    # Normal form is searched in pieces of so many bytes.
    SCAN_BYTES = 1 << 11
    # Paragraphs without a sign of equality are passed over where they are so long together.
    PASSED_BYTES = 64


# What one thread has for all its tasks.
cdef struct Worker:
    Workspace workspace
    AlgebraWorkspace algebra
    uint8_t* reached        # of each node, whether an equation reaches it
    Py_ssize_t num_reached  # that there is room for
    uint8_t* out
    Py_ssize_t capacity     # of out
    double until            # when to stop, by clock_s()
    Py_ssize_t unlooked     # bytes since the clock was looked at


cdef double clock_s() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + 1e-9 * now.tv_nsec


cdef bint is_late(Worker* worker) noexcept nogil:
    if worker.unlooked < LOOK_BYTES or worker.until == INFINITY:
        return False
    worker.unlooked = 0
    return clock_s() >= worker.until


cdef int run_tasks(_Batch batch) noexcept nogil:
    """Match tasks until none is left; else return why there are some."""
    cdef Worker worker
    cdef Py_ssize_t index
    cdef int ended = 0
    memset(&worker, 0, sizeof(Worker))
    worker.until = batch.until
    worker.unlooked = LOOK_BYTES
    while not ended:
        index = fetch_add(&batch.next)
        if index >= batch.count:
            break
        ended = read_task(&batch.tasks[index], &worker, batch.statements)
        if not ended:
            ended = search_task(&batch.tasks[index], &worker)
    PyMem_RawFree(worker.out)
    PyMem_RawFree(worker.reached)
    workspace_free(&worker.workspace)
    algebra_free(&worker.algebra)
    return ended


cdef int read_task(Task* task, Worker* worker, bint statements) noexcept nogil:
    """Match what a text states."""
    if is_late(worker):
        return OUT_OF_TIME
    if task.read:
        if read_statements_into(
            &worker.workspace, task.data, task.length, keys_of(task.search, statements),
            task.matched, NULL, task.computed, &task.values, &task.numbers,
        ):
            return OUT_OF_MEMORY
        worker.unlooked += task.length
    return 0


cdef int search_task(Task* task, Worker* worker) noexcept nogil:
    """Search a text for the patterns of the nodes that it does not state."""
    cdef Scan scan
    cdef const Workspace* counted = &worker.workspace if task.counted else NULL
    cdef Py_ssize_t size
    cdef uint32_t node
    cdef int ended
    scan.boxes = task.boxes
    if task.boxes and task.search.num_boxes:
        find_answers(task.search, task.data, task.length, task.matched, NULL)
    ended = scan_begin(&scan, task.search, task.matched, NULL, counted)
    if not ended and task.keyed:
        ended = read_blocks(&scan, task, worker)
    elif not ended:
        ended = scan_blocks(&scan, task, worker)
    if not ended and misses_uncounted(&scan):
        size = append_form(task, 0, task.length, worker, 0)
        worker.unlooked += 2 * task.length
        if size < 0 or scan_again(
            &scan, &worker.workspace, worker.out, size, &task.values, &task.numbers
        ):
            ended = OUT_OF_MEMORY
    scan_end(&scan)
    if not ended and task.keyed:
        # Patterns come first, wherever they stand.
        for node in range(task.search.num_nodes):
            if worker.reached[node] and not task.matched[node]:
                task.matched[node] = CHANNEL_EQUATION
        task.equations = num_equations(&worker.algebra)
    return ended


cdef int read_blocks(Scan* scan, const Task* task, Worker* worker) noexcept nogil:
    """Normalise all of a text, search it, and read its equations."""
    cdef Py_ssize_t at = 0, end, size = 0
    cdef uint8_t* grown
    if worker.num_reached < task.search.num_nodes:
        grown = <uint8_t*>PyMem_RawRealloc(worker.reached, task.search.num_nodes)
        if grown == NULL:
            return OUT_OF_MEMORY
        worker.reached = grown
        worker.num_reached = task.search.num_nodes
    memset(worker.reached, 0, task.search.num_nodes)
    if algebra_begin(&worker.algebra):
        return OUT_OF_MEMORY
    while at < task.length:
        if is_late(worker):
            return OUT_OF_TIME
        end = paragraph_end(task.data, task.length, at + BLOCK_BYTES)
        worker.unlooked += end - at
        size = append_form(task, at, end, worker, 0)
        if size < 0:
            return OUT_OF_MEMORY
        if scan.missing:
            scan_form(scan, worker.out, size)
        if read_equations(
            &worker.algebra, worker.out, size, 0, &task.search.equations, worker.reached,
            CHANNEL_EQUATION, NULL,
        ):
            return OUT_OF_MEMORY
        at = end
    return 0


cdef int scan_blocks(Scan* scan, const Task* task, Worker* worker) noexcept nogil:
    """Normalise and search a text, part after part, until nothing is missing."""
    cdef Py_ssize_t at = 0, end, begin, sign = -1, least = BLOCK_BYTES
    cdef const Sieve* sieve = &scan.search.sieve
    cdef bint equations = False, sieved = False
    cdef uint32_t missing = 0
    cdef Py_ssize_t size = 0    # of the normal form that is not searched yet
    while at < task.length and scan.missing:
        if is_late(worker):
            return OUT_OF_TIME
        if scan.missing != missing:
            missing = scan.missing
            equations = are_equations(sieve, scan.matched)
            sieved = not is_weak(sieve, scan.matched, equations)
            if sieved:
                least = max(SIEVED_BYTES, NEED_BYTES * sieve.num_needs)
        if equations:
            begin = at
            end = related(task.data, task.length, &at, &sign, least)
            worker.unlooked += end - begin
            if at == end:
                break
        else:
            end = paragraph_end(task.data, task.length, at + least)
            worker.unlooked += end - at
        if sieved:
            if sign < at:
                sign = next_equals(task.data, task.length, at)
            if (equations or sign >= end) and not may_hold(
                sieve, numbers_of(sieve, task.data + at, end - at), equations, scan.matched
            ):
                at = end
                continue
        size = append_form(task, at, end, worker, size)
        if size < 0:
            return OUT_OF_MEMORY
        if size >= SCAN_BYTES:
            scan_form(scan, worker.out, size)
            size = 0
        at = end
    if size:
        scan_form(scan, worker.out, size)
    return 0


cdef Py_ssize_t append_form(
    const Task* task, Py_ssize_t at, Py_ssize_t end, Worker* worker, Py_ssize_t size
) noexcept nogil:
    """Write the normal form of paragraphs behind ``size`` bytes of those before.

    Return how many bytes there are then, -1 where memory runs out.
    """
    cdef Py_ssize_t capacity = size + 2 + output_capacity(end - at)
    cdef uint8_t* grown
    if capacity > worker.capacity:
        grown = <uint8_t*>PyMem_RawRealloc(worker.out, capacity)
        if grown == NULL:
            return -1
        worker.out = grown
        worker.capacity = capacity
    if size:
        memset(worker.out + size, c'\n', 2)
        size += 2
    return size + normal_form(task.data + at, end - at, worker.out + size, NULL, NULL)


cdef Py_ssize_t related(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t* at, Py_ssize_t* sign, Py_ssize_t least
) noexcept nogil:
    """Return where paragraphs end that may hold equations, and move ``at`` to where they begin.

    They are as many as reach ``least`` bytes, or up to a number of others.  ``sign`` is the last
    place that was found.
    """
    cdef Py_ssize_t begin = at[0]
    cdef Py_ssize_t end = at[0]
    while end < length and (end == at[0] or end - at[0] < least):
        if sign[0] < end:
            sign[0] = next_equals(data, length, end)
        if sign[0] == length:
            break
        begin = paragraph_begin(data, end, sign[0])
        if end == at[0]:
            at[0] = begin
        elif begin - end >= PASSED_BYTES:
            break
        end = paragraph_end(data, length, sign[0])
    return end


cdef Py_ssize_t paragraph_begin(
    const uint8_t* data, Py_ssize_t begin, Py_ssize_t place
) noexcept nogil:
    """Return where the paragraph of ``place`` begins, not before ``begin``, where one does."""
    cdef Py_ssize_t end = paragraph_end(data, place, begin)
    while end < place:
        begin = end
        end = paragraph_end(data, place, begin)
    return begin


cdef extern from *:
    """
    #include "bytes16.h"

    /* Return where two line feeds end at `at` + 2 or later, or the text does. */
    static inline Py_ssize_t line_feeds_end(
        const uint8_t* data, Py_ssize_t length, Py_ssize_t at
    ) {
        for (; length - at > 16; at += 16) {
            const unsigned pairs = bits16(
                equal16(load16(data + at), '\\n') & equal16(load16(data + at + 1), '\\n'));
            if (pairs)
                return at + (Py_ssize_t)__builtin_ctz(pairs) + 2;
        }
        for (; at + 1 < length; at++)
            if (data[at] == '\\n' && data[at + 1] == '\\n')
                return at + 2;
        return length;
    }
    """
    Py_ssize_t line_feeds_end(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil


cdef Py_ssize_t paragraph_end(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    """Return where the first paragraph ends that ends at ``at`` + 2 or later, or the text does.

    Not all ends are found, only those at two line feeds.
    """
    at = line_feeds_end(data, length, at)
    while at < length and display_follows(data, length, at):
        at = line_feeds_end(data, length, at)
    return at


_pools = {}
_pools_lock = threading.Lock()


def _pool(workers):
    """Return a pool of this process; a forked child makes its own."""
    key = (os.getpid(), workers)
    with _pools_lock:
        if key not in _pools:
            _pools[key] = ThreadPoolExecutor(workers, thread_name_prefix="consensuspr-match")
        return _pools[key]


def match_batch(
    matchers, texts, int threads=0, *, bint statements=True, bint counts=True, deadline=None,
    code=None
):
    """Match each text against the matcher at its index.

    With ``counts`` a pattern reaches its node only in a text in which its numbers and values are
    counted.

    Args:
        matchers: n matchers; one may occur many times.
        texts: n texts, str or bytes.
        threads: threads to use at most; 0 for one per core.  The GIL is released.
        statements: whether true statements reach nodes, for matchers that have the channel.
        counts: whether to count distinct values and numbers, which the guard asks for.
        deadline: :func:`time.monotonic` value after which to stop; checked before each text
            and, if it has blank lines, every some tens of kilobytes.
        code: "written" or "computed", as for :class:`Matcher`; None for each matcher's own.

    Returns:
        A BatchResult with what was matched in each text.

    Raises:
        ValueError: the lengths differ, or ``threads`` is negative.
        TimeoutError: the deadline passed first.
    """
    cdef Py_ssize_t count = len(texts)
    if len(matchers) != count:
        raise ValueError(f"{len(matchers)} matchers for {count} texts")
    if threads < 0:
        raise ValueError(f"threads must be 0 or more, got {threads}")
    cdef _Batch batch = _Batch(count)
    batch.statements = statements
    batch.counts = counts
    # By another clock than Python's where that is none of POSIX's.
    batch.until = INFINITY if deadline is None else clock_s() + deadline - time.monotonic()
    cdef Matcher matcher
    cdef Py_ssize_t index, total = 0
    offsets = np.zeros(count + 1, dtype=np.int64)
    cdef long long[::1] offset = offsets
    # The lists keep the texts alive that the tasks point into.
    held_matchers, held_texts = list(matchers), list(texts)
    for index in range(count):
        matcher = <Matcher?>held_matchers[index]
        total += batch.add(index, held_texts[index], matcher)
        batch.tasks[index].computed = is_computed(matcher._code if code is None else code)
        offset[index + 1] = offset[index] + matcher.search.num_nodes
    channels = np.zeros(max(offsets[count], 1), dtype=np.uint8)
    cdef uint8_t[::1] channel = channels
    for index in range(count):
        batch.tasks[index].matched = &channel[0] + offset[index]
    workers = min(threads or os.cpu_count() or 1, count, 1 + total // THREAD_BYTES)
    futures = []
    if workers > 1:
        pool = _pool(workers - 1)
        futures = [pool.submit(batch.work) for _ in range(workers - 1)]
    try:
        batch.work()
    finally:
        # The arrays must outlive every thread that writes into them.
        for future in futures:
            future.exception()
    for future in futures:
        future.result()
    if not counts:
        return BatchResult(channels[: offsets[count]], offsets, None, None, None)
    num_values = np.zeros(count, dtype=np.uint32)
    num_numbers = np.zeros(count, dtype=np.uint32)
    num_stated = np.zeros(count, dtype=np.uint32)
    cdef uint32_t[::1] value = num_values
    cdef uint32_t[::1] number = num_numbers
    cdef uint32_t[::1] equation = num_stated
    for index in range(count):
        equation[index] = batch.tasks[index].equations
        value[index] = batch.tasks[index].values
        number[index] = batch.tasks[index].numbers
    return BatchResult(channels[: offsets[count]], offsets, num_values, num_numbers, num_stated)
