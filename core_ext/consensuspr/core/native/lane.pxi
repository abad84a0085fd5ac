# The fast lane: the tokens that rollouts are made of, where nobody asks for offsets.
#
# Most tokens are plain words, letters, short numbers and signs of which the next byte or two tell
# that no special rule applies.  Here they are written with the state in registers; whatever looks
# unusual goes through `step`, which knows all rules.  A token that the lane takes leaves the same
# output and the same state as `step` would.  Tests compare the lane with the pass that keeps
# offsets, which does without it, and both with the twin.

# What follows an x that is a variable whatever stands before it.
cdef uint8_t SETTLES_X[256]
# A letter that may be a product sign, or a unit.
cdef uint8_t LETTER_ASKS[256]
# What may follow a letter that is a token of its own: not what may go on with its word.
cdef uint8_t ENDS_LETTER[256]
# What follows a caret that begins no degree and no prime.
cdef uint8_t PLAIN_POWER[256]
# A number ends before a byte unless the one behind it has a property that the first forbids.
cdef uint8_t FORBIDS[256]
cdef uint8_t PROPERTIES[256]
# The gap that a command of this one character makes, 0 for none.
cdef uint8_t COMMAND_GAPS[256]

cdef extern from *:
    """
    /* A run of prose, and how it ended. */
    typedef struct {
        Py_ssize_t read, written;
        int words, commas, sentences;
        uint8_t tail;  /* its last token: 0 for a word, else the sign */
    } ProseRun;

    /* Set the bit that makes letters small in in[0:32]; bit n of the result: byte n is none. */
    static inline uint32_t fold_block(const uint8_t* in, uint8_t* out) {
        uint32_t others = 0;
        for (int part = 0; part < 32; part += 16) {
            const bytes16 bytes = load16(in + part);
            store16(out + part, small16(bytes));
            others |= (uint32_t)(letters16(bytes) ^ 0xFFFFu) << part;
        }
        return others;
    }

    /* Fold the run of prose that begins with the word at in[0] into out: plain words with a
       space, a comma and a space or a point and a space between them, and single small letters
       before another word.  A space is written where one was read, but for those after a
       comma.  The run ends before what may be one of filter's words, and before a word that
       is not over within its 32 bytes.  A word begins before stop; 33 bytes from there on are
       readable, and 32 writable at what stands for it. */
    static inline ProseRun fold_prose(
        const uint8_t* in, const uint8_t* stop, uint8_t* out, const uint16_t* filter
    ) {
        ProseRun run = {0, 0, 0, 0, 0, 0};
        const uint8_t* begin = in;
        uint8_t* target = out;
        while (begin < stop) {
            uint32_t others = fold_block(begin, target);
            unsigned from = 0;
            int single = 0;
            while (others) {
                unsigned end = (unsigned)__builtin_ctz(others);
                unsigned length = end - from;
                const uint8_t* word = begin + from;
                uint8_t after = begin[end];
                others &= others - 1;
                if (length < 2) {
                    /* "a" in the midst: what it leaves behind, the next word settles. */
                    if (length == 0 || single || word == in || word[0] < 'a' || after != ' ')
                        goto over;
                    single = 1;
                    from = end + 1;
                    continue;
                }
                if (after >= 0x80)
                    goto over;
                if (length < 16
                        && filter[(word[0] & 31) << 5 | (word[length - 1] & 31)] >> length & 1) {
                    /* "to" and "by" end a sign only after "equal", "divided", "multiplied". */
                    uint8_t before = word == in ? 'd' : word[-2] | 0x20;
                    int harmless = length == 2 && !single && before != 'l' && before != 'd'
                        && (((word[0] | 0x20) == 't' && (word[1] | 0x20) == 'o')
                            || ((word[0] | 0x20) == 'b' && (word[1] | 0x20) == 'y'));
                    if (!harmless)
                        goto over;
                }
                run.read = begin + end - in;
                run.written = target + end - out;
                run.words += 1 + single;
                run.tail = 0;
                single = 0;
                from = end + 1;
                if (after == ' ')
                    continue;
                if ((after != ',' && after != '.') || begin[end + 1] != ' ')
                    goto over;
                run.read++;
                run.written++;
                run.tail = after;
                if (after == ',') {
                    run.commas++;
                    begin += end + 2;
                    target += end + 1;
                    goto next;
                }
                run.sentences++;
                others &= others - 1;
                from = end + 2;
            }
            if (from == 0 || from >= 32 || single)
                goto over;
            begin += from;
            target += from;
        next:;
        }
    over:
        return run;
    }

    /* Return how many digits begin in[0:8]. */
    static inline unsigned count_digits(const uint8_t* in) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        /* A byte with no digit carries into those behind it only, and those do not count. */
        uint64_t value = load_word(in) ^ 0x3030303030303030u;
        uint64_t others = (value | (value + 0x7676767676767676u)) & 0x8080808080808080u;
        return others ? (unsigned)__builtin_ctzll(others) >> 3 : 8;
    #else
        unsigned count = 0;
        while (count < 8 && (uint8_t)(in[count] - '0') <= 9)
            count++;
        return count;
    #endif
    }
    """
    ctypedef struct ProseRun:
        Py_ssize_t read
        Py_ssize_t written
        int words
        int commas
        int sentences
        uint8_t tail

    ProseRun fold_prose(
        const uint8_t* data, const uint8_t* stop, uint8_t* out, const uint16_t* filter
    ) noexcept nogil
    unsigned count_digits(const uint8_t* data) noexcept nogil


cdef inline int separator_due(int kind, int last, int gap, int flags) noexcept nogil:
    """Tell whether a letter or a number needs a separator before it; -1 where `step` knows."""
    cdef int verdict = SEPARATES[separates_index(kind, last, gap)]
    if verdict != SEPARATES_MAYBE:
        return verdict
    if last == K_WORD:
        # The argument of a function, perhaps without brackets.
        return -1 if flags & F_FUNCTION else 1
    if last == K_LETTER and kind == K_LETTER:
        return flags & F_WORDY and gap == GAP_SPACE
    return -1


cdef inline bint letter_asks(uint8_t byte, uint8_t following, int last, int units) noexcept nogil:
    """Tell where only `step` knows what a letter is that LETTER_ASKS has."""
    if (byte | 0x20) != c'x':
        return last == K_NUMBER
    return (last == K_NUMBER or last == K_CLOSE or units > 0) and not SETTLES_X[following]


cdef inline uint8_t separator(int last, int gap) noexcept nogil:
    return c' ' if last == K_WORD or last == K_SENTENCE or gap < GAP_MARK else c'\n'


cdef inline void count_token(Pass* s, int last, int kind, int content) noexcept nogil:
    """Note a token of an open group; what stands outside of groups is never asked for."""
    if s.tokens == 0:
        s.first = kind
    s.tokens += 1
    s.factors += last < K_ROOT and kind != K_OPERATOR and kind != K_SENTENCE
    s.content |= content


cdef inline void count_run(Pass* s, int last, const ProseRun* run) noexcept nogil:
    """Note the tokens of a run of prose."""
    if s.tokens == 0:
        s.first = K_WORD
    s.tokens += run.words + run.commas + run.sentences
    s.factors += run.words + run.commas - (last >= K_ROOT)
    s.content |= C_WORDS | (C_OTHER if run.commas or run.sentences else C_NONE)


cdef inline bint minus_subtracts(
    const uint8_t* data, int last, int gap, int flags
) noexcept nogil:
    """Tell that the minus at data[0] is an operator, no matter what else stands there."""
    cdef uint8_t following = data[1]
    if following == c' ':
        # Between blanks: a difference, where no word of prose follows.
        return not flags & F_LINE_START and (
            gap <= GAP_GLUE
            or (
                gap != GAP_BREAK
                and data[2] < 0x80
                and data[3] < 0x80
                and BYTE_CLASS[data[2]] != CH_SPACE
                and not (
                    BYTE_CLASS[data[2]] == CH_LETTER and BYTE_CLASS[data[3]] == CH_LETTER
                )
            )
        )
    if (
        following >= 0x80
        or following == c'-'
        or following == c'>'
        or is_blank(BYTE_CLASS[following])
    ):
        return False
    if gap <= GAP_GLUE:
        return BYTE_CLASS[following] != CH_LETTER or (
            data[2] < 0x80 and BYTE_CLASS[data[2]] != CH_LETTER
        )
    return last != K_WORD and gap != GAP_BREAK


cdef inline bint to_general(const Pass* s, Py_ssize_t at) noexcept nogil:
    """Tell where the lane must not go on: a product is pending, the output nears its limit."""
    return s.product or at_limit(s, at)


cdef Py_ssize_t unhurried(Pass* s, int cls, Py_ssize_t at) noexcept nogil:
    """Handle what stands at ``at`` the general way, or a shorter one that comes to the same."""
    cdef const uint8_t* data = s.data
    cdef Py_ssize_t end = at + 1
    cdef uint32_t code
    cdef int group, gap
    if cls == CH_CLOSE:
        return close_paren(s, at, end)
    if cls == CH_OPEN:
        return open_paren(s, at, end)
    if cls == CH_LETTER:
        return letters(s, at)
    if cls == CH_NEWLINE:
        if data[at] == c'\n':
            end += data[end] == c'\n'
            if data[end] < 0x80 and not is_blank(BYTE_CLASS[data[end]]):
                if end - at == 2 or s.size == s.base:
                    begin_paragraph(s, end)
                end_line(s)
                return end
    elif cls == CH_MULTIBYTE:
        # Greek letters, for the most part.
        if 0xC2 <= data[at] < 0xE0 and data[end] & 0xC0 == 0x80:
            code = CANONICAL[(<uint32_t>data[at] & 0x1F) << 6 | (data[end] & 0x3F)]
            if CLASS_OF[code] == CH_SYMBOL:
                return operand(s, code, at, at + 2)
    elif cls == CH_BACKSLASH:
        gap = COMMAND_GAPS[data[end]]
        if gap:
            widen(s, gap)
            if gap == GAP_MARK:
                s.flags &= ~F_LINE_START
            return end + 1
    elif cls == CH_BRACE_CLOSE:
        if s.overflow == 0 and s.depth > 0:
            group = s.frames[s.depth - 1].group
            if group == G_WRAP or (
                group == G_TEXT
                and data[end] != c'('
                and data[end] != c'['
                and data[end] != c'\\'
            ):
                s.depth -= 1
                s.braces -= 1
                if group == G_TEXT:
                    widen(s, GAP_MARK)
                return end
    elif cls == CH_STAR:
        if (
            data[end] == c'*'
            and data[end + 1] != c'*'
            and data[end + 1] < 0x80
            and (s.gap > GAP_GLUE or not ends_factor(s.last))
        ):
            widen(s, GAP_MARK)
            return end + 1
    elif cls == CH_UNDERSCORE:
        # The sign goes where the digits join the letter without it: x_1 is x1.
        if (
            s.last == K_LETTER
            and s.gap <= GAP_GLUE
            and c'0' <= data[end] <= c'9'
            and not c'0' <= s.out[s.size - 1] <= c'9'
        ):
            return end
    return step(s, at)


cdef Py_ssize_t fast_lane(Pass* s, Py_ssize_t stop) noexcept nogil:
    """Normalise tokens that begin before ``stop``; return where the general way goes on.

    LANE_MARGIN bytes are readable from there on, or two line feeds stand there: no token of the
    lane goes on behind these, nor looks at what does.
    """
    cdef const uint8_t* data = s.data
    cdef uint8_t* out = s.out
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t size = s.size
    cdef Py_ssize_t length
    # What every token sets, and whether a group is open.
    cdef int last = s.last
    cdef int gap = s.gap
    cdef int flags = s.flags
    cdef int units = s.unit_words
    cdef bint grouped = s.depth > 0
    cdef int verdict  # a separator is due: 0 or 1, -1: the general way
    cdef int cls, kind, content
    cdef bint wordy
    cdef unsigned space
    cdef uint8_t byte, following
    cdef ProseRun run
    while at < stop:
        # Whether a space stands here cannot be foreseen, hence no branch.
        space = data[at] == c' '
        byte = <uint8_t>(data[at] ^ ((data[at] ^ data[at + 1]) & -space))
        cls = BYTE_CLASS[byte]
        at += space
        gap = WIDER[gap << 3 | space * GAP_SPACE]
        following = data[at + 1]
        if cls == CH_LETTER:
            if BYTE_CLASS[following] == CH_LETTER:
                if units < 0 and last != K_NUMBER and last != K_UNDERSCORE:
                    verdict = SEPARATES[separates_index(K_WORD, last, gap)]
                    out[size] = c' '
                    run = fold_prose(
                        data + at, data + stop, out + size + verdict, WORD_NAMES.signs.lengths
                    )
                    if run.read:
                        size += verdict + run.written
                        at += run.read
                        if grouped:
                            count_run(s, last, &run)
                        last = K_WORD
                        if run.tail:
                            last = K_PUNCTUATION if run.tail == c',' else K_SENTENCE
                        gap = GAP_NONE
                        flags = F_NONE
                        continue
            elif ENDS_LETTER[following] and not (
                LETTER_ASKS[byte] and letter_asks(byte, following, last, units)
            ):
                # A variable, or a word of one letter.
                verdict = separator_due(K_LETTER, last, gap, flags)
                if verdict >= 0:
                    wordy = gap == GAP_SPACE and (last == K_WORD or flags & F_WORDY)
                    if verdict:
                        out[size] = separator(last, gap)
                        size += 1
                    elif last == K_LETTER and c'a' <= (out[size - 1] | 0x20) <= c'z':
                        out[size - 1] = LOWER[out[size - 1]]
                        byte = LOWER[byte]
                    out[size] = byte
                    size += 1
                    at += 1
                    if grouped:
                        count_token(s, last, K_LETTER, C_NONE)
                    flags = F_SEALED if last == K_UNDERSCORE else F_NONE
                    if verdict and wordy:
                        flags |= F_WORDY
                    last = K_LETTER
                    gap = GAP_NONE
                    units = -1
                    continue
        elif cls == CH_DIGIT:
            length = count_digits(data + at)
            if (
                length < 8
                and not FORBIDS[data[at + length]] & PROPERTIES[data[at + length + 1]]
                and not flags & F_LINE_START
            ):
                if last == K_LETTER and gap == GAP_NONE:
                    if not flags & F_SEALED:
                        # Part of a name: x1.
                        memcpy(out + size, data + at, 8)
                        size += length
                        at += length
                        flags = F_NONE
                        units = -1
                        continue
                elif last != K_UNDERSCORE and not (gap == GAP_NONE and last == K_WORD):
                    verdict = separator_due(K_NUMBER, last, gap, flags)
                    if verdict >= 0:
                        if verdict:
                            out[size] = separator(last, gap)
                            size += 1
                        memcpy(out + size, data + at, 8)
                        size += length
                        at += length
                        if grouped:
                            count_token(s, last, K_NUMBER, C_NONE)
                        last = K_NUMBER
                        gap = GAP_NONE
                        flags = F_NONE
                        units = 0
                        s.unit_at = size
                        continue
        else:
            kind = K_START
            content = C_OTHER
            if cls == CH_EQUALS:
                if following != c'=' and following != c'>' and following < 0x80:
                    kind = K_RELATION
            elif cls == CH_COMMA:
                kind = K_PUNCTUATION
            elif cls == CH_POINT:
                if following < 0x80 and not c'0' <= following <= c'9' and following != c'.':
                    kind = K_SENTENCE
            elif cls == CH_PLUS:
                kind = K_OPERATOR
                content = C_SUM
            elif cls == CH_MINUS:
                if minus_subtracts(data + at, last, gap, flags):
                    kind = K_OPERATOR
                content = C_SUM
            elif cls == CH_COLON:
                if following != c'=' and following < 0x80:
                    kind = K_PUNCTUATION
            elif cls == CH_CARET:
                if PLAIN_POWER[following] or (
                    following == c'{' and data[at + 2] < 0x80 and data[at + 2] != c'\\'
                ):
                    kind = K_CARET
                content = C_NONE
            elif cls == CH_SENTENCE_END:
                kind = K_SENTENCE
            elif cls == CH_MARK:
                gap = WIDER[gap << 3 | GAP_MARK]
                if byte == c'$':
                    flags &= ~F_LINE_START
                at += 1
                continue
            if kind != K_START:
                if units > 0 and (kind == K_OPERATOR or kind == K_RELATION):
                    size = s.unit_at
                    s.dropped_at = size
                out[size] = byte
                size += 1
                if grouped:
                    if content == C_SUM and s.tokens == 0 and byte == c'-':
                        s.content |= C_LEADING_MINUS
                    else:
                        count_token(
                            s, last, kind if kind != K_CARET else K_OPERATOR, content
                        )
                flags = (cls == CH_COMMA and last == K_NUMBER and gap == GAP_NONE) * F_LISTING
                last = kind
                gap = GAP_NONE
                units = -1
                at += 1
                continue
        # All else with the whole state at hand.
        s.size = size
        s.last = <uint8_t>last
        s.gap = <uint8_t>gap
        s.flags = <uint8_t>flags
        s.unit_words = <int8_t>units
        at = unhurried(s, BYTE_CLASS[byte], at)
        while to_general(s, at) and at < stop:
            at = general(s, at)
        size = s.size
        last = s.last
        gap = s.gap
        flags = s.flags
        units = s.unit_words
        grouped = s.depth > 0
    s.size = size
    s.last = <uint8_t>last
    s.gap = <uint8_t>gap
    s.flags = <uint8_t>flags
    s.unit_words = <int8_t>units
    return at


cdef void fill_lane() noexcept nogil:
    """Tabulate which bytes settle what stands before them."""
    cdef int code, cls
    cdef uint8_t key
    cdef const Entry* named
    for code in range(256):
        cls = BYTE_CLASS[code]
        PROPERTIES[code] = (
            16
            | (cls == CH_DIGIT) * 1
            | (code == c'\\') * 2
            | (code == c',') * 4
            | (code >= 128) * 8
        )
        # 1,000 or 1.5; 1,\!000; 1{,}000 or 1\,000; of other bytes the first one tells.
        FORBIDS[code] = (
            0 if NUMBER_ENDS[code]
            else 1 | 8 if code == c'.'
            else 1 | 2 | 8 if code == c','
            else 4 | 8 if code == c'{' or code == c'\\'
            else 16
        )
        SETTLES_X[code] = (
            cls == CH_PLUS
            or cls == CH_MINUS
            or cls == CH_EQUALS
            or cls == CH_CARET
            or cls == CH_UNDERSCORE
            or cls == CH_STAR
            or cls == CH_SLASH
            or cls == CH_OPEN
            or cls == CH_CLOSE
            or cls == CH_COMMA
        )
        LETTER_ASKS[code] = UNIT_LETTER[code] != 0 or code == c'x' or code == c'X'
        ENDS_LETTER[code] = code < 128 and cls != CH_LETTER and cls != CH_PRIME
        PLAIN_POWER[code] = cls == CH_DIGIT or cls == CH_LETTER or cls == CH_OPEN
        if code < 128 and cls != CH_LETTER:
            key = <uint8_t>code
            named = find_name(&COMMAND_NAMES, &key, 1)
            if named != NULL:
                if named.action == CMD_MARK:
                    COMMAND_GAPS[code] = GAP_MARK
                elif named.action == CMD_THIN:
                    COMMAND_GAPS[code] = GAP_THIN
