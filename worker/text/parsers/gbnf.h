/*
 * struct gbnf: the text of a grammar while it is written, in the notation that llama.cpp (GBNF),
 * XGrammar (SGLang's `ebnf`, vLLM's `grammar`) and llguidance all read:
 *     root ::= "a" x1* [^<]{0,3} ( ws | string )?
 * Only what the three share is used: no recursion on the left, no empty classes, rule names of
 * letters and digits, \uXXXX for every character that might mean something in a class.
 *
 * Rules are numbered; an expression is text in a struct buf that the functions here append to.
 * Lexical rules that every grammar may name come with gbnf_finish: ws, string, number, integer,
 * boolean, null, value, object, array, and for Python literals pystring, pyvalue, pylist, pydict.
 */
#ifndef RG_PARSERS_GBNF_H
#define RG_PARSERS_GBNF_H

#include <stdbool.h>

#include "common/base/buf.h"

/* Largest grammar that an engine is asked to compile; a larger one is refused before. */
enum { GBNF_BYTES_MAX = 1 << 20 };

struct gbnf {
    struct buf text;
    unsigned n_rules;
    bool python; /* the Python literals are used */
    bool beyond; /* something was too large to be written */
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

/* A number for a rule that is defined later (or refers to itself). */
unsigned gbnf_reserve(struct gbnf *g);
void gbnf_define(struct gbnf *g, unsigned rule, const struct buf *expr);

/* A new rule; expr is emptied. */
unsigned gbnf_rule(struct gbnf *g, struct buf *expr);

/* --- expressions --- */

/* Appends the text itself, quoted. */
void gbnf_lit(struct buf *expr, struct str text);
void gbnf_ref(struct buf *expr, unsigned rule);

/* Appends a character inside [...]. */
void gbnf_class_char(struct buf *class, uint32_t c);

/* A rule for any text in which none of the n marks (NULL ones are skipped) occurs. The characters
 * that marks begin with must not occur in any mark again, as is so of all tags. */
unsigned gbnf_text_without(struct gbnf *g, const char *const *marks, size_t n);

/* `template` with every %KEY replaced by values[i] where keys[i] is KEY; keys are single
 * characters. Everything else is copied. */
void gbnf_fill(struct buf *expr, const char *template, const char *keys, const struct str *values);

/* The root rule and the lexical rules: g->text is then whole. */
void gbnf_finish(struct gbnf *g, struct str root);

#endif
