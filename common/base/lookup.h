/*
 * struct lookup: strings -> numbers (places in a list, as a rule) for the life of an arena: nothing
 * to free on any way out. Keys are borrowed and must live as long; the first entry of a key stays.
 * The hash is seeded by chance, so that nobody outside can prepare keys that collide.
 * Init: {.arena = a}. For what lives longer or loses entries there is struct map.
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
    uint32_t value; /* LOOKUP_NONE: free */
};

struct lookup {
    struct arena *arena;
    struct lookup_slot *slots;
    uint32_t n;
    uint32_t cap; /* a power of two, or 0 */
};

/* The key's value, or LOOKUP_NONE. */
uint32_t lookup_get(const struct lookup *l, struct str key);

/* Returns false if the key is there already (its value stays). value < LOOKUP_NONE. */
bool lookup_add(struct lookup *l, struct str key, uint32_t value);

#endif
