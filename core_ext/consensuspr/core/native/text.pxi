# A text at one byte a character, so that what reads it needs no UTF-8.
#
# ASCII stands for itself; every other canonical character is one byte for its kind.

# Characters beyond ASCII; each fraction, superscript and subscript has a byte of its own, in the
# order of the tables.
cdef enum:
    B_TIMES = 0x80, B_MINUS, B_APPROX, B_DOTS, B_DEGREE, B_LETTER, B_SYMBOL, B_ROOT, B_PLUS_MINUS
    B_RELATION, B_BULLET, B_ARROW, B_OTHER, B_IDEOGRAPH, B_FRACTIONS = 0xA0, B_SUPERSCRIPTS = 0xC0
    B_SUBSCRIPTS = 0xD0, B_SUBSCRIPTS_END = 0xDA

# Zeros behind a text, so that what reads it may look ahead.
cdef enum:
    PADDING = 32

cdef enum:
    APPROXIMATELY = 0x2248
    ELLIPSIS = 0x2026

cdef uint8_t ASCII[128]
cdef uint8_t OF_CLASS[64]   # byte of a character that has none of its own
cdef uint8_t RARE[0x1000]   # bytes of fractions and scripts, by the last bits of their code


cdef uint8_t ascii_byte(uint8_t byte) noexcept nogil:
    return ASCII[byte] if byte < 0x80 else byte


cdef uint8_t byte_of(const Unit* unit) noexcept nogil:
    if unit.code < 0x80:
        return <uint8_t>unit.code
    if unit.code == APPROXIMATELY:
        return B_APPROX
    if unit.code == ELLIPSIS:
        return B_DOTS
    if unit.cls in (CH_FRACTION, CH_SUPERSCRIPT, CH_SUBSCRIPT):
        return RARE[unit.code & 0xFFF]
    if unit.cls == CH_OTHER and (0x3040 <= unit.code < 0xD800 or unit.code >= 0x1F000):
        return B_IDEOGRAPH
    return OF_CLASS[unit.cls]


cdef extern from *:
    """
    #include "bytes16.h"

    /* Copy the bytes that stand for themselves, and perhaps more, to a buffer that has room for
       all of [at, length); return how many do. */
    static inline Py_ssize_t copy_plain(
        const uint8_t* data, Py_ssize_t at, Py_ssize_t length, uint8_t* out
    ) {
        const Py_ssize_t begin = at;
        while (length - at >= 16) {
            const bytes16 bytes = load16(data + at);
            const unsigned other = bits16(bytes | equal16(bytes, 0));
            store16(out + (at - begin), bytes);
            if (other)
                return at - begin + (Py_ssize_t)__builtin_ctz(other);
            at += 16;
        }
        while (at < length && data[at] && data[at] < 0x80) {
            out[at - begin] = data[at];
            at++;
        }
        return at - begin;
    }
    """
    Py_ssize_t copy_plain(
        const uint8_t* data, Py_ssize_t at, Py_ssize_t length, uint8_t* out
    ) noexcept nogil


cdef int make_room(Text* text, Py_ssize_t length, bint offsets) noexcept nogil:
    cdef void* grown
    if text.bytes == NULL or text.byte_size < length:
        grown = PyMem_RawRealloc(text.bytes, length + PADDING)
        if grown == NULL:
            return -1
        text.bytes = <uint8_t*>grown
        text.byte_size = length
    if offsets and text.offset_size < length + 1:
        grown = PyMem_RawRealloc(text.offsets, (length + 1) * sizeof(uint32_t))
        if grown == NULL:
            return -1
        text.offsets = <uint32_t*>grown
        text.offset_size = length + 1
    return 0


cdef int text_take(Text* text, const uint8_t* data, Py_ssize_t length, bint offsets) noexcept nogil:
    cdef Py_ssize_t at = 0, plain, index
    cdef uint32_t size = 0
    cdef Unit unit
    if make_room(text, length, offsets) < 0:
        return -1
    while at < length:
        plain = copy_plain(data, at, length, text.bytes + size)
        if offsets:
            for index in range(plain):
                text.offsets[size + index] = <uint32_t>(at + index)
        size += <uint32_t>plain
        at += plain
        if at == length:
            break
        if offsets:
            text.offsets[size] = <uint32_t>at
        if data[at] < 0x80:
            text.bytes[size] = ASCII[data[at]]
            at += 1
        else:
            unit = character_at(data, length, at)
            text.bytes[size] = byte_of(&unit)
            at += unit.width
        size += 1
    if offsets:
        text.offsets[size] = <uint32_t>length
    memset(text.bytes + size, 0, PADDING)
    text.length = size
    return 0


cdef void text_free(Text* text) noexcept nogil:
    PyMem_RawFree(text.bytes)
    PyMem_RawFree(text.offsets)
    text.bytes = NULL
    text.offsets = NULL
    text.byte_size = 0
    text.offset_size = 0


def _fill_text():
    for code in range(128):
        ASCII[code] = ord(tables.CHAR_MAP.get(code, chr(code)) or chr(code))
    for index in range(64):
        OF_CLASS[index] = B_OTHER
    for cls, byte in (
        (CH_LETTER, B_LETTER), (CH_MINUS, B_MINUS), (CH_TIMES, B_TIMES), (CH_SYMBOL, B_SYMBOL),
        (CH_ROOT, B_ROOT), (CH_PLUS_MINUS, B_PLUS_MINUS), (CH_RELATION, B_RELATION),
        (CH_BULLET, B_BULLET), (CH_ARROW, B_ARROW), (CH_DROP, B_DEGREE),
    ):
        OF_CLASS[int(cls)] = int(byte)
    rare = {}
    for first, chars in (
        (B_FRACTIONS, tables.FRACTIONS),
        (B_SUPERSCRIPTS, tables.SUPERSCRIPTS),
        (B_SUBSCRIPTS, tables.SUBSCRIPTS),
    ):
        for index, char in enumerate(chars):
            rare[ord(char) & 0xFFF] = RARE[ord(char) & 0xFFF] = first + index
    if len(rare) != len(tables.FRACTIONS) + len(tables.SUPERSCRIPTS) + len(tables.SUBSCRIPTS):
        raise ValueError("two rare characters share their last bits")
