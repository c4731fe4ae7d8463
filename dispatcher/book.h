/*
 * struct book: all groups, attempts, queues and runners of a dispatcher, in memory.
 *
 * The book changes only through records. A change is written as a record (book_record.h), appended
 * to the journal and then applied by book_apply. No other function changes anything that must
 * survive a crash. A replay of the journal through book_apply gives the same book. The functions
 * below book_apply change what need not survive: leases, reservations, the recent calls of
 * executors.
 *
 * The book does no I/O and reads no clock: times come with the records and the calls. Wall-clock
 * times ("at") are in records. Leases use the monotonic clock, so a step of the wall clock ends no
 * lease.
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

/* Groups of one runner, priority and queue that have a waiting rollout (book_lanes.h). Each queue
 * has its own lane, so that a claim skips a closed queue in one step, however many groups wait in
 * it. */
struct lane {
    int64_t priority;
    const struct queue *queue;     /* NULL: groups without a queue */
    struct list_head begun, fresh; /* groups in the order of submission */
    /* begun groups all of whose rollouts wait for the end of a back-off */
    struct list_head resting;
    uint64_t due_ms;  /* wall clock: no group of `resting` is claimable before */
    uint64_t waiting; /* number of groups in the lane, including those in no list */
};

struct queue {
    char *name;
    struct list_head groups;  /* all groups, by submission */
    struct list_head settled; /* offered and taken groups, by the time of settling */
    uint64_t n_groups[GROUP_STATES];
    uint64_t offered, taken, rollouts_running;
    uint64_t acked_total;
};

struct runner {
    char *name;
    size_t at;                /* index in book->runners */
    struct list_item unasked; /* in book->unasked, if no group has named the runner */
    /* highest priority first; empty: no group has ever named the runner */
    VEC(struct lane *) lanes;
    uint64_t running;    /* number of running attempts */
    uint64_t slots;      /* free slots that executors offer in claims that wait now */
    uint64_t offered_ms; /* monotonic: when an executor last offered the runner; 0: never */
    uint32_t failures;   /* attempts in a row without an ok */
    /* monotonic: when the next probe may begin while the breaker is open */
    uint64_t probe_ms;
    bool blocked; /* whether the breaker is open */
    /* monotonic: since when groups have waited and no executor offers the runner; 0: not so */
    uint64_t missed_ms;
    bool missed_logged;
    uint64_t outcomes[OUTCOMES];
};

/* Callbacks for changes, not called during a replay. Called inside book_apply, after the change. */
struct book_events {
    void (*attempt_over)(void *ctx, struct attempt *a); /* the attempt has ended */
    void (*settled)(void *ctx, struct group *g);
    void (*gone)(void *ctx, struct group *g); /* the group is about to leave the book */
};

struct book {
    struct map groups;   /* groups by id */
    struct map attempts; /* attempts by id */
    struct list_head all;
    struct list_head running; /* running attempts */
    VEC(struct queue *) queues;
    VEC(struct runner *) runners;
    struct map runners_by_name;
    struct list_head
        unasked; /* runners of book_runner_withdraw that no group has named, the oldest first */
    size_t n_unasked;
    uint64_t next_seq;
    uint64_t n_waiting;               /* groups that are not settled */
    const struct place_table *places; /* the fleet's; NULL: there is none. Borrowed */
    bool keeps_gone;                  /* removed groups are kept until book_forget_gone */
    struct list_head gone;
    /* removed groups by id, the newest of each id; attempts of them that count */
    struct map gone_groups, gone_attempts;
    const struct book_events *events; /* NULL: a replay is running */
    void *events_ctx;
};

/* True if a lost node of the fleet may have had groups that the book lacks. */
bool book_has_lost(const struct book *b);

void book_init(struct book *b);
void book_done(struct book *b);

/* Applies one record (a JSON object, book_record.h). Returns -1 with ERR_INVALID if the record does
 * not fit the book, which is then unchanged. */
int book_apply(struct book *b, struct str record, struct err *e);

/* Removes a group without a record, because all of its records will be applied again. During a
 * replay. */
void book_remove(struct book *b, struct group *g);

struct group *book_group(const struct book *b, struct str id);
struct attempt *book_attempt(const struct book *b, struct str id);

/* Finds a removed group while keeps_gone is set: at a start it is unknown whether sinks have
 * received its sessions. book_forget_gone frees all removed groups and clears keeps_gone. */
struct group *book_gone_group(const struct book *b, struct str id);
struct attempt *book_gone_attempt(const struct book *b, struct str id);
void book_forget_gone(struct book *b);

struct queue *book_queue(const struct book *b, struct str name);
struct runner *book_runner(const struct book *b, struct str name);

/* Finds the runner, or makes it, because an executor may offer a runner that no group has named.
 * Runners that a group has named are never removed. */
struct runner *book_runner_made(struct book *b, struct str name);

/* Marks the runner as not offered. Of the runners that no group has ever named, at most UNASKED_MAX
 * are kept. So this runner or an older one may be freed. */
enum { UNASKED_MAX = 1024 };

void book_runner_withdraw(struct book *b, struct runner *r);

/* Frees all runners, for book_done. */
void book_runners_done(struct book *b);

/* Returns the rollout that is claimed next for the runner, or NULL. Skips queues for which `closed`
 * returns true. Prefers rollouts that this executor has not failed. wall_ms is for back-offs. */
typedef bool (*book_closed_fn)(void *ctx, const struct queue *q);
struct rollout *book_next_rollout(struct book *b, struct runner *r, struct str executor,
                                  uint64_t wall_ms, book_closed_fn closed, void *ctx);

/* book_reserve marks a rollout for which a claim is made, so that no other claim takes it.
 * book_release removes the mark. */
void book_reserve(struct rollout *r);
void book_release(struct rollout *r);

/* Returns the verdict on an attempt that ends with this outcome, before anything changes:
 * ROLLOUT_SUCCEEDED, ROLLOUT_FAILED, ROLLOUT_CANCELLED, or ROLLOUT_WAITING (a retry). `finalized`:
 * its session is finalized, so it has an export that can count. An attempt that should count but
 * has no export is retried. `refused` of the attempt must be set before. */
enum rollout_state book_verdict(const struct attempt *a, enum outcome outcome, bool finalized);

/* Returns the back-off before the next attempt after this number of infrastructure failures: 1 s,
 * doubling, at most 60 s. */
uint64_t book_backoff_ms(uint32_t failures);

/* Reports whether cancelling changes the group. A settled group keeps its state. It is removed only
 * if it must not be delivered and has a queue that would deliver it. */
bool book_cancels(const struct group *g, bool deliver);

/* Finds the next group to deliver from the queue: settled, not taken, in one of the states (bits 1
 * << group_state), and no session of it is sought. `submitted`: in the order of submission, and
 * never past an earlier group that is not settled, or sought. NULL: no such group. */
struct group *book_next_group(struct queue *q, unsigned states, bool submitted);

#endif
