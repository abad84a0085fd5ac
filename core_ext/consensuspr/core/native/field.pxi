# Arithmetic modulo algebra.PRIME, and the hashes of algebra.py.

cdef extern from *:
    """
    #define PRIME 0x1FFFFFFFFFF64837u
    #define PRIME_BELOW 636873ull       /* 2**61 - PRIME */
    #define LOW61 0x1FFFFFFFFFFFFFFFu

    static inline uint64_t field_reduce(uint64_t value) {
        value = (value & LOW61) + (value >> 61) * PRIME_BELOW;
        return value >= PRIME ? value - PRIME : value;
    }

    /* Both factors are below PRIME.  They are multiplied eight times as large, so that the upper
       halves of the products are what stands above 61 bits, which is worth PRIME_BELOW. */
    static inline uint64_t field_multiply(uint64_t a, uint64_t b) {
        const uwide product = (uwide)(a << 3) * b;
        const uwide folded = (uwide)(uint64_t)(product >> 64) * (PRIME_BELOW << 3);
        return field_reduce(
            ((uint64_t)product >> 3) + ((uint64_t)folded >> 3)
            + (uint64_t)(folded >> 64) * PRIME_BELOW);
    }

    static inline uint64_t field_add(uint64_t a, uint64_t b) {
        const uint64_t sum = a + b;
        return sum >= PRIME ? sum - PRIME : sum;
    }

    static inline uint64_t field_negate(uint64_t a) {
        return a ? PRIME - a : 0;
    }

    static uint64_t field_power(uint64_t base, uint64_t exponent) {
        uint64_t result = 1;
        for (; exponent; exponent >>= 1) {
            if (exponent & 1)
                result = field_multiply(result, base);
            base = field_multiply(base, base);
        }
        return result;
    }

    static uint64_t field_inverse(uint64_t a) {
        /* The extended algorithm of Euclid; a is not 0. */
        int64_t before = 0, coefficient = 1;
        uint64_t larger = PRIME, smaller = a;
        while (smaller > 1) {
            const uint64_t quotient = larger / smaller;
            const uint64_t rest = larger - quotient * smaller;
            const int64_t next = before - (int64_t)quotient * coefficient;
            before = coefficient;
            coefficient = next;
            larger = smaller;
            smaller = rest;
        }
        return coefficient < 0 ? PRIME - (uint64_t)-coefficient : (uint64_t)coefficient;
    }

    static inline uint64_t field_of(int64_t value) {
        const uint64_t size = field_reduce(magnitude(value));
        return value < 0 ? field_negate(size) : size;
    }

    static inline uint64_t field_element(uint64_t value) {
        return (mixed(value) >> 4) + 1;
    }

    static inline uint64_t name_point(uint64_t name, uint64_t point) {
        return field_element(name + (point + 1) * 0x9E3779B97F4A7C15u);
    }

    static inline uint64_t hash_words(const uint8_t* data, Py_ssize_t length) {
        uint64_t hash = (uint64_t)length, word;
        for (; length >= 8; data += 8, length -= 8) {
            memcpy(&word, data, 8);
            hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 32;
        }
        for (word = 0; length > 0; length--)
            word = word << 8 | *data++;
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        return hash >> 32;
    }

    static inline uint64_t name_step(uint64_t hash, uint8_t byte) {
        return (hash ^ byte) * 0x100000001B3u;
    }

    static inline int64_t residue_of(int64_t value, int64_t modulus) {
        value %= modulus;
        return value < 0 ? value + modulus : value;
    }

    static inline uint64_t modular_power(uint64_t base, uint64_t exponent, uint64_t modulus) {
        uint64_t result = 1 % modulus;
        for (; exponent; exponent >>= 1) {
            if (exponent & 1)
                result = result * base % modulus;
            base = base * base % modulus;
        }
        return result;
    }

    static inline uint64_t whole_root(uint64_t value) {
        uint64_t root = (uint64_t)__builtin_sqrt((double)value);
        while (root && (uwide)root * root > value)
            root--;
        while ((uwide)(root + 1) * (root + 1) <= value)
            root++;
        return root;
    }
    """
    const uint64_t PRIME
    const uint64_t LOW61
    uint64_t field_multiply(uint64_t a, uint64_t b) noexcept nogil
    uint64_t field_add(uint64_t a, uint64_t b) noexcept nogil
    uint64_t field_negate(uint64_t a) noexcept nogil
    uint64_t field_reduce(uint64_t value) noexcept nogil
    uint64_t field_power(uint64_t base, uint64_t exponent) noexcept nogil
    uint64_t field_inverse(uint64_t a) noexcept nogil
    uint64_t field_of(int64_t value) noexcept nogil
    uint64_t field_element(uint64_t value) noexcept nogil
    uint64_t name_point(uint64_t name, uint64_t point) noexcept nogil
    uint64_t hash_words(const uint8_t* data, Py_ssize_t length) noexcept nogil
    uint64_t name_step(uint64_t hash, uint8_t byte) noexcept nogil
    int64_t residue_of(int64_t value, int64_t modulus) noexcept nogil
    uint64_t modular_power(uint64_t base, uint64_t exponent, uint64_t modulus) noexcept nogil
    uint64_t whole_root(uint64_t value) noexcept nogil

cdef enum:
    NAME_START = 0xCBF29CE484222325


cdef inline uint64_t combine(uint64_t key, uint64_t value) noexcept nogil:
    """Take one more value into a hash that began as `mixed(kind)`."""
    return mixed(key ^ value)


cdef inline uint64_t never_zero(uint64_t key) noexcept nogil:
    return key | <uint64_t>(key == 0)
