/*
 * struct pattern: the pattern of a Split, Replace or other splitting step: a literal, single
 * characters of a kind, or a regular expression. Known families have hand-written matchers, class
 * runs a loop, all others use PCRE2. pattern_next walks a text like the reference library's
 * find_iter. Immutable after its construction.
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

struct pattern *pattern_literal(struct str text); /* copies the text, which may be empty */
/* matches one character with any of these flags */
struct pattern *pattern_char(uint32_t flags);
struct pattern *pattern_gpt2(void);  /* ByteLevel's pattern */
struct pattern *pattern_words(void); /* \w+|[^\w\s]+ of Rust's regex */
/* a pattern in Oniguruma's syntax */
int pattern_regex(struct str text, struct pattern **ret, struct err *e);
void pattern_free(struct pattern *p); /* accepts NULL */

/* Returns the family whose matcher runs the pattern; NULL: none. */
const struct split_family *pattern_family(const struct pattern *p);

/* Returns the least length of a match in bytes. */
size_t pattern_least(const struct pattern *p);

/* Returns "PCRE2" or "PCRE2 without JIT" if the pattern uses it, else NULL. */
const char *pattern_engine(const struct pattern *p);

/* State of a walk over the matches of one text. Start with {.text = text}. */
struct pattern_walk {
    struct str text;
    size_t from;  /* start of the next search */
    bool matched; /* a match was found before; its end */
    size_t last_end;
    size_t start, end; /* bounds of the match */
};

/* Finds the next match. Returns 1 with start and end, 0 if none is left, -1 if the budget of the
 * scratch is exhausted. Empty matches directly after a match are skipped, and nothing matches in an
 * empty text. */
int pattern_next(const struct pattern *p, struct regex_scratch *scratch, struct pattern_walk *w);

#endif
