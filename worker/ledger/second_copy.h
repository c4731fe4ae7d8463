/*
 * struct second_copy: a worker's records in the store of a fleet (common/fleet/fleet_store.h).
 *
 * The log of a session. Record n of a log is the session's n-th needed record. Fragments of a call
 * come right before the commit that names them, and others never. So numbers are the same after a
 * restart, which the numbers of the journal are not. The session's end may be all that is left.
 *
 * Rules. The journal has a record first, then the store, then the client its answer.
 *   done      No record is waited for alone: an answer waits until the log has all records that
 *             its session had. A wait that fails changes nothing of the session: a repeated request
 *             gets the recorded answer, which waits again.
 *   short     The store has lost a tail. The session is sent again from there, from the journal.
 *             Refusals of calls that were made before are void.
 *   conflict  Two owners have written. The session is lost: 410 for all that comes.
 *   fenced    Nothing is sent until the keeper has decided: a new epoch (the store forgot the
 *             claim), or none (another node is the owner). Then all waits fail. If the keeper
 *             renews the same epoch after the refusal, a server refused that was replaced: the
 *             worker connects anew and compares lengths.
 *   lost      The outcome of calls without an answer is unknown. The lengths of all logs are
 *             compared before anything else is sent, and each log goes on at its end.
 *   full      Waits fail; the session is sent again after a pause.
 *   a new epoch, or a new process: the lengths are compared, and the last common record is sent
 *             again, which shows whether its bytes are the same.
 *   unread    A log is longer than the journal: the place was adopted, or a power cut took the
 *             journal's tail. `add_back` gets each record that the journal lacks. Nothing is
 *             recorded to the session before it has all. Sessions that are asked for come first,
 *             the others follow without being asked. A journal that differs (it is damaged) is read
 *             anew. A log that does not fit loses its session.
 *   an end    A log is trimmed to its last record after that one is in the store. It is deleted
 *             before the journal forgets the session, since a log without a session is read back.
 * A place is whole when the store has all records of it under its epoch. Answers also wait until
 * place_table_may_answer.
 */
#ifndef RG_LEDGER_SECOND_COPY_H
#define RG_LEDGER_SECOND_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/ledger/ledger.h"

struct journal;
struct loop;
struct place_table;
struct second_copy;
struct store;

struct second_copy_options {
    struct loop *loop;
    struct store *store;       /* becomes the copy's */
    struct place_table *table; /* whose epochs count */
    unsigned lease_ms;         /* after which another node may own a place */
    unsigned outage_ms;        /* longest wait */
    /* Puts a record that only the store has into journal and memory, and reports it with
     * second_copy_add. `alone`: earlier ones were dropped, since it ends the session. -1 with
     * ERR_STORAGE_FULL or ERR_STORAGE_FAILED: the journal does not take it now, and it is read
     * again after a pause. -1 with another error: it does not fit. */
    int (*add_back)(void *ctx, uint32_t place, struct str session, struct str record, bool alone,
                    struct err *e);
    /* Drops what journal and memory have of a session whose records differ from the store's, which
     * has more. All of its records follow. -1: the session is in use. */
    int (*begin_anew)(void *ctx, uint32_t place, struct str session);
    /* The session is unread no longer; e: it is lost, or the place has another owner. */
    void (*on_read_back)(void *ctx, uint32_t place, struct str session, const struct err *e);
    /* Connects to the store anew. */
    void (*reconnect)(void *ctx, const char *why);
    void *ctx;
};

struct second_copy *second_copy_new(const struct second_copy_options *o);

/* Frees the store, too. Waits are dropped. NULL is accepted. */
void second_copy_free(struct second_copy *c);

/* From now on records of this place are sent. The journal outlives the copy. */
void second_copy_add_place(struct second_copy *c, uint32_t place, struct journal *journal);

/* Whether requests of every owned place are answered. */
bool second_copy_is_served(const struct second_copy *c);

/* The journal has the record as number `number` of its session: after an append, and at a replay,
 * before second_copy_add_place. */
void second_copy_add(struct second_copy *c, uint32_t place, struct str session, struct str record,
                     uint32_t number);

/* What was added of the session so far does not count. Only before second_copy_add_place. */
void second_copy_forget_session(struct second_copy *c, struct str session);

/* A call will not commit: its fragments are never sent. */
void second_copy_release_call(struct second_copy *c, struct str session, uint64_t call);

/* The journal has dropped all but the session's last record (journal_drop_earlier). */
void second_copy_end_session(struct second_copy *c, struct str session);

/* Whether the store has records of the session that the journal lacks. _fetch: they are read
 * next, and on_read_back follows. _unread: number of such sessions. */
bool second_copy_is_unread(const struct second_copy *c, struct str session);
bool second_copy_fetch(struct second_copy *c, struct str session);
size_t second_copy_unread(const struct second_copy *c);

/* True: the store has no log of the session. False: it is being deleted, or is unread; ask again
 * later. The log of a lost session stays. */
bool second_copy_drop_session(struct second_copy *c, struct str session);

/* -1 if nothing of the session may be recorded now: ERR_OWNER_CHANGED, ERR_STORAGE_UNAVAILABLE
 * (lengths are being compared, or it is unread) or ERR_SESSION_LOST. Before second_copy_add_place
 * the worker opens, and records. */
int second_copy_check(const struct second_copy *c, uint32_t place, struct str session,
                      struct err *e);

/* The same for a request, which may wait for an unread session. -1 also if another node may own the
 * place by now. */
int second_copy_check_read(const struct second_copy *c, uint32_t place, struct str session,
                           struct err *e);

/* True: the store has all that the session has now. False: once it has that, the wait goes on for
 * the journal (journal_await), which ends it; or done.failed is called. */
bool second_copy_await(struct second_copy *c, struct str session, struct ledger_done done);

/* Takes back all waits with this ctx, but for those that the journal has. */
void second_copy_forget(struct second_copy *c, void *ctx);

/* Records that the store lacks. */
uint64_t second_copy_behind(const struct second_copy *c);

#endif
