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

struct word_line *word_cache_set(const struct word_cache *c, const struct word_key *word)
{
    __uint128_t m = (__uint128_t)(word->at[0] ^ 0x9e3779b97f4a7c15u) *
                    (word->at[1] ^ word->at[2] ^ 0xd1b54a32d192ed03u);
    uint64_t h = ((uint64_t)m ^ (uint64_t)(m >> 64)) * 0x8cb92ba72f3d8dd7u;

    return c->lines + WAYS * (h >> (64 - SET_BITS));
}

/* All but the count of ids, which stands in the highest byte. */
static inline bool same(const struct word_key *kept, const struct word_key *word)
{
    return kept->at[0] == word->at[0] && kept->at[1] == word->at[1] &&
           (kept->at[2] ^ word->at[2]) << 8 == 0;
}

const struct word_line *word_cache_get(const struct word_line *set, const struct word_key *word)
{
    for (size_t i = 0; i < WAYS; i++)
        if (same(&set[i].key, word))
            return &set[i];
    return NULL;
}

/* Words with more ids than a line holds are not kept. */
void word_cache_put(struct word_line *set, const struct word_key *word, const int32_t *ids,
                    size_t n)
{
    if (n > WORD_CACHE_IDS_MAX)
        return;
    set[1] = set[0];
    set[0].key = *word;
    set[0].key.at[2] |= (uint64_t)n << 56;
    memcpy(set[0].ids, ids, n * sizeof(*ids));
}
