/*
 * struct word_cache: word -> ids, bounded and lossy: 2^14 lines of 64 bytes, two to a set, of which
 * the older one is replaced. Long words and words of many ids are not kept. Belongs to one encoder.
 * Its pages are touched as it fills, so an idle process uses no memory for it.
 */
#ifndef RG_TOKENS_WORD_CACHE_H
#define RG_TOKENS_WORD_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/str.h"

enum { WORD_CACHE_KEY_MAX = 22, WORD_CACHE_IDS_MAX = 10 };

enum {
    WORD_CACHE_BITS = 13,
    WORD_CACHE_WAYS = 2
}; /* logarithm of the number of sets; lines per set */

/* A word as three numbers: its first 8 bytes; the next 8, or its last 8; its last 6, with its
 * length above them. In a word of less than 22 bytes they overlap, or are 0. The length determines
 * the positions of the bytes, so no two words have the same key. The highest byte is 0. */
struct word_key {
    uint64_t at[3];
};

struct word_line {
    struct word_key key; /* its highest byte is the number of ids; all 0: the line is free */
    int32_t ids[WORD_CACHE_IDS_MAX];
};

struct word_cache {
    struct word_line *lines;
};

void word_cache_init(struct word_cache *c);
void word_cache_done(struct word_cache *c);

/* Makes the key of a word of 1..WORD_CACHE_KEY_MAX bytes. */
static inline struct word_key word_key(struct str word)
{
    struct word_key k = {{0, 0, (uint64_t)word.len << 48}};
    const char *end = word.p + word.len;
    uint32_t four = 0;
    uint16_t two = 0;

    if (word.len >= 8) {
        memcpy(&k.at[0], word.p, 8);
        memcpy(&k.at[1], word.len < 16 ? end - 8 : word.p + 8, 8);
        if (word.len <= 16)
            return k;
        memcpy(&four, end - 6, 4);
        memcpy(&two, end - 2, 2);
        k.at[2] |= (uint64_t)two << 32 | four;
    } else if (word.len >= 4) {
        memcpy(&four, word.p, 4);
        k.at[0] = four;
        memcpy(&four, end - 4, 4);
        k.at[0] |= (uint64_t)four << 32;
    } else {
        for (size_t i = 0; i < word.len; i++)
            k.at[0] = k.at[0] << 8 | (unsigned char)word.p[i];
    }
    return k;
}

/* Returns the set of a word. */
static inline struct word_line *word_cache_set(const struct word_cache *c,
                                               const struct word_key *word)
{
    __uint128_t m = (__uint128_t)(word->at[0] ^ 0x9e3779b97f4a7c15u) *
                    (word->at[1] ^ word->at[2] ^ 0xd1b54a32d192ed03u);
    uint64_t h = ((uint64_t)m ^ (uint64_t)(m >> 64)) * 0x8cb92ba72f3d8dd7u;

    return c->lines + WORD_CACHE_WAYS * (h >> (64 - WORD_CACHE_BITS));
}

/* Compares everything except the number of ids, which is in the highest byte. */
static inline bool word_line_is(const struct word_line *line, const struct word_key *word)
{
    return line->key.at[0] == word->at[0] && line->key.at[1] == word->at[1] &&
           (line->key.at[2] ^ word->at[2]) << 8 == 0;
}

/* Returns the word's line in its set, or NULL. */
static inline const struct word_line *word_cache_get(const struct word_line *set,
                                                     const struct word_key *word)
{
    for (size_t i = 0; i < WORD_CACHE_WAYS; i++)
        if (word_line_is(&set[i], word))
            return &set[i];
    return NULL;
}

static inline size_t word_line_count(const struct word_line *line)
{
    return line->key.at[2] >> 56;
}

/* Keeps a word with its n > 0 ids in its set if they fit. */
void word_cache_put(struct word_line *set, const struct word_key *word, const int32_t *ids,
                    size_t n);

#endif
