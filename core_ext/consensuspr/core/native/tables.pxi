# The vocabulary in C: filled once from consensuspr.core.tables, read without the GIL.

cdef enum CommandAction:
    CMD_WORD = 0, CMD_EMIT, CMD_SPACE, CMD_NOTHING, CMD_DELIMITER, CMD_MARK, CMD_BREAK, CMD_WRAP
    CMD_TEXT, CMD_DISCARD, CMD_ENVIRONMENT, CMD_FRAC, CMD_BINOM, CMD_SQRT, CMD_MOD, CMD_THIN
    CMD_NOT, CMD_BAR, CMD_UPRIGHT

cdef enum WordMeaning:
    W_PLAIN = 0, W_STOP, W_FUNCTION, W_SYMBOL, W_SQRT, W_MOD, W_EQUALS, W_TO, W_PLUS, W_MINUS
    W_TIMES, W_BY, W_PERCENT, W_GLUED_UNIT, W_APPLIED, W_CURRENCY, W_MINUTES

cdef enum:
    # Longest name in either vocabulary, with its final zero.
    KEY_BYTES = 24
    # A power of two, at least twice the number of names.
    VOCABULARY_SLOTS = 1024
    # Every code point below this has an entry of its own; above it only two ranges matter.
    DIRECT_CODES = 0x3400
    # tables.REPLACEMENT, LOOKAHEAD, MAX_UNIT_WORDS, MAX_REWRITE_BYTES
    # MAX_UNIT_BRACKET, MAX_FACTOR, MAX_LABEL, MIN_NAME and MAX_UNIT_DIGITS; a test compares.
    REPLACEMENT_CODE = 0x1A
    LOOKAHEAD_LIMIT = 8
    UNIT_WORDS_LIMIT = 3
    REWRITE_LIMIT = 96
    UNIT_BRACKET_LIMIT = 40
    FACTOR_LIMIT = 40
    LABEL_LIMIT = 2
    SHORTEST_NAME = 4
    UNIT_DIGITS_LIMIT = 24
    NEGATIONS = 32  # room for tables.NEGATED
    MOST_DISPLAYS = 12  # room for tables.DISPLAYS
    # No class of tables.Char: the character has to be decoded first.
    CH_MULTIBYTE = 255

# What a letter may be behind a number.
cdef enum UnitLetter:
    UNIT_OF_NUMBER = 1, UNIT_OF_DEGREES = 2

# One command with its meaning; an empty slot has length 0.
cdef struct Entry:
    char key[KEY_BYTES]
    int length
    int action        # CommandAction
    uint32_t payload  # canonical code point, 0 for none

# One word with its meaning: its bytes, zero-padded, in two machine words.
cdef struct WordEntry:
    uint64_t low, high
    int length        # 0: an empty slot
    int meaning       # WordMeaning
    uint32_t payload

# Bit n of entry (first letter, last letter): some word of n bytes looks like that.  Nearly all
# words of prose are turned away here, by one load and a branch that is easily foreseen.
cdef struct WordFilter:
    uint16_t lengths[1024]

# Open addressing with linear probing, like Vocabulary.
cdef struct WordTable:
    WordEntry slots[VOCABULARY_SLOTS]
    WordFilter any
    WordFilter signs  # of the words that mean something even where no unit is in question

# Open addressing with linear probing; at most half full, which filling asserts.
cdef struct Vocabulary:
    Entry slots[VOCABULARY_SLOTS]
    uint32_t lengths[256]  # bit n: some name of n bytes starts with this byte
    int longest

cdef Vocabulary COMMAND_NAMES
cdef WordTable WORD_NAMES
cdef uint64_t FIRST_BYTES[9]             # mask of the first n bytes of a machine word
cdef uint8_t CLASS_OF[DIRECT_CODES]       # class of a canonical code point
cdef uint8_t BYTE_CLASS[256]              # class of an ASCII byte; CH_MULTIBYTE for others
# The character of each ASCII byte, to be loaded whole: one put together field by field on the
# stack and returned from there would stall until its stores are done.
cdef Unit UNIT_OF_BYTE[128]
cdef uint32_t CANONICAL[DIRECT_CODES]     # canonical code point of an input code point
cdef uint32_t HIGH[0x200]                 # of U+FE00 ... U+FFFF
cdef uint32_t MATHEMATICAL[0x400]         # of U+1D400 ... U+1D7FF
cdef uint8_t LOWER[256]
cdef uint8_t MOD_STARTS[256]              # this byte may begin what stands before "mod" ends
cdef uint8_t BLANK_STARTS[256]            # this byte may go on a run of spaces
cdef uint8_t UNIT_LETTER[256]             # see UnitLetter
cdef uint32_t NEGATED[2][NEGATIONS]       # relations, and what they are when struck out
cdef char DISPLAYS[MOST_DISPLAYS][KEY_BYTES]   # zero-terminated; an empty one ends them
cdef uint8_t NUMBER_ENDS[256]             # this byte after digits ends their number
cdef uint8_t SCRIPT_TEXT[DIRECT_CODES]    # ASCII character of a super- or subscript
cdef char FRACTION_TEXT[DIRECT_CODES][5]      # text of a vulgar fraction, zero-terminated


cdef inline uint32_t hash_name(const uint8_t* name, Py_ssize_t length) noexcept nogil:
    cdef uint32_t value = 2166136261u
    cdef Py_ssize_t index
    for index in range(length):
        value = (value ^ name[index]) * 16777619u
    return value ^ (value >> 15)


cdef inline const Entry* find_name(
    const Vocabulary* vocabulary, const uint8_t* name, Py_ssize_t length
) noexcept nogil:
    """Return the entry of a name, NULL where it has none."""
    if length > vocabulary.longest or not (vocabulary.lengths[name[0]] >> length) & 1:
        return NULL
    cdef uint32_t slot = hash_name(name, length)
    cdef const Entry* entry
    while True:
        entry = &vocabulary.slots[slot & (VOCABULARY_SLOTS - 1)]
        if entry.length == 0:
            return NULL
        if entry.length == length and memcmp(entry.key, name, length) == 0:
            return entry
        slot += 1


cdef extern from *:
    """
    #include "bytes16.h"

    static inline uint64_t load_word(const uint8_t* data) {
        uint64_t value;
        memcpy(&value, data, sizeof value);
        return value;
    }

    /* Copy the ASCII letters at the beginning of in[0:available], lower-cased, to out and
       return how many there are.  Up to 15 bytes behind them in out are overwritten. */
    static inline Py_ssize_t fold_letters(
        const uint8_t* in, Py_ssize_t available, uint8_t* out
    ) {
        Py_ssize_t count = 0;
        while (available - count >= 16) {
            const bytes16 bytes = load16(in + count);
            const unsigned letters = letters16(bytes);
            store16(out + count, small16(bytes));
            if (letters != 0xFFFFu)
                return count + __builtin_ctz(~letters);
            count += 16;
        }
        while (count < available && (uint8_t)((in[count] | 0x20) - 'a') <= 'z' - 'a') {
            out[count] = in[count] | 0x20;
            count++;
        }
        return count;
    }
    """
    uint64_t load_word(const uint8_t* data) noexcept nogil
    Py_ssize_t fold_letters(const uint8_t* data, Py_ssize_t available, uint8_t* out) noexcept nogil


cdef inline uint32_t hash_word(uint64_t low, uint64_t high) noexcept nogil:
    return <uint32_t>(
        (low ^ (high * <uint64_t>0x9E3779B97F4A7C15)) * <uint64_t>0xD6E8FEB86659FD93 >> 40
    )


cdef inline uint32_t word_shape(const uint8_t* letters, Py_ssize_t length) noexcept nogil:
    """Return a number for the first and the last letter, in either case."""
    return (letters[0] & 31) << 5 | (letters[length - 1] & 31)


cdef inline const WordEntry* find_word(
    const WordFilter* words, uint32_t shape, const uint8_t* folded, Py_ssize_t length
) noexcept nogil:
    """Return the entry of a lower-case word of ``words``, NULL where it has none.

    ``shape`` is its word_shape, for which capitals will do: those of the input can be read
    earlier than bytes just written.  Sixteen bytes from ``folded`` on are readable, whatever
    stands behind the word.
    """
    if length >= 16 or not words.lengths[shape] >> length & 1:
        return NULL
    cdef uint64_t low, high
    cdef uint32_t slot
    if length <= 8:
        low = load_word(folded) & FIRST_BYTES[length]
        high = 0
    else:
        low = load_word(folded)
        high = load_word(folded + 8) & FIRST_BYTES[length - 8]
    slot = hash_word(low, high)
    cdef const WordEntry* entry
    while True:
        entry = &WORD_NAMES.slots[slot & (VOCABULARY_SLOTS - 1)]
        if entry.low == low and entry.high == high:
            return entry if entry.length else NULL
        if entry.length == 0:
            return NULL
        slot += 1


cdef int add_word(bytes word, int meaning, uint32_t payload) except -1:
    cdef uint8_t padded[16]
    cdef Py_ssize_t length = len(word)
    if not 2 <= length < 16:
        raise ValueError(f"{word!r} does not have 2 to 15 bytes")
    memset(padded, 0, 16)
    memcpy(padded, <const uint8_t*>word, length)
    cdef uint64_t low = load_word(padded)
    cdef uint64_t high = load_word(padded + 8)
    cdef uint32_t slot = hash_word(low, high)
    cdef int probes = 0
    while WORD_NAMES.slots[slot & (VOCABULARY_SLOTS - 1)].length:
        slot += 1
        probes += 1
        if probes > VOCABULARY_SLOTS // 2:
            raise ValueError("too many words for the table")
    cdef WordEntry* entry = &WORD_NAMES.slots[slot & (VOCABULARY_SLOTS - 1)]
    entry.low = low
    entry.high = high
    entry.length = <int>length
    entry.meaning = meaning
    entry.payload = payload
    WORD_NAMES.any.lengths[word_shape(padded, length)] |= <uint16_t>(1 << length)
    if meaning not in (W_STOP, W_GLUED_UNIT, W_CURRENCY):
        WORD_NAMES.signs.lengths[word_shape(padded, length)] |= <uint16_t>(1 << length)
    return 0


cdef int add_name(Vocabulary* vocabulary, bytes name, int action, uint32_t payload) except -1:
    cdef Py_ssize_t length = len(name)
    if not 0 < length < KEY_BYTES:
        raise ValueError(f"{name!r} is longer than {KEY_BYTES - 1} bytes")
    cdef const uint8_t* raw = name
    cdef uint32_t slot = hash_name(raw, length)
    cdef int probes = 0
    while vocabulary.slots[slot & (VOCABULARY_SLOTS - 1)].length:
        slot += 1
        probes += 1
        if probes > VOCABULARY_SLOTS // 2:
            raise ValueError("too many names for the table")
    cdef Entry* entry = &vocabulary.slots[slot & (VOCABULARY_SLOTS - 1)]
    memcpy(entry.key, raw, length)
    entry.length = <int>length
    entry.action = action
    entry.payload = payload
    vocabulary.lengths[raw[0]] |= 1u << length
    vocabulary.longest = max(vocabulary.longest, <int>length)
    return 0


def _fill_tables():
    """Copy the vocabulary of consensuspr.core.tables into C."""
    for code in range(DIRECT_CODES):
        mapped = tables.CHAR_MAP.get(code)
        CANONICAL[code] = code if mapped is None else ord(mapped)
        CLASS_OF[code] = int(tables.CHAR_CLASSES.get(chr(code), tables.Char.OTHER))
    for code in range(0x200):
        mapped = tables.CHAR_MAP.get(0xFE00 + code)
        HIGH[code] = 0xFE00 + code if mapped is None else ord(mapped)
    for code in range(0x400):
        mapped = tables.CHAR_MAP.get(0x1D400 + code)
        MATHEMATICAL[code] = 0x1D400 + code if mapped is None else ord(mapped)
    for code, mapped in tables.CHAR_MAP.items():
        direct = code < DIRECT_CODES or 0xFE00 <= code <= 0xFFFF or 0x1D400 <= code < 0x1D800
        if not direct or ord(mapped) >= DIRECT_CODES:
            raise ValueError(f"U+{code:04X} is outside the compiled tables")
    for char in tables.CHAR_CLASSES:
        if ord(char) >= DIRECT_CODES:
            raise ValueError(f"{char!r} is outside the compiled tables")
    for index, begins in enumerate(tables.DISPLAYS):
        encoded = begins.encode()
        memcpy(DISPLAYS[<int>index], <const char*>encoded, len(encoded))
    for code in range(256):
        BYTE_CLASS[code] = CLASS_OF[CANONICAL[code]] if code < 128 else CH_MULTIBYTE
        if code < 128:
            UNIT_OF_BYTE[code].code = CANONICAL[code]
            UNIT_OF_BYTE[code].cls = BYTE_CLASS[code]
            UNIT_OF_BYTE[code].width = 1
        NUMBER_ENDS[code] = code < 128 and chr(code) not in "0123456789.,{\\"
        MOD_STARTS[code] = code >= 128 or chr(code) in " \t\v\f~\\mM"
        BLANK_STARTS[code] = BYTE_CLASS[code] in (CH_SPACE, CH_MULTIBYTE)
        LOWER[code] = code + 32 if 65 <= code <= 90 else code
    for letter in tables.UNIT_LETTERS:
        UNIT_LETTER[ord(letter)] |= UNIT_OF_NUMBER
    for letter in tables.DEGREE_LETTERS:
        UNIT_LETTER[ord(letter)] |= UNIT_OF_DEGREES
    for index, (char, negated) in enumerate(tables.NEGATED.items()):
        NEGATED[0][index] = ord(char)
        NEGATED[1][index] = ord(negated)
    for count in range(9):
        FIRST_BYTES[count] = load_word(b"\xff" * count + b"\0" * (8 - count))
    for mapping in (tables.SUPERSCRIPTS, tables.SUBSCRIPTS):
        for char, text in mapping.items():
            SCRIPT_TEXT[ord(char)] = ord(text)
    for char, text in tables.FRACTIONS.items():
        raw = text.encode()
        for index in range(len(raw)):
            FRACTION_TEXT[ord(char)][index] = raw[index]
    for name, (action, payload) in tables.COMMANDS.items():
        add_name(&COMMAND_NAMES, name.encode(), int(action), ord(payload) if payload else 0)
    for name, (meaning, payload) in tables.WORDS.items():
        add_word(name.encode(), int(meaning), ord(payload) if payload else 0)


cdef inline Unit make_unit(uint32_t code, int width) noexcept nogil:
    cdef Unit unit
    if code < DIRECT_CODES:
        code = CANONICAL[code]
    elif 0xFE00 <= code <= 0xFFFF:
        code = HIGH[code - 0xFE00]
    elif 0x1D400 <= code < 0x1D800:
        code = MATHEMATICAL[code - 0x1D400]
    unit.code = code
    unit.cls = CLASS_OF[code] if code < DIRECT_CODES else CH_OTHER
    unit.width = width
    return unit


cdef Unit decode(const uint8_t* data, Py_ssize_t length, Py_ssize_t at) noexcept nogil:
    """Decode the character at data[at] >= 0x80; an invalid byte is one REPLACEMENT."""
    cdef uint32_t lead = data[at]
    cdef uint32_t code
    cdef Py_ssize_t left = length - at
    cdef Unit unit
    if lead >= 0xC2 and lead < 0xE0:
        if left >= 2 and data[at + 1] & 0xC0 == 0x80:
            return make_unit((lead & 0x1F) << 6 | (data[at + 1] & 0x3F), 2)
    elif lead >= 0xE0 and lead < 0xF0:
        if left >= 3 and data[at + 1] & 0xC0 == 0x80 and data[at + 2] & 0xC0 == 0x80:
            code = (lead & 0x0F) << 12 | (data[at + 1] & 0x3F) << 6 | (data[at + 2] & 0x3F)
            if 0xD800 <= code < 0xE000:
                # A lone surrogate of the caller's str: one character, one replacement.
                unit.code = REPLACEMENT_CODE
                unit.cls = CH_OTHER
                unit.width = 3
                return unit
            if code >= 0x800:
                return make_unit(code, 3)
    elif lead >= 0xF0 and lead < 0xF5:
        if (
            left >= 4
            and data[at + 1] & 0xC0 == 0x80
            and data[at + 2] & 0xC0 == 0x80
            and data[at + 3] & 0xC0 == 0x80
        ):
            code = (
                (lead & 0x07) << 18
                | (data[at + 1] & 0x3F) << 12
                | (data[at + 2] & 0x3F) << 6
                | (data[at + 3] & 0x3F)
            )
            if 0x10000 <= code < 0x110000:
                return make_unit(code, 4)
    unit.code = REPLACEMENT_CODE
    unit.cls = CH_OTHER
    unit.width = 1
    return unit
