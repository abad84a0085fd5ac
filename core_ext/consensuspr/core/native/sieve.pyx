# cython: language_level=3, freethreading_compatible=True
"""The signs and numbers of a text, found without bringing it to normal form.

A sign of equality comes of the character, in any of its forms, and of the words "equals" and "is
equal to", whose q is rare.

What the normal form can do to the digits that a text writes in a row, and what is done about it:

- join them with others, across what vanishes: ``1,200``, ``1{,}200``, ``3.\\mathbf{5}``.  Only
  where no blank stands between; then a number may begin with the one and end with the other.
- divide them: ``\\frac12``.
- drop the zeros that end a decimal fraction, or write one before it.  So zeros that end the
  digits count with and without, and no pattern needs a zero.
- write digits for other characters.  Scripts are digits in a row too; where others stand (``½``,
  full-width digits), every number may be there.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memset

from consensuspr.core.native.normal_form cimport (
    CH_DIGIT,
    CH_FRACTION,
    CH_SUBSCRIPT,
    CH_SUPERSCRIPT,
    Unit,
    character_at,
)

from consensuspr.core import tables

cdef enum:
    NUMBER_BITS = 64
    SCRIPT_CODES = 0x2100
    ARGUMENTS = 2   # of \\frac, one digit each where they have no braces

cdef uint64_t ALL = <uint64_t>-1
cdef uint64_t HASH_FACTOR = 0x9E3779B97F4A7C15

cdef const uint8_t* EQUAL_BEHIND = b"ual"
cdef uint8_t SCRIPT_DIGIT[SCRIPT_CODES]    # ASCII character of a super- or subscript
cdef uint8_t MAY_BE_DIGITS[256]            # whether a character that begins with this byte may be


cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif

    typedef struct {
        const uint8_t* text;
        Py_ssize_t end;
        Py_ssize_t block;     /* where the bits of the mask begin */
        uint64_t mask;      /* digits and bytes beyond ASCII, from `block` on */
    } Places;

    static inline void places_fill(Places* places) {
        const uint8_t* text = places->text + places->block;
        const Py_ssize_t left = places->end - places->block;
        uint64_t mask = 0;
        Py_ssize_t index = 0;
    #if defined(__SSE2__)
        if (left >= 64) {
            const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
            for (; index < 64; index += 16) {
                const __m128i bytes = _mm_loadu_si128((const __m128i*)(text + index));
                const __m128i offset = _mm_sub_epi8(bytes, zero);
                const __m128i found = _mm_or_si128(
                    _mm_cmpeq_epi8(_mm_min_epu8(offset, nine), offset), bytes);
                mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(found) << index;
            }
            places->mask = mask;
            return;
        }
    #endif
        for (; index < 64 && index < left; index++)
            mask |= (uint64_t)((uint8_t)(text[index] - '0') < 10 || text[index] >= 0x80) << index;
        places->mask = mask;
    }

    /* Return the first place of =, of q, or of a character of three bytes or more; else the end. */
    static inline Py_ssize_t next_candidate(
        const uint8_t* text, Py_ssize_t at, Py_ssize_t end
    ) {
    #if defined(__SSE2__)
        const __m128i equals = _mm_set1_epi8('='), letter = _mm_set1_epi8('q');
        const __m128i lower = _mm_set1_epi8(0x20), high = _mm_set1_epi8((char)0xE0);
        for (; end - at >= 16; at += 16) {
            const __m128i bytes = _mm_loadu_si128((const __m128i*)(text + at));
            const unsigned mask = (unsigned)_mm_movemask_epi8(_mm_or_si128(
                _mm_or_si128(
                    _mm_cmpeq_epi8(bytes, equals),
                    _mm_cmpeq_epi8(_mm_or_si128(bytes, lower), letter)),
                _mm_cmpeq_epi8(_mm_max_epu8(bytes, high), bytes)));
            if (mask)
                return at + (Py_ssize_t)__builtin_ctz(mask);
        }
    #endif
        while (at < end && text[at] != '=' && (text[at] | 0x20) != 'q' && text[at] < 0xE0)
            at++;
        return at;
    }

    static inline void places_begin(Places* places, const uint8_t* text, Py_ssize_t end) {
        places->text = text;
        places->end = end;
        places->block = 0;
        places_fill(places);
    }

    /* Return the first place from `at` on, else the end; `at` never goes back. */
    static inline Py_ssize_t places_next(Places* places, Py_ssize_t at) {
        uint64_t mask;
        while (at < places->end) {
            if (at - places->block >= 64) {
                places->block = at & ~(Py_ssize_t)63;
                places_fill(places);
            }
            mask = places->mask >> (at - places->block);
            if (mask)
                return at + (Py_ssize_t)__builtin_ctzll(mask);
            at = places->block + 64;
        }
        return places->end;
    }
    """
    ctypedef struct Places:
        pass
    Py_ssize_t next_candidate(const uint8_t* text, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    void places_begin(Places* places, const uint8_t* text, Py_ssize_t end) noexcept nogil
    Py_ssize_t places_next(Places* places, Py_ssize_t at) noexcept nogil


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
    cdef uint64_t value = 0
    cdef uint64_t power = 1
    cdef uint64_t bit
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
    Sieve* sieve,
    const uint8_t* data,
    const uint32_t* starts,
    const uint32_t* nodes,
    uint32_t count,
) noexcept nogil:
    cdef uint32_t first = 0
    cdef uint32_t index, at, kept
    cdef uint64_t numbers
    cdef bint idle
    cdef bint unrelated = False
    memset(sieve, 0, sizeof(Sieve))
    sieve.needs = <Need*>calloc(count, sizeof(Need))
    if sieve.needs == NULL:
        return -1
    for index in range(count):
        if needed_by(sieve, data, starts[index], starts[index + 1], &numbers) < 0:
            sieve_free(sieve)
            return -1
        if index and nodes[index] != nodes[index - 1]:
            first = sieve.num_needs
            unrelated = False
        idle = False
        kept = first
        for at in range(first, sieve.num_needs):
            if sieve.needs[at].numbers & ~numbers == 0:
                idle = True
            if idle or numbers & ~sieve.needs[at].numbers:
                sieve.needs[kept] = sieve.needs[at]
                kept += 1
        if not idle:
            sieve.needs[kept].numbers = numbers
            sieve.needs[kept].node = nodes[index]
            sieve.needs[kept].weak = is_few(numbers)
            sieve.needs[kept].unrelated = False
            kept += 1
        sieve.num_needs = kept
        unrelated |= memchr(data + starts[index], c'=', starts[index + 1] - starts[index]) == NULL
        sieve.needs[first].unrelated = unrelated
    return 0


cdef size_t sieve_nbytes(const Sieve* sieve) noexcept nogil:
    return sieve.capacity * sizeof(Number) + sieve.num_needs * sizeof(Need)


cdef void sieve_free(Sieve* sieve) noexcept nogil:
    free(sieve.slots)
    free(sieve.needs)
    memset(sieve, 0, sizeof(Sieve))


cdef bint is_weak(const Sieve* sieve, const uint8_t* matched) noexcept nogil:
    cdef uint32_t index
    for index in range(sieve.num_needs):
        if sieve.needs[index].weak and not matched[sieve.needs[index].node]:
            return True
    return False


cdef bint are_equations(const Sieve* sieve, const uint8_t* matched) noexcept nogil:
    cdef uint32_t index
    for index in range(sieve.num_needs):
        if sieve.needs[index].unrelated and not matched[sieve.needs[index].node]:
            return False
    return True


cdef bint may_hold(const Sieve* sieve, uint64_t numbers, const uint8_t* matched) noexcept nogil:
    cdef uint32_t index
    for index in range(sieve.num_needs):
        if not sieve.needs[index].numbers & ~numbers and not matched[sieve.needs[index].node]:
            return True
    return False


# --- the signs of equality of a text -------------------------------------------------------------

cdef bint may_be_equal(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    """Tell whether "equal" may stand around a q; what is no letter may stand within it."""
    cdef Py_ssize_t behind
    cdef uint8_t byte
    if at and is_letter(data[at - 1]) and data[at - 1] | 0x20 != c'e':
        return False
    for behind in range(min(3, length - at - 1)):
        byte = data[at + 1 + behind]
        if not is_letter(byte):
            return True
        if byte | 0x20 != EQUAL_BEHIND[behind]:
            return False
    return True


cdef Py_ssize_t next_equals(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at
) noexcept nogil:
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
    """Return where blanks and what may vanish begin that end at ``at``."""
    while at > 0 and (data[at - 1] <= c' ' or data[at - 1] >= 0x7F or data[at - 1] == c'~'):
        at -= 1
    return at


cdef inline Py_ssize_t before_letters(const uint8_t* data, Py_ssize_t at) noexcept nogil:
    while at > 0 and is_letter(data[at - 1]):
        at -= 1
    return at


cdef bint may_be_argument(const uint8_t* data, Py_ssize_t start, Py_ssize_t bare) noexcept nogil:
    """Tell whether a command may take the first digit at ``start`` alone.

    It does where the digit stands behind it or behind its first argument: what is in braces, or
    one letter, or one digit that ends at ``bare``.
    """
    cdef Py_ssize_t end = before_blanks(data, start)
    cdef Py_ssize_t at
    if end == 0:
        return False
    if end == bare or data[end - 1] == c'}':
        return True
    at = before_letters(data, end)
    if at + 1 == end and at and data[at - 1] != c'\\':
        end = before_blanks(data, at)
        at = before_letters(data, end)
    return 0 < at < end and data[at - 1] == c'\\'


# What stands before digits.
cdef struct Seen:
    uint64_t heads      # of the digits before, where no blank stands between
    bint chained        # digits stand before, and no blank between
    Py_ssize_t bare     # where the bare argument of a command ends


cdef inline uint64_t numbers_as(const Sieve* sieve, Seen* seen, uint64_t value) noexcept nogil:
    """Return the bits of digits, and remember what they may begin."""
    cdef const Number* number = find_number(sieve, value)
    cdef uint64_t numbers
    if number == NULL:
        return 0
    numbers = number.whole | (number.tail & seen.heads)
    seen.heads |= number.head
    return numbers


cdef uint64_t divided(
    const Sieve* sieve, Seen* seen, const uint8_t* data, Py_ssize_t start, Py_ssize_t end
) noexcept nogil:
    """Return the bits of digits of which a command takes the first as arguments."""
    cdef uint64_t numbers = 0
    cdef uint64_t value
    cdef Py_ssize_t begin, at
    for begin in range(start, min(start + ARGUMENTS, end - 1)):
        numbers |= numbers_as(sieve, seen, data[begin] - c'0')
        value = 0
        for at in range(begin + 1, end):
            value = value * 10 + (data[at] - c'0')
        numbers |= numbers_as(sieve, seen, value)
    return numbers


cdef uint64_t numbers_of(
    const Sieve* sieve, const uint8_t* data, Py_ssize_t length
) noexcept nogil:
    cdef bint commands = memchr(data, c'\\', length) != NULL
    cdef uint64_t found = 0
    cdef uint64_t value
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t start
    cdef uint8_t byte
    cdef int cls
    cdef bint command
    cdef Unit unit
    cdef Places places
    cdef Seen seen
    places_begin(&places, data, length)
    seen.heads = 0
    seen.chained = False
    seen.bare = -1
    while True:
        at = places_next(&places, at)
        if at == length:
            return found
        start = at
        value = 0
        byte = data[at]
        if byte < 0x80:
            while at < length and is_digit(data[at]):
                value = value * 10 + (data[at] - c'0')
                at += 1
        elif not MAY_BE_DIGITS[byte]:
            at += 1
            continue
        else:
            unit = character_at(data, length, at)
            if unit.cls == CH_DIGIT or unit.cls == CH_FRACTION:
                return ALL
            # Scripts of both kinds, one after the other, are two numbers.
            cls = unit.cls
            while unit.cls == cls and (cls == CH_SUPERSCRIPT or cls == CH_SUBSCRIPT):
                if is_digit(SCRIPT_DIGIT[unit.code]):
                    value = value * 10 + (SCRIPT_DIGIT[unit.code] - c'0')
                at += unit.width
                unit = character_at(data, length, at)
            if at == start:
                at += unit.width
                continue
        found |= numbers_as(sieve, &seen, value)
        if byte < 0x80:
            if value and value % 10 == 0 and (
                seen.chained or (start and data[start - 1] == c'.')
            ):
                while value % 10 == 0:
                    value //= 10
                found |= numbers_as(sieve, &seen, value)
            if commands and may_be_argument(data, start, seen.bare):
                if at - start > 1:
                    found |= divided(sieve, &seen, data, start, at)
                seen.bare = at
        # A blank divides digits, unless it ends a command, which may vanish.
        command = False
        while at < length:
            byte = data[at]
            if byte <= c' ':
                if not command:
                    break
            elif is_digit(byte) or byte >= 0x80:
                break
            command = command or byte == c'\\'
            at += 1
        seen.chained = at < length and data[at] > c' '
        if not seen.chained:
            seen.heads = 0


def _fill():
    for char, text in {**tables.SUPERSCRIPTS, **tables.SUBSCRIPTS}.items():
        SCRIPT_DIGIT[ord(char)] = ord(text)
    for lead in (0xC2, 0xE2, 0xEF, 0xF0):
        MAY_BE_DIGITS[lead] = True
    for code, char in tables.CHAR_MAP.items():
        if char and char in "=qQ" and not (code < 0x80 or code >= 0x800):
            raise ValueError(f"{chr(code)!r} may be a sign of equality, and is two bytes long")


_fill()
