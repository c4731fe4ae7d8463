/*
 * struct schema_grammar: converts a JSON Schema to rules of a struct gbnf for the texts of its
 * values: JSON, or Python literals (for calls in Python's form). Schemas come from outside and may
 * contain anything.
 *
 * Supported: type (one or several), enum, const, properties in the order declared, required,
 * additionalProperties (if it is absent next to properties: none, as in engines), items,
 * prefixItems, minItems / maxItems, minLength / maxLength, anyOf / oneOf, allOf (members joined),
 * $ref within the schema (recursion too), the formats date, time, date-time, uuid, ipv4 and ipv6,
 * bounds of numbers (number_grammar.h) and patterns of JSON strings (pattern_grammar.h). Other
 * words (not, multipleOf, uniqueItems, ...) are ignored: the rules allow every value with the
 * schema's shape. Counts above SCHEMA_REPEAT_MAX are not enforced.
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
    const char *quote; /* mark around texts instead of quotes, with bare keys; NULL: JSON */
    unsigned text;     /* rule of a text that does not contain the mark */
    unsigned n_refs;
    unsigned searches;   /* number of searches for rules that begin with themselves */
    unsigned steps;      /* steps from ref to ref in all searches */
    struct map *targets; /* $ref -> schema that it names */
    struct map *refs;    /* schema -> struct schema_ref: rules of schemas that were referred to */
    /* ref whose rule is being written, while no bracket has come; or NULL */
    struct schema_ref *current;
    struct arena arena;
};

void schema_grammar_init(struct schema_grammar *s, struct gbnf *g, const struct json *root,
                         bool python);
void schema_grammar_done(struct schema_grammar *s);

/* Appends an expression for the values of `schema`. NULL or true: any value. */
void schema_value(struct schema_grammar *s, const struct json *schema, struct buf *expr);

/* Returns the schema itself, or the schema to which its $ref leads. */
const struct json *schema_deref(const struct schema_grammar *s, const struct json *schema);

/* Calls `member` for every declared property of an object, in order. For calls that do not write
 * JSON objects. */
void schema_each_property(const struct schema_grammar *s, const struct json *schema,
                          void (*member)(void *ctx, struct str key, const struct json *value,
                                         bool required),
                          void *ctx);

/* Appends key SEP value pairs, separated by commas, of which optional ones may be missing: the
 * inside of an object or of a Python call. `key_of` writes what precedes the value. */
void schema_members(struct schema_grammar *s, const struct json *schema,
                    void (*key_of)(struct buf *expr, struct str key), struct buf *expr);

#endif
