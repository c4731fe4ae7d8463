/*
 * The one way by which lasting change gets into the sessions: record, journal, apply, in this
 * order. A record that the journal refused is not applied. With the durability `power` a record is
 * applied before it is on the disk; a caller that needs it on disk waits for `done`.
 */
#ifndef RG_LEDGER_LEDGER_H
#define RG_LEDGER_LEDGER_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct deliveries;
struct fragments;
struct journal;
struct model;
struct residency;
struct second_copy;

struct ledger {
    struct residency *residency;
    struct deliveries *deliveries; /* committed answers that did not arrive (yet) */
    struct fragments *fragments;   /* fragments of the calls that run */
    struct second_copy *copy;      /* in the fleet's store; NULL: no fleet */
    uint64_t session_bytes; /* limit of one session's records, beyond which its calls add none; 0:
                               none */
    void (*changed)(void *ctx, struct str session_id); /* after each change; NULL: no viewer */
    void *changed_ctx;
};

/* The function to call when a record is durable; fn may be NULL. In a fleet the record is durable
 * when the store has it, too. If that cannot be waited for, `failed` is called instead: the record
 * is kept, and a repeated request waits again. */
struct ledger_done {
    void (*fn)(void *ctx);
    void *ctx;
    void (*failed)(void *ctx, const struct err *e); /* set if fn is */
};

/* Appends the record to the journal and applies it. `done` is called once it is as durable as
 * --durability promises, after the record was applied, maybe before this returns; ledger_forget
 * takes that back. -1: nothing was written or changed. */
int ledger_write(struct ledger *l, struct str session_id, struct str record,
                 struct ledger_done done, struct err *e);

/* Calls `done`, whose fn is set, when every record of the session is durable, possibly before this
 * returns. For answers that depend on records of other calls. */
void ledger_wait_durable(const struct ledger *l, struct str session_id, struct ledger_done done);

/* -1, ERR_BUDGET with the limit named: the session's records, those of calls that run among them,
 * would take more than `session_bytes` with so many more. */
int ledger_room(const struct ledger *l, struct str session_id, uint64_t more, struct err *e);

/* ledger_write of a record that a call adds, if there is room for it. */
int ledger_write_call(struct ledger *l, struct str session_id, struct str record,
                      struct ledger_done done, struct err *e);

/* After ERR_STORAGE_FULL, before a record that makes room is written once more: the journal gives
 * the disk what it keeps for that. False: it has given it. */
bool ledger_free_reserve(struct ledger *l, struct str session_id);

/* Decides, after the replay of all records (origins.c), about sessions that another model made.
 * With keep_foreign, those of another tokenizer remain, for export only. Otherwise open ones are an
 * error (ERR_CONFIG). Changes nothing. */
int ledger_check_origins(const struct ledger *l, const struct model *m, bool keep_foreign,
                         struct err *e);

/* Records for sessions of an older program, without an origin, that this model made them. Skips, in
 * a fleet, those of a place that is not served yet: the next start adopts them. */
int ledger_adopt_sessions(struct ledger *l, struct err *e);

/* Puts what was delivered meanwhile into the journal; once in a while, and at the end. A successor
 * takes what is not there for not delivered: a repeated request gets the answer there is. */
void ledger_write_deliveries(struct ledger *l);

/* The answer of this call is committed and not (yet) delivered (delivery.h). */
void ledger_open_delivery(struct ledger *l, struct str session_id, const uint64_t hash[2],
                          struct str key, uint64_t call);

/* The record is replayed: it may open or close a delivery. */
void ledger_replay_delivery(struct ledger *l, struct str record);

/* Releases the fragments of a call that has failed or was abandoned: its commit will not come. A
 * call without fragments is no error. */
void ledger_release_call(struct ledger *l, struct str session_id, uint64_t call);

/* The session is over: its last record is all that is needed, here and in the fleet's store. */
void ledger_end_session(struct ledger *l, struct str session_id);

/* The session is not needed any more. False: the fleet's store still has its log; ask again later.
 */
bool ledger_drop_session(struct ledger *l, struct str session_id);

/* The journal of place `index` has the record as that number of its session, and is replayed. The
 * fleet's store counts it whether or not it applies. Only in a fleet. ledger_skip_replayed: those
 * before it do not count, since the session begins with this one. */
void ledger_add_replayed(struct ledger *l, uint32_t index, struct str session_id, struct str record,
                         uint32_t number);
void ledger_skip_replayed(struct ledger *l, struct journal *j, struct str session_id);

/* The session's records come anew from the fleet's store, from the first one on: journal and memory
 * forget it. -1: it is in use. */
int ledger_begin_anew(struct ledger *l, struct str session_id);

/* Journals and applies a record that only the fleet's store has, as a replay does: no content is
 * made. `alone`: earlier ones were dropped, so it must be the session's end. Returns -1 with
 * ERR_STORAGE_FULL or ERR_STORAGE_FAILED if the journal does not take it, else it does not fit. */
int ledger_add_back(struct ledger *l, struct str session_id, struct str record, bool alone,
                    struct err *e);

/* Whether the fleet's store has records of the session that are not here yet. */
bool ledger_is_unread(const struct ledger *l, struct str session_id);

/* -1, ERR_STORAGE_UNAVAILABLE, if there are such sessions. */
int ledger_check_all_read(const struct ledger *l, struct err *e);

/* -1 if requests of the session may not be answered now (second_copy.h). */
int ledger_check_owner(const struct ledger *l, struct str session_id, struct err *e);

/* Takes back what is pending for ctx. */
void ledger_forget(struct ledger *l, void *ctx);

#endif
