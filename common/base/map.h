/*
 * struct map: a hash table from bytes to pointers. Keys are borrowed: they must outlive their entry
 * (usually they are inside of the value). Values are never NULL. A zeroed struct is an empty map.
 * Iterate with map_next; setting and removing while iterating are not allowed. A large map grows in
 * steps, so that no call takes longer because there are many entries.
 */
#ifndef RG_BASE_MAP_H
#define RG_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

/* One entry. Small, because each session has several tables. */
struct map_slot {
    const char *key; /* map_slot_key returns it with its length */
    uint32_t key_bytes;
    uint32_t hash; /* low half of the key's hash */
    void *value;   /* NULL: the slot is free */
};

static inline struct str map_slot_key(const struct map_slot *s)
{
    return str_of(s->key, s->key_bytes);
}

/* One table of slots. */
struct map_table {
    struct map_slot *slots;
    size_t cap; /* power of two or 0 */
};

struct map {
    struct map_table table;
    /* the previous, smaller table while its entries are moved; else NULL */
    struct map_leaving *leaving;
    size_t n; /* number of entries in both tables */
    uint64_t seed;
};

void map_done(struct map *m);

/* Returns the value of the key, or NULL. */
void *map_get(const struct map *m, struct str key);

/* Sets or replaces a value. Returns the previous value, or NULL. If it replaces, the stored key
 * becomes the new one. Aborts if the key has 4 GiB or more. */
void *map_set(struct map *m, struct str key, void *value);

/* Removes and returns the value, or NULL. */
void *map_take(struct map *m, struct str key);

/* Returns the next entry: start with *at = 0; NULL at the end. The order is arbitrary. */
struct map_slot *map_next(const struct map *m, size_t *at);

/* Like map_next, but only up to the position `end` of map_places: returns NULL when *at reaches it.
 * For walks in steps, between which entries may be added or removed. A walk misses entries that
 * move to a position that it has passed. */
struct map_slot *map_next_before(const struct map *m, size_t *at, size_t end);

/* Returns the number of slots in the tables, all of which map_next reads. */
size_t map_places(const struct map *m);

/* Returns the size of the tables in bytes. Keys and values, which the map does not own, do not
 * count. */
size_t map_bytes(const struct map *m);

#endif
