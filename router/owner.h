/*
 * struct owner: the node that serves a place, by the place table of the fleet. Pure but for the
 * table.
 */
#ifndef RG_ROUTER_OWNER_H
#define RG_ROUTER_OWNER_H

#include <stdbool.h>
#include <stdint.h>

struct place_table;

enum owner_kind {
    OWNER_NONE,   /* no living node has the place now */
    OWNER_SELF,   /* this node */
    OWNER_OTHER,  /* a different node */
    OWNER_UNKNOWN /* there is no such place: no node makes ids with this index */
};

struct owner {
    enum owner_kind kind;
    uint32_t node;  /* OWNER_OTHER: its slot */
    uint64_t epoch; /* 0: there is no entry */
};

/* Finds the owner of a place. A place without an entry is OWNER_NONE while a node may still bring
 * the entry back, because the store may have been emptied, or while this node may have missed it.
 */
struct owner owner_find(const struct place_table *t, uint32_t index);

#endif
