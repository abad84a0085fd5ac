# Exact rationals in 64 bits over 64 bits, always reduced; what does not fit is no value.

cdef extern from *:
    """
    #include <stdint.h>

    typedef __int128 wide;
    typedef unsigned __int128 uwide;

    static inline uint64_t magnitude(int64_t value) {
        return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    }

    static uint64_t common_divisor(uint64_t a, uint64_t b) {
        int shift;
        if (a == 0 || b == 0)
            return a | b;
        shift = __builtin_ctzll(a | b);
        a >>= __builtin_ctzll(a);
        do {
            b >>= __builtin_ctzll(b);
            if (a > b) {
                uint64_t swapped = a;
                a = b;
                b = swapped;
            }
            b -= a;
        } while (b);
        return a << shift;
    }

    /* Reduced operands in, a reduced result out; 0 where it does not fit. */
    static int fraction_add(
        int64_t an, int64_t ad, int64_t bn, int64_t bd, int64_t* num, int64_t* den
    ) {
        if (ad == 1 && bd == 1) {
            *den = 1;
            return !__builtin_add_overflow(an, bn, num) && *num != INT64_MIN;
        }
        uint64_t shared = common_divisor((uint64_t)ad, (uint64_t)bd);
        wide sum = (wide)an * (bd / (int64_t)shared) + (wide)bn * (ad / (int64_t)shared);
        uwide size = sum < 0 ? 0 - (uwide)sum : (uwide)sum;
        uint64_t last = common_divisor((uint64_t)(size % shared), shared);
        uwide below = (uwide)((uint64_t)ad / shared) * ((uint64_t)bd / last);
        size /= last;
        if (size > INT64_MAX || below > INT64_MAX)
            return 0;
        *num = sum < 0 ? -(int64_t)size : (int64_t)size;
        *den = size ? (int64_t)below : 1;
        return 1;
    }

    static int fraction_multiply(
        int64_t an, int64_t ad, int64_t bn, int64_t bd, int64_t* num, int64_t* den
    ) {
        if (ad == 1 && bd == 1) {
            *den = 1;
            return !__builtin_mul_overflow(an, bn, num) && *num != INT64_MIN;
        }
        int64_t first = (int64_t)common_divisor(magnitude(an), (uint64_t)bd);
        int64_t second = (int64_t)common_divisor(magnitude(bn), (uint64_t)ad);
        if (an == 0 || bn == 0) {
            *num = 0;
            *den = 1;
            return 1;
        }
        return !__builtin_mul_overflow(an / first, bn / second, num)
            && !__builtin_mul_overflow(ad / second, bd / first, den)
            && *num != INT64_MIN;
    }

    /* The divisor is not zero. */
    static int fraction_divide(
        int64_t an, int64_t ad, int64_t bn, int64_t bd, int64_t* num, int64_t* den
    ) {
        return bn < 0 ? fraction_multiply(an, ad, -bd, -bn, num, den)
                      : fraction_multiply(an, ad, bd, bn, num, den);
    }

    static int fraction_power(int64_t n, int64_t d, int64_t power, int64_t* num, int64_t* den) {
        int64_t swapped;
        *num = 1;
        *den = 1;
        if (power < 0) {
            if (n == 0)
                return 0;
            swapped = n < 0 ? -d : d;
            d = n < 0 ? -n : n;
            n = swapped;
            power = -power;
        }
        while (power--) {
            if (__builtin_mul_overflow(*num, n, num) || __builtin_mul_overflow(*den, d, den)
                || *num == INT64_MIN)
                return 0;
        }
        return 1;
    }

    static inline int64_t floor_of(wide n, wide d) {
        wide whole = n / d;
        return (int64_t)(whole - (n % d != 0 && n < 0));
    }

    static int fraction_floor(
        int64_t an, int64_t ad, int64_t bn, int64_t bd, int64_t* num, int64_t* den
    ) {
        wide above = (wide)an * bd;
        wide below = (wide)ad * bn;
        wide whole;
        if (below < 0) {
            above = -above;
            below = -below;
        }
        whole = above / below - (above % below != 0 && above < 0);
        *num = (int64_t)whole;
        *den = 1;
        return whole <= INT64_MAX && whole >= -(wide)INT64_MAX;
    }

    static const int64_t TENS[19] = {
        1LL, 10LL, 100LL, 1000LL, 10000LL, 100000LL, 1000000LL, 10000000LL, 100000000LL,
        1000000000LL, 10000000000LL, 100000000000LL, 1000000000000LL, 10000000000000LL,
        100000000000000LL, 1000000000000000LL, 10000000000000000LL, 100000000000000000LL,
        1000000000000000000LL
    };

    /* As Python's round(x, places) on exact numbers: ties to even. */
    static int fraction_round(int64_t n, int64_t d, int places, int64_t* num, int64_t* den) {
        int64_t above, below, whole;
        uint64_t rest;
        if (!fraction_multiply(n, d, TENS[places], 1, &above, &below))
            return 0;
        whole = floor_of(above, below);
        rest = (uint64_t)((wide)above - (wide)whole * below);
        if (rest > (uint64_t)below - rest || (rest == (uint64_t)below - rest && whole & 1))
            whole += 1;
        return fraction_divide(whole, 1, TENS[places], 1, num, den);
    }

    /* Tell whether rn/rd, a number shown with so many places, is n/d rounded to them; places
       below zero are zeros at its end. */
    static int fraction_rounds_to(int64_t n, int64_t d, int64_t rn, int64_t rd, int places) {
        wide difference, unit;
        if (places >= 0) {
            /* rn/rd is a whole number of units of 10^-places. */
            difference = (wide)n * TENS[places] - (wide)(rn * (wide)(TENS[places] / rd)) * d;
            unit = d;
        } else {
            difference = (wide)n - (wide)rn * d;
            unit = (wide)TENS[-places] * d;
        }
        if (difference < 0)
            difference = -difference;
        return difference <= unit / 2;
    }

    /* Return the magnitude of n/d in units of 10^-places, rounded, ties upwards or downwards; -1
       where it does not fit. */
    static inline int64_t units_of(int64_t n, int64_t d, int places, int up) {
        const uwide scaled = (uwide)magnitude(n) * (uint64_t)TENS[places];
        const uwide whole = scaled / (uint64_t)d;
        const uwide rest = 2 * (scaled % (uint64_t)d);
        if (whole >= INT64_MAX)
            return -1;
        return (int64_t)whole + (rest > (uint64_t)d || (up && rest == (uint64_t)d));
    }

    static inline uint64_t mixed(uint64_t value) {
        value ^= value >> 30;
        value *= 0xBF58476D1CE4E5B9u;
        value ^= value >> 27;
        value *= 0x94D049BB133111EBu;
        return value ^ (value >> 31);
    }

    static inline uint64_t fraction_hash(int64_t num, int64_t den) {
        return mixed((uint64_t)num * 0x9E3779B97F4A7C15u + mixed((uint64_t)den));
    }
    """
    uint64_t magnitude(int64_t value) noexcept nogil
    uint64_t common_divisor(uint64_t a, uint64_t b) noexcept nogil
    bint fraction_add(
        int64_t an, int64_t ad, int64_t bn, int64_t bd, int64_t* num, int64_t* den
    ) noexcept nogil
    bint fraction_multiply(
        int64_t an, int64_t ad, int64_t bn, int64_t bd, int64_t* num, int64_t* den
    ) noexcept nogil
    bint fraction_divide(
        int64_t an, int64_t ad, int64_t bn, int64_t bd, int64_t* num, int64_t* den
    ) noexcept nogil
    bint fraction_power(
        int64_t n, int64_t d, int64_t power, int64_t* num, int64_t* den
    ) noexcept nogil
    bint fraction_floor(
        int64_t an, int64_t ad, int64_t bn, int64_t bd, int64_t* num, int64_t* den
    ) noexcept nogil
    bint fraction_round(int64_t n, int64_t d, int places, int64_t* num, int64_t* den) noexcept nogil
    bint fraction_rounds_to(int64_t n, int64_t d, int64_t rn, int64_t rd, int places) noexcept nogil
    const int64_t TENS[19]
    int64_t units_of(int64_t n, int64_t d, int places, int up) noexcept nogil
    uint64_t mixed(uint64_t value) noexcept nogil
    uint64_t fraction_hash(int64_t num, int64_t den) noexcept nogil
