/*
 * struct gbnf: the text of a grammar during writing, in the notation that llama.cpp (GBNF),
 * XGrammar (SGLang's `ebnf`, vLLM's `grammar`) and llguidance all read:
 *     root ::= "a" x1* [^<]{0,3} ( ws | string )?
 *
 * Only the common subset is used: no recursion on the left, no empty classes, rule names of letters
 * and digits, \uXXXX for every character that might have a meaning in a class.
 *
 * Rules are numbered. An expression is text in a struct buf that the functions here append to.
 * gbnf_finish adds lexical rules that every grammar may name: ws, string, number, integer, boolean,
 * null, value, object, array, and for Python literals pystring, pyvalue, pylist, pydict.
 */
#ifndef RG_PARSERS_GBNF_H
#define RG_PARSERS_GBNF_H

#include <stdbool.h>

#include "common/base/buf.h"

/* Largest grammar that an engine may get. A larger one is refused before. */
enum { GBNF_BYTES_MAX = 1 << 20 };

struct gbnf {
    struct buf text;
    unsigned n_rules;
    bool python; /* Python literals are used */
    bool beyond; /* the grammar could not be written because it is too large */
};

static inline void gbnf_init(struct gbnf *g)
{
    *g = (struct gbnf){0};
}

static inline void gbnf_done(struct gbnf *g)
{
    buf_done(&g->text);
}

static inline bool gbnf_too_big(const struct gbnf *g)
{
    return g->beyond || g->text.len > GBNF_BYTES_MAX;
}

/* Returns a number for a rule that is defined later (or refers to itself). */
unsigned gbnf_reserve(struct gbnf *g);
void gbnf_define(struct gbnf *g, unsigned rule, const struct buf *expr);

/* Adds a rule and returns its number. Empties expr. */
unsigned gbnf_rule(struct gbnf *g, struct buf *expr);

/* --- expressions --- */

/* Appends the text itself, quoted. */
void gbnf_lit(struct buf *expr, struct str text);
void gbnf_ref(struct buf *expr, unsigned rule);

/* Appends a character inside [...]. */
void gbnf_class_char(struct buf *class, uint32_t c);

/* Adds a rule for any text in which none of the n marks (NULL ones are skipped) occurs. A character
 * with which a mark begins must not occur again in any mark, which is so for all tags. */
unsigned gbnf_text_without(struct gbnf *g, const char *const *marks, size_t n);

/* Appends `template` with every %KEY replaced by values[i] where keys[i] is KEY. Keys are single
 * characters. Everything else is copied. */
void gbnf_fill(struct buf *expr, const char *template, const char *keys, const struct str *values);

/* Adds the root rule and the lexical rules, which completes g->text. */
void gbnf_finish(struct gbnf *g, struct str root);

#endif
