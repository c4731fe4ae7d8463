/*
 * struct schema_grammar: JSON Schema -> rules of a struct gbnf for the texts of its values: JSON,
 * or Python literals (for calls written as Python). Schemas come from outside and may say anything.
 *
 * Kept: type (one or several), enum, const, properties in the order declared, required,
 * additionalProperties (absent beside properties: none, as engines read it), items, prefixItems,
 * minItems / maxItems, minLength / maxLength, anyOf / oneOf, allOf (members joined), $ref within
 * the schema (recursion too), the formats date, time, date-time, uuid, ipv4 and ipv6, bounds of
 * numbers (number_grammar.h) and patterns of JSON strings (pattern_grammar.h). Other words (not,
 * multipleOf, uniqueItems, ...) narrow nothing: what the rules allow is the schema's shape. Bounds
 * beyond SCHEMA_REPEAT_MAX are not counted out.
 */
#ifndef RG_PARSERS_SCHEMA_GRAMMAR_H
#define RG_PARSERS_SCHEMA_GRAMMAR_H

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/codec/json.h"
#include "worker/text/parsers/gbnf.h"

enum { SCHEMA_DEPTH_MAX = 64, SCHEMA_REPEAT_MAX = 256 };

struct schema_ref;

struct schema_grammar {
    struct gbnf *g;
    const struct json *root; /* schema in which $ref is looked up */
    bool python;
    const char *quote; /* written around texts instead of quotes; keys are bare; NULL: JSON */
    unsigned text;     /* rule of a text that does not hold it */
    unsigned n_refs;
    unsigned searches;   /* for rules that begin with themselves ... */
    unsigned steps;      /* ... from ref to ref, in all */
    struct map *targets; /* $ref -> what it names */
    struct map *refs;    /* schema -> struct schema_ref: rules of those that were referred to */
    struct schema_ref *current; /* whose rule is being written, no bracket yet */
    struct arena arena;
};

void schema_grammar_init(struct schema_grammar *s, struct gbnf *g, const struct json *root,
                         bool python);
void schema_grammar_done(struct schema_grammar *s);

/* Appends an expression for the values of `schema` (NULL, true: any value). */
void schema_value(struct schema_grammar *s, const struct json *schema, struct buf *expr);

/* The schema itself, or what its $ref leads to. */
const struct json *schema_deref(const struct schema_grammar *s, const struct json *schema);

/* An object's members as a row: for calls that do not write JSON objects. Calls `member` for every
 * declared property, in order. */
void schema_each_property(const struct schema_grammar *s, const struct json *schema,
                          void (*member)(void *ctx, struct str key, const struct json *value,
                                         bool required),
                          void *ctx);

/* Appends key SEP value pairs, comma-separated, optional ones left out: the inside of an object or
 * of a Python call. `key_of` writes what precedes the value. */
void schema_members(struct schema_grammar *s, const struct json *schema,
                    void (*key_of)(struct buf *expr, struct str key), struct buf *expr);

#endif
