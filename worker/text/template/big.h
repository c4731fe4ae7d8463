/*
 * Integers beyond 64 bits, with Python's semantics: sign and magnitude in base 10^9, lowest digit
 * first, no leading zero digits; zero has n = 0. Results are in the arena. Sizes are limited
 * (BIG_DIGITS_MAX). Beyond that an operation returns NULL.
 */
#ifndef RG_TEMPLATE_BIG_H
#define RG_TEMPLATE_BIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/str.h"

enum { BIG_BASE = 1000000000, BIG_DIGITS_MAX = 1000 };

struct big {
    bool negative;
    uint32_t n;
    uint32_t at[];
};

const struct big *big_from_i64(struct arena *a, int64_t v);

/* Converts decimal digits with an optional sign, already checked. Returns NULL if they are too
 * many. */
const struct big *big_from_text(struct arena *a, struct str digits);

/* Converts an integral finite double exactly. */
const struct big *big_from_double(struct arena *a, double d);

/* Returns true and *ret if the number fits. */
bool big_to_i64(const struct big *b, int64_t *ret);
double big_to_double(const struct big *b);

/* Computes x / y, rounded once, as Python divides integers; infinite if it is too large. y must not
 * be zero. */
double big_ratio(struct arena *a, const struct big *x, const struct big *y);
void big_print(struct buf *out, const struct big *b);

/* Appends the digits without a sign. base is 2, 8, 10 or 16. */
void big_digits(struct buf *out, const struct big *b, unsigned base, bool upper);

int big_cmp(const struct big *x, const struct big *y);
const struct big *big_add(struct arena *a, const struct big *x, const struct big *y, bool subtract);
const struct big *big_mul(struct arena *a, const struct big *x, const struct big *y);

/* Computes floor division and its remainder (with the sign of y), like Python's divmod. y must not
 * be zero. */
void big_divmod(struct arena *a, const struct big *x, const struct big *y, const struct big **q,
                const struct big **r);

#endif
