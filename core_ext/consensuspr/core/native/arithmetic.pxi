# Expressions: values, runs around a sign, and what makes an equation true.

cdef struct Parser:
    Reader* r
    const Item* items
    int at, end, depth
    bint failed
    bint power      # the last part is a power, which states nothing as a part of another operation


cdef inline bint operator_in(
    Parser* p, uint8_t first, uint8_t second, uint8_t third
) noexcept nogil:
    cdef const Item* item
    if p.at >= p.end:
        return False
    item = &p.items[p.at]
    return item.kind == I_OPERATOR and item.op in (first, second, third)


cdef inline void note_part(Parser* p, const Value* value, bint power) noexcept nogil:
    cdef Reader* r = p.r
    cdef Part* part
    r.num_parts -= p.power
    p.power = power
    if r.num_parts >= MAX_PARTS:
        p.failed = True
        return
    part = &r.parts[r.num_parts]
    part.num = value.num
    part.den = value.den
    part.operands = value.operands
    r.num_parts += 1


cdef void join(Parser* p, uint8_t op, Value* left, const Value* right) noexcept nogil:
    """Carry out left op right, into left."""
    cdef int64_t num = 0, den = 1
    cdef bint fits
    if p.failed:
        return
    if op == c'+':
        fits = fraction_add(left.num, left.den, right.num, right.den, &num, &den)
    elif op == c'-':
        fits = fraction_add(left.num, left.den, -right.num, right.den, &num, &den)
    elif op == c'*':
        fits = fraction_multiply(left.num, left.den, right.num, right.den, &num, &den)
    elif op == c'^':
        fits = (
            right.den == 1
            and -MAX_EXPONENT <= right.num <= MAX_EXPONENT
            and (left.num != 0 or right.num > 0)
            and fraction_power(left.num, left.den, right.num, &num, &den)
        )
    elif right.num == 0:
        fits = False
    elif op == c'/':
        fits = fraction_divide(left.num, left.den, right.num, right.den, &num, &den)
    else:
        fits = fraction_floor(left.num, left.den, right.num, right.den, &num, &den)
    if not fits:
        p.failed = True
        return
    left.num = num
    left.den = den
    left.operands += right.operands
    left.operations += right.operations + 1
    left.shown = False
    note_part(p, left, op == c'^')


cdef void drop_parts(Parser* p, int first) noexcept nogil:
    """Drop the operations on the way, whose values are lost: 17*23*0 = 0."""
    if not p.failed:
        p.r.parts[first] = p.r.parts[p.r.num_parts - 1]
        p.r.num_parts = first + 1


cdef inline uint64_t operand_hash(int64_t num, int64_t den) noexcept nogil:
    """Return what a number adds to the hash of operands; a one adds nothing."""
    if num < 0:
        num = -num
    return 0 if num == 1 and den == 1 else fraction_hash(num, den)


cdef void see_through(Parser* p, int seen, Value* value) noexcept nogil:
    cdef Value second
    cdef bint two = False
    cdef int64_t num = value.num
    cdef int64_t den = value.den
    if p.at < p.end and p.items[p.at].kind == I_COMMA:
        p.at += 1
        parse_sum(p, &second)
        two = True
    if p.failed:
        return
    if seen == SEEN_RATIONAL:
        if two:
            join(p, c'/', value, &second)
        return
    if two and seen != SEEN_ROUND:
        p.failed = True
        return
    if seen == SEEN_ABS:
        num = -num if num < 0 else num
    elif seen == SEEN_INT:
        num = num // den if num >= 0 else -(-num // den)
        den = 1
    elif seen == SEEN_ROUND:
        if two and (second.den != 1 or not 0 <= second.num <= MAX_DIGITS):
            p.failed = True
        elif not fraction_round(value.num, value.den, <int>second.num if two else 0, &num, &den):
            p.failed = True
    value.num = num
    value.den = den
    value.shown = False


cdef inline void take_number(const Item* item, Value* value) noexcept nogil:
    value.num = item.num
    value.den = item.den
    value.operands = operand_hash(item.num, item.den)
    value.operations = 0
    value.shown = item.plain
    value.decimals = item.decimals


cdef void parse_atom(Parser* p, Value* value) noexcept nogil:
    cdef const Item* item
    if p.failed or p.at >= p.end:
        p.failed = True
        return
    item = &p.items[p.at]
    p.at += 1
    if item.kind == I_NUMBER:
        take_number(item, value)
        return
    if item.kind != I_OPEN:
        p.failed = True
        return
    p.depth += 1
    if p.depth > MAX_DEPTH:
        p.failed = True
        return
    parse_sum(p, value)
    if item.seen != SEEN_NONE and not p.failed:
        see_through(p, item.seen, value)
    if p.failed or p.at >= p.end or p.items[p.at].kind != I_CLOSE:
        p.failed = True
        return
    p.at += 1
    p.depth -= 1


cdef void parse_power(Parser* p, Value* value) noexcept nogil:
    cdef Value exponent
    cdef int first = p.r.num_parts - p.power
    parse_atom(p, value)
    if p.failed or not operator_in(p, c'^', c'^', c'^'):
        return
    p.at += 1
    p.depth += 1
    if p.depth > MAX_DEPTH:
        p.failed = True
        return
    parse_signed(p, &exponent)
    p.depth -= 1
    if p.failed:
        return
    join(p, c'^', value, &exponent)
    if exponent.num == 0:
        drop_parts(p, first)


cdef void parse_signed(Parser* p, Value* value) noexcept nogil:
    cdef bint negative = False
    while operator_in(p, c'+', c'-', c'-'):
        negative ^= p.items[p.at].op == c'-'
        p.at += 1
    parse_power(p, value)
    if p.failed or not negative:
        return
    value.num = -value.num
    if value.operations:
        note_part(p, value, p.power)


cdef void parse_product(Parser* p, Value* value) noexcept nogil:
    cdef Value right
    cdef uint8_t op
    cdef bint cancels
    cdef int first = p.r.num_parts - p.power
    parse_signed(p, value)
    while not p.failed:
        if operator_in(p, c'*', c'/', c'F'):
            op = p.items[p.at].op
            p.at += 1
        elif p.at < p.end and p.items[p.at].kind == I_OPEN:
            op = c'*'
        else:
            return
        parse_signed(p, &right)
        if p.failed:
            return
        cancels = (
            op == c'/' and value.num == right.num and value.den == right.den
            and value.operations and right.operations
        )
        join(p, op, value, &right)
        if cancels or value.num == 0:
            drop_parts(p, first)


cdef void parse_sum(Parser* p, Value* value) noexcept nogil:
    cdef Value right
    cdef uint8_t op
    cdef bint cancels
    cdef int first = p.r.num_parts - p.power
    parse_product(p, value)
    while not p.failed and operator_in(p, c'+', c'-', c'-'):
        op = p.items[p.at].op
        p.at += 1
        parse_product(p, &right)
        if p.failed:
            return
        cancels = value.operations and right.operations
        join(p, op, value, &right)
        if cancels and value.num == 0:
            drop_parts(p, first)


cdef inline bint is_number(const Item* items, int start, int end) noexcept nogil:
    """Tell whether [start, end) is one number, as half of the sides are."""
    return end - start == 1 and items[start].kind == I_NUMBER


cdef inline bint evaluate(
    Reader* r, const Item* items, int start, int end, Value* value, Part** parts, int* num_parts
) noexcept nogil:
    """Work items[start:end] out; its parts, the whole being the last, go on the pool."""
    cdef int first = r.num_parts
    parts[0] = &r.parts[first]
    num_parts[0] = 0
    if is_number(items, start, end):
        take_number(&items[start], value)
        return True
    if end - start > MAX_SIDE or not work_out(r, items, start, end, value):
        r.num_parts = first
        return False
    num_parts[0] = r.num_parts - first
    return True


cdef bint work_out(Reader* r, const Item* items, int start, int end, Value* value) noexcept nogil:
    cdef Parser p
    cdef Value right
    p.r = r
    p.items = items
    p.at = end
    p.end = end
    p.depth = 0
    p.failed = False
    p.power = False
    # Most are an operation on two numbers.
    if (
        end - start == 3
        and items[start].kind == I_NUMBER
        and items[start + 1].kind == I_OPERATOR
        and items[start + 2].kind == I_NUMBER
    ):
        take_number(&items[start], value)
        take_number(&items[start + 2], &right)
        join(&p, items[start + 1].op, value, &right)
    else:
        p.at = start
        parse_sum(&p, value)
    return not p.failed and p.at == end


cdef bint agree(const Value* left, const Value* right, bint approximate) noexcept nogil:
    if left.num == right.num and left.den == right.den:
        return True
    return rounds_to(left, right, approximate) or rounds_to(right, left, approximate)


cdef bint rounds_to(const Value* exact, const Value* rounded, bint approximate) noexcept nogil:
    cdef int places
    if not rounded.shown:
        return False
    places = rounded.decimals
    if approximate and places == 0:
        # As many zeros as stand at its end.
        while rounded.num and rounded.num % TENS[1 - places] == 0:
            places -= 1
    return fraction_rounds_to(exact.num, exact.den, rounded.num, rounded.den, places)


# --- runs ----------------------------------------------------------------------------------

cdef inline int before_bracket(const Item* items, int good) noexcept nogil:
    return good if good and items[good].kind == I_OPEN else 0


cdef int run_after(const Item* items, int start, int stop) noexcept nogil:
    """Return the end of the longest expression that begins at ``start``; 0 for none."""
    cdef int depth = 0, good = 0, at, kind
    cdef bint expects = True
    for at in range(start, min(stop, start + MAX_SIDE + 1)):
        kind = items[at].kind
        if expects:
            if kind == I_NUMBER:
                expects = False
            elif kind == I_OPEN:
                depth += 1
            elif kind != I_OPERATOR or items[at].op not in b"+-":
                return before_bracket(items, good)
        elif kind == I_OPERATOR:
            expects = True
        elif kind == I_OPEN:
            depth += 1
            expects = True
        elif kind == I_CLOSE and depth:
            depth -= 1
        elif kind == I_UNKNOWN:
            return 0
        else:
            return good if depth == 0 else before_bracket(items, good)
        if depth == 0 and not expects:
            good = at + 1
    if stop > start + MAX_SIDE:
        return 0
    return good if depth == 0 and not expects else before_bracket(items, good)


cdef inline int after_bracket(const Item* items, int good, int end) noexcept nogil:
    return good if good < end and good > 0 and items[good - 1].kind == I_CLOSE else end


cdef int run_before(const Item* items, int end, int stop) noexcept nogil:
    """Return the start of the longest expression that ends at ``end``; ``end`` for none."""
    cdef int depth = 0, kind, left
    cdef int good = end
    cdef bint expects = True
    cdef int at = end - 1
    while at >= stop and end - at <= MAX_SIDE + 1:
        kind = items[at].kind
        if expects:
            if kind == I_NUMBER:
                expects = False
            elif kind == I_CLOSE:
                depth += 1
            else:
                return after_bracket(items, good, end)
        elif kind == I_OPERATOR:
            left = items[at - 1].kind if at > stop else I_STOP
            if left in (I_NUMBER, I_CLOSE):
                expects = True
            elif left == I_UNKNOWN or items[at].op not in b"+-":
                return after_bracket(items, good, end)
        elif kind == I_OPEN and depth:
            depth -= 1
        elif kind == I_CLOSE and items[at + 1].kind == I_OPEN:
            depth += 1
            expects = True
        elif kind == I_NUMBER and items[at + 1].kind == I_OPEN:
            pass
        elif kind == I_UNKNOWN:
            return end
        else:
            return good if depth == 0 else after_bracket(items, good, end)
        if depth == 0 and not expects:
            good = at
        at -= 1
    if at >= stop:
        return end
    return good if depth == 0 and not expects else after_bracket(items, good, end)


# --- equations -------------------------------------------------------------------------------

cdef void make_side(Reader* r, Side* side, int start, int end) noexcept nogil:
    cdef int index
    side.exists = True
    side.stated = side.whole = side.fraction = False
    side.first_item = start
    side.end_item = end
    side.start = r.items[start].start
    side.end = r.items[end - 1].end
    side.known = evaluate(r, r.items, start, end, &side.value, &side.parts, &side.num_parts)
    if side.known and side.value.operations == 1 and side.value.den > 1:
        for index in range(start, end):
            side.fraction |= r.items[index].kind == I_OPERATOR and r.items[index].op == c'/'


cdef bint same_operations(const Side* left, const Side* right) noexcept nogil:
    """Tell whether two sides do the same: A = A tells no value."""
    cdef int index
    if left.num_parts != right.num_parts:
        return False
    for index in range(left.num_parts):
        if (
            left.parts[index].num != right.parts[index].num
            or left.parts[index].den != right.parts[index].den
            or left.parts[index].operands != right.parts[index].operands
        ):
            return False
    return True


cdef inline bint pair(
    Reader* r, Side* left, Side* right, bint approximate, bint verb
) noexcept nogil:
    """State both sides of an equation if it is true; return False if it is wrong."""
    if not (right.exists and left.known and right.known):
        return True
    if not agree(&left.value, &right.value, approximate):
        return False
    if left.value.operations or (right.value.operations and not verb):
        state_sides(r, left, right)
    return True


cdef void state_sides(Reader* r, Side* left, Side* right) noexcept nogil:
    if same_operations(left, right):
        return
    state_side(r, left, right, left.start, right.end)
    state_side(r, right, left, left.start, right.end)


cdef inline void state_side(
    Reader* r, Side* side, const Side* other, uint32_t start, uint32_t end
) noexcept nogil:
    """State a side of an equation whose other side is this."""
    cdef Part exact
    cdef const Value* value = &other.value
    cdef bint repeats = value.operations == 0 and value.decimals == REPEATING
    # In 1/3 - 1/21 = 6/21 the fraction is a value.
    cdef bint whole = not (
        repeats or (side.fraction and value.operations and not other.fraction)
    )
    if not side.stated or (side.fraction and not value.operations and not side.whole):
        side.stated = True
        side.whole = whole
        state(r, side.parts, side.num_parts, start, end, False, whole)
    if repeats and side.num_parts:
        # 0.(2) is more than a value: a node that says so is not reached by 0.2 = 2/9.
        exact = side.parts[side.num_parts - 1]
        exact.operands += operand_hash(value.num, value.den)
        state(r, &exact, 1, start, end, False, True)


cdef void solved(Reader* r, const Side* right) noexcept nogil:
    """Read "3x = 48" and then "x = 16" as 48/3 = 16."""
    cdef const Value* whole = &r.named_side.value
    cdef int64_t num, den
    cdef Part part
    if not (r.named_side.known and right.known) or r.named_factor == 0:
        return
    if whole.operations or right.value.operations:
        return
    if not fraction_multiply(right.value.num, right.value.den, r.named_factor, 1, &num, &den):
        return
    if num != whole.num or den != whole.den:
        return
    part.num = right.value.num
    part.den = right.value.den
    part.operands = whole.operands + operand_hash(r.named_factor, 1)
    state(r, &part, 1, r.named_side.start, right.end, False, True)


cdef bint name_of(
    const Reader* r, const Item* sign, uint64_t* name, uint64_t* rest, int64_t* factor
) noexcept nogil:
    """Hash what a sign's line says before it, and that without its factor; is it a name?"""
    cdef uint64_t whole = <uint64_t>HASH_START, unknown = <uint64_t>HASH_START
    cdef uint32_t digits = 0, at
    cdef bint leading = True, letters = False
    cdef uint8_t byte
    factor[0] = 0
    for at in range(<uint32_t>(sign.num - 1), sign.start):
        byte = r.text[at]
        if byte >= 0x80:
            return False
        if UNNAMED_BYTE[byte]:
            continue
        letters = letters or is_ascii_letter(byte)
        whole = hash_step(whole, byte)
        if leading and is_digit(byte):
            digits += 1
            if digits <= MAX_DIGITS:
                factor[0] = factor[0] * 10 + (byte - c'0')
        else:
            leading = False
            unknown = hash_step(unknown, byte)
    name[0] = whole | <uint64_t>(whole == 0)
    rest[0] = unknown | <uint64_t>(unknown == 0)
    if digits == 0 or digits > MAX_DIGITS:
        rest[0] = 0
        factor[0] = 0
    return letters


cdef void restated(Reader* r, const Item* sign, Side* right) noexcept nogil:
    """Read "speed = 120 / 3" and, on a later line, "speed = 40" as one equation."""
    cdef uint64_t name, rest
    cdef int64_t factor
    cdef int index
    if not right.exists:
        return
    if not name_of(r, sign, &name, &rest, &factor):
        return
    if r.named:
        if r.named == name:
            pair(r, &r.named_side, right, sign.approximate, sign.verb)
        elif r.named_rest == name:
            solved(r, right)
    r.named = name
    r.named_rest = rest
    r.named_factor = factor
    r.named_side = right[0]
    if right.known:
        for index in range(right.num_parts):
            r.named_parts[index] = right.parts[index]
    r.named_side.parts = r.named_parts


cdef void equations(Reader* r, bint operations) noexcept nogil:
    """Read the statements around each sign of equality of one stretch.

    Where the stretch has no operations, only a sign with a name before it can state something:
    that what was named with an operation before is equal to this.
    """
    cdef int num_signs = r.num_signs
    cdef int index, number, sign, stop, start, limit, end
    cdef Side* left
    cdef Item* item
    cdef bint joined
    r.num_parts = 0
    for number in range(num_signs):
        sign = r.signs[number]
        if not (operations or r.items[sign].num):
            continue
        stop = r.signs[number - 1] + 1 if number else 0
        start = stop if is_number(r.items, stop, sign) else run_before(r.items, sign, stop)
        left = &r.before[number]
        if start == sign:
            left.exists = False
        elif not operations:
            left.exists = True
            continue
        elif (
            number
            and r.after[number - 1].exists
            and r.after[number - 1].end_item == sign
            and start == stop
        ):
            left.exists = True
            left.known = False
            left.first_item = -1  # the side behind the sign before
        else:
            make_side(r, left, start, sign)
        limit = r.signs[number + 1] if number + 1 < num_signs else r.num_items
        end = (
            limit if is_number(r.items, sign + 1, limit)
            else run_after(r.items, sign + 1, limit)
        )
        if end:
            make_side(r, &r.after[number], sign + 1, end)
        else:
            r.after[number].exists = False
    for number in range(num_signs):
        item = &r.items[r.signs[number]]
        if not (operations or item.num):
            continue
        left = &r.before[number]
        if not left.exists:
            if item.num:
                restated(r, item, &r.after[number])
            continue
        if not operations:
            continue
        if left.first_item < 0:
            left = &r.after[number - 1]
        if not pair(r, left, &r.after[number], item.approximate, item.verb):
            continue
        if number + 1 < num_signs and r.signs[number + 1] - r.signs[number] - 1 <= MAX_SIDE:
            joined = True
            for index in range(r.signs[number] + 1, r.signs[number + 1]):
                if r.items[index].kind == I_STOP:
                    joined = False
                    break
            if joined:
                pair(
                    r,
                    left,
                    &r.after[number + 1],
                    item.approximate or r.items[r.signs[number + 1]].approximate,
                    item.verb or r.items[r.signs[number + 1]].verb,
                )
