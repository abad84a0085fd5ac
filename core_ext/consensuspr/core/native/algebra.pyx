# cython: language_level=3, freethreading_compatible=True
"""The compiled equation reader, with the rules of ``pure/algebra``.

It reads a normal form, paragraph by paragraph.  Memory is one workspace a thread, and sets of what
is distinct in the text.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from consensuspr.core.native.hash_set cimport HashSet, set_add, set_clear, set_free, set_has
from consensuspr.core.native.statements cimport KeySlot, Keys, keys_build, keys_free

from math import factorial

from consensuspr.core import algebra
from consensuspr.core.algebra import Fact, FactRun, FactKind
from consensuspr.core.native.normal_form import normalize
from consensuspr.core.patterns import stripped

# algebra.py; a test compares.
cdef enum:
    POINTS = 3
    SHAPE_POINTS = 2
    RESIDUES = 16
    MANY_RESIDUES = 40
    SMALL_MODULUS = 8
    MAX_TOKEN = 4096
    MAX_SIDE_BYTES = 120
    MAX_OPAQUE = 64
    MAX_CODE = 96
    MAX_DEPTH = 24
    MAX_SIDE_NAMES = 8
    MAX_OCCURRENCES = 24
    MAX_CHAIN = 16
    MAX_SPAN = 6
    MAX_POWER = 300
    MAX_FACTORIAL = 1000
    MAX_EXACT_FACTORIAL = 20
    MAX_EXACT_BINOMIAL = 60
    MAX_MODULUS = 1000000
    MAX_RENAMED = 4
    MIN_LIST = 3
    MAX_LIST = 40
    MAX_JOINED = 3
    MAX_COORDINATES = 8
    MIN_WORD = 4
    KEYS_AN_EQUATION = 3
    MAX_DIGITS = 18
    # Sides that are kept, a power of two, and of how many bytes of text and of a side.
    KEPT_SIDES = 256
    KEPT_BYTES = 32
    KEPT_SIZE = 640
    # Equations that wait, and values that are inverted together.
    MOST_WAITING = 32
    MOST_INVERTED = POINTS * (MOST_WAITING + 2)
    MAX_ORDERS = 24     # of MAX_RENAMED names
    FEW_SHAPES = 64     # slots of so few that each is tried

# algebra.FactKind and algebra.FactGroup; a test compares.
cdef enum:
    KIND_EQUATION = 1, KIND_LINEAR, KIND_SOLVED, KIND_CLOSED, KIND_ORDER, KIND_ORDER_OR_EQUAL
    KIND_CONGRUENCE, KIND_LIST, KIND_JOINED, KIND_RENAMED, KIND_VALUES
    KIND_IDENTITY

cdef enum:
    GROUP_NAMED = 1, GROUP_CLOSED = 2, GROUP_ORDER = 4, GROUP_CONGRUENCE = 8, GROUP_LIST = 16
    GROUP_JOINED = 32, GROUP_RENAMED = 64, GROUP_IDENTITY = 128
    GROUP_ALL = 255

# chains.Relation, and what stands between two pieces otherwise.
cdef enum:
    EQUAL = 0, APPROXIMATE, LESS, GREATER, AT_MOST, AT_LEAST, CONGRUENT, UNEQUAL, MEMBER
    SEPARATED           # by a comma
    ENDED               # by anything else

cdef enum:
    NUM_FUNCTIONS = 16
    NUM_NO_PRODUCTS = 64
    NUM_SQUARES = 15
    NUM_SYMMETRIC = 4
    MAX_FUNCTION = 24   # bytes that are looked at for a function and its argument

# What a byte can be: a piece can end or a bracket stand at BYTE_CUTS; BYTE_LEAD begins a relation
# of three bytes, or something else; there are no names without BYTE_NAME.
cdef enum:
    BYTE_DIGIT = 1, BYTE_CUTS = 2, BYTE_BLANK = 4, BYTE_RELATION = 8, BYTE_LEAD = 16, BYTE_NAME = 32
cdef uint8_t byte_kinds[256]
cdef uint8_t function_names[NUM_FUNCTIONS][8]
cdef int function_sizes[NUM_FUNCTIONS]
# Of a first letter's five bits, those of the second letters.
cdef uint32_t function_begins[32]
cdef uint32_t no_product_begins[32]
cdef uint64_t symmetric[NUM_SYMMETRIC]
cdef uint64_t pi
cdef uint8_t no_products[NUM_NO_PRODUCTS][4]
cdef int no_product_sizes[NUM_NO_PRODUCTS]
cdef bint called[256]
cdef uint64_t squares[NUM_SQUARES]
cdef uint64_t square_roots[NUM_SQUARES]
cdef uint64_t slot_points[MAX_RENAMED + 1][POINTS]
cdef uint64_t factorials[MAX_FACTORIAL + 1]
cdef uint64_t double_factorials[MAX_FACTORIAL + 1]

cdef extern from *:
    """
    #include "bytes16.h"

    /* Return where a sign of a relation begins, or with `digits` a digit stands, or the length. */
    static inline Py_ssize_t next_sign(
        const uint8_t* data, Py_ssize_t length, Py_ssize_t at, int digits
    ) {
        for (; length - at > 16; at += 16) {
            const bytes16 value = load16(data + at);
            bytes16 found = within16(value, '<', '>')
                | (equal16(value, 0xE2) & within16(load16(data + at + 1), 0x88, 0x89));
            if (digits)
                found |= within16(value, '0', '9');
            const unsigned bits = bits16(found);
            if (bits)
                return at + (Py_ssize_t)__builtin_ctz(bits);
        }
        for (; at < length; at++) {
            const uint8_t byte = data[at];
            if ((byte >= '<' && byte <= '>') || (digits && byte >= '0' && byte <= '9')
                || (byte == 0xE2 && at + 1 < length && (data[at + 1] | 1) == 0x89))
                return at;
        }
        return length;
    }
    """
    Py_ssize_t next_sign(
        const uint8_t* data, Py_ssize_t length, Py_ssize_t at, bint digits
    ) noexcept nogil

include "rational.pxi"
include "field.pxi"
include "sides.pxi"

# algebra.Fact, where facts are kept.
cdef struct FactRecord:
    uint32_t kind, start, end, run
    int num_keys, size, names
    bint spans
    uint64_t keys[2]
    uint64_t shape, renamed

cdef struct RunRecord:
    uint32_t start, end, parts, items

# How far a token has been cut into pieces.
cdef struct Cursor:
    Py_ssize_t token, end, at   # `at` is past `end` behind the last piece
    int depth                   # of brackets

# An equation's sides' difference at each point, as a fraction.
cdef struct Difference:
    uint32_t kind       # 0 where it says nothing
    uint64_t tops[POINTS]
    uint64_t bottoms[POINTS]

cdef struct Part:
    uint64_t key, value     # `value` is that of x = 6 for x = 12/2, else the same
    uint32_t start

# A side as it was read last; the same bytes mean the same side wherever they stand.
cdef struct KeptSide:
    uint8_t bytes[KEPT_BYTES]
    uint8_t side[KEPT_SIZE]     # as much of an AlgebraSide as was written
    Py_ssize_t size

cdef struct Algebra:
    const uint8_t* form     # of one paragraph
    Py_ssize_t length, base
    const EquationTable* table
    uint8_t* matched
    uint8_t channel
    EquationPlace* places
    HashSet keys            # what was said
    bint fresh              # the last equation had not been said before
    bint failed
    bint lists              # what stands together matters, and so do numbers
    # Facts are kept where a node's expression is read.
    bint keep
    FactRecord* facts
    Py_ssize_t num_facts, facts_size
    RunRecord* runs
    Py_ssize_t num_runs, runs_size
    # The run that is read.
    uint32_t run_start, run_end, num_parts, num_items
    uint32_t list_start, list_end   # from the first item to the last
    Py_ssize_t first_fact
    uint64_t items
    uint64_t unshown        # operands of the items that do not show their values
    Part parts[MAX_JOINED]  # the last ones
    # Whose values the items are: x = 2, 3; and the keys that say so.
    bint owned, negative
    uint64_t owner[POINTS]
    uint64_t values
    uint32_t num_values
    Py_ssize_t last_start, last_end     # of the last token, "mod" aside
    # One token and one chain.
    uint8_t kept_lengths[KEPT_SIDES]    # bytes of each kept side, 0 for none
    # Equations wait to be inverted together where their order does not matter.
    bint waits
    int num_waiting
    # From here on nothing is cleared.
    Difference waiting[MOST_WAITING]
    uint8_t cut[MAX_TOKEN]
    uint8_t relations[MAX_CHAIN]
    AlgebraSide sides[MAX_CHAIN]
    AlgebraSide coordinates[2]
    AlgebraSide modulus
    Parser parser
    KeptSide kept[KEPT_SIDES]


# --- what is said -------------------------------------------------------------------------------

cdef void reach(
    Algebra* r, const Keys* keys, uint64_t key, uint32_t start, uint32_t end
) noexcept nogil:
    """Mark the nodes that have a key."""
    cdef uint32_t slot
    cdef const KeySlot* found
    if r.matched == NULL or keys.capacity == 0:
        return
    slot = <uint32_t>key & (keys.capacity - 1)
    while keys.slots[slot].key:
        found = &keys.slots[slot]
        if found.key == key and r.matched[found.node] == 0:
            r.matched[found.node] = r.channel
            if r.places != NULL:
                r.places[found.node].start = <uint32_t>r.base + start
                r.places[found.node].end = <uint32_t>r.base + end
                r.places[found.node].key = found.index
        slot = (slot + 1) & (keys.capacity - 1)


cdef FactRecord* keep_fact(Algebra* r) noexcept nogil:
    """Make room for a fact; NULL where memory runs out."""
    cdef FactRecord* grown
    if r.num_facts == r.facts_size:
        grown = <FactRecord*>PyMem_RawRealloc(
            r.facts, (2 * r.facts_size + 32) * sizeof(FactRecord)
        )
        if grown == NULL:
            r.failed = True
            return NULL
        r.facts = grown
        r.facts_size = 2 * r.facts_size + 32
    r.num_facts += 1
    return &r.facts[r.num_facts - 1]


cdef void say(
    Algebra* r, const FactRecord* fact, bint part
) noexcept nogil:
    """Take a fact: count it, mark the nodes that it reaches, join it to what stands before."""
    cdef int index
    cdef FactRecord* kept
    cdef bint valued = fact.kind in (KIND_SOLVED, KIND_LIST, KIND_JOINED, KIND_VALUES)
    cdef Py_ssize_t known = r.keys.size
    if fact.kind != KIND_JOINED or not r.fresh:
        if set_add(&r.keys, never_zero(fact.keys[0] + fact.keys[1])):
            r.failed = True
    if fact.kind != KIND_JOINED:
        r.fresh = r.keys.size > known
    # The second key of x = 12/2 is that of x = 6, by which a node is reached, and no text reaches.
    for index in range(1 if valued else fact.num_keys):
        reach(r, &r.table.keys, fact.keys[index], fact.start, fact.end)
    if fact.renamed:
        reach(r, &r.table.keys, fact.renamed, fact.start, fact.end)
    if r.keep:
        kept = keep_fact(r)
        if kept != NULL:
            kept[0] = fact[0]
    if part and fact.kind != KIND_IDENTITY:
        join(r, fact)


cdef void join(Algebra* r, const FactRecord* fact) noexcept nogil:
    """Say what a fact and those before it in the run say together."""
    cdef FactRecord joined
    cdef uint64_t total, values
    cdef int count, most
    for count in range(MAX_JOINED - 1):
        r.parts[count] = r.parts[count + 1]
    r.parts[MAX_JOINED - 1].key = fact.keys[0]
    r.parts[MAX_JOINED - 1].value = fact.keys[
        fact.num_keys > 1 and (fact.kind == KIND_SOLVED or fact.kind == KIND_VALUES)
    ]
    r.parts[MAX_JOINED - 1].start = fact.start
    r.num_parts += 1
    if not r.table.wanted & GROUP_JOINED:
        return
    most = <int>min(r.num_parts, <uint32_t>MAX_JOINED)
    total = r.parts[MAX_JOINED - 1].key
    values = r.parts[MAX_JOINED - 1].value
    for count in range(2, most + 1):
        total += r.parts[MAX_JOINED - count].key
        values += r.parts[MAX_JOINED - count].value
        memset(&joined, 0, sizeof(FactRecord))
        joined.kind = KIND_JOINED
        joined.num_keys = 1
        joined.keys[0] = values_key(count, total)
        if values != total:
            joined.keys[1] = values_key(count, values)
            joined.num_keys = 2
        joined.start = r.parts[MAX_JOINED - count].start
        joined.end = fact.end
        say(r, &joined, False)


cdef void add_unshown_key(FactRecord* fact, uint64_t operands) noexcept nogil:
    """Set the keys of what shows no value: its own, and that of the value."""
    fact.keys[1] = fact.keys[0]
    fact.keys[0] = never_zero(combine(combine(mixed(fact.kind), fact.keys[0]), operands))
    fact.num_keys = 2


cdef void say_list(Algebra* r, uint32_t kind, uint64_t key, uint32_t start) noexcept nogil:
    """Take the list that the run is, or that begins in it."""
    cdef FactRecord fact
    memset(&fact, 0, sizeof(FactRecord))
    fact.kind = kind
    fact.num_keys = 1
    fact.spans = True
    fact.start = start
    fact.end = r.list_end
    fact.keys[0] = key
    if r.unshown:
        add_unshown_key(&fact, r.unshown)
    say(r, &fact, False)


cdef void finish_run(Algebra* r) noexcept nogil:
    """End the run that is read."""
    cdef RunRecord* grown
    if r.run_end == 0:
        return
    if MIN_LIST <= r.num_items <= MAX_LIST and r.table.wanted & GROUP_LIST:
        say_list(r, KIND_LIST, never_zero(
            combine(combine(mixed(KIND_LIST), <uint64_t>r.num_items), r.items)
        ), r.list_start)
    if 2 <= r.num_items == r.num_values <= MAX_JOINED and r.table.wanted & GROUP_JOINED:
        say_list(r, KIND_VALUES, values_key(r.num_values, r.values), r.run_start)
    if r.keep and (r.num_facts > r.first_fact or r.num_items):
        if r.num_runs == r.runs_size:
            grown = <RunRecord*>PyMem_RawRealloc(
                r.runs, (2 * r.runs_size + 16) * sizeof(RunRecord)
            )
            if grown == NULL:
                r.failed = True
                return
            r.runs = grown
            r.runs_size = 2 * r.runs_size + 16
        r.runs[r.num_runs].start = <uint32_t>r.base + r.run_start
        r.runs[r.num_runs].end = <uint32_t>r.base + r.run_end
        r.runs[r.num_runs].parts = r.num_parts
        r.runs[r.num_runs].items = r.num_items
        while r.first_fact < r.num_facts:
            r.facts[r.first_fact].run = <uint32_t>r.num_runs
            r.facts[r.first_fact].start += <uint32_t>r.base
            r.facts[r.first_fact].end += <uint32_t>r.base
            r.first_fact += 1
        r.num_runs += 1
    r.run_end = r.num_parts = 0
    begin_list(r, NULL)


cdef void begin_list(Algebra* r, const AlgebraSide* owner) noexcept nogil:
    """Begin to take the values of a name, or what stands for itself."""
    r.num_items = r.num_values = 0
    r.items = r.values = r.unshown = 0
    r.owned = owner != NULL and owner.readable and owner.bare
    if r.owned:
        r.negative = solved_names(owner, r.owner)


# --- keys ---------------------------------------------------------------------------------------

cdef void invert(uint64_t* values, int count) noexcept nogil:
    """Set up to MOST_INVERTED values, none of them 0, to their inverses: for the price of one."""
    cdef uint64_t before[MOST_INVERTED]
    cdef uint64_t product = 1, inverse
    cdef int index
    for index in range(count):
        before[index] = product
        product = field_multiply(product, values[index])
    inverse = field_inverse(product)
    for index in range(count - 1, -1, -1):
        product = values[index]
        values[index] = field_multiply(inverse, before[index])
        inverse = field_multiply(inverse, product)


cdef inline bint has_bottoms(const Difference* of) noexcept nogil:
    """Tell whether the denominators are no common factor: then there are two keys."""
    return of.bottoms[0] != of.bottoms[1] or of.bottoms[0] != of.bottoms[2]


cdef bint is_number(const Difference* of) noexcept nogil:
    """Tell whether a difference is a number, like that of x = x + 1: it is never 0."""
    return of.tops[0] == of.tops[1] == of.tops[2] and not has_bottoms(of)


cdef int inverses_of(const Difference* of, uint64_t* values) noexcept nogil:
    """Set what has to be inverted for the keys of a difference; return how many values."""
    values[0] = of.tops[0]
    values[1] = of.bottoms[1]
    values[2] = of.bottoms[2]
    return POINTS if has_bottoms(of) else 1


cdef void named_keys(
    const Difference* of, const uint64_t* inverses, FactRecord* fact
) noexcept nogil:
    """Set the keys of a difference: its values, and its numerators, over the first of them."""
    cdef uint64_t first = field_multiply(of.tops[1], inverses[0])
    cdef uint64_t second = field_multiply(of.tops[2], inverses[0])
    fact.kind = of.kind
    if first != 1 or second != 1:
        fact.keys[fact.num_keys] = never_zero(combine(combine(mixed(of.kind), first), second))
        fact.num_keys += 1
    if not has_bottoms(of):
        return
    first = field_multiply(field_multiply(first, of.bottoms[0]), inverses[1])
    second = field_multiply(field_multiply(second, of.bottoms[0]), inverses[2])
    if first != 1 or second != 1:
        fact.keys[fact.num_keys] = never_zero(combine(combine(mixed(of.kind), first), second))
        fact.num_keys += 1


cdef void differences(
    const Ratio* left, const Ratio* right, int points, uint64_t* tops, uint64_t* bottoms
) noexcept nogil:
    """Set numerators and denominators of left - right at each point."""
    cdef int point
    for point in range(points):
        tops[point] = field_add(
            times(left[point].top, right[point].bottom),
            field_negate(times(right[point].top, left[point].bottom)),
        )
        bottoms[point] = times(left[point].bottom, right[point].bottom)


cdef int union_of(
    const AlgebraSide* left, const AlgebraSide* right, uint64_t* names
) noexcept nogil:
    """Set the distinct names of two sides in order; return how many there are."""
    cdef int count = 0, index, at
    cdef const AlgebraSide* side
    cdef int part
    for part in range(2):
        side = left if part == 0 else right
        for index in range(side.num_names):
            at = 0
            while at < count and names[at] != side.names[index]:
                at += 1
            if at == count:
                names[count] = side.names[index]
                count += 1
    return count


cdef bint is_linear(const uint64_t* values, uint64_t name) noexcept nogil:
    """Tell whether values lie on a line over those of a name."""
    cdef uint64_t first = name_point(name, 0)
    return field_multiply(
        field_add(values[1], field_negate(values[0])),
        field_add(name_point(name, 2), field_negate(first)),
    ) == field_multiply(
        field_add(values[2], field_negate(values[0])),
        field_add(name_point(name, 1), field_negate(first)),
    )


cdef bint are_equal(const AlgebraSide* left, const AlgebraSide* right) noexcept nogil:
    """Tell whether two closed sides have one value, or are an angle in radians and in degrees."""
    cdef uint64_t first = field_multiply(left.values[0].top, right.values[0].bottom)
    cdef uint64_t second = field_multiply(right.values[0].top, left.values[0].bottom)
    return first == second or (
        field_multiply(180, first) == field_multiply(pi, second)
        or field_multiply(pi, first) == field_multiply(180, second)
    )


cdef uint64_t value_hash(const AlgebraSide* side, bint negative) noexcept nogil:
    """Return the hash of a closed side's value, or of the negative one."""
    cdef const Step* last = &side.steps[side.num_steps - 1]
    cdef uint64_t value = 0
    if last.known:
        value = field_of(last.num)
    else:
        quotient(&side.values[0], &value)
    if negative:
        value = field_negate(value)
    if last.known:
        return never_zero(combine(combine(mixed(OP_NUMBER), value), <uint64_t>last.den))
    return never_zero(combine(mixed(OP_CONSTANT), value))


cdef bint solved_names(const AlgebraSide* name, uint64_t* values) noexcept nogil:
    """Set what is solved for at each point; return whether it is negative: -x = 3."""
    cdef bint negative = is_negative(name)
    cdef int point
    for point in range(POINTS):
        quotient(&name.values[point], &values[point])
        if negative:
            values[point] = field_negate(values[point])
    return negative


cdef uint64_t solved_key(
    const uint64_t* names, const AlgebraSide* value, bint negative
) noexcept nogil:
    """Return the key of name = value."""
    cdef uint64_t key = mixed(KIND_SOLVED)
    cdef int point
    for point in range(POINTS):
        key = combine(key, names[point])
    return never_zero(combine(key, value_hash(value, negative)))


cdef uint64_t values_key(uint64_t count, uint64_t total) noexcept nogil:
    """Return the key of equations that stand together, in any order, from the sum of theirs."""
    return never_zero(combine(combine(mixed(KIND_JOINED), count), total))


cdef void solve(
    Algebra* r, const AlgebraSide* name, const AlgebraSide* value, FactRecord* fact
) noexcept nogil:
    """Set the key of name = value."""
    cdef uint64_t names[POINTS]
    cdef uint64_t total = 0
    cdef bint negative = solved_names(name, names)
    cdef int index
    fact.kind = KIND_VALUES if value.choice else KIND_SOLVED
    if not value.choice:
        fact.keys[0] = solved_key(names, value, negative)
    elif r.table.wanted & GROUP_JOINED:
        for index in range(2):
            read_part(
                &r.parser, r.coordinates, r.form + value.start, <int>(value.end - value.start),
                index,
            )
            total += solved_key(names, r.coordinates, negative)
        fact.keys[0] = values_key(2, total)
    else:
        return
    fact.num_keys = 1
    if not is_worked_out(value):
        add_unshown_key(fact, value.operands)


cdef bint is_fraction(const AlgebraSide* side) noexcept nogil:
    """Tell whether a closed side is a fraction of two numbers, and no whole number."""
    cdef const Step* last = &side.steps[side.num_steps - 1]
    return (
        side.num_steps - is_negative(side) == 3 and side.steps[0].op == OP_NUMBER
        and side.steps[1].op == OP_NUMBER and side.steps[2].op == OP_DIVIDE
        and last.known and last.den > 1
    )


cdef void closed_keys(
    const AlgebraSide* left, const AlgebraSide* right, FactRecord* fact
) noexcept nogil:
    """Set the keys of arithmetic without names: value and operands of what is worked out."""
    cdef const AlgebraSide* side
    cdef int part
    cdef bint fractions = is_fraction(left) and is_fraction(right)
    fact.kind = KIND_CLOSED
    if not are_equal(left, right):
        return
    for part in range(2):
        side = left if part == 0 else right
        # A fraction is a value, unless both sides are one.
        if side.num_steps > 1 and side.operands and (fractions or not is_fraction(side)):
            fact.keys[fact.num_keys] = never_zero(
                combine(combine(mixed(KIND_CLOSED), value_hash(side, False)), side.operands)
            )
            fact.num_keys += 1


cdef bint has_trivial_root(const uint64_t* values, uint64_t name) noexcept nogil:
    """Tell whether a linear equation is solved by 0 or 1."""
    cdef uint64_t first = name_point(name, 0), second = name_point(name, 1)
    cdef int root
    for root in range(2):
        if field_multiply(values[0], field_add(second, field_negate(root))) == field_multiply(
            values[1], field_add(first, field_negate(root))
        ):
            return True
    return False


cdef uint64_t steps_hash(const AlgebraSide* side) noexcept nogil:
    """Return the hash of the multiset of a side's steps."""
    cdef const Step* step
    cdef uint64_t total = 0, key
    cdef int index
    cdef bint named, number
    for index in range(side.num_steps):
        step = &side.steps[index]
        named = step.op == OP_NAME or step.op == OP_CONSTANT or step.op == OP_CALL
        number = step.op == OP_NUMBER
        key = combine(mixed(step.op), step.name if named else 0)
        key = combine(key, <uint64_t>step.num if number else 0)
        total += never_zero(combine(key, <uint64_t>step.den if number else 1))
    return total


cdef void identity_key(
    const AlgebraSide* left, const AlgebraSide* right, FactRecord* fact
) noexcept nogil:
    """Set the key of an equation that always holds: its sides as they are written."""
    cdef uint64_t first = steps_hash(left), second = steps_hash(right)
    cdef uint64_t key = combine(mixed(KIND_IDENTITY), min(first, second))
    fact.kind = KIND_IDENTITY
    if first != second:
        fact.keys[0] = never_zero(combine(key, max(first, second)))
        fact.num_keys = 1


cdef void equation_keys(
    Algebra* r, const AlgebraSide* left, const AlgebraSide* right, FactRecord* fact,
    Difference* difference,
) noexcept nogil:
    """Set kind and keys of left = right; none where it says nothing, or nothing that is wanted.

    Of an equation that is not solved set the difference of its sides instead.
    """
    cdef uint64_t names[2 * MAX_SIDE_NAMES]
    cdef int count
    difference.kind = 0
    if left.closed and right.closed:
        if r.table.wanted & GROUP_CLOSED:
            closed_keys(left, right, fact)
        return
    if not r.table.wanted & GROUP_NAMED:
        return
    count = union_of(left, right, names)
    if count > MAX_SIDE_NAMES:
        return
    if left.bare and (right.closed or right.num_items):
        solve(r, left, right, fact)
        return
    if right.bare and (left.closed or left.num_items):
        solve(r, right, left, fact)
        return
    differences(left.values, right.values, POINTS, difference.tops, difference.bottoms)
    if difference.tops[0] == difference.tops[1] == difference.tops[2] == 0:
        if r.table.wanted & GROUP_IDENTITY:
            identity_key(left, right, fact)
        return
    if difference.tops[0] == 0 or is_number(difference):
        return
    difference.kind = KIND_EQUATION
    if count == 1 and is_linear(difference.tops, names[0]):
        # 35 = 35x is more often a unit than an equation.
        difference.kind = (
            0 if has_trivial_root(difference.tops, names[0]) else <uint32_t>KIND_LINEAR
        )


cdef bint renamed(
    const AlgebraSide* left, const AlgebraSide* right, const uint64_t* names,
    const uint64_t* slots, int count, int points, uint64_t* tops
) noexcept nogil:
    """Set numerators of an equation with other names; return whether it has a key."""
    cdef Ratio values[2][POINTS]
    cdef uint64_t bottoms[POINTS]
    if not evaluate(left, points, names, slots, count, values[0]) or not evaluate(
        right, points, names, slots, count, values[1]
    ):
        return False
    differences(values[0], values[1], points, tops, bottoms)
    return tops[0] != 0


cdef bint has_shape(const HashSet* shapes, uint64_t tag, const uint64_t* tops) noexcept nogil:
    """Tell whether a set has a shape, if possible without an inverse."""
    cdef Py_ssize_t slot
    cdef uint64_t shape
    if shapes.capacity > FEW_SHAPES:
        return set_has(shapes, tag | field_multiply(tops[1], field_inverse(tops[0])))
    for slot in range(shapes.capacity):
        shape = shapes.slots[slot]
        if shape and shape & ~LOW61 == tag and field_multiply(shape & LOW61, tops[0]) == tops[1]:
            return True
    return False


cdef bint next_order(uint64_t* slots, int count) noexcept nogil:
    """Set the next permutation in lexical order; return whether there is one."""
    cdef int at = count - 2, other = count - 1, first
    cdef uint64_t kept
    while at >= 0 and slots[at] >= slots[at + 1]:
        at -= 1
    if at < 0:
        return False
    while slots[other] <= slots[at]:
        other -= 1
    kept = slots[at]
    slots[at] = slots[other]
    slots[other] = kept
    first = at + 1
    other = count - 1
    while first < other:
        kept = slots[first]
        slots[first] = slots[other]
        slots[other] = kept
        first += 1
        other -= 1
    return True


cdef void rename(
    Algebra* r, const AlgebraSide* left, const AlgebraSide* right, FactRecord* fact
) noexcept nogil:
    """Set shape and renamed key of an equation, if it has them and anybody asks."""
    cdef uint64_t names[2 * MAX_SIDE_NAMES]
    cdef uint64_t slots[MAX_RENAMED]
    cdef uint64_t tops[MAX_ORDERS][POINTS]
    cdef uint64_t inverses[MAX_ORDERS]
    cdef uint64_t key
    cdef int count, index, orders = 0
    if left.num_items or right.num_items:
        return
    count = union_of(left, right, names)
    if not 0 < count <= MAX_RENAMED or not (r.keep or r.table.renamed_names >> count & 1):
        return
    for index in range(count):
        slots[index] = 0
    # keys.shape_of
    fact.shape = <uint64_t>(4 * (fact.kind == KIND_LINEAR) + count - 1) << 61
    if not renamed(left, right, names, slots, count, SHAPE_POINTS, tops[0]):
        fact.shape |= PRIME
        if not r.keep and not set_has(&r.table.shapes, fact.shape):
            return
    elif r.keep:
        fact.shape |= field_multiply(tops[0][1], field_inverse(tops[0][0]))
    elif not has_shape(&r.table.shapes, fact.shape, tops[0]):
        return
    fact.names = count
    fact.size = left.occurrences + right.occurrences + left.numbers + right.numbers
    for index in range(count):
        slots[index] = <uint64_t>index + 1
    while True:
        if renamed(left, right, names, slots, count, POINTS, tops[orders]):
            inverses[orders] = tops[orders][0]
            orders += 1
        if not next_order(slots, count):
            break
    invert(inverses, orders)
    for index in range(orders):
        key = combine(combine(mixed(KIND_RENAMED), fact.kind), <uint64_t>count)
        key = combine(key, field_multiply(tops[index][1], inverses[index]))
        key = never_zero(combine(key, field_multiply(tops[index][2], inverses[index])))
        if fact.renamed == 0 or key < fact.renamed:
            fact.renamed = key


cdef void quotients(
    const AlgebraSide* left, const AlgebraSide* right, uint64_t* values
) noexcept nogil:
    """Set left - right at each point, as elements of the field."""
    cdef uint64_t bottoms[POINTS]
    cdef int point
    differences(left.values, right.values, POINTS, values, bottoms)
    invert(bottoms, POINTS)
    for point in range(POINTS):
        values[point] = field_multiply(values[point], bottoms[point])


cdef uint64_t order_key(const AlgebraSide* left, const AlgebraSide* right, int kind) noexcept nogil:
    """Return the key of left < right or left ≤ right."""
    cdef uint64_t values[POINTS]
    cdef uint64_t key = mixed(kind)
    cdef int point
    quotients(left, right, values)
    for point in range(POINTS):
        key = combine(key, values[point])
    return never_zero(key)


cdef uint64_t symbolic_congruence(
    const AlgebraSide* left, const AlgebraSide* right, const AlgebraSide* modulus
) noexcept nogil:
    """Return the key of left ≡ right modulo a name: the difference up to the sign."""
    cdef uint64_t values[POINTS]
    cdef uint64_t key = mixed(KIND_CONGRUENCE), value = 0
    cdef bint negative
    cdef int point
    quotients(left, right, values)
    if values[0] == 0:
        return 0
    negative = 2 * values[0] > PRIME
    for point in range(POINTS):
        quotient(&modulus.values[point], &value)
        key = combine(key, value)
    for point in range(POINTS):
        key = combine(key, field_negate(values[point]) if negative else values[point])
    return never_zero(key)


cdef bint residue(
    const AlgebraSide* side, int64_t modulus, uint64_t point, int64_t* result
) noexcept nogil:
    """Set a side modulo a number, with integers for its names.

    Return whether it holds nothing else than sums, products and powers of integers.
    """
    cdef int64_t stack[MAX_CODE + 1]
    cdef const Step* steps[MAX_CODE + 1]
    cdef const Step* step
    cdef int size = 0, index, count, at
    cdef int64_t value
    for index in range(side.num_steps):
        step = &side.steps[index]
        count = operands_of(step)
        value = 0
        if step.known:
            if step.den == 1:
                value = residue_of(step.num, modulus)
        else:
            for at in range(size - count, size):
                if steps[at].known and steps[at].den != 1:
                    return False
            if step.op == OP_NAME:
                value = residue_of(<int64_t>name_point(step.name, POINTS + point), modulus)
            elif step.op == OP_ADD:
                value = residue_of(stack[size - 2] + stack[size - 1], modulus)
            elif step.op == OP_SUBTRACT:
                value = residue_of(stack[size - 2] - stack[size - 1], modulus)
            elif step.op == OP_MULTIPLY:
                value = residue_of(stack[size - 2] * stack[size - 1], modulus)
            elif step.op == OP_NEGATE:
                value = residue_of(-stack[size - 1], modulus)
            elif step.op == OP_POWER and steps[size - 1].known and steps[size - 1].num >= 0:
                value = <int64_t>modular_power(
                    <uint64_t>stack[size - 2], <uint64_t>steps[size - 1].num, <uint64_t>modulus
                )
            else:
                return False
        size += 1 - count
        stack[size - 1] = value
        steps[size - 1] = step
    result[0] = stack[size - 1]
    return not (steps[size - 1].known and steps[size - 1].den != 1)


cdef uint64_t congruence_key(
    const AlgebraSide* left, const AlgebraSide* right, int64_t modulus
) noexcept nogil:
    """Return the key of left ≡ right (mod modulus), 0 if there is none."""
    cdef int64_t residues[2][MANY_RESIDUES]
    cdef uint64_t values[2]
    cdef uint64_t key = combine(mixed(KIND_CONGRUENCE), <uint64_t>modulus)
    cdef int64_t first, second
    cdef int point, sign = 0, points = RESIDUES if modulus >= SMALL_MODULUS else MANY_RESIDUES
    if left.closed and right.closed:
        values[0] = value_hash(left, False)
        values[1] = value_hash(right, False)
        key = combine(key, min(values[0], values[1]))
        return never_zero(combine(key, max(values[0], values[1])))
    for point in range(points):
        if not residue(left, modulus, point, &first):
            return 0
        if not residue(right, modulus, point, &second):
            return 0
        residues[0][point] = residue_of(first - second, modulus)
        residues[1][point] = residue_of(second - first, modulus)
    # The smaller of the two, in lexical order.
    for point in range(points):
        if residues[0][point] != residues[1][point]:
            sign = residues[1][point] < residues[0][point]
            break
    for point in range(points):
        key = combine(key, <uint64_t>residues[sign][point])
    return never_zero(key)


# --- chains -------------------------------------------------------------------------------------

cdef int relation_at(const uint8_t* data, Py_ssize_t length, int* width) noexcept nogil:
    """Return the relation that stands here, -1 for none, and set its bytes."""
    width[0] = 1
    if data[0] == c"=":
        return EQUAL
    if data[0] == c"<":
        return LESS
    if data[0] == c">":
        return GREATER
    if data[0] != 0xE2 or length < 3:
        return -1
    width[0] = 3
    if data[1] == 0x88 and data[2] == 0x88:
        return MEMBER
    if data[1] != 0x89:
        return -1
    if data[2] == 0x88:
        return APPROXIMATE
    if data[2] == 0xA4:
        return AT_MOST
    if data[2] == 0xA5:
        return AT_LEAST
    if data[2] == 0xA1:
        return CONGRUENT
    if data[2] == 0xA0:
        return UNEQUAL
    return -1


cdef bint mark_cuts(Algebra* r, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Mark the brackets that hold an equation or have no partner; False if they are too deep."""
    cdef Py_ssize_t places[MAX_DEPTH]
    cdef bint holds[MAX_DEPTH]
    cdef int depth = 0, width
    cdef Py_ssize_t at
    cdef uint8_t byte, before
    memset(r.cut, 0, end - start)
    for at in range(start, end):
        byte = r.form[at]
        if not byte_kinds[byte] & BYTE_CUTS:
            continue
        if byte == c"(" or byte == c"[":
            if depth == MAX_DEPTH:
                return False
            places[depth] = at
            holds[depth] = False
            depth += 1
        elif byte == c")" or byte == c"]":
            if depth == 0 or (r.form[places[depth - 1]] == c"(") != (byte == c")"):
                r.cut[at - start] = True
                continue
            depth -= 1
            if holds[depth]:
                before = r.form[places[depth] - 1] if places[depth] > start else 0
                if not (
                    letter(before) or digit(before) or before == c"_" or before == c"^"
                    or before == c")" or before == c"]"
                ):
                    r.cut[places[depth] - start] = True
                    r.cut[at - start] = True
        elif depth and relation_at(r.form + at, end - at, &width) >= 0:
            holds[depth - 1] = True
    while depth:
        depth -= 1
        r.cut[places[depth] - start] = True
    return True


cdef bint labels(const Algebra* r, Py_ssize_t start, Py_ssize_t at) noexcept nogil:
    """Tell whether a colon ends a label; else it is a ratio."""
    cdef Py_ssize_t index = start
    cdef uint8_t last
    if start == at:
        return True
    last = r.form[at - 1]
    if last == c")" or last == c"." or last == c"!":
        return True
    if letter(last):
        # S:1,2,3 is labelled; a:b is a ratio.
        return (at - start > 1 and letter(r.form[at - 2])) or (
            at + 1 < r.length and digit(r.form[at + 1])
        )
    while index < at and digit(r.form[index]):
        index += 1
    return index == at


cdef bint next_piece(
    const Algebra* r, Cursor* cursor, Py_ssize_t* start, Py_ssize_t* stop, int* relation
) noexcept nogil:
    """Cut the next piece of a token; return whether there is one.

    A piece ends at a relation or separator outside brackets.
    """
    cdef Py_ssize_t at = cursor.at
    cdef int width
    cdef uint8_t byte
    if at > cursor.end:
        return False
    start[0] = at
    while at < cursor.end:
        byte = r.form[at]
        if not byte_kinds[byte] & BYTE_CUTS:
            at += 1
            continue
        width = 1
        relation[0] = -1
        if r.cut[at - cursor.token]:
            relation[0] = ENDED
        elif byte == c"(" or byte == c"[":
            cursor.depth += 1
        elif byte == c")" or byte == c"]":
            cursor.depth -= 1
        elif cursor.depth == 0:
            relation[0] = relation_at(r.form + at, cursor.end - at, &width)
            if relation[0] < 0:
                width = 1
                if byte == c",":
                    relation[0] = SEPARATED
                elif byte == c";" or byte == c"?" or (byte == c":" and labels(r, start[0], at)):
                    relation[0] = ENDED
        if relation[0] >= 0:
            stop[0] = at
            cursor.at = at + width
            return True
        at += 1
    relation[0] = ENDED
    stop[0] = cursor.end
    cursor.at = cursor.end + 1
    return True


cdef Cursor cursor_of(Py_ssize_t token, Py_ssize_t end) noexcept nogil:
    cdef Cursor cursor
    cursor.token = cursor.at = token
    cursor.end = end
    cursor.depth = 0
    return cursor


cdef void read_kept(
    Algebra* r, AlgebraSide* side, const uint8_t* data, Py_ssize_t length
) noexcept nogil:
    """Read a side, unless it was read not long ago: texts repeat theirs."""
    cdef uint64_t place
    cdef KeptSide* kept
    if length > KEPT_BYTES:
        read_side(&r.parser, side, r.coordinates, data, length)
        return
    place = hash_words(data, length) & (KEPT_SIDES - 1)
    kept = &r.kept[place]
    if r.kept_lengths[place] == length and not memcmp(kept.bytes, data, length):
        memcpy(side, kept.side, kept.size)
        return
    read_side(&r.parser, side, r.coordinates, data, length)
    kept.size = <char*>&side.steps[side.num_steps if side.readable else 0] - <char*>side
    r.kept_lengths[place] = 0
    if kept.size <= KEPT_SIZE:
        memcpy(kept.side, side, kept.size)
        memcpy(kept.bytes, data, length)
        r.kept_lengths[place] = <uint8_t>length


cdef void read_piece(
    Algebra* r, AlgebraSide* side, Py_ssize_t start, Py_ssize_t end
) noexcept nogil:
    cdef uint8_t first, last
    while end > start and (r.form[end - 1] == c"." or r.form[end - 1] == c"?"):
        end -= 1
    while start < end and r.form[start] == c".":
        start += 1
    side.start = <uint32_t>start
    side.end = <uint32_t>end
    side.readable = False
    if start == end:
        return
    first = r.form[start]
    last = r.form[end - 1]
    if first == c"*" or first == c"/" or first == c"^":
        return
    if last == c"+" or last == c"-" or last == c"*" or last == c"/" or last == c"^":
        return
    # Behind a number and a blank a bracket may be a factor: 3 (x+1)=6.
    if (first == c"(" or first == c"[") and start > 1 and r.form[start - 1] == c" " and digit(
        r.form[start - 2]
    ):
        return
    read_kept(r, side, r.form + start, end - start)
    side.start = <uint32_t>start
    side.end = <uint32_t>end


cdef inline void add_item(
    Algebra* r, uint64_t key, uint32_t start, uint32_t end
) noexcept nogil:
    if r.num_items == 0:
        r.list_start = start
    r.list_end = end
    r.items += key
    r.num_items += 1


cdef void take_item(Algebra* r, const AlgebraSide* side) noexcept nogil:
    """Take an item of a list."""
    cdef uint64_t key = mixed(KIND_LIST), value = 0
    cdef int point
    if not side.readable:
        return
    for point in range(POINTS):
        quotient(&side.values[point], &value)
        key = combine(key, value)
    add_item(r, never_zero(key), side.start, side.end)
    r.unshown += unshown_operands(side)
    if r.owned and side.closed:
        r.values += solved_key(r.owner, side, r.negative)
        r.num_values += 1


cdef void read_item(Algebra* r, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t at
    if not r.table.wanted & (GROUP_LIST | GROUP_JOINED):
        return
    read_piece(r, &r.sides[0], start, end)
    at = r.sides[0].start
    if r.sides[0].end - at == 3 and not memcmp(r.form + at, b"\xe2\x80\xa6", 3):
        add_item(r, never_zero(mixed(KIND_LIST)), <uint32_t>at, r.sides[0].end)
        return
    for at in range(r.sides[0].start, r.sides[0].end):
        if digit(r.form[at]):
            take_item(r, &r.sides[0])
            return


cdef int64_t read_modulus(Algebra* r, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Return a modulus, 0 for none, and -1 where it is `r.modulus`, an expression with names."""
    cdef const Step* last
    if not 0 < end - start <= MAX_OPAQUE or not read_expression(
        &r.parser, &r.modulus, r.form + start, end - start
    ):
        return 0
    if not r.modulus.closed:
        return -1
    last = &r.modulus.steps[r.modulus.num_steps - 1]
    return last.num if last.known and last.den == 1 and 2 <= last.num <= MAX_MODULUS else 0


cdef int mod_at(const Algebra* r, Py_ssize_t at) noexcept nogil:
    """Return the bytes of the " mod " or " modulo " that begins at ``at``, 0 for none."""
    if at < 0 or at + 5 > r.length or r.form[at + 1] != c"m" or r.form[at] != c" ":
        return 0
    if not memcmp(r.form + at, b" mod ", 5):
        return 5
    if at + 8 <= r.length and not memcmp(r.form + at, b" modulo ", 8):
        return 8
    return 0


cdef bint is_modulus(const Algebra* r, Py_ssize_t start) noexcept nogil:
    """Tell whether "mod" stands before."""
    return mod_at(r, start - 5) == 5 or mod_at(r, start - 8) == 8


cdef bint read_chain(
    Algebra* r, int sides, bint complete, Py_ssize_t start, Py_ssize_t first_end, Py_ssize_t end,
    bint lists
) noexcept nogil:
    """Read a chain whose sides and relations have been cut; return whether cuts are lost."""
    cdef Cursor cursor
    cdef Py_ssize_t at, piece, stop
    cdef int64_t modulus
    cdef int relation, index, width
    cdef bint equalities = True
    if lists and complete:
        # S = 1, 2, 3: not S = 1.
        sides -= 1
        relation = r.relations[sides - 1]
        if relation == EQUAL or relation == MEMBER:
            begin_list(r, &r.sides[sides - 1])
        take_item(r, &r.sides[sides])
    if is_modulus(r, start):
        modulus = read_modulus(r, start, first_end)
        if modulus == 0 or r.last_end == r.last_start:
            return False
        if r.last_end - r.last_start > MAX_TOKEN or not mark_cuts(r, r.last_start, r.last_end):
            return True
        cursor = cursor_of(r.last_start, r.last_end)
        piece = stop = r.last_start
        while next_piece(r, &cursor, &piece, &stop, &relation):
            pass
        begin_list(r, NULL)
        read_piece(r, &r.sides[0], piece, stop)
        if sides > 1:
            r.relations[0] = CONGRUENT
        read_congruences(r, sides, modulus)
        return True
    for index in range(sides - 1):
        equalities = equalities and (
            r.relations[index] == EQUAL or r.relations[index] == CONGRUENT
        )
    width = mod_at(r, end) if equalities else 0
    if width:
        at = end + width
        while at < r.length and (letter(r.form[at]) or digit(r.form[at]) or r.form[at] == c"^"):
            at += 1
        modulus = read_modulus(r, end + width, at)
        if modulus:
            r.run_end = <uint32_t>at
            read_congruences(r, sides, modulus)
            return False
    read_equalities(r, sides)
    return False


cdef void read_congruences(Algebra* r, int sides, int64_t modulus) noexcept nogil:
    cdef FactRecord fact
    cdef int first, last
    if not r.table.wanted & GROUP_CONGRUENCE:
        return
    for first in range(sides):
        for last in range(first + 1, min(sides, first + MAX_SPAN)):
            if r.relations[last - 1] != EQUAL and r.relations[last - 1] != CONGRUENT:
                break
            if not r.sides[first].readable or not r.sides[last].readable:
                continue
            memset(&fact, 0, sizeof(FactRecord))
            if modulus < 0:
                fact.keys[0] = symbolic_congruence(&r.sides[first], &r.sides[last], &r.modulus)
            else:
                fact.keys[0] = congruence_key(&r.sides[first], &r.sides[last], modulus)
            if fact.keys[0] == 0:
                continue
            fact.kind = KIND_CONGRUENCE
            fact.num_keys = 1
            fact.start = r.sides[first].start
            fact.end = r.sides[last].end
            fact.spans = first == 0 and last == sides - 1
            if fact.spans:
                fact.end = max(fact.end, r.run_end)
            say(r, &fact, fact.spans)


cdef void read_equalities(Algebra* r, int sides) noexcept nogil:
    cdef FactRecord fact
    cdef const AlgebraSide* left
    cdef const AlgebraSide* right
    cdef const AlgebraSide* before
    cdef int first, last, order
    cdef bint shown, whole, equal, alone = sides == 2 and r.relations[0] == APPROXIMATE
    for first in range(sides):
        left = &r.sides[first]
        if not left.readable:
            continue
        order = -1      # a = b < c = d says a < d
        for last in range(first + 1, min(sides, first + MAX_SPAN)):
            before = &r.sides[last - 1]
            right = &r.sides[last]
            whole = first == 0 and last == sides - 1
            equal = r.relations[last - 1] == EQUAL or alone
            if not right.readable or not (equal or order < 0):
                break
            memset(&fact, 0, sizeof(FactRecord))
            fact.start = left.start
            fact.end = right.end
            fact.spans = whole
            if not equal:
                order = r.relations[last - 1]
            elif before.readable and before.closed and right.closed:
                if not are_equal(before, right):
                    break   # what is false joins nothing
                shown = left.closed or is_worked_out(before) or not is_worked_out(right)
                if last > first + 1 and not whole and shown:
                    continue    # it says what the pair before has said
            if order >= 0:
                read_order(r, left, right, order, &fact, last == first + 1)
            elif left.num_items and right.num_items and not (left.choice or right.choice):
                read_coordinates(r, left, right, &fact)
            else:
                read_equation(r, left, right, &fact, whole)


cdef void read_equation(
    Algebra* r, const AlgebraSide* left, const AlgebraSide* right, FactRecord* fact, bint part
) noexcept nogil:
    cdef uint64_t inverses[POINTS]
    cdef Difference* difference = &r.waiting[r.num_waiting]
    equation_keys(r, left, right, fact, difference)
    if difference.kind:
        fact.kind = difference.kind
        if r.keep or r.table.wanted & GROUP_RENAMED:
            rename(r, left, right, fact)
        if r.waits:
            r.num_waiting += 1
            if fact.renamed:
                reach(r, &r.table.keys, fact.renamed, fact.start, fact.end)
            if r.num_waiting == MOST_WAITING:
                settle(r)
            return
        invert(inverses, inverses_of(difference, inverses))
        named_keys(difference, inverses, fact)
    if fact.num_keys:
        say(r, fact, part)


cdef void settle(Algebra* r) noexcept nogil:
    """Take the equations that wait."""
    cdef FactRecord fact
    cdef uint64_t inverses[MOST_INVERTED]
    cdef int index, count = 0
    for index in range(r.num_waiting):
        count += inverses_of(&r.waiting[index], &inverses[count])
    invert(inverses, count)
    count = 0
    for index in range(r.num_waiting):
        memset(&fact, 0, sizeof(FactRecord))
        named_keys(&r.waiting[index], &inverses[count], &fact)
        count += POINTS if has_bottoms(&r.waiting[index]) else 1
        say(r, &fact, False)
    r.num_waiting = 0


cdef void read_coordinates(
    Algebra* r, const AlgebraSide* left, const AlgebraSide* right, const FactRecord* place
) noexcept nogil:
    """Take the equations of two points' coordinates: (x, y) = (2, 3)."""
    cdef const AlgebraSide* points[2]
    cdef FactRecord fact
    cdef int index, side
    if left.num_items != right.num_items:
        return
    points[0] = left
    points[1] = right
    for index in range(left.num_items):
        for side in range(2):
            read_part(
                &r.parser, &r.coordinates[side], r.form + points[side].start,
                <int>(points[side].end - points[side].start), index,
            )
        fact = place[0]
        fact.spans = False
        read_equation(r, &r.coordinates[0], &r.coordinates[1], &fact, True)


cdef void read_order(
    Algebra* r, const AlgebraSide* left, const AlgebraSide* right, int relation, FactRecord* fact,
    bint part,
) noexcept nogil:
    if not r.table.wanted & GROUP_ORDER or (left.closed and right.closed):
        return
    fact.kind = KIND_ORDER if relation == LESS or relation == GREATER else KIND_ORDER_OR_EQUAL
    fact.num_keys = 1
    if relation == LESS or relation == AT_MOST:
        fact.keys[0] = order_key(left, right, <int>fact.kind)
    elif relation == GREATER or relation == AT_LEAST:
        fact.keys[0] = order_key(right, left, <int>fact.kind)
    else:
        return
    say(r, fact, part)


cdef bint begins_item(const Algebra* r, Cursor cursor) noexcept nogil:
    """Tell whether a piece without a relation begins like a value: S = 1, 2, 3."""
    cdef Py_ssize_t start, stop
    cdef int relation
    if not next_piece(r, &cursor, &start, &stop, &relation) or relation < SEPARATED:
        return False
    if start == stop:
        return False
    start += r.form[start] == c"-"
    if start + 3 <= stop and not memcmp(r.form + start, b"\xe2\x88\x9a", 3):
        return True     # a root
    return start < stop and digit(r.form[start])


cdef void read_token(Algebra* r, Py_ssize_t token, Py_ssize_t end) noexcept nogil:
    """Read the chains and the items of a token."""
    cdef Cursor cursor = cursor_of(token, end)
    cdef Py_ssize_t start, stop = token, first = token, first_end = token
    cdef int relation, sides = 0, pieces = 0
    while next_piece(r, &cursor, &start, &stop, &relation):
        if pieces == 0:
            first = start
            first_end = stop
        pieces += 1
        if (pieces > 1 or relation < SEPARATED) and sides < MAX_CHAIN:
            read_piece(r, &r.sides[sides], start, stop)
            sides += 1
            if relation < SEPARATED:
                r.relations[sides - 1] = <uint8_t>relation
        if relation < SEPARATED:
            continue
        r.run_end = <uint32_t>stop
        if pieces == 1 and stop < end and r.form[stop] == c":":
            begin_list(r, NULL)
        elif pieces == 1:
            read_item(r, start, stop)
        elif read_chain(
            r, sides, sides == pieces, first, first_end, stop,
            relation == SEPARATED and begins_item(r, cursor),
        ):
            # It has looked at the token before.
            mark_cuts(r, token, end)
        sides = pieces = 0


cdef bint has_relation(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t index
    cdef int width
    for index in range(length):
        if data[index] == 0xE2 and relation_at(data + index, length - index, &width) >= 0:
            return True
    return False


cdef bint is_factor(const Algebra* r, Py_ssize_t start, Py_ssize_t at) noexcept nogil:
    """Tell whether what begins at ``start`` ends, before ``at``, with a factor of a function.

    That is a digit, a letter, a function or a short product: 2, θ, 2ab, sinx; no word.
    """
    cdef Py_ssize_t first = at
    while first > max(start, at - MAX_FUNCTION) and letter(r.form[first - 1]):
        first -= 1
    if first == at:
        return digit(r.form[at - 1]) or (at - 2 >= start and greek_width(r.form + at - 2, 2))
    if at - first == 1 or is_segment(r.form + first, at - first) or function_at(
        r.form + first, at - first
    ):
        return True
    return at - first < MIN_WORD and first > start and not is_no_product(
        r.form + first, <int>(at - first)
    )


cdef bint ends_function(const Algebra* r, Py_ssize_t start, Py_ssize_t at) noexcept nogil:
    """Tell whether the name of a function stands before."""
    cdef int index, size
    for index in range(NUM_FUNCTIONS):
        size = function_sizes[index]
        if size <= at - start and not memcmp(r.form + at - size, function_names[index], size):
            return True
    return False


cdef bint begins_quotient(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """Tell whether a short fraction without a blank begins here: the argument of sin x/2."""
    cdef Py_ssize_t index
    for index in range(min(length, <Py_ssize_t>MAX_FUNCTION)):
        if byte_kinds[data[index]] & BYTE_BLANK:
            return False
        if data[index] == c"/":
            return index > 0
    return False


cdef bint joins(const Algebra* r, Py_ssize_t start, Py_ssize_t at) noexcept nogil:
    """Tell whether the blank at ``at`` stands within an expression that begins at ``start``."""
    cdef const uint8_t* behind = r.form + at + 1
    cdef Py_ssize_t left = r.length - at - 1, index = 0
    if r.form[at] != c" " or at == start or left == 0:
        return False
    if function_at(behind, min(left, <Py_ssize_t>MAX_FUNCTION)) and is_factor(r, start, at):
        return True
    if begins_quotient(behind, left) and ends_function(r, start, at):
        return True
    if not digit(r.form[at - 1]):
        return False
    while index < left and index < 4 and digit(behind[index]):
        index += 1
    if 0 < index < 4 and index + 1 < left and behind[index] == c"/" and digit(behind[index + 1]):
        return True
    if left > 1 and behind[0] == c"[" and letter(behind[1]):
        return True
    index = at
    while index > start and digit(r.form[index - 1]):
        index -= 1
    return index - start >= 4 and not memcmp(r.form + index - 4, b"log_", 4)


cdef Py_ssize_t token_end(const Algebra* r, Py_ssize_t start, uint8_t* kinds) noexcept nogil:
    """Return where the token ends that begins here, and set what kinds of bytes it has.

    A blank inside a product or a mixed number does not end it.
    """
    cdef Py_ssize_t at = start
    cdef uint8_t kind, found = 0
    while at < r.length:
        kind = byte_kinds[r.form[at]]
        if kind & BYTE_BLANK and not joins(r, start, at):
            break
        found |= kind
        at += 1
    kinds[0] = found
    return at


cdef bint is_conjunction(const Algebra* r, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    return (size == 3 and not memcmp(r.form + start, b"and", 3)) or (
        size == 2 and not memcmp(r.form + start, b"or", 2)
    )


cdef bint ends_in_conjunction(
    const Algebra* r, Py_ssize_t start, Py_ssize_t size
) noexcept nogil:
    """Tell whether a token ends in a comma and a conjunction: 2, 5, and 11."""
    cdef int word
    for word in range(2, 4):
        if size > word and r.form[start + size - word - 1] == c"," and is_conjunction(
            r, start + size - word, word
        ):
            return True
    return False


cdef bint may_say(
    const Algebra* r, Py_ssize_t start, Py_ssize_t size, uint8_t kinds
) noexcept nogil:
    """Tell whether a token has a relation or a number; all others are words."""
    if kinds & (BYTE_DIGIT | BYTE_RELATION):
        return True
    return kinds & BYTE_LEAD and has_relation(r.form + start, size)


cdef Py_ssize_t token_before(
    const Algebra* r, Py_ssize_t first, Py_ssize_t sign
) noexcept nogil:
    """Return where a token begins from which on all have to be read to read the sign's.

    That is the sign's token or one before it: a blank behind a digit or beside a function may stand
    inside a token, and what stands before " mod " is read together with what stands behind it.
    """
    cdef Py_ssize_t at = sign
    while at > first and not (
        byte_kinds[r.form[at - 1]] & BYTE_BLANK and not byte_kinds[r.form[at]] & BYTE_BLANK
        and not (at - 1 > first and digit(r.form[at - 2]))
        and not function_at(r.form + at, min(r.length - at, <Py_ssize_t>MAX_FUNCTION))
        and not ends_function(r, first, at - 1)
        and not is_modulus(r, at) and not mod_at(r, at - 1)
    ):
        at -= 1
    return at


cdef bint begins_chain(const Algebra* r, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Tell whether a relation ends the first piece of a token."""
    cdef Cursor cursor = cursor_of(start, end)
    cdef Py_ssize_t stop
    cdef int relation
    return next_piece(r, &cursor, &start, &stop, &relation) and relation < SEPARATED


cdef bint follows(const Algebra* r, Py_ssize_t start) noexcept nogil:
    """Tell whether an equation stands on the line below another, or behind a semicolon."""
    cdef Py_ssize_t end = r.run_end
    if end == 0 or start - end != 1 or r.num_items:
        return False
    return r.form[end] == c"\n" or (r.form[end] == c" " and r.form[end - 1] == c";")


cdef void read_paragraph(Algebra* r) noexcept nogil:
    cdef Py_ssize_t start = 0, end, size, sign = -1
    cdef uint8_t kinds
    cdef bint goes_on = False, related = False, relates
    # Lists are made of numbers; without names there are only lists, congruences and what is closed.
    cdef bint nameless = r.lists or r.table.wanted & (GROUP_CLOSED | GROUP_CONGRUENCE)
    r.run_start = r.run_end = r.num_parts = 0
    begin_list(r, NULL)
    r.last_start = r.last_end = 0
    while start < r.length:
        if start > sign and (r.run_end == 0 or not r.lists):
            # Words say nothing, unless they end a run.
            sign = next_sign(r.form, r.length, start, r.lists)
            if sign == r.length:
                return
            start = token_before(r, start, sign)
        end = token_end(r, start, &kinds)
        size = end - start
        if size == 0 or size > MAX_TOKEN or start < r.run_end or (
            (size == 3 or size == 6) and not memcmp(r.form + start, b"modulo", size)
        ):
            pass
        elif r.run_end and start - r.run_end <= 2 and is_conjunction(r, start, size):
            goes_on = r.form[r.run_end] == c" " if start - r.run_end == 1 else (
                r.form[r.run_end] == c"," and r.form[r.run_end + 1] == c" "
            )
        else:
            if may_say(r, start, size, kinds) and mark_cuts(r, start, end):
                relates = begins_chain(r, start, end)
                # 2016 mod 1000 = 16 is one congruence.
                if not goes_on and not (
                    relates and ((related and follows(r, start)) or is_modulus(r, start))
                ):
                    finish_run(r)
                    r.run_start = <uint32_t>start
                related = relates
                if nameless or kinds & BYTE_NAME:
                    read_token(r, start, end)
                else:
                    r.run_end = <uint32_t>end
                goes_on = ends_in_conjunction(r, start, size)
            else:
                finish_run(r)
                r.run_start = <uint32_t>start
                goes_on = related = False
            r.last_start = start
            r.last_end = end
        start = end + 1
    finish_run(r)


# --- the interface --------------------------------------------------------------------------------

cdef void algebra_free(AlgebraWorkspace* workspace) noexcept nogil:
    cdef Algebra* r = workspace.reader
    if r == NULL:
        return
    set_free(&r.keys)
    PyMem_RawFree(r.facts)
    PyMem_RawFree(r.runs)
    PyMem_RawFree(r)
    workspace.reader = NULL


cdef int equation_table_build(
    EquationTable* table, const uint64_t* hashes, const uint32_t* nodes, const uint64_t* shapes,
    const uint32_t* names, Py_ssize_t count
) noexcept nogil:
    """Make the table of keys with their nodes; those with a shape are renamed ones."""
    cdef Py_ssize_t index
    if keys_build(&table.keys, hashes, nodes, count):
        return -1
    for index in range(count):
        if shapes[index] and set_add(&table.shapes, shapes[index]):
            return -1
        if shapes[index]:
            table.renamed_names |= <uint32_t>1 << names[index]
    return 0


cdef void equation_table_free(EquationTable* table) noexcept nogil:
    keys_free(&table.keys)
    set_free(&table.shapes)


cdef Py_ssize_t equation_table_nbytes(const EquationTable* table) noexcept nogil:
    return table.keys.capacity * sizeof(KeySlot) + table.shapes.capacity * sizeof(uint64_t)


cdef int algebra_begin(AlgebraWorkspace* workspace) noexcept nogil:
    cdef Algebra* r = workspace.reader
    if r == NULL:
        r = workspace.reader = <Algebra*>PyMem_RawMalloc(sizeof(Algebra))
        if r == NULL:
            return -1
        memset(r, 0, <char*>r.waiting - <char*>r)
    set_clear(&r.keys)
    return 0


cdef int read_equations(
    AlgebraWorkspace* workspace, const uint8_t* form, Py_ssize_t length, Py_ssize_t base,
    const EquationTable* table, uint8_t* matched, uint8_t channel, EquationPlace* places
) noexcept nogil:
    cdef Algebra* r = workspace.reader
    cdef Py_ssize_t start = 0, at = 0
    r.table = table
    r.matched = matched
    r.channel = channel
    r.places = places
    r.failed = False
    r.lists = r.keep or table.wanted & (GROUP_LIST | GROUP_JOINED)
    r.waits = not r.keep and not table.wanted & GROUP_JOINED and places == NULL
    cdef const uint8_t* found
    while at <= length:
        found = <const uint8_t*>memchr(form + at, c"\n", length - at)
        at = length if found == NULL else found - form
        if at == length or (at + 1 < length and form[at + 1] == c"\n"):
            r.form = form + start
            r.length = at - start
            r.base = base + start
            read_paragraph(r)
            at += 1
            start = at + 1
        at += 1
    settle(r)
    return -1 if r.failed else 0


cdef uint32_t num_equations(const AlgebraWorkspace* workspace) noexcept nogil:
    cdef const Algebra* r = workspace.reader
    if r == NULL:
        return 0
    return <uint32_t>((r.keys.size + KEYS_AN_EQUATION - 1) // KEYS_AN_EQUATION)


def read_facts(bytes form):
    """Return what a normal form says, as ``pure.algebra.read_facts``."""
    cdef AlgebraWorkspace workspace
    cdef EquationTable table
    cdef const uint8_t* data = form
    cdef Py_ssize_t length = len(form), index
    cdef Algebra* r
    cdef FactRecord* fact
    cdef RunRecord* run
    cdef int failed
    memset(&workspace, 0, sizeof(AlgebraWorkspace))
    memset(&table, 0, sizeof(EquationTable))
    table.wanted = GROUP_ALL
    try:
        with nogil:
            failed = algebra_begin(&workspace)
            if not failed:
                workspace.reader.keep = True
                failed = read_equations(&workspace, data, length, 0, &table, NULL, 0, NULL)
        if failed:
            raise MemoryError(f"no memory to read {length} bytes")
        r = workspace.reader
        runs = []
        for index in range(r.num_runs):
            run = &r.runs[index]
            runs.append(FactRun([], run.start, run.end, run.parts, run.items))
        for index in range(r.num_facts):
            fact = &r.facts[index]
            keys = (fact.keys[0], fact.keys[1])[: fact.num_keys]
            runs[fact.run].facts.append(
                Fact(
                    FactKind(fact.kind), keys, fact.start, fact.end, bool(fact.spans), fact.size,
                    fact.names, fact.shape, fact.renamed,
                )
            )
        return runs
    finally:
        algebra_free(&workspace)


def read_expression_facts(text):
    """Return the normal form of an expression or a problem, and what it says."""
    form = stripped(normalize(text))
    return form, read_facts(form)


def states_equation(text) -> bool:
    """Return whether a text states an equation, or anything else that could reach a node."""
    return any(run.facts for run in read_expression_facts(text)[1])


cdef void _fill():
    cdef int index, at
    cdef uint64_t product = 1
    if len(algebra.FUNCTIONS) != NUM_FUNCTIONS or len(algebra.NO_PRODUCTS) > NUM_NO_PRODUCTS:
        raise AssertionError("the tables of functions and words have other sizes")
    for index, name in enumerate(algebra.FUNCTIONS):
        function_sizes[index] = len(name)
        function_begins[ord(name[0]) & 31] |= <uint32_t>1 << (ord(name[1]) & 31)
        for at, byte in enumerate(name.encode()):
            function_names[index][at] = byte
    global pi
    pi = algebra.element(algebra.name_hash("π".encode()))
    for index, name in enumerate(algebra.SYMMETRIC):
        symmetric[index] = algebra.name_hash(name.encode())
    for index, word in enumerate(sorted(algebra.NO_PRODUCTS)):
        no_product_sizes[index] = len(word)
        no_product_begins[ord(word[0]) & 31] |= <uint32_t>1 << (ord(word[1]) & 31)
        for at, byte in enumerate(word.encode()):
            no_products[index][at] = byte
    for kind, characters in (
        (BYTE_DIGIT, b"0123456789"), (BYTE_CUTS, b"()[],;:?=<>\xe2"), (BYTE_BLANK, b" \n"),
        (BYTE_RELATION, b"=<>"), (BYTE_LEAD, b"\xe2"),
    ):
        for byte in bytearray(characters):
            byte_kinds[byte] |= kind
    for byte in range(256):
        if letter(byte) or byte >= 0x80:
            byte_kinds[byte] |= BYTE_NAME
    for byte in algebra.CALLED.encode():
        called[byte] = True
    for index, prime in enumerate(algebra.SQUARES):
        squares[index] = prime
        square_roots[index] = pow(prime, (algebra.PRIME + 1) // 4, algebra.PRIME)
    for index in range(MAX_FACTORIAL + 1):
        factorials[index] = factorial(index) % algebra.PRIME
        product = 1
        for at in range(index, 1, -2):
            product = field_multiply(product, at)
        double_factorials[index] = product
    for index in range(MAX_RENAMED + 1):
        for at in range(POINTS):
            slot_points[index][at] = name_point(index, at)


_fill()
