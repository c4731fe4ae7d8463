#include "common/codec/json_number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/mem.h"

/* A number as digits * 10^exp. `digits` runs over [first, last] of the text, a '.' between them
 * does not count; no zeros at either end. Zero has no digits. */
struct decimal {
    const char *first, *last; /* NULL, NULL for zero */
    int64_t exp;              /* of the last digit */
    bool negative;
};

static const char *exponent_of(struct str text, int64_t *exp)
{
    const char *end = text.p + text.len;
    const char *p = text.p;
    bool negative;

    *exp = 0;
    while (p < end && *p != 'e' && *p != 'E')
        p++;
    if (p == end)
        return end;
    end = p++;
    negative = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    for (; p < text.p + text.len; p++) {
        /* Beyond this every value is zero, infinite or unequal anyway. */
        if (*exp < INT64_MAX / 100)
            *exp = *exp * 10 + (*p - '0');
    }
    if (negative)
        *exp = -*exp;
    return end;
}

static struct decimal decimal_of(struct str text)
{
    struct decimal d = {0};
    const char *end = exponent_of(text, &d.exp);
    bool fraction = false;

    for (const char *p = text.p; p < end; p++) {
        if (*p == '-') {
            d.negative = true;
        } else if (*p == '.') {
            fraction = true;
        } else {
            if (fraction)
                d.exp--;
            if (*p != '0') {
                d.first = d.first ? d.first : p;
                d.last = p;
            }
        }
    }
    if (!d.first)
        return (struct decimal){0};
    for (const char *p = d.last + 1; p < end; p++)
        d.exp += *p != '.';
    return d;
}

/* The digit at *p, moving on. */
static char next_digit(const char **p)
{
    if (**p == '.')
        ++*p;
    return *(*p)++;
}

bool json_number_same(struct str a, struct str b)
{
    struct decimal x = decimal_of(a), y = decimal_of(b);

    if (!x.first || !y.first)
        return x.first == y.first;
    if (x.negative != y.negative || x.exp != y.exp)
        return false;
    while (x.first <= x.last && y.first <= y.last) {
        if (next_digit(&x.first) != next_digit(&y.first))
            return false;
    }
    return x.first > x.last && y.first > y.last;
}

int json_number_i64(struct str text, int64_t *ret)
{
    struct decimal d = decimal_of(text);
    int64_t v = 0;

    if (!d.first) {
        *ret = 0;
        return 0;
    }
    if (d.exp < 0 || d.exp > 18)
        return -1;
    /* Negative throughout: INT64_MIN has no positive twin. */
    while (d.first <= d.last) {
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_sub_overflow(v, (int64_t)(next_digit(&d.first) - '0'), &v))
            return -1;
    }
    for (; d.exp > 0; d.exp--) {
        if (__builtin_mul_overflow(v, (int64_t)10, &v))
            return -1;
    }
    if (!d.negative && v == INT64_MIN)
        return -1;
    *ret = d.negative ? v : -v;
    return 0;
}

int json_number_double(struct str text, double *ret)
{
    char small[64];
    char *p = text.len < sizeof(small) ? small : mem_alloc(text.len + 1);
    double d;

    memcpy(p, text.p, text.len);
    p[text.len] = 0;
    d = strtod(p, NULL);
    if (p != small)
        free(p);
    if (!isfinite(d))
        return -1;
    *ret = d;
    return 0;
}

/* --- writing --- */

/* Python's repr: fixed notation for 1e-4 <= |d| < 1e16, else d.ddde+XX. digits has n of them, the
 * decimal point stands behind digit `point`. */
static size_t place_point(char *out, const char *digits, int n, int point)
{
    char *p = out;

    if (point > 16 || point < -3) {
        *p++ = digits[0];
        if (n > 1) {
            *p++ = '.';
            memcpy(p, digits + 1, (size_t)n - 1);
            p += n - 1;
        }
        return (size_t)(p - out) + (size_t)snprintf(p, 8, "e%+03d", point - 1);
    }
    if (point <= 0) {
        *p++ = '0';
        *p++ = '.';
        memset(p, '0', (size_t)-point);
        p += -point;
        memcpy(p, digits, (size_t)n);
        return (size_t)(p - out) + (size_t)n;
    }
    for (int i = 0; i < n || i < point; i++) {
        if (i == point)
            *p++ = '.';
        *p++ = i < n ? digits[i] : '0';
    }
    if (n <= point) {
        *p++ = '.';
        *p++ = '0';
    }
    return (size_t)(p - out);
}

/* Shortest digits of |d| > 0: the fewest significant ones that read back. */
static int shortest(double d, char digits[static 20], int *point)
{
    char text[40];
    int n = 0;

    /* 15 digits always survive in a normal double, fewer do in subnormal ones. */
    for (int precision = d < DBL_MIN ? 1 : 15; precision <= 17; precision++) {
        (void)snprintf(text, sizeof(text), "%.*e", precision - 1, d);
        if (strtod(text, NULL) == d)
            break;
    }
    for (const char *p = text; *p != 'e'; p++) {
        if (*p != '.')
            digits[n++] = *p;
    }
    *point = (int)strtol(strchr(text, 'e') + 1, NULL, 10) + 1;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

size_t json_number_write(char out[static JSON_DOUBLE_TEXT_MAX], double d)
{
    char digits[20];
    size_t sign = signbit(d) ? 1 : 0;
    int n, point;

    CHECK(isfinite(d));
    out[0] = '-';
    if (d == 0) {
        memcpy(out + sign, "0.0", 3);
        return sign + 3;
    }
    n = shortest(fabs(d), digits, &point);
    return sign + place_point(out + sign, digits, n, point);
}
