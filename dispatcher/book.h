/*
 * struct book: all groups, attempts, queues and runners of a dispatcher, in memory.
 *
 * The book changes only through records. A change is written as a record (book_record.h), appended
 * to the journal and then applied by book_apply, the one function that changes anything that must
 * survive. A replay of the journal through book_apply gives the same book. The functions below it
 * change what need not survive: leases, reservations, the recent calls of executors.
 *
 * The book does no I/O and reads no clock: times come with the records and the calls. Wall-clock
 * times ("at") are kept in records; leases run on the monotonic clock, so a step of the wall clock
 * ends none.
 *
 *   runner ─ lanes by priority and queue ─┬ begun groups with a waiting rollout   (these go first)
 *                                         └ groups not begun, by submission
 *   queue ─┬ all its groups by submission
 *          └ its settled groups by settling
 */
#ifndef RG_DISPATCHER_BOOK_H
#define RG_DISPATCHER_BOOK_H

#include "common/base/map.h"
#include "dispatcher/rollouts.h"

struct err;

/* Groups of one runner, priority and queue with a waiting rollout (book_lanes.h). A queue of its
 * own, so that a closed one costs a look, however many wait in it. */
struct lane {
    int64_t priority;
    const struct queue *queue;     /* NULL: of no queue */
    struct list_head begun, fresh; /* by submission */
    struct list_head resting;      /* begun ones that wait for the end of a back-off */
    uint64_t due_ms;               /* wall clock: no resting one is claimable before */
    uint64_t waiting;              /* all its groups, also those in none of the lists */
};

struct queue {
    char *name;
    struct list_head groups;  /* by submission */
    struct list_head settled; /* offered and taken, by settling */
    uint64_t n_groups[GROUP_STATES];
    uint64_t offered, taken, rollouts_running;
    uint64_t acked_total;
};

struct runner {
    char *name;
    size_t at;                /* its place in book->runners */
    struct list_item unasked; /* in book->unasked, if no group has named it */
    VEC(struct lane *) lanes; /* highest priority first; none: no group has ever named it */
    uint64_t running;         /* attempts */
    uint64_t slots;           /* free ones that executors offer in claims that wait now */
    uint64_t offered_ms;      /* monotonic: when an executor last offered it; 0: never */
    uint32_t failures;        /* attempts in a row without an ok */
    uint64_t probe_ms;        /* monotonic: when the next probe may go, while the breaker is open */
    bool blocked;             /* the breaker is open */
    uint64_t missed_ms; /* monotonic: since when groups wait and no executor offers it; 0: no */
    bool missed_logged;
    uint64_t outcomes[OUTCOMES];
};

/* Callbacks for changes, live only. Called inside book_apply, after the change. */
struct book_events {
    void (*attempt_over)(void *ctx, struct attempt *a); /* it has ended */
    void (*settled)(void *ctx, struct group *g);
    void (*gone)(void *ctx, struct group *g); /* it is about to leave the book */
};

struct book {
    struct map groups;   /* by id */
    struct map attempts; /* by id */
    struct list_head all;
    struct list_head running; /* attempts */
    VEC(struct queue *) queues;
    VEC(struct runner *) runners;
    struct map runners_by_name;
    struct list_head
        unasked; /* runners of book_runner_withdraw that no group has named, the oldest first */
    size_t n_unasked;
    uint64_t next_seq, next_settled;
    uint64_t n_waiting; /* groups that are not settled */
    bool keeps_gone;    /* removed groups are kept until book_forget_gone */
    struct list_head gone;
    struct map gone_groups, gone_attempts; /* by id: the newest; those that count */
    const struct book_events *events;      /* or NULL: replay */
    void *events_ctx;
};

void book_init(struct book *b);
void book_done(struct book *b);

/* Applies one record (a JSON object, book_record.h). -1 with ERR_INVALID: it does not fit the book,
 * which is then unchanged. */
int book_apply(struct book *b, struct str record, struct err *e);

struct group *book_group(const struct book *b, struct str id);
struct attempt *book_attempt(const struct book *b, struct str id);

/* Finds a removed group while keeps_gone is set: at a start it is unknown whether sinks have
 * received its sessions. book_forget_gone frees all of them and ends the keeping. */
struct group *book_gone_group(const struct book *b, struct str id);
struct attempt *book_gone_attempt(const struct book *b, struct str id);
void book_forget_gone(struct book *b);

struct queue *book_queue(const struct book *b, struct str name);
struct runner *book_runner(const struct book *b, struct str name);

/* Finds the runner, or makes it: an executor may offer a runner that no group has named. Runners
 * that a group has named are never removed. */
struct runner *book_runner_made(struct book *b, struct str name);

/* Marks the runner as not offered. At most UNASKED_MAX runners that no group has ever named are
 * kept, so this one or another may be freed. */
enum { UNASKED_MAX = 1024 };

void book_runner_withdraw(struct book *b, struct runner *r);

/* Frees them all: the part of book_done that is book_runners.c's. */
void book_runners_done(struct book *b);

/* The waiting rollout that is to be claimed next for the runner, or NULL. Skips queues that
 * `closed` says are full (or whatever it likes). Prefers rollouts that this executor has not
 * failed. wall_ms is for back-offs. */
typedef bool (*book_closed_fn)(void *ctx, const struct queue *q);
struct rollout *book_next_rollout(struct book *b, struct runner *r, struct str executor,
                                  uint64_t wall_ms, book_closed_fn closed, void *ctx);

/* Marks a rollout that a claim is made for, so that no other claim takes it; and unmarks it. */
void book_reserve(struct rollout *r);
void book_release(struct rollout *r);

/* The verdict on an attempt that ends with this outcome, before anything is changed:
 * ROLLOUT_SUCCEEDED, ROLLOUT_FAILED, ROLLOUT_CANCELLED, or ROLLOUT_WAITING (another attempt).
 * `finalized`: its session is, so that there is an export to count; what is to be kept and has none
 * is tried again. `refused` of the attempt is set before. */
enum rollout_state book_verdict(const struct attempt *a, enum outcome outcome, bool finalized);

/* Returns the back-off before the next attempt after so many infrastructure failures: 1 s,
 * doubling, at most 60 s. */
uint64_t book_backoff_ms(uint32_t failures);

/* Reports whether cancelling changes the group. A settled group keeps its state. It is removed only
 * if it must not be delivered and has a queue that would deliver it. */
bool book_cancels(const struct group *g, bool deliver);

/* Finds the next group to deliver from the queue: settled, not taken, in one of the states (bits 1
 * << group_state). `submitted`: in the order of submission, never past an earlier group that is not
 * settled. NULL: there is no such group. */
struct group *book_next_group(struct queue *q, unsigned states, bool submitted);

#endif
