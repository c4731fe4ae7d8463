/*
 * struct map: bytes -> pointer, open addressing, linear probing. Keys are borrowed: they must
 * outlive their entry (usually they sit inside the value). Values are never NULL.
 * A zeroed struct is an empty map. Iterate with map_next; setting and removing while iterating are
 * not allowed. A large map grows in steps: no call takes longer because there are many entries.
 */
#ifndef RG_BASE_MAP_H
#define RG_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct map_slot {
    struct str key;
    uint64_t hash;
    void *value; /* NULL: free */
};

/* One table of slots. */
struct map_table {
    struct map_slot *slots;
    size_t cap; /* power of two or 0 */
};

struct map {
    struct map_table table;
    struct map_leaving *leaving; /* the table before, while it is being emptied; else NULL */
    size_t n;                    /* entries, in both */
    uint64_t seed;
};

void map_done(struct map *m);

/* Returns the value of the key, or NULL. */
void *map_get(const struct map *m, struct str key);

/* Sets or replaces a value; returns the value before, or NULL. If it replaces, the stored key
 * becomes the new one. */
void *map_set(struct map *m, struct str key, void *value);

/* Removes and returns the value, or NULL. */
void *map_take(struct map *m, struct str key);

/* Walks all entries: start with *at = 0; NULL at the end. Order is arbitrary. */
struct map_slot *map_next(const struct map *m, size_t *at);

/* Like map_next, up to the position `end` of map_places: returns NULL when *at reaches it. For
 * walks in steps, between which entries may be added or removed. A walk misses entries that move to
 * a position that it has passed. */
struct map_slot *map_next_before(const struct map *m, size_t *at, size_t end);

/* Places for entries in its tables: map_next looks at each. */
size_t map_places(const struct map *m);

/* Returns the size of its tables in bytes, without keys and values, which it does not own. */
size_t map_bytes(const struct map *m);

#endif
