
#include "common/codec/json_merge.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/json.h"

enum { SMALL_OBJECT = 16 }; /* up to this number of members, keys are compared in pairs */

static inline bool same_key(const struct json_member *a, const struct json_member *b)
{
    return a->key.n == b->key.n &&
           (a->key.n == 0 || memcmp(a->key.text, b->key.text, a->key.n) == 0);
}

/* Merges few members: compares each key with all earlier ones. */
static size_t merge_few(struct json_member *m, size_t n, struct json *twice)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        size_t k = 0;

        while (k < kept && !same_key(&m[k], &m[i]))
            k++;
        if (k < kept) {
            m[k].value = m[i].value;
            *twice = m[i].key;
        } else {
            m[kept++] = m[i];
        }
    }
    return kept;
}

/* Merges many members with a hash table of indexes. The seed of the hash is an address, so that
 * clients cannot prepare collisions. */
static size_t merge_many(struct json_member *m, size_t n, struct json *twice)
{
    uint64_t seed = (uint64_t)(uintptr_t)m;
    size_t cap = 64, kept = 0;
    uint32_t *table; /* index + 1; 0: a free slot */

    while (cap < n * 2)
        cap *= 2;
    table = mem_calloc(cap, sizeof(*table));
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)str_hash(json_text(&m[i].key), seed) & (cap - 1);

        while (table[at] && !same_key(&m[table[at] - 1], &m[i]))
            at = (at + 1) & (cap - 1);
        if (table[at]) {
            m[table[at] - 1].value = m[i].value;
            *twice = m[i].key;
        } else {
            m[kept] = m[i];
            table[at] = (uint32_t)++kept;
        }
    }
    free(table);
    return kept;
}

size_t json_merge_keys(struct json_member *members, size_t n, struct json *twice)
{
    return n <= SMALL_OBJECT ? merge_few(members, n, twice) : merge_many(members, n, twice);
}
