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

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memset

from consensuspr.core.native.normal_form cimport (
    CH_DIGIT, CH_FRACTION, CH_SUBSCRIPT, CH_SUPERSCRIPT, Unit, character_at,
)

from consensuspr.core import tables

cdef enum:
    NUMBER_BITS = 64
    SCRIPT_CODES = 0x2100
    ARGUMENTS = 2   # of \\frac, one digit each where they have no braces
    # Classes of what stands behind a sign of equality: ten digits, a hundred pairs of them ...
    BEHIND_DIGITS = 10
    BEHIND_LETTER = 110     # ... the letters, from A to z
    BEHIND_MINUS = 168
    BEHIND_OPEN = 169
    BEHIND_LOOK = 32        # bytes that are looked at for it
    # After so many bytes of signs that do not fit the next one does, so that a deadline is heard.
    UNFIT_BYTES = 1 << 15

cdef uint64_t ALL = <uint64_t>-1
cdef uint64_t HASH_FACTOR = 0x9E3779B97F4A7C15

cdef const uint8_t* EQUAL_BEHIND = b"ual"
cdef uint8_t SCRIPT_DIGIT[SCRIPT_CODES]    # ASCII character of a super- or subscript
cdef uint8_t MAY_BE_DIGITS[256]            # whether a character that begins with this byte may be
cdef uint8_t VANISHES_BEHIND[256]          # characters that vanish behind a sign of equality
# Bit n: a word of n letters with this first and last one may be a sign or a symbol; see _fill.
cdef uint16_t SIGN_LENGTHS[32 << 5]


cdef extern from *:
    """
    #include "bytes16.h"

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
        if (left >= 64) {
            for (; index < 64; index += 16) {
                const bytes16 bytes = load16(text + index);
                mask |= (uint64_t)bits16(within16(bytes, '0', '9') | bytes) << index;
            }
            places->mask = mask;
            return;
        }
        for (; index < 64 && index < left; index++)
            mask |= (uint64_t)((uint8_t)(text[index] - '0') < 10 || text[index] >= 0x80) << index;
        places->mask = mask;
    }

    /* Return the first place of =, of q, or of a character of three bytes or more; else the end. */
    static inline Py_ssize_t next_candidate(
        const uint8_t* text, Py_ssize_t at, Py_ssize_t end
    ) {
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


cdef inline int class_behind(uint8_t byte) noexcept nogil:
    """Return the class of what a pattern may have behind a sign of equality, -1 for none."""
    if is_digit(byte):
        return byte - c'0'
    if is_letter(byte):
        return BEHIND_LETTER + (byte - c'A')
    return BEHIND_MINUS if byte == c'-' else BEHIND_OPEN if byte == c'(' else -1


cdef inline int class_of_digits(uint8_t first, uint8_t second) noexcept nogil:
    return BEHIND_DIGITS + 10 * (first - c'0') + (second - c'0')


cdef inline void set_behind(Behind* behind, int cls) noexcept nogil:
    behind.bits[cls >> 6] |= <uint64_t>1 << (cls & 63)


cdef inline bint has_behind(const Behind* behind, int cls) noexcept nogil:
    return behind.bits[cls >> 6] >> (cls & 63) & 1


cdef bint need_behind(Related* related, const uint8_t* begin, const uint8_t* end) noexcept nogil:
    """Note what a pattern has behind a sign of equality: the one with most digits there.

    Return whether it has no such sign.
    """
    cdef const uint8_t* at = begin
    cdef const uint8_t* best = NULL
    cdef int most = 0, digits, cls
    while at < end:
        at += 1
        if at[-1] == c'=':
            digits = 0
            while digits < 2 and at + digits < end and is_digit(at[digits]):
                digits += 1
            if digits >= most:
                best = at
                most = digits
    if best == NULL:
        related.unrelated = True
    elif best == end:
        memset(&related.behind, 0xFF, sizeof(Behind))
    else:
        # What a text writes may go on with more digits.
        cls = class_behind(best[0])
        if cls >= 0:
            set_behind(&related.behind, cls)
        if most == 2:
            set_behind(&related.behind, class_of_digits(best[0], best[1]))
    return best == NULL


cdef int sieve_build(
    Sieve* sieve, const uint8_t* data, const uint32_t* starts, const uint32_t* nodes, uint32_t count
) noexcept nogil:
    cdef uint32_t first = 0, index, at, kept
    cdef uint64_t numbers
    cdef bint idle, unrelated
    memset(sieve, 0, sizeof(Sieve))
    sieve.needs = <Need*>calloc(count, sizeof(Need))
    sieve.related = <Related*>calloc(count, sizeof(Related))
    if sieve.needs == NULL or sieve.related == NULL:
        sieve_free(sieve)
        return -1
    for index in range(count):
        if needed_by(sieve, data, starts[index], starts[index + 1], &numbers) < 0:
            sieve_free(sieve)
            return -1
        if index == 0 or nodes[index] != nodes[index - 1]:
            first = sieve.num_needs
            sieve.related[sieve.num_related].node = nodes[index]
            sieve.num_related += 1
        unrelated = need_behind(
            &sieve.related[sieve.num_related - 1], data + starts[index], data + starts[index + 1]
        )
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
    return (
        sieve.capacity * sizeof(Number)
        + sieve.num_needs * sizeof(Need)
        + sieve.num_related * sizeof(Related)
    )


cdef void sieve_free(Sieve* sieve) noexcept nogil:
    free(sieve.slots)
    free(sieve.needs)
    free(sieve.related)
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


cdef bint are_equations(const Sieve* sieve, const uint8_t* matched, Behind* behind) noexcept nogil:
    cdef uint32_t index, word
    cdef bint equations = True
    memset(behind, 0, sizeof(Behind))
    for index in range(sieve.num_related):
        if not matched[sieve.related[index].node]:
            equations = equations and not sieve.related[index].unrelated
            for word in range(BEHIND_WORDS):
                behind.bits[word] |= sieve.related[index].behind.bits[word]
    return equations


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

cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte in b" \n\t\r"


cdef inline Py_ssize_t letters_end(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at
) noexcept nogil:
    while at < length and is_letter(data[at]):
        at += 1
    return at


cdef inline bint is_spelled(
    const uint8_t* data, Py_ssize_t length, const char* name, Py_ssize_t count
) noexcept nogil:
    return length == count and memcmp(data, name, count) == 0


cdef bint may_stand_behind(
    const Behind* behind, const uint8_t* data, Py_ssize_t length, Py_ssize_t at
) noexcept nogil:
    """Tell whether a sign of equality that ends at ``at`` may have one of ``behind`` to its right.

    What vanishes there is passed over.  A bracket, or that of a fraction, may vanish.
    """
    cdef Py_ssize_t most = min(length, at + BEHIND_LOOK)
    cdef Py_ssize_t end
    cdef uint8_t byte, following
    cdef bint bare = False  # a fraction may take one character alone
    while at + 1 < most:
        byte = data[at]
        following = data[at + 1]
        if VANISHES_BEHIND[byte]:
            bare = bare and is_blank(byte)
            at += 1
        elif is_digit(byte):
            if is_digit(following) and not bare:
                return has_behind(behind, class_of_digits(byte, following))
            return has_behind(behind, byte - c'0')
        elif is_letter(byte):
            end = letters_end(data, length, at)
            if end == length or data[end] >= 0x80:
                return True
            if end - at == 1:
                return has_behind(behind, class_behind(byte)) or has_behind(
                    behind, class_behind(byte | 0x20)
                )
            if bare or (
                end - at < 16
                and SIGN_LENGTHS[(byte & 31) << 5 | (data[end - 1] & 31)] >> (end - at) & 1
            ):
                return True
            return has_behind(behind, class_behind(byte | 0x20))
        elif byte == c'(':
            if has_behind(behind, BEHIND_OPEN):
                return True
            bare = False
            at += 1
        elif byte == c'-':
            return (
                has_behind(behind, BEHIND_MINUS)
                or is_blank(following)
                or following in b"->"
                or following >= 0x80
            )
        elif byte == c'\\':
            bare = False
            at += 1
            end = letters_end(data, length, at)
            if end == length or data[end] >= 0x80:
                return True
            if end == at:
                if following not in b",:;! ([{$":
                    return True
                end += 1
            elif (
                is_spelled(data + at, end - at, b"frac", 4)
                or is_spelled(data + at, end - at, b"dfrac", 5)
                or is_spelled(data + at, end - at, b"tfrac", 5)
            ):
                if has_behind(behind, BEHIND_OPEN):
                    return True
                bare = True
            elif is_spelled(data + at, end - at, b"left", 4):
                if data[end] != c'(':
                    return True
            elif not (
                is_spelled(data + at, end - at, b"text", 4)
                or is_spelled(data + at, end - at, b"boxed", 5)
                or is_spelled(data + at, end - at, b"mathbf", 6)
                or is_spelled(data + at, end - at, b"mathrm", 6)
            ):
                return True
            at = end
        else:
            return True
    return True


cdef bint may_be_equal(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at, const Behind* behind
) noexcept nogil:
    """Tell whether "equals" or "equal to" may stand around a q, one of ``behind`` to its right.

    What is no letter may stand within it.
    """
    cdef Py_ssize_t ahead
    cdef uint8_t byte
    if at and is_letter(data[at - 1]) and data[at - 1] | 0x20 != c'e':
        return False
    for ahead in range(min(3, length - at - 1)):
        byte = data[at + 1 + ahead]
        if not is_letter(byte):
            return True
        if byte | 0x20 != EQUAL_BEHIND[ahead]:
            return False
    at += 4
    if at >= length:
        return True
    if data[at] | 0x20 == c's':
        at += 1
    elif is_blank(data[at]):
        while at < length and is_blank(data[at]):
            at += 1
        if length - at < 2 or data[at] | 0x20 != c't' or data[at + 1] | 0x20 != c'o':
            return True
        at += 2
    else:
        return not is_letter(data[at])
    if at < length and is_letter(data[at]):
        return False
    return at == length or data[at] >= 0x80 or may_stand_behind(behind, data, length, at)


cdef Py_ssize_t next_equals(
    const uint8_t* data, Py_ssize_t length, Py_ssize_t at, const Behind* behind
) noexcept nogil:
    cdef Py_ssize_t most = at + UNFIT_BYTES
    cdef Unit unit
    while True:
        at = next_candidate(data, at, length)
        if at == length:
            return at
        if data[at] < 0x80:
            if at >= most or (
                may_stand_behind(behind, data, length, at + 1)
                if data[at] == c'='
                else may_be_equal(data, length, at, behind)
            ):
                return at
            at += 1
            # Signs in a row have the same behind them.
            while data[at - 1] == c'=' and at < length and data[at] == c'=':
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
    cdef uint64_t numbers = 0, value
    cdef Py_ssize_t begin, at
    for begin in range(start, min(start + ARGUMENTS, end - 1)):
        numbers |= numbers_as(sieve, seen, data[begin] - c'0')
        value = 0
        for at in range(begin + 1, end):
            value = value * 10 + (data[at] - c'0')
        numbers |= numbers_as(sieve, seen, value)
    return numbers


cdef uint64_t numbers_of(const Sieve* sieve, const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef bint commands = memchr(data, c'\\', length) != NULL
    cdef uint64_t found = 0, value
    cdef Py_ssize_t at = 0, start
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
            if unit.cls in (CH_DIGIT, CH_FRACTION):
                return ALL
            # Scripts of both kinds, one after the other, are two numbers.
            cls = unit.cls
            while unit.cls == cls and cls in (CH_SUPERSCRIPT, CH_SUBSCRIPT):
                if is_digit(SCRIPT_DIGIT[unit.code]):
                    value = value * 10 + (SCRIPT_DIGIT[unit.code] - c'0')
                at += unit.width
                unit = character_at(data, length, at)
            if at == start:
                at += unit.width
                continue
        found |= numbers_as(sieve, &seen, value)
        if byte < 0x80:
            if value and value % 10 == 0 and (seen.chained or (start and data[start - 1] == c'.')):
                while value % 10 == 0:
                    value //= 10
                found |= numbers_as(sieve, &seen, value)
            if commands and may_be_argument(data, start, seen.bare):
                if at - start > 1:
                    found |= divided(sieve, &seen, data, start, at)
                seen.bare = at
        # A blank divides digits, unless it ends a command, which may vanish, or a group.
        command = False
        while at < length:
            byte = data[at]
            if byte <= c' ':
                if not command and (at + 1 == length or data[at + 1] != c')'):
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
    for char in " \n\t\r~$&{*_=`\"":
        VANISHES_BEHIND[ord(char)] = True
    # Words that are no words to the normal form, and those that "equal to" and the like begin with.
    plain = tables.Word.FUNCTION, tables.Word.APPLIED, tables.Word.GLUED_UNIT, tables.Word.CURRENCY
    signs = {
        word
        for word, (meaning, _) in tables.WORDS.items()
        if meaning not in (*plain, tables.Word.STOP)
    }
    for word in signs | {"is", "equal", "divided", "multiplied"}:
        SIGN_LENGTHS[(ord(word[0]) & 31) << 5 | (ord(word[-1]) & 31)] |= 1 << len(word)
    for code, char in tables.CHAR_MAP.items():
        if char and char in "=qQ" and not (code < 0x80 or code >= 0x800):
            raise ValueError(f"{chr(code)!r} may be a sign of equality, and is two bytes long")


_fill()
