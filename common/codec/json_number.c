/* Text to double: up to 19 digits are collected in an integer. If the power of ten is small, the
 * result is exact or needs one rounded division (quick_double). All other numbers go to strtod.
 * Double to text: the fewest digits that read back to the same double, in Python's notation. */

#include "common/codec/json_number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/json_digits.h"

/* A number as digits * 10^exp. The digits are those from `first` to `last` in the text; a '.'
 * between them is skipped. Neither the first nor the last digit is zero. Zero has no digits. */
struct decimal {
    const char *first, *last; /* NULL, NULL for zero */
    int64_t exp;              /* power of ten of the last digit */
    bool negative;
};

/* Returns the end of the digits. Sets *exp to the exponent after them, or to 0. */
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
        /* With larger exponents every value is zero, infinite or unequal anyway. */
        if (*exp < INT64_MAX / 100)
            *exp = *exp * 10 + (*p - '0');
    }
    if (negative)
        *exp = -*exp;
    return end;
}

/* Returns digits and exponent without zeros at either end, so that equal numbers have equal forms.
 */
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

/* Returns the digit at *p and moves *p after it. Skips a point. */
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
    /* The sum is negative, because INT64_MIN has no positive counterpart. */
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

/* --- to double --- */

/* Appends the digits at p to *w and adds their number to *n. Returns the end of the digits. *w
 * wraps after 19 digits, so callers check *n. */
static inline const char *append_digits(const char *p, const char *end, uint64_t *w, unsigned *n)
{
    static const uint32_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    unsigned k;

    while (end - p >= 8) {
        uint64_t v = digits_at(p, &k);

        if (k == 8) {
            *w = *w * 100000000 + digits_value(v);
        } else {
            if (k > 0)
                *w = *w * powers[k] + digits_value(v << (64 - 8 * k));
            *n += k;
            return p + k;
        }
        *n += 8;
        p += 8;
    }
    for (; p < end && (unsigned)(*p - '0') < 10; p++, ++*n)
        *w = *w * 10 + (unsigned)(*p - '0');
    return p;
}

int json_number_scan_id(const char **at, const char *end, int32_t *ret)
{
    const char *p = *at;
    uint64_t w = 0;
    unsigned n = 0;

    p = append_digits(p, end, &w, &n);
    if (p == end)
        return n <= 10 ? 0 : -1;
    if (n == 0 || n > 10 || w > INT32_MAX || (n > 1 && **at == '0'))
        return -1;
    *at = p;
    *ret = (int32_t)w;
    return 1;
}

/* Returns 5^k for k <= 27; the last one is below 2^63. */
static uint64_t power_of_five(unsigned k)
{
    static const uint64_t powers[] = {
        1,
        5,
        25,
        125,
        625,
        3125,
        15625,
        78125,
        390625,
        1953125,
        9765625,
        48828125,
        244140625,
        1220703125,
        6103515625,
        30517578125,
        152587890625,
        762939453125,
        3814697265625,
        19073486328125,
        95367431640625,
        476837158203125,
        2384185791015625,
        11920928955078125,
        59604644775390625,
        298023223876953125,
        1490116119384765625,
        7450580596923828125,
    };

    return powers[k];
}

enum { DIVIDE_MAX = 27, EXACT_POWER = 22 };

/* Divides w by 10^k and rounds once. Both are shifted up to 64 bits, so the quotient has at least
 * 62 bits. A remainder only sets the lowest bit of the quotient. */
static double divide_rounded(uint64_t w, unsigned k)
{
    uint64_t d = power_of_five(k), quotient;
    int shift_w = __builtin_clzll(w), shift_d = __builtin_clzll(d);
    uint64_t scale_bits;
    __uint128_t top = (__uint128_t)(w << shift_w) << 63;
    double scale;

    d <<= shift_d;
    quotient = (uint64_t)(top / d);
    quotient |= (uint64_t)(quotient * (__uint128_t)d != top);
    scale_bits = (uint64_t)(1023 - 63 + shift_d - shift_w - (int)k) << 52;
    memcpy(&scale, &scale_bits, sizeof(scale));
    return (double)quotient * scale;
}

/* Converts the text by strtod, which needs a NUL after it. */
static double by_strtod(struct str text)
{
    char small[64];
    char *p = text.len < sizeof(small) ? small : mem_alloc(text.len + 1);
    double d;

    memcpy(p, text.p, text.len);
    p[text.len] = 0;
    d = strtod(p, NULL);
    if (p != small)
        free(p);
    return d;
}

/* Computes w * 10^exp if the product is exact or needs a single division. Returns false if strtod
 * must convert the number. */
static inline bool quick_double(uint64_t w, unsigned digits, int64_t exp, double *ret)
{
    if (digits > 19)
        return false;
    if (w == 0) {
        *ret = 0;
        return true;
    }
    if (exp < 0 && exp >= -DIVIDE_MAX) {
        *ret = divide_rounded(w, (unsigned)-exp);
        return true;
    }
    if (exp >= 0 && exp <= EXACT_POWER && w <= (uint64_t)1 << 53) {
        /* 10^exp = 5^exp * 2^exp is exact, too. */
        *ret = (double)w * ((double)power_of_five((unsigned)exp) * (double)((uint64_t)1 << exp));
        return true;
    }
    return false;
}

/* Reads the exponent after 'e' and adds it to *exp. Returns as json_number_scan does. */
static int scan_exponent(const char **at, const char *end, int64_t *exp)
{
    const char *p = *at;
    uint64_t w = 0;
    unsigned n = 0;
    bool negative = p < end && *p == '-';

    if (p < end && (*p == '-' || *p == '+'))
        p++;
    p = append_digits(p, end, &w, &n);
    if (n == 0)
        return p == end ? 0 : -1;
    if (n > 6)
        w = 1000000;
    *exp += negative ? -(int64_t)w : (int64_t)w;
    *at = p;
    return 1;
}

/* Reads the digits after the point into *w and *n, and sets *exp. `first` is the number's first
 * digit. Returns as json_number_scan does. */
static int scan_fraction(const char **at, const char *end, const char *first, uint64_t *w,
                         unsigned *n, int64_t *exp)
{
    const char *from = ++*at;
    unsigned whole = *n;

    *at = append_digits(from, end, w, n);
    if (*n == whole)
        return *at == end ? 0 : -1;
    *exp = -(int64_t)(*n - whole);
    /* The leading zeros of "0.000123" do not count as digits. */
    if (*n > 19 && *w != 0 && *first == '0') {
        --*n;
        for (; *from == '0'; from++)
            --*n;
    }
    return 1;
}

int json_number_scan(const char **at, const char *end, double *ret)
{
    const char *start = *at, *p = start, *from;
    uint64_t w = 0;
    unsigned n = 0;
    int64_t exp = 0;
    bool negative = p < end && *p == '-';
    int rc;

    p += negative;
    from = p;
    p = append_digits(p, end, &w, &n);
    if (n == 0)
        return p == end ? 0 : -1;
    if (n > 1 && *from == '0')
        return -1;
    if (p < end && *p == '.') {
        rc = scan_fraction(&p, end, from, &w, &n, &exp);
        if (rc <= 0)
            return rc;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        rc = scan_exponent(&p, end, &exp);
        if (rc <= 0)
            return rc;
    }
    if (p == end)
        return 0;
    if (!quick_double(w, n, exp, ret))
        *ret = fabs(by_strtod(str_of(start, (size_t)(p - start))));
    if (negative)
        *ret = -*ret;
    *at = p;
    return 1;
}

int json_number_double(struct str text, double *ret)
{
    char padded[64];
    const char *p = padded;
    double d;

    /* The scanner needs a byte after the number. */
    if (text.len < sizeof(padded)) {
        memcpy(padded, text.p, text.len);
        padded[text.len] = ' ';
        CHECK(json_number_scan(&p, padded + text.len + 1, &d) == 1);
    } else {
        d = by_strtod(text);
    }
    if (!isfinite(d))
        return -1;
    *ret = d;
    return 0;
}

/* --- writing --- */

/* Writes n digits with a decimal point after digit number `point`. Uses Python's repr: fixed
 * notation for 1e-4 <= |d| < 1e16, else d.ddde+XX. Returns the number of bytes. */
static size_t write_with_point(char *out, const char *digits, int n, int point)
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

/* Writes the digits of v. Returns their number. */
static int write_digits(uint64_t v, char digits[static 20])
{
    char text[20], *end = text + sizeof(text), *at = end;

    for (; v > 0; v /= 10)
        *--at = (char)('0' + v % 10);
    memcpy(digits, at, (size_t)(end - at));
    return (int)(end - at);
}

/* Divides value by 2^bits, at least one bit. Rounds to the nearest number, a half to an even one.
 */
static uint64_t shift_rounded(__uint128_t value, int bits)
{
    __uint128_t half = (__uint128_t)1 << (bits - 1);
    __uint128_t left = value & (2 * half - 1);
    uint64_t n = (uint64_t)(value >> bits);

    return n + (left > half || (left == half && n % 2 == 1));
}

/* Finds the digits of d with 1e-9 <= d < 1e14: 15 of them, or 16 or 17 if fewer do not read back to
 * d. Integers suffice: d is m * 2^-shift, so d * 10^scale is m * 5^scale / 2^bits. Half the
 * distance to the next double is then 5^scale / 2. Below a power of two it is half of that. So a
 * number above d may read back to d if the nearest one does not. */
static int find_digits(double d, char digits[static 20], int *point)
{
    int exponent, scale = 14 - (int)floor(log10(d)), n;
    uint64_t m = (uint64_t)ldexp(frexp(d, &exponent), DBL_MANT_DIG), five = 1, nearest;
    bool power = m == (uint64_t)1 << (DBL_MANT_DIG - 1);

    for (int i = 0; i < scale; i++)
        five *= 5;
    for (;; scale++, five *= 5) {
        int bits = DBL_MANT_DIG - exponent - scale;
        __uint128_t value = (__uint128_t)m * five, back;

        nearest = shift_rounded(value, bits);
        back = (__uint128_t)nearest << bits;
        if (back < value && (power ? 4 : 2) * (value - back) < five)
            break;
        if (back < value && power) {
            nearest++;
            back = (__uint128_t)nearest << bits;
        }
        if (back >= value && 2 * (back - value) < five)
            break;
    }
    n = write_digits(nearest, digits);
    *point = n - scale;
    return n;
}

/* Increases the last digit of "1.25e+20". Digits are all 9 only in numbers that read back. */
static void increase_last_digit(char *text)
{
    for (char *p = strchr(text, 'e'); p-- > text;) {
        if (*p == '9')
            *p = '0';
        else if (*p != '.') {
            ++*p;
            return;
        }
    }
}

/* Like find_digits, for any double, but slower. A subnormal number may have fewer than 15 digits.
 */
static int find_digits_by_text(double d, char digits[static 20], int *point)
{
    char text[40];
    int n = 0, exponent;
    bool power = frexp(d, &exponent) == 0.5;

    for (int precision = d < DBL_MIN ? 1 : 15; precision <= 17; precision++) {
        (void)snprintf(text, sizeof(text), "%.*e", precision - 1, d);
        if (strtod(text, NULL) == d)
            break;
        if (power)
            increase_last_digit(text);
        if (power && strtod(text, NULL) == d)
            break;
    }
    for (const char *p = text; *p != 'e'; p++) {
        if (*p != '.')
            digits[n++] = *p;
    }
    *point = (int)strtol(strchr(text, 'e') + 1, NULL, 10) + 1;
    return n;
}

/* Finds the fewest significant digits that read back to d, which must be positive. Sets *point to
 * the number of digits before the decimal point. Returns the number of digits. */
static int shortest_digits(double d, char digits[static 20], int *point)
{
    int n = d >= 1e-9 && d < 1e14 ? find_digits(d, digits, point)
                                  : find_digits_by_text(d, digits, point);

    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

size_t json_number_write(char out[static JSON_DOUBLE_TEXT_MAX], double d)
{
    char digits[20] = {0};
    size_t sign = signbit(d) ? 1 : 0;
    int n, point;

    CHECK(isfinite(d));
    out[0] = '-';
    if (d == 0) {
        memcpy(out + sign, "0.0", 3);
        return sign + 3;
    }
    n = shortest_digits(fabs(d), digits, &point);
    return sign + write_with_point(out + sign, digits, n, point);
}
