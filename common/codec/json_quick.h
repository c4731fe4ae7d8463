/*
 * Fast readers for ids and logprobs in the forms that engines write. Numbers of any other form are
 * refused, and the exact reader (json_number.h) reads them. An accepted value is exact: all readers
 * of an item give the same value. Internal to the scanner.
 */
#ifndef RG_CODEC_JSON_QUICK_H
#define RG_CODEC_JSON_QUICK_H

#include <stdbool.h>

#include "common/base/attrs.h"
#include "common/codec/json_digits.h"

enum { QUICK_FRACTION_MAX = 24 }; /* most digits after the point that quick_sum accepts */

/* Reads an id from p up to `comma`; one space may precede it. Returns -1 if the exact reader must
 * read it. The eight bytes before the comma must be readable. */
static inline int32_t id_before(const char *p, const char *comma)
{
    /* the smallest number of n digits: the first digit is 0 only if it is the only one */
    static const uint32_t least[] = {0, 0, 10, 100, 1000, 10000, 100000, 1000000};
    uint32_t id;
    size_t n;
    uint64_t v;

    p += *p == ' ';
    n = (size_t)(comma - p);
    if (RG_UNLIKELY(n - 1 > 6))
        return -1;
    memcpy(&v, comma - 8, 8);
    v = (le64toh(v) ^ 0x3030303030303030u) >> (64 - 8 * n) << (64 - 8 * n);
    id = digits_value(v);
    if (RG_UNLIKELY((digits_other(v) != 0) | (id < least[n])))
        return -1;
    return (int32_t)id;
}

/* Reads the id at *p and moves *p after the comma that follows. Returns -1 if the exact reader must
 * read it. */
static inline int32_t id_at(const char **p)
{
    unsigned n;
    uint64_t v;
    const char *digits = *p + (**p == ' ');

    v = digits_at(digits, &n);
    if (n - 1 > 6 || digits[n] != ',' || (*digits == '0' && n > 1))
        return -1;
    *p = digits + n + 1;
    return (int32_t)digits_value(v << (64 - 8 * n));
}

/* Reads a number as an integer divided by a power of ten. Returns the position after it, or NULL if
 * the exact reader must read it. The quotient is wrong by less than 3 units in the last place of a
 * double. This error can change the nearest float only if the double is close to the middle between
 * two floats; such numbers are refused. */
static inline const char *quick_float(const char *p, float *ret)
{
    static const double powers[] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    static const uint32_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    bool negative = *p == '-';
    unsigned n, digits, shift = 0;
    uint64_t v, w, bits;
    double d;

    p += negative;
    v = digits_at(p, &n);
    if (n - 1 > 6 || (*p == '0' && n > 1))
        return NULL;
    w = digits_value(v << (64 - 8 * n));
    digits = n;
    p += n;
    if (*p == '.') {
        const char *start = ++p;

        do {
            v = digits_at(p, &n);
            w = w * tens[n] + (n ? digits_value(v << (64 - 8 * n)) : 0);
            p += n;
        } while (n == 8 && p - start < 24);
        shift = (unsigned)(p - start);
        digits += shift;
        if (shift == 0)
            return NULL;
    }
    if ((*p | 0x20) == 'e') {
        if (p[1] != '-')
            return NULL;
        (void)digits_at(p + 2, &n);
        if (n - 1 > 1)
            return NULL;
        shift +=
            n == 2 ? (unsigned)(p[2] - '0') * 10 + (unsigned)(p[3] - '0') : (unsigned)(p[2] - '0');
        p += 2 + n;
    }
    if (digits > 19 || shift > 36)
        return NULL;
    d = shift > 22 ? (double)w / 1e22 / powers[shift - 22] : (double)w / powers[shift];
    memcpy(&bits, &d, sizeof(bits));
    if (((bits & 0x1fffffff) - 0xffffff8) < 16)
        return NULL;
    *ret = negative ? -(float)d : (float)d;
    return p;
}

/* Reads "-d." or "-dd." at *p and moves *p after it. The caller stores the sign. Returns false if
 * the number has a different form. */
static inline bool quick_whole(const char **p, unsigned *ret)
{
    const char *at = *p + (**p == '-');
    unsigned whole = (unsigned)(*at++ - '0'), second;

    if (RG_UNLIKELY(whole > 9))
        return false;
    if (*at != '.') {
        second = (unsigned)(*at++ - '0');
        if (whole == 0 || second > 9 || *at != '.')
            return false;
        whole = whole * 10 + second;
    }
    *ret = whole;
    *p = at + 1;
    return true;
}

/* Computes whole.ddd from the digits after the point, in groups of eight, padded with zeros. All
 * terms have the same sign, so the sum is wrong by a few units in the last place. Returns false if
 * the sum is too close to the middle between two floats. */
static inline bool quick_sum(unsigned whole, const uint32_t group[3], bool negative, float *ret)
{
    double d = (double)(int64_t)(whole * UINT64_C(10000000000000000) +
                                 group[0] * UINT64_C(100000000) + group[1]) *
                   1e-16 +
               (double)(int32_t)group[2] * 1e-24;
    uint64_t bits;

    memcpy(&bits, &d, sizeof(bits));
    if (((bits & 0x1fffffff) - 0xffffff0) < 32)
        return false;
    *ret = negative ? -(float)d : (float)d;
    return true;
}

/* Reads "-d.ddd" or "-dd.ddd" up to `comma`, with 1 to 24 digits after the point. Returns false if
 * the number has a different form. All lengths take the same path: bytes after the number count as
 * zeros. The 27 bytes from p on must be readable. */
static inline bool plain_float(const char *p, const char *comma, float *ret)
{
    static const uint8_t keep[48] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                     255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    bool negative = *p == '-';
    uint64_t v[3], mask[3];
    uint32_t group[3];
    unsigned whole;
    size_t n;

    if (!quick_whole(&p, &whole))
        return false;
    n = (size_t)(comma - p);
    if (n - 1 >= QUICK_FRACTION_MAX)
        return false;
    memcpy(v, p, sizeof(v));
    memcpy(mask, keep + QUICK_FRACTION_MAX - n, sizeof(mask));
    for (unsigned i = 0; i < 3; i++) {
        v[i] = le64toh((v[i] ^ 0x3030303030303030u) & mask[i]);
        group[i] = digits_value(v[i]);
    }
    if (digits_other(v[0]) | digits_other(v[1]) | digits_other(v[2]))
        return false;
    return quick_sum(whole, group, negative, ret);
}

/* Reads the number from p up to `comma`. Returns false if the exact reader must read it. */
static inline bool quick_number(const char *p, const char *comma, float *ret)
{
    return plain_float(p, comma, ret) || quick_float(p, ret) == comma;
}

#endif
