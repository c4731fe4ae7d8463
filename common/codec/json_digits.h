/* Decimal digits, processed eight at a time within a register. Pure. For the readers of numbers. */
#ifndef RG_CODEC_JSON_DIGITS_H
#define RG_CODEC_JSON_DIGITS_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* Finds bytes that are not digits. v has eight bytes, each less '0'. Returns the top bit of each
 * byte that is not a digit. */
static inline uint64_t digits_other(uint64_t v)
{
    return (((v & 0x7f7f7f7f7f7f7f7fu) + 0x7676767676767676u) | v) & 0x8080808080808080u;
}

/* Loads the eight bytes at p, each less '0', with the first byte in the lowest byte. Sets *ret_n to
 * the number of leading bytes that are digits. */
static inline uint64_t digits_at(const char *p, unsigned *ret_n)
{
    uint64_t v, other;

    memcpy(&v, p, 8);
    v = le64toh(v) ^ 0x3030303030303030u;
    other = digits_other(v);
    *ret_n = other ? (unsigned)__builtin_ctzll(other) / 8 : 8;
    return v;
}

/* Returns the value of eight digits. If there are only n < 8 digits, shift them up first: v << (64
 * - 8 * n). */
static inline uint32_t digits_value(uint64_t v)
{
    const uint64_t mask = 0x000000ff000000ffu;

    v = v * 10 + (v >> 8);
    v = (v & mask) * 0x000f424000000064u + (v >> 16 & mask) * 0x0000271000000001u;
    return (uint32_t)(v >> 32);
}

#endif
