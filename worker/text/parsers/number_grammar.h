/*
 * Converts the bounds of JSON Schema's numbers to expressions of a struct gbnf for their digits.
 * Whole bounds of integers hold exactly. For other numbers the bounds are widened to whole ones.
 * Bounds with more than 15 digits are ignored. Pure.
 */
#ifndef RG_PARSERS_NUMBER_GRAMMAR_H
#define RG_PARSERS_NUMBER_GRAMMAR_H

#include "common/base/buf.h"
#include "common/codec/json.h"

/* Appends an expression for the numbers (`whole`: integers) that a schema allows: minimum, maximum,
 * exclusiveMinimum, exclusiveMaximum (numbers, or true next to minimum and maximum). */
void number_grammar(const struct json *schema, bool whole, struct buf *expr);

#endif
