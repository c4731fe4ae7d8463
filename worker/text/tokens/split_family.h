/*
 * struct split_family: the split patterns of the large model families, matched by hand. Each
 * pattern is an exact regular expression text; what the functions here match is what Oniguruma
 * matches with it (tests compare them with the PCRE2 path). Any other pattern goes to regex.h.
 */
#ifndef RG_TOKENS_SPLIT_FAMILY_H
#define RG_TOKENS_SPLIT_FAMILY_H

#include <stddef.h>

#include "common/base/str.h"

struct split_family;

/* The family with exactly this pattern, or NULL. The result is static. */
const struct split_family *family_of(struct str pattern);

/* The pattern of GPT-2, which ByteLevel uses. */
const struct split_family *family_gpt2(void);

/* Number i of the known families, or NULL; for tests. */
const struct split_family *family_at(size_t i);
struct str family_pattern(const struct split_family *f);

/* End of the match that starts exactly at `at` (< text.len), or SIZE_MAX. */
size_t family_match(const struct split_family *f, struct str text, size_t at);

#endif
