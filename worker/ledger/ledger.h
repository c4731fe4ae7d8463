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

struct copy_role;
struct deliveries;
struct fragments;
struct journal;
struct model;
struct residency;
struct second_copy;

struct ledger {
    struct residency *residency;
    struct deliveries *deliveries; /* committed answers that have not arrived (yet) */
    struct fragments *fragments;   /* fragments of the running calls */
    struct second_copy *copy;      /* the records in the fleet's store; NULL: no fleet */
    /* most bytes of one session's records; calls that would exceed it are refused; 0: no limit */
    uint64_t session_bytes;
    /* called after each change; NULL: no viewer */
    void (*changed)(void *ctx, struct str session_id);
    void *changed_ctx;
};

/* The function to call when a record is durable; fn may be NULL. In a fleet the record is durable
 * when the store has it, too. If the store does not confirm it in time, `failed` is called instead:
 * the record is kept, and a repeated request waits again. */
struct ledger_done {
    void (*fn)(void *ctx);
    void *ctx;
    void (*failed)(void *ctx, const struct err *e); /* set if fn is */
};

/* Appends the record to the journal and applies it. Then, possibly before this returns, calls
 * `done` when the record is as durable as --durability promises; ledger_forget cancels that.
 * Returns -1 if nothing was written or changed. */
int ledger_write(struct ledger *l, struct str session_id, struct str record,
                 struct ledger_done done, struct err *e);

/* Calls `done`, whose fn is set, when every record of the session is durable, possibly before this
 * returns. For answers that depend on records of other calls. */
void ledger_wait_durable(const struct ledger *l, struct str session_id, struct ledger_done done);

/* Checks `session_bytes`. Returns -1 with ERR_BUDGET, which names the limit, if the session's
 * records, including those of running calls, exceed it with `more` bytes. */
int ledger_room(const struct ledger *l, struct str session_id, uint64_t more, struct err *e);

/* Like ledger_write, for a record of a call. Checks ledger_room first. */
int ledger_write_call(struct ledger *l, struct str session_id, struct str record,
                      struct ledger_done done, struct err *e);

/* Frees the disk space that the journal keeps in reserve. For use after ERR_STORAGE_FULL, before a
 * record that frees space is written again. Returns false if there is no reserve. */
bool ledger_free_reserve(struct ledger *l, struct str session_id);

/* Checks, after the replay of all records (origins.c), for sessions that a different model made.
 * Returns -1 with ERR_CONFIG if open ones have a different tokenizer. With keep_foreign, these
 * remain, for export only. Changes nothing. */
int ledger_check_origins(const struct ledger *l, const struct model *m, bool keep_foreign,
                         struct err *e);

/* Writes the deliveries since the last call to the journal; called from time to time, and at the
 * end. For a successor all other answers are undelivered: a repeated request gets the recorded
 * answer. */
void ledger_write_deliveries(struct ledger *l);

/* Remembers that the answer of this call is committed and not delivered yet (delivery.h). */
void ledger_open_delivery(struct ledger *l, struct str session_id, const uint64_t hash[2],
                          struct str key, uint64_t call);

/* Removes what ledger_open_delivery remembered: the whole answer has arrived. */
void ledger_close_delivery(struct ledger *l, struct str session_id, const uint64_t hash[2],
                           uint64_t call);

/* Handles a replayed record, which may open or close a delivery. */
void ledger_replay_delivery(struct ledger *l, struct str record);

/* Releases the fragments of a call that will not commit, because it has failed or was abandoned.
 * Does nothing if it has none. */
void ledger_release_call(struct ledger *l, struct str session_id, uint64_t call);

/* Drops all records of an ended session except its last one, here and in the fleet's store. */
void ledger_end_session(struct ledger *l, struct str session_id);

/* Deletes the log of a session that is not needed any longer from the fleet's store. Returns false
 * if the store still has it; call again later. */
bool ledger_drop_session(struct ledger *l, struct str session_id);

/* Reads what a session's record is to its log in the fleet's store (second_copy_options). */
struct copy_role ledger_read_role(struct str record, bool has_fragments);

/* Counts a replayed record for the fleet's store, whether or not it applies. The journal of place
 * `index` has it under this number. ledger_skip_replayed: the session begins with the present
 * record, so those before it do not count. Only in a fleet. */
void ledger_add_replayed(struct ledger *l, uint32_t index, struct str session_id, struct str record,
                         uint32_t number);
void ledger_skip_replayed(struct ledger *l, struct journal *j, struct str session_id);

/* Removes a session from journal and memory, because all of its records will be read again from the
 * fleet's store. Returns -1 if it is in use. */
int ledger_begin_anew(struct ledger *l, struct str session_id);

/* Journals and applies a record that only the fleet's store has. Like a replay, it makes no
 * content. `alone`: earlier records were dropped, so this one must be the session's end. Returns -1
 * with ERR_STORAGE_FULL or ERR_STORAGE_FAILED if the journal cannot store it, -1 with another error
 * if it does not fit. */
int ledger_add_back(struct ledger *l, struct str session_id, struct str record, bool alone,
                    struct err *e);

/* Records that the session may lack records since this time, until the claim with this epoch, which
 * is a time in ms. Returns 1; 0 if it has ended or has the mark; -1 if it cannot be written. */
int ledger_mark_doubt(struct ledger *l, struct str session_id, uint64_t since_ms, uint64_t epoch);

/* Reports whether the fleet's store has records of the session that are not here yet. */
bool ledger_is_unread(const struct ledger *l, struct str session_id);

/* Returns -1 with ERR_STORAGE_UNAVAILABLE if there are such sessions. */
int ledger_check_all_read(const struct ledger *l, struct err *e);

/* Returns -1 if requests of the session may not be answered now (second_copy_check_read). */
int ledger_check_owner(const struct ledger *l, struct str session_id, struct err *e);

/* Returns -1 with ERR_SESSION_LOST if the session is unknown and was perhaps lost
 * (second_copy_check_known). */
int ledger_check_known(const struct ledger *l, struct str session_id, struct err *e);

/* Cancels the pending `done` calls of this ctx. */
void ledger_forget(struct ledger *l, void *ctx);

#endif
