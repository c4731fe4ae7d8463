/*
 * struct pair_table: a hash table (a, b) -> value with open addressing over 64-bit slots: a 21
 * bits, b 21 bits, value + 1 in 22 bits. At most half of the slots are used. A separate filter,
 * small enough for the processor's cache, recognizes most absent pairs.
 */
#ifndef RG_TOKENS_PAIR_TABLE_H
#define RG_TOKENS_PAIR_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/base/mem.h"

enum {
    PAIR_KEY_BITS = 21,
    PAIR_VALUE_BITS = 22,
    PAIR_KEY_MAX = (1 << PAIR_KEY_BITS) - 1,
    PAIR_VALUE_MAX = (1 << PAIR_VALUE_BITS) - 2
};

#define PAIR_NONE UINT32_MAX

struct pair_table {
    uint64_t *slots;
    unsigned shift; /* 64 - log2(slots) */
    size_t mask;
    uint64_t *filter; /* 4 bits for each slot, in words */
    size_t probes;    /* number of occupied slots that pair_table_put has skipped */
};

/* Makes an empty table with room for n pairs. */
static inline void pair_table_init(struct pair_table *t, size_t n)
{
    unsigned bits = 8;

    while (((size_t)1 << bits) < n * 2)
        bits++;
    *t = (struct pair_table){.shift = 64 - bits, .mask = ((size_t)1 << bits) - 1};
    t->slots = mem_calloc(t->mask + 1, sizeof(*t->slots));
    t->filter = mem_calloc((t->mask + 1) / 16, sizeof(*t->filter));
}

/* Call it once, after all pairs were added. */
static inline void pair_table_seal(struct pair_table *t)
{
    t->slots = mem_to_large_pages(t->slots, (t->mask + 1) * sizeof(*t->slots));
}

static inline void pair_table_done(struct pair_table *t)
{
    free(t->slots);
    free(t->filter);
    *t = (struct pair_table){0};
}

static inline uint64_t pair_key(int32_t a, int32_t b)
{
    return (uint64_t)(uint32_t)a << PAIR_KEY_BITS | (uint32_t)b;
}

static inline uint64_t pair_hash(uint64_t key)
{
    return key * 0x9e3779b97f4a7c15u;
}

static inline uint64_t *pair_slot(const struct pair_table *t, uint64_t key)
{
    size_t i = (size_t)(pair_hash(key) >> t->shift);

    while (t->slots[i] && t->slots[i] >> PAIR_VALUE_BITS != key)
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

/* Returns the pair's value, or PAIR_NONE. */
static inline uint32_t pair_table_get(const struct pair_table *t, int32_t a, int32_t b)
{
    uint64_t key = pair_key(a, b), bit = pair_hash(key) >> (t->shift - 2), slot;

    if (!(t->filter[bit / 64] >> bit % 64 & 1))
        return PAIR_NONE;
    slot = *pair_slot(t, key);
    return slot ? (uint32_t)(slot & ((1u << PAIR_VALUE_BITS) - 1)) - 1 : PAIR_NONE;
}

/* Sets a pair's value. The table must have space. */
static inline void pair_table_put(struct pair_table *t, int32_t a, int32_t b, uint32_t value)
{
    uint64_t key = pair_key(a, b), bit = pair_hash(key) >> (t->shift - 2);

    uint64_t *slot = pair_slot(t, key);

    t->filter[bit / 64] |= (uint64_t)1 << bit % 64;
    t->probes += ((size_t)(slot - t->slots) - (size_t)(pair_hash(key) >> t->shift)) & t->mask;
    *slot = key << PAIR_VALUE_BITS | (value + 1);
}

#endif
