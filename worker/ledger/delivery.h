/*
 * struct deliveries: which committed calls were not delivered whole, by session and body hash, so
 * that a repeated request gets the recorded answer instead of a second sample. Each call is kept
 * for itself: of two deliberate samples of one prompt, one may arrive and the other not. Bounded:
 * beyond DELIVERY_MAX the oldest is forgotten.
 */
#ifndef RG_LEDGER_DELIVERY_H
#define RG_LEDGER_DELIVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/str.h"

enum { DELIVERY_MAX = 65536 };

struct delivery;

struct deliveries {
    struct map by_request; /* session and hash -> its undelivered calls, oldest first */
    struct map by_brief;   /* hash of session, body and call -> the one undelivered call */
    struct list_head all;  /* oldest first */
    size_t n;
    struct buf notes; /* what arrived and is not yet noted in a journal: struct noted */
};

/* The answer of this call is committed and not (yet) delivered. */
void deliveries_open(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                     uint64_t call);

/* It was delivered. */
void deliveries_close(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                      uint64_t call);

/* The next call of this request that was not delivered, the oldest first: *at is NULL to begin with
 * and moves on. False: no more. */
bool deliveries_missing(const struct deliveries *d, struct str session_id, const uint64_t hash[2],
                        const struct delivery **at, uint64_t *ret_call);

/* What was delivered to sessions of a worker index (any: UINT32_MAX) since the last call of this,
 * as the payload of a journal note; empty when nothing. After a crash these tell which replayed
 * commits had reached their clients. */
void deliveries_take_note(struct deliveries *d, uint32_t index, struct buf *note);

/* A replayed note. Notes come behind the commits they speak of. */
void deliveries_replay_note(struct deliveries *d, struct str note);

void deliveries_done(struct deliveries *d);

#endif
