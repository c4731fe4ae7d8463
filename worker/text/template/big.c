/* Integers beyond 64 bits (big.h). at[] has "digits" of nine decimal places, the lowest first:
 *
 *   12 345 678 901  is  at[0] = 345678901, at[1] = 12, n = 2
 *
 * The mag_ functions work on magnitudes and ignore signs; the big_ functions add the signs. Simple
 * methods are enough, because templates get here only by mistake or malice. Sizes are limited by
 * BIG_DIGITS_MAX, so even the quadratic ones end soon. Results are new numbers in the arena;
 * operands never change. */

#include "worker/text/template/big.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct big *big_new(struct arena *a, uint32_t n)
{
    struct big *b = arena_zalloc(a, sizeof(*b) + (size_t)n * sizeof(uint32_t));

    b->n = n;
    return b;
}

/* Removes leading zero digits, so that n is the true length. Zero loses its sign. Every operation
 * ends here, because comparison relies on it. */
static struct big *big_trim(struct big *b)
{
    while (b->n && b->at[b->n - 1] == 0)
        b->n--;
    if (!b->n)
        b->negative = false;
    return b;
}

/* Three digits are enough for any 64-bit number. The magnitude is computed unsigned, so INT64_MIN
 * is safe. */
const struct big *big_from_i64(struct arena *a, int64_t v)
{
    struct big *b = big_new(a, 3);
    uint64_t m = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

    b->negative = v < 0;
    for (uint32_t i = 0; i < 3; i++, m /= BIG_BASE)
        b->at[i] = (uint32_t)(m % BIG_BASE);
    return big_trim(b);
}

/* Cuts the text from its end into groups of nine decimal places, one group for each digit. */
const struct big *big_from_text(struct arena *a, struct str digits)
{
    bool negative = digits.len && digits.p[0] == '-';
    struct big *b;

    if (digits.len && (digits.p[0] == '-' || digits.p[0] == '+'))
        digits = str_sub(digits, 1, digits.len);
    if (digits.len > (size_t)BIG_DIGITS_MAX * 9)
        return NULL;
    b = big_new(a, (uint32_t)((digits.len + 8) / 9));
    b->negative = negative;
    for (uint32_t i = 0; i < b->n; i++) {
        size_t end = digits.len - (size_t)i * 9;

        for (size_t k = end > 9 ? end - 9 : 0; k < end; k++)
            b->at[i] = b->at[i] * 10 + (uint32_t)(digits.p[k] - '0');
    }
    return big_trim(b);
}

const struct big *big_from_double(struct arena *a, double d)
{
    char text[400];
    int n = snprintf(text, sizeof(text), "%.0f", d);

    return big_from_text(a, str_of(text, (size_t)n));
}

/* INT64_MIN has no positive counterpart, so the magnitude may be larger by one if the number is
 * negative. */
bool big_to_i64(const struct big *b, int64_t *ret)
{
    uint64_t m = 0;

    if (b->n > 3)
        return false;
    for (uint32_t i = b->n; i-- > 0;) {
        if (__builtin_mul_overflow(m, (uint64_t)BIG_BASE, &m) ||
            __builtin_add_overflow(m, (uint64_t)b->at[i], &m))
            return false;
    }
    if (m > (uint64_t)INT64_MAX + b->negative)
        return false;
    *ret = b->negative ? (int64_t)(0 - m) : (int64_t)m;
    return true;
}

static void decimal_digits(struct buf *out, const struct big *b)
{
    if (!b->n)
        buf_add_c(out, '0');
    for (uint32_t i = b->n; i-- > 0;)
        buf_printf(out, i == b->n - 1 ? "%u" : "%09u", b->at[i]);
}

void big_print(struct buf *out, const struct big *b)
{
    if (b->negative)
        buf_add_c(out, '-');
    decimal_digits(out, b);
}

enum { CHUNK_BITS = 24, CHUNKS_MAX = BIG_DIGITS_MAX * 30 / CHUNK_BITS + 2 };

/* Divides the n digits by 2^24 in place. Returns the remainder. */
static uint32_t divide_off_chunk(uint32_t *at, uint32_t *n)
{
    uint64_t rest = 0;

    for (uint32_t i = *n; i-- > 0;) {
        rest = rest * BIG_BASE + at[i];
        at[i] = (uint32_t)(rest >> CHUNK_BITS);
        rest &= (1U << CHUNK_BITS) - 1;
    }
    while (*n > 0 && at[*n - 1] == 0)
        --*n;
    return (uint32_t)rest;
}

/* For the bases 2, 8 and 16: removes chunks of 24 bits from the low end (a multiple of the 1, 3 or
 * 4 bits of a digit, so no digit is cut). Then prints the chunks from the top without leading
 * zeros. */
void big_digits(struct buf *out, const struct big *b, unsigned base, bool upper)
{
    unsigned bits = base == 2 ? 1 : base == 8 ? 3 : 4, begins = 0;
    const char *digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    uint32_t at[BIG_DIGITS_MAX], chunks[CHUNKS_MAX], n = b->n, n_chunks = 0;

    if (base == 10 || b->n == 0 || b->n > BIG_DIGITS_MAX) {
        decimal_digits(out, b);
        return;
    }
    memcpy(at, b->at, n * sizeof(*at));
    while (n > 0 && n_chunks < CHUNKS_MAX)
        chunks[n_chunks++] = divide_off_chunk(at, &n);
    while (n_chunks-- > 0) {
        for (unsigned k = CHUNK_BITS; k > 0; k -= bits) {
            unsigned digit = chunks[n_chunks] >> (k - bits) & ((1U << bits) - 1);

            begins |= digit;
            if (begins)
                buf_add_c(out, digits[digit]);
        }
    }
}

/* Converts the decimal text, because strtod rounds correctly, which a sum of digits would not. */
double big_to_double(const struct big *b)
{
    struct buf text = {0};
    double d;

    big_print(&text, b);
    buf_add_c(&text, 0);
    d = strtod(text.p, NULL);
    buf_done(&text);
    return d;
}

/* Compares the magnitudes. Returns -1, 0 or 1. */
static int mag_cmp(const struct big *x, const struct big *y)
{
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    for (uint32_t i = x->n; i-- > 0;) {
        if (x->at[i] != y->at[i])
            return x->at[i] < y->at[i] ? -1 : 1;
    }
    return 0;
}

int big_cmp(const struct big *x, const struct big *y)
{
    if (x->negative != y->negative)
        return x->negative ? -1 : 1;
    return x->negative ? -mag_cmp(x, y) : mag_cmp(x, y);
}

/* Returns |x| + |y|, with one digit more for the carry (not trimmed). */
static struct big *mag_add(struct arena *a, const struct big *x, const struct big *y)
{
    uint32_t n = MAX_OF(x->n, y->n) + 1;
    struct big *b = big_new(a, n);
    uint32_t carry = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = carry + (i < x->n ? x->at[i] : 0) + (i < y->n ? y->at[i] : 0);

        b->at[i] = s % BIG_BASE;
        carry = s / BIG_BASE;
    }
    return b;
}

/* Returns |x| - |y|; |x| must be >= |y|. */
static struct big *mag_sub(struct arena *a, const struct big *x, const struct big *y)
{
    struct big *b = big_new(a, x->n);
    int64_t borrow = 0;

    for (uint32_t i = 0; i < x->n; i++) {
        int64_t d = (int64_t)x->at[i] - borrow - (i < y->n ? y->at[i] : 0);

        borrow = d < 0;
        b->at[i] = (uint32_t)(d + (borrow ? BIG_BASE : 0));
    }
    return b;
}

/* Equal signs add the magnitudes. Different signs subtract the smaller from the larger, whose sign
 * the result has. `subtract` flips y's sign first. */
const struct big *big_add(struct arena *a, const struct big *x, const struct big *y, bool subtract)
{
    bool y_negative = y->negative != subtract;
    struct big *b;

    if (x->n > BIG_DIGITS_MAX || y->n > BIG_DIGITS_MAX)
        return NULL;
    if (x->negative == y_negative) {
        b = mag_add(a, x, y);
        b->negative = x->negative;
    } else if (mag_cmp(x, y) >= 0) {
        b = mag_sub(a, x, y);
        b->negative = x->negative;
    } else {
        b = mag_sub(a, y, x);
        b->negative = y_negative;
    }
    return big_trim(b);
}

/* Multiplies. Returns NULL if the product could exceed BIG_DIGITS_MAX. */
const struct big *big_mul(struct arena *a, const struct big *x, const struct big *y)
{
    struct big *b;

    if (x->n + y->n > BIG_DIGITS_MAX)
        return NULL;
    b = big_new(a, x->n + y->n);
    b->negative = x->negative != y->negative;
    for (uint32_t i = 0; i < x->n; i++) {
        uint64_t carry = 0;

        for (uint32_t j = 0; j < y->n || carry; j++) {
            uint64_t s = b->at[i + j] + carry + (j < y->n ? (uint64_t)x->at[i] * y->at[j] : 0);

            b->at[i + j] = (uint32_t)(s % BIG_BASE);
            carry = s / BIG_BASE;
        }
    }
    return big_trim(b);
}

/* Computes one digit of long division: returns how often d fits into *r (0 .. base-1), and
 * subtracts that from *r. */
static uint32_t div_digit(struct arena *a, const struct big **r, const struct big *d)
{
    uint32_t low = 0, high = BIG_BASE - 1;

    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;

        if (mag_cmp(big_mul(a, d, big_from_i64(a, mid)), *r) <= 0)
            low = mid;
        else
            high = mid - 1;
    }
    if (low)
        *r = big_trim(mag_sub(a, *r, big_mul(a, d, big_from_i64(a, low))));
    return low;
}

/* Long division, the highest digit first. The remainder so far moves up one place, the next digit
 * of x is added, and div_digit returns how often d fits. Writes the quotient to q (with space for
 * x->n digits) and returns the remainder. */
static const struct big *mag_divmod(struct arena *a, const struct big *x, const struct big *d,
                                    struct big *q)
{
    const struct big *r = big_new(a, 0);

    for (uint32_t i = x->n; i-- > 0;) {
        struct big *next = big_new(a, r->n + 1);

        next->at[0] = x->at[i];
        for (uint32_t k = 0; k < r->n; k++)
            next->at[k + 1] = r->at[k];
        r = big_trim(next);
        q->at[i] = div_digit(a, &r, d);
    }
    return r;
}

/* Divides the magnitudes, then corrects for Python's floor: with different signs and a remainder,
 * the quotient decreases by one and the remainder becomes its distance to the divisor. */
void big_divmod(struct arena *a, const struct big *x, const struct big *y, const struct big **q,
                const struct big **r)
{
    struct big *quotient = big_new(a, x->n);
    struct big *divisor = big_new(a, y->n);
    const struct big *rest;
    struct big *signed_rest;
    bool down; /* round down (floor) instead of towards zero */

    memcpy(divisor->at, y->at, y->n * sizeof(y->at[0]));
    rest = mag_divmod(a, x, divisor, quotient);
    quotient->negative = x->negative != y->negative;
    down = rest->n && quotient->negative;
    *q = big_trim(quotient);
    if (down) {
        *q = big_add(a, *q, big_from_i64(a, 1), true);
        rest = mag_sub(a, divisor, rest);
    }
    signed_rest = big_new(a, rest->n);
    memcpy(signed_rest->at, rest->at, rest->n * sizeof(rest->at[0]));
    signed_rest->negative = y->negative;
    *r = big_trim(signed_rest);
}

/* Returns the number of bits of the magnitude, as a fraction. */
static double bits_of(const struct big *b)
{
    double top = b->at[b->n - 1] + (b->n > 1 ? b->at[b->n - 2] / (double)BIG_BASE : 0);

    return log2(top) + (b->n - 1) * log2(BIG_BASE);
}

/* Returns the magnitude times 2^shift; NULL if that is too large. A negative shift counts as 0. */
static const struct big *shift_left(struct arena *a, const struct big *b, int shift)
{
    struct big *copy = arena_alloc(a, sizeof(*b) + b->n * sizeof(b->at[0]));

    memcpy(copy, b, sizeof(*b) + b->n * sizeof(b->at[0]));
    copy->negative = false;
    for (b = copy; shift > 0 && b; shift -= 1000)
        b = big_mul(a, b, big_from_double(a, ldexp(1, MIN_OF(shift, 1000))));
    return b;
}

/* The quotient of the shifted magnitudes has 56 to 59 bits. A bit for the remainder makes the
 * conversion to 53 bits round as if it saw the whole quotient. */
double big_ratio(struct arena *a, const struct big *x, const struct big *y)
{
    double sign = x->negative != y->negative ? -1 : 1;
    const struct big *q, *rest;
    int64_t bits = 0;
    int shift;

    if (x->n == 0)
        return 0 * sign;
    shift = 57 - (int)floor(bits_of(x) - bits_of(y));
    if (shift > 1150 || shift < -1000)
        return sign * (shift > 0 ? 0 : HUGE_VAL);
    x = shift_left(a, x, shift);
    y = shift_left(a, y, -shift);
    if (!x || !y)
        return sign * HUGE_VAL;
    big_divmod(a, x, y, &q, &rest);
    (void)big_to_i64(q, &bits);
    return sign * ldexp((double)(bits | (rest->n > 0)), -shift);
}
