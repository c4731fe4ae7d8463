/* Python's numbers (number.h). An int is a 64-bit integer if it fits, otherwise a struct big. Every
 * operation first tries 64 bits with a check for overflow, and every result that fits becomes a
 * 64-bit integer again (number_of_big). So one integer has one representation. An operation with a
 * float is done in double.
 *
 * Big arithmetic is quadratic, so it counts steps in proportion, and the sizes are limited (big.h).
 */

#include "worker/text/template/number.h"

#include <math.h>
#include <stdlib.h>

#include "common/codec/json_number.h"
#include "worker/text/template/pystr.h"

/* Up to 18 digits cannot overflow. Longer ones use struct big. */
static struct value number_from_digits(struct arena *a, struct str digits)
{
    const struct big *b;
    int64_t v;

    if (digits.len <= 18) {
        bool negative = digits.len && digits.p[0] == '-';

        v = 0;
        for (size_t i = negative || (digits.len && digits.p[0] == '+'); i < digits.len; i++)
            v = v * 10 + (digits.p[i] - '0');
        return v_int(negative ? -v : v);
    }
    b = big_from_text(a, digits);
    if (!b)
        return v_err();
    if (big_to_i64(b, &v))
        return v_int(v);
    return (struct value){.t = V_BIG, .big = b};
}

/* Text with a point or an exponent is a float, which is infinite if it is beyond the doubles. */
struct value number_from_json(struct arena *a, struct str text)
{
    struct value v;
    double d;

    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] == '.' || text.p[i] == 'e' || text.p[i] == 'E') {
            if (json_number_double(text, &d) != 0)
                d = text.p[0] == '-' ? -HUGE_VAL : HUGE_VAL;
            return v_float(d);
        }
    }
    v = number_from_digits(a, text);
    /* Python refuses such a number when reading it (its limit is 4300 digits), so none reaches this
     * line in practice. */
    return v.t == V_ERR ? v_float(HUGE_VAL) : v;
}

/* Makes a value from struct big. No other function does so. */
struct value number_of_big(struct template_run *r, const struct big *b)
{
    int64_t v;

    if (!b)
        return run_fail(r, "OverflowError", "the integer is too large");
    if (big_to_i64(b, &v))
        return v_int(v);
    return (struct value){.t = V_BIG, .big = b};
}

double number_to_double(struct value v)
{
    if (v.t == V_FLOAT)
        return v.f;
    return v.t == V_BIG ? big_to_double(v.big) : (double)v.i;
}

const struct big *number_to_big(struct arena *a, struct value v)
{
    return v.t == V_BIG ? v.big : big_from_i64(a, v.i);
}

/* Compares an integer with a finite float exactly: with its floor, then with its fraction. */
static int cmp_int_double(struct arena *a, struct value i, double d)
{
    double whole = floor(d);
    int c;

    if (isinf(d))
        return d > 0 ? -1 : 1;
    c = big_cmp(number_to_big(a, i), big_from_double(a, whole));
    return c != 0 ? c : (d > whole ? -1 : 0);
}

/* An int is never converted to double here, because 2^53 + 1 differs from the float 2^53. */
int number_cmp(struct arena *a, struct value x, struct value y)
{
    if (v_is_int(x) && v_is_int(y))
        return (x.i > y.i) - (x.i < y.i);
    if (x.t == V_FLOAT && y.t == V_FLOAT)
        return isnan(x.f) || isnan(y.f) ? 2 : (x.f > y.f) - (x.f < y.f);
    if (x.t == V_FLOAT)
        return isnan(x.f) ? 2 : -cmp_int_double(a, y, x.f);
    if (y.t == V_FLOAT)
        return isnan(y.f) ? 2 : cmp_int_double(a, x, y.f);
    return big_cmp(number_to_big(a, x), number_to_big(a, y));
}

/* Computes x % y with the sign of y, or x // y. The quotient without the remainder is whole except
 * for rounding errors, which floor removes; then it may be too small by one. y must not be 0. */
static struct value float_divmod(double x, double y, bool remainder)
{
    double m = fmod(x, y), quotient = (x - m) / y, whole;

    if (m != 0 && (m < 0) != (y < 0)) {
        m += y;
        quotient -= 1;
    } else if (m == 0) {
        m = copysign(0.0, y);
    }
    if (remainder)
        return v_float(m);
    if (quotient == 0)
        return v_float(copysign(0.0, x / y));
    whole = floor(quotient);
    return v_float(quotient - whole > 0.5 ? whole + 1 : whole);
}

/* Computes with doubles. Fails with Python's errors where C would return an infinity or NaN. */
static struct value float_binary(struct template_run *r, char op, double x, double y)
{
    double m;

    switch (op) {
    case '+':
        return v_float(x + y);
    case '-':
        return v_float(x - y);
    case '*':
        return v_float(x * y);
    case 'p':
        if (x == 0 && y < 0)
            return run_fail(r, "ZeroDivisionError", "0.0 cannot be raised to a negative power");
        if (x < 0 && floor(y) != y)
            return run_fail(r, "TypeError", "complex numbers are not supported");
        m = pow(x, y);
        if (isinf(m) && isfinite(x) && isfinite(y))
            return run_fail(r, "OverflowError", "Numerical result out of range");
        return v_float(m);
    default:
        break;
    }
    if (y == 0)
        return run_fail(r, "ZeroDivisionError", "division by zero");
    if (op == '/')
        return v_float(x / y);
    return float_divmod(x, y, op == '%');
}

/* Computes an integer power by squaring. Negative exponents give floats. */
static struct value int_power(struct template_run *r, struct value x, struct value y)
{
    const struct big *base = number_to_big(r->a, x);
    const struct big *result = big_from_i64(r->a, 1);

    if (y.t == V_BIG || y.i > 1 << 20)
        return run_fail(r, "OverflowError", "the exponent is too large");
    if (y.i < 0)
        return float_binary(r, 'p', number_to_double(x), number_to_double(y));
    for (int64_t e = y.i; e > 0; e >>= 1) {
        uint64_t digits = (uint64_t)(result ? result->n : 0) + (base ? base->n : 0);

        if (!run_spend(r, digits * digits / 4 + 64))
            return v_err();
        if (e & 1)
            result = result && base ? big_mul(r->a, result, base) : NULL;
        if (e > 1)
            base = base ? big_mul(r->a, base, base) : NULL;
    }
    return number_of_big(r, result);
}

/* Divides to a float. The shifted numbers have at most some 40 limbs more. */
static struct value divide_bigs(struct template_run *r, const struct big *x, const struct big *y)
{
    uint64_t n = MAX_OF(x->n, y->n) + 40;
    double d;

    if (!run_spend(r, n * n) || !run_room(r, n * n * 32 * sizeof(uint32_t)))
        return v_err();
    d = big_ratio(r->a, x, y);
    if (isinf(d))
        return run_fail(r, "OverflowError", "integer division result too large for a float");
    return v_float(d);
}

/* Computes with integers of which one, or the result, is beyond 64 bits. True division returns a
 * float. */
static struct value big_binary(struct template_run *r, char op, struct value x, struct value y)
{
    const struct big *bx = number_to_big(r->a, x);
    const struct big *by = number_to_big(r->a, y);
    const struct big *q, *m;

    if (!run_spend(r, 64 + (uint64_t)bx->n * (by->n + 30)))
        return v_err();
    switch (op) {
    case '+':
    case '-':
        return number_of_big(r, big_add(r->a, bx, by, op == '-'));
    case '*':
        return number_of_big(r, big_mul(r->a, bx, by));
    default:
        break;
    }
    if (by->n == 0)
        return run_fail(r, "ZeroDivisionError", "division by zero");
    if (op == '/')
        return divide_bigs(r, bx, by);
    if (bx->n + by->n + 1 > BIG_DIGITS_MAX)
        return run_fail(r, "OverflowError", "the integer is too large");
    if (!run_spend(r, (uint64_t)bx->n * (by->n + 4) * 30) ||
        !run_room(r, (uint64_t)bx->n * (by->n + 20) * 32 * sizeof(uint32_t)))
        return v_err();
    big_divmod(r->a, bx, by, &q, &m);
    return number_of_big(r, op == '%' ? m : q);
}

/* Reports whether every integer up to this one is a double, so that a quotient is rounded once. */
static bool fits_double(int64_t v)
{
    return v >= -(INT64_C(1) << 53) && v <= INT64_C(1) << 53;
}

/* Division of INT64_MIN by -1 overflows, so y = -1 uses big integers. */
struct value number_binary(struct template_run *r, char op, struct value x, struct value y)
{
    int64_t v;

    if (x.t == V_FLOAT || y.t == V_FLOAT)
        return float_binary(r, op, number_to_double(x), number_to_double(y));
    if (op == 'p')
        return int_power(r, x, y);
    if (x.t == V_BIG || y.t == V_BIG)
        return big_binary(r, op, x, y);
    switch (op) {
    case '+':
        if (!__builtin_add_overflow(x.i, y.i, &v))
            return v_int(v);
        break;
    case '-':
        if (!__builtin_sub_overflow(x.i, y.i, &v))
            return v_int(v);
        break;
    case '*':
        if (!__builtin_mul_overflow(x.i, y.i, &v))
            return v_int(v);
        break;
    default:
        if (y.i == 0)
            return run_fail(r, "ZeroDivisionError", "division by zero");
        if (op == '/' && (!fits_double(x.i) || !fits_double(y.i)))
            break;
        if (op == '/')
            return v_float((double)x.i / (double)y.i);
        if (y.i == -1)
            break;
        v = x.i / y.i - (x.i % y.i != 0 && (x.i < 0) != (y.i < 0));
        return v_int(op == '%' ? x.i - v * y.i : v);
    }
    return big_binary(r, op, x, y);
}

struct value number_negate(struct template_run *r, struct value v)
{
    if (v.t == V_FLOAT)
        return v_float(-v.f);
    return number_binary(r, '-', v_int(0), v);
}

/* Below 9e18 the double fits 64 bits exactly. */
struct value number_truncate(struct template_run *r, double d)
{
    if (isnan(d))
        return run_fail(r, "ValueError", "cannot convert float NaN to integer");
    if (isinf(d))
        return run_fail(r, "OverflowError", "cannot convert float infinity to integer");
    d = trunc(d);
    if (fabs(d) < 9e18)
        return v_int((int64_t)d);
    return number_of_big(r, big_from_double(r->a, d));
}

/* Converts digits of any script, perhaps with single underscores between them, to ASCII. Returns
 * false if the text has anything else. */
static bool plain_digits(struct str text, struct buf *out, const char *also)
{
    bool after_digit = false;
    size_t at = 0;

    while (at < text.len) {
        uint32_t cp = pystr_next(text, &at);
        int d = pystr_decimal(cp);

        if (cp == '_') {
            if (!after_digit || at >= text.len)
                return false;
            after_digit = false;
            continue;
        }
        if (d < 0 && (cp > 127 || !strchr(also, (int)cp) || !cp))
            return false;
        buf_add_c(out, d >= 0 ? (char)('0' + d) : (char)cp);
        after_digit = d >= 0 || (cp < 128 && strchr("abcdefABCDEF", (int)cp) && !strchr(also, '.'));
    }
    return out->len > 0;
}

/* Reads digits of a base up to 36; V_MISSING for a digit beyond the base. */
static struct value parse_based(struct template_run *r, struct str digits, uint32_t base)
{
    const struct big *b = big_from_i64(r->a, 0);

    if (!run_spend(r, digits.len * (digits.len / 6 + 8)) ||
        !run_room(r, digits.len * (digits.len + 128)))
        return v_err();
    for (size_t i = 0; i < digits.len; i++) {
        char c = digits.p[i];
        uint32_t d = c <= '9' ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a') + 10;

        if (d >= base)
            return v_missing();
        if (b)
            b = big_mul(r->a, b, big_from_i64(r->a, base));
        if (b)
            b = big_add(r->a, b, big_from_i64(r->a, d), false);
    }
    return number_of_big(r, b);
}

/* int(text, base) accepts white space around the number, a sign, a prefix of the base (0x ...), and
 * underscores between digits. Text longer than Python's limit is not a number. */
enum { INT_DIGITS_MAX = 4300 };

struct value number_parse_int(struct template_run *r, struct str text, int base)
{
    struct buf digits = {0};
    struct value v = v_missing();
    bool negative;
    const char *prefix = base == 16 ? "xX" : base == 8 ? "oO" : base == 2 ? "bB" : "";
    uint64_t n = MIN_OF(text.len, (size_t)INT_DIGITS_MAX);

    if (!run_spend(r, text.len / 4 + n * n / 2048))
        return v_err();
    text = pystr_strip(text, 3);
    negative = text.len && text.p[0] == '-';
    if (text.len && (text.p[0] == '-' || text.p[0] == '+'))
        text = str_sub(text, 1, text.len);
    if (text.len > 2 && text.p[0] == '0' && *prefix && strchr(prefix, text.p[1]) && text.p[1])
        text = str_sub(text, 2, text.len);
    if (text.len <= INT_DIGITS_MAX &&
        plain_digits(text, &digits,
                     base > 10 ? "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" : ""))
        v = base == 10 ? number_from_digits(r->a, buf_str(&digits))
                       : parse_based(r, buf_str(&digits), (uint32_t)base);
    buf_done(&digits);
    return v.t != V_MISSING && v.t != V_ERR && negative ? number_negate(r, v) : v;
}

/* strtod reads what remains after Python's own rules: digits of any script, underscores between
 * them, and the words inf, infinity, nan. */
struct value number_parse_float(struct template_run *r, struct str text)
{
    struct buf t = {0};
    struct value v = v_missing();
    char *end;
    double d;
    bool word;

    if (!run_spend(r, text.len + 1) || !run_room(r, text.len))
        return v_err();
    text = pystr_strip(text, 3);
    word = str_eq_nocase(text, STR("inf")) || str_eq_nocase(text, STR("nan")) ||
           str_eq_nocase(text, STR("infinity")) || str_eq_nocase(text, STR("-inf")) ||
           str_eq_nocase(text, STR("+inf")) || str_eq_nocase(text, STR("-infinity")) ||
           str_eq_nocase(text, STR("-nan")) || str_eq_nocase(text, STR("+nan"));
    if (word)
        buf_add_str(&t, text);
    if (word || plain_digits(text, &t, "+-.eE")) {
        buf_add_c(&t, 0);
        d = strtod(t.p, &end);
        if (end != t.p && *end == 0)
            v = v_float(d);
    }
    buf_done(&t);
    return v;
}

/* Floats are written with the fewest digits that read back to the same double. */
void number_print(struct buf *out, struct value v)
{
    if (v.t == V_BOOL) {
        buf_puts(out, v.i ? "True" : "False");
    } else if (v.t == V_INT) {
        buf_add_i64(out, v.i);
    } else if (v.t == V_BIG) {
        big_print(out, v.big);
    } else if (isnan(v.f) || isinf(v.f)) {
        buf_puts(out, isnan(v.f) ? "nan" : v.f > 0 ? "inf" : "-inf");
    } else {
        out->len += json_number_write(buf_reserve(out, JSON_DOUBLE_TEXT_MAX), v.f);
    }
}
