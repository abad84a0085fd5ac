# Sides of equations: from bytes to postfix order and to values; pure/algebra/sides.py is the same.

# sides.Op; a test compares.
cdef enum Op:
    OP_NUMBER = 0, OP_NAME, OP_CONSTANT, OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE, OP_NEGATE
    OP_POWER, OP_ROOT, OP_FACTORIAL, OP_DOUBLE_FACTORIAL, OP_BINOMIAL, OP_ABSOLUTE, OP_CALL
    OP_LOGARITHM
    OP_NOTHING

# How tightly operators bind.
cdef enum:
    BINDS_BRACKET = 0, BINDS_SUM, BINDS_SIGN, BINDS_PRODUCT, BINDS_ARGUMENT, BINDS_FACTOR
    BINDS_TIGHT_SIGN, BINDS_POWER, BINDS_PREFIX

cdef struct Step:
    uint8_t op, argument
    bint known              # num/den is its exact value; of a number, what is written
    uint64_t name
    int64_t num, den

cdef struct Ratio:
    uint64_t top, bottom

cdef struct AlgebraSide:
    bint readable, bare, closed
    bint choice             # it has two values: ±3
    int num_items           # coordinates of a point, or these values; else 0
    int num_steps, num_names, occurrences, numbers
    uint64_t operands
    uint64_t names[MAX_SIDE_NAMES]
    Ratio values[POINTS]
    uint32_t start, end
    Step steps[MAX_CODE]

cdef struct PendingOp:
    uint8_t binds, op, argument, close, power, called, items
    bint divides            # a function whose argument is a fraction: sin x/2
    uint64_t name

cdef struct Parser:
    const uint8_t* data
    int length, at
    AlgebraSide* side
    PendingOp pending[MAX_CODE]
    int num_pending, depth, calls
    bint failed


cdef inline uint8_t byte_at(const Parser* p, int ahead) noexcept nogil:
    return p.data[p.at + ahead] if p.at + ahead < p.length else 0


cdef inline bint letter(uint8_t byte) noexcept nogil:
    return <uint8_t>((byte | 32) - c"a") < 26


cdef inline bint digit(uint8_t byte) noexcept nogil:
    return <uint8_t>(byte - c"0") < 10


cdef int greek_width(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """Return the bytes of the Greek letter or infinity that begins here, 0 if none does."""
    if length >= 2 and data[0] == 0xCE:
        if (0x91 <= data[1] <= 0xA9 and data[1] != 0xA2) or 0xB1 <= data[1] <= 0xBF:
            return 2
    if length >= 2 and data[0] == 0xCF and 0x80 <= data[1] <= 0x89 and data[1] != 0x82:
        return 2
    if length >= 3 and data[0] == 0xE2 and data[1] == 0x88 and data[2] == 0x9E:
        return 3
    return 0


cdef inline bint begins_as(const uint32_t* begins, const uint8_t* data) noexcept nogil:
    """Tell whether the first two of some letters can begin a word of a set."""
    return (
        letter(data[0]) and letter(data[1]) and begins[data[0] & 31] >> (data[1] & 31) & 1
    )


cdef int function_at(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """Return the bytes of the function that begins here, if what follows can be its argument."""
    cdef int index, size, letters, at
    if length < 2 or not begins_as(function_begins, data):
        return 0
    for index in range(NUM_FUNCTIONS):
        size = function_sizes[index]
        if size > length or memcmp(data, function_names[index], size):
            continue
        letters = 0
        while size + letters < length and letter(data[size + letters]):
            letters += 1
        if letters <= 2:
            return size
        for at in range(3):
            if begins_function(data + size + at, length - size - at):
                return size
    return 0


cdef bint begins_function(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef int index
    if length < 2 or not begins_as(function_begins, data):
        return False
    for index in range(NUM_FUNCTIONS):
        if function_sizes[index] <= length and not memcmp(
            data, function_names[index], function_sizes[index]
        ):
            return True
    return False


cdef uint64_t hash_bytes(uint64_t hash, const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(length):
        hash = name_step(hash, data[index])
    return hash


# --- postfix order ---------------------------------------------------------------------------

cdef void emit(Parser* p, int op, int argument, uint64_t name) noexcept nogil:
    cdef Step* step
    if p.side.num_steps == MAX_CODE:
        p.failed = True
        return
    step = &p.side.steps[p.side.num_steps]
    p.side.num_steps += 1
    step.op = op
    step.argument = argument
    step.name = name
    step.known = False


cdef void emit_number(Parser* p, int64_t num, int64_t den) noexcept nogil:
    cdef Step* step
    emit(p, OP_NUMBER, 0, 0)
    if p.failed:
        return
    step = &p.side.steps[p.side.num_steps - 1]
    step.known = True
    step.num = num
    step.den = 1
    if den != 1:
        step.known = fraction_divide(num, 1, den, 1, &step.num, &step.den)
        p.failed = not step.known


cdef PendingOp* push(Parser* p, int binds, int op) noexcept nogil:
    """Push an operator or a bracket; the result is of no use if the parser failed."""
    cdef PendingOp* pending
    p.depth += binds == BINDS_BRACKET
    if p.depth > MAX_DEPTH or p.num_pending == MAX_CODE:
        p.failed = True
        return &p.pending[0]
    pending = &p.pending[p.num_pending]
    p.num_pending += 1
    pending.binds = binds
    pending.op = op
    pending.argument = 0
    pending.close = 0
    pending.power = 1
    pending.called = False
    pending.items = 1
    pending.divides = False
    pending.name = 0
    return pending


cdef void finish(Parser* p, const PendingOp* pending) noexcept nogil:
    if pending.op == OP_NOTHING:
        return
    emit(p, pending.op, pending.argument, pending.name)
    if pending.power != 1:
        emit_number(p, pending.power, 1)
        emit(p, OP_POWER, 0, 0)


cdef void reduce_to(Parser* p, int binds) noexcept nogil:
    """Emit the operators that bind at least as tightly."""
    while p.num_pending and p.pending[p.num_pending - 1].binds and (
        p.pending[p.num_pending - 1].binds >= binds
    ):
        p.num_pending -= 1
        finish(p, &p.pending[p.num_pending])


cdef void product(Parser* p, bint simple) noexcept nogil:
    """Read a product without a sign; in a function's argument simple factors bind tightly."""
    cdef int index = p.num_pending - 1
    cdef int binds = BINDS_PRODUCT
    while index >= 0 and (
        p.pending[index].binds == BINDS_POWER or p.pending[index].binds == BINDS_PREFIX
        or p.pending[index].binds == BINDS_FACTOR
    ):
        index -= 1
    if simple and index >= 0 and p.pending[index].binds == BINDS_ARGUMENT:
        binds = BINDS_FACTOR
    reduce_to(p, binds)
    push(p, binds, OP_MULTIPLY)


cdef void name_of(Parser* p, uint64_t hash) noexcept nogil:
    cdef AlgebraSide* side = p.side
    cdef int index = 0
    while index < side.num_names and side.names[index] != hash:
        index += 1
    side.occurrences += 1
    if index == MAX_SIDE_NAMES or side.occurrences > MAX_OCCURRENCES:
        p.failed = True
        return
    if index == side.num_names:
        side.names[index] = hash
        side.num_names += 1
    emit(p, OP_NAME, 0, hash)


cdef int digits(Parser* p) noexcept nogil:
    cdef int start = p.at
    while digit(byte_at(p, 0)):
        p.at += 1
    return p.at - start


cdef int64_t value_of_digits(const uint8_t* data, int count) noexcept nogil:
    """Return the number of at most 18 digits."""
    cdef int64_t value = 0
    cdef int index
    for index in range(count):
        value = 10 * value + (data[index] - c"0")
    return value


cdef int repeated(Parser* p) noexcept nogil:
    """Read the digits in brackets of 0.1(36); return how many there are."""
    cdef int start = p.at, count
    if byte_at(p, 0) == c"(":
        p.at += 1
        count = digits(p)
        if count and byte_at(p, 0) == c")":
            p.at += 1
            return count
    p.at = start
    return 0


cdef bint mixed_number(Parser* p, int64_t* num, int64_t* den) noexcept nogil:
    """Read the fraction of 2 1/2."""
    cdef int start = p.at, top, bottom
    if byte_at(p, 0) == c" ":
        p.at += 1
        top = digits(p)
        if top and byte_at(p, 0) == c"/":
            p.at += 1
            bottom = digits(p)
            if bottom and top <= 3 and bottom <= 3:
                num[0] = value_of_digits(p.data + p.at - bottom - 1 - top, top)
                den[0] = value_of_digits(p.data + p.at - bottom, bottom)
                if den[0]:
                    return True
    p.at = start
    return False


cdef void number(Parser* p) noexcept nogil:
    cdef int start = p.at
    cdef int whole = digits(p), decimals = 0, period = 0, tail
    cdef int64_t num, top = 0, bottom = 1
    cdef bint mixes = False
    if byte_at(p, 0) == c"." and digit(byte_at(p, 1)):
        p.at += 1
        decimals = digits(p)
        period = repeated(p)
    elif byte_at(p, 0) == c"." and byte_at(p, 1) == c"(":
        p.at += 1
        period = repeated(p)
        if not period:
            p.failed = True
            return
    tail = p.at
    if not period:
        mixes = mixed_number(p, &top, &bottom)
    if p.at - start > MAX_DIGITS:
        p.failed = True
        return
    num = value_of_digits(p.data + start, whole)
    if decimals:
        num = num * TENS[decimals] + value_of_digits(p.data + start + whole + 1, decimals)
    if period:
        num = num * (TENS[period] - 1) + value_of_digits(p.data + tail - 1 - period, period)
        emit_number(p, num, (TENS[period] - 1) * TENS[decimals])
    else:
        emit_number(p, num, TENS[decimals])
    if mixes:
        emit_number(p, top, bottom)
        emit(p, OP_ADD, 0, 0)


cdef void skip_bracket(Parser* p) noexcept nogil:
    cdef int depth = 0
    while p.at < p.length:
        depth += (p.data[p.at] == c"(") - (p.data[p.at] == c")")
        p.at += 1
        if depth == 0:
            return
    p.failed = True


cdef void suffix(Parser* p) noexcept nogil:
    """Read what belongs to a name: digits, an index behind ``_``, primes."""
    cdef int first
    digits(p)
    if byte_at(p, 0) == c"_":
        p.at += 1
        if byte_at(p, 0) == c"(":
            skip_bracket(p)
        elif letter(byte_at(p, 0)):
            # One letter, or a word; of x_ny the y is a factor.
            first = p.at
            while letter(byte_at(p, 0)):
                p.at += 1
            if p.at - first < MIN_WORD - 1:
                p.at = first + 1
        elif digit(byte_at(p, 0)):
            digits(p)
        else:
            first = greek_width(p.data + p.at, p.length - p.at)
            p.at += first
            p.failed = p.failed or first == 0
    while byte_at(p, 0) == c"'":
        p.at += 1


cdef bint has_two_arguments(const Parser* p) noexcept nogil:
    cdef int depth = 0, commas = 0, at = p.at
    cdef uint8_t byte
    while at < p.length:
        byte = p.data[at]
        depth += (byte == c"(" or byte == c"[") - (byte == c")" or byte == c"]")
        commas += byte == c"," and depth == 1
        if depth == 0:
            break
        at += 1
    return commas == 1


cdef bint call(Parser* p, uint64_t name) noexcept nogil:
    cdef PendingOp* pending
    p.at += 1
    p.calls += 1
    pending = push(p, BINDS_BRACKET, OP_CALL)
    pending.name = name
    pending.close = c")"
    pending.called = True
    return True


cdef bint read_function(Parser* p, int start) noexcept nogil:
    """Read the base and the power of a function, whose name ends here: log_2, sin^2."""
    cdef PendingOp* pending
    cdef uint64_t name
    cdef int power = 1, count, first = p.at
    cdef bint logarithm = p.data[start] == c"l"
    cdef bint natural = logarithm and p.data[start + 1] == c"n", based = logarithm and not natural
    cdef int64_t base = 10      # -1 where it is a letter
    cdef bint blank
    if byte_at(p, 0) == c"_":
        p.at += 1
        natural = False
        if byte_at(p, 0) == c"(":
            skip_bracket(p)
            based = False
        elif digit(byte_at(p, 0)):
            count = digits(p)
            based = logarithm and count <= MAX_DIGITS
            if based:
                base = value_of_digits(p.data + p.at - count, count)
        elif letter(byte_at(p, 0)):
            p.at += 1
            based = logarithm
            base = -1
        else:
            p.failed = True
            return True
    name = hash_bytes(NAME_START, p.data + start, p.at - start)
    if based and base < 0:
        name_of(p, hash_bytes(NAME_START, p.data + p.at - 1, 1))
    elif based:
        emit_number(p, base, 1)
    first = p.at - first        # bytes of the base
    if byte_at(p, 0) == c"^":
        p.at += 1
        count = digits(p)
        if not 0 < count <= 2:
            p.failed = True
            return True
        power = <int>value_of_digits(p.data + p.at - count, count)
    blank = byte_at(p, 0) == c" "
    p.at += blank
    if not (based or natural):
        p.calls += 1
    count = OP_LOGARITHM if based or natural else OP_CALL
    if byte_at(p, 0) == c"(":
        p.at += 1
        pending = push(p, BINDS_BRACKET, count)
        pending.close = c")"
        pending.called = True
    else:
        pending = push(p, BINDS_ARGUMENT, count)
        pending.divides = blank and first == 0      # log_2 8/x is another quotient
    pending.name = name
    pending.argument = 2 if based else 1
    pending.power = power
    return True


cdef bint is_no_product(const uint8_t* data, int length) noexcept nogil:
    cdef int index
    if length < 2 or not begins_as(no_product_begins, data):
        return False
    for index in range(NUM_NO_PRODUCTS):
        if no_product_sizes[index] == length and not memcmp(data, no_products[index], length):
            return True
    return False


cdef inline bint is_segment(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """Tell whether letters name a segment: AB is BA."""
    return length == 2 and c"A" <= data[0] <= c"Z" and c"A" <= data[1] <= c"Z"


cdef uint64_t segment_hash(const uint8_t* data) noexcept nogil:
    return name_step(
        name_step(NAME_START, min(data[0], data[1])), max(data[0], data[1])
    )


cdef bint letters(Parser* p) noexcept nogil:
    """Read letters: a function, a word, a call, or a product; return whether more is expected."""
    cdef int start = p.at, end, size, index
    cdef PendingOp* pending
    while letter(byte_at(p, 0)):
        p.at += 1
    end = p.at
    if end - start == 1 and p.data[start] == c"m" and p.length - end >= 3 and not memcmp(
        p.data + end, b"\xe2\x88\xa0", 3
    ):
        return True     # the measure of an angle
    size = function_at(p.data + start, end - start)
    if size:
        p.at = start + size
        return read_function(p, start)
    size = end - start
    # Of xsiny the x is a factor.
    for index in range(1, 3):
        if function_at(p.data + start + index, size - index) and not is_no_product(
            p.data + start, size
        ):
            size = index
            p.at = start + index
            break
    if is_segment(p.data + start, size):
        suffix(p)
        name_of(p, hash_bytes(
            segment_hash(p.data + start), p.data + start + 2, p.at - start - 2
        ))
        return False
    if size >= MIN_WORD:
        if byte_at(p, 0) == c"(":
            return call(p, hash_bytes(NAME_START, p.data + start, size))
        suffix(p)
        name_of(p, hash_bytes(NAME_START, p.data + start, p.at - start))
        return False
    if size > 1 and is_no_product(p.data + start, size):
        if byte_at(p, 0) == c"(":
            return call(p, hash_bytes(NAME_START, p.data + start, size))
        p.failed = True
        return False
    if size == 1 and p.data[start] == c"C" and byte_at(p, 0) == c"(" and has_two_arguments(p):
        p.at += 1
        pending = push(p, BINDS_BRACKET, OP_BINOMIAL)
        pending.close = c")"
        pending.called = True
        return True
    if size == 1 and called[p.data[start]]:
        suffix(p)
        if byte_at(p, 0) == c"(":
            return call(p, hash_bytes(NAME_START, p.data + start, p.at - start))
        name_of(p, hash_bytes(NAME_START, p.data + start, p.at - start))
        return False
    for index in range(size):
        if index:
            product(p, True)
        if index == size - 1:
            suffix(p)
            name_of(p, hash_bytes(NAME_START, p.data + start + index, p.at - start - index))
        else:
            name_of(p, hash_bytes(NAME_START, p.data + start + index, 1))
    return False


cdef void angle(Parser* p) noexcept nogil:
    """Read an angle: its letters are one name, from either end."""
    cdef int start, count = 0, index
    cdef uint64_t hash = hash_bytes(NAME_START, p.data + p.at, 3)
    cdef bint backwards = False
    p.at += 3
    start = p.at
    while letter(byte_at(p, 0)) and count < 3:
        p.at += 1
        count += 1
    if count == 0:
        p.failed = True
        return
    backwards = p.data[start + count - 1] < p.data[start]
    for index in range(count):
        hash = name_step(hash, p.data[start + count - 1 - index if backwards else start + index])
    suffix(p)
    name_of(p, hash_bytes(hash, p.data + start + count, p.at - start - count))


cdef bint is_triangle(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    return length >= 2 and data[0] == 0xCE and data[1] == 0x94


cdef bint named_bracket(Parser* p) noexcept nogil:
    """Read [abc], the area of a polygon, as a name: its letters in any order."""
    cdef int counts[256]
    cdef int start = p.at + 1, end, byte, index
    cdef uint64_t hash = hash_bytes(NAME_START, b"[", 1)
    if is_triangle(p.data + start, p.length - start):
        start += 2
    memset(counts, 0, sizeof(counts))
    end = start
    while end < p.length and letter(p.data[end]):
        counts[p.data[end]] += 1
        end += 1
    if end == p.length or p.data[end] != c"]" or end - start < 3:
        return False
    for byte in range(256):
        for index in range(counts[byte]):
            hash = name_step(hash, <uint8_t>byte)
    name_of(p, hash)
    p.at = end + 1
    return True


cdef bint operand(Parser* p) noexcept nogil:
    """Read one operand, or what stands before it; return whether one is still expected."""
    cdef const uint8_t* data = p.data + p.at
    cdef uint8_t byte = data[0]
    cdef int left = p.length - p.at, width
    cdef bint first
    if digit(byte):
        number(p)
        return False
    if letter(byte):
        return letters(p)
    if byte == c"+" or byte == c"-":
        p.at += 1
        if byte == c"-":
            first = p.num_pending == 0 or p.pending[p.num_pending - 1].binds == BINDS_BRACKET
            push(p, BINDS_SIGN if first else BINDS_TIGHT_SIGN, OP_NEGATE)
        return True
    if byte == c"(" or byte == c"[":
        if byte == c"[" and named_bracket(p):
            return False
        p.at += 1
        push(p, BINDS_BRACKET, OP_NOTHING).close = c")" if byte == c"(" else c"]"
        return True
    if byte == c"|":
        if left >= 4 and is_segment(data + 1, 2) and data[3] == c"|":
            p.at += 4
            name_of(p, segment_hash(data + 1))
            return False
        p.at += 1
        push(p, BINDS_BRACKET, OP_ABSOLUTE).close = c"|"
        return True
    if left >= 3 and byte == 0xE2 and data[1] == 0x88 and 0x9A <= data[2] <= 0x9C:
        p.at += 3
        push(p, BINDS_PREFIX, OP_ROOT).argument = data[2] - 0x98
        return True
    if left >= 2 and byte == 0xCF and data[1] == 0x80:
        emit(p, OP_CONSTANT, 0, hash_bytes(NAME_START, data, 2))
        p.at += 2
        return False
    if left >= 3 and byte == 0xE2 and data[1] == 0x88 and data[2] == 0xA0:
        angle(p)
        return False
    width = 2
    while width < left and letter(data[width]):
        width += 1
    if width == 5 and is_triangle(data, left):
        p.at += 2
        return True
    width = greek_width(data, left)
    if width:
        p.at += width
        name_of(p, hash_bytes(NAME_START, data, width))
        return False
    p.failed = True
    return False


cdef bint opens_absolute(const Parser* p) noexcept nogil:
    cdef int index = p.num_pending - 1
    while index >= 0 and p.pending[index].binds != BINDS_BRACKET:
        index -= 1
    return index >= 0 and p.pending[index].close == c"|"


cdef void close_bracket(Parser* p, uint8_t byte) noexcept nogil:
    cdef PendingOp* bracket
    reduce_to(p, 1)
    if p.num_pending == 0 or p.pending[p.num_pending - 1].close != byte:
        p.failed = True
        return
    p.num_pending -= 1
    bracket = &p.pending[p.num_pending]
    p.depth -= 1
    p.at += 1
    if bracket.op == OP_CALL:
        bracket.argument = bracket.items
    elif bracket.items != (2 if bracket.op == OP_BINOMIAL else 1):
        p.failed = True
        return
    finish(p, bracket)


cdef bint divides_argument(Parser* p) noexcept nogil:
    """Read the bar of a fraction that is a function's argument: sin x/2."""
    cdef int index = p.num_pending - 1
    while index >= 0 and p.pending[index].binds > BINDS_ARGUMENT:
        index -= 1
    if index < 0 or not p.pending[index].divides:
        return False
    reduce_to(p, BINDS_FACTOR)
    p.pending[p.num_pending - 1].divides = False
    p.at += 1
    push(p, BINDS_FACTOR, OP_DIVIDE)
    return True


cdef bint operator_or_product(Parser* p) noexcept nogil:
    """Read what stands behind an operand; return whether another is expected."""
    cdef uint8_t byte = p.data[p.at]
    cdef bint double
    if byte == c"+" or byte == c"-":
        reduce_to(p, BINDS_SUM)
        p.at += 1
        push(p, BINDS_SUM, OP_ADD if byte == c"+" else OP_SUBTRACT)
        return True
    if byte == c"/" and divides_argument(p):
        return True
    if byte == c"*" or byte == c"/":
        reduce_to(p, BINDS_PRODUCT)
        p.at += 1
        push(p, BINDS_PRODUCT, OP_MULTIPLY if byte == c"*" else OP_DIVIDE)
        return True
    if byte == c"^":
        reduce_to(p, BINDS_POWER + 1)
        p.at += 1
        push(p, BINDS_POWER, OP_POWER)
        return True
    if byte == c"!":
        double = byte_at(p, 1) == c"!"
        p.at += 2 if double else 1
        emit(p, OP_DOUBLE_FACTORIAL if double else OP_FACTORIAL, 0, 0)
        return False
    if byte == c",":
        reduce_to(p, 1)
        if p.num_pending == 0 or not p.pending[p.num_pending - 1].called:
            p.failed = True
            return True
        p.at += 1
        p.pending[p.num_pending - 1].items += 1
        return True
    if byte == c")" or byte == c"]" or (byte == c"|" and opens_absolute(p)):
        close_bracket(p, byte)
        return False
    if byte == c" ":
        p.at += 1
        byte = byte_at(p, 0)
    product(
        p,
        byte != c"(" and byte != c"[" and byte != c"|"
        and not function_at(p.data + p.at, p.length - p.at),
    )
    return True


# --- values ------------------------------------------------------------------------------------

cdef int operands_of(const Step* step) noexcept nogil:
    if step.op == OP_CALL or step.op == OP_LOGARITHM:
        return step.argument
    if step.op <= OP_CONSTANT:
        return 0
    if step.op <= OP_DIVIDE or step.op == OP_POWER or step.op == OP_BINOMIAL:
        return 2
    return 1


cdef bint exact_root(Step* step, const Step* number) noexcept nogil:
    """Take a square root exactly, if it is rational; return whether there is a root at all."""
    cdef uint64_t top, bottom
    if step.argument != 2:
        return True
    if number.num < 0:
        return False
    top = whole_root(<uint64_t>number.num)
    bottom = whole_root(<uint64_t>number.den)
    step.known = top * top == <uint64_t>number.num and bottom * bottom == <uint64_t>number.den
    step.num = <int64_t>top
    step.den = <int64_t>bottom
    return True


cdef bint exact_step(Step* step, const Step* first, const Step* second) noexcept nogil:
    """Work out what is known exactly; return whether the side has a value at all."""
    cdef int64_t index
    if step.op == OP_ADD:
        step.known = fraction_add(
            first.num, first.den, second.num, second.den, &step.num, &step.den
        )
    elif step.op == OP_SUBTRACT:
        step.known = fraction_add(
            first.num, first.den, -second.num, second.den, &step.num, &step.den
        )
    elif step.op == OP_MULTIPLY:
        step.known = fraction_multiply(
            first.num, first.den, second.num, second.den, &step.num, &step.den
        )
    elif step.op == OP_DIVIDE:
        if second.num == 0:
            return False
        step.known = fraction_divide(
            first.num, first.den, second.num, second.den, &step.num, &step.den
        )
    elif step.op == OP_NEGATE or step.op == OP_ABSOLUTE:
        step.known = True
        step.num = -first.num if step.op == OP_NEGATE or first.num < 0 else first.num
        step.den = first.den
    elif step.op == OP_POWER:
        if second.den != 1 or not -63 <= second.num <= 63:
            return True
        if first.num == 0 and second.num <= 0:
            return False
        step.known = fraction_power(
            first.num, first.den, second.num, &step.num, &step.den
        )
    elif step.op == OP_ROOT:
        return exact_root(step, first)
    elif step.op == OP_FACTORIAL:
        step.known = first.den == 1 and 0 <= first.num <= MAX_EXACT_FACTORIAL
        step.num = step.den = 1
        if step.known:
            for index in range(2, first.num + 1):
                step.num *= index
    elif step.op == OP_BINOMIAL:
        if first.den != 1 or second.den != 1 or not (
            0 <= second.num <= first.num <= MAX_EXACT_BINOMIAL
        ):
            return True
        step.known = True
        step.num = step.den = 1
        for index in range(second.num):
            step.known = step.known and fraction_multiply(
                step.num, step.den, first.num - index, 1, &step.num, &step.den
            )
            step.known = step.known and fraction_divide(
                step.num, step.den, index + 1, 1, &step.num, &step.den
            )
    return True


cdef bint exact_steps(AlgebraSide* side) noexcept nogil:
    """Find the steps whose value is known exactly; return whether the side has a value."""
    cdef const Step* stack[MAX_CODE]
    cdef Step* step
    cdef int size = 0, index, count, argument
    cdef bint known
    for index in range(side.num_steps):
        step = &side.steps[index]
        count = operands_of(step)
        if step.op > OP_CONSTANT and step.op != OP_CALL:
            known = True
            for argument in range(count):
                known = known and stack[size - count + argument].known
            if known and not exact_step(step, stack[size - count], stack[size - 1]):
                return False
        size += 1 - count
        stack[size - 1] = step
    return True


cdef inline bint quotient(const Ratio* ratio, uint64_t* value) noexcept nogil:
    """Set a ratio as an element of the field; return whether it is one."""
    if ratio.bottom == 0:
        return False
    value[0] = (
        ratio.top if ratio.bottom == 1
        else field_multiply(ratio.top, field_inverse(ratio.bottom))
    )
    return True


cdef bint hashed(
    uint64_t kind, const uint64_t* first, const Ratio* taken, int count, Ratio* result
) noexcept nogil:
    """Set a pseudo-random value of operands; return whether they have one."""
    cdef uint64_t key = mixed(kind), value
    cdef int index
    if first != NULL:
        key = combine(key, first[0])
    for index in range(count):
        if not quotient(&taken[index], &value):
            return False
        key = combine(key, value)
    result.top = never_zero(key) % PRIME
    result.bottom = 1
    return True


cdef void root_of(int64_t num, int64_t den, Ratio* result) noexcept nogil:
    """Set the square root of a number above or equal 0: a product of roots of primes."""
    cdef uint64_t root = 1, rest, whole
    cdef int part, index
    for part in range(2):
        rest = <uint64_t>(num if part == 0 else den)
        for index in range(NUM_SQUARES):
            while rest and rest % squares[index] == 0:
                rest //= squares[index]
                root = field_multiply(root, square_roots[index])
        whole = whole_root(rest)
        if whole * whole == rest:
            root = field_multiply(root, field_of(<int64_t>whole))
        else:
            root = field_multiply(root, never_zero(combine(mixed(OP_ROOT), rest)) % PRIME)
    result.top = root
    result.bottom = field_of(den)


cdef bint power_step(
    const Step* base, const Step* exponent, const Ratio* taken, Ratio* result
) noexcept nogil:
    cdef uint64_t two = 2
    cdef int64_t power
    if exponent.known and exponent.num == 1 and exponent.den == 2:
        if base.known and base.num >= 0:
            root_of(base.num, base.den, result)
            return True
        return hashed(OP_ROOT, &two, taken, 1, result)
    if not exponent.known or exponent.den != 1 or not -MAX_POWER <= exponent.num <= MAX_POWER:
        return hashed(OP_POWER, NULL, taken, 2, result)
    power = exponent.num
    if power < 0:
        result.bottom = field_power(taken[0].top, <uint64_t>-power)
        result.top = field_power(taken[0].bottom, <uint64_t>-power)
    else:
        result.top = field_power(taken[0].top, <uint64_t>power)
        result.bottom = field_power(taken[0].bottom, <uint64_t>power)
    return True


cdef bint sort_arguments(Ratio* taken, int count) noexcept nogil:
    """Bring elements of the field in order; return whether all are elements."""
    cdef uint64_t value
    cdef int index, at
    for index in range(count):
        if not quotient(&taken[index], &value):
            return False
        at = index
        while at and taken[at - 1].top > value:
            taken[at] = taken[at - 1]
            at -= 1
        taken[at].top = value
        taken[at].bottom = 1
    return True


cdef bint modular_step(
    const Step* step, const Step* first, const Step* second, Ratio* taken, uint64_t point,
    Ratio* result,
) noexcept nogil:
    """Work out modulo PRIME what is no sum or product; return whether it has a value."""
    cdef uint64_t value, argument
    cdef Ratio other
    cdef int index
    if step.op == OP_CONSTANT:
        result.top = field_element(step.name)
        result.bottom = 1
    elif step.op == OP_POWER:
        return power_step(first, second, taken, result)
    elif step.op == OP_ROOT:
        if step.argument == 2 and first.known:
            root_of(first.num, first.den, result)
            return True
        argument = step.argument
        return hashed(OP_ROOT, &argument, taken, 1, result)
    elif step.op == OP_FACTORIAL or step.op == OP_DOUBLE_FACTORIAL:
        if not first.known or first.den != 1 or not 0 <= first.num <= MAX_FACTORIAL:
            return hashed(step.op, NULL, taken, 1, result)
        result.top = (
            factorials[first.num] if step.op == OP_FACTORIAL else double_factorials[first.num]
        )
        result.bottom = 1
    elif step.op == OP_BINOMIAL:
        if not first.known or not second.known or first.den != 1 or second.den != 1 or not (
            0 <= second.num <= first.num <= MAX_FACTORIAL
        ):
            return hashed(OP_BINOMIAL, NULL, taken, 2, result)
        result.top = factorials[first.num]
        result.bottom = field_multiply(
            factorials[second.num], factorials[first.num - second.num]
        )
    elif step.op == OP_ABSOLUTE:
        if not quotient(&taken[0], &value):
            return False
        other.top = min(value, PRIME - value)
        other.bottom = 1
        return hashed(OP_ABSOLUTE, NULL, &other, 1, result)
    else:
        for index in range(NUM_SYMMETRIC):
            if step.name == symmetric[index] and not sort_arguments(taken, step.argument):
                return False
        # A function is known nowhere, so it takes another value at each point.
        return hashed(step.name, &point, taken, step.argument, result)
    return True


cdef inline Ratio sum_of(const Ratio* a, const Ratio* b, bint negative) noexcept nogil:
    cdef Ratio result
    cdef uint64_t top = field_negate(b.top) if negative else b.top
    if a.bottom == b.bottom:
        result.top = field_add(a.top, top)
        result.bottom = a.bottom
    else:
        result.top = field_add(field_multiply(a.top, b.bottom), field_multiply(top, a.bottom))
        result.bottom = field_multiply(a.bottom, b.bottom)
    return result


cdef inline Ratio ratio_of(const Step* step) noexcept nogil:
    """Return a value that is known."""
    cdef Ratio result
    result.top = field_of(step.num)
    result.bottom = field_of(step.den)
    return result


cdef inline uint64_t times(uint64_t a, uint64_t b) noexcept nogil:
    return b if a == 1 else a if b == 1 else field_multiply(a, b)


cdef bint logarithm(const Step* step, const Ratio* value, uint64_t* result) noexcept nogil:
    """Set a logarithm to a base of its own: of a number the sum of those of its primes."""
    cdef Ratio found
    cdef uint64_t total = 0, rest, key
    cdef int part, index
    if not step.known:
        if not hashed(OP_LOGARITHM, NULL, value, 1, &found):
            return False
        result[0] = found.top
        return True
    if step.num <= 0:
        return False
    for part in range(2):
        rest = <uint64_t>(step.num if part == 0 else step.den)
        for index in range(NUM_SQUARES):
            while rest % squares[index] == 0:
                rest //= squares[index]
                key = never_zero(combine(mixed(OP_LOGARITHM), squares[index])) % PRIME
                total = field_add(total, field_negate(key) if part else key)
        if rest > 1:
            key = never_zero(combine(mixed(OP_LOGARITHM), rest)) % PRIME
            total = field_add(total, field_negate(key) if part else key)
    result[0] = total
    return True


cdef bint evaluate(
    const AlgebraSide* side, int points, const uint64_t* names, const uint64_t* slots,
    int num_names, Ratio* results,
) noexcept nogil:
    """Work a side out modulo PRIME at the first points; return whether it has a value.

    Where there are `names`, slots[i] stands for names[i].
    """
    cdef Ratio stack[MAX_CODE + 1][POINTS]
    cdef const Step* steps[MAX_CODE + 1]
    cdef Ratio taken[MAX_CODE]
    cdef uint64_t logs[2]
    cdef Ratio* left
    cdef Ratio* right
    cdef const Step* step
    cdef const Step* first
    cdef const Step* second
    cdef int size = 0, index, count, at, point
    cdef uint64_t top
    for index in range(side.num_steps):
        step = &side.steps[index]
        count = operands_of(step)
        size += 1 - count
        left = stack[size - 1]
        if step.op == OP_NAME:
            at = 0
            while at < num_names and names[at] != step.name:
                at += 1
            for point in range(points):
                left[point].top = (
                    slot_points[slots[at]][point] if at < num_names
                    else name_point(step.name, point)
                )
                left[point].bottom = 1
        elif step.known:
            left[0] = ratio_of(step)
            for point in range(1, points):
                left[point] = left[0]
        elif step.op == OP_ADD or step.op == OP_SUBTRACT:
            right = stack[size]
            for point in range(points):
                left[point] = sum_of(&left[point], &right[point], step.op == OP_SUBTRACT)
        elif step.op == OP_MULTIPLY:
            right = stack[size]
            for point in range(points):
                left[point].top = field_multiply(left[point].top, right[point].top)
                left[point].bottom = times(left[point].bottom, right[point].bottom)
        elif step.op == OP_DIVIDE:
            right = stack[size]
            for point in range(points):
                top = times(left[point].top, right[point].bottom)
                left[point].bottom = times(left[point].bottom, right[point].top)
                left[point].top = top
        elif step.op == OP_NEGATE:
            for point in range(points):
                left[point].top = field_negate(left[point].top)
        elif step.op == OP_LOGARITHM:
            for point in range(points):
                for at in range(count):
                    if not logarithm(steps[size - 1 + at], &stack[size - 1 + at][point], &logs[at]):
                        return False
                left[point].top = logs[count - 1]
                left[point].bottom = logs[0] if count == 2 else 1
        else:
            first = steps[size - 1] if count else NULL
            second = steps[size + count - 2] if count else NULL
            for point in range(points):
                for at in range(count):
                    taken[at] = stack[size - 1 + at][point]
                if not modular_step(step, first, second, taken, point, &left[point]):
                    return False
        steps[size - 1] = step
    for point in range(points):
        results[point] = stack[0][point]
    return True


# --- sides -------------------------------------------------------------------------------------

cdef bint parse_side(Parser* p) noexcept nogil:
    cdef bint wants_operand = True
    while p.at < p.length and not p.failed:
        wants_operand = operand(p) if wants_operand else operator_or_product(p)
    if p.failed or wants_operand:
        return False
    reduce_to(p, 1)
    return p.num_pending == 0 and not p.failed


cdef inline bint is_negative(const AlgebraSide* side) noexcept nogil:
    """Tell whether a program ends with a change of the sign."""
    return side.steps[side.num_steps - 1].op == OP_NEGATE


cdef bint work_out(Parser* p, AlgebraSide* side) noexcept nogil:
    cdef int point, index, operations = 0
    cdef int points = POINTS
    cdef const Step* step
    if not parse_side(p) or not exact_steps(side):
        return False
    side.closed = side.num_names == 0 and p.calls == 0
    # What has no names is the same at each point.
    if side.closed:
        points = 1
    step = &side.steps[side.num_steps - 1]
    if step.known:
        side.values[0] = ratio_of(step)
    elif not evaluate(side, points, NULL, NULL, 0, side.values):
        return False
    for point in range(points, POINTS):
        side.values[point] = side.values[0]
    for point in range(points):
        if side.values[point].bottom == 0:
            return False
    for index in range(side.num_steps):
        step = &side.steps[index]
        if step.op == OP_NUMBER:
            side.numbers += 1
            if step.num != 1 or step.den != 1:
                side.operands += never_zero(
                    combine(combine(mixed(OP_NUMBER), <uint64_t>step.num), <uint64_t>step.den)
                )
        elif step.op in (
            OP_ROOT, OP_FACTORIAL, OP_DOUBLE_FACTORIAL, OP_BINOMIAL, OP_LOGARITHM
        ):
            operations |= 1 << step.op
    if side.operands:
        for index in range(OP_NOTHING):
            if operations >> index & 1:
                side.operands += never_zero(mixed(<uint64_t>index))
    step = &side.steps[side.num_steps - 1 - is_negative(side)]
    side.bare = not side.steps[side.num_steps - 1].known and (
        step.op == OP_NAME or step.op == OP_CALL or step.op == OP_ABSOLUTE
    )
    return True


cdef void read_opaque(AlgebraSide* side, const uint8_t* data, int length) noexcept nogil:
    """Take what is no expression as a name, if it is short: P(X=2)."""
    cdef int index, point
    cdef bint names = False
    for index in range(length):
        names = names or letter(data[index]) or data[index] >= 0x80
    side.readable = names and length <= MAX_OPAQUE
    if not side.readable:
        return
    side.names[0] = hash_bytes(NAME_START, data, length)
    side.num_names = side.occurrences = side.num_steps = 1
    side.numbers = side.num_items = 0
    side.choice = False
    side.operands = 0
    side.bare = True
    side.closed = False
    side.steps[0].op = OP_NAME
    side.steps[0].name = side.names[0]
    side.steps[0].known = False
    for point in range(POINTS):
        side.values[point].top = name_point(side.names[0], point)
        side.values[point].bottom = 1


cdef bint read_expression(
    Parser* p, AlgebraSide* side, const uint8_t* data, Py_ssize_t length
) noexcept nogil:
    """Read a side from at most MAX_SIDE_BYTES; return whether it is an expression."""
    p.data = data
    p.length = <int>length
    p.at = p.num_pending = p.depth = p.calls = 0
    p.failed = False
    p.side = side
    side.choice = False
    side.num_items = 0
    side.num_steps = side.num_names = side.occurrences = side.numbers = 0
    side.operands = 0
    side.readable = length > 0 and work_out(p, side)
    return side.readable


# --- points and choices ------------------------------------------------------------------------

cdef int coordinates(const uint8_t* data, int length, int* ends) noexcept nogil:
    """Set where the coordinates of a point (2,3) end; return how many it has, 0 for no point."""
    cdef int depth = 0, count = 0, at
    cdef uint8_t byte
    if data[0] != c"(" or data[length - 1] != c")":
        return 0
    for at in range(length):
        byte = data[at]
        depth += (byte == c"(" or byte == c"[") - (byte == c")" or byte == c"]")
        if depth == 0 and at < length - 1:
            return 0
        if depth == 0 or (byte == c"," and depth == 1):
            if count < MAX_COORDINATES:
                ends[count] = at
            count += 1
    return count if 1 < count <= MAX_COORDINATES else 0


cdef int either_at(const uint8_t* data, int length) noexcept nogil:
    """Return where the only ± stands, -1 where there is none or another."""
    cdef int at, found = -1
    for at in range(length - 1):
        if data[at] == 0xC2 and data[at + 1] == 0xB1:
            if found >= 0:
                return -1
            found = at
    return found


cdef bint read_part(
    Parser* p, AlgebraSide* part, const uint8_t* data, int length, int index
) noexcept nogil:
    """Read a coordinate of a point, or a value of a choice."""
    cdef int ends[MAX_COORDINATES]
    cdef uint8_t variant[MAX_SIDE_BYTES]
    cdef int start, at
    if coordinates(data, length, ends):
        start = 1 if index == 0 else ends[index - 1] + 1
        return read_expression(p, part, data + start, ends[index] - start)
    at = either_at(data, length)
    memcpy(variant, data, at)
    variant[at] = c"-" if index else c"+"
    memcpy(variant + at + 1, data + at + 2, length - at - 2)
    return read_expression(p, part, variant, length - 1)


cdef bint is_worked_out(const AlgebraSide* side) noexcept nogil:
    """Tell whether a closed side shows its value: x = 12/2 does not reach x = 6."""
    cdef const Step* last = &side.steps[side.num_steps - 1]
    cdef int size = side.num_steps - is_negative(side)
    if side.num_items:
        return side.operands == 0
    if last.known and last.den == 1:
        return size == 1 or is_scientific(side.steps, size)
    # A mixed number is written with three numbers: 2 1/2.
    return not last.known or side.numbers <= 3


cdef bint is_scientific(const Step* steps, int size) noexcept nogil:
    """Tell whether a program is a number in scientific notation: 6.5*10^3."""
    return (
        size == 5 and steps[0].op == OP_NUMBER and steps[1].op == OP_NUMBER
        and steps[2].op == OP_NUMBER and steps[3].op == OP_POWER and steps[4].op == OP_MULTIPLY
        and steps[0].den <= steps[0].num and steps[0].num // 10 < steps[0].den
        and steps[1].num == 10 and steps[1].den == 1
    )


cdef uint64_t unshown_operands(const AlgebraSide* side) noexcept nogil:
    """Return the hash of what an item is worked out from if it does not show its value, or 0."""
    return side.operands + 1 if side.closed and not is_worked_out(side) else 0


cdef bint read_compound(
    Parser* p, AlgebraSide* side, AlgebraSide* part, const uint8_t* data, int length, int count,
    bint choice,
) noexcept nogil:
    """Read a point from its coordinates, or a choice from its two values."""
    cdef Ratio values[POINTS][MAX_COORDINATES]
    cdef uint64_t key
    cdef int index, point, at
    side.num_names = 0
    side.closed = True
    side.operands = 0
    for index in range(count):
        if not read_part(p, part, data, length, index):
            return False
        side.closed = side.closed and part.closed
        side.operands += unshown_operands(part)
        for point in range(POINTS):
            values[point][index] = part.values[point]
        for point in range(part.num_names):
            at = 0
            while at < side.num_names and side.names[at] != part.names[point]:
                at += 1
            if at == MAX_SIDE_NAMES:
                return False
            if at == side.num_names:
                side.names[at] = part.names[point]
                side.num_names += 1
    for point in range(POINTS):
        if choice:
            sort_arguments(values[point], count)
        key = combine(mixed(OP_CALL), <uint64_t>choice)
        for index in range(count):
            quotient(&values[point][index], &side.values[point].top)
            key = combine(key, side.values[point].top)
        side.values[point].top = never_zero(key) % PRIME
        side.values[point].bottom = 1
    side.choice = choice
    side.num_items = count
    side.bare = False
    side.occurrences = side.numbers = 0
    side.num_steps = 1
    side.steps[0].op = OP_NAME
    side.steps[0].name = side.values[0].top
    side.steps[0].known = False
    side.readable = True
    return True


cdef void read_side(
    Parser* p, AlgebraSide* side, AlgebraSide* part, const uint8_t* data, Py_ssize_t length
) noexcept nogil:
    """Read a side from the bytes of a normal form; ``part`` is of no further use."""
    cdef int ends[MAX_COORDINATES]
    cdef int count
    side.readable = False
    if length == 0 or length > MAX_SIDE_BYTES:
        return
    count = coordinates(data, <int>length, ends)
    if count:
        read_compound(p, side, part, data, <int>length, count, False)
    elif either_at(data, <int>length) >= 0:
        read_compound(p, side, part, data, <int>length, 2, True)
    else:
        read_expression(p, side, data, length)
    if not side.readable:
        read_opaque(side, data, <int>length)
