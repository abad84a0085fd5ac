/* Sixteen bytes of text at once, the same on every processor.

   Loads, stores, comparisons and logic are the compiler's own vector types (GCC, Clang), which it
   turns into SSE2, NEON or plain words.  Only the step from sixteen comparisons to sixteen bits has
   no portable form; it is written once for each.  CONSENSUSPR_PLAIN_BITS takes the plain one. */

#ifndef CONSENSUSPR_BYTES16_H
#define CONSENSUSPR_BYTES16_H

#include <stdint.h>
#include <string.h>

#if defined(CONSENSUSPR_PLAIN_BITS)
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static inline bytes16 load16(const uint8_t* data) {
    bytes16 value;
    memcpy(&value, data, 16);
    return value;
}

static inline void store16(uint8_t* data, bytes16 value) {
    memcpy(data, &value, 16);
}

static inline bytes16 all16(uint8_t byte) {
    return (bytes16){byte, byte, byte, byte, byte, byte, byte, byte,
                     byte, byte, byte, byte, byte, byte, byte, byte};
}

/* 0xFF where first <= byte <= last, else 0. */
static inline bytes16 within16(bytes16 value, uint8_t first, uint8_t last) {
    return (bytes16)(value - all16(first) <= all16((uint8_t)(last - first)));
}

/* 0xFF where a byte is this one, else 0. */
static inline bytes16 equal16(bytes16 value, uint8_t byte) {
    return (bytes16)(value == all16(byte));
}

/* The bytes with ASCII's small letters for the large ones; signs change too. */
static inline bytes16 small16(bytes16 value) {
    return value | all16(0x20);
}

/* Bit n: the highest bit of byte n. */
static inline unsigned bits16(bytes16 value) {
#if defined(CONSENSUSPR_PLAIN_BITS) || !(defined(__SSE2__) || defined(__aarch64__))
    unsigned bits = 0;
    for (int index = 0; index < 16; index++)
        bits |= (unsigned)(value[index] >> 7) << index;
    return bits;
#elif defined(__SSE2__)
    return (unsigned)_mm_movemask_epi8((__m128i)value);
#else
    static const int8_t places[16] = {-7, -6, -5, -4, -3, -2, -1, 0, -7, -6, -5, -4, -3, -2, -1, 0};
    const uint8x16_t highest = vandq_u8((uint8x16_t)value, vdupq_n_u8(0x80));
    const uint8x16_t placed = vshlq_u8(highest, vld1q_s8(places));
    return (unsigned)vaddv_u8(vget_low_u8(placed))
        | (unsigned)vaddv_u8(vget_high_u8(placed)) << 8;
#endif
}

/* Bit n: byte n is a letter of ASCII. */
static inline unsigned letters16(bytes16 value) {
    return bits16(within16(small16(value), 'a', 'z'));
}

#endif
