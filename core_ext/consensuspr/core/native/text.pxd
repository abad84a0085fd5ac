"""A text at one byte a character, so that what reads it needs no UTF-8.

ASCII stands for itself; every other canonical character is one byte for its kind.
"""

from libc.stdint cimport uint8_t, uint32_t

from consensuspr.core.native.normal_form cimport Unit

# Characters beyond ASCII; each fraction, superscript and subscript has a byte of its own, in the
# order of the tables.
cdef enum:
    B_TIMES = 0x80, B_MINUS, B_APPROX, B_DOTS, B_DEGREE, B_LETTER, B_SYMBOL, B_ROOT, B_PLUS_MINUS
    B_RELATION, B_BULLET, B_ARROW, B_OTHER, B_FRACTIONS = 0xA0, B_SUPERSCRIPTS = 0xC0
    B_SUBSCRIPTS = 0xD0, B_SUBSCRIPTS_END = 0xDA

# Zeros behind a text, so that what reads it may look ahead.
cdef enum:
    PADDING = 32

# Buffers are kept from text to text; zeroed before the first use, freed by text_free.
cdef struct Text:
    uint8_t* bytes          # none of them 0, and zeros behind them
    uint32_t length
    uint32_t* offsets       # where each character begins, if that was wanted
    Py_ssize_t byte_size, offset_size

# Take data[0:length], with offsets where they are wanted; -1 where memory runs out.
cdef int text_take(Text* text, const uint8_t* data, Py_ssize_t length, bint offsets) noexcept nogil

cdef void text_free(Text* text) noexcept nogil

# The byte that stands for a canonical character, and for the one that ASCII becomes.
cdef uint8_t byte_of(const Unit* unit) noexcept nogil
cdef uint8_t ascii_byte(uint8_t byte) noexcept nogil
