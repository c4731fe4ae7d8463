/*
 * struct regex: a regular expression of a tokenizer.json on PCRE2 (10.42), compiled by the JIT if
 * the machine allows it (regex_jitted). Immutable after its construction, and shared by forked
 * processes. struct regex_scratch has the memory of a match. Only this file uses PCRE2.
 */
#ifndef RG_TOKENS_REGEX_H
#define RG_TOKENS_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct budget;
struct regex;
struct regex_scratch;

/* Compiles a pattern in PCRE2 syntax. The caller frees *ret. */
int regex_new(struct str pattern, struct regex **ret, struct err *e);
void regex_free(struct regex *r); /* accepts NULL */
bool regex_jitted(const struct regex *r);

/* Makes the memory that matches need, one for each thread. Matches use a budget of their own until
 * regex_scratch_use sets a different one, which must live as long as it is used. */
struct regex_scratch *regex_scratch_new(void);
void regex_scratch_free(struct regex_scratch *s); /* accepts NULL */
void regex_scratch_use(struct regex_scratch *s, struct budget *budget);
struct budget *regex_scratch_budget(const struct regex_scratch *s);

/* Sets the bytes of text that a search examines at first. For tests. */
void regex_scratch_reach(struct regex_scratch *s, size_t bytes);

/* Finds the leftmost match at or after `from` in valid UTF-8. Returns 1 and *start, *end; 0: no
 * match; -1: the budget of the scratch is exhausted. */
int regex_find(const struct regex *r, struct regex_scratch *s, struct str text, size_t from,
               size_t *start, size_t *end);

#endif
