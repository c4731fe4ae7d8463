/* Decimal digits eight at a time, within a register. Pure; for the number readers. */
#ifndef RG_CODEC_JSON_DIGITS_H
#define RG_CODEC_JSON_DIGITS_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* Takes eight bytes less '0' each. Returns the top bits of those that are not digits. */
static inline uint64_t digits_other(uint64_t v)
{
    return (((v & 0x7f7f7f7f7f7f7f7fu) + 0x7676767676767676u) | v) & 0x8080808080808080u;
}

/* The eight bytes at p less '0' each, the first in the lowest byte; *ret_n of them, from the first
 * on, are digits. */
static inline uint64_t digits_at(const char *p, unsigned *ret_n)
{
    uint64_t v, other;

    memcpy(&v, p, 8);
    v = le64toh(v) ^ 0x3030303030303030u;
    other = digits_other(v);
    *ret_n = other ? (unsigned)__builtin_ctzll(other) / 8 : 8;
    return v;
}

/* The value of eight digits. For n < 8 of them shift them up first: v << (64 - 8 * n). */
static inline uint32_t digits_value(uint64_t v)
{
    const uint64_t mask = 0x000000ff000000ffu;

    v = v * 10 + (v >> 8);
    v = (v & mask) * 0x000f424000000064u + (v >> 16 & mask) * 0x0000271000000001u;
    return (uint32_t)(v >> 32);
}

#endif
