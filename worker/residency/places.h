/*
 * struct places: the journals of the places that this worker serves. A place is a worker index: its
 * journal holds the sessions whose ids name that index. A worker's own place comes first; places
 * that it has adopted keep their journals.
 */
#ifndef RG_RESIDENCY_PLACES_H
#define RG_RESIDENCY_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct journal;

struct place_journal {
    uint32_t index;
    struct journal *journal;
};

struct places {
    struct place_journal *at;
    size_t n;
};

/* Adds a place; its journal is closed by places_done. */
void places_add(struct places *p, uint32_t index, struct journal *journal);

/* Returns the place of the session, by the index in its id; of all other ids the worker's own. */
const struct place_journal *places_find(const struct places *p, struct str session_id);

/* Reports whether this worker serves the index, as its own or as an adopted place. */
bool places_serve(const struct places *p, uint32_t index);

/* Closes all journals. */
void places_done(struct places *p);

#endif
