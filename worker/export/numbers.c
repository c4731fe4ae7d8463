#include "worker/export/numbers.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/codec/json.h"

enum { TEXT_MAX = 24 };

/* Writes v right-aligned before `end`; returns where it starts. */
static char *digits(char *end, uint64_t v)
{
    do {
        *--end = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    return end;
}

static void put_i64(struct buf *b, int64_t v)
{
    char text[TEXT_MAX], *end = text + sizeof(text), *p;

    p = digits(end, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
    if (v < 0)
        *--p = '-';
    buf_add(b, p, (size_t)(end - p));
}

#define ARRAY_OF(put)                    \
    do {                                 \
        buf_add_c(b, '[');               \
        for (size_t i = 0; i < n; i++) { \
            if (i)                       \
                buf_add_c(b, ',');       \
            put;                         \
        }                                \
        buf_add_c(b, ']');               \
    } while (0)

void numbers_i32(struct buf *b, const int32_t *v, size_t n)
{
    ARRAY_OF(put_i64(b, v[i]));
}

void numbers_i64(struct buf *b, const int64_t *v, size_t n)
{
    ARRAY_OF(put_i64(b, v[i]));
}

void numbers_u8(struct buf *b, const uint8_t *v, size_t n)
{
    ARRAY_OF(buf_add_c(b, v[i] ? '1' : '0'));
}

/* m * 10^-scale with exactly the digits of m. */
static void put_decimal(struct buf *b, bool negative, uint64_t m, unsigned scale)
{
    char text[2 * TEXT_MAX], *end = text + sizeof(text), *p = end;

    while (scale > 1 && m % 10 == 0) {
        m /= 10;
        scale--;
    }
    for (; scale > 0; scale--, m /= 10)
        *--p = (char)('0' + m % 10);
    *--p = '.';
    p = digits(p, m);
    if (negative)
        *--p = '-';
    buf_add(b, p, (size_t)(end - p));
}

void number_f32(struct buf *b, float v)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9, 1e10,
                                  1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20};
    double d = fabs((double)v);

    if (v == 0) {
        buf_puts(b, signbit(v) ? "-0.0" : "0.0");
        return;
    }
    /* A quotient of two exact doubles is the nearest double to the decimal text, which is what a
     * reader makes of it; so the test below is the reader's own. */
    if (d >= 1e-10 && d < 1e5)
        for (unsigned scale = 1; scale < sizeof(tens) / sizeof(*tens); scale++) {
            double m = rint(d * tens[scale]);

            if (m < 9e15 && (float)(m / tens[scale]) == (float)d) {
                put_decimal(b, v < 0, (uint64_t)m, scale);
                return;
            }
        }
    json_write_double(b, (double)v);
}

void numbers_f32(struct buf *b, const float *v, size_t n)
{
    ARRAY_OF(number_f32(b, v[i]));
}
