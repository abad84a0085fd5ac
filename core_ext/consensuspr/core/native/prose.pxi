# Prose and LaTeX: characters to tokens, tokens to items.

cdef enum TokenKind:
    T_NUMBER = 0, T_FRACTION, T_OPERATOR, T_STAR, T_STARS, T_OPEN, T_CLOSE, T_EQUALS, T_WORD, T_NAME
    T_DOTS, T_PERCENT, T_COLON, T_AMPERSAND, T_LINE
    T_NONE   # past the end

# statements.Meaning; a test compares.
cdef enum Meaning:
    M_PLAIN = 0, M_STOP, M_VERB, M_FILLER, M_ROUGHLY, M_PLUS, M_MINUS, M_TIMES, M_DIVIDED
    M_MULTIPLIED, M_BY, M_OF, M_PERCENT, M_UNIT, M_EQUAL, M_PART, M_MANIFOLD

cdef enum Brace:
    BRACE_GROUP = 0, BRACE_NOTHING, BRACE_NUMERATOR, BRACE_DENOMINATOR

# What a LaTeX command does here.
cdef enum CommandKind:
    X_NAME = 0, X_EMIT, X_GAP, X_PERCENT, X_OPEN, X_CLOSE, X_NOTHING, X_DELIMITER, X_LINE, X_WRAP
    X_TEXT, X_DISCARD, X_ENVIRONMENT, X_FRAC, X_STOP

cdef enum:
    WORD_BITS = 12
    MAX_WORDS = 256
    COMMAND_SLOTS = 1024

cdef struct WordMeaning:
    uint64_t first      # its letters, eight and eight
    uint64_t rest
    uint8_t meaning
    uint8_t number      # of a manifold, or below the bar of a part

cdef struct CommandMeaning:
    uint64_t hash
    uint8_t kind
    uint8_t byte        # what it emits

# A sign that is one token whatever stands around it; of kind T_NONE it is none.
cdef struct PlainSign:
    uint8_t kind, op

cdef char DISPLAY_STARTS[MOST_DISPLAYS][DISPLAY_BYTES]   # tables.DISPLAYS
cdef int DISPLAY_SIZES[MOST_DISPLAYS]
cdef PlainSign PLAIN_SIGNS[256]
# The words with a meaning, from the second on, and by hash which one a word can be.
cdef WordMeaning MEANINGS[MAX_WORDS]
cdef uint8_t MEANING_AT[1 << WORD_BITS]
cdef uint64_t WORD_FACTOR = 0    # of the hash, by which no two of them meet
cdef CommandMeaning COMMAND_KINDS[COMMAND_SLOTS]
cdef uint8_t KIND_OF[256]        # class of each byte of a text taken in
cdef uint8_t LOWER_OF[256]
cdef uint8_t UNIT_LETTER[256]     # tables.UNIT_LETTERS
cdef uint8_t GROUPS[256]         # may begin a separator of thousands
cdef uint8_t IN_ARGUMENT[256]    # statements.ARGUMENT
cdef uint8_t BESIDE_EQUALS[256]  # may make another sign of one of equality
cdef uint8_t MARKS[256]          # may begin a list mark, or a row of a table
cdef uint8_t GOES_ON[256]        # may stand within a word
cdef uint8_t NUMBER_GOES_ON[256]  # may go on a number with a digit or a comma behind it
cdef uint32_t OPERATIONS = 0     # bit n: a word of meaning n can be an operation
# Bit n: a token of kind n can be an operation, or become one.
cdef uint32_t OPERATION_KINDS = (
    1 << T_FRACTION | 1 << T_OPERATOR | 1 << T_STAR | 1 << T_STARS | 1 << T_OPEN | 1 << T_PERCENT
)
cdef uint8_t PASSED[256]         # what a byte is to pass_words()
cdef uint8_t UNNAMED_BYTE[256]   # left out of the name of an equation
cdef int64_t FRACTION_ABOVE[32]
cdef int64_t FRACTION_BELOW[32]
cdef uint8_t SUPERSCRIPT_TEXT[32]

cdef enum:
    HASH_START = 0xCBF29CE484222325
    HASH_FACTOR = 0x100000001B3
    HASH_MIX = 0x9E3779B97F4A7C15


cdef inline uint64_t hash_step(uint64_t value, uint8_t byte) noexcept nogil:
    return (value ^ byte) * <uint64_t>HASH_FACTOR


cdef uint64_t hash_bytes(const uint8_t* text, uint32_t start, uint32_t end) noexcept nogil:
    cdef uint64_t value = <uint64_t>HASH_START
    cdef uint32_t at
    for at in range(start, end):
        value = hash_step(value, text[at])
    return value | <uint64_t>(value == 0)


cdef extern from *:
    """
    #include "bytes16.h"

    /* The helpers look up to 16 bytes ahead, which PADDING allows. */

    static inline uint64_t eight_bytes(const uint8_t* text) {
        uint64_t word;
        memcpy(&word, text, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    /* Return how many letters of ASCII stand here, 16 for as many or more. */
    static inline uint32_t count_letters(const uint8_t* text) {
        return (uint32_t)__builtin_ctz(~letters16(load16(text)));
    }

    /* Return how many digits stand here, 8 for as many or more, and their value if fewer. */
    static inline uint32_t read_digits(const uint8_t* text, uint64_t* value) {
        uint64_t digits = eight_bytes(text) ^ 0x3030303030303030u;
        const uint64_t nondigits =
            ((digits + 0x7676767676767676u) | digits) & 0x8080808080808080u;
        const uint32_t count = nondigits ? (uint32_t)__builtin_ctzll(nondigits) >> 3 : 8;
        if (count == 0 || count == 8)
            return count;
        digits <<= 64 - 8 * count;
        digits = digits * 2561 >> 8 & 0x00FF00FF00FF00FFu;
        digits = digits * 6553601 >> 16 & 0x0000FFFF0000FFFFu;
        *value = digits * 42949672960001u >> 32;
        return count;
    }

    /* The lower-cased letters of a word of up to 15. */
    static inline void word_letters(
        const uint8_t* text, uint32_t size, uint64_t* first, uint64_t* rest
    ) {
        static const uint64_t kept[24] = {
            0, 0xFFu, 0xFFFFu, 0xFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFFFu, 0xFFFFFFFFFFFFu,
            0xFFFFFFFFFFFFFFu, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0,
            ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0,
        };
        const uint64_t lower = 0x2020202020202020u;
        *first = (eight_bytes(text) | lower) & kept[size];
        *rest = (eight_bytes(text + 8) | lower) & (size > 8 ? kept[size - 8] : 0);
    }

    /* Return where "of" stands next, or ``end``. */
    static inline uint32_t next_of(const uint8_t* text, uint32_t at, uint32_t end) {
        for (; at < end; at += 16) {
            unsigned mask = bits16(
                equal16(small16(load16(text + at)), 'o')
                & equal16(small16(load16(text + at + 1)), 'f'));
            for (; mask; mask &= mask - 1) {
                const uint32_t place = at + (uint32_t)__builtin_ctz(mask);
                if (place >= end)
                    break;
                if ((uint8_t)((text[place + 2] | 0x20) - 'a') >= 26)
                    return place;
            }
        }
        return end;
    }

    /* Return the first place from ``at`` on that is neither a letter nor a blank; a few others
       are passed over as well.  A zero is found. */
    static inline uint32_t next_sought(
        const uint8_t* text, uint32_t at, const uint8_t* sought
    ) {
        for (;; at += 16) {
            const bytes16 bytes = load16(text + at);
            unsigned mask = bits16(
                within16(bytes, 0x22, 0x3F) | within16(bytes, 0x5B, 0x5F)
                | within16(bytes, 0x00, 0x1F) | within16(bytes, 0x7B, 0xFF));
            while (mask) {
                const uint32_t place = at + (uint32_t)__builtin_ctz(mask);
                if (sought[text[place]])
                    return place;
                mask &= mask - 1;
            }
        }
    }
    """
    uint32_t count_letters(const uint8_t* text) noexcept nogil
    uint32_t read_digits(const uint8_t* text, uint64_t* value) noexcept nogil
    void word_letters(
        const uint8_t* text, uint32_t size, uint64_t* first, uint64_t* rest
    ) noexcept nogil
    uint32_t next_of(const uint8_t* text, uint32_t at, uint32_t end) noexcept nogil
    uint32_t next_sought(const uint8_t* text, uint32_t at, const uint8_t* sought) noexcept nogil


cdef inline uint32_t word_slot(uint64_t first, uint64_t rest) noexcept nogil:
    return <uint32_t>(((first ^ (rest << 1)) * WORD_FACTOR) >> (64 - WORD_BITS))


cdef inline const WordMeaning* meaning_of(const uint8_t* word, uint32_t size) noexcept nogil:
    """Return the entry of a word, that of no word where it has no meaning."""
    cdef uint64_t first, rest
    cdef const WordMeaning* entry
    if size >= 16:
        return MEANINGS
    word_letters(word, size, &first, &rest)
    # Half of the words have a meaning: no branch could foresee which.
    entry = &MEANINGS[MEANING_AT[word_slot(first, rest)]]
    return MEANINGS + (entry - MEANINGS) * ((entry.first == first) & (entry.rest == rest))


# One region of prose while it is read.
cdef struct Scan:
    Reader* r
    uint8_t* text           # ends with a zero
    uint32_t at, line_at
    int depth               # of braces
    uint8_t braces[MAX_DEPTH]
    uint32_t lost_braces
    bint gap, line_named, table_row
    uint32_t passed         # what stands before this is not looked through for words again
    # Of the tokens:
    int words               # in a row, at their end
    int nonwords            # that are no words
    int numbers
    uint32_t kinds          # bit n: one is of kind n, or may become an operation
    uint32_t meanings       # bit n: a word means n


cdef inline uint8_t peek(const Scan* s, uint32_t at) noexcept nogil:
    return s.text[at]


cdef inline int kind_at(const Scan* s, uint32_t at) noexcept nogil:
    """Return the class of a byte; that of a line's end at the end."""
    return KIND_OF[s.text[at]]


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return c'0' <= byte <= c'9'


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    """Tell a canonical blank, which ~ is not."""
    return KIND_OF[byte] == CH_SPACE and byte != c'~'


cdef inline int last_kind(const Scan* s) noexcept nogil:
    return s.r.tokens[s.r.num_tokens - 1].kind if s.r.num_tokens else T_NONE


cdef inline uint32_t skip_blanks(const Scan* s, uint32_t at) noexcept nogil:
    while is_blank(s.text[at]):
        at += 1
    return at


cdef inline bint may_operate(const Scan* s) noexcept nogil:
    """Tell whether the tokens may hold an operation."""
    return s.meanings & OPERATIONS or s.kinds & OPERATION_KINDS


cdef inline bint may_state(const Scan* s) noexcept nogil:
    """Tell whether the tokens may hold a statement.

    Without a sign of equality they hold none without a verb, two numbers and an operation.
    """
    if s.kinds >> T_EQUALS & 1:
        return s.numbers > 0
    return (s.numbers > 1 and s.meanings & (1 << M_VERB | 1 << M_EQUAL) != 0 and may_operate(s))


cdef void stop(Scan* s) noexcept nogil:
    """Read the stretch that ends here."""
    if may_state(s):
        fold(s)
        equations(s.r, may_operate(s))
    s.r.num_tokens = 0
    s.gap = True
    s.depth = 0
    s.lost_braces = 0
    s.words = 0
    s.nonwords = 0
    s.numbers = 0
    s.kinds = 0
    s.meanings = 0


cdef inline Token* next_token(Scan* s, int kind, uint32_t start) noexcept nogil:
    cdef Token* token = &s.r.tokens[s.r.num_tokens]
    s.r.num_tokens += 1
    token.kind = kind
    token.op = 0
    token.meaning = M_PLAIN
    token.gap = s.gap
    token.single = False
    token.times = False
    token.letters = 0
    token.decimals = 0
    token.start = start
    token.end = s.at
    s.gap = False
    return token


cdef inline Token* put_token(Scan* s, int kind, uint32_t start) noexcept nogil:
    """Append a token that is no word; what a number or a sign says is left to the caller."""
    if s.nonwords >= MAX_STRETCH:
        stop(s)
    s.nonwords += 1
    s.words = 0
    s.kinds |= <uint32_t>1 << kind
    return next_token(s, kind, start)


cdef inline Token* put_word(Scan* s, uint32_t start, uint32_t letters) noexcept nogil:
    cdef Token* token
    cdef Token* last
    if s.words == MAX_ROW:
        # The first words of a row belong to what stands before it, the last to what follows;
        # those between them go, so that tokens stay bounded.
        last = &s.r.tokens[s.r.num_tokens - LAST_WORDS]
        memmove(last - (MAX_ROW - MANY_WORDS - LAST_WORDS), last, LAST_WORDS * sizeof(Token))
        s.r.num_tokens -= MAX_ROW - MANY_WORDS - LAST_WORDS
        s.words = MANY_WORDS + LAST_WORDS
    s.words += 1
    token = next_token(s, T_WORD, start)
    token.letters = letters if letters < 255 else 255
    return token


cdef inline void put_operator(Scan* s, uint8_t op, uint32_t start) noexcept nogil:
    put_token(s, T_OPERATOR, start).op = op


cdef void begin_line(Scan* s) noexcept nogil:
    """Pass over blanks and list marks where a line begins."""
    while True:
        while kind_at(s, s.at) == CH_SPACE:
            s.at += 1
            s.gap = True
        if not (MARKS[s.text[s.at]] and list_mark(s, kind_at(s, s.at))):
            break


cdef void line_break(Scan* s, int lines) noexcept nogil:
    cdef int last
    s.line_at = s.at
    s.line_named = False
    s.table_row = False
    if lines > 1:
        stop(s)
    else:
        last = last_kind(s)
        if not (
            last in (T_EQUALS, T_OPERATOR, T_LINE)
            or (last == T_STAR and s.r.tokens[s.r.num_tokens - 1].gap)
        ):
            put_token(s, T_LINE, s.at)
            s.gap = True
    begin_line(s)


cdef void blank(Scan* s) noexcept nogil:
    """Pass over a line's end and all blanks behind it."""
    cdef int lines = 0
    cdef uint32_t line = s.at
    cdef uint8_t byte = s.text[s.at]
    cdef int kind = KIND_OF[byte]
    while byte and kind in (CH_NEWLINE, CH_SPACE):
        s.at += 1
        # A CR and the LF behind it are one line break.
        if kind == CH_NEWLINE and not (byte == c'\r' and s.text[s.at] == c'\n'):
            lines += 1
            line = s.at
        byte = s.text[s.at]
        kind = KIND_OF[byte]
    s.gap = True
    if lines == 2 and s.at - line <= LOOKAHEAD_LIMIT and byte in b"\\$":
        # A blank line before display mathematics is a line break.
        lines -= display_begins(s.text + s.at)
    line_break(s, lines)


cdef bint display_begins(const uint8_t* text) noexcept nogil:
    cdef int index = 0
    while index < MOST_DISPLAYS and DISPLAY_SIZES[index]:
        if strncmp(<const char*>text, DISPLAY_STARTS[index], DISPLAY_SIZES[index]) == 0:
            return True
        index += 1
    return False


cdef uint32_t list_number(Scan* s) noexcept nogil:
    """Return the index past "2." or "(2)" at a line's start, or 0."""
    cdef uint32_t at = s.at
    cdef uint32_t first
    cdef uint8_t byte
    cdef bint bracketed = s.text[at] == c'('
    if bracketed:
        at += 1
    else:
        while peek(s, at) == c'*':
            at += 1
    first = at
    while is_digit(s.text[at]) and at - first < 3:
        at += 1
    if at == first:
        return 0
    if bracketed:
        if peek(s, at) != c')':
            return 0
        at += 1
    else:
        while peek(s, at) == c'*':
            at += 1
        byte = peek(s, at)
        if byte not in b".)":
            return 0
        at += 1
        while peek(s, at) == c'*':
            at += 1
    if not is_blank(s.text[at]):
        return 0
    at = skip_blanks(s, at)
    byte = peek(s, at)
    if byte and (byte == B_TIMES or byte < 0x80 and strchr(b"-+*/=^", byte) != NULL):
        return 0
    return at


cdef bint list_mark(Scan* s, int kind) noexcept nogil:
    """Pass over a list mark, which ends what stands before it; tell whether there is one."""
    cdef uint32_t at
    if kind == CH_BAR:
        s.table_row = True
        return False
    if kind == CH_BULLET or (kind not in (CH_DIGIT, CH_OPEN) and kind_at(s, s.at + 1) == CH_SPACE):
        s.at += 1
    elif kind in (CH_MINUS, CH_PLUS):
        return False
    else:
        # **1.** is one, too.
        at = list_number(s)
        if not at:
            return False
        s.at = at
    stop(s)
    s.line_at = s.at
    return True


# --- words and numbers -------------------------------------------------------------------------

cdef inline bint touches(const Scan* s, int kind) noexcept nogil:
    return not s.gap and last_kind(s) == kind


cdef uint32_t rest_of_word(
    const uint8_t* text, uint32_t at, uint32_t* nonletters, bint* plain
) noexcept nogil:
    """Return where a word ends; count what is no letter, but a digit, _, - or ' within it."""
    cdef uint8_t byte
    cdef int kind
    while True:
        while KIND_OF[text[at]] == CH_LETTER:
            at += 1
        byte = text[at]
        if not GOES_ON[byte]:
            return at
        if KIND_OF[byte] == CH_DIGIT:
            plain[0] = False
        else:
            kind = KIND_OF[text[at + 1]]
            if byte == c'_' and kind == CH_DIGIT:
                plain[0] = False
            elif kind != CH_LETTER:
                return at
            elif byte == c'_':
                plain[0] = False
        nonletters[0] += 1
        at += 1


cdef void scan_letter(Scan* s, uint32_t start) noexcept nogil:
    """Read a word of one letter: a multiplication, "a", a unit, or a variable."""
    cdef bint number = touches(s, T_NUMBER)
    cdef uint8_t low = LOWER_OF[s.text[start]]
    cdef int kind = kind_at(s, s.at)
    cdef Token* token = put_word(s, start, 1)
    if low == c'x':
        token.times = True
        token.single = True
        s.kinds |= 1 << T_OPERATOR
    elif low in b"ai" and not (number or kind in (CH_CARET, CH_UNDERSCORE, CH_OPEN)):
        token.meaning = M_FILLER if low == c'a' else M_STOP
    elif (number or kind != CH_OPEN) and UNIT_LETTER[s.text[start]]:
        token.meaning = M_UNIT
    else:
        token.single = True


cdef inline uint32_t scan_word(Scan* s, uint32_t start) noexcept nogil:
    """Read the word at ``start``; return its end."""
    cdef uint32_t at = start + count_letters(s.text + start)
    cdef uint32_t nonletters = 0
    cdef bint plain = True
    cdef uint8_t byte = s.text[at]
    cdef int last
    cdef Token* token
    cdef const WordMeaning* entry = MEANINGS
    if at - start == 16 or GOES_ON[byte]:
        byte = s.text[start]
        if byte in b"xX" and (touches(s, T_NUMBER) and kind_at(s, start + 1) == CH_DIGIT):
            at = start + 1
        else:
            at = rest_of_word(s.text, at, &nonletters, &plain)
        byte = s.text[at]
    s.at = at
    if at - start == 1:
        scan_letter(s, start)
        return at
    if plain:
        entry = meaning_of(s.text + start, at - start)
    if byte == c'(' and not entry.meaning:
        last = last_kind(s)
        if last not in (T_NUMBER, T_FRACTION, T_CLOSE, T_WORD):
            put_token(s, T_NAME, start)
            return at
    if entry.meaning == M_PERCENT:
        put_token(s, T_PERCENT, start)
        return at
    s.meanings |= <uint32_t>1 << entry.meaning
    token = put_word(s, start, at - start - nonletters)
    token.meaning = entry.meaning
    token.op = entry.number
    return at


cdef inline uint32_t scan_number(Scan* s, uint32_t start) noexcept nogil:
    """Read the number at ``start``; return its end."""
    cdef uint64_t value
    cdef uint32_t digits = read_digits(s.text + start, &value)
    cdef Token* token
    cdef const uint8_t* behind = s.text + start + digits
    if digits in (0, 8) or (NUMBER_GOES_ON[behind[0]] and goes_on(behind, 1)):
        scan_long_number(s, start)
        return s.at
    # A whole number, as nearly all are.
    s.at = start + digits
    token = put_token(s, T_NUMBER, start)
    token.num = <int64_t>value
    token.den = 1
    s.numbers += 1
    return start + digits


cdef void scan_long_number(Scan* s, uint32_t start) noexcept nogil:
    """Read a number with decimals, separators of thousands, or of any length."""
    cdef uint32_t at = start
    cdef uint32_t next_group, index, decimals = 0
    cdef int64_t num = 0, den = 1
    cdef uint32_t significant = 0   # digits from the first that is not 0
    cdef uint8_t byte
    cdef uint64_t divisor
    cdef Token* token
    cdef uint32_t past, first
    while is_digit(s.text[at]):
        at += 1
    if 0 < at - start <= 3 and GROUPS[s.text[at]]:
        while True:
            next_group = grouped(s.text, at)
            if not next_group:
                break
            at = next_group
    if s.text[at] == c'.' and is_digit(s.text[at + 1]):
        at += 1
        index = at
        while is_digit(s.text[at]):
            at += 1
        decimals = at - index
    for index in range(start, at):
        byte = s.text[index]
        if is_digit(byte):
            significant += significant > 0 or byte != c'0'
            if significant <= MAX_DIGITS:
                num = num * 10 + (byte - c'0')
    past = at + (decimals == 0 and s.text[at] == c'.')
    if s.text[past] == c'\\' and (decimals or past > at):
        past = repeating_digits(s, past, &first, &index)
        if past:
            s.at = past
            put_repeating(s, start, num, significant, decimals, first, index)
            return
    s.at = at
    if significant > MAX_DIGITS or decimals > MAX_DIGITS:
        put_token(s, T_NAME, start)
        return
    if decimals:
        divisor = common_divisor(<uint64_t>num, <uint64_t>TENS[decimals])
        num = num // <int64_t>divisor
        den = TENS[decimals] // <int64_t>divisor
    if s.text[at] == c'.' and is_digit(s.text[at + 1]):
        put_token(s, T_NAME, start)
        return
    token = put_token(s, T_NUMBER, start)
    token.num = num
    token.den = den
    token.decimals = <uint8_t>decimals
    s.numbers += 1


cdef uint32_t repeating_digits(
    const Scan* s, uint32_t at, uint32_t* first, uint32_t* end
) noexcept nogil:
    """Return the index past ``\\overline{36}`` at ``at``, or 0, and the digits [first, end)."""
    cdef const char* text = <const char*>s.text + at
    if strncmp(text, b"\\overline", 9) == 0:
        at += 9
    elif strncmp(text, b"\\overbar", 8) == 0:
        at += 8
    elif strncmp(text, b"\\bar", 4) == 0:
        at += 4
    else:
        return 0
    at = skip_blanks(s, at)
    first[0] = at
    if is_digit(s.text[at]):
        end[0] = at + 1
        return at + 1
    if s.text[at] != c'{':
        return 0
    at = skip_blanks(s, at + 1)
    first[0] = at
    while is_digit(s.text[at]):
        at += 1
    end[0] = at
    at = skip_blanks(s, at)
    return at + 1 if s.text[at] == c'}' and end[0] > first[0] else 0


cdef void put_repeating(
    Scan* s, uint32_t start, int64_t num, uint32_t significant, uint32_t decimals, uint32_t first,
    uint32_t end
) noexcept nogil:
    """Put the exact value of a decimal whose digits [first, end) repeat behind ``num``."""
    cdef uint32_t places = decimals + (end - first)
    cdef int64_t whole = num, den
    cdef uint64_t divisor
    cdef uint8_t byte
    cdef Token* token
    for places in range(end - first):
        byte = s.text[first + places]
        significant += significant > 0 or byte != c'0'
        if significant <= MAX_DIGITS:
            whole = whole * 10 + (byte - c'0')
    places = decimals + (end - first)
    if significant > MAX_DIGITS or places > MAX_DIGITS:
        put_token(s, T_NAME, start)
        return
    den = TENS[places] - TENS[decimals]
    divisor = common_divisor(<uint64_t>(whole - num), <uint64_t>den)
    token = put_token(s, T_NUMBER, start)
    token.num = (whole - num) // <int64_t>divisor
    token.den = den // <int64_t>divisor
    token.decimals = REPEATING
    s.numbers += 1


cdef void put_fraction(Scan* s, uint32_t start, int64_t above, int64_t below) noexcept nogil:
    cdef Token* token
    token = put_token(s, T_FRACTION, start)
    token.num = above
    token.den = below
    s.numbers += 2


# --- signs ---------------------------------------------------------------------------------

cdef void scan_minus(Scan* s, uint8_t byte, uint32_t start) noexcept nogil:
    if byte == c'-' and peek(s, s.at) in b">-":
        while peek(s, s.at) in b">-":
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
    if byte in b"CF" and kind_at(s, s.at + 1) != CH_LETTER:
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
    token = put_token(s, T_NUMBER, start)
    token.num = number
    token.den = 1
    s.numbers += 1


cdef void scan_equals(Scan* s, uint32_t start) noexcept nogil:
    cdef uint8_t before = s.text[start - 1] if start else 0
    cdef uint8_t after = peek(s, s.at)
    cdef Token* token
    if BESIDE_EQUALS[before] | BESIDE_EQUALS[after] and (
        before in b"!~:"
        or after in b"=~"
        or (after == c'>' and peek(s, s.at + 1) != c'>')
        or (after == c'<' and peek(s, s.at + 1) != c'<')
    ):
        while after in b"=><~":
            s.at += 1
            after = peek(s, s.at)
        stop(s)
        return
    token = put_token(s, T_EQUALS, start)
    token.op = c'='
    # What stands before a line's first sign may be a name.
    token.num = 0
    if not s.line_named and start - s.line_at <= MAX_NAMED:
        token.num = <int64_t>s.line_at + 1
    s.line_named = True


cdef void approximate(Scan* s, uint32_t start) noexcept nogil:
    cdef Token* token = put_token(s, T_EQUALS, start)
    token.op = c'~'
    token.num = 0


cdef void scan_point(Scan* s, uint32_t start) noexcept nogil:
    cdef uint32_t at
    cdef uint8_t byte
    if peek(s, s.at) == c'.':
        while peek(s, s.at) == c'.':
            s.at += 1
        put_token(s, T_DOTS, start)
        return
    if touches(s, T_WORD) and is_blank(s.text[s.at]):
        at = skip_blanks(s, s.at)
        byte = peek(s, at)
        if byte in (c'*', c'+', c'/', c'=', B_TIMES):
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
        scan_denominator(s, start)


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
    while is_digit(s.text[at]):
        if at - first < MAX_DIGITS:
            number[0] = number[0] * 10 + (s.text[at] - c'0')
        at += 1
    digits[0] = at - first
    if at == first:
        return 0
    at = skip_blanks(s, at)
    return at + 1 if peek(s, at) == c'}' else 0


cdef uint32_t argument_digits(
    Scan* s, uint32_t at, int64_t* number, uint32_t* digits
) noexcept nogil:
    """Return the index past {digits} or a digit, or 0."""
    if not is_digit(peek(s, at)):
        return braced_digits(s, at, number, digits)
    number[0] = s.text[at] - c'0'
    digits[0] = 1
    return at + 1


cdef void scan_frac(Scan* s, uint32_t start) noexcept nogil:
    cdef int64_t above = 0, below = 0
    cdef uint32_t above_digits = 0, below_digits = 0
    cdef uint32_t first = skip_blanks(s, s.at)
    cdef uint32_t at = argument_digits(s, first, &above, &above_digits)
    if at:
        at = argument_digits(s, skip_blanks(s, at), &below, &below_digits)
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
    elif is_digit(peek(s, s.at)):
        put_token(s, T_OPEN, start)
        put_digit(s, start)
        scan_denominator(s, start)
    else:
        put_token(s, T_NAME, start)


cdef void scan_denominator(Scan* s, uint32_t start) noexcept nogil:
    skip_spaces(s)
    put_operator(s, c'/', start)
    if peek(s, s.at) == c'{':
        s.at += 1
        open_brace(s, BRACE_DENOMINATOR, s.at - 1)
        return
    if is_digit(peek(s, s.at)):
        put_digit(s, start)
    else:
        put_token(s, T_NAME, start)
    put_token(s, T_CLOSE, start)


cdef void put_digit(Scan* s, uint32_t start) noexcept nogil:
    """Read a digit that is an argument without braces."""
    cdef Token* token
    s.at += 1
    token = put_token(s, T_NUMBER, start)
    token.num = s.text[s.at - 1] - c'0'
    token.den = 1
    s.numbers += 1


cdef uint32_t braced_text(const Scan* s, uint32_t at, uint32_t most) noexcept nogil:
    """Return the index past {at most so many characters of a name or label}, or 0."""
    cdef uint32_t first
    if peek(s, at) != c'{':
        return 0
    at += 1
    first = at
    while at - first < most and IN_ARGUMENT[s.text[at]]:
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
    elif kind in (X_WRAP, X_TEXT):
        skip_spaces(s)
        if peek(s, s.at) == c'{':
            s.at += 1
            open_brace(s, BRACE_NOTHING, start)
        if kind == X_TEXT:
            s.gap = True
    elif kind in (X_DISCARD, X_ENVIRONMENT):
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


cdef inline void scan_sign(Scan* s, uint8_t byte, uint32_t start) noexcept nogil:
    """Read a character that is no letter, digit or blank; ``at`` stands behind it."""
    cdef const PlainSign* sign = &PLAIN_SIGNS[byte]
    if sign.kind != T_NONE:
        put_token(s, sign.kind, start).op = sign.op
    else:
        scan_other_sign(s, byte, start)


cdef void scan_other_sign(Scan* s, uint8_t byte, uint32_t start) noexcept nogil:
    """Read a sign of which what stands around it tells what it is."""
    cdef int kind = KIND_OF[byte]
    cdef int stars, last
    cdef uint32_t past
    cdef uint8_t next_byte
    if kind == CH_MINUS:
        scan_minus(s, byte, start)
    elif kind == CH_STAR:
        stars = 1
        while peek(s, s.at) == c'*':
            s.at += 1
            stars = 2 if stars == 1 else 3
        if stars <= 2:
            put_token(s, T_STAR if stars == 1 else T_STARS, start)
    elif kind == CH_BULLET:
        last = last_kind(s)
        if last in (T_NUMBER, T_CLOSE):
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
        if not s.gap and last in (T_WORD, T_NAME, T_CLOSE):
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
    elif kind in (CH_LESS, CH_GREATER):
        next_byte = peek(s, s.at)
        while next_byte in b"<>=":
            s.at += 1
            next_byte = peek(s, s.at)
        stop(s)
    elif kind == CH_BRACE_OPEN:
        open_brace(s, BRACE_GROUP, start)
    elif kind == CH_BRACE_CLOSE:
        close_brace(s, start)
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
        if byte not in b"$`":
            stop(s)
    elif kind == CH_DROP:
        scan_scale(s)
    elif kind == CH_BAR:
        if s.table_row:
            stop(s)
        else:
            put_token(s, T_NAME, start)
    elif kind == CH_BACKSLASH:
        scan_command(s, start)
    elif kind == CH_FRACTION:
        put_fraction(
            s, start, FRACTION_ABOVE[byte - B_FRACTIONS], FRACTION_BELOW[byte - B_FRACTIONS]
        )
    elif kind == CH_SUBSCRIPT:
        last = last_kind(s)
        if s.gap or last not in (T_WORD, T_NAME):
            put_token(s, T_NAME, start)
    elif kind == CH_POINT:
        scan_point(s, start)
    elif byte != B_IDEOGRAPH or not ideographic_unit(s):
        stop(s)


cdef bint ideographic_unit(Scan* s) noexcept nogil:
    """Pass over a unit in ideographs between a number and an operation: 3米 + 4米 = 7米."""
    cdef uint32_t at = s.at
    cdef int kind
    while at - s.at < MAX_IDEOGRAPHS - 1 and peek(s, at) == B_IDEOGRAPH:
        at += 1
    kind = kind_at(s, skip_blanks(s, at))
    if last_kind(s) != T_NUMBER or (s.gap and kind == CH_MINUS) or kind not in (
        CH_PLUS, CH_MINUS, CH_STAR, CH_TIMES, CH_SLASH, CH_EQUALS, CH_CLOSE
    ):
        return False
    s.at = at
    return True


# --- what need not be read ------------------------------------------------------------------

# What a byte is to pass_words().
cdef enum Passed:
    PASSED_OVER = 0
    PASSED_STOP         # a stop where only words stand before it
    PASSED_LINE, PASSED_POINT
    PASSED_PRIME        # a stop where it is not within a word
    PASSED_COLON, PASSED_NOT


cdef uint32_t last_words(
    const uint8_t* text, uint32_t begin, uint32_t at, int words
) noexcept nogil:
    """Return where the last few words before ``at`` begin, which is not before ``begin``.

    Before them stands a word of two letters or more, which ends whatever was before it.
    """
    cdef bint word
    while at > begin and text[at - 1] == c' ':
        at -= 1
    while True:
        word = False
        while at > begin and text[at - 1] != c' ':
            at -= 1
            word |= is_ascii_letter(text[at])
        words -= word
        if at < begin + 4:
            return begin
        if (
            words <= 0
            and is_ascii_letter(text[at - 2])
            and is_ascii_letter(text[at - 3])
            # "percent" ends nothing.
            and not (text[at - 2] | 0x20 == c't' and text[at - 3] | 0x20 == c'n')
        ):
            return at
        while at > begin and text[at - 1] == c' ':
            at -= 1


cdef bint part_of(const uint8_t* text, uint32_t begin, uint32_t at) noexcept nogil:
    """Tell whether "half of" or the like stands in [begin, at)."""
    cdef uint32_t of = next_of(text, begin, at)
    cdef uint32_t first, end
    while of < at:
        end = of
        while end > begin and not is_ascii_letter(text[end - 1]):
            end -= 1
        first = end
        while first > begin and is_ascii_letter(text[first - 1]):
            first -= 1
        if meaning_of(text + first, end - first).meaning == M_PART:
            return True
        of = next_of(text, of + 1, at)
    return False


cdef inline bint ends_sentence(const Scan* s, uint32_t at) noexcept nogil:
    """Tell whether the point before ``at`` is a stop in whatever context."""
    cdef uint8_t byte
    if kind_at(s, at) == CH_NEWLINE:
        return True
    if not is_blank(s.text[at]):
        return False
    byte = peek(s, skip_blanks(s, at))
    return not (byte in (c'*', c'+', c'/', c'=', B_TIMES))


cdef bint pass_words(Scan* s) noexcept nogil:
    """Pass over words that belong neither to the number before them nor to what follows.

    At a stretch's beginning only the last word can mean something to what follows, and "half of"
    some words before.
    """
    cdef bint first = s.r.num_tokens == 0
    cdef bint passed = False
    cdef uint32_t at = s.at
    cdef int kept = LAST_WORDS, passed_as
    if at < s.passed:
        return False
    while True:
        at = next_sought(s.text, at, PASSED)
        passed_as = PASSED[s.text[at]]
        if passed_as == PASSED_PRIME:
            if kind_at(s, at - 1) != CH_LETTER or kind_at(s, at + 1) != CH_LETTER:
                passed_as = PASSED_STOP
                break
        elif passed_as == PASSED_COLON and first and not s.depth and not s.lost_braces:
            # It ends what stands before it, and counts in the length of the stretch.
            s.nonwords += 1
            s.at = at + 1
            s.gap = False
            passed = True
        else:
            break
        at += 1
    s.passed = at
    if first and (
        passed_as == PASSED_STOP or (passed_as == PASSED_POINT and ends_sentence(s, at + 1))
    ):
        s.at = at + 1
        stop(s)
        return True
    # Where a stop was passed over, braces would be open no more.
    if s.depth or s.lost_braces:
        return False
    if first and passed_as == PASSED_LINE:
        s.at = at
        s.gap = True
        return True
    if first and not part_of(s.text, s.at, at):
        # It is a function's name before a bracket, unless a word stands before it.
        if s.text[at] == c'(' or (GOES_ON[s.text[at]] and s.text[at - 1] != c' '):
            kept = 2
        else:
            kept = 1
    at = last_words(s.text, s.at, at, kept)
    if at == s.at:
        return passed
    s.at = at
    s.gap = True
    return True


cdef void read_prose(Reader* r, uint32_t start, uint32_t end) noexcept nogil:
    cdef Scan s
    cdef const uint8_t* text = r.text
    cdef uint32_t at
    cdef int kind
    cdef uint8_t behind = r.text[end]
    s.r = r
    s.text = r.text
    s.text[end] = 0
    s.at = start
    s.line_at = start
    s.line_named = False
    s.table_row = False
    s.passed = start
    s.numbers = 0
    count_written(r, start, end, ANYWHERE)
    stop(&s)
    begin_line(&s)
    at = s.at
    while True:
        kind = KIND_OF[text[at]]
        if kind == CH_SPACE:
            at += 1
            s.gap = True
            continue
        s.at = at
        if kind == CH_LETTER:
            if not ((r.num_tokens == 0 or s.words >= MANY_WORDS) and pass_words(&s)):
                at = scan_word(&s, at)
                continue
        elif kind == CH_DIGIT or (kind == CH_POINT and is_digit(text[at + 1])):
            at = scan_number(&s, at)
            continue
        elif kind == CH_NEWLINE:
            if at >= end:
                break
            blank(&s)
        else:
            s.at = at + 1
            scan_sign(&s, text[at], at)
        at = s.at
    stop(&s)
    s.text[end] = behind


# --- folding ----------------------------------------------------------------------------------

cdef struct Fold:
    Reader* r
    Token* tokens
    int size, at
    bint after_unit
    int unit_words


cdef inline int token_kind(const Fold* f, int at) noexcept nogil:
    return f.tokens[at].kind if at < f.size else T_NONE


cdef inline int last_item(const Fold* f) noexcept nogil:
    return f.r.items[f.r.num_items - 1].kind if f.r.num_items else -1


cdef inline bint operand_ends(const Fold* f) noexcept nogil:
    cdef int kind = last_item(f)
    return kind in (I_NUMBER, I_CLOSE)


cdef inline bint begins_operand(int kind) noexcept nogil:
    return kind in (T_NUMBER, T_FRACTION, T_OPEN)


cdef inline bint operand_begins(const Fold* f, int at) noexcept nogil:
    cdef int kind = token_kind(f, at)
    if begins_operand(kind):
        return True
    return (
        kind == T_OPERATOR
        and f.tokens[at].op in b"+-"
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
    item.start = token.start
    item.end = token.end
    item.num = 0
    item.den = 1
    f.after_unit = False
    return item


cdef inline Item* put_sign(Fold* f, const Token* token) noexcept nogil:
    f.r.signs[f.r.num_signs] = f.r.num_items
    f.r.num_signs += 1
    return put_item(f, I_SIGN, token)


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
            and f.tokens[f.at + 3].op in b"/^"
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
    item.plain = token.decimals != REPEATING
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
    if (token.op == c'/' and operand_ends(f) and following == T_WORD and not f.tokens[f.at].single):
        if not f.after_unit:
            f.after_unit = True
            f.unit_words = 0
        return
    put_item(f, I_OPERATOR, token).op = token.op


cdef int remark(const Fold* f, bint* words, bint* signs) noexcept nogil:
    """Look at the bracket that has been opened: where it ends, 0 for far; words, signs in it."""
    cdef int depth = 1, at
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
        elif meaning not in (M_FILLER, M_EQUAL, M_OF):
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
        item = put_sign(f, token)
        item.approximate = token.op == c'~'
        item.num = token.num
    if token_kind(f, f.at) == T_WORD:
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
    if following.gap and following.op in b"+-" and operand_begins(f, f.at):
        return False
    put_item(f, I_UNKNOWN, token)
    return True


cdef void fold_single(Fold* f, const Token* token) noexcept nogil:
    cdef int last = last_item(f)
    cdef int following = token_kind(f, f.at)
    if (
        operand_ends(f)
        or last in (I_OPERATOR, I_UNKNOWN)
        or (
            following not in (T_NONE, T_EQUALS)
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
        and f.tokens[at].meaning in (M_PLAIN, M_FILLER)
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
    fold_fraction(f, token, 1, token.op)
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
    sign = put_sign(f, token)
    sign.verb = True
    fillers(f, sign)
    if f.at == before and not operand_begins(f, f.at):
        f.r.num_items -= 1
        f.r.num_signs -= 1
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
        meaning in (M_DIVIDED, M_MULTIPLIED)
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
        put_item(f, I_NUMBER, token).num = token.op
        put_item(f, I_OPERATOR, token).op = c'*'
    elif meaning == M_OF and fold_of(f, token):
        pass
    elif meaning in (M_VERB, M_EQUAL):
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
    return kind in (T_NUMBER, T_FRACTION, T_CLOSE, T_PERCENT)


cdef inline bint begins_number(int kind) noexcept nogil:
    return kind in (T_NUMBER, T_FRACTION, T_OPEN, T_OPERATOR)


cdef int without_emphasis(Token* tokens, int size) noexcept nogil:
    """Turn stars between operands into operators and drop the others; return how many stay."""
    cdef int kept = 0, index, left, right
    cdef bint gap = False, before, after, single
    cdef Token* token
    for index in range(size):
        token = &tokens[index]
        if token.kind not in (T_STAR, T_STARS):
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
                (ends_number(left) or left in (T_WORD, T_NAME))
                and (begins_number(right) or right in (T_WORD, T_NAME))
                and (before == after or (single and ends_number(left) and begins_number(right)))
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


cdef void fold(const Scan* s) noexcept nogil:
    """Tokens of one stretch to items."""
    cdef Reader* r = s.r
    cdef Fold f
    cdef Token* token
    cdef int kind, following
    f.r = r
    f.tokens = r.tokens
    f.size = r.num_tokens
    if s.kinds & (1 << T_STAR | 1 << T_STARS):
        f.size = without_emphasis(r.tokens, f.size)
    f.at = 0
    f.after_unit = False
    f.unit_words = 0
    r.num_items = 0
    r.num_signs = 0
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
            while token_kind(&f, following) in (T_AMPERSAND, T_LINE):
                following += 1
            if (
                token_kind(&f, following) != T_EQUALS
                and last_item(&f) not in (I_SIGN, I_OPERATOR)
            ):
                fold_stop(&f, token)
