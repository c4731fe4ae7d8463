/*
 * Python's numbers: int (64 bits, beyond that struct big), float, and the arithmetic of the
 * template's operators on them. bool counts as int.
 */
#ifndef RG_TEMPLATE_NUMBER_H
#define RG_TEMPLATE_NUMBER_H

#include "worker/text/template/big.h"
#include "worker/text/template/run.h"
#include "worker/text/template/value.h"

/* Converts a JSON number's text like json.loads: an int, or the nearest float. */
struct value number_from_json(struct arena *a, struct str text);

/* Returns V_INT if the number fits, else V_BIG. NULL (too large) is an OverflowError. */
struct value number_of_big(struct template_run *r, const struct big *b);

/* Converts any number to double. Integers beyond the doubles become infinite. */
double number_to_double(struct value v);

/* Converts any int, including bool, to struct big. */
const struct big *number_to_big(struct arena *a, struct value v);

/* Compares: -1, 0, 1; 2 if unordered (NaN). Exact between ints and floats. */
int number_cmp(struct arena *a, struct value x, struct value y);

/* Computes x op y for two numbers. op is one of + - * / % f (floor division) p (power). */
struct value number_binary(struct template_run *r, char op, struct value x, struct value y);
struct value number_negate(struct template_run *r, struct value v);

/* Computes int(v) of a float (truncation). OverflowError or ValueError for infinities and NaN. */
struct value number_truncate(struct template_run *r, double d);

/* Compute Python's int(text, base) and float(text); V_MISSING if the text is not such a number. */
struct value number_parse_int(struct template_run *r, struct str text, int base);
struct value number_parse_float(struct template_run *r, struct str text);

/* Appends repr() of the number. */
void number_print(struct buf *out, struct value v);

#endif
