/*
 * Translates a regular expression in Oniguruma's syntax (as the tokenizers library sets it up:
 * Ruby-like, Unicode) into a PCRE2 pattern with the same meaning. Every class becomes explicit code
 * point ranges of the reference's Unicode version, and set operations are carried out. Anchors and
 * quantifiers are written so that PCRE2 cannot read them differently. Unknown syntax is refused by
 * name. Reference: Oniguruma 6.9 doc/RE.
 */
#ifndef RG_TOKENS_ONIG_H
#define RG_TOKENS_ONIG_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/text/tokens/charset.h"

/* Facts found while translating. */
struct onig_shape {
    bool single;        /* the pattern is one class with a greedy quantifier (or none) */
    struct charset set; /* the class; the caller frees it (charset_done), even if not `single` */
    uint32_t min, max;  /* UINT32_MAX: unlimited */
};

/* Appends the PCRE2 pattern to out. Returns -1 with ERR_UNSUPPORTED (names the syntax) or
 * ERR_CONFIG (not a regular expression). */
int onig_translate(struct str pattern, struct buf *out, struct onig_shape *shape, struct err *e);

#endif
