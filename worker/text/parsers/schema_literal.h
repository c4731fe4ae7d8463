/*
 * The leaves of a schema's grammar (schema_grammar.h): literal values, strings with their formats
 * and lengths, and repetitions. Each function appends to an expression.
 */
#ifndef RG_PARSERS_SCHEMA_LITERAL_H
#define RG_PARSERS_SCHEMA_LITERAL_H

#include <stdint.h>

struct buf;
struct json;
struct schema_grammar;
struct str;

/* Appends a lexical rule ("string", "ws", ...) by its name in JSON's or Python's flavour. */
void schema_word(const struct schema_grammar *s, const char *name, struct buf *x);

/* Appends a text in the quotes of the flavour. */
void schema_text(const struct schema_grammar *s, struct str text, struct buf *x);

/* schema_const appends the value; the other function appends a choice of the list's values. */
void schema_const(const struct schema_grammar *s, const struct json *v, struct buf *x);
void schema_enum(const struct schema_grammar *s, const struct json *list, struct buf *x);

/* Appends a string that satisfies the schema's pattern, format, minLength and maxLength. */
void schema_string(const struct schema_grammar *s, const struct json *schema, struct buf *x);

/* Returns the schema's bound of that name if it is small enough to be enforced, else
 * `otherwise`. */
uint64_t schema_bound(const struct json *schema, const char *name, uint64_t otherwise);

/* Appends {min,max}, {min,} (max UINT64_MAX) or * to the expression. */
void schema_times(uint64_t min, uint64_t max, struct buf *x);

#endif
