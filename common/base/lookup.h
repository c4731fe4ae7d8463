/*
 * struct lookup: a table from strings to numbers (usually indexes in a list) in memory of an arena,
 * so it is never freed. Keys are borrowed and must live as long as the table. The first entry of a
 * key wins. The hash has a random seed, so that clients cannot prepare keys that collide. Init:
 * {.arena = a}. For tables that live longer or lose entries use struct map.
 */
#ifndef RG_BASE_LOOKUP_H
#define RG_BASE_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"

#define LOOKUP_NONE UINT32_MAX

struct lookup_slot {
    struct str key;
    uint32_t hash;
    uint32_t value; /* LOOKUP_NONE: the slot is free */
};

struct lookup {
    struct arena *arena;
    struct lookup_slot *slots;
    uint32_t n;
    uint32_t cap; /* a power of two, or 0 */
};

/* Returns the key's value, or LOOKUP_NONE. */
uint32_t lookup_get(const struct lookup *l, struct str key);

/* Adds an entry. Returns false if the key exists already (its value does not change). value must be
 * < LOOKUP_NONE. */
bool lookup_add(struct lookup *l, struct str key, uint32_t value);

#endif
