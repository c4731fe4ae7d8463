/*
 * struct split_family: the split patterns of the large model families, matched by hand. Each
 * pattern is an exact regular expression text. The functions here match exactly like Oniguruma does
 * with it (tests compare them with PCRE2). Any other pattern uses regex.h.
 */
#ifndef RG_TOKENS_SPLIT_FAMILY_H
#define RG_TOKENS_SPLIT_FAMILY_H

#include <stddef.h>

#include "common/base/str.h"

struct split_family;

/* Returns the family with exactly this pattern, or NULL. The result is static. */
const struct split_family *family_of(struct str pattern);

/* Returns the pattern of GPT-2, which ByteLevel uses. */
const struct split_family *family_gpt2(void);

/* Returns number i of the known families, or NULL; for tests. */
const struct split_family *family_at(size_t i);
struct str family_pattern(const struct split_family *f);

/* Returns the end of the match that starts exactly at `at` (< text.len), or SIZE_MAX. */
size_t family_match(const struct split_family *f, struct str text, size_t at);

#endif
