"""Which signs and numbers the patterns of a problem need, and which of them a text has.

Most patterns are equations, made of numbers.  A text that lacks the sign of equality or one of a
pattern's numbers cannot hold it, whatever else stands there, and to find these is far cheaper than
to bring a text to normal form.
The answer may be yes too often, and is never no wrongly.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

# A number that matters: the bits of the needed ones that it is, begins and ends.
cdef struct Number:
    uint64_t value      # modulo 2 ** 64, and 1, so that 0 is an empty slot
    uint64_t whole, head, tail

# What one pattern needs.
cdef struct Need:
    uint64_t numbers    # bits
    uint32_t node
    bint weak           # too few to be missing often
    bint unrelated      # it has no sign of equality

cdef struct Sieve:
    Number* slots       # open addressing, at most half full
    uint32_t capacity   # a power of two, or 0
    uint32_t size
    uint32_t count      # of numbers that are needed; beyond 64 they share bits
    uint64_t known      # bit n: the value of some slot ends in these six bits
    Need* needs         # of one node, none asks for all that another asks for
    uint32_t num_needs

# Take count patterns, pattern i being data[starts[i]:starts[i + 1]] of node nodes[i], those of a
# node together.  Returns -1 where memory runs out, with nothing left allocated.
cdef int sieve_build(
    Sieve* sieve, const uint8_t* data, const uint32_t* starts, const uint32_t* nodes, uint32_t count
) noexcept nogil

cdef size_t sieve_nbytes(const Sieve* sieve) noexcept nogil

# Free what sieve_build allocated; harmless on a zeroed struct.
cdef void sieve_free(Sieve* sieve) noexcept nogil

# Return the bits of the numbers that the normal form of whole paragraphs may have.
cdef uint64_t numbers_of(const Sieve* sieve, const uint8_t* data, Py_ssize_t length) noexcept nogil

# Tell whether a pattern of a node that is not in `matched` needs so few numbers that it is not
# worth looking for them: fewer than three where all patterns are `equations`, else none.
cdef bint is_weak(const Sieve* sieve, const uint8_t* matched, bint equations) noexcept nogil

# Tell whether all patterns of the nodes that are not in `matched` have a sign of equality.
cdef bint are_equations(const Sieve* sieve, const uint8_t* matched) noexcept nogil

# Return the first place from `at` on from which normal form may make a sign of equality, or part
# of one; `length` if there is none.
cdef Py_ssize_t next_equals(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil

# Tell whether what has these numbers, and a sign of equality or none, may hold a pattern of a node
# that is not in `matched`.
cdef bint may_hold(
    const Sieve* sieve, uint64_t numbers, bint sign, const uint8_t* matched
) noexcept nogil
