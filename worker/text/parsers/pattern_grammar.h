/*
 * JSON Schema's `pattern` (an ECMA-262 regular expression) -> an expression of a struct gbnf for
 * the inside of a JSON string that matches it: characters, classes, \d \w \s, groups, alternatives,
 * quantifiers, ^ and $ at the ends of the whole. Other constructs (lookaround, back references, \b,
 * \p, code points beyond the basic plane in classes) cannot be written as rules; a pattern with one
 * narrows nothing. Pure.
 */
#ifndef RG_PARSERS_PATTERN_GRAMMAR_H
#define RG_PARSERS_PATTERN_GRAMMAR_H

#include <stdbool.h>

#include "common/base/buf.h"

/* Appends the expression; false, and nothing is appended, if it cannot be written. */
bool pattern_grammar(struct str pattern, struct buf *expr);

#endif
