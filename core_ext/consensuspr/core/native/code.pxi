# Code: its regions in a text, and the statements of its lines; as pure/statements/code.py.

cdef enum Fence:
    FENCE_NONE = 0, FENCE_PLAIN, FENCE_PYTHON, FENCE_OTHER

cdef enum LineKind:
    LINE_PROSE = 0, LINE_PYTHONIC, LINE_DECISIVE

cdef enum Mark:
    MARK_NUMBER = 0, MARK_NAME, MARK_OPERATOR, MARK_OTHER

cdef enum:
    # Operators of code, by their bytes.
    OP_ASSIGN = 0x3D            # =
    OP_WALRUS = 0x3D3A          # :=
    OP_POWER = 0x2A2A           # **
    OP_FLOOR = 0x2F2F           # //
    OP_POWER_ASSIGN = 0x3D2A2A  # **=
    OP_FLOOR_ASSIGN = 0x3D2F2F  # //=

cdef uint64_t CODE_LANGUAGES[16]   # hashes
cdef int NUM_LANGUAGES = 0
cdef uint8_t PYTHON_FOLLOWS[256]
cdef uint8_t PYTHON_BEGINS[256]
cdef uint8_t CODE_BEGINS[256]
cdef uint8_t MAY_BEGIN_CODE[256]    # that, or a blank before it

cdef extern from *:
    """
    #include "bytes16.h"

    /* Return where the next line begins behind ``at`` with one of these bytes, else ``end``. */
    static inline uint32_t next_line(
        const uint8_t* text, uint32_t at, uint32_t end, const uint8_t* bytes
    ) {
        for (; at < end; at += 16) {
            unsigned feeds = bits16(equal16(load16(text + at), '\\n'));
            for (; feeds; feeds &= feeds - 1) {
                const uint32_t line = at + (uint32_t)__builtin_ctz(feeds) + 1;
                if (bytes[text[line]])
                    return line;
            }
        }
        return end;
    }
    """
    uint32_t next_line(
        const uint8_t* text, uint32_t at, uint32_t end, const uint8_t* bytes
    ) noexcept nogil


# --- regions ------------------------------------------------------------------------------------

cdef inline uint32_t line_end(const Reader* r, uint32_t start) noexcept nogil:
    cdef const uint8_t* found
    if start >= r.length:
        return r.length
    found = <const uint8_t*>memchr(r.text + start, c'\n', r.length - start)
    return r.length if found == NULL else <uint32_t>(found - r.text)


cdef inline bint names(uint8_t byte) noexcept nogil:
    return is_ascii_letter(byte) or is_digit(byte) or byte == c'_'


cdef inline uint32_t past_blanks(const Reader* r, uint32_t at, uint32_t end) noexcept nogil:
    while at < end and is_blank(r.text[at]):
        at += 1
    return at


cdef inline uint32_t past_name(const Reader* r, uint32_t at, uint32_t end) noexcept nogil:
    """Return the index past a name of code; ``at`` where there is none."""
    if at >= end or is_digit(r.text[at]):
        return at
    while at < end and names(r.text[at]):
        at += 1
    return at


cdef int fence_at(const Reader* r, uint32_t start, uint32_t end) noexcept nogil:
    """Tell what kind of fence a line is."""
    cdef uint32_t at = past_blanks(r, start, end)
    cdef uint8_t byte
    cdef uint64_t language = <uint64_t>HASH_START
    cdef uint32_t first
    cdef int index
    if at + 3 > end:
        return FENCE_NONE
    byte = r.text[at]
    if byte not in b"`~" or r.text[at + 1] != byte or r.text[at + 2] != byte:
        return FENCE_NONE
    at = past_blanks(r, at + 3, end)
    first = at
    while at < end and (names(r.text[at]) or r.text[at] in b"+-"):
        language = hash_step(language, LOWER_OF[r.text[at]])
        at += 1
    if at == first:
        return FENCE_PLAIN
    for index in range(NUM_LANGUAGES):
        if CODE_LANGUAGES[index] == language:
            return FENCE_PYTHON
    return FENCE_OTHER


cdef uint32_t closing_fence(const Reader* r, uint32_t start) noexcept nogil:
    cdef uint32_t end
    while start < r.length:
        end = line_end(r, start)
        if fence_at(r, start, end) != FENCE_NONE:
            return start
        start = end + 1
    return r.length


cdef inline bint may_be_python(const Reader* r, uint32_t start, uint32_t end) noexcept nogil:
    """Turn nearly all lines of prose away by what follows their first word."""
    cdef uint32_t at = past_blanks(r, start, end)
    cdef uint32_t first = at
    cdef uint8_t byte
    if at >= end or r.text[at] == c'\r':
        return False
    byte = r.text[at]
    if not (is_ascii_letter(byte) or byte == c'_'):
        return byte in b"#)]}"
    while at < end and names(r.text[at]):
        at += 1
    while at < end and (is_blank(r.text[at]) or r.text[at] == c'\r'):
        at += 1
    if at >= end or PYTHON_FOLLOWS[r.text[at]]:
        return True
    return PYTHON_BEGINS[r.text[first]] and begins_python(r, first, end)


cdef bint begins_python(const Reader* r, uint32_t at, uint32_t end) noexcept nogil:
    """Tell whether a line begins with a word that Python's statements begin with."""
    return is_word(
        r.text, at, past_name(r, at, end),
        b" def class for from import return while if elif with except ",
    )


cdef inline bint begins(
    const Reader* r, uint32_t at, uint32_t end, const char* word, uint32_t size
) noexcept nogil:
    return at + size <= end and memcmp(r.text + at, word, size) == 0


cdef bint is_word(
    const uint8_t* text, uint32_t start, uint32_t end, const char* words
) noexcept nogil:
    """Tell whether text[start:end] is one of ``words``, each between blanks."""
    cdef uint32_t size = end - start
    while words[0]:
        words += 1
        if strncmp(words, <const char*>text + start, size) == 0 and words[size] == c' ':
            return True
        while words[0] and words[0] != c' ':
            words += 1
    return False


cdef inline bint named_after(const Reader* r, uint32_t at, uint32_t end) noexcept nogil:
    """Tell whether blanks and then a name stand at ``at``."""
    cdef uint32_t name = past_blanks(r, at, end)
    return name > at and past_name(r, name, end) > name


cdef bint has_in(const Reader* r, uint32_t at, uint32_t end) noexcept nogil:
    """Tell whether " in " stands in [at, end)."""
    while at + 4 <= end:
        if (
            is_blank(r.text[at])
            and r.text[at + 1] == c'i'
            and r.text[at + 2] == c'n'
            and is_blank(r.text[at + 3])
        ):
            return True
        at += 1
    return False


cdef bint may_hold_code(const Reader* r) noexcept nogil:
    """Turn nearly all texts away that hold no fence and no line that marks code."""
    cdef uint32_t start = 0, at, end
    while start < r.length:
        at = past_blanks(r, start, r.length)
        if CODE_BEGINS[r.text[at]]:
            end = line_end(r, at)
            if (
                r.text[at] in b"`~"
                or begins(r, at, end, b"print(", 6)
                or begins_python(r, at, end)
            ):
                return True
        start = next_line(r.text, start, r.length, MAY_BEGIN_CODE)
    return False


cdef int line_kind(const Reader* r, uint32_t start, uint32_t end) noexcept nogil:
    """Classify a line without trailing blanks."""
    cdef const uint8_t* text = r.text
    cdef uint32_t at = past_blanks(r, start, end)
    cdef uint32_t name = past_name(r, at, end), next_name
    cdef bint block
    cdef uint8_t byte
    if at >= end:
        return LINE_PROSE
    block = text[end - 1] == c':'
    if (
        begins(r, at, end, b"print(", 6)
        or (block and is_word(text, at, name, b" def class ") and named_after(r, name, end))
        or (
            block
            and is_word(text, at, name, b" for ")
            and named_after(r, name, end)
            and has_in(r, past_name(r, past_blanks(r, name, end), end), end)
        )
        or (at == start and is_word(text, at, name, b" import from ") and named_after(r, name, end))
        or (
            at > start
            and is_word(text, at, name, b" return ")
            and (name == end or is_blank(text[name]))
        )
    ):
        return LINE_DECISIVE
    if text[at] in b"#)]}" or (
        block
        and (
            is_word(text, at, name, b" for while if elif with except ")
            or (
                past_blanks(r, name, end) == end - 1
                and is_word(text, at, name, b" else try finally ")
            )
        )
    ):
        return LINE_PYTHONIC
    if name == at:
        return LINE_PROSE
    if name == end:
        return LINE_PYTHONIC if is_word(text, at, name, b" pass break continue ") else LINE_PROSE
    at = past_blanks(r, name, end)
    while at < end and r.text[at] == c',':
        next_name = past_blanks(r, at + 1, end)
        name = past_name(r, next_name, end)
        if name == next_name:
            return LINE_PROSE
        at = past_blanks(r, name, end)
    if at >= end:
        return LINE_PROSE
    byte = r.text[at]
    if byte in b"*/" and at + 1 < end and r.text[at + 1] == byte:
        at += 2
    elif byte in b"+-*/":
        at += 1
    if at < end and r.text[at] == c'=' and not (at + 1 < end and r.text[at + 1] == c'='):
        return LINE_PYTHONIC
    return LINE_PROSE


cdef int count_quotes(const Reader* r, uint32_t at, uint32_t end, uint8_t mark) noexcept nogil:
    """Count the triple quotes of a line that do not overlap."""
    cdef int count = 0
    while at + 3 <= end:
        if r.text[at] == mark and r.text[at + 1] == mark and r.text[at + 2] == mark:
            count += 1
            at += 3
        else:
            at += 1
    return count


cdef uint32_t python_lines(
    const Reader* r, uint32_t start, uint32_t limit, bint* is_code
) noexcept nogil:
    """Return where the lines from ``start`` on end that may be Python; are they Python?"""
    cdef bint decisive = False
    cdef uint8_t quotes = 0
    cdef uint32_t last = start
    cdef uint32_t opened = start
    cdef uint32_t end, line, first, following
    cdef int kind
    while start < limit:
        end = line_end(r, start)
        if end > limit:
            end = limit
        following = end + 1 if end + 1 < limit else limit
        line = end
        while line > start and (is_blank(r.text[line - 1]) or r.text[line - 1] == c'\r'):
            line -= 1
        first = past_blanks(r, start, line)
        if quotes:
            if count_quotes(r, start, line, quotes):
                quotes = 0
                last = following
        elif first < line:
            kind = line_kind(r, start, line)
            if kind == LINE_DECISIVE:
                decisive = True
            elif kind == LINE_PROSE and not (
                decisive
                and (begins(r, first, line, b'"""', 3) or begins(r, first, line, b"'''", 3))
            ):
                break
            if count_quotes(r, start, line, c'"') & 1:
                quotes = c'"'
                opened = following
            elif count_quotes(r, start, line, c"'") & 1:
                quotes = c"'"
                opened = following
            else:
                last = following
        start = end + 1
    if quotes:
        last = opened
    is_code[0] = decisive
    return last


# --- lines -----------------------------------------------------------------------------------

cdef struct Code:
    Reader* r
    const uint8_t* text
    uint32_t at, end
    int size            # tokens of the line
    bint whole          # they are all of it
    bint conditional
    uint32_t conditional_indent


cdef inline uint8_t code_peek(const Code* c, uint32_t at) noexcept nogil:
    return c.text[at] if at < c.end else 0


cdef void read_string(Code* c, uint8_t quote) noexcept nogil:
    """Read a string; one that is not closed ends with its line, or with the code."""
    cdef uint32_t start = c.at + 1
    cdef uint32_t quotes = 1
    if code_peek(c, start) == quote and code_peek(c, start + 1) == quote:
        start += 2
        quotes = 3
    c.at = start
    while c.at < c.end:
        if c.text[c.at] == quote and (
            quotes == 1
            or (code_peek(c, c.at + 1) == quote and code_peek(c, c.at + 2) == quote)
        ):
            break
        if quotes == 1:
            if c.text[c.at] in b"\n\r":
                quotes = 0
                break
            c.at += c.text[c.at] == c'\\'
        c.at += 1
    c.at = min(c.at, c.end)
    read_prose(c.r, start, c.at)
    c.at = min(c.at + quotes, c.end)


cdef bint code_number(
    const uint8_t* text, uint32_t start, uint32_t end, int64_t* num, int64_t* den, uint32_t* shown
) noexcept nogil:
    """Read a number, and how many decimals it shows; tell whether it can be computed with."""
    cdef int64_t digits = 0
    cdef uint32_t significant = 0, decimals = 0, at
    cdef bint point = False
    cdef uint64_t divisor
    cdef uint8_t byte
    for at in range(start, end):
        byte = text[at]
        if byte == c'.':
            point = True
        elif is_digit(byte):
            significant += significant > 0 or byte != c'0'
            decimals += point
            if significant <= MAX_DIGITS:
                digits = digits * 10 + (byte - c'0')
    if significant > MAX_DIGITS or decimals > MAX_DIGITS:
        return False
    divisor = common_divisor(<uint64_t>digits, <uint64_t>TENS[decimals])
    num[0] = digits // <int64_t>divisor
    den[0] = TENS[decimals] // <int64_t>divisor
    shown[0] = decimals
    return True


cdef uint32_t operator_length(const Code* c, uint32_t* op) noexcept nogil:
    """Return how many bytes the operator at this place has, 0 for none."""
    cdef uint8_t first = c.text[c.at]
    cdef uint8_t second = code_peek(c, c.at + 1)
    cdef uint32_t size = 0
    if first in b"*/":
        if second == first:
            size = 3 if code_peek(c, c.at + 2) == c'=' else 2
        else:
            size = 2 if second == c'=' else 1
    elif first in b"-+":
        # The longer operators come last in the Python engine's pattern: -= before ->.
        size = 2 if second == c'=' else 1
    elif first in b"=<>":
        size = 2 if second == c'=' else 1
    elif first in b"!:":
        size = 2 if second == c'=' else (1 if first == c':' else 0)
    elif first < 0x80 and strchr("(),[]{}%", first) != NULL:
        size = 1
    op[0] = first
    if size > 1:
        op[0] |= <uint32_t>second << 8
    if size > 2:
        op[0] |= <uint32_t>c'=' << 16
    return size


cdef uint32_t code_line(Code* c) noexcept nogil:
    """Read one logical line into the reader's tokens; return its indentation."""
    cdef uint32_t indent = 0, depth = 0, start, op, size, decimals = 0
    cdef uint8_t byte, mark
    cdef int64_t num = 0, den = 1
    cdef Lexeme* lexeme
    c.size = 0
    c.whole = True
    while c.at < c.end and is_blank(c.text[c.at]):
        indent += 1
        c.at += 1
    while c.at < c.end:
        byte = c.text[c.at]
        start = c.at
        op = 0
        if byte in b"\n\r":
            c.at += 1
            if depth == 0:
                break
            continue
        if is_blank(byte):
            c.at += 1
            continue
        if byte == c';' and depth == 0:
            c.at += 1
            break
        if byte == c'#':
            c.at = min(line_end(c.r, start), c.end)
            read_prose(c.r, start + 1, c.at)
            continue
        if byte == c'\\' and code_peek(c, start + 1) in b"\n\r":
            c.at += 2
            continue
        if byte in b"\"'":
            read_string(c, byte)
            mark = MARK_OTHER
        elif is_digit(byte) or (byte == c'.' and is_digit(code_peek(c, start + 1))):
            while is_digit(code_peek(c, c.at)) or (c.at > start and code_peek(c, c.at) == c'_'):
                c.at += 1
            if code_peek(c, c.at) == c'.':
                c.at += 1
                while is_digit(code_peek(c, c.at)):
                    c.at += 1
            mark = MARK_NUMBER
            if code_number(c.text, start, c.at, &num, &den, &decimals):
                count(c.r, &c.r.numbers, num, den)
                add_result(c.r, num, den, decimals, start)
        elif is_ascii_letter(byte) or byte == c'_':
            while c.at < c.end and names(c.text[c.at]):
                c.at += 1
            mark = MARK_NAME
        else:
            size = operator_length(c, &op)
            if size:
                c.at += size
                mark = MARK_OPERATOR
                if byte in b"([{":
                    depth += 1
                elif byte in b")]}" and depth:
                    depth -= 1
            else:
                c.at += 1
                mark = MARK_OTHER
                op = 0
        if c.size >= MAX_LINE:
            c.whole = False
        else:
            lexeme = &c.r.line[c.size]
            c.size += 1
            lexeme.mark = mark
            lexeme.op = op
            lexeme.start = start
            lexeme.end = c.at
    return indent


# --- names ------------------------------------------------------------------------------------

cdef Name* names_of(Reader* r) noexcept nogil:
    """Return the table of names, which only texts with code need; NULL without memory."""
    if r.names == NULL:
        r.names = <Name*>PyMem_RawCalloc(2 * MAX_NAMES, sizeof(Name))
        if r.names == NULL:
            r.failed = True
    return r.names


cdef Name* find_known(Code* c, const Lexeme* name) noexcept nogil:
    """Return the slot of a name, which may be empty."""
    cdef uint64_t value = hash_bytes(c.text, name.start, name.end)
    cdef uint32_t slot = <uint32_t>(value >> 32)
    cdef Name* entry
    while True:
        entry = &c.r.names[slot & (2 * MAX_NAMES - 1)]
        if entry.hash in (value, 0):
            return entry
        slot += 1


cdef void bind_name(
    Code* c, const Lexeme* name, bint known, int64_t num, int64_t den
) noexcept nogil:
    cdef Name* entry = find_known(c, name)
    if entry.hash == 0:
        if c.r.num_names >= MAX_NAMES:
            return
        c.r.bound[c.r.num_names] = <uint16_t>(entry - c.r.names)
        c.r.num_names += 1
        entry.hash = hash_bytes(c.text, name.start, name.end)
    entry.known = known
    entry.num = num
    entry.den = den


cdef void make_unknown(Code* c, const Lexeme* name) noexcept nogil:
    cdef Name* entry = find_known(c, name)
    if entry.hash:
        entry.known = False


cdef inline bint is_named(const Code* c, const Lexeme* lexeme, const char* words) noexcept nogil:
    return lexeme.mark == MARK_NAME and is_word(c.text, lexeme.start, lexeme.end, words)


cdef inline int augmented(uint32_t op) noexcept nogil:
    """Return the operator of +=, -=, ...; 0 for none."""
    if op == OP_POWER_ASSIGN:
        return c'^'
    if op == OP_FLOOR_ASSIGN:
        return c'F'
    if op >> 8 == c'=':
        op &= 0xFF
        if op in b"+-*/":
            return <int>op
    return 0


cdef inline bint assigns(const Lexeme* lexeme) noexcept nogil:
    """Tell whether a name before this token may be bound by it."""
    cdef uint32_t op = lexeme.op
    if lexeme.mark != MARK_OPERATOR:
        return False
    return op in b"=,:)" or augmented(op) != 0


cdef void forget(Code* c) noexcept nogil:
    """Every name that this line may bind is unknown from here on."""
    cdef bint binding = is_named(
        c, &c.r.line[0], b" for def class import from global nonlocal del with except "
    )
    cdef int index
    for index in range(c.size):
        if c.r.line[index].mark == MARK_NAME and (
            binding or (index + 1 < c.size and assigns(&c.r.line[index + 1]))
        ):
            make_unknown(c, &c.r.line[index])


cdef void forget_inner(Code* c) noexcept nogil:
    """The names that a comprehension or := binds within a line are unknown, too."""
    cdef bint bound = False
    cdef int index
    cdef Lexeme* lexeme
    for index in range(c.size):
        lexeme = &c.r.line[index]
        if lexeme.mark != MARK_NAME:
            continue
        if is_named(c, lexeme, b" for "):
            bound = index > 0
        elif is_named(c, lexeme, b" in "):
            bound = False
        elif bound or (index + 1 < c.size and c.r.line[index + 1].op == OP_WALRUS):
            make_unknown(c, lexeme)


# --- statements ----------------------------------------------------------------------------------

cdef int seen_function(const Code* c, const Lexeme* name) noexcept nogil:
    if is_named(c, name, b" int Integer "):
        return SEEN_INT
    if is_named(c, name, b" float "):
        return SEEN_FLOAT
    if is_named(c, name, b" round "):
        return SEEN_ROUND
    if is_named(c, name, b" abs "):
        return SEEN_ABS
    return SEEN_RATIONAL if is_named(c, name, b" Rational Fraction ") else SEEN_NONE


cdef Item* code_item(Code* c, int kind, const Lexeme* lexeme) noexcept nogil:
    cdef Item* item = &c.r.items[c.r.num_items]
    c.r.num_items += 1
    item.kind = kind
    item.op = 0
    item.seen = SEEN_NONE
    item.plain = True
    item.decimals = 0
    item.start = lexeme.start
    item.end = lexeme.end
    item.num = 0
    item.den = 1
    return item


cdef bint code_items(Code* c, int start, int end) noexcept nogil:
    """Append an expression's items, names being their values; False for anything else."""
    cdef int at = start
    cdef Lexeme* lexeme
    cdef Item* item
    cdef Name* name
    cdef int seen, kind
    cdef uint32_t decimals = 0
    cdef int first = c.r.num_items
    while at < end:
        lexeme = &c.r.line[at]
        at += 1
        if lexeme.mark == MARK_NUMBER:
            item = code_item(c, I_NUMBER, lexeme)
            if not code_number(c.text, lexeme.start, lexeme.end, &item.num, &item.den, &decimals):
                return False
        elif lexeme.mark == MARK_NAME:
            if at < end and is_operator(&c.r.line[at], c'('):
                seen = seen_function(c, lexeme)
                if seen == SEEN_NONE:
                    return False
                code_item(c, I_OPEN, lexeme).seen = seen
                at += 1
                continue
            name = find_known(c, lexeme)
            if name.hash == 0 or not name.known:
                return False
            item = code_item(c, I_NUMBER, lexeme)
            item.num = name.num
            item.den = name.den
        elif lexeme.mark == MARK_OPERATOR:
            if lexeme.op == OP_POWER:
                code_item(c, I_OPERATOR, lexeme).op = c'^'
            elif lexeme.op == OP_FLOOR:
                code_item(c, I_OPERATOR, lexeme).op = c'F'
            elif lexeme.op in b"+-*/":
                code_item(c, I_OPERATOR, lexeme).op = <uint8_t>lexeme.op
            elif lexeme.op == c'(':
                if c.r.num_items > first:
                    kind = c.r.items[c.r.num_items - 1].kind
                    if kind in (I_NUMBER, I_CLOSE):
                        return False
                code_item(c, I_OPEN, lexeme)
            elif lexeme.op == c')':
                code_item(c, I_CLOSE, lexeme)
            elif lexeme.op == c',':
                code_item(c, I_COMMA, lexeme)
            else:
                return False
        else:
            return False
    return True


cdef bint code_value(
    Code* c, int first_item, uint32_t start, uint32_t end, int64_t* num, int64_t* den
) noexcept nogil:
    """Work out the items from ``first_item`` on and state what they say."""
    cdef Value value
    cdef Part* parts
    cdef int num_parts
    c.r.num_parts = 0
    if not evaluate(c.r, c.r.items, first_item, c.r.num_items, &value, &parts, &num_parts):
        return False
    state(c.r, parts, num_parts, start, end, True, True)
    num[0] = value.num
    den[0] = value.den
    return True


cdef bint code_stated(Code* c, int start, int end, int64_t* num, int64_t* den) noexcept nogil:
    c.r.num_items = 0
    if start >= end or not code_items(c, start, end):
        return False
    return code_value(c, 0, c.r.line[start].start, c.r.line[end - 1].end, num, den)


cdef inline bint is_operator(const Lexeme* lexeme, uint32_t op) noexcept nogil:
    return lexeme.mark == MARK_OPERATOR and lexeme.op == op


cdef inline int nesting(const Lexeme* lexeme) noexcept nogil:
    """Return 1 for an opening bracket, -1 for a closing one, else 0."""
    if lexeme.mark != MARK_OPERATOR:
        return 0
    return (lexeme.op in b"([{") - (lexeme.op in b")]}")


cdef int argument_end(const Code* c, int start, int end) noexcept nogil:
    """Return where the piece from ``start`` on ends: a comma in no bracket, or ``end``."""
    cdef int depth = 0, at
    for at in range(start, end):
        depth += nesting(&c.r.line[at])
        if depth == 0 and is_operator(&c.r.line[at], c','):
            return at
    return end


cdef int next_assignment(const Code* c, int at, int* depth) noexcept nogil:
    """Return the next sign of assignment in no bracket, -1 if there is none."""
    while at < c.size:
        depth[0] += nesting(&c.r.line[at])
        if depth[0] <= 0 and is_operator(&c.r.line[at], c'='):
            return at
        at += 1
    return -1


cdef int count_pieces(const Code* c, int start, int end) noexcept nogil:
    """Count the pieces between commas that are not empty."""
    cdef int count = 0, stop_at
    while start <= end:
        stop_at = argument_end(c, start, end)
        count += stop_at > start
        start = stop_at + 1
    return count


cdef void augment_name(Code* c, int op) noexcept nogil:
    """Read a line like ``total += 3``."""
    cdef Lexeme* line = c.r.line
    cdef Name* name = find_known(c, &line[0])
    cdef bint known = name.hash != 0 and name.known
    cdef Item* item
    cdef int64_t num = 0, den = 1
    cdef int first
    c.r.num_items = 0
    if known:
        item = code_item(c, I_NUMBER, &line[0])
        item.num = name.num
        item.den = name.den
        code_item(c, I_OPERATOR, &line[1]).op = <uint8_t>op
        if c.size > 3:
            code_item(c, I_OPEN, &line[1])
        first = c.r.num_items
        known = code_items(c, 2, c.size) and (c.r.num_items - first > 1 or c.size == 3)
        if c.size > 3:
            code_item(c, I_CLOSE, &line[c.size - 1])
        known = known and code_value(c, 0, line[0].start, line[c.size - 1].end, &num, &den)
    bind_name(c, &line[0], known, num, den)


cdef void bind_targets(Code* c, int at, int end, int num_values) noexcept nogil:
    """Bind the names in [at, end) to the values that have been worked out."""
    cdef Lexeme* line = c.r.line
    cdef int num_targets = count_pieces(c, at, end), piece = 0, stop_at
    cdef const Name* value
    while at <= end:
        stop_at = argument_end(c, at, end)
        if stop_at > at:
            if line[at].mark == MARK_NAME and (
                stop_at - at == 1 or is_operator(&line[at + 1], c':')
            ):
                value = &c.r.assigned[piece]
                if num_targets == num_values:
                    bind_name(c, &line[at], value.known, value.num, value.den)
                else:
                    bind_name(c, &line[at], False, 0, 1)
            piece += 1
        at = stop_at + 1


cdef void code_assignment(Code* c) noexcept nogil:
    cdef Lexeme* line = c.r.line
    cdef int depth = 0, last = -1, begin = 0, num_values = 0, at, stop_at
    cdef int64_t num = 0, den = 1
    cdef Name* value
    if c.size > 2 and line[0].mark == MARK_NAME and line[1].mark == MARK_OPERATOR:
        if augmented(line[1].op):
            augment_name(c, augmented(line[1].op))
            return
    at = next_assignment(c, 0, &depth)
    while at >= 0:
        last = at
        at = next_assignment(c, at + 1, &depth)
    if last < 0:
        forget(c)
        return
    # Every value is worked out before any name is bound.
    at = last + 1
    while at <= c.size:
        stop_at = argument_end(c, at, c.size)
        if stop_at > at:
            value = &c.r.assigned[num_values]
            value.known = code_stated(c, at, stop_at, &num, &den)
            value.num = num
            value.den = den
            num_values += 1
        at = stop_at + 1
    depth = 0
    at = next_assignment(c, 0, &depth)
    while at >= 0:
        bind_targets(c, begin, at, num_values)
        begin = at + 1
        at = next_assignment(c, begin, &depth)


cdef void code_statement(Code* c, uint32_t indent) noexcept nogil:
    cdef Lexeme* line = c.r.line
    cdef int index, at, sign
    cdef int64_t num = 0, den = 1
    if c.conditional and indent <= c.conditional_indent:
        c.conditional = False
    forget_inner(c)
    if is_named(c, &line[0], b" for while if elif else except match case async "):
        for index in range(min(c.size, 3)):
            if is_named(c, &line[index], b" __name__ "):
                return
        if not c.conditional:
            c.conditional = True
            c.conditional_indent = indent
        forget(c)
        return
    if (
        not c.whole
        or c.conditional
        or is_named(
            c, &line[0],
            b" with try finally class def import from global nonlocal del lambda ",
        )
    ):
        forget(c)
        return
    if is_named(c, &line[0], b" return "):
        code_stated(c, 1, c.size, &num, &den)
    elif (
        is_named(c, &line[0], b" print ")
        and c.size > 2
        and is_operator(&line[1], c'(')
        and is_operator(&line[c.size - 1], c')')
    ):
        at = 2
        while at <= c.size - 1:
            sign = argument_end(c, at, c.size - 1)
            code_stated(c, at, sign, &num, &den)
            at = sign + 1
    else:
        code_assignment(c)


cdef void read_code(Reader* r, uint32_t start, uint32_t end) noexcept nogil:
    cdef Code c
    cdef uint32_t indent
    cdef uint8_t behind
    if names_of(r) == NULL:
        return
    c.r = r
    c.text = r.text
    c.at = start
    c.end = end
    c.conditional = False
    c.conditional_indent = 0
    behind = r.text[end]
    r.text[end] = 0
    count_written(r, start, end, NOWHERE)
    r.text[end] = behind
    while c.at < end:
        indent = code_line(&c)
        if c.size:
            code_statement(&c, indent)


# --- tables ------------------------------------------------------------------------------------

_KINDS = {
    tables.Command.EMIT: X_EMIT,
    tables.Command.SPACE: X_GAP,
    tables.Command.THIN: X_GAP,
    tables.Command.NOTHING: X_NOTHING,
    tables.Command.MARK: X_NOTHING,
    tables.Command.DELIMITER: X_DELIMITER,
    tables.Command.BREAK: X_STOP,
    tables.Command.WRAP: X_WRAP,
    tables.Command.TEXT: X_TEXT,
    tables.Command.UPRIGHT: X_TEXT,
    tables.Command.DISCARD: X_DISCARD,
    tables.Command.ENVIRONMENT: X_ENVIRONMENT,
    tables.Command.FRAC: X_FRAC,
}
_COMMANDS_APART = {
    "%": X_PERCENT, "{": X_OPEN, "}": X_CLOSE, "\\": X_LINE, "newline": X_LINE, "linebreak": X_LINE
}


cdef uint64_t name_hash(bytes name):
    cdef const uint8_t* raw = name
    return hash_bytes(raw, 0, <uint32_t>len(name))


cdef bint place_words(int count):
    """Place each word by its hash; tell whether no two of them meet."""
    cdef int index
    cdef uint32_t slot
    memset(MEANING_AT, 0, sizeof(MEANING_AT))
    for index in range(1, count + 1):
        slot = word_slot(MEANINGS[index].first, MEANINGS[index].rest)
        if MEANING_AT[slot]:
            return False
        MEANING_AT[slot] = index
    return True


def _fill():
    """Copy the vocabulary of consensuspr.core.statements and .tables into C."""
    global NUM_LANGUAGES, OPERATIONS, WORD_FACTOR
    cdef uint32_t slot
    cdef uint64_t value
    cdef WordMeaning* entry
    cdef Unit unit
    argument = re.compile(f"[{statements.ARGUMENT}]")
    fractions = {char: index for index, char in enumerate(tables.FRACTIONS)}
    superscripts = {char: index for index, char in enumerate(tables.SUPERSCRIPTS)}
    for code in range(256):
        char = tables.CHAR_MAP.get(code, chr(code)) if code < 128 else ""
        KIND_OF[code] = int(tables.CHAR_CLASSES.get(char, tables.Char.OTHER))
        LOWER_OF[code] = code + 32 if 65 <= code <= 90 else code
        UNIT_LETTER[code] = code < 128 and chr(code) in tables.UNIT_LETTERS
        UNNAMED_BYTE[code] = code < 128 and char in statements.UNNAMED
        IN_ARGUMENT[code] = code < 128 and argument.fullmatch(char) is not None
        GROUPS[code] = code < 128 and char in ",{\\"
    for byte, kind in (
        (B_TIMES, CH_TIMES), (B_MINUS, CH_MINUS), (B_APPROX, CH_RELATION), (B_DOTS, CH_OTHER),
        (B_DEGREE, CH_DROP), (B_LETTER, CH_LETTER), (B_SYMBOL, CH_SYMBOL), (B_ROOT, CH_ROOT),
        (B_PLUS_MINUS, CH_PLUS_MINUS), (B_RELATION, CH_RELATION), (B_BULLET, CH_BULLET),
        (B_ARROW, CH_ARROW), (B_OTHER, CH_OTHER),
    ):
        KIND_OF[byte] = kind
    KIND_OF[0] = CH_NEWLINE  # the end
    for index, begins in enumerate(tables.DISPLAYS):
        encoded = begins.encode()
        memcpy(DISPLAY_STARTS[<int>index], <const char*>encoded, len(encoded))
        DISPLAY_SIZES[<int>index] = len(encoded)
    for char, index in fractions.items():
        above, below = tables.FRACTIONS[char].split("/")
        KIND_OF[B_FRACTIONS + index] = CH_FRACTION
        FRACTION_ABOVE[index] = int(above)
        FRACTION_BELOW[index] = int(below)
    for char, index in superscripts.items():
        KIND_OF[B_SUPERSCRIPTS + index] = CH_SUPERSCRIPT
        SUPERSCRIPT_TEXT[index] = ord(tables.SUPERSCRIPTS[char])
    for index in range(len(tables.SUBSCRIPTS)):
        KIND_OF[B_SUBSCRIPTS + index] = CH_SUBSCRIPT
    for code in range(256):
        kind = KIND_OF[code]
        # What may follow the first word of an assignment, print(), else: and so on.
        PYTHON_FOLLOWS[code] = code < 128 and chr(code) in "=+-*/,(:"
        CODE_BEGINS[code] = code < 128 and chr(code) in "dcpfir`~"
        MAY_BEGIN_CODE[code] = CODE_BEGINS[code] or is_blank(code)
        PYTHON_BEGINS[code] = code < 128 and chr(code) in "dcfirwe"
        BESIDE_EQUALS[code] = code < 128 and chr(code) in "!~:=<>"
        MARKS[code] = kind in (CH_MINUS, CH_STAR, CH_PLUS, CH_BULLET, CH_DIGIT, CH_OPEN, CH_BAR)
        GOES_ON[code] = (
            kind in (CH_DIGIT, CH_UNDERSCORE, CH_PRIME) or code in (ord("-"), B_LETTER)
        )
        NUMBER_GOES_ON[code] = code < 128 and chr(code) in ".,{\\"
        PASSED[code] = (
            PASSED_LINE if kind == CH_NEWLINE
            else PASSED_POINT if kind == CH_POINT
            else PASSED_PRIME if kind == CH_PRIME
            else PASSED_COLON if kind == CH_COLON
            else PASSED_NOT
            if kind in (
                CH_DIGIT, CH_EQUALS, CH_FRACTION, CH_SUPERSCRIPT, CH_SUBSCRIPT, CH_UNDERSCORE,
                CH_PLUS, CH_MINUS, CH_STAR, CH_TIMES, CH_BULLET, CH_SLASH, CH_CARET, CH_OPEN,
                CH_BRACKET_OPEN, CH_BRACE_OPEN, CH_CLOSE, CH_BRACKET_CLOSE, CH_BRACE_CLOSE,
                CH_BAR, CH_BANG, CH_PLUS_MINUS, CH_SYMBOL, CH_ROOT, CH_DROP, CH_BACKSLASH,
                CH_AMPERSAND, CH_LESS, CH_GREATER,
            )
            or code in (B_APPROX, B_DOTS)
            else PASSED_STOP
            if kind in (CH_COMMA, CH_SENTENCE_END, CH_HASH, CH_ARROW, CH_RELATION, CH_OTHER)
            or (kind == CH_MARK and chr(code) not in "$`")
            else PASSED_OVER
        )
        PLAIN_SIGNS[code].op = ord("*") if kind == CH_TIMES else code if kind == CH_PLUS else 0
        PLAIN_SIGNS[code].kind = (
            T_OPERATOR if kind in (CH_PLUS, CH_TIMES)
            else T_OPEN if kind in (CH_OPEN, CH_BRACKET_OPEN)
            else T_CLOSE if kind in (CH_CLOSE, CH_BRACKET_CLOSE)
            else T_COLON if kind == CH_COLON
            else T_PERCENT if code == ord("%")
            else T_AMPERSAND if kind == CH_AMPERSAND
            else T_NAME if kind in (CH_SYMBOL, CH_ROOT, CH_PLUS_MINUS)
            else T_DOTS if code == B_DOTS
            else T_NONE
        )
    operations = {
        statements.Meaning.PLUS,
        statements.Meaning.MINUS,
        statements.Meaning.TIMES,
        statements.Meaning.DIVIDED,
        statements.Meaning.MULTIPLIED,
        statements.Meaning.PERCENT,
        statements.Meaning.PART,
        statements.Meaning.MANIFOLD,
    }
    for meaning in operations:
        OPERATIONS |= 1 << int(meaning)
    for index, (word, meaning) in enumerate(statements.WORDS.items(), 1):
        entry = &MEANINGS[index]
        word_letters(word.encode() + bytes(16), len(word), &entry.first, &entry.rest)
        entry.meaning = int(meaning)
        entry.number = statements.MANIFOLDS.get(word, statements.PARTS.get(word, 1))
    WORD_FACTOR = <uint64_t>HASH_MIX
    # Powers differ in all bits, so that about one in ten parts the words; sums would not.
    while not place_words(len(statements.WORDS)):
        WORD_FACTOR *= <uint64_t>HASH_MIX
    for name, (action, payload) in tables.COMMANDS.items():
        value = name_hash(name.encode())
        slot = <uint32_t>(value >> 32)
        while COMMAND_KINDS[slot & (COMMAND_SLOTS - 1)].hash:
            slot += 1
        COMMAND_KINDS[slot & (COMMAND_SLOTS - 1)].hash = value
        COMMAND_KINDS[slot & (COMMAND_SLOTS - 1)].kind = _COMMANDS_APART.get(
            name, _KINDS.get(action, X_NAME)
        )
        if payload:
            raw = payload.encode()
            unit = character_at(<const uint8_t*><char*>raw, len(raw), 0)
            COMMAND_KINDS[slot & (COMMAND_SLOTS - 1)].byte = byte_of(&unit)
    for language in statements.CODE_LANGUAGES:
        value = <uint64_t>HASH_START
        for byte in language.encode():
            value = hash_step(value, byte)
        CODE_LANGUAGES[NUM_LANGUAGES] = value
        NUM_LANGUAGES += 1
