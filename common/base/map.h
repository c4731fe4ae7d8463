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

/* The value or NULL. */
void *map_get(const struct map *m, struct str key);

/* Sets or replaces; returns the value that stood there before, or NULL. When it replaces, the
 * stored key becomes the new one. */
void *map_set(struct map *m, struct str key, void *value);

/* Removes and returns the value, or NULL. */
void *map_take(struct map *m, struct str key);

/* Walks all entries: start with *at = 0; NULL at the end. Order is arbitrary. */
struct map_slot *map_next(const struct map *m, size_t *at);

/* The same up to the place `end` of map_places: NULL as soon as *at is there. For walks in parts,
 * between which entries may come and go: those that move to a place that was passed are missed. */
struct map_slot *map_next_before(const struct map *m, size_t *at, size_t end);

/* Places for entries in its tables: map_next looks at each. */
size_t map_places(const struct map *m);

/* What its tables take, in bytes; keys and values are others'. */
size_t map_bytes(const struct map *m);

#endif
