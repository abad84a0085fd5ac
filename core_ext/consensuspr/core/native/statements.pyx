# cython: language_level=3, freethreading_compatible=True
"""The compiled statement reader, with the rules of ``pure/statements``.

It reads a text at one byte a character.  Memory is one workspace a thread: what one stretch between
two stops needs, bounded, and sets that grow with what is distinct in the text.
"""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strchr, strncmp

from consensuspr.core.native.hash_set cimport HashSet, set_add, set_clear, set_free, set_has
from consensuspr.core.native.normal_form cimport (
    CH_AMPERSAND, CH_ARROW, CH_BACKSLASH, CH_BANG, CH_BAR, CH_BRACE_CLOSE, CH_BRACE_OPEN,
    CH_BRACKET_CLOSE, CH_BRACKET_OPEN, CH_BULLET, CH_CARET, CH_CLOSE, CH_COLON, CH_COMMA, CH_DIGIT,
    CH_DROP, CH_EQUALS, CH_FRACTION, CH_GREATER, CH_HASH, CH_LESS, CH_LETTER, CH_MARK, CH_MINUS,
    CH_NEWLINE, CH_OPEN, CH_OTHER, CH_PLUS, CH_PLUS_MINUS, CH_POINT, CH_PRIME, CH_RELATION, CH_ROOT,
    CH_SLASH, CH_SENTENCE_END, CH_SPACE, CH_STAR, CH_SUBSCRIPT, CH_SUPERSCRIPT, CH_SYMBOL, CH_TIMES,
    CH_UNDERSCORE, Unit, character_at,
)

import re
from fractions import Fraction

from consensuspr.core import statements, tables
from consensuspr.core.patterns import encode

# statements.py; a test compares.
cdef enum:
    MAX_SIDE = 60
    MAX_DEPTH = 24
    MAX_STRETCH = 256
    MAX_UNIT_WORDS = 6
    MAX_IDEOGRAPHS = 4
    MIN_GLUED = 4
    MAX_REMARK = 12
    MAX_OF_WORDS = 4
    MAX_DIGITS = 18
    MAX_EXPONENT = 63
    MAX_NAMES = 1024
    MAX_LINE = 256
    MAX_NAMED = 64
    MAX_SUBSCRIPT = 12
    MAX_ARGUMENT = 40
    EQUATIONS_A_VALUE = 2
    REPEATING = 255     # decimals of a number that repeats; arithmetic.REPEATS
    LOOKAHEAD_LIMIT = 8
    MOST_DISPLAYS = 12  # room for tables.DISPLAYS
    DISPLAY_BYTES = 24
    # Words before a number or a sign that can mean something to it: half of the remaining.
    LAST_WORDS = MAX_OF_WORDS + 3
    # Words in a row; the last of these is past what belongs to a number before them.
    MANY_WORDS = MAX_UNIT_WORDS + 3
    # As many words are kept between two tokens that are no words.
    MAX_ROW = MANY_WORDS + LAST_WORDS + 8
    MAX_TOKENS = MAX_STRETCH * (1 + MAX_ROW) + MAX_ROW
    # Of tokens that are no words each can become a fraction, which is five items, or a few
    # of those with a stop before them; a word one or, as "half of", five in place of two.
    MAX_ITEMS = 6 * MAX_STRETCH + 3 * MAX_TOKENS
    # Every item can be an operation, and is read as a part of at most two runs.
    MAX_PARTS = 2 * MAX_ITEMS
    # Signs and verbs.
    MAX_SIGNS = MAX_STRETCH + MAX_TOKENS

# patterns.Channel; a test compares.
cdef enum:
    CHANNEL_STATEMENT = 2
    CHANNEL_CODE = 3

include "text.pxi"
include "rational.pxi"


cdef enum ItemKind:
    I_NUMBER = 0, I_OPERATOR, I_OPEN, I_CLOSE, I_SIGN, I_STOP, I_UNKNOWN, I_COMMA

cdef enum Seen:
    SEEN_NONE = 0, SEEN_INT, SEEN_FLOAT, SEEN_ROUND, SEEN_ABS, SEEN_RATIONAL

cdef struct Item:
    uint8_t kind, op, seen, percent, approximate, verb, plain, decimals
    uint32_t start, end
    int64_t num         # of a sign: where its line begins, plus 1; 0 where it has no name
    int64_t den

# A value while it is worked out; shown: one number as written.
cdef struct Value:
    int64_t num, den
    uint64_t operands
    int operations
    bint shown
    int decimals

cdef struct Part:
    int64_t num, den
    uint64_t operands

cdef struct Side:
    bint exists, known, stated, whole
    bint fraction           # of two numbers, and no whole number itself
    uint32_t start, end
    int first_item, end_item
    Value value
    Part* parts
    int num_parts

cdef struct Name:
    uint64_t hash     # 0: an empty slot
    bint known
    int64_t num, den

cdef struct Token:
    uint8_t kind, op, meaning
    uint8_t gap         # blanks or a line's end before it
    uint8_t single, times, letters, decimals
    uint32_t start, end
    # Of numbers and signs, and of words with a meaning:
    int64_t num, den

# A token of code; op: its up to three bytes.
cdef struct Lexeme:
    uint8_t mark
    uint32_t op, start, end

# A number that can be a result of code, and where it was last written.
cdef struct Result:
    uint64_t number   # 0: an empty slot
    int64_t num, den
    uint32_t last

cdef struct Results:
    Result* slots
    uint32_t capacity   # a power of two, or 0
    uint32_t size

# The first statement of code that has a key.
cdef struct Pending:
    const KeySlot* key
    int64_t num, den
    uint32_t start, end

cdef struct Reader:
    uint8_t* text
    uint32_t length
    const uint32_t* offsets
    # Where results go.
    const Keys* keys
    uint8_t* matched
    Place* places
    Stated* stated
    Py_ssize_t num_stated, stated_size
    bint keep, failed
    Counted values
    Counted numbers
    HashSet equations       # keys
    bint has_code
    Results results
    Pending* pending        # one for each key at most
    uint8_t* pended         # of each key, whether there is one
    uint32_t num_pending
    uint32_t pending_size   # keys that there is room for
    # The last named equation; its side is below.
    uint64_t named
    uint64_t named_rest     # of the name without its factor, 0 for none
    int64_t named_factor
    Name* names             # open addressing, at most half full; NULL until there is code
    int num_names
    uint16_t bound[MAX_NAMES]   # slots of the names
    # One stretch of prose; from here on nothing is cleared.
    Token tokens[MAX_TOKENS]
    int num_tokens
    Item items[MAX_ITEMS]
    int num_items
    Part parts[MAX_PARTS]
    int num_parts
    Side before[MAX_SIGNS]
    Side after[MAX_SIGNS]
    int signs[MAX_SIGNS]    # items
    int num_signs
    Side named_side
    Part named_parts[MAX_SIDE + 4]
    # Code.
    Lexeme line[MAX_LINE]
    Name assigned[MAX_LINE]


# --- what is distinct ------------------------------------------------------------------------

cdef inline void count(Reader* r, Counted* counted, int64_t num, int64_t den) noexcept nogil:
    cdef uint64_t bit
    cdef uint64_t* word
    if <uint64_t>num < 64 * SMALL_WORDS and den == 1:
        word = &counted.small[num >> 6]
        bit = <uint64_t>1 << (num & 63)
        counted.num_small += word[0] & bit == 0
        word[0] |= bit
    else:
        count_hash(r, counted, fraction_hash(num, den))


cdef inline void count_hash(Reader* r, Counted* counted, uint64_t value) noexcept nogil:
    if set_add(&counted.hashes, value | <uint64_t>(value == 0)):
        r.failed = True


cdef inline uint32_t num_counted(const Counted* counted) noexcept nogil:
    return <uint32_t>counted.hashes.size + counted.num_small


cdef void counted_clear(Counted* counted) noexcept nogil:
    set_clear(&counted.hashes)
    counted.num_small = 0
    memset(counted.small, 0, sizeof(counted.small))


# --- keys --------------------------------------------------------------------------------------

cdef inline uint64_t key_of(int64_t num, int64_t den, uint64_t operands) noexcept nogil:
    """Return the hash of a key, never 0; statements.key_hash is the same."""
    cdef uint64_t key = mixed(fraction_hash(num, den) ^ (operands * <uint64_t>0xD6E8FEB86659FD93))
    return key | <uint64_t>(key == 0)


cdef int keys_build(
    Keys* keys, const uint64_t* hashes, const uint32_t* nodes, Py_ssize_t count
) noexcept nogil:
    cdef uint32_t capacity = 4, slot
    cdef Py_ssize_t index
    while capacity < 2 * count:
        capacity *= 2
    keys.slots = <KeySlot*>PyMem_RawCalloc(capacity, sizeof(KeySlot))
    if keys.slots == NULL:
        return -1
    keys.capacity = capacity
    keys.size = <uint32_t>count
    for index in range(count):
        slot = <uint32_t>hashes[index] & (capacity - 1)
        while keys.slots[slot].key:
            slot = (slot + 1) & (capacity - 1)
        keys.slots[slot].key = hashes[index]
        keys.slots[slot].node = nodes[index]
        keys.slots[slot].index = <uint32_t>index
    return 0


cdef void keys_free(Keys* keys) noexcept nogil:
    PyMem_RawFree(keys.slots)
    keys.slots = NULL
    keys.capacity = 0


cdef void state(
    Reader* r, const Part* parts, int num_parts, uint32_t start, uint32_t end, bint code, bint whole
) noexcept nogil:
    """Take statements, the last being a whole side if ``whole``: count them, and mark nodes."""
    cdef int index
    cdef uint64_t key
    cdef uint32_t slot
    cdef const Part* part
    for index in range(num_parts):
        part = &parts[index]
        count(r, &r.values, part.num, part.den)
        key = key_of(part.num, part.den, part.operands)
        if set_add(&r.equations, key):
            r.failed = True
        if r.keys != NULL and r.keys.capacity:
            slot = <uint32_t>key & (r.keys.capacity - 1)
            while r.keys.slots[slot].key:
                if r.keys.slots[slot].key == key:
                    if code:
                        pend(r, &r.keys.slots[slot], part, start, end)
                    else:
                        reach(r, &r.keys.slots[slot], CHANNEL_STATEMENT, start, end)
                slot = (slot + 1) & (r.keys.capacity - 1)
        if r.keep:
            keep_statement(r, part, start, end, whole and index == num_parts - 1, code)


cdef inline void reach(
    Reader* r, const KeySlot* key, uint8_t channel, uint32_t start, uint32_t end
) noexcept nogil:
    cdef Place* place
    if r.matched[key.node]:
        return
    r.matched[key.node] = channel
    if r.places != NULL:
        place = &r.places[key.node]
        place.start = r.offsets[start]
        place.end = r.offsets[end]
        place.key = key.index


cdef void pend(
    Reader* r, const KeySlot* key, const Part* part, uint32_t start, uint32_t end
) noexcept nogil:
    """Remember the first statement of code with a key, until all results have been read.

    The first is enough: what is written behind a later one is written behind it.
    """
    cdef Pending* pending
    if r.num_pending == 0 and not room_for_pending(r):
        r.failed = True
        return
    if r.pended[key.index]:
        return
    r.pended[key.index] = True
    pending = &r.pending[r.num_pending]
    r.num_pending += 1
    pending.key = key
    pending.num = part.num
    pending.den = part.den
    pending.start = start
    pending.end = end


cdef bint room_for_pending(Reader* r) noexcept nogil:
    cdef uint32_t size = r.keys.size
    if r.pending_size < size:
        PyMem_RawFree(r.pending)
        PyMem_RawFree(r.pended)
        r.pending = <Pending*>PyMem_RawMalloc(size * sizeof(Pending))
        r.pended = <uint8_t*>PyMem_RawMalloc(size)
        r.pending_size = size if r.pending != NULL and r.pended != NULL else 0
    if r.pending_size:
        memset(r.pended, 0, size)
    return r.pending_size > 0


cdef void reach_pending(Reader* r, bint computed) noexcept nogil:
    """Have the statements of code reach nodes, if ``computed`` or their result is written.

    If a result decided, all numbers that might have been one are values that the text states: a
    list of them is worth no more than a list of statements.
    """
    cdef const Pending* pending
    cdef const Result* result
    cdef uint32_t decided = ANYWHERE  # the first end of a statement that needed its result
    cdef uint32_t index
    for index in range(r.num_pending):
        pending = &r.pending[index]
        if r.matched[pending.key.node]:
            continue
        if computed or has_result(r, pending.num, pending.den, pending.end):
            if not computed:
                decided = min(decided, pending.end)
            reach(r, pending.key, CHANNEL_CODE, pending.start, pending.end)
    if decided == ANYWHERE:
        return
    for index in range(r.results.capacity):
        result = &r.results.slots[index]
        if result.number and result.last >= decided:
            count(r, &r.values, result.num, result.den)


cdef void keep_statement(
    Reader* r, const Part* part, uint32_t start, uint32_t end, bint whole, bint code
) noexcept nogil:
    cdef Stated* grown
    cdef Stated* kept
    if r.num_stated >= r.stated_size:
        grown = <Stated*>PyMem_RawRealloc(r.stated, (2 * r.stated_size + 16) * sizeof(Stated))
        if grown == NULL:
            r.failed = True
            return
        r.stated = grown
        r.stated_size = 2 * r.stated_size + 16
    kept = &r.stated[r.num_stated]
    kept.num = part.num
    kept.den = part.den
    kept.operands = part.operands
    kept.start = start
    kept.end = end
    kept.whole = whole
    kept.code = code
    r.num_stated += 1


cdef void finish_kept(Reader* r) noexcept nogil:
    """Mark what is written of what was kept, and give it places in bytes."""
    cdef Stated* kept
    cdef Py_ssize_t index
    for index in range(r.num_stated):
        kept = &r.stated[index]
        kept.written = not kept.code or has_result(r, kept.num, kept.den, kept.end)
        kept.start = r.offsets[kept.start]
        kept.end = r.offsets[kept.end]


include "arithmetic.pxi"
include "prose.pxi"
include "written.pxi"
include "code.pxi"


# --- the whole text ------------------------------------------------------------------------------

cdef Reader* reader_of(Workspace* workspace) noexcept nogil:
    cdef Reader* r
    if workspace.reader == NULL:
        r = <Reader*>PyMem_RawMalloc(sizeof(Reader))
        if r != NULL:
            # What a stretch needs is written before it is read, and is most of the memory.
            memset(r, 0, <char*>r.tokens - <char*>r)
        workspace.reader = r
    return workspace.reader


cdef void workspace_free(Workspace* workspace) noexcept nogil:
    cdef Reader* r = workspace.reader
    text_free(&workspace.text)
    if r == NULL:
        return
    PyMem_RawFree(r.stated)
    set_free(&r.values.hashes)
    set_free(&r.numbers.hashes)
    set_free(&r.equations)
    PyMem_RawFree(r.results.slots)
    PyMem_RawFree(r.pending)
    PyMem_RawFree(r.pended)
    PyMem_RawFree(r.names)
    PyMem_RawFree(r)
    workspace.reader = NULL


cdef void read_text(Reader* r) noexcept nogil:
    """Read the regions of a text, prose and code, one after the other."""
    cdef uint32_t prose = 0, start = 0, end, first, closing, block
    cdef int fence
    cdef bint is_code
    r.has_code = may_hold_code(r)
    if not r.has_code:
        start = r.length
    while start < r.length:
        end = line_end(r, start)
        fence = fence_at(r, start, end)
        if fence != FENCE_NONE:
            first = end + 1 if end + 1 < r.length else r.length
            closing = closing_fence(r, first)
            if fence == FENCE_PYTHON or (
                fence == FENCE_PLAIN
                and python_lines(r, first, closing, &is_code) == closing
                and is_code
            ):
                read_prose(r, prose, first)
                read_code(r, first, closing)
                prose = closing
            start = line_end(r, closing) + 1
            continue
        block = start
        is_code = False
        if may_be_python(r, start, end):
            block = python_lines(r, start, r.length, &is_code)
        if is_code:
            read_prose(r, prose, start)
            read_code(r, start, block)
            prose = block
        start = block if block > end + 1 else end + 1
    read_prose(r, prose, r.length)


cdef int read_statements_into(
    Workspace* workspace, const uint8_t* data, Py_ssize_t length, const Keys* keys,
    uint8_t* matched, Place* places, bint computed, uint32_t* values, uint32_t* numbers
) noexcept nogil:
    cdef Reader* r = reader_of(workspace)
    if r == NULL:
        return -1
    r.keys = keys
    r.matched = matched
    r.places = places
    counted_clear(&r.values)
    counted_clear(&r.numbers)
    set_clear(&r.equations)
    if read_more(workspace, data, length) < 0:
        return -1
    reach_pending(r, computed)
    if r.keep:
        finish_kept(r)
    values[0] = num_values(r)
    numbers[0] = num_counted(&r.numbers)
    return 0


cdef uint32_t num_values(const Reader* r) noexcept nogil:
    """Return the distinct values, at least half of the distinct equations, see statements.py."""
    return max(
        num_counted(&r.values),
        <uint32_t>(r.equations.size + EQUATIONS_A_VALUE - 1) // EQUATIONS_A_VALUE,
    )


cdef int count_too(
    Workspace* workspace, const uint8_t* data, Py_ssize_t length, uint32_t* values,
    uint32_t* numbers
) noexcept nogil:
    cdef Reader* r = workspace.reader
    r.keys = NULL
    r.places = NULL
    if read_more(workspace, data, length) < 0:
        return -1
    values[0] = num_values(r)
    numbers[0] = num_counted(&r.numbers)
    return 0


cdef int read_more(Workspace* workspace, const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """Read a text, and count what it states beside what has been counted."""
    cdef Reader* r = workspace.reader
    cdef Text* text = &workspace.text
    if text_take(text, data, length, r.keep or r.places != NULL) < 0:
        return -1
    r.text = text.bytes
    r.length = text.length
    r.offsets = text.offsets
    r.failed = False
    r.num_stated = 0
    r.named = 0
    r.named_rest = 0
    results_clear(&r.results)
    r.num_pending = 0
    # Few of them: to clear the whole table would cost more than most texts with code.
    while r.num_names:
        r.num_names -= 1
        memset(&r.names[r.bound[r.num_names]], 0, sizeof(Name))
    read_text(r)
    return -1 if r.failed else 0


cdef bint states_value(const Workspace* workspace, const Magnitude* value) noexcept nogil:
    return is_counted(&workspace.reader.values, value)


cdef bint writes_number(const Workspace* workspace, const Magnitude* number) noexcept nogil:
    return is_counted(&workspace.reader.numbers, number)


cdef bint is_counted(const Counted* counted, const Magnitude* sought) noexcept nogil:
    if sought.small >= 0:
        return counted.small[sought.small >> 6] >> (sought.small & 63) & 1
    return set_has(&counted.hashes, sought.hash)


# --- Python --------------------------------------------------------------------------------------

cdef Magnitude magnitude_of(object number):
    """Return a number or value of a pattern as it is counted, see patterns.Pattern."""
    cdef Magnitude found
    found.small = -1
    if isinstance(number, str):
        found.hash = <uint64_t>HASH_START
        for byte in number.removesuffix(".").encode():
            found.hash = hash_step(found.hash, byte)
    else:
        found.hash = fraction_hash(number.numerator, number.denominator)
        if number.denominator == 1 and 0 <= number.numerator < 64 * SMALL_WORDS:
            found.small = number.numerator
    found.hash |= <uint64_t>(found.hash == 0)
    return found


def read_statements(text):
    """Return ([(num, den, operands, start, end, whole, code, written), ...], values, numbers).

    As statements.TrueStatement, but for the operands, which are statements.operands_hash.
    """
    cdef bytes data = encode(text)
    cdef const uint8_t* raw = data
    cdef Py_ssize_t length = len(data)
    cdef Workspace workspace
    cdef uint32_t values = 0, numbers = 0
    cdef int failed = -1
    cdef Reader* r
    cdef Py_ssize_t index
    memset(&workspace, 0, sizeof(Workspace))
    try:
        with nogil:
            r = reader_of(&workspace)
            if r != NULL:
                r.keep = True
                failed = read_statements_into(
                    &workspace, raw, length, NULL, NULL, NULL, False, &values, &numbers
                )
        if failed:
            raise MemoryError(f"no memory to read {length} bytes")
        return (
            [tuple((<object>r.stated[index]).values()) for index in range(r.num_stated)],
            values,
            numbers,
        )
    finally:
        workspace_free(&workspace)


def expression_keys(text):
    """Return the hashes of a node expression's keys: of its true equations with an operation.

    An equation whose operands are all ones has none, for it would be reached by any other.
    """
    return [key for key, _ in expression_statements(text) if key]


def expression_statements(text):
    """Return (key or 0, value) of a node expression's true equations with an operation."""
    return [
        (key_of(num, den, operands) if operands else 0, Fraction(num, den))
        for num, den, operands, _, _, whole, _, _ in read_statements(text)[0]
        if whole
    ]


_fill_text()
_fill()
