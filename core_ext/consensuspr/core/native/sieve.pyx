# cython: language_level=3, freethreading_compatible=True
"""The signs and numbers of a text, found without bringing it to normal form.

A sign of equality comes of the character, in any of its forms, and of the words "equals" and "is
equal to", whose q is rare.

Normal form changes the digits of a text in these ways:

- It joins them across characters that vanish, as in ``1,200``.  So numbers without a blank between
  them count for all that begins with the first and ends with the last.
- It drops the zeros that end a decimal fraction, or writes one before it.  So such digits count
  with and without their zeros, and no pattern needs a zero.
- It divides them among the arguments of ``\\frac12``, and writes digits for scripts, for ``½`` and
  for other characters.  Where one of these stands, every number may be there.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memset

from consensuspr.core.native.normal_form cimport (
    CH_DIGIT, CH_FRACTION, CH_SUBSCRIPT, CH_SUPERSCRIPT, Unit, character_at,
)

from consensuspr.core import tables

cdef enum:
    NUMBER_BITS = 64

cdef uint64_t ALL = <uint64_t>-1
cdef uint64_t HASH_FACTOR = 0x9E3779B97F4A7C15

cdef const uint8_t* EQUAL_BEHIND = b"ual"


cdef extern from *:
    """
    #include "bytes16.h"

    /* Return the first place of a digit or a byte beyond ASCII; else the end. */
    static inline Py_ssize_t next_digit(const uint8_t* text, Py_ssize_t at, Py_ssize_t end) {
        for (; end - at >= 16; at += 16) {
            const bytes16 bytes = load16(text + at);
            const unsigned found = bits16(within16(bytes, '0', '9') | bytes);
            if (found)
                return at + (Py_ssize_t)__builtin_ctz(found);
        }
        while (at < end && (uint8_t)(text[at] - '0') > 9 && text[at] < 0x80)
            at++;
        return at;
    }

    /* Return the first place of =, of q, or of a character of three bytes or more; else the end. */
    static inline Py_ssize_t next_candidate(const uint8_t* text, Py_ssize_t at, Py_ssize_t end) {
        for (; end - at >= 16; at += 16) {
            const bytes16 bytes = load16(text + at);
            const unsigned found = bits16(
                equal16(bytes, '=') | equal16(small16(bytes), 'q') | within16(bytes, 0xE0, 0xFF));
            if (found)
                return at + (Py_ssize_t)__builtin_ctz(found);
        }
        while (at < end && text[at] != '=' && (text[at] | 0x20) != 'q' && text[at] < 0xE0)
            at++;
        return at;
    }
    """
    Py_ssize_t next_digit(const uint8_t* text, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    Py_ssize_t next_candidate(const uint8_t* text, Py_ssize_t at, Py_ssize_t end) noexcept nogil


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return <uint8_t>(byte - c'0') < 10


cdef inline bint is_letter(uint8_t byte) noexcept nogil:
    return <uint8_t>((byte | 0x20) - c'a') < 26


# --- what is needed ----------------------------------------------------------------------------

cdef inline Number* entry_of(const Sieve* sieve, uint64_t value) noexcept nogil:
    """Return the entry of a value, or the empty one where it would stand."""
    cdef uint32_t slot = <uint32_t>((value * HASH_FACTOR) >> 32)
    cdef Number* entry
    while True:
        entry = &sieve.slots[slot & (sieve.capacity - 1)]
        if entry.value == value + 1 or entry.value == 0:
            return entry
        slot += 1


cdef inline const Number* find_number(const Sieve* sieve, uint64_t value) noexcept nogil:
    """Return the entry of a value, NULL or an empty one where there is none."""
    # No bit is known where there are no slots.
    return entry_of(sieve, value) if sieve.known >> (value & 63) & 1 else NULL


cdef int sieve_grow(Sieve* sieve) noexcept nogil:
    cdef Number* old = sieve.slots
    cdef uint32_t count = sieve.capacity
    cdef uint32_t index
    cdef Number* slots = <Number*>calloc(2 * count if count else 16, sizeof(Number))
    if slots == NULL:
        return -1
    sieve.slots = slots
    sieve.capacity = 2 * count if count else 16
    for index in range(count):
        if old[index].value:
            entry_of(sieve, old[index].value - 1)[0] = old[index]
    free(old)
    return 0


cdef Number* take_number(Sieve* sieve, uint64_t value) noexcept nogil:
    """Return the entry of a value, new or not; NULL where memory runs out."""
    cdef Number* entry
    if 2 * sieve.size >= sieve.capacity and sieve_grow(sieve) < 0:
        return NULL
    entry = entry_of(sieve, value)
    if entry.value == 0:
        entry.value = value + 1
        sieve.size += 1
        sieve.known |= <uint64_t>1 << (value & 63)
    return entry


cdef int need_number(
    Sieve* sieve, const uint8_t* data, uint32_t start, uint32_t end, uint64_t* numbers
) noexcept nogil:
    """Give digits of a pattern their bit, and their beginnings and ends theirs."""
    cdef uint64_t value = 0, power = 1, bit
    cdef uint32_t at
    cdef Number* number
    for at in range(start, end):
        value = value * 10 + (data[at] - c'0')
    number = take_number(sieve, value)
    if number == NULL:
        return -1
    if number.whole:
        numbers[0] |= number.whole
        return 0
    bit = <uint64_t>1 << (sieve.count % NUMBER_BITS)
    sieve.count += 1
    numbers[0] |= bit
    number.whole = bit
    value = 0
    for at in range(start, end - 1):
        value = value * 10 + (data[at] - c'0')
        number = take_number(sieve, value)
        if number == NULL:
            return -1
        number.head |= bit
    value = 0
    for at in range(end - 1, start, -1):
        value += power * (data[at] - c'0')
        power *= 10
        number = take_number(sieve, value)
        if number == NULL:
            return -1
        number.tail |= bit
    return 0


cdef int needed_by(
    Sieve* sieve, const uint8_t* data, uint32_t start, uint32_t end, uint64_t* numbers
) noexcept nogil:
    """Find the bits of a pattern's numbers; zeros may be written for it."""
    cdef uint32_t at = start
    cdef uint32_t begin
    cdef bint zero
    numbers[0] = 0
    while at < end:
        begin = at
        zero = True
        while at < end and is_digit(data[at]):
            zero = zero and data[at] == c'0'
            at += 1
        if not zero and need_number(sieve, data, begin, at, numbers) < 0:
            return -1
        at += at == begin
    return 0


cdef bint is_few(uint64_t numbers) noexcept nogil:
    """Tell whether fewer than three bits are set."""
    numbers &= numbers - 1  # without the lowest of them
    return numbers & (numbers - 1) == 0


cdef int sieve_build(
    Sieve* sieve, const uint8_t* data, const uint32_t* starts, const uint32_t* nodes, uint32_t count
) noexcept nogil:
    cdef uint32_t first = 0, index, at, kept
    cdef uint64_t numbers
    cdef bint idle, unrelated
    memset(sieve, 0, sizeof(Sieve))
    sieve.needs = <Need*>calloc(count, sizeof(Need))
    if sieve.needs == NULL:
        return -1
    for index in range(count):
        if needed_by(sieve, data, starts[index], starts[index + 1], &numbers) < 0:
            sieve_free(sieve)
            return -1
        if index == 0 or nodes[index] != nodes[index - 1]:
            first = sieve.num_needs
        unrelated = memchr(data + starts[index], c'=', starts[index + 1] - starts[index]) == NULL
        idle = False
        kept = first
        for at in range(first, sieve.num_needs):
            if sieve.needs[at].numbers & ~numbers == 0 and sieve.needs[at].unrelated >= unrelated:
                idle = True
            if idle or numbers & ~sieve.needs[at].numbers or sieve.needs[at].unrelated > unrelated:
                sieve.needs[kept] = sieve.needs[at]
                kept += 1
        if not idle:
            sieve.needs[kept].numbers = numbers
            sieve.needs[kept].node = nodes[index]
            sieve.needs[kept].weak = is_few(numbers)
            sieve.needs[kept].unrelated = unrelated
            kept += 1
        sieve.num_needs = kept
    return 0


cdef size_t sieve_nbytes(const Sieve* sieve) noexcept nogil:
    return sieve.capacity * sizeof(Number) + sieve.num_needs * sizeof(Need)


cdef void sieve_free(Sieve* sieve) noexcept nogil:
    free(sieve.slots)
    free(sieve.needs)
    memset(sieve, 0, sizeof(Sieve))


cdef bint is_weak(const Sieve* sieve, const uint8_t* matched, bint equations) noexcept nogil:
    cdef uint32_t index
    cdef const Need* need
    for index in range(sieve.num_needs):
        need = &sieve.needs[index]
        if (
            (need.weak if equations else need.unrelated and need.numbers == 0)
            and not matched[need.node]
        ):
            return True
    return False


cdef bint are_equations(const Sieve* sieve, const uint8_t* matched) noexcept nogil:
    cdef uint32_t index
    for index in range(sieve.num_needs):
        if sieve.needs[index].unrelated and not matched[sieve.needs[index].node]:
            return False
    return True


cdef bint may_hold(
    const Sieve* sieve, uint64_t numbers, bint sign, const uint8_t* matched
) noexcept nogil:
    cdef uint32_t index
    for index in range(sieve.num_needs):
        if (
            not sieve.needs[index].numbers & ~numbers
            and (sign or sieve.needs[index].unrelated)
            and not matched[sieve.needs[index].node]
        ):
            return True
    return False


# --- the signs of equality of a text -------------------------------------------------------------

cdef bint may_be_equal(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    """Tell whether "equal" may stand around a q; other characters than letters may divide it."""
    cdef Py_ssize_t index
    if at and is_letter(data[at - 1]) and data[at - 1] | 0x20 != c'e':
        return False
    for index in range(min(3, length - at - 1)):
        if not is_letter(data[at + 1 + index]):
            return True
        if data[at + 1 + index] | 0x20 != EQUAL_BEHIND[index]:
            return False
    return True


cdef Py_ssize_t next_equals(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    cdef Unit unit
    while True:
        at = next_candidate(data, at, length)
        if at == length or data[at] == c'=':
            return at
        if data[at] < 0x80:
            if may_be_equal(data, length, at):
                return at
            at += 1
        else:
            unit = character_at(data, length, at)
            if unit.code == c'=' or unit.code | 0x20 == c'q':
                return at
            at += unit.width


# --- the numbers of a text -----------------------------------------------------------------------

cdef inline Py_ssize_t before_blanks(const uint8_t* data, Py_ssize_t at) noexcept nogil:
    """Return the beginning of the blanks, and of what may vanish, that end at ``at``."""
    while at > 0 and (data[at - 1] <= c' ' or data[at - 1] >= 0x7F or data[at - 1] == c'~'):
        at -= 1
    return at


cdef bint may_be_divided(const uint8_t* data, Py_ssize_t start) noexcept nogil:
    """Tell whether the digits at ``start`` may be arguments of a fraction or a binomial.

    They stand behind its name, behind its first argument in braces, or behind one letter.
    """
    cdef Py_ssize_t end = before_blanks(data, start)
    if end and data[end - 1] == c'}':
        return True
    if end > 1 and is_letter(data[end - 1]) and not is_letter(data[end - 2]):
        end = before_blanks(data, end - 1)
    return end > 4 and (
        memcmp(data + end - 4, b"frac", 4) == 0 or memcmp(data + end - 4, b"inom", 4) == 0
    )


cdef inline uint64_t numbers_as(const Sieve* sieve, uint64_t* heads, uint64_t value) noexcept nogil:
    """Return the bits of digits, and add those of the numbers that they may begin to ``heads``."""
    cdef const Number* number = find_number(sieve, value)
    cdef uint64_t numbers
    if number == NULL:
        return 0
    numbers = number.whole | (number.tail & heads[0])
    heads[0] |= number.head
    return numbers


cdef uint64_t numbers_of(const Sieve* sieve, const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef uint64_t found = 0, value
    cdef uint64_t heads = 0     # of the digits before, where no blank stands between
    cdef bint chained = False   # digits stand before, and no blank between
    cdef bint command
    cdef Py_ssize_t at = 0, start
    cdef Unit unit
    while True:
        at = next_digit(data, at, length)
        if at == length:
            return found
        if data[at] >= 0x80:
            unit = character_at(data, length, at)
            if unit.cls in (CH_DIGIT, CH_FRACTION, CH_SUBSCRIPT, CH_SUPERSCRIPT):
                return ALL
            at += unit.width
            continue
        start = at
        value = 0
        if may_be_divided(data, start):
            return ALL
        while at < length and is_digit(data[at]):
            value = value * 10 + (data[at] - c'0')
            at += 1
        found |= numbers_as(sieve, &heads, value)
        if value and value % 10 == 0 and (chained or (start and data[start - 1] == c'.')):
            while value % 10 == 0:
                value //= 10
            found |= numbers_as(sieve, &heads, value)
        # A blank divides digits, unless it ends a command, which may vanish, or a group.
        command = False
        while at < length and not is_digit(data[at]) and data[at] < 0x80:
            if data[at] <= c' ' and not command and (at + 1 == length or data[at + 1] != c')'):
                break
            command = command or data[at] == c'\\'
            at += 1
        chained = at < length and data[at] > c' '
        if not chained:
            heads = 0


def _check():
    for code, char in tables.CHAR_MAP.items():
        if char and char in "=qQ" and not (code < 0x80 or code >= 0x800):
            raise ValueError(f"{chr(code)!r} may be a sign of equality, and is two bytes long")


_check()
