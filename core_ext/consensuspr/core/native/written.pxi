# The numbers that a text writes, wherever they stand; as pure/statements/numbers.py.
#
# The guard counts them, and looks for the results of code among those that can be one.

cdef enum:
    # Where a number stands that is a result of all code, and one that is a result of none.
    ANYWHERE = 0xFFFFFFFF
    NOWHERE = 0

cdef extern from *:
    """
    #include "bytes16.h"

    /* Return where the next digit, fraction or script stands, or ``end``; text.pxd has the
       bytes of fractions and scripts. */
    static inline uint32_t next_written(const uint8_t* text, uint32_t at, uint32_t end) {
        for (; at < end; at += 16) {
            const bytes16 bytes = load16(text + at);
            const unsigned found =
                bits16(within16(bytes, '0', '9') | within16(bytes, 0xA0, 0xD9));
            if (found) {
                at += (uint32_t)__builtin_ctz(found);
                return at < end ? at : end;
            }
        }
        return end;
    }
    """
    uint32_t next_written(const uint8_t* text, uint32_t at, uint32_t end) noexcept nogil


cdef int results_grow(Results* results) noexcept nogil:
    cdef uint32_t capacity = results.capacity * 2 if results.capacity else 64
    cdef Result* slots = <Result*>PyMem_RawCalloc(capacity, sizeof(Result))
    cdef uint32_t index, slot
    if slots == NULL:
        return -1
    for index in range(results.capacity):
        if results.slots[index].number:
            slot = <uint32_t>results.slots[index].number & (capacity - 1)
            while slots[slot].number:
                slot = (slot + 1) & (capacity - 1)
            slots[slot] = results.slots[index]
    PyMem_RawFree(results.slots)
    results.slots = slots
    results.capacity = capacity
    return 0


cdef void results_clear(Results* results) noexcept nogil:
    """Empty a table; give the memory of a large one back."""
    if results.capacity > 4096:
        PyMem_RawFree(results.slots)
        results.slots = NULL
        results.capacity = 0
    elif results.size:
        memset(results.slots, 0, results.capacity * sizeof(Result))
    results.size = 0


cdef inline uint64_t result_hash(int64_t num, int64_t den, uint32_t decimals) noexcept nogil:
    """Return the hash of a number that shows so many decimals, never 0."""
    cdef uint64_t value = mixed(fraction_hash(num, den) + decimals)
    return value | <uint64_t>(value == 0)


cdef Result* result_at(const Results* results, uint64_t number) noexcept nogil:
    """Return the slot of a number, which may be empty; the table has one."""
    cdef uint32_t slot = <uint32_t>number & (results.capacity - 1)
    while results.slots[slot].number and results.slots[slot].number != number:
        slot = (slot + 1) & (results.capacity - 1)
    return &results.slots[slot]


cdef void add_result(
    Reader* r, int64_t num, int64_t den, uint32_t decimals, uint32_t at
) noexcept nogil:
    """Take a number that can be a result of the code before ``at``."""
    cdef Results* results = &r.results
    cdef Result* result
    if at == NOWHERE or not r.has_code or decimals > MAX_DIGITS:
        return
    if 2 * results.size >= results.capacity and results_grow(results) < 0:
        r.failed = True
        return
    result = result_at(results, result_hash(num, den, decimals))
    if result.number == 0:
        result.number = result_hash(num, den, decimals)
        result.num = num
        result.den = den
        results.size += 1
    result.last = max(result.last, at)


cdef bint has_result(const Reader* r, int64_t num, int64_t den, uint32_t end) noexcept nogil:
    """Tell whether a number equals a result, or rounds it to the decimals that it shows.

    A fraction below 1 needs a decimal that is not 0, so that no 0 or 1 stands for it.  Literals
    before ``end``, where the statement ends, do not count, so its operands do not.
    """
    cdef int64_t units, divisor
    cdef int decimals, up
    cdef const Result* result
    if r.results.size == 0:
        return False
    for decimals in range(num != 0 and magnitude(num) < <uint64_t>den, MAX_DIGITS + 1):
        for up in range(2):
            units = units_of(num, den, decimals, up)
            if units < 0:
                return False
            if units == 0 and num != 0:
                continue
            divisor = <int64_t>common_divisor(<uint64_t>units, <uint64_t>TENS[decimals])
            result = result_at(
                &r.results,
                result_hash(units // divisor, TENS[decimals] // divisor, <uint32_t>decimals),
            )
            if result.number and result.last >= end:
                return True
    return False


cdef inline uint32_t grouped(const uint8_t* text, uint32_t at) noexcept nogil:
    """Return the index past a separator and three digits, none behind them; else 0."""
    if text[at] == c',':
        at += 1
        if text[at] == c'\\' and text[at + 1] == c'!':
            at += 2
    elif text[at] == c'{' and text[at + 1] == c',' and text[at + 2] == c'}':
        at += 3
    elif text[at] == c'\\' and text[at + 1] == c',':
        at += 2
    else:
        return 0
    if (
        is_digit(text[at])
        and is_digit(text[at + 1])
        and is_digit(text[at + 2])
        and not is_digit(text[at + 3])
    ):
        return at + 3
    return 0


cdef inline void count_small(Reader* r, int64_t number, uint32_t result) noexcept nogil:
    count(r, &r.numbers, number, 1)
    add_result(r, number, 1, 0, result)


cdef void count_digits(
    Reader* r, uint32_t start, uint32_t point, uint32_t end, uint8_t zero, uint32_t result
) noexcept nogil:
    """Count the number of the digits in [start, end), separators and a point among them.

    Decimals begin at ``point``, or at ``end`` if it has none; ``zero`` is the byte of
    the digit 0.
    """
    cdef uint64_t hashed = <uint64_t>HASH_START, divisor
    cdef int64_t num = 0
    cdef uint32_t significant = 0, at
    cdef uint32_t shown = 0     # decimals
    cdef uint32_t decimals = 0  # those up to the last that is not 0
    cdef uint8_t digit
    cdef bint begun = False
    while end > point and r.text[end - 1] == zero:
        end -= 1
        shown += 1
    if end == point + 1:
        end = point
    for at in range(start, end):
        if at == point:
            hashed = hash_step(hashed, c'.')
            continue
        digit = <uint8_t>(r.text[at] - zero)
        if digit > 9:
            continue
        decimals += at > point
        significant += significant > 0 or digit != 0
        if significant <= MAX_DIGITS:
            num = num * 10 + digit
        begun = begun or digit != 0
        if begun or at > point:
            hashed = hash_step(hashed, digit + c'0')
    if significant > MAX_DIGITS or decimals > MAX_DIGITS:
        count_hash(r, &r.numbers, hashed)
        return
    divisor = common_divisor(<uint64_t>num, <uint64_t>TENS[decimals])
    num = num // <int64_t>divisor
    count(r, &r.numbers, num, TENS[decimals] // <int64_t>divisor)
    add_result(r, num, TENS[decimals] // <int64_t>divisor, decimals + shown, result)


cdef void count_written(Reader* r, uint32_t start, uint32_t end, uint32_t result) noexcept nogil:
    """Count the numbers of a region, whose end a byte marks that no number has.

    They are results of the code before ``result``.
    """
    cdef const uint8_t* text = r.text
    cdef uint32_t past = start      # the number before
    cdef uint32_t at, begin, point, following, digits
    cdef uint64_t value = 0
    cdef uint8_t byte
    while True:
        at = next_written(text, past, end)
        if at == end:
            return
        byte = text[at]
        begin = at
        if not is_digit(byte):
            if byte < B_SUPERSCRIPTS:
                past = at + 1
                count_small(r, FRACTION_ABOVE[byte - B_FRACTIONS], result)
                count_small(r, FRACTION_BELOW[byte - B_FRACTIONS], result)
                continue
            byte = B_SUPERSCRIPTS if byte < B_SUBSCRIPTS else B_SUBSCRIPTS
            while <uint8_t>(text[at] - byte) < 10:
                at += 1
            past = max(at, begin + 1)   # past a raised letter or sign
            if at > begin:
                count_digits(r, begin, at, at, byte, result)
            continue
        if begin > past and text[begin - 1] == c'.':
            point = begin - 1
            while is_digit(text[at]):
                at += 1
            past = at
            count_digits(r, point, point, at, c'0', result)
            continue
        following = after_fraction(text, past, at)
        if following:
            count_small(r, text[at] - c'0', result)
            count_small(r, text[following] - c'0', result)
            past = following + 1
            continue
        digits = read_digits(text + at, &value)
        at += digits
        if digits < 8 and not (NUMBER_GOES_ON[text[at]] and goes_on(text, at + 1)):
            # A whole number, as nearly all are.
            past = at
            count_small(r, <int64_t>value, result)
            continue
        while is_digit(text[at]):
            at += 1
        if at - begin <= 3:
            following = grouped(text, at)
            if following:
                # A list without blanks looks the same, so that each group counts, too.
                count_digits(r, begin, at, at, c'0', NOWHERE)
            while following:
                count_digits(r, following - 3, following, following, c'0', NOWHERE)
                at = following
                following = grouped(text, at)
        point = at
        if text[at] == c'.' and is_digit(text[at + 1]):
            at += 1
            while is_digit(text[at]):
                at += 1
        past = at
        count_digits(r, begin, point, at, c'0', result)


cdef inline bint goes_on(const uint8_t* text, uint32_t at) noexcept nogil:
    """Tell whether a number may go on behind a point or the beginning of a separator."""
    return is_digit(text[at]) or text[at] in b",\\"


cdef inline uint32_t after_fraction(const uint8_t* text, uint32_t past, uint32_t at) noexcept nogil:
    """Return where the denominator of a fraction like frac12 stands, 0 if ``at`` begins none."""
    cdef uint32_t before = at
    cdef uint32_t following = at + 1
    while before > past and is_blank(text[before - 1]):
        before -= 1
    if before < past + 4 or memcmp(text + before - 4, b"frac", 4):
        return 0
    while is_blank(text[following]):
        following += 1
    return following if is_digit(text[following]) else 0
