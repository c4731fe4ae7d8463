/* A hash table from text to number in an arena (lookup.h): open addressing with linear probing, at
 * most three quarters full. Nothing is ever removed. After growing, the old slots remain in the
 * arena. */

#include "common/base/lookup.h"

#include "common/base/check.h"

static uint32_t hash_key(struct str key)
{
    return (uint32_t)str_hash(key, str_seed());
}

/* Returns the slot of the key, or the free slot for it. */
static struct lookup_slot *find_slot(const struct lookup *l, struct str key, uint32_t hash)
{
    uint32_t mask = l->cap - 1, i = hash & mask;

    while (l->slots[i].value != LOOKUP_NONE &&
           !(l->slots[i].hash == hash && str_eq(l->slots[i].key, key)))
        i = (i + 1) & mask;
    return &l->slots[i];
}

uint32_t lookup_get(const struct lookup *l, struct str key)
{
    return l->n ? find_slot(l, key, hash_key(key))->value : LOOKUP_NONE;
}

/* Doubles the slots and enters every entry again. */
static void grow_slots(struct lookup *l)
{
    const struct lookup_slot *old = l->slots;
    uint32_t n = l->cap;

    CHECK(n <= UINT32_MAX / 4);
    l->cap = n ? n * 2 : 16;
    l->slots = arena_alloc(l->arena, l->cap * sizeof(*l->slots));
    for (uint32_t i = 0; i < l->cap; i++)
        l->slots[i].value = LOOKUP_NONE;
    for (uint32_t i = 0; i < n; i++)
        if (old[i].value != LOOKUP_NONE)
            *find_slot(l, old[i].key, old[i].hash) = old[i];
}

bool lookup_add(struct lookup *l, struct str key, uint32_t value)
{
    uint32_t hash = hash_key(key);
    struct lookup_slot *s;

    CHECK(value != LOOKUP_NONE);
    if (l->n >= l->cap / 4 * 3)
        grow_slots(l);
    s = find_slot(l, key, hash);
    if (s->value != LOOKUP_NONE)
        return false;
    *s = (struct lookup_slot){key, hash, value};
    l->n++;
    return true;
}
