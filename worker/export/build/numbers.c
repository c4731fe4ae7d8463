/*
 * Memory is reserved for 256 numbers at a time, then each is written without a check. Integers are
 * written two digits at a time.
 *
 * The digits of a float32 are searched: is m / 10^n, with m the nearest integer, read back as the
 * same float? Both are exact doubles, so the division rounds like a reader of decimal text, and the
 * test needs no text. The search begins with six digits, because fewer are rarely enough. Very
 * small and very large values are written as doubles.
 */
#include "worker/export/build/numbers.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/codec/json_number.h"

/* TEXT_MAX: longest text of a number. BLOCK: numbers for which memory is reserved at once. */
enum { TEXT_MAX = 40, BLOCK = 256 };

static const char PAIRS[] = "00010203040506070809101112131415161718192021222324"
                            "25262728293031323334353637383940414243444546474849"
                            "50515253545556575859606162636465666768697071727374"
                            "75767778798081828384858687888990919293949596979899";

/* Writes v so that it ends before `end`. Returns its start. */
static char *write_digits_before(char *end, uint64_t v)
{
    while (v >= 100) {
        end -= 2;
        memcpy(end, PAIRS + v % 100 * 2, 2);
        v /= 100;
    }
    if (v >= 10) {
        end -= 2;
        memcpy(end, PAIRS + v * 2, 2);
    } else {
        *--end = (char)('0' + v);
    }
    return end;
}

/* Writes one number at p and returns its end, like all put_ functions. */
static inline char *put_i64(char *p, int64_t v)
{
    char text[TEXT_MAX], *end = text + sizeof(text), *at;
    uint64_t u = v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v;

    if (v < 0)
        *p++ = '-';
    if (u < 10) {
        *p = (char)('0' + u);
        return p + 1;
    }
    at = write_digits_before(end, u);
    memcpy(p, at, (size_t)(end - at));
    return p + (end - at);
}

/* Writes m * 10^-scale with at least one digit after the point. */
static char *put_decimal(char *p, uint64_t m, unsigned scale)
{
    char text[2 * TEXT_MAX], *end = text + sizeof(text), *at;
    size_t n;

    while (scale > 1 && m % 10 == 0) {
        m /= 10;
        scale--;
    }
    at = write_digits_before(end, m);
    while ((size_t)(end - at) <= scale)
        *--at = '0';
    n = (size_t)(end - at) - scale;
    memcpy(p, at, n);
    p[n] = '.';
    memcpy(p + n + 1, at + n, scale);
    return p + n + 1 + scale;
}

static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9, 1e10,
                              1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20};

/* Reports whether the text is read back as the same float. A quotient of two exact doubles is the
 * nearest double to the decimal text, which is also what a reader computes. */
static inline bool reads_back(double d, unsigned scale, double *ret)
{
    *ret = rint(d * TENS[scale]);
    return *ret < 9e15 && (float)(*ret / TENS[scale]) == (float)d;
}

/* Returns the number of digits after the point, 0 if no number of digits is enough. Most floats
 * need seven to nine digits, some very few: if six are not enough, fewer are not either. */
static unsigned shortest_fraction(double d, double *ret)
{
    int max = ARRAY_LEN(TENS) - 1, scale = 1, six = 5;
    double lead = d;

    while (lead >= 10 && six > 1) {
        lead /= 10;
        six--;
    }
    while (lead < 1) {
        lead *= 10;
        six++;
    }
    if (six < max && !reads_back(d, (unsigned)six, ret))
        scale = six + 1;
    while (scale <= max && !reads_back(d, (unsigned)scale, ret))
        scale++;
    return scale <= max ? (unsigned)scale : 0;
}

static char *put_f32(char *p, float v)
{
    double d = fabs((double)v), m = 0;
    unsigned scale = 0;

    if (v == 0) {
        memcpy(p, "-0.0", 4);
        if (signbit(v))
            return p + 4;
        memcpy(p, "0.0", 3);
        return p + 3;
    }
    if (!isfinite(v)) {
        memcpy(p, "null", 4);
        return p + 4;
    }
    if (d >= 1e-10 && d < 1e5)
        scale = shortest_fraction(d, &m);
    if (scale) {
        if (v < 0)
            *p++ = '-';
        return put_decimal(p, (uint64_t)m, scale);
    }
    return p + json_number_write(p, (double)v);
}

/* Defines a function for a run of numbers. It reserves memory for a block at once. */
#define RUN_OF(put)                                                   \
    for (size_t from = 0; from < n; from += BLOCK) {                  \
        size_t to = MIN_OF(n, from + BLOCK);                          \
        char *p = buf_reserve(b, (to - from) * (size_t)TEXT_MAX + 1); \
        char *start = p;                                              \
                                                                      \
        for (size_t i = from; i < to; i++) {                          \
            *p = ',';                                                 \
            p += i > 0;                                               \
            put;                                                      \
        }                                                             \
        b->len += (size_t)(p - start);                                \
    }

void numbers_i32(struct buf *b, const int32_t *v, size_t n)
{
    RUN_OF(p = put_i64(p, v[i]))
}

void numbers_i64(struct buf *b, const int64_t *v, size_t n)
{
    RUN_OF(p = put_i64(p, v[i]))
}

void numbers_f32(struct buf *b, const float *v, size_t n)
{
    RUN_OF(p = put_f32(p, v[i]))
}

void numbers_bits(struct buf *b, const uint8_t *v, size_t n)
{
    char *p;

    if (n == 0)
        return;
    p = buf_reserve(b, 2 * n);
    for (size_t i = 0; i < n; i++) {
        p[2 * i] = v[i] ? '1' : '0';
        p[2 * i + 1] = ',';
    }
    b->len += 2 * n - 1;
}

void numbers_bools(struct buf *b, const uint8_t *v, size_t n)
{
    RUN_OF(memcpy(p, v[i] ? "true " : "false", 5); p += v[i] ? 4 : 5)
}
