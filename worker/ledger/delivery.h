/*
 * struct deliveries: which committed calls were not delivered whole, by session and body hash, so
 * that a repeated request gets the recorded answer instead of a second sample. Each call is kept
 * for itself: of two deliberate samples of one prompt, one may arrive and the other not. Bounded:
 * beyond DELIVERY_MAX one is forgotten, the oldest of a session that has as many as any other, or
 * more than half as many. Nothing here takes longer because there are many.
 */
#ifndef RG_LEDGER_DELIVERY_H
#define RG_LEDGER_DELIVERY_H

#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/str.h"

enum { DELIVERY_MAX = 65536, DELIVERY_CLASSES = 17 };

struct delivery;

/* An answer that has arrived. */
struct delivery_note {
    char *session; /* own */
    uint64_t brief;
};

struct deliveries {
    struct map by_request; /* session, hash, and maybe key -> struct delivery_chain */
    struct map by_brief;   /* hash of session, body and call -> the one undelivered call */
    struct map by_session; /* id -> struct delivery_owner */

    /* The sessions that have 2^i undelivered calls or more, up to twice as many; those that came
     * to have so many first are first. */
    struct list_head classes[DELIVERY_CLASSES];
    size_t n;
    struct buf notes; /* arrived answers that are not noted in a journal yet: struct noted */
    bool as_records;  /* in a fleet: notes are records of their sessions */

    struct {
        struct delivery_note *at;
        size_t n, cap;
    } arrived; /* as_records: not recorded yet */
};

/* The answer of this call is committed and not (yet) delivered. key: its Idempotency-Key, or
 * absent. */
void deliveries_open(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                     struct str key, uint64_t call);

/* Closes the delivery: the answer has arrived. */
void deliveries_close(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                      uint64_t call);

/* The undelivered call behind `at` (NULL: the first) that a request with this body and key may
 * mean; NULL: no more. With a key those with the same one, then those without any; with none all.
 * Of each kind the oldest comes first. */
const struct delivery *deliveries_missing(const struct deliveries *d, struct str session_id,
                                          const uint64_t hash[2], struct str key,
                                          const struct delivery *at);

/* The number of the call in its session. */
uint64_t delivery_call(const struct delivery *v);

/* Takes what was delivered to sessions of a worker index (any: UINT32_MAX) since the last call, as
 * the payload of a journal note; empty if nothing was. After a crash these notes say which replayed
 * commits had reached their clients. */
void deliveries_write_note(struct deliveries *d, uint32_t index, struct buf *note);

/* as_records: takes the next note, whose id the caller frees. False: no more. */
bool deliveries_take_note(struct deliveries *d, struct delivery_note *ret);

/* A replayed note. Notes come behind the commits they speak of. */
void deliveries_replay(struct deliveries *d, struct str note);

void deliveries_done(struct deliveries *d);

#endif
