/*
 * Bounds become choices of digit patterns. write_naturals() splits a range by its number of digits.
 * write_between() follows both bounds digit by digit: while they are equal, one digit is possible.
 * After that only one bound at a time matters (from_on, up_to).
 *
 *   37..52   3 [7-9]  |  4 [0-9]  |  5 [0-2]
 *
 * For negative numbers the bounds are exchanged. A number with a fraction is bounded by its whole
 * part. Bounds that are not whole are widened: the grammar may allow a few numbers too many, but
 * never refuses a valid one.
 */
#include "worker/text/parsers/number_grammar.h"

#include <math.h>
#include <stdio.h>

#include "common/base/attrs.h"

enum { DIGITS = 16 };

static const int64_t MOST = 9999999999999999; /* largest number that the rule `natural` reads */

#define FRACTION "( \".\" [0-9]{1,16} )? "
#define EXPONENT "( [eE] ( \"+\" | \"-\" )? [0-9]{1,3} )? "

struct number_bounds {
    bool has_low, has_high;
    bool below; /* for non-integers: `high` itself is too large */
    int64_t low, high;
};

/* --- digits --- */

static bool are_all(const char *digits, int n, char c)
{
    for (int i = 0; i < n; i++) {
        if (digits[i] != c)
            return false;
    }
    return true;
}

static void any_digits(int n, struct buf *x)
{
    if (n > 0)
        buf_printf(x, "[0-9]{%d} ", n);
}

static void write_digit(char from, char to, struct buf *x)
{
    if (from == to)
        buf_printf(x, "\"%c\" ", from);
    else
        buf_printf(x, "[%c-%c] ", from, to);
}

/* Writes the n-digit numbers from a up to 99..9, or from 00..0 up to b. */
static void from_on(const char *a, int n, struct buf *x)
{
    if (n == 0 || are_all(a, n, '0')) {
        any_digits(n, x);
        return;
    }
    buf_puts(x, "( ");
    write_digit(a[0], a[0], x);
    from_on(a + 1, n - 1, x);
    if (a[0] < '9') {
        buf_puts(x, "| ");
        write_digit((char)(a[0] + 1), '9', x);
        any_digits(n - 1, x);
    }
    buf_puts(x, ") ");
}

static void up_to(const char *b, int n, struct buf *x)
{
    if (n == 0 || are_all(b, n, '9')) {
        any_digits(n, x);
        return;
    }
    buf_puts(x, "( ");
    if (b[0] > '0') {
        write_digit('0', (char)(b[0] - 1), x);
        any_digits(n - 1, x);
        buf_puts(x, "| ");
    }
    write_digit(b[0], b[0], x);
    up_to(b + 1, n - 1, x);
    buf_puts(x, ") ");
}

/* Writes the numbers from a to b. Both have n digits, and a <= b. */
static void write_between(const char *a, const char *b, int n, struct buf *x)
{
    while (n > 0 && a[0] == b[0]) {
        write_digit(a[0], a[0], x);
        a++;
        b++;
        n--;
    }
    if (n == 0)
        return;
    buf_puts(x, "( ");
    write_digit(a[0], a[0], x);
    from_on(a + 1, n - 1, x);
    if (a[0] + 1 < b[0]) {
        buf_puts(x, "| ");
        write_digit((char)(a[0] + 1), (char)(b[0] - 1), x);
        any_digits(n - 1, x);
    }
    buf_puts(x, "| ");
    write_digit(b[0], b[0], x);
    up_to(b + 1, n - 1, x);
    buf_puts(x, ") ");
}

/* Writes the natural numbers from..to, 0 <= from <= to, in JSON's form. */
static void write_naturals(int64_t from, int64_t to, struct buf *x)
{
    int64_t first = 0, last = 9; /* range of numbers with the present count of digits */
    const char *sep = "";

    if (from == 0 && to == MOST) {
        buf_puts(x, "natural ");
        return;
    }
    buf_puts(x, "( ");
    for (int n = 1; n <= DIGITS && first <= to; n++) {
        char a[DIGITS + 8], b[DIGITS + 8];

        if (last >= from) {
            (void)snprintf(a, sizeof(a), "%lld", (long long)MAX_OF(from, first));
            (void)snprintf(b, sizeof(b), "%lld", (long long)MIN_OF(to, last));
            buf_puts(x, sep);
            write_between(a, b, n, x);
            sep = "| ";
        }
        first = last + 1;
        last = last * 10 + 9;
    }
    buf_puts(x, ") ");
}

/* --- bounds --- */

static bool is_small(double d)
{
    return d >= -1e15 && d <= 1e15;
}

/* Returns the bounds as whole numbers: narrowed for integers, widened for others. */
static struct number_bounds bounds_of(const struct json *schema, bool whole)
{
    struct number_bounds b = {0};
    const struct json *over = json_get(schema, "exclusiveMinimum");
    const struct json *under = json_get(schema, "exclusiveMaximum");
    double d;

    if (json_to_double(json_get(schema, "minimum"), &d) == 0 && is_small(d)) {
        b.has_low = true;
        b.low =
            (int64_t)(whole ? ceil(d) : floor(d)) + (whole && json_is_true(over) && d == ceil(d));
    }
    if (json_to_double(over, &d) == 0 && is_small(d)) {
        int64_t low = (int64_t)floor(d) + whole;

        b.low = b.has_low ? MAX_OF(b.low, low) : low;
        b.has_low = true;
    }
    if (json_to_double(json_get(schema, "maximum"), &d) == 0 && is_small(d)) {
        b.has_high = true;
        b.below = !whole && json_is_true(under) && d == ceil(d);
        b.high =
            (int64_t)(whole ? floor(d) : ceil(d)) - (whole && json_is_true(under) && d == floor(d));
    }
    if (json_to_double(under, &d) == 0 && is_small(d)) {
        int64_t high = (int64_t)ceil(d) - whole;

        if (!b.has_high || high <= b.high) {
            b.below = !whole && d == ceil(d);
            b.high = high;
        }
        b.has_high = true;
    }
    return b;
}

/* Writes the absolute values from..to for numbers of one sign. Values below `to` may have a
 * fraction, `to` itself may not. */
static void write_sizes(int64_t from, int64_t to, bool below, struct buf *x)
{
    buf_puts(x, "( ");
    if (from < to) {
        write_naturals(from, to - 1, x);
        buf_puts(x, FRACTION);
    }
    if (!below || from == to)
        buf_printf(x, "%s\"%lld\" ( \".\" \"0\"{1,16} )? ", from < to ? "| " : "", (long long)to);
    buf_puts(x, ") ");
}

static void write_integers(const struct number_bounds *b, struct buf *x)
{
    bool below = !b->has_low || b->low < 0, above = !b->has_high || b->high >= 0;

    buf_puts(x, "( ");
    if (below) {
        buf_puts(x, "\"-\" ");
        write_naturals(b->has_high && b->high < 0 ? -b->high : 1, b->has_low ? -b->low : MOST, x);
    }
    buf_puts(x, below && above ? "| " : "");
    if (above)
        write_naturals(b->has_low && b->low > 0 ? b->low : 0, b->has_high ? b->high : MOST, x);
    buf_puts(x, ") ");
}

static void write_numbers(const struct number_bounds *b, struct buf *x)
{
    bool below = !b->has_low || b->low < 0, above = !b->has_high || b->high >= 0;

    buf_puts(x, "( ");
    if (below && b->has_low) {
        buf_puts(x, "\"-\" ");
        write_sizes(b->has_high && b->high < 0 ? -b->high : 0, -b->low, false, x);
    } else if (below) {
        buf_puts(x, "\"-\" natural " FRACTION EXPONENT);
    }
    buf_puts(x, below && above ? "| " : "");
    if (above && b->has_high)
        write_sizes(b->has_low && b->low > 0 ? b->low : 0, b->high, b->below, x);
    else if (above)
        buf_puts(x, "natural " FRACTION EXPONENT);
    buf_puts(x, ") ");
}

void number_grammar(const struct json *schema, bool whole, struct buf *expr)
{
    struct number_bounds b = bounds_of(schema, whole);

    if ((!b.has_low && !b.has_high) || (b.has_low && b.has_high && b.low > b.high))
        buf_puts(expr, whole ? "integer " : "number ");
    else if (whole)
        write_integers(&b, expr);
    else
        write_numbers(&b, expr);
}
