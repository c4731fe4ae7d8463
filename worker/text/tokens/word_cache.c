/* The cache of encoded words (word_cache.h): 2^13 sets of two lines of 64 bytes. The newer entry of
 * a set is first. A new one moves it to the second position and drops the older one. There is no
 * clock and no list, so a hit costs one hash and one or two comparisons. */

#include "worker/text/tokens/word_cache.h"

#include "common/base/mem.h"

_Static_assert(sizeof(struct word_line) == 64, "a cache line");

enum { CACHE_BYTES = sizeof(struct word_line) * WORD_CACHE_WAYS << WORD_CACHE_BITS };

/* Maps pages of its own, because calloc would write zeros to memory that was in use before. */
void word_cache_init(struct word_cache *c)
{
    c->lines = mem_map(CACHE_BYTES);
}

void word_cache_done(struct word_cache *c)
{
    mem_unmap(c->lines, CACHE_BYTES);
}

/* Words with more ids than fit in a line are not kept. */
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
