/*
 * struct pattern: the search of a Split, Replace or other splitting step: a literal, single
 * characters of a kind, or a regular expression. Known families have hand-written matchers, class
 * runs a loop, all others PCRE2. pattern_next walks a text as the reference library's find_iter
 * does. Immutable once made.
 */
#ifndef RG_TOKENS_PATTERN_H
#define RG_TOKENS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct pattern;
struct regex_scratch;
struct split_family;

struct pattern *pattern_literal(struct str text); /* copies; may be empty */
struct pattern *pattern_char(uint32_t flags);     /* one character with any of these flags */
struct pattern *pattern_gpt2(void);               /* ByteLevel's */
struct pattern *pattern_words(void);              /* \w+|[^\w\s]+ of Rust's regex */
int pattern_regex(struct str text, struct pattern **ret, struct err *e); /* Oniguruma's syntax */
void pattern_free(struct pattern *p);                                    /* NULL allowed */

/* The family that the pattern runs by; NULL: by something else. */
const struct split_family *pattern_family(const struct pattern *p);

/* Bytes that every match has at least. */
size_t pattern_least(const struct pattern *p);

/* "PCRE2" or "PCRE2 without JIT" when the pattern runs there, else NULL. */
const char *pattern_engine(const struct pattern *p);

/* A walk over the matches of one text. Start with {.text = text}. */
struct pattern_walk {
    struct str text;
    size_t from;  /* where to search next */
    bool matched; /* a match came before; it ended at ... */
    size_t last_end;
    size_t start, end; /* the match */
};

/* Finds the next match: 1 with start and end, 0 if none is left, -1 if the budget of the scratch
 * has run out. Empty matches directly after a match are skipped, and nothing matches in an empty
 * text. */
int pattern_next(const struct pattern *p, struct regex_scratch *scratch, struct pattern_walk *w);

#endif
