/*
 * Converts JSON Schema's `pattern` (an ECMA-262 regular expression) to an expression of a struct
 * gbnf for the inside of a JSON string that matches it: characters, classes, \d \w \s, groups,
 * alternatives, quantifiers, ^ and $ at the ends of the whole. Other constructs (lookaround, back
 * references, \b, \p, code points beyond the basic plane in classes) cannot be written as rules. A
 * pattern with one of them is ignored. Pure.
 */
#ifndef RG_PARSERS_PATTERN_GRAMMAR_H
#define RG_PARSERS_PATTERN_GRAMMAR_H

#include <stdbool.h>

#include "common/base/buf.h"

/* Appends the expression. Returns false, and appends nothing, if it cannot be written. */
bool pattern_grammar(struct str pattern, struct buf *expr);

#endif
