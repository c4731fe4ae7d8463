/* The cache of encoded words (word_cache.h): 2^13 sets of two lines of 64 bytes. The newer entry
 * of a set stands first; a new one pushes it to the second place and the older one out. There is
 * no clock and no list, so a hit costs one hash and one or two comparisons. */

#include "worker/tokens/word_cache.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"

enum { SET_BITS = 13, WAYS = 2 };

_Static_assert(sizeof(struct word_line) == 64, "a cache line");

void word_cache_init(struct word_cache *c)
{
    c->lines = mem_calloc((size_t)WAYS << SET_BITS, sizeof(*c->lines));
}

void word_cache_done(struct word_cache *c)
{
    free(c->lines);
}

struct word_line *word_cache_set(const struct word_cache *c, struct str word)
{
    return c->lines + WAYS * (str_hash(word, 0) >> (64 - SET_BITS));
}

const struct word_line *word_cache_get(const struct word_line *set, struct str word)
{
    for (size_t i = 0; i < WAYS; i++)
        if (set[i].len == word.len && memcmp(set[i].key, word.p, word.len) == 0)
            return &set[i];
    return NULL;
}

/* Words with more ids than a line holds are not kept. */
void word_cache_put(struct word_line *set, struct str word, const int32_t *ids, size_t n)
{
    if (n > WORD_CACHE_IDS_MAX)
        return;
    set[1] = set[0];
    set[0].len = (uint8_t)word.len;
    set[0].n = (uint8_t)n;
    memcpy(set[0].key, word.p, word.len);
    memcpy(set[0].ids, ids, n * sizeof(*ids));
}
