/*
 * struct deliveries: which committed answers were not delivered whole, by session and body hash, so
 * that a repeated request gets the recorded answer instead of a second sample. Bounded: beyond
 * DELIVERY_MAX the oldest is forgotten.
 */
#ifndef RG_TURN_DELIVERY_H
#define RG_TURN_DELIVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/str.h"

enum { DELIVERY_MAX = 65536 };

struct delivery;

struct deliveries {
    struct map by_key;
    struct map by_brief;
    struct delivery *first, *last; /* oldest first */
    size_t n;
    struct buf note; /* 8-byte keys, delivered and not yet noted */
};

/* The answer of this request is committed and not (yet) delivered. */
void deliveries_open(struct deliveries *d, struct str session_id, const uint64_t hash[2]);

/* It was delivered. */
void deliveries_close(struct deliveries *d, struct str session_id, const uint64_t hash[2]);

/* What was delivered since the last call of this, as the payload of a journal note; empty when
 * nothing. After a crash these tell which replayed commits had reached their clients. */
void deliveries_take_note(struct deliveries *d, struct buf *note);

/* A replayed note. Notes come behind the commits they speak of. */
void deliveries_replay_note(struct deliveries *d, struct str note);

bool deliveries_missing(const struct deliveries *d, struct str session_id, const uint64_t hash[2]);

void deliveries_done(struct deliveries *d);

#endif
