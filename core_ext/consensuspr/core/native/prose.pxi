# Prose and LaTeX: characters to tokens, tokens to items.

cdef enum TokenKind:
    T_NUMBER = 0
    T_FRACTION
    T_OPERATOR
    T_STAR
    T_STARS
    T_OPEN
    T_CLOSE
    T_EQUALS
    T_WORD
    T_NAME
    T_DOTS
    T_PERCENT
    T_COLON
    T_AMPERSAND
    T_LINE
    T_NONE   # past the end

# statements.Meaning; a test compares.
cdef enum Meaning:
    M_PLAIN = 0
    M_STOP
    M_VERB
    M_FILLER
    M_ROUGHLY
    M_PLUS
    M_MINUS
    M_TIMES
    M_DIVIDED
    M_MULTIPLIED
    M_BY
    M_OF
    M_PERCENT
    M_UNIT
    M_EQUAL
    M_PART
    M_MANIFOLD

cdef enum Brace:
    BRACE_GROUP = 0
    BRACE_NOTHING
    BRACE_NUMERATOR
    BRACE_DENOMINATOR

# What a LaTeX command does here.
cdef enum CommandKind:
    X_NAME = 0
    X_EMIT
    X_GAP
    X_PERCENT
    X_OPEN
    X_CLOSE
    X_NOTHING
    X_DELIMITER
    X_LINE
    X_WRAP
    X_TEXT
    X_DISCARD
    X_ENVIRONMENT
    X_FRAC
    X_STOP

cdef enum:
    WORD_SLOTS = 1024
    COMMAND_SLOTS = 1024

cdef struct WordMeaning:
    uint64_t hash
    uint8_t meaning
    uint8_t number      # of a manifold
    uint8_t part        # the denominator of a part

cdef struct CommandMeaning:
    uint64_t hash
    uint8_t kind
    uint8_t byte        # what it emits

cdef WordMeaning MEANINGS[WORD_SLOTS]
cdef CommandMeaning COMMAND_KINDS[COMMAND_SLOTS]
cdef uint8_t KIND_OF[256]        # class of each byte of a text taken in
cdef uint8_t LOWER_OF[256]
cdef uint8_t UNIT_LETTER[256]     # tables.UNIT_LETTERS
cdef uint8_t GROUPS[256]         # may begin a separator of thousands
cdef uint8_t IN_ARGUMENT[256]    # statements.ARGUMENT
cdef uint8_t MARKS[256]          # may begin a list mark, or a row of a table
cdef uint8_t GLUES[256]          # makes a digit behind it something else than a number
cdef uint8_t GOES_ON[256]        # may stand within a word
cdef uint8_t NUMBER_GOES_ON[256]  # may go on the number whose digits it follows
cdef uint8_t MAKES_OPERATION[32]  # a word of this meaning can be an operation
cdef uint16_t OPERATION_LENGTHS[32]  # as WORD_LENGTHS, of such words
cdef uint8_t SEEK[256]           # what a byte is to seek()
cdef uint16_t WORD_LENGTHS[32]   # bit n: a word of n bytes with a meaning begins with this letter
cdef uint8_t UNNAMED_BYTE[256]   # left out of the name of an equation
cdef int64_t FRACTION_ABOVE[32]
cdef int64_t FRACTION_BELOW[32]
cdef uint8_t SUPERSCRIPT_TEXT[32]

cdef enum:
    HASH_START = 0xCBF29CE484222325
    HASH_FACTOR = 0x100000001B3


cdef inline uint64_t hash_step(uint64_t value, uint8_t byte) noexcept nogil:
    return (value ^ byte) * <uint64_t>HASH_FACTOR


cdef uint64_t hash_bytes(const uint8_t* text, uint32_t start, uint32_t end) noexcept nogil:
    cdef uint64_t value = <uint64_t>HASH_START
    cdef uint32_t at
    for at in range(start, end):
        value = hash_step(value, text[at])
    return value | <uint64_t>(value == 0)


cdef inline const WordMeaning* find_meaning(uint64_t value) noexcept nogil:
    cdef uint32_t slot = <uint32_t>(value >> 32)
    cdef const WordMeaning* entry
    while True:
        entry = &MEANINGS[slot & (WORD_SLOTS - 1)]
        if entry.hash == value:
            return entry
        if entry.hash == 0:
            return NULL
        slot += 1


# One region of prose while it is read.
cdef struct Scan:
    Reader* r
    const uint8_t* text
    uint32_t at
    uint32_t end
    uint32_t line_at
    int depth               # of braces
    uint8_t braces[MAX_DEPTH]
    uint32_t lost_braces
    bint gap
    bint line_start
    bint line_named
    bint table_row
    uint32_t read_until     # what stands before has to be read
    int words               # in a row, at the end of the tokens
    int others              # tokens that are no words


cdef inline uint8_t peek(const Scan* s, uint32_t at) noexcept nogil:
    return s.text[at] if at < s.end else 0


cdef inline int kind_at(const Scan* s, uint32_t at) noexcept nogil:
    return KIND_OF[s.text[at]] if at < s.end else CH_NEWLINE


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return c'0' <= byte <= c'9'


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    """Tell a canonical blank, which ~ is not."""
    return KIND_OF[byte] == CH_SPACE and byte != c'~'


cdef inline int last_kind(const Scan* s) noexcept nogil:
    return s.r.tokens[s.r.num_tokens - 1].kind if s.r.num_tokens else T_NONE


cdef inline uint32_t skip_blanks(const Scan* s, uint32_t at) noexcept nogil:
    while at < s.end and is_blank(s.text[at]):
        at += 1
    return at


cdef void stop(Scan* s) noexcept nogil:
    """Read the stretch that ends here."""
    if s.r.has_sign:
        fold(s.r)
        equations(s.r)
    s.r.num_tokens = 0
    s.r.has_sign = False
    s.gap = True
    s.depth = 0
    s.lost_braces = 0
    s.words = 0
    s.others = 0


cdef inline Token* put_token(Scan* s, int kind, uint32_t start) noexcept nogil:
    """Append a token; what a number or a sign has beyond a word is left to the caller."""
    cdef Token* token
    if kind == T_WORD:
        if s.words == MANY_WORDS + LAST_WORDS:
            # The first words of a row belong to what stands before it, the last to what
            # follows; one between them goes, so that tokens stay bounded.
            token = &s.r.tokens[s.r.num_tokens - LAST_WORDS]
            memmove(token, token + 1, (LAST_WORDS - 1) * sizeof(Token))
            s.r.num_tokens -= 1
        else:
            s.words += 1
    else:
        if s.others >= MAX_STRETCH:
            stop(s)
        s.others += 1
        s.words = 0
    token = &s.r.tokens[s.r.num_tokens]
    s.r.num_tokens += 1
    token.kind = kind
    token.op = 0
    token.meaning = M_PLAIN
    token.gap = s.gap
    token.single = False
    token.times = False
    token.letters = 0
    token.start = start
    token.end = s.at
    s.gap = False
    return token


cdef inline void put_operator(Scan* s, uint8_t op, uint32_t start) noexcept nogil:
    put_token(s, T_OPERATOR, start).op = op


cdef void line_break(Scan* s, int lines) noexcept nogil:
    cdef int last
    s.line_start = True
    s.line_at = s.at
    s.line_named = False
    s.table_row = False
    if lines > 1:
        stop(s)
        return
    last = last_kind(s)
    if last == T_EQUALS or last == T_OPERATOR or last == T_LINE:
        return
    if last == T_STAR and s.r.tokens[s.r.num_tokens - 1].gap:
        return
    put_token(s, T_LINE, s.at)
    s.gap = True


cdef void blank(Scan* s) noexcept nogil:
    cdef int lines = 0
    cdef uint8_t byte
    cdef int kind
    while s.at < s.end:
        byte = s.text[s.at]
        kind = KIND_OF[byte]
        if kind == CH_NEWLINE:
            # A CR and the LF behind it are one line break.
            if not (byte == c'\r' and s.at + 1 < s.r.length and s.text[s.at + 1] == c'\n'):
                lines = 1 if lines == 0 else 2
        elif kind != CH_SPACE:
            break
        s.at += 1
    s.gap = True
    if lines:
        line_break(s, lines)


cdef uint32_t list_number(Scan* s, uint32_t* first, uint32_t* last) noexcept nogil:
    """Return the index past "2." or "(2)" at a line's start, or 0; its digits: [first, last)."""
    cdef uint32_t at = s.at
    cdef uint8_t byte
    cdef bint bracketed = s.text[at] == c'('
    if bracketed:
        at += 1
    else:
        while peek(s, at) == c'*':
            at += 1
    first[0] = at
    while at < s.end and is_digit(s.text[at]) and at - first[0] < 3:
        at += 1
    last[0] = at
    if at == first[0]:
        return 0
    if bracketed:
        if peek(s, at) != c')':
            return 0
        at += 1
    else:
        while peek(s, at) == c'*':
            at += 1
        byte = peek(s, at)
        if byte != c'.' and byte != c')':
            return 0
        at += 1
        while peek(s, at) == c'*':
            at += 1
    if at >= s.end or not is_blank(s.text[at]):
        return 0
    at = skip_blanks(s, at)
    byte = peek(s, at)
    if byte and (byte == B_TIMES or byte < 0x80 and strchr(b"-+*/=^", byte) != NULL):
        return 0
    return at


cdef bint list_mark(Scan* s, int kind) noexcept nogil:
    cdef uint32_t at, first, last
    cdef int64_t number = 0
    if kind == CH_MINUS or kind == CH_STAR or kind == CH_PLUS or kind == CH_BULLET:
        if kind != CH_BULLET and kind_at(s, s.at + 1) != CH_SPACE:
            if kind != CH_STAR:
                return False
            # **1.** may follow.
            at = list_number(s, &first, &last)
            if not at:
                return False
        else:
            s.at += 1
            stop(s)
            s.line_start = True
            s.line_at = s.at
            return True
    elif kind == CH_DIGIT or kind == CH_OPEN:
        at = list_number(s, &first, &last)
        if not at:
            return False
    else:
        if kind == CH_BAR:
            s.table_row = True
        return False
    s.at = at
    while first < last:
        number = number * 10 + (s.text[first] - c'0')
        first += 1
    count_number(s.r, number, 1)
    stop(s)
    s.line_start = True
    s.line_at = s.at
    return True


# --- words and numbers -------------------------------------------------------------------------

cdef inline bint touches(const Scan* s, int kind) noexcept nogil:
    return not s.gap and last_kind(s) == kind


cdef void scan_word(Scan* s) noexcept nogil:
    cdef uint32_t start = s.at
    cdef uint32_t at = start
    cdef uint32_t end = s.end
    cdef uint32_t index
    cdef uint32_t others = 0
    cdef uint32_t letters
    cdef bint plain = True
    cdef uint64_t value = <uint64_t>HASH_START
    cdef const uint8_t* text = s.text
    cdef uint8_t byte = text[start]
    cdef uint8_t low
    cdef int kind, last
    cdef Token* token
    cdef const WordMeaning* entry
    cdef bint number = touches(s, T_NUMBER)
    if (byte == c'x' or byte == c'X') and number and kind_at(s, start + 1) == CH_DIGIT:
        s.at += 1
        token = put_token(s, T_WORD, start)
        token.letters = 1
        token.times = True
        token.single = True
        return
    while True:
        while at < end and KIND_OF[text[at]] == CH_LETTER:
            at += 1
        if at >= end or not GOES_ON[text[at]]:
            break
        byte = text[at]
        if KIND_OF[byte] == CH_DIGIT:
            plain = False
            others += 1
        elif byte == c'_':
            kind = kind_at(s, at + 1)
            if kind != CH_LETTER and kind != CH_DIGIT:
                break
            plain = False
            others += 1
        elif kind_at(s, at + 1) != CH_LETTER:
            break
        else:
            others += 1
        at += 1
    letters = at - start - others
    s.at = at
    if letters == 1 and at == start + 1:
        low = LOWER_OF[text[start]]
        kind = kind_at(s, at)
        token = put_token(s, T_WORD, start)
        token.letters = 1
        if low == c'x':
            token.times = True
            token.single = True
        elif (low == c'a' or low == c'i') and not (
            number or kind == CH_CARET or kind == CH_UNDERSCORE or kind == CH_OPEN
        ):
            token.meaning = M_FILLER if low == c'a' else M_STOP
        elif (number or kind != CH_OPEN) and UNIT_LETTER[text[start]]:
            token.meaning = M_UNIT
        else:
            token.single = True
        return
    entry = NULL
    if plain and at - start < 16 and WORD_LENGTHS[text[start] & 31] >> (at - start) & 1:
        for index in range(start, at):
            value = hash_step(value, LOWER_OF[text[index]])
        entry = find_meaning(value)
    if entry == NULL and peek(s, at) == c'(':
        last = last_kind(s)
        if last != T_NUMBER and last != T_FRACTION and last != T_CLOSE and last != T_WORD:
            put_token(s, T_NAME, start)
            return
    if entry == NULL:
        put_token(s, T_WORD, start).letters = letters if letters < 255 else 255
    elif entry.meaning == M_PERCENT:
        put_token(s, T_PERCENT, start)
    else:
        token = put_token(s, T_WORD, start)
        token.letters = <uint8_t>letters
        token.meaning = entry.meaning
        token.num = entry.number
        token.den = entry.part
        if entry.meaning == M_VERB or entry.meaning == M_EQUAL:
            s.r.has_sign = True


cdef inline uint32_t grouped(const Scan* s, uint32_t at) noexcept nogil:
    """Return the index past a separator and three digits, none behind them; else 0."""
    cdef uint8_t byte = peek(s, at)
    if byte == c',':
        at += 1
    elif byte == c'{' and peek(s, at + 1) == c',' and peek(s, at + 2) == c'}':
        at += 3
    elif byte == c'\\' and peek(s, at + 1) == c',':
        at += 2
    else:
        return 0
    if (
        is_digit(peek(s, at))
        and is_digit(peek(s, at + 1))
        and is_digit(peek(s, at + 2))
        and not is_digit(peek(s, at + 3))
    ):
        return at + 3
    return 0


# A number as written.
cdef struct Written:
    int64_t num
    int64_t den
    uint32_t decimals
    int zeros
    bint fits


cdef uint32_t number_at(const Scan* s, uint32_t start, Written* number) noexcept nogil:
    """Read the number at ``start``, where a digit stands or a point before one; its end."""
    cdef uint32_t at = start
    cdef uint32_t next_group, index
    cdef int64_t digits = 0
    cdef uint32_t significant = 0   # digits from the first that is not 0
    cdef uint32_t decimals = 0
    cdef int zeros = 0
    cdef uint8_t byte
    cdef uint64_t divisor
    while at < s.end and is_digit(s.text[at]):
        digits = digits * 10 + (s.text[at] - c'0')
        at += 1
        if at - start == MAX_DIGITS:
            break
    if at == s.end or not NUMBER_GOES_ON[s.text[at]]:
        # A whole number, as nearly all are.
        number.fits = True
        number.num = digits
        number.den = 1
        number.decimals = 0
        number.zeros = 0
        if digits:
            while s.text[at - 1 - number.zeros] == c'0':
                number.zeros += 1
        return at
    digits = 0
    at = start
    while at < s.end and is_digit(s.text[at]):
        at += 1
    if at - start <= 3 and at < s.end and GROUPS[s.text[at]] and at > start:
        while True:
            next_group = grouped(s, at)
            if not next_group:
                break
            at = next_group
    for index in range(start, at):
        byte = s.text[index]
        if is_digit(byte):
            significant += significant > 0 or byte != c'0'
            if significant <= MAX_DIGITS:
                digits = digits * 10 + (byte - c'0')
            zeros = zeros + 1 if byte == c'0' else 0
    if peek(s, at) == c'.' and is_digit(peek(s, at + 1)):
        at += 1
        while at < s.end and is_digit(s.text[at]):
            byte = s.text[at]
            significant += significant > 0 or byte != c'0'
            if significant <= MAX_DIGITS:
                digits = digits * 10 + (byte - c'0')
            decimals += 1
            at += 1
    number.fits = significant <= MAX_DIGITS and decimals <= MAX_DIGITS
    number.num = digits
    number.den = 1
    number.decimals = decimals
    number.zeros = zeros if decimals == 0 and digits else 0
    if decimals and number.fits:
        divisor = common_divisor(<uint64_t>digits, <uint64_t>TENS[decimals])
        number.num = digits // <int64_t>divisor
        number.den = TENS[decimals] // <int64_t>divisor
    return at


cdef void scan_number(Scan* s) noexcept nogil:
    cdef uint32_t start = s.at
    cdef Written number
    cdef Token* token
    s.at = number_at(s, start, &number)
    if not number.fits:
        put_token(s, T_NAME, start)
        return
    count_number(s.r, number.num, number.den)
    if peek(s, s.at) == c'.' and is_digit(peek(s, s.at + 1)):
        put_token(s, T_NAME, start)
        return
    token = put_token(s, T_NUMBER, start)
    token.num = number.num
    token.den = number.den
    token.decimals = <int>number.decimals
    token.zeros = number.zeros


cdef void put_fraction(Scan* s, uint32_t start, int64_t above, int64_t below) noexcept nogil:
    cdef Token* token
    count_number(s.r, above, 1)
    count_number(s.r, below, 1)
    token = put_token(s, T_FRACTION, start)
    token.num = above
    token.den = below


# --- signs ---------------------------------------------------------------------------------

cdef void scan_minus(Scan* s, uint8_t byte, uint32_t start) noexcept nogil:
    if byte == c'-' and (peek(s, s.at) == c'>' or peek(s, s.at) == c'-'):
        while peek(s, s.at) == c'>' or peek(s, s.at) == c'-':
            s.at += 1
        stop(s)
    elif (
        byte == c'-'
        and touches(s, T_NUMBER)
        and kind_at(s, s.at) == CH_LETTER
        and kind_at(s, s.at + 1) == CH_LETTER
    ):
        s.gap = True
    else:
        put_operator(s, c'-', start)


cdef void scan_scale(Scan* s) noexcept nogil:
    """Pass over the letter of a temperature."""
    cdef uint8_t byte = peek(s, s.at)
    if (byte == c'C' or byte == c'F') and kind_at(s, s.at + 1) != CH_LETTER:
        s.at += 1


cdef uint32_t degrees(const Scan* s, uint32_t at) noexcept nogil:
    """Return the index past ^\\circ, or 0."""
    cdef bint braced
    if peek(s, at) != c'^':
        return 0
    at = skip_blanks(s, at + 1)
    braced = peek(s, at) == c'{'
    if braced:
        at = skip_blanks(s, at + 1)
    if (
        peek(s, at) != c'\\'
        or peek(s, at + 1) != c'c'
        or peek(s, at + 2) != c'i'
        or peek(s, at + 3) != c'r'
        or peek(s, at + 4) != c'c'
    ):
        return 0
    at += 5
    if braced:
        at = skip_blanks(s, at)
        return at + 1 if peek(s, at) == c'}' else 0
    return 0 if is_ascii_letter(peek(s, at)) else at


cdef inline bint is_ascii_letter(uint8_t byte) noexcept nogil:
    return <uint8_t>((byte | 0x20) - c'a') < 26


cdef void scan_superscript(Scan* s, uint32_t start) noexcept nogil:
    cdef uint32_t at
    cdef uint8_t byte
    cdef int64_t number = 0
    cdef bint digits = True
    cdef Token* token
    while kind_at(s, s.at) == CH_SUPERSCRIPT:
        s.at += 1
    for at in range(start, s.at):
        byte = SUPERSCRIPT_TEXT[s.text[at] - B_SUPERSCRIPTS]
        if not is_digit(byte):
            digits = False
        elif at - start < 2:
            number = number * 10 + (byte - c'0')
    if touches(s, T_WORD):
        return
    if not digits or s.at - start > 2:
        put_token(s, T_NAME, start)
        return
    put_operator(s, c'^', start)
    count_number(s.r, number, 1)
    token = put_token(s, T_NUMBER, start)
    token.num = number
    token.den = 1
    token.decimals = 0
    token.zeros = 0


cdef void name_of(Scan* s, uint32_t sign, Token* token) noexcept nogil:
    """Give a sign the hash of what its line says before it, and of that without its factor."""
    cdef uint64_t value = <uint64_t>HASH_START
    cdef uint64_t rest = <uint64_t>HASH_START
    cdef int64_t factor = 0
    cdef uint32_t digits = 0
    cdef bint leading = True
    cdef bint letters = False
    cdef uint32_t at
    cdef uint8_t byte
    token.name = 0
    if s.line_named:
        return
    s.line_named = True
    if sign - s.line_at > MAX_NAMED:
        return
    for at in range(s.line_at, sign):
        byte = s.text[at]
        if byte >= 0x80:
            return
        if UNNAMED_BYTE[byte]:
            continue
        letters = letters or is_ascii_letter(byte)
        value = hash_step(value, byte)
        if leading and is_digit(byte):
            digits += 1
            if digits <= MAX_DIGITS:
                factor = factor * 10 + (byte - c'0')
        else:
            leading = False
            rest = hash_step(rest, byte)
    if not letters:
        return
    token.name = value | <uint64_t>(value == 0)
    if 0 < digits <= MAX_DIGITS:
        token.num = <int64_t>(rest | <uint64_t>(rest == 0))
        token.den = factor
    else:
        token.num = 0
        token.den = 0


cdef void name_rest(Reader* r, const Item* sign) noexcept nogil:
    r.named_rest = <uint64_t>sign.num
    r.named_factor = sign.den


cdef void scan_equals(Scan* s, uint32_t start) noexcept nogil:
    cdef uint8_t before = s.text[start - 1] if start else 0
    cdef uint8_t after = peek(s, s.at)
    cdef Token* token
    if (
        before == c'!'
        or before == c'~'
        or before == c':'
        or after == c'='
        or after == c'~'
        or (after == c'>' and peek(s, s.at + 1) != c'>')
        or (after == c'<' and peek(s, s.at + 1) != c'<')
    ):
        while after == c'=' or after == c'>' or after == c'<' or after == c'~':
            s.at += 1
            after = peek(s, s.at)
        stop(s)
        return
    token = put_token(s, T_EQUALS, start)
    token.op = c'='
    s.r.has_sign = True
    name_of(s, start, token)


cdef void approximate(Scan* s, uint32_t start) noexcept nogil:
    cdef Token* token = put_token(s, T_EQUALS, start)
    token.op = c'~'
    token.name = 0
    s.r.has_sign = True


cdef void scan_point(Scan* s, uint32_t start) noexcept nogil:
    cdef uint32_t at
    cdef uint8_t byte
    if peek(s, s.at) == c'.':
        while peek(s, s.at) == c'.':
            s.at += 1
        put_token(s, T_DOTS, start)
        return
    if touches(s, T_WORD) and s.at < s.end and is_blank(s.text[s.at]):
        at = skip_blanks(s, s.at)
        byte = peek(s, at)
        if byte == c'*' or byte == c'+' or byte == c'/' or byte == c'=' or byte == B_TIMES:
            return
    stop(s)


cdef void open_brace(Scan* s, int brace, uint32_t start) noexcept nogil:
    if s.depth >= MAX_DEPTH:
        s.lost_braces += 1
        put_token(s, T_NAME, start)
        return
    s.braces[s.depth] = brace
    s.depth += 1
    if brace != BRACE_NOTHING:
        put_token(s, T_OPEN, start)


cdef void close_brace(Scan* s, uint32_t start) noexcept nogil:
    cdef int brace = BRACE_GROUP
    if s.lost_braces:
        s.lost_braces -= 1
        put_token(s, T_NAME, start)
        return
    if s.depth:
        s.depth -= 1
        brace = s.braces[s.depth]
    if brace == BRACE_NOTHING:
        return
    put_token(s, T_CLOSE, start)
    if brace == BRACE_DENOMINATOR:
        put_token(s, T_CLOSE, start)
    elif brace == BRACE_NUMERATOR:
        skip_spaces(s)
        put_operator(s, c'/', start)
        if peek(s, s.at) == c'{':
            s.at += 1
            open_brace(s, BRACE_DENOMINATOR, s.at - 1)
        else:
            put_token(s, T_NAME, start)
            put_token(s, T_CLOSE, start)


cdef inline void skip_spaces(Scan* s) noexcept nogil:
    while kind_at(s, s.at) == CH_SPACE:
        s.at += 1


cdef uint32_t braced_digits(Scan* s, uint32_t at, int64_t* number, uint32_t* digits) noexcept nogil:
    """Return the index past {digits} with blanks in it, or 0."""
    cdef uint32_t first
    if peek(s, at) != c'{':
        return 0
    at = skip_blanks(s, at + 1)
    first = at
    number[0] = 0
    while at < s.end and is_digit(s.text[at]):
        if at - first < MAX_DIGITS:
            number[0] = number[0] * 10 + (s.text[at] - c'0')
        at += 1
    digits[0] = at - first
    if at == first:
        return 0
    at = skip_blanks(s, at)
    return at + 1 if peek(s, at) == c'}' else 0


cdef void scan_frac(Scan* s, uint32_t start) noexcept nogil:
    cdef int64_t above = 0
    cdef int64_t below = 0
    cdef uint32_t above_digits = 0
    cdef uint32_t below_digits = 0
    cdef uint32_t first = skip_blanks(s, s.at)
    cdef uint32_t at = braced_digits(s, first, &above, &above_digits)
    if at:
        at = braced_digits(s, skip_blanks(s, at), &below, &below_digits)
    elif is_digit(peek(s, first)):
        above = s.text[first] - c'0'
        at = skip_blanks(s, first + 1)
        if is_digit(peek(s, at)):
            below = s.text[at] - c'0'
            at += 1
        else:
            at = 0
    if at:
        s.at = at
        if above_digits > MAX_DIGITS or below_digits > MAX_DIGITS:
            put_token(s, T_NAME, start)
        else:
            put_fraction(s, start, above, below)
        return
    skip_spaces(s)
    if peek(s, s.at) == c'{':
        s.at += 1
        put_token(s, T_OPEN, start)
        open_brace(s, BRACE_NUMERATOR, start)
    else:
        put_token(s, T_NAME, start)


cdef uint32_t braced_text(const Scan* s, uint32_t at, uint32_t most) noexcept nogil:
    """Return the index past {at most so many characters of a name or label}, or 0."""
    cdef uint32_t first
    if peek(s, at) != c'{':
        return 0
    at += 1
    first = at
    while at < s.end and at - first < most and IN_ARGUMENT[s.text[at]]:
        at += 1
    return at + 1 if peek(s, at) == c'}' else 0


cdef void scan_command(Scan* s, uint32_t start) noexcept nogil:
    cdef uint8_t byte = peek(s, s.at)
    cdef uint64_t value = <uint64_t>HASH_START
    cdef uint32_t slot, past
    cdef const CommandMeaning* entry
    cdef int kind
    if not is_ascii_letter(byte):
        if byte:
            value = hash_step(value, ascii_byte(byte))
            s.at += 1
    else:
        while is_ascii_letter(byte):
            value = hash_step(value, byte)
            s.at += 1
            byte = peek(s, s.at)
        if byte == c'*':
            s.at += 1
    slot = <uint32_t>(value >> 32)
    kind = X_NAME
    while True:
        entry = &COMMAND_KINDS[slot & (COMMAND_SLOTS - 1)]
        if entry.hash == value:
            kind = entry.kind
            break
        if entry.hash == 0:
            break
        slot += 1
    if kind == X_EMIT:
        scan_sign(s, entry.byte, start)
    elif kind == X_GAP:
        s.gap = True
    elif kind == X_PERCENT:
        put_token(s, T_PERCENT, start)
    elif kind == X_OPEN:
        put_token(s, T_OPEN, start)
    elif kind == X_CLOSE:
        put_token(s, T_CLOSE, start)
    elif kind == X_NOTHING:
        pass
    elif kind == X_DELIMITER:
        if peek(s, s.at) == c'.':
            s.at += 1
    elif kind == X_LINE:
        line_break(s, 1)
    elif kind == X_WRAP or kind == X_TEXT:
        skip_spaces(s)
        if peek(s, s.at) == c'{':
            s.at += 1
            open_brace(s, BRACE_NOTHING, start)
        if kind == X_TEXT:
            s.gap = True
    elif kind == X_DISCARD or kind == X_ENVIRONMENT:
        past = braced_text(s, skip_blanks(s, s.at), MAX_ARGUMENT)
        if past:
            s.at = past
        if kind == X_ENVIRONMENT:
            stop(s)
    elif kind == X_FRAC:
        scan_frac(s, start)
    elif kind == X_STOP:
        stop(s)
    else:
        put_token(s, T_NAME, start)


cdef void scan_sign(Scan* s, uint8_t byte, uint32_t start) noexcept nogil:
    """Read a character that is no letter, digit or blank; ``at`` stands behind it."""
    cdef int kind = KIND_OF[byte]
    cdef int stars, last
    cdef uint32_t past
    cdef uint8_t next_byte
    if kind == CH_PLUS:
        put_operator(s, c'+', start)
    elif kind == CH_MINUS:
        scan_minus(s, byte, start)
    elif kind == CH_STAR:
        stars = 1
        while peek(s, s.at) == c'*':
            s.at += 1
            stars = 2 if stars == 1 else 3
        if stars <= 2:
            put_token(s, T_STAR if stars == 1 else T_STARS, start)
    elif kind == CH_TIMES:
        put_operator(s, c'*', start)
    elif kind == CH_BULLET:
        last = last_kind(s)
        if last == T_NUMBER or last == T_CLOSE:
            put_operator(s, c'*', start)
        else:
            stop(s)
    elif kind == CH_SLASH:
        if peek(s, s.at) == c'/':
            stop(s)
        else:
            put_operator(s, c'/', start)
    elif kind == CH_CARET:
        past = degrees(s, start)
        if past:
            s.at = past
            scan_scale(s)
        else:
            put_operator(s, c'^', start)
    elif kind == CH_SUPERSCRIPT:
        scan_superscript(s, start)
    elif kind == CH_UNDERSCORE:
        last = last_kind(s)
        if not s.gap and (last == T_WORD or last == T_NAME or last == T_CLOSE):
            past = 0
            if s.text[start] == c'_':
                next_byte = peek(s, start + 1)
                if is_ascii_letter(next_byte) or is_digit(next_byte):
                    past = start + 2
                else:
                    past = braced_text(s, start + 1, MAX_SUBSCRIPT)
            if past:
                s.at = past
    elif kind == CH_EQUALS:
        scan_equals(s, start)
    elif kind == CH_RELATION:
        if byte == B_APPROX:
            approximate(s, start)
        else:
            stop(s)
    elif kind == CH_LESS or kind == CH_GREATER:
        next_byte = peek(s, s.at)
        while next_byte == c'<' or next_byte == c'>' or next_byte == c'=':
            s.at += 1
            next_byte = peek(s, s.at)
        stop(s)
    elif kind == CH_OPEN or kind == CH_BRACKET_OPEN:
        put_token(s, T_OPEN, start)
    elif kind == CH_CLOSE or kind == CH_BRACKET_CLOSE:
        put_token(s, T_CLOSE, start)
    elif kind == CH_BRACE_OPEN:
        open_brace(s, BRACE_GROUP, start)
    elif kind == CH_BRACE_CLOSE:
        close_brace(s, start)
    elif kind == CH_COLON:
        put_token(s, T_COLON, start)
    elif kind == CH_BANG:
        next_byte = peek(s, skip_blanks(s, s.at))
        if not s.gap and next_byte and (
            next_byte == B_TIMES
            or next_byte < 0x80 and strchr(b"-+*/=^<>)", next_byte) != NULL
        ):
            put_token(s, T_NAME, start)
        else:
            stop(s)
    elif kind == CH_MARK:
        if byte != c'$' and byte != c'`':
            stop(s)
    elif kind == CH_DROP:
        if byte == c'%':
            put_token(s, T_PERCENT, start)
        else:
            scan_scale(s)
    elif kind == CH_BAR:
        if s.table_row:
            stop(s)
        else:
            put_token(s, T_NAME, start)
    elif kind == CH_AMPERSAND:
        put_token(s, T_AMPERSAND, start)
    elif kind == CH_BACKSLASH:
        scan_command(s, start)
    elif kind == CH_FRACTION:
        put_fraction(
            s, start, FRACTION_ABOVE[byte - B_FRACTIONS], FRACTION_BELOW[byte - B_FRACTIONS]
        )
    elif kind == CH_SYMBOL or kind == CH_ROOT or kind == CH_PLUS_MINUS:
        put_token(s, T_NAME, start)
    elif kind == CH_SUBSCRIPT:
        last = last_kind(s)
        if s.gap or (last != T_WORD and last != T_NAME):
            put_token(s, T_NAME, start)
    elif kind == CH_POINT:
        scan_point(s, start)
    elif kind == CH_OTHER and byte == B_DOTS:
        put_token(s, T_DOTS, start)
    else:
        stop(s)


# --- what need not be read ------------------------------------------------------------------

# What a byte is to seek().
cdef enum Sought:
    SOUGHT_NOTHING = 0
    SOUGHT_DIGIT
    SOUGHT_READ         # has to be read, whatever else stands there
    SOUGHT_LINE
    SOUGHT_STOP         # a stop, unless a backslash stands before it
    SOUGHT_COMMA
    SOUGHT_POINT
    SOUGHT_BACKSLASH
    SOUGHT_OPERATION

cdef enum:
    # Numbers of one stretch that are kept until it is left or read.
    SOUGHT_NUMBERS = 16


cdef extern from *:
    """
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif

    /* Return the first place in [at, end) that is neither a letter nor a blank nor a brace; a
       few others are passed over as well: what seek() has no use for. */
    static inline uint32_t next_sought(
        const uint8_t* text, uint32_t at, uint32_t end, const uint8_t* sought
    ) {
    #if defined(__SSE2__)
        const __m128i first = _mm_set1_epi8(0x22), span = _mm_set1_epi8(0x3F - 0x22);
        const __m128i second = _mm_set1_epi8(0x5B), second_span = _mm_set1_epi8(0x5F - 0x5B);
        const __m128i control = _mm_set1_epi8(0x1F), high = _mm_set1_epi8(0x7B);
        while (at < end && end - at >= 16) {
            const __m128i bytes = _mm_loadu_si128((const __m128i*)(text + at));
            const __m128i offset = _mm_sub_epi8(bytes, first);
            const __m128i second_offset = _mm_sub_epi8(bytes, second);
            __m128i found = _mm_cmpeq_epi8(_mm_min_epu8(offset, span), offset);
            found = _mm_or_si128(found,
                _mm_cmpeq_epi8(_mm_min_epu8(second_offset, second_span), second_offset));
            found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
            found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_max_epu8(bytes, high), bytes));
            unsigned mask = (unsigned)_mm_movemask_epi8(found);
            while (mask) {
                uint32_t place = at + (uint32_t)__builtin_ctz(mask);
                if (sought[text[place]])
                    return place;
                mask &= mask - 1;
            }
            at += 16;
        }
    #endif
        while (at < end && !sought[text[at]])
            at++;
        return at;
    }
    """
    uint32_t next_sought(
        const uint8_t* text, uint32_t at, uint32_t end, const uint8_t* sought
    ) noexcept nogil


cdef bint seek(Scan* s) noexcept nogil:
    """Pass over what can state nothing; tell whether something is left to be read.

    To be called between two stretches.  A stretch states nothing without two numbers, without
    a sign of equality or an operation in front of a verb: its numbers are counted and it is
    left.  Only stops that no context takes back end a stretch here, so that what is left out
    is what reading would have left without a trace.
    """
    cdef const uint8_t* text = s.text
    cdef uint32_t at = s.at
    cdef uint32_t end = s.end
    cdef uint32_t line, begin, before, special
    cdef int numbers, index, lines
    cdef bint backslash, operation, stopped, must
    cdef uint8_t byte, what
    cdef Written found[SOUGHT_NUMBERS]
    cdef Scan other
    while at < end:
        if s.line_start:
            # A list mark ends what stands before it, here nothing.
            while at < end and KIND_OF[text[at]] == CH_SPACE:
                at += 1
            s.at = at
            if at < end and MARKS[text[at]] and list_mark(s, KIND_OF[text[at]]):
                at = s.at
                continue
            s.line_start = at >= end or KIND_OF[text[at]] == CH_NEWLINE
        # Look at one stretch.
        begin = at
        special = end
        numbers = 0
        backslash = False
        operation = False
        stopped = False
        must = False
        line = 0
        while True:
            at = next_sought(text, at, end, SEEK)
            if at >= end:
                break
            byte = text[at]
            what = SEEK[byte]
            if special == end and what != SOUGHT_LINE:
                special = at
            if what == SOUGHT_DIGIT or (what == SOUGHT_POINT and is_digit(peek(s, at + 1))):
                if numbers == SOUGHT_NUMBERS or (at and GLUES[text[at - 1]]):
                    must = True
                    break
                at = number_at(s, at, &found[numbers])
                numbers += 1
            elif what == SOUGHT_OPERATION:
                at += 1
                # Not the hyphen of a word.
                operation = operation or byte != c'-' or kind_at(s, at) != CH_LETTER
            elif what == SOUGHT_STOP:
                at += 1
                stopped = True
                break
            elif what == SOUGHT_COMMA:
                at += 1
                if not (is_digit(peek(s, at)) or (at > 1 and text[at - 2] == c'{')):
                    stopped = True
                    break
            elif what == SOUGHT_POINT:
                at += 1
                if peek(s, at) == c'.':
                    while peek(s, at) == c'.':
                        at += 1
                elif not backslash and ends_sentence(s, at):
                    stopped = True
                    break
            elif what == SOUGHT_LINE:
                # As blank() does; what stands behind the break decides.
                before = at
                lines = 0
                while at < end and (
                    KIND_OF[text[at]] == CH_NEWLINE or KIND_OF[text[at]] == CH_SPACE
                ):
                    if KIND_OF[text[at]] == CH_NEWLINE and not (
                        text[at] == c'\r' and at + 1 < s.r.length and text[at + 1] == c'\n'
                    ):
                        lines += 1
                    at += 1
                if lines == 0:
                    continue
                line = at
                if lines > 1:
                    stopped = True
                    break
                if at < end and MARKS[text[at]]:
                    if KIND_OF[text[at]] == CH_BAR:
                        must = True  # a table; rare
                        at = before
                        break
                    other.r = s.r
                    other.text = text
                    other.at = at
                    other.end = end
                    if is_mark(&other):
                        stopped = True
                        break
            elif what == SOUGHT_BACKSLASH:
                operation = True
                backslash = True
                at += 1
                if at < end and (text[at] == c'\\' or KIND_OF[text[at]] == CH_NEWLINE):
                    must = True
                    break
                at += at < end
            else:
                must = True
                break
            if backslash and numbers:
                must = True
                break
        if not must and numbers > 1:
            must = operation or has_operation_word(s, begin, at)
        if must:
            s.read_until = at + 1
            begin = last_words(text, s.at, special if special < at else at)
            if begin > s.at:
                if line and line <= begin:
                    s.line_at = line
                    s.line_named = False
                    s.table_row = False
                    s.line_start = line == begin
                elif line:
                    begin = s.at
                s.at = begin
            return True
        for index in range(numbers):
            if found[index].fits:
                count_number(s.r, found[index].num, found[index].den)
        if line:
            s.line_at = line
            s.line_named = False
            s.table_row = False
            s.line_start = stopped and line == at
        s.at = at
    s.at = end
    return False


cdef uint32_t last_words(const uint8_t* text, uint32_t begin, uint32_t at) noexcept nogil:
    """Return where the last few words before ``at`` begin, which is not before ``begin``.

    Of the words at a stretch's beginning only these can mean something to what follows.
    """
    cdef int words = 0
    while at > begin:
        at -= 1
        if KIND_OF[text[at]] == CH_NEWLINE:
            return at + 1
        if text[at] == c' ' and text[at + 1] != c' ':
            words += 1
            if words > LAST_WORDS:
                return at + 1
    return begin


cdef bint has_operation_word(const Scan* s, uint32_t at, uint32_t end) noexcept nogil:
    """Tell whether a word in [at, end) can be an operation or its operand."""
    cdef const uint8_t* text = s.text
    cdef uint32_t start, index
    cdef uint64_t value
    cdef const WordMeaning* entry
    while at < end:
        while at < end and KIND_OF[text[at]] != CH_LETTER:
            at += 1
        if at >= end:
            break
        start = at
        while at < end and KIND_OF[text[at]] == CH_LETTER:
            at += 1
        if (
            at - start >= 16
            or not OPERATION_LENGTHS[text[start] & 31] >> (at - start) & 1
        ):
            if at - start == 1 and text[start] | 0x20 == c'x':
                return True
            continue
        value = <uint64_t>HASH_START
        for index in range(start, at):
            value = hash_step(value, LOWER_OF[text[index]])
        entry = find_meaning(value)
        if entry != NULL and MAKES_OPERATION[entry.meaning]:
            return True
    return False


cdef bint is_mark(Scan* s) noexcept nogil:
    """Tell whether a list mark stands at a line's beginning."""
    cdef uint32_t first, last
    cdef int kind = KIND_OF[s.text[s.at]]
    if kind == CH_BULLET:
        return True
    if kind == CH_MINUS or kind == CH_STAR or kind == CH_PLUS:
        if kind_at(s, s.at + 1) == CH_SPACE:
            return True
        if kind != CH_STAR:
            return False
    return list_number(s, &first, &last) != 0


cdef inline bint ends_sentence(const Scan* s, uint32_t at) noexcept nogil:
    """Tell whether the point before ``at`` is a stop in whatever context."""
    cdef uint8_t byte
    if at > 1 and s.text[at - 2] == c'.':
        return False
    if at >= s.end:
        return True
    if KIND_OF[s.text[at]] == CH_NEWLINE:
        return True
    if not is_blank(s.text[at]):
        return False
    byte = peek(s, skip_blanks(s, at))
    return not (
        byte == c'*' or byte == c'+' or byte == c'/' or byte == c'=' or byte == B_TIMES
    )


cdef bint pass_words(Scan* s) noexcept nogil:
    """Pass over words that belong neither to the number before them nor to what follows."""
    cdef uint32_t at = last_words(s.text, s.at, next_sought(s.text, s.at, s.end, SEEK))
    if at == s.at:
        return False
    s.at = at
    s.gap = True
    return True


cdef void read_prose(Reader* r, uint32_t start, uint32_t end) noexcept nogil:
    cdef Scan s
    cdef uint8_t byte
    cdef int kind
    cdef bint at_line_start
    s.r = r
    s.text = r.text
    s.at = start
    s.end = end
    s.line_at = start
    s.depth = 0
    s.lost_braces = 0
    s.gap = True
    s.line_start = True
    s.line_named = False
    s.table_row = False
    s.read_until = 0
    s.words = 0
    s.others = 0
    r.num_tokens = 0
    r.has_sign = False
    while s.at < end:
        if r.num_tokens == 0 and s.at >= s.read_until and not seek(&s):
            break
        start = s.at
        byte = s.text[start]
        kind = KIND_OF[byte]
        if kind == CH_SPACE:
            # One blank between words is by far the most common.
            if start + 1 < end and KIND_OF[s.text[start + 1]] == CH_LETTER:
                s.at += 1
                s.gap = True
                s.line_start = False
                if s.words < MANY_WORDS or not pass_words(&s):
                    scan_word(&s)
                continue
            blank(&s)
            continue
        if kind == CH_NEWLINE:
            blank(&s)
            continue
        at_line_start = s.line_start
        s.line_start = False
        if at_line_start and list_mark(&s, kind):
            continue
        if kind == CH_LETTER:
            if s.words < MANY_WORDS or not pass_words(&s):
                scan_word(&s)
        elif kind == CH_DIGIT or (kind == CH_POINT and is_digit(peek(&s, start + 1))):
            scan_number(&s)
        else:
            s.at += 1
            scan_sign(&s, byte, start)
    stop(&s)


# --- folding ----------------------------------------------------------------------------------

cdef struct Fold:
    Reader* r
    Token* tokens
    int size
    int at
    bint after_unit
    int unit_words


cdef inline int token_kind(const Fold* f, int at) noexcept nogil:
    return f.tokens[at].kind if at < f.size else T_NONE


cdef inline int last_item(const Fold* f) noexcept nogil:
    return f.r.items[f.r.num_items - 1].kind if f.r.num_items else -1


cdef inline bint operand_ends(const Fold* f) noexcept nogil:
    cdef int kind = last_item(f)
    return kind == I_NUMBER or kind == I_CLOSE


cdef inline bint begins_operand(int kind) noexcept nogil:
    return kind == T_NUMBER or kind == T_FRACTION or kind == T_OPEN


cdef inline bint operand_begins(const Fold* f, int at) noexcept nogil:
    cdef int kind = token_kind(f, at)
    if begins_operand(kind):
        return True
    return (
        kind == T_OPERATOR
        and (f.tokens[at].op == c'+' or f.tokens[at].op == c'-')
        and begins_operand(token_kind(f, at + 1))
        and not f.tokens[at + 1].gap
    )


cdef inline Item* put_item(Fold* f, int kind, const Token* token) noexcept nogil:
    cdef Item* item = &f.r.items[f.r.num_items]
    f.r.num_items += 1
    item.kind = kind
    item.op = 0
    item.seen = SEEN_NONE
    item.percent = False
    item.approximate = False
    item.verb = False
    item.plain = True
    item.decimals = 0
    item.zeros = 0
    item.start = token.start
    item.end = token.end
    item.num = 0
    item.den = 1
    item.name = 0
    f.after_unit = False
    return item


cdef inline void fold_stop(Fold* f, const Token* token) noexcept nogil:
    if f.r.num_items and last_item(f) != I_STOP:
        put_item(f, I_STOP, token)
    f.after_unit = False


cdef void fold_mixed(Fold* f, Item* item) noexcept nogil:
    """Join 7 1/2 to one number."""
    cdef Token* first = &f.tokens[f.at]
    cdef int64_t above, below
    cdef uint64_t shared
    cdef int used
    if f.at >= f.size:
        return
    if first.kind == T_FRACTION:
        above = first.num
        below = first.den
        used = 1
    elif (
        f.at + 2 < f.size
        and first.kind == T_NUMBER
        and first.gap
        and f.tokens[f.at + 1].kind == T_OPERATOR
        and f.tokens[f.at + 1].op == c'/'
        and not f.tokens[f.at + 1].gap
        and f.tokens[f.at + 2].kind == T_NUMBER
        and not f.tokens[f.at + 2].gap
        and first.decimals == 0
        and f.tokens[f.at + 2].decimals == 0
        and not (
            f.at + 3 < f.size
            and f.tokens[f.at + 3].kind == T_OPERATOR
            and (f.tokens[f.at + 3].op == c'/' or f.tokens[f.at + 3].op == c'^')
            and not f.tokens[f.at + 3].gap
        )
    ):
        above = first.num
        below = f.tokens[f.at + 2].num
        used = 3
    else:
        return
    if not 0 < above < below:
        return
    shared = common_divisor(<uint64_t>above, <uint64_t>below)
    if not fraction_add(
        item.num, 1, above // <int64_t>shared, below // <int64_t>shared, &above, &below
    ):
        return
    item.num = above
    item.den = below
    item.plain = False
    item.end = f.tokens[f.at + used - 1].end
    f.at += used


cdef void fold_number(Fold* f, const Token* token) noexcept nogil:
    cdef Item* item
    cdef int64_t num, den
    if f.after_unit:
        fold_stop(f, token)
    item = put_item(f, I_NUMBER, token)
    item.num = token.num
    item.den = token.den
    item.decimals = token.decimals
    item.zeros = token.zeros
    if token.decimals == 0:
        fold_mixed(f, item)
    if token_kind(f, f.at) == T_PERCENT and not (
        f.tokens[f.at].gap and operand_begins(f, f.at + 1)
    ):
        if fraction_divide(item.num, item.den, 100, 1, &num, &den):
            item.num = num
            item.den = den
        else:
            item.kind = I_UNKNOWN
        item.percent = True
        item.decimals += 2
        item.plain = item.plain and item.decimals <= MAX_DIGITS
        item.zeros = 0
        item.end = f.tokens[f.at].end
        f.at += 1


cdef void fold_fraction(Fold* f, const Token* token, int64_t above, int64_t below) noexcept nogil:
    if f.after_unit:
        fold_stop(f, token)
    put_item(f, I_OPEN, token)
    put_item(f, I_NUMBER, token).num = above
    put_item(f, I_OPERATOR, token).op = c'/'
    put_item(f, I_NUMBER, token).num = below
    put_item(f, I_CLOSE, token)


cdef void fold_operator(Fold* f, const Token* token) noexcept nogil:
    cdef int following = token_kind(f, f.at)
    if f.after_unit and token.op == c'^' and following == T_NUMBER:
        f.at += 1
        return
    if (
        token.op == c'/'
        and operand_ends(f)
        and following == T_WORD
        and not f.tokens[f.at].single
    ):
        if not f.after_unit:
            f.after_unit = True
            f.unit_words = 0
        return
    put_item(f, I_OPERATOR, token).op = token.op


cdef int remark(const Fold* f, bint* words, bint* signs) noexcept nogil:
    """Look at the bracket that has been opened: where it ends, 0 for far; words, signs in it."""
    cdef int depth = 1
    cdef int at
    cdef const Token* token
    words[0] = False
    signs[0] = False
    for at in range(f.at, min(f.size, f.at + MAX_REMARK)):
        token = &f.tokens[at]
        if token.kind == T_OPEN:
            depth += 1
        elif token.kind == T_CLOSE:
            depth -= 1
            if depth == 0:
                return at
        elif token.kind == T_WORD:
            if not (token.times or M_PLUS <= token.meaning <= M_TIMES):
                words[0] = True
        elif token.kind == T_EQUALS:
            signs[0] = True
    return 0


cdef void fold_open(Fold* f, const Token* token) noexcept nogil:
    cdef bint words, signs
    cdef int closing
    if operand_ends(f) and (token.gap or f.after_unit):
        closing = remark(f, &words, &signs)
        if signs:
            fold_stop(f, token)
        elif closing and (words or f.after_unit):
            f.at = closing + 1
            f.after_unit = True
            return
        elif f.after_unit:
            fold_stop(f, token)
    put_item(f, I_OPEN, token)


cdef void fillers(Fold* f, Item* sign) noexcept nogil:
    """Pass over "about", "a total of" between a sign and its number."""
    cdef int at = f.at
    cdef bint roughly = False
    cdef int meaning
    while at < f.size and at - f.at < MAX_OF_WORDS:
        if f.tokens[at].kind != T_WORD or f.tokens[at].single:
            break
        meaning = f.tokens[at].meaning
        if meaning == M_ROUGHLY:
            roughly = True
        elif meaning != M_FILLER and meaning != M_EQUAL and meaning != M_OF:
            break
        at += 1
    if at > f.at and operand_begins(f, at):
        f.at = at
        sign.approximate = sign.approximate or roughly


cdef void fold_equals(Fold* f, const Token* token) noexcept nogil:
    cdef Item* item
    if last_item(f) == I_SIGN:
        item = &f.r.items[f.r.num_items - 1]
        item.approximate = item.approximate or token.op == c'~'
        item.verb = False
    else:
        item = put_item(f, I_SIGN, token)
        item.approximate = token.op == c'~'
        item.name = token.name
        item.num = token.num
        item.den = token.den
    fillers(f, item)


cdef void fold_colon(Fold* f, const Token* token) noexcept nogil:
    if (
        last_item(f) == I_NUMBER
        and not f.after_unit
        and token_kind(f, f.at) == T_NUMBER
        and f.tokens[f.at].gap == token.gap
    ):
        put_item(f, I_UNKNOWN, token)
        put_item(f, I_UNKNOWN, &f.tokens[f.at])
        f.at += 1
    else:
        fold_stop(f, token)


cdef bint name_before_operator(Fold* f, const Token* token) noexcept nogil:
    cdef const Token* following
    if token_kind(f, f.at) != T_OPERATOR:
        return False
    following = &f.tokens[f.at]
    if following.gap and (following.op == c'+' or following.op == c'-') and operand_begins(f, f.at):
        return False
    put_item(f, I_UNKNOWN, token)
    return True


cdef void fold_single(Fold* f, const Token* token) noexcept nogil:
    cdef int last = last_item(f)
    cdef int following = token_kind(f, f.at)
    if (
        operand_ends(f)
        or last == I_OPERATOR
        or last == I_UNKNOWN
        or (
            following != T_NONE
            and following != T_EQUALS
            and (following == T_OPERATOR or not f.tokens[f.at].gap)
        )
    ):
        put_item(f, I_UNKNOWN, token)
    else:
        fold_stop(f, token)


cdef void unit_word(Fold* f, const Token* token) noexcept nogil:
    if not f.after_unit:
        f.unit_words = 0
        if not token.gap and token.letters < MIN_GLUED and token.meaning != M_UNIT:
            put_item(f, I_UNKNOWN, token)
            return
    f.unit_words += 1
    if f.unit_words > MAX_UNIT_WORDS:
        fold_stop(f, token)
        name_before_operator(f, token)
        return
    f.after_unit = True


cdef bint fold_of(Fold* f, const Token* token) noexcept nogil:
    cdef Item* last
    cdef int at = f.at
    if f.after_unit or not operand_ends(f):
        return False
    last = &f.r.items[f.r.num_items - 1]
    if not (
        last.kind == I_CLOSE
        or last.percent
        or (
            f.r.num_items >= 3
            and f.r.items[f.r.num_items - 2].kind == I_OPERATOR
            and f.r.items[f.r.num_items - 2].op == c'/'
            and f.r.items[f.r.num_items - 3].kind == I_NUMBER
        )
    ):
        return False
    while (
        at - f.at < MAX_OF_WORDS
        and token_kind(f, at) == T_WORD
        and (f.tokens[at].meaning == M_PLAIN or f.tokens[at].meaning == M_FILLER)
        and not f.tokens[at].single
    ):
        at += 1
    if not operand_begins(f, at):
        return False
    f.at = at
    put_item(f, I_OPERATOR, token).op = c'*'
    return True


cdef bint fold_part(Fold* f, const Token* token) noexcept nogil:
    """Read "half of 26" as a product."""
    cdef int before
    if operand_ends(f) or token_kind(f, f.at) != T_WORD or f.tokens[f.at].meaning != M_OF:
        return False
    before = f.r.num_items
    fold_fraction(f, token, 1, token.den)
    f.at += 1
    if fold_of(f, &f.tokens[f.at - 1]):
        return True
    f.at -= 1
    f.r.num_items = before
    return False


cdef void fold_verb(Fold* f, const Token* token) noexcept nogil:
    cdef int before = f.at
    cdef bint unit = f.after_unit
    cdef Item* sign
    if not operand_ends(f):
        fold_stop(f, token)
        return
    sign = put_item(f, I_SIGN, token)
    sign.verb = True
    fillers(f, sign)
    if f.at == before and not operand_begins(f, f.at):
        f.r.num_items -= 1
        f.after_unit = unit
        fold_stop(f, token)


cdef void fold_word(Fold* f, const Token* token) noexcept nogil:
    cdef int meaning = token.meaning
    if token.times and operand_ends(f) and operand_begins(f, f.at):
        put_item(f, I_OPERATOR, token).op = c'*'
    elif token.single:
        fold_single(f, token)
    elif meaning == M_PLAIN:
        fold_plain(f, token)
    elif M_PLUS <= meaning <= M_TIMES and operand_ends(f) and operand_begins(f, f.at):
        put_item(f, I_OPERATOR, token).op = (
            c'+' if meaning == M_PLUS else c'-' if meaning == M_MINUS else c'*'
        )
    elif (
        (meaning == M_DIVIDED or meaning == M_MULTIPLIED)
        and operand_ends(f)
        and token_kind(f, f.at) == T_WORD
        and f.tokens[f.at].meaning == M_BY
        and operand_begins(f, f.at + 1)
    ):
        f.at += 1
        put_item(f, I_OPERATOR, token).op = c'/' if meaning == M_DIVIDED else c'*'
    elif meaning == M_PART and fold_part(f, token):
        pass
    elif meaning == M_MANIFOLD and operand_begins(f, f.at):
        put_item(f, I_NUMBER, token).num = token.num
        put_item(f, I_OPERATOR, token).op = c'*'
    elif meaning == M_OF and fold_of(f, token):
        pass
    elif meaning == M_VERB or meaning == M_EQUAL:
        fold_verb(f, token)
    elif meaning == M_STOP:
        fold_stop(f, token)
        name_before_operator(f, token)
    else:
        fold_plain(f, token)


cdef inline void fold_plain(Fold* f, const Token* token) noexcept nogil:
    if operand_ends(f):
        unit_word(f, token)
    elif last_item(f) == I_OPERATOR:
        put_item(f, I_UNKNOWN, token)
    elif not name_before_operator(f, token):
        fold_stop(f, token)


cdef inline bint ends_number(int kind) noexcept nogil:
    return kind == T_NUMBER or kind == T_FRACTION or kind == T_CLOSE or kind == T_PERCENT


cdef inline bint begins_number(int kind) noexcept nogil:
    return kind == T_NUMBER or kind == T_FRACTION or kind == T_OPEN or kind == T_OPERATOR


cdef int without_emphasis(Token* tokens, int size) noexcept nogil:
    """Turn stars between operands into operators and drop the others; return how many stay."""
    cdef int kept = 0
    cdef bint gap = False
    cdef bint before, after, single
    cdef int index, left, right
    cdef Token* token
    for index in range(size):
        token = &tokens[index]
        if token.kind != T_STAR and token.kind != T_STARS:
            token.gap = token.gap or gap
            gap = False
            if kept != index:
                tokens[kept] = token[0]
            kept += 1
            continue
        before = token.gap or gap
        after = index + 1 == size or tokens[index + 1].gap
        if kept and index + 1 < size:
            left = tokens[kept - 1].kind
            right = tokens[index + 1].kind
            single = token.kind == T_STAR
            if (
                (ends_number(left) or left == T_WORD or left == T_NAME)
                and (begins_number(right) or right == T_WORD or right == T_NAME)
                and (
                    before == after
                    or (single and ends_number(left) and begins_number(right))
                )
            ):
                token.kind = T_OPERATOR
                token.op = c'*' if single else c'^'
                token.gap = before
                gap = False
                if kept != index:
                    tokens[kept] = token[0]
                kept += 1
                continue
        gap = before or after
    return kept


cdef void fold(Reader* r) noexcept nogil:
    """Tokens of one stretch to items."""
    cdef Fold f
    cdef Token* token
    cdef int kind, following
    f.r = r
    f.tokens = r.tokens
    f.size = without_emphasis(r.tokens, r.num_tokens)
    f.at = 0
    f.after_unit = False
    f.unit_words = 0
    r.num_items = 0
    while f.at < f.size:
        token = &f.tokens[f.at]
        kind = token.kind
        f.at += 1
        if kind == T_WORD:
            fold_word(&f, token)
        elif kind == T_NUMBER:
            fold_number(&f, token)
        elif kind == T_OPERATOR:
            fold_operator(&f, token)
        elif kind == T_EQUALS:
            fold_equals(&f, token)
        elif kind == T_OPEN:
            fold_open(&f, token)
        elif kind == T_CLOSE:
            put_item(&f, I_CLOSE, token)
        elif kind == T_FRACTION:
            fold_fraction(&f, token, token.num, token.den)
        elif kind == T_NAME:
            put_item(&f, I_UNKNOWN, token)
        elif kind == T_DOTS:
            if last_item(&f) == I_OPERATOR or token_kind(&f, f.at) == T_OPERATOR:
                put_item(&f, I_UNKNOWN, token)
            else:
                fold_stop(&f, token)
        elif kind == T_PERCENT:
            if operand_ends(&f):
                put_item(&f, I_UNKNOWN, token)
        elif kind == T_COLON:
            fold_colon(&f, token)
        else:
            following = f.at
            while token_kind(&f, following) == T_AMPERSAND or token_kind(&f, following) == T_LINE:
                following += 1
            if (
                token_kind(&f, following) != T_EQUALS
                and last_item(&f) != I_SIGN
                and last_item(&f) != I_OPERATOR
            ):
                fold_stop(&f, token)
