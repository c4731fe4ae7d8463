/*
 * struct second_copy: records of a process in the store of a fleet (common/fleet/fleet_store.h).
 *
 * Record n of a session's log is the session's n-th needed record. Fragments of a call are in the
 * log only if a commit names them, right before that commit. So numbers in the log are the same
 * after a restart; those of the journal are not. A fragment that is left out has no number. Of an
 * ended session the log may have only the end.
 *
 * A record is first in the journal, then in the store; then the client gets its answer. Rules:
 *   done      An answer waits until the log has all records of its session so far. A failed wait
 *             does not change the session: a repeated request gets the recorded answer, which waits
 *             again.
 *   short     The store has lost a tail: the session's records from there on are sent again, from
 *             the journal. Refusals of earlier appends are void.
 *   conflict  Two owners have written. The session is lost: all its requests fail with 410.
 *   fenced    Nothing is sent until the keeper has decided. It sets a new epoch if the store has
 *             forgotten the claim, or none if another node is the owner; then all waits fail. If it
 *             renews the same epoch after the refusal, the server that refused was replaced: the
 *             worker connects again and compares lengths.
 *   lost      The connection was lost, and whether pending calls were done is unknown. The lengths
 *             of all logs are compared before anything else is sent. Each log continues at its end.
 *   full      The store is full. Waits fail; the records are sent again after a pause.
 *   new       After a new epoch or a restart, lengths are compared, and the last common record is
 *             sent again, which shows whether its bytes are the same.
 *   unread    A log is longer than the journal: the place was adopted, or the journal has lost its
 *             tail in a power cut. `add_back` gets each record that the journal lacks. Before it
 *             has all of them, nothing is recorded to the session. Sessions that requests wait for
 *             are read first, then all others. If the journal differs because it is damaged, the
 *             whole log is read. If the store had forgotten the place, both were answered, and the
 *             session is lost, too. If a log does not fit, its session is lost.
 *   ended     After the session's end is in the store, earlier records are deleted there. The log
 *             is deleted before the journal forgets the session, because a log without a session
 *             would be read back.
 *   doubt     The place was claimed in doubt (fleet_store.h). `mark` gets each of its sessions
 *             before requests do. The place is whole after all marks are in the store.
 *   replaced  The keeper has renewed the place at another server than the one that was compared:
 *             the lengths are compared again.
 *
 * A place is whole when the store has all of its records under its epoch. Answers also wait until
 * place_table_may_answer is true.
 */
#ifndef RG_FLEET_SECOND_COPY_H
#define RG_FLEET_SECOND_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct journal;
struct loop;
struct place_table;
struct second_copy;
struct store;

/* The end of a wait. fn: the store has the records. failed: it does not confirm them; the records
 * are kept. */
struct copy_done {
    void (*fn)(void *ctx);
    void *ctx;
    void (*failed)(void *ctx, const struct err *e);
};

enum copy_kind { COPY_PLAIN, COPY_FRAGMENT, COPY_COMMIT };

/* What a record is to its log. */
struct copy_role {
    enum copy_kind kind;
    uint64_t call;    /* fragment, commit: number of its call */
    bool first;       /* fragment: earlier ones of the call are void */
    bool named;       /* commit: it names the fragments of its call */
    bool left_out;    /* fragment: only the journal has it */
    uint32_t version; /* of its form */
};

struct second_copy_options {
    struct loop *loop;
    struct store *store;       /* owned by the copy */
    struct place_table *table; /* table with the epochs of the places */
    unsigned lease_ms;         /* time after which another node may own a place */
    unsigned outage_ms;        /* longest wait for the store */
    size_t reads;              /* logs that are read at a time, of up to 1 MiB each; 0: a few */
    /* Reads what the record is. Without `has_fragments` a commit may count as plain. NULL: all
     * records are plain. */
    struct copy_role (*read_role)(struct str record, bool has_fragments);
    /* Adds a record that only the store has to journal and memory, and calls second_copy_add.
     * `alone`: earlier records were dropped, because this one ends the session. Returns -1 with
     * ERR_STORAGE_FULL or ERR_STORAGE_FAILED if the journal cannot store it now: it is read again
     * after a pause. Returns -1 with another error if it does not fit. */
    int (*add_back)(void *ctx, uint32_t place, struct str session, struct str record, bool alone,
                    struct err *e);
    /* Removes a session from journal and memory, because its records differ from the store's, which
     * has more. Then add_back gets all of its records. Returns -1 if the session is in use. */
    int (*begin_anew)(void *ctx, uint32_t place, struct str session);
    /* Called when the session was read; with e: when it cannot be read now, because it is lost, the
     * journal cannot store it, or the place has another owner. */
    void (*on_read_back)(void *ctx, uint32_t place, struct str session, const struct err *e);
    /* Reports whether a log that was not added is needed; else the store deletes it. It has come
     * back, because a failover has forgotten its deletion. NULL: all are needed. */
    bool (*is_needed)(void *ctx, uint32_t place, struct str session);
    /* Records that the session may lack records since this time, until the claim with this epoch.
     * Returns 1; 0 if it needs no mark; -1 to be called again after a pause. NULL: no session needs
     * one. */
    int (*mark)(void *ctx, struct str session, uint64_t since_ms, uint64_t epoch);
    /* Called after each append that was done, with its time. NULL: never. */
    void (*on_appended)(void *ctx, uint64_t us);
    /* Closes the connection to the store and connects again. */
    void (*reconnect)(void *ctx, const char *why);
    void *ctx;
};

/* Functions of struct file_copy, which has other logs of the same places in the store. */
struct copy_hooks {
    /* A comparison of lengths gets each log that the store has, between begin and end. take_log
     * returns false if the log is a session's. */
    void (*on_lengths_begin)(void *ctx, uint32_t place);
    bool (*take_log)(void *ctx, uint32_t place, struct str id, uint64_t next);
    void (*on_lengths_end)(void *ctx, uint32_t place, uint64_t epoch);
    /* Reports whether records of the session may be sent now; else second_copy_resume follows. */
    bool (*may_send)(void *ctx, struct str session);
    /* Reports whether the store has all other logs of the place. */
    bool (*has_all)(void *ctx, uint32_t place);
    /* Begins to read what must be here before the session's records. Returns false if nothing must;
     * else second_copy_end_fetch follows, now or later. */
    bool (*fetch)(void *ctx, uint32_t place, struct str session);
};

/* Sets the hooks. Call it before second_copy_add_place. */
void second_copy_set_hooks(struct second_copy *c, const struct copy_hooks *hooks, void *ctx);

/* Sends the session's records again after may_send was false. */
void second_copy_resume(struct second_copy *c, struct str session);

/* Fails the session's waits, because the store has no memory for what its records wait for. */
void second_copy_fail_full(struct second_copy *c, struct str session);

/* Ends a fetch: the session's records are read now, or with e after a pause. */
void second_copy_end_fetch(struct second_copy *c, struct str session, const struct err *e);

/* Reports that the connection was lost, or that the store refused the epoch. */
void second_copy_lose(struct second_copy *c, uint32_t place, const char *why);
void second_copy_fence(struct second_copy *c, uint32_t place, uint64_t epoch);

struct second_copy *second_copy_new(const struct second_copy_options *o);

/* Frees the copy and the store. Drops waits without calling them. Accepts NULL. */
void second_copy_free(struct second_copy *c);

/* Begins to send records of this place. The journal must outlive the copy. */
void second_copy_add_place(struct second_copy *c, uint32_t place, struct journal *journal);

/* Reports whether requests of every owned place can be answered. */
bool second_copy_is_served(const struct second_copy *c);

/* Adds a record, which the journal has under this number. Called after an append and, before
 * second_copy_add_place, during a replay. */
void second_copy_add(struct second_copy *c, uint32_t place, struct str session, struct str record,
                     uint32_t number);

/* Forgets the records of the session that were added so far. Only before second_copy_add_place. */
void second_copy_forget_session(struct second_copy *c, struct str session);

/* Drops the fragments of a call that will not commit; they are never sent. */
void second_copy_release_call(struct second_copy *c, struct str session, uint64_t call);

/* Handles the end of a session: the journal has dropped all records but the last one
 * (journal_drop_earlier). */
void second_copy_end_session(struct second_copy *c, struct str session);

/* Reports whether the store has records of the session that the journal lacks. _fetch: reads
 * them next; on_read_back follows. _unread: returns the number of such sessions. */
bool second_copy_is_unread(const struct second_copy *c, struct str session);
bool second_copy_fetch(struct second_copy *c, struct str session);
size_t second_copy_unread(const struct second_copy *c);

/* Deletes the log of the session from the store. Returns true if the store has none. Returns false
 * if it is being deleted or is unread; call again later. The log of a lost session stays. */
bool second_copy_drop_session(struct second_copy *c, struct str session);

/* Returns -1 if nothing may be recorded to the session now: ERR_OWNER_CHANGED,
 * ERR_STORAGE_UNAVAILABLE (lengths are being compared, or it is unread) or ERR_SESSION_LOST.
 * Returns 0 before second_copy_add_place, because the worker records while it opens a place. */
int second_copy_check(const struct second_copy *c, uint32_t place, struct str session,
                      struct err *e);

/* Like second_copy_check, for a request, which may wait for an unread session. Returns -1 also if
 * another node may own the place by now. */
int second_copy_check_read(const struct second_copy *c, uint32_t place, struct str session,
                           struct err *e);

/* Returns -1 with ERR_SESSION_LOST if neither journal nor store has the session, and its place was
 * claimed although the store lacked records of it: nobody knows whether the session existed. */
int second_copy_check_known(const struct second_copy *c, uint32_t place, struct str session,
                            struct err *e);

/* Waits until the store has all present records of the session. Returns true if it has them.
 * Returns false if `done` is called later, after the journal, too, is durable (journal_await); if
 * the wait fails, done.failed is called. */
bool second_copy_await(struct second_copy *c, struct str session, struct copy_done done);

/* Cancels all waits of this ctx, except those that wait for the journal already. */
void second_copy_forget(struct second_copy *c, void *ctx);

/* Reports whether the place's answers may be sent, and the store has got back what it may have lost
 * before the last comparison. */
bool second_copy_is_level(const struct second_copy *c, uint32_t place);

/* Returns the number of records that the store lacks. A place of another node does not count:
 * nothing is sent for it. */
uint64_t second_copy_behind(const struct second_copy *c);

#endif
