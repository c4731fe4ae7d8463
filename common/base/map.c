/*
 * An entry stands in the first slot that was free from its home (hash & mask) on, so a search
 * walks from the home to the key or to a free slot. The table grows when it is three quarters
 * full.
 *
 * Removal leaves no marks. It moves later entries of the same row back into the hole, each only if
 * its home does not lie behind the hole; else a search would stop at the hole and miss it.
 *
 * The hash is seeded, by a number that is chance for each process, so that clients cannot prepare
 * keys that collide.
 */
#include "common/base/map.h"

#include <stdlib.h>

#include "common/base/mem.h"

void map_done(struct map *m)
{
    free(m->slots);
    *m = (struct map){.seed = m->seed};
}

/* The slot that holds key, or the free slot where it belongs. */
static struct map_slot *find(const struct map *m, struct str key, uint64_t hash)
{
    size_t mask = m->cap - 1;
    size_t i = (size_t)hash & mask;

    while (m->slots[i].value && !(m->slots[i].hash == hash && str_eq(m->slots[i].key, key)))
        i = (i + 1) & mask;
    return &m->slots[i];
}

void *map_get(const struct map *m, struct str key)
{
    return m->n ? find(m, key, str_hash(key, m->seed))->value : NULL;
}

static void grow(struct map *m)
{
    struct map_slot *old = m->slots;
    size_t old_cap = m->cap;

    if (!old_cap)
        m->seed = str_seed();
    m->cap = old_cap ? old_cap * 2 : 16;
    m->slots = mem_calloc(m->cap, sizeof(*m->slots));
    for (size_t i = 0; i < old_cap; i++) {
        if (old[i].value)
            *find(m, old[i].key, old[i].hash) = old[i];
    }
    free(old);
}

void *map_set(struct map *m, struct str key, void *value)
{
    struct map_slot *s;
    uint64_t hash;
    void *before;

    if ((m->n + 1) * 4 > m->cap * 3)
        grow(m);
    hash = str_hash(key, m->seed);
    s = find(m, key, hash);
    before = s->value;
    if (!before)
        m->n++;
    *s = (struct map_slot){key, hash, value};
    return before;
}

void *map_take(struct map *m, struct str key)
{
    struct map_slot *s;
    size_t mask = m->cap - 1, hole, i;
    void *value;

    if (!m->n)
        return NULL;
    s = find(m, key, str_hash(key, m->seed));
    value = s->value;
    if (!value)
        return NULL;
    /* Close the gap: an entry moves back unless it already sits between its home and the hole. */
    hole = (size_t)(s - m->slots);
    for (i = (hole + 1) & mask; m->slots[i].value; i = (i + 1) & mask) {
        size_t home = (size_t)m->slots[i].hash & mask;

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct map_slot){0};
    m->n--;
    return value;
}

struct map_slot *map_next(const struct map *m, size_t *at)
{
    while (*at < m->cap) {
        struct map_slot *s = &m->slots[(*at)++];

        if (s->value)
            return s;
    }
    return NULL;
}
