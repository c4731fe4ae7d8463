/*
 * The bounds of JSON Schema's numbers -> expressions of a struct gbnf over their digits. Whole
 * bounds of whole numbers hold exactly; of other numbers the bounds are widened to whole ones.
 * Bounds beyond 15 digits narrow nothing. Pure.
 */
#ifndef RG_PARSERS_NUMBER_GRAMMAR_H
#define RG_PARSERS_NUMBER_GRAMMAR_H

#include "common/base/buf.h"
#include "common/codec/json.h"

/* Appends an expression for the numbers (`whole`: integers) that a schema allows: minimum, maximum,
 * exclusiveMinimum, exclusiveMaximum (numbers, or true next to the former two). */
void number_grammar(const struct json *schema, bool whole, struct buf *expr);

#endif
