"""The compiled normaliser: bytes in, normal form out, without the GIL.

One call normalises one text in one pass; see ``docs/reference/matching.md`` for the rules and
``pure/normal_form.py`` for their readable form.  Thread safety: the tables are filled when
the module is imported and only read afterwards; every call works on buffers of its caller.
"""

from libc.stdint cimport uint8_t, uint32_t

# What a character is; the values are those of tables.Char, which a test compares.
cdef enum CharClass:
    CH_OTHER = 0, CH_SPACE, CH_NEWLINE, CH_DIGIT, CH_LETTER, CH_SYMBOL, CH_ROOT, CH_RELATION
    CH_PLUS_MINUS, CH_PLUS, CH_MINUS, CH_STAR, CH_TIMES, CH_SLASH, CH_CARET, CH_UNDERSCORE
    CH_EQUALS, CH_LESS, CH_GREATER, CH_OPEN, CH_CLOSE, CH_BRACKET_OPEN, CH_BRACKET_CLOSE
    CH_BRACE_OPEN, CH_BRACE_CLOSE, CH_COMMA, CH_POINT, CH_SENTENCE_END, CH_BANG, CH_COLON, CH_PRIME
    CH_MARK, CH_DROP, CH_BAR, CH_AMPERSAND, CH_BACKSLASH, CH_BULLET, CH_ARROW, CH_SUPERSCRIPT
    CH_SUBSCRIPT, CH_FRACTION, CH_HASH


# One canonical character of the input.
cdef struct Unit:
    uint32_t code   # canonical code point; 0 past the end
    int cls         # CharClass; CH_OTHER past the end
    int width       # bytes of input; 0 past the end


# Bytes that a normal form of `length` input bytes can need: 1.5 * length + 8, and room for
# the bytes that a rule writes before it takes them back.
cdef Py_ssize_t output_capacity(Py_ssize_t length) noexcept nogil

# Write the normal form of data[0:length] to out and return its length in bytes.  Where starts and
# ends are not NULL they receive, for each output byte, the half-open range of input bytes behind
# it.  `out`, `starts` and `ends` hold output_capacity(length) elements.
# Never fails: a defined output exists for every input.
cdef Py_ssize_t normal_form(
    const uint8_t* data, Py_ssize_t length, uint8_t* out, uint32_t* starts, uint32_t* ends
) noexcept nogil

# Whether display mathematics begins on the line that begins at `at`, so that a blank line before it
# ends no paragraph.
cdef bint display_follows(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil

# Class of the canonical character that starts at data[at] of a normal form, and of the one
# that ends before it.  data[at] exists; a normal form is well-formed UTF-8.
cdef int class_at(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil
cdef int class_before(const uint8_t* data, Py_ssize_t at) noexcept nogil

# The canonical character at data[at]; at < length.
cdef Unit character_at(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil
