/*
 * struct desk: the shared state of the dispatcher's files: the book, its journal, the server, the
 * connections to the workers, and pending work.
 *
 *   api.c            routes of requests and the scopes of their keys
 *   groups.c         submit, show, list, wait, cancel
 *   queues.c         counts, next, acknowledge, return, cancel
 *   claims.c         an executor claims attempts: their sessions are made
 *   renewals.c       an executor renews the leases of its attempts
 *   back_pressure.c  whether attempts may begin
 *   running.c        the list of running attempts
 *   ends.c           an attempt ends: its session is completed and finalized, or aborted
 *   untold_ends.c    ends that no executor reports
 *   deaths.c         processes of the gateway that died while an attempt ran
 *   losses.c         sessions that a fleet has lost
 *   due.c            leases, deadlines, deliveries: work that the clock starts
 *   desk_keys.c      keys of requests
 *   desk_journal.c   every change: appended to the journal, applied to the book, announced
 *   desk_copy.c      in a fleet: the journal's second copy in the store
 *   desk_metrics.c   metrics
 *   desk_events.c    GET /events
 *   durable.c        answers that wait until their records are durable
 *   closings.c       sessions that must be aborted, deleted or sent to sinks, until that is done
 *   tellings.c       entries of settled groups for the Redis sinks
 *   polls.c          requests that wait for a change of the book
 *   waits.c          why groups wait
 *   workers.c        HTTP to the workers
 *   node_choice.c    in a fleet: which node makes a session
 *   dispatcher.c     start, clock, end
 *
 * The order of a change is: journal_append, book_apply, then, when the record is as durable as
 * --durability promises (in a fleet also in the store), the answer (desk_write) and the orders to
 * workers (closings, tellings).
 */
#ifndef RG_DISPATCHER_DESK_H
#define RG_DISPATCHER_DESK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/limits.h"
#include "common/os/loop.h"
#include "dispatcher/book.h"

struct desk_copy;
struct http_fetch;
struct journal;
struct poll;
struct server;
struct workers;
struct exchange;
struct feed;
struct heritage;
struct ids;
struct json;
struct json_out;
struct keys;
struct loop;
struct waits_now;

struct desk {
    const struct heritage *heritage;
    struct loop *loop;
    struct server *server;
    struct keys *keys;
    struct ids *ids;
    struct journal *journal;
    struct desk_copy *copy; /* NULL: no fleet */
    struct workers *workers;
    struct book book;
    struct feed *events; /* followers of /events; made by desk_events_init */
    struct list_head polls;
    struct loop_task wake;     /* linked: the polls must be checked */
    struct loop_task compact;  /* linked: the journal's next compaction step */
    struct list_head closings; /* requests that end or deliver sessions */
    struct list_head tellings; /* entries of settled groups for the sinks */
    struct map claiming;       /* attempts whose session is being made, by id */
    struct map owed;           /* struct debt by group id: groups that owe something to sinks */
    uint64_t refused_until_ms; /* monotonic: until then the gateway accepts no new sessions */
    uint64_t refused_at_ms;    /* monotonic: when a session was last refused */
    char refused_why[256];     /* reason of the last refusal, for `blocked` */
    char unknown_queue[GROUP_ID_MAX + 1]; /* last queue without a group that was asked for */
    uint64_t unknown_queue_ms;            /* monotonic: when unknown_queue was logged */
    uint64_t leases_ms; /* monotonic: time of the last check of leases, or of the start */
    bool draining, disk_low;

    struct {
        struct http_fetch *call;
        struct loop_timer again;
        char cursor[192]; /* in a fleet it begins with the name of a node */
        /* a pass is running, or will after a pause (pauses); it has not reached all workers
         * (partial), not even all that have an owner (missed); a further one is wanted (anew) */
        bool runs, pauses, partial, missed, anew;
        uint64_t pause_ms; /* pause before the next pass */
        int fewer;         /* how often its pages were reduced */
        unsigned failures; /* number of failed pages in a row */
        char why[160];     /* reason of the last failure */
    } sweep;               /* search for sessions without an attempt (closings.c) */

    uint64_t shown_runners; /* bits: label values that the metrics have shown */

    struct {
        struct list_head waiting, asking; /* struct session_search */
        unsigned n_asking;
        uint32_t place_changes; /* of the table that the attempts were last compared with */
    } losses;                   /* search for sessions that the fleet has lost (losses.c) */

    bool swept;    /* the first pass of the sweep is over */
    unsigned busy; /* number of claims and ends that are pending */
    struct loop_timer tick, drain;
    uint64_t drain_until_ms;
};

/* One request while its handler runs. */
struct desk_request {
    struct desk *desk;
    struct exchange *x;
    struct arena arena;      /* memory of the handler */
    struct str executor;     /* name in an executor's key, or absent */
    struct str name;         /* {id} or {queue} of the path, or absent */
    const struct json *body; /* NULL: the request has no body */
};

/* --- writing (desk_journal.c) --- */

/* The end of a wait for records. */
struct desk_done {
    void (*fn)(void *ctx);
    void *ctx;
    /* In a fleet: the store has not confirmed the records, which are kept, or a different node has
     * the dispatcher. NULL: the wait goes on. */
    void (*failed)(void *ctx, const struct err *e);
};

/* Appends the record and applies it. Returns 1 if the record is already as durable as promised;
 * `done` is not called then. Returns 0 if `done` (may be NULL) will be called from the loop.
 * Returns -1 if nothing has changed: ERR_STORAGE_FULL, ERR_IO, or in a fleet the errors of
 * second_copy_check. */
int desk_write(struct desk *d, struct str group, struct str record, const struct desk_done *done,
               struct err *e);

/* Waits for all records so far. Returns 1 if they are durable, or 0 if `done` will be called. */
int desk_await(struct desk *d, const struct desk_done *done);

/* Cancels the calls of waits with this ctx. */
void desk_forget(struct desk *d, void *ctx);

/* Writes a group's first record. */
void desk_record_group(struct desk *d, struct str group, struct str submission, struct buf *out);

/* Reports whether the group's records are needed. */
bool desk_needs_group(const struct desk *d, struct str group);

/* Applies a record that is read at the start; ctx is the desk. Logs one that does not fit. Returns
 * -1 with e if it must not be dropped. */
int desk_apply_replayed(void *ctx, struct str id, struct str payload, struct err *e);

/* Writes a member "unreachable" with the nodes that have dispatchers of their own. */
void desk_put_unreachable(const struct desk *d, struct json_out *o);

/* Records that the group owes something to the sinks. Its records stay in the journal, even if it
 * is acknowledged, until desk_paid was called as often as desk_owe. */
void desk_owe(struct desk *d, struct str group);
void desk_paid(struct desk *d, struct str group);

/* Opens the journal and fills the book from it. The book has no events yet. Returns -1 with
 * ERR_CONFIG, ERR_IO, or an error about a record that must not be dropped. */
int desk_open_journal(struct desk *d, struct err *e);

/* Maintains the journal; called regularly. Sets disk_low, drops dead records, and starts a
 * compaction, which does one step in every loop iteration. */
void desk_maintain_journal(struct desk *d);

/* --- the second copy in the store of a fleet (desk_copy.c) --- */

/* struct desk_copy: the second copy of the journal (common/fleet/second_copy.h), under the place
 * FLEET_DISPATCHER. Each group has a log. Nothing of this exists without --fleet.
 *
 *   open     before the journal is opened
 *   replay   the journal's records are kept, then applied in order (book_replay.h)
 *   start    logs that the store has and the journal lacks are read and applied. Then on_read is
 *            called, once, and requests may be served
 *   close    ends all waits without a call, and closes the journal
 */

/* Makes d->copy; NULL without --fleet. Returns -1 with ERR_CONFIG. */
int desk_copy_open(struct desk *d, struct err *e);
void desk_copy_close(struct desk *d);

/* Adds a record of the journal, which has it as its next one. */
void desk_copy_replay(struct desk *d, struct str group, struct str record);

/* Applies the records that were added since the last call. Returns -1 with e if one must not be
 * dropped. */
int desk_copy_apply(struct desk *d, struct err *e);

void desk_copy_start(struct desk *d, void (*on_read)(struct desk *d));

/* Adds a record that was just appended to the journal. */
void desk_copy_add(struct desk *d, struct str group, struct str record);

/* Prepares the first record of a group. Returns whether the log already has an earlier group of the
 * id. */
bool desk_copy_begin_group(struct desk *d, struct str group);

/* Deletes the group's log. Returns true when the store has none; until then the journal keeps the
 * records. */
bool desk_copy_drop(struct desk *d, struct str group);

/* Waits until the store has the group's records so far; group absent: all records. The journal must
 * have them, too. Returns 1 if so, or 0 if `done` ends the wait later. */
int desk_copy_await(struct desk *d, struct str group, const struct desk_done *done);

/* Cancels the calls of waits with this ctx. */
void desk_copy_forget(struct desk *d, void *ctx);

/* Returns -1 if nothing may be recorded to the group now (second_copy_check). */
int desk_copy_check_write(const struct desk *d, struct str group, struct err *e);

/* Returns -1 if no request may be answered now, because a different node may have the dispatcher.
 */
int desk_copy_check_read(const struct desk *d, struct err *e);

/* Reports whether desk_copy_check_read fails; false without a fleet. */
bool desk_is_refusing(const struct desk *d);

/* Reports whether the store has all records, or this node is not its dispatcher any longer. */
bool desk_copy_is_sent(const struct desk *d);

/* --- keys (desk_keys.c) --- */

/* Reads the keys, at the start or after a reload. Returns -1 on error; the present keys are then
 * unchanged. */
int desk_open_keys(struct desk *d, struct err *e);
void desk_close_keys(struct desk *d);

/* --- the clock (due.c) --- */

enum { DESK_TICK_MS = 250 };

/* Ends attempts whose lease has run out; called every DESK_TICK_MS. All leases are extended by the
 * time for which the dispatcher was held, or refused requests because the fleet's store was away.
 */
void desk_check_leases(struct desk *d, uint64_t now_ms);

/* Handles passed deadlines, deliveries whose lease is over, and settled groups without a queue that
 * were not removed. Does nothing while requests are refused. */
void desk_check_groups(struct desk *d, uint64_t now_ms, uint64_t wall_ms);

/* --- metrics (desk_metrics.c) --- */

/* Count an attempt that has begun, an attempt that has ended, and a group that was settled. */
void desk_count_claim(struct desk *d, const struct attempt *a);
void desk_count_attempt(struct desk *d, const struct attempt *a);
void desk_count_settled(struct desk *d, const struct group *g);

/* Publishes the pending work by queue and runner. */
void desk_publish(struct desk *d);

/* --- answers (api.c) --- */

/* Sends the answer and ends the exchange. Remove a watch of the exchange's end before. */
void desk_json(struct exchange *x, int status, const struct buf *body);

/* Sends the error in OpenAI's form, with x-should-retry. */
void desk_error(struct exchange *x, const struct err *e);
void desk_empty(struct exchange *x, int status);

/* Sets the header Rollgate-Warning of the answer. Bytes other than printable ASCII become '?'. An
 * empty text sets nothing. */
void desk_warn(struct exchange *x, struct str text);

/* Returns a decoded query parameter; absent if the query does not have it. */
struct str desk_query(struct desk_request *r, const char *name);

/* Reads a number of seconds from the query, at most max_s. *ret_ms is in milliseconds. */
int desk_query_seconds(struct desk_request *r, const char *name, double max_s, uint64_t *ret_ms,
                       struct err *e);

/* The handlers, one for each route (common/proc/paths.def). Each answers its exchange, at once or
 * later.
 *
 * groups.c: submissions of trainers. Either all groups of one request are made, or none. Submitting
 * the same group again is not an error (200 instead of 201). A different group with an existing id
 * is an error. */
void groups_post(struct desk_request *r);
void groups_put(struct desk_request *r);
void groups_get(struct desk_request *r);
void groups_list(struct desk_request *r);
void groups_wait(struct desk_request *r);
void groups_cancel(struct desk_request *r);

/* Called when the group is about to leave the book. Requests that wait for a cancelled group get it
 * in its present state. */
void groups_removed(struct desk *d, const struct group *g);

/* queues.c: deliveries to trainers. A taken group is offered again if its lease ends before it is
 * acknowledged or returned. */
void queues_get(struct desk_request *r);
void queues_next(struct desk_request *r);
void queues_ack(struct desk_request *r);
void queues_return(struct desk_request *r);
void queues_cancel(struct desk_request *r);

/* claims.c, renewals.c, ends.c: an executor claims attempts for free slots, renews their leases,
 * and reports their ends. */
void attempts_claim(struct desk_request *r);
void attempts_renew(struct desk_request *r);
void attempts_end(struct desk_request *r);

/* desk_events.c: answers with the dispatcher's events. The answer ends when the client leaves, or
 * at a drain. */
void desk_events_get(struct desk_request *r);

/* running.c: the list of running attempts. */
void attempts_list(struct desk_request *r);

/* --- announcing events (desk_events.c) --- */

void desk_events_init(struct desk *d);

/* Ends the answers of all followers and frees the feed, if there is one. */
void desk_events_end(struct desk *d);
void desk_events_done(struct desk *d);

/* Announces a change of the group with this id, if it exists. Call it before and after its record
 * is applied. */
void desk_events_changed(struct desk *d, struct str group);

/* Announces a change of a runner only. */
void desk_events_runner(struct desk *d, const struct runner *r);

/* Handles a request of the server. */
void desk_handle(void *ctx, struct exchange *x);

/* --- polls --- */

/* A request that waits. `look` answers and returns true if it can. `over` answers when the time is
 * up or the dispatcher ends. The poll is freed after either. */
struct poll_kind {
    bool (*look)(struct poll *p);
    void (*over)(struct poll *p);
    void (*drop)(struct poll *p); /* frees what ctx owns; or NULL */
};

struct poll {
    struct desk *desk;
    struct exchange *x;
    const struct poll_kind *kind;
    void *ctx;
    struct loop_timer timer;
    struct list_item entry;
};

/* Starts a poll: calls `look` once, then waits at most wait_ms, less the time that the client has
 * waited at earlier owners. Takes ownership of the exchange. */
void poll_start(struct desk *d, struct exchange *x, const struct poll_kind *kind, void *ctx,
                uint64_t wait_ms);

/* Makes all polls check the book soon, because it has changed. */
void polls_wake(struct desk *d);

/* Answers all polls as if their time were up, because the dispatcher ends. */
void polls_end(struct desk *d);

/* --- claims, ends, closings --- */

/* back_pressure.c: reports whether no attempt of this queue may begin now, because its settled
 * groups are not taken. For book_next_rollout. */
bool claims_closed(void *desk, const struct queue *q);

/* Reports whether the breaker permits an attempt of the runner. A runner that only fails gets one
 * probe a minute. After true the caller must begin an attempt or call claims_probe_back. */
bool claims_runner_lets(struct desk *d, struct runner *r);

/* Returns a permission that was not used: the attempt did not begin, which does not mean that the
 * runner fails. A further attempt may begin at once. */
void claims_probe_back(struct runner *r);

/* Reports whether no attempt may begin, because the gateway or the dispatcher accepts no new
 * sessions, or a different node may have the dispatcher, whose sweep would miss them. */
bool claims_paused(struct desk *d);

/* Returns the facts that waits.h needs in addition to the book. */
struct waits_now desk_waits_now(struct desk *d);

/* Checks the workers once a second. If a worker cannot be reached, logs that, shows it on the
 * board, and tries again. Also logs runners that groups wait for and no executor offers. */
void desk_check_ways(struct desk *d, uint64_t now_ms);

/* Returns how long an attempt may run without a renewal by its executor (--attempt-lease).
 * desk_begin_lease starts that time now. */
uint64_t desk_lease_ms(const struct desk *d);
void desk_begin_lease(const struct desk *d, struct attempt *a);

/* Longest time in seconds that an executor's request may wait. Less than the timeout of every
 * proxy, and than OFFERED_MS in result.c. */
enum { EXECUTOR_WAIT_MAX_S = 55 };

/* Logs the end of an attempt. */
void ends_log(const struct attempt *a, enum outcome outcome, const struct result *r);

/* Ends an attempt that its executor does not have or no longer renews. The trainer gets `why`. */
void ends_lost(struct desk *d, struct attempt *a, const char *why, uint64_t at_ms);

/* Ends an attempt whose session is lost. Returns -1 if that cannot be recorded. */
int ends_session_lost(struct desk *d, struct attempt *a);

/* Ends an attempt that never began, because the gateway refuses its session for good. Its rollout
 * fails, with the reason `why`. */
void ends_refused(struct desk *d, struct attempt *a, const char *why);

/* deaths.c: returns which process of the gateway has died since the attempt was claimed; NULL: none
 * that its agent depends on. */
const char *desk_find_death(const struct desk *d, const struct attempt *a);

/* In a fleet: returns the epoch of the session's place if that has a new owner since the claim;
 * else 0. */
uint64_t desk_find_move(const struct desk *d, const struct attempt *a);

/* In a fleet: remembers the epoch of the session's place, after the attempt was claimed. */
void desk_note_epoch(const struct desk *d, struct attempt *a);

/* Starts a request about a session. ABORT: aborts it, or deletes it if it is finalized. FORGET:
 * deletes it. DELIVER: delivers it to the sinks, which also precedes a deletion. The request is
 * repeated until the worker confirms it. g: the session's group, which has the options of the
 * sinks' export; NULL (not for DELIVER): the sinks must not get the session. */
enum closing_kind { CLOSING_ABORT, CLOSING_FORGET, CLOSING_DELIVER };

void closing_start(struct desk *d, const char *session, enum closing_kind kind,
                   const struct group *g);
void closings_end(struct desk *d);

/* losses.c: in a fleet, asks the new owners of places that were lost whether they have the sessions
 * of running attempts, and those that trainers did not get yet. An attempt whose session is lost
 * ends, and a member counts no longer. losses_look is called regularly. losses_seek looks at one
 * group before its delivery, and reports whether its sessions are being sought. losses_record
 * records that the session of a member that counts is lost; -1: it cannot be recorded now. */
void losses_look(struct desk *d);
int losses_record(struct desk *d, const struct attempt *a);
bool losses_seek(struct desk *d, struct group *g);
void losses_end(struct desk *d);

/* tellings.c: telling_start sends the settled group's entry to the Redis sinks, if there are any.
 * tellings_resume does so for all groups of the book whose entry the sinks do not have yet. Call
 * tellings_removed when a group is about to leave the book. */
void telling_start(struct desk *d, const struct group *g);
void tellings_removed(struct desk *d, const struct group *removed);
void tellings_resume(struct desk *d);
void tellings_end(struct desk *d);

/* Finds sessions that were made for unknown attempts, and ends them. Such sessions are left by a
 * crash between their making and their record, by a lost answer, or by a removed group. Sets
 * desk->swept after the first pass. Passes repeat until one has reached all workers, in a fleet
 * with growing pauses. A call during a pass causes one more. */
void sweep_start(struct desk *d);
void sweep_end(struct desk *d);

#endif
