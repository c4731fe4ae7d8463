/*
 * struct deliveries: which committed answers were not delivered whole, by session and body hash, so
 * that a repeated request gets the recorded answer instead of a second sample. Bounded: beyond
 * DELIVERY_MAX the oldest is forgotten.
 */
#ifndef RG_TURN_DELIVERY_H
#define RG_TURN_DELIVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/map.h"
#include "common/base/str.h"

enum { DELIVERY_MAX = 65536 };

struct delivery;

struct deliveries {
    struct map by_key;
    struct delivery *first, *last; /* oldest first */
    size_t n;
};

/* The answer of this request is committed and not (yet) delivered. */
void deliveries_open(struct deliveries *d, struct str session_id, const uint64_t hash[2]);

/* It was delivered. */
void deliveries_close(struct deliveries *d, struct str session_id, const uint64_t hash[2]);

bool deliveries_missing(const struct deliveries *d, struct str session_id, const uint64_t hash[2]);

void deliveries_done(struct deliveries *d);

#endif
