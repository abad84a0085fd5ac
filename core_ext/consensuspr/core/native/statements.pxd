"""The compiled statement reader: true arithmetic in a text, without the GIL."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from consensuspr.core.native.hash_set cimport HashSet

# A text at one byte a character.  Buffers are kept from text to text; zeroed before the first use.
cdef struct Text:
    uint8_t* bytes          # none of them 0, and zeros behind them
    uint32_t length
    uint32_t* offsets       # where each character begins, if that was wanted
    Py_ssize_t byte_size, offset_size

# One true statement, or a part of one; see statements.TrueStatement.
cdef struct Stated:
    int64_t num, den
    uint64_t operands   # a hash of the multiset of operands
    uint32_t start      # bytes of the text
    uint32_t end
    bint whole, code, written

# What is distinct is counted: small whole numbers as bits, all else by its hash.
cdef enum:
    SMALL_WORDS = 16

cdef struct Counted:
    uint64_t small[SMALL_WORDS]
    uint32_t num_small
    HashSet hashes

# A number or a value as it is looked up in such a set.
cdef struct Magnitude:
    int64_t small       # -1 for all else
    uint64_t hash

# The keys of a matcher's nodes; open addressing, at most half full.
cdef struct KeySlot:
    uint64_t key        # 0: empty
    uint32_t node
    uint32_t index      # of the key among those that the table was made of

cdef struct Keys:
    KeySlot* slots
    uint32_t capacity   # a power of two, or 0
    uint32_t size

# Where a node was first stated, and by which key.
cdef struct Place:
    uint32_t start, end, key

cdef struct Reader

# What one thread needs to read one text after another; zeroed before its first use.
cdef struct Workspace:
    Text text
    Reader* reader

cdef void workspace_free(Workspace* workspace) noexcept nogil

# Read data[0:length].  For each statement whose key a node has, set the node's channel in
# `matched` where none is set, and its first place in `places` unless that is NULL; without
# `keys` nothing is set.  Statements of code count if `computed` or their result is written.
# `values` and `numbers` receive what the guard counts.  Returns -1 where memory runs out.
cdef int read_statements_into(
    Workspace* workspace, const uint8_t* data, Py_ssize_t length, const Keys* keys,
    uint8_t* matched, Place* places, bint computed, uint32_t* values, uint32_t* numbers
) noexcept nogil

# Count what another form of the text that was read last states, too.
cdef int count_too(
    Workspace* workspace, const uint8_t* data, Py_ssize_t length, uint32_t* values,
    uint32_t* numbers,
) noexcept nogil

# Whether the text that was read last states a value, or writes a number.
cdef bint states_value(const Workspace* workspace, const Magnitude* value) noexcept nogil
cdef bint writes_number(const Workspace* workspace, const Magnitude* number) noexcept nogil

cdef Magnitude magnitude_of(object number)

# Make the table of `count` keys with their nodes; -1 where memory runs out.
cdef int keys_build(
    Keys* keys, const uint64_t* hashes, const uint32_t* nodes, Py_ssize_t count
) noexcept nogil
cdef void keys_free(Keys* keys) noexcept nogil
