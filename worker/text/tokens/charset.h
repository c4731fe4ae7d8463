/*
 * struct charset: a set of code points as sorted ranges, for a character class of a regular
 * expression. Surrogates may be in it but never count.
 */
#ifndef RG_TOKENS_CHARSET_H
#define RG_TOKENS_CHARSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct charset_range {
    uint32_t first, last;
};

struct charset {
    struct charset_range *at; /* sorted, disjoint and not adjacent after charset_seal */
    size_t n, cap;
};

void charset_done(struct charset *s);

void charset_add(struct charset *s, uint32_t first, uint32_t last);
void charset_add_flags(struct charset *s, uint32_t flags); /* any of the flags of unicode.h */
void charset_add_set(struct charset *s, const struct charset *other);

/* Adds a property of Oniguruma by name (case, spaces, '_' and '-' do not matter). Returns false if
 * it is unknown. */
bool charset_add_property(struct charset *s, struct str name);

/* The operations below seal their results. */
void charset_seal(struct charset *s);
void charset_negate(struct charset *s);
void charset_intersect(struct charset *s, struct charset *other); /* also seals `other` */

/* Reports whether the sealed set contains the character. */
bool charset_has(const struct charset *s, uint32_t cp);

#endif
