/*
 * struct word_cache: word -> ids, bounded and lossy: 2^14 lines of 64 bytes, two to a set, the
 * older one gives way. Long words and words of many ids are not kept. Belongs to one encoder; its
 * pages are touched as it fills, so an idle process pays nothing.
 */
#ifndef RG_TOKENS_WORD_CACHE_H
#define RG_TOKENS_WORD_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum { WORD_CACHE_KEY_MAX = 22, WORD_CACHE_IDS_MAX = 10 };

struct word_line {
    uint8_t len; /* of the key; 0: free */
    uint8_t n;   /* ids */
    char key[WORD_CACHE_KEY_MAX];
    int32_t ids[WORD_CACHE_IDS_MAX];
};

struct word_cache {
    struct word_line *lines;
};

void word_cache_init(struct word_cache *c);
void word_cache_done(struct word_cache *c);

/* The set of a word of 1..WORD_CACHE_KEY_MAX bytes. */
struct word_line *word_cache_set(const struct word_cache *c, struct str word);

/* The word's line in its set, or NULL. */
const struct word_line *word_cache_get(const struct word_line *set, struct str word);

/* Keeps a word with its n > 0 ids in its set when they fit. */
void word_cache_put(struct word_line *set, struct str word, const int32_t *ids, size_t n);

#endif
