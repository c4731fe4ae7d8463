/*
 * struct desk: the shared state of the dispatcher's files: the book, its journal, the server, the
 * connections to the workers, and pending work.
 *
 *   api.c            which route a request has, whether its key allows it
 *   groups.c         submit, show, list, wait, cancel
 *   queues.c         counts, next, acknowledge, return, cancel
 *   claims.c         an executor takes attempts: their sessions are made
 *   renewals.c       an executor lives: the leases of its attempts go on
 *   back_pressure.c  whether attempts may begin
 *   running.c        what runs
 *   ends.c           an attempt ends: its session is completed and finalized, or aborted
 *   deaths.c         what of the gateway died under an attempt
 *   due.c            leases, deadlines, deliveries: what the clock says
 *   desk_keys.c      which keys are good
 *   desk_journal.c   every change: into the journal, the book, to who follows
 *   desk_metrics.c   metrics
 *   desk_events.c    GET /events
 *   durable.c        answers that wait until their records are durable
 *   closings.c       sessions that are to be aborted, deleted or given to sinks, until that is done
 *   tellings.c       settled groups on their way to the Redis sinks
 *   polls.c          requests that wait for a change of the book
 *   waits.c          why groups wait
 *   workers.c        HTTP to the workers
 *   dispatcher.c     start, clock, end
 *
 * The order of a change is: journal_append, book_apply, then, once the record is as durable as
 * --durability promises, the answer (desk_write) and the orders to workers (closings, tellings).
 */
#ifndef RG_DISPATCHER_DESK_H
#define RG_DISPATCHER_DESK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/limits.h"
#include "common/os/loop.h"
#include "dispatcher/book.h"

struct closing;
struct ending;
struct claim;
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
    struct workers *workers;
    struct book book;
    struct feed *events; /* followers of /events; made by desk_events_init */
    struct list_head polls;
    struct loop_task wake;     /* look at the polls again */
    struct loop_task compact;  /* the journal's next step */
    struct list_head closings; /* sessions to be ended */
    struct list_head tellings; /* settled groups for the sinks */
    struct map claiming;       /* attempts whose session is being made, by id */
    struct map owed;           /* groups of which sinks are to be given something, by id */
    uint64_t refused_until_ms; /* monotonic: the gateway takes no new sessions */
    uint64_t refused_at_ms;    /* monotonic: when a session was last refused */
    char refused_why[256];     /* the last refusal, for `blocked` */
    char unknown_queue[GROUP_ID_MAX + 1]; /* the last queue without a group that was asked for */
    uint64_t unknown_queue_ms;            /* monotonic: when that was logged */
    uint64_t leases_ms; /* monotonic: time of the last check of leases, or of the start */
    bool draining, disk_low;

    struct {
        struct http_fetch *call;
        struct loop_timer again;
        char cursor[96];
        bool runs, partial, anew; /* a pass; it missed a worker; another one is wanted */
        int fewer;                /* times that its pages were made shorter */
        unsigned failures;        /* pages in a row that did not come */
        char why[160];            /* the last failure */
    } sweep;                      /* closings.c: search for sessions without an attempt */

    uint64_t shown_runners; /* bits: values of the label that metrics have had figures of */

    bool swept;    /* the first pass is over */
    unsigned busy; /* claims and ends under way */
    struct loop_timer tick, drain;
    uint64_t drain_until_ms;
};

/* One request while its handler runs. */
struct desk_request {
    struct desk *desk;
    struct exchange *x;
    struct arena arena;      /* memory of the handler */
    struct str executor;     /* the name in an executor's key, or absent */
    struct str name;         /* the path's {id} or {queue}, or absent */
    const struct json *body; /* NULL: none */
};

/* --- writing (desk_journal.c) --- */

/* Appends the record and applies it. Returns 1 if the record is already as durable as promised;
 * `done` is never called then. Returns 0 if `done` (may be NULL) is called later, from the loop.
 * Returns -1 (ERR_STORAGE_FULL, ERR_IO) if nothing has changed. */
int desk_write(struct desk *d, struct str group, struct str record, void (*done)(void *ctx),
               void *ctx, struct err *e);

/* Sinks are owed something of the group: its records stay in the journal, though it be
 * acknowledged, until as many desk_paid have said that they have it. */
void desk_owe(struct desk *d, struct str group);
void desk_paid(struct desk *d, struct str group);

/* Opens the journal and fills the book from it; the book has no events yet. -1: ERR_CONFIG,
 * ERR_IO, or what a record says that is not ours to drop. */
int desk_open_journal(struct desk *d, struct err *e);

/* Maintains the journal; call it now and then. Sets disk_low, drops dead records, and starts a
 * compaction, which does one step in every turn of the loop. */
void desk_maintain_journal(struct desk *d);

/* --- keys (desk_keys.c) --- */

/* Reads the keys, or reads them again. -1: an earlier set remains unchanged. */
int desk_open_keys(struct desk *d, struct err *e);
void desk_close_keys(struct desk *d);

/* --- the clock (due.c) --- */

enum { DESK_TICK_MS = 250 };

/* Ends attempts whose lease has run out; every DESK_TICK_MS. When it is called late, since the
 * dispatcher was held, the leases go on for that much longer. */
void desk_check_leases(struct desk *d, uint64_t now_ms);

/* Handles passed deadlines, deliveries whose lease is over, and settled groups without a queue that
 * were not removed. */
void desk_check_groups(struct desk *d, uint64_t now_ms, uint64_t wall_ms);

/* --- metrics (desk_metrics.c) --- */

/* An attempt has begun; it has ended; a group was settled. */
void desk_count_claim(struct desk *d, const struct attempt *a);
void desk_count_attempt(struct desk *d, const struct attempt *a);
void desk_count_settled(struct desk *d, const struct group *g);

/* Shows what is under way, by queue and runner. */
void desk_publish(struct desk *d);

/* --- answers (api.c) --- */

/* Sends the answer and ends the exchange. A watch of its end must be removed first. */
void desk_json(struct exchange *x, int status, const struct buf *body);

/* The error in OpenAI's shape, with x-should-retry. */
void desk_error(struct exchange *x, const struct err *e);
void desk_empty(struct exchange *x, int status);

/* Sets the header Rollgate-Warning of the answer; other bytes than printable ASCII become '?'. An
 * empty text sets nothing. */
void desk_warn(struct exchange *x, struct str text);

/* A query parameter, decoded; absent when it is not there. */
struct str desk_query(struct desk_request *r, const char *name);

/* A number of seconds in the query, in milliseconds, at most max_s. */
int desk_query_seconds(struct desk_request *r, const char *name, double max_s, uint64_t *ret_ms,
                       struct err *e);

/* The handlers, one a route (common/proc/paths.def); each answers its exchange, at once or later.
 *
 * groups.c: what a trainer submits. Several groups of one request are made all or none; the same
 * group again is not an error (200 instead of 201), another one under its id is. */
void groups_post(struct desk_request *r);
void groups_put(struct desk_request *r);
void groups_get(struct desk_request *r);
void groups_list(struct desk_request *r);
void groups_wait(struct desk_request *r);
void groups_cancel(struct desk_request *r);

/* The group is about to leave the book: requests that wait for one that was cancelled get it as it
 * is. */
void groups_removed(struct desk *d, const struct group *g);

/* queues.c: what a trainer takes. A group that was taken comes back when its lease ends before it
 * is acknowledged or returned. */
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

/* desk_events.c: follows the dispatcher's events; the answer ends with the client or at a drain. */
void desk_events_get(struct desk_request *r);

/* running.c: the list of running attempts. */
void attempts_list(struct desk_request *r);

/* --- events (desk_events.c) --- */

void desk_events_init(struct desk *d);

/* Ends the answers of all followers. Frees the feed, which has ended or was never followed. */
void desk_events_end(struct desk *d);
void desk_events_done(struct desk *d);

/* Announces a change of the group with that id, if it exists. Call it before and after its record
 * is applied. */
void desk_events_changed(struct desk *d, struct str group);

/* Announces to followers of /events that the group, and with it its queue and runner, has changed
 * or will. Costs one comparison without followers. */
void desk_events_group(struct desk *d, const struct group *g);

/* Announces a change of a runner alone. */
void desk_events_runner(struct desk *d, const struct runner *r);

/* Handles a request of the server. */
void desk_handle(void *ctx, struct exchange *x);

/* --- polls --- */

/* A request that waits. `look` answers and returns true when it can; `over` answers when the time
 * is up or the dispatcher ends. The poll is freed after either. */
struct poll_kind {
    bool (*look)(struct poll *p);
    void (*over)(struct poll *p);
    void (*drop)(struct poll *p); /* frees what ctx holds; or NULL */
};

struct poll {
    struct desk *desk;
    struct exchange *x;
    const struct poll_kind *kind;
    void *ctx;
    struct loop_timer timer;
    struct list_item entry;
};

/* Looks once, then waits at most wait_ms. Takes the exchange over. */
void poll_start(struct desk *d, struct exchange *x, const struct poll_kind *kind, void *ctx,
                uint64_t wait_ms);

/* The book has changed: all look again, soon. */
void polls_wake(struct desk *d);

/* The dispatcher ends: all are answered as if their time were up. */
void polls_end(struct desk *d);

/* --- claims, ends, closings --- */

/* back_pressure.c: whether no attempt of this queue may begin now, as its settled groups are not
 * taken. For book_next_rollout. */
bool claims_closed(void *desk, const struct queue *q);

/* The breaker: whether an attempt of the runner may begin. One that only fails gets a probe a
 * minute: a true is to be followed by an attempt. */
bool claims_runner_lets(struct desk *d, struct runner *r);

/* The attempt that was let through did not begin, which says nothing of the runner: another one may
 * go at once. */
void claims_probe_back(struct runner *r);

/* Whether no attempt at all may begin: the gateway or the dispatcher takes no new sessions. */
bool claims_paused(struct desk *d);

/* Why no attempt begins on this gateway, for `blocked` and `waits`; NULL if attempts may begin. The
 * text is valid until the next call. */
const char *claims_pause_reason(struct desk *d);

/* Returns the facts that waits.h needs in addition to the book. */
struct waits_now desk_waits_now(struct desk *d);

/* Checks the workers once a second. Logs and shows on the board that a worker cannot be reached,
 * and tries it again. Logs runners that groups wait for and no executor offers. */
void desk_check_ways(struct desk *d, uint64_t now_ms);

/* How long an attempt is its executor's without a renewal (--attempt-lease); and from now on. */
uint64_t desk_lease_ms(const struct desk *d);
void desk_begin_lease(const struct desk *d, struct attempt *a);

/* Seconds that an executor's request may wait: well below every proxy's patience, and OFFERED_MS
 * in result.c. */
enum { EXECUTOR_WAIT_MAX_S = 55 };

/* Ends an attempt that its executor does not have or no longer renews. The trainer sees `why`. */
void ends_lost(struct desk *d, struct attempt *a, const char *why, uint64_t at_ms);

/* Ends an attempt that never began, since the gateway refuses its session for good: its rollout has
 * failed, for the reason `why`. */
void ends_refused(struct desk *d, struct attempt *a, const char *why);

/* deaths.c: what of the gateway has died since the attempt was claimed; NULL: nothing that its
 * agent depends on. */
const char *desk_find_death(const struct desk *d, const struct attempt *a);

/* Aborts the session, and deletes it if it was finalized; or deletes it; or delivers it to the
 * sinks, which also precedes a deletion. The request is repeated until the worker confirms it. g:
 * the session's group, which has the options of the sinks' export; NULL (not for DELIVER): the
 * sinks must not get the session. */
enum closing_kind { CLOSING_ABORT, CLOSING_FORGET, CLOSING_DELIVER };

void closing_start(struct desk *d, const char *session, enum closing_kind kind,
                   const struct group *g);
void closings_end(struct desk *d);

/* tellings.c: gives the settled group's entry to the Redis sinks, if there are any; the other does
 * so for all groups of the book that they do not have yet. */
void telling_start(struct desk *d, const struct group *g);
void tellings_resume(struct desk *d);
void tellings_end(struct desk *d);

/* Finds sessions that were made for unknown attempts, and ends them. Reasons: a crash between their
 * making and their record, a lost answer, or a group that is gone. Sets desk->swept after the first
 * pass. Passes repeat until one has reached all workers. A call during a pass causes one more. */
void sweep_start(struct desk *d);
void sweep_end(struct desk *d);

#endif
