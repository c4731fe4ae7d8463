/*
 * struct deliveries: the committed calls whose answers have not arrived whole, by session and body
 * hash, so that a repeated request gets the recorded answer instead of a second sample. Each call
 * is kept separately: of two deliberate samples of one prompt, one may arrive and the other not. At
 * most DELIVERY_MAX are kept. Beyond that one is forgotten: the oldest of a session that has more
 * than half as many as any other. No function takes longer because there are many.
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

struct deliveries {
    struct map by_request; /* session, hash, and maybe key -> struct delivery_chain */
    struct map by_brief;   /* brief -> struct delivery */
    struct map by_session; /* id -> struct delivery_owner */

    /* Sessions with 2^i to 2^(i+1)-1 undelivered calls, in the order in which they reached that
     * number. */
    struct list_head classes[DELIVERY_CLASSES];
    size_t n;
    struct buf notes; /* struct noted: arrived answers that no journal has yet */
    bool as_records;  /* in a fleet: notes are records of their sessions */
    /* as_records: id -> struct delivery_note, of sessions with arrived answers that no record has
     */
    struct map arrived;
};

/* Remembers that the answer of this call is committed and not delivered yet. key: its
 * Idempotency-Key, or absent. */
void deliveries_open(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                     struct str key, uint64_t call);

/* Closes the delivery: the answer has arrived. */
void deliveries_close(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                      uint64_t call);

/* Returns the undelivered call after `at` (NULL: the first) that a request with this body and key
 * may mean; NULL: there are no more. With a key these are the calls with the same key, then those
 * without a key; without a key all calls. Each group begins with its oldest call. */
const struct delivery *deliveries_missing(const struct deliveries *d, struct str session_id,
                                          const uint64_t hash[2], struct str key,
                                          const struct delivery *at);

/* Returns the number of the call in its session. */
uint64_t delivery_call(const struct delivery *v);

/* Appends the payload of a journal note: the answers that have arrived since the last call, of
 * sessions of this worker index (UINT32_MAX: of any). Appends nothing if there are none. After a
 * crash these notes show which replayed commits had reached their clients. */
void deliveries_write_note(struct deliveries *d, uint32_t index, struct buf *note);

/* as_records: calls fn with each session that has arrived answers, and with the payload of its
 * note; then forgets these answers. fn (or NULL) must not change the
 * deliveries. */
typedef void (*delivery_note_fn)(void *ctx, struct str session_id, struct str note);
void deliveries_take_notes(struct deliveries *d, delivery_note_fn fn, void *ctx);

/* Applies a replayed note. A note follows the commits that it names. */
void deliveries_replay(struct deliveries *d, struct str note);

void deliveries_done(struct deliveries *d);

#endif
