/*
 * struct helpers: threads beside a loop, for pure work that would hold the loop too long. A job
 * runs in one of them and its end is told on the loop. Jobs have a key (a session): those of one
 * key run one after the other in the order of their pushing, and keys share the threads by the time
 * their jobs take, so that one with long or many jobs delays the others by its share only. Nothing
 * interrupts a job, so those that their owners call long never take the last thread: a short one
 * finds it free, or with a short one.
 *
 * `run` may touch what its job owns and what nobody changes while it runs; nothing else of the
 * process, no log. Long work asks cancel_wanted() (common/base/cancel.h) now and then, and returns
 * early when it is.
 *
 * All functions but helpers_ask, helpers_step and helpers_within are the loop's thread's. Threads
 * come to be in helpers_new: after a fork, not before.
 */
#ifndef RG_OS_HELPERS_H
#define RG_OS_HELPERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/str.h"

struct helpers;
struct helper_job;
struct helper_lane;
struct loop;

enum helper_end {
    HELPER_DONE,      /* run has returned */
    HELPER_CANCELLED, /* run was not called, or has returned after helpers_cancel */
    HELPER_STUCK, /* run did not return in its time, and may be running for ever: all that it may
                     touch, the job as well, is lost and must not be freed or changed */
};

/* In a helper; `tool` is the thread's own (helpers_options). */
typedef void (*helper_run_fn)(struct helper_job *j, void *tool);

/* On the loop, once for every job that was pushed. The job is the owner's again, unless it is
 * stuck. */
typedef void (*helper_done_fn)(struct helper_job *j, enum helper_end end);

/* Embedded in its owner by value. The owner sets run, done and is_long; the rest is the pool's. */
struct helper_job {
    helper_run_fn run;
    helper_done_fn done;
    bool is_long;                           /* it waits until another thread is left for others */
    uint64_t pushed_us, began_us, ended_us; /* on clock_us; began 0: it has not run */
    _Atomic uint64_t step_us;               /* since when its limit counts */
    struct helper_lane *lane;
    struct list_item item, told; /* of its lane while it waits; of those to be told */
    struct list_item later;      /* of those that the loop has cancelled since it had the lock */
    bool queued;                 /* it is or was in its lane; the loop's alone */
    bool stuck;
    atomic_bool cancel;
};

struct helpers_options {
    unsigned threads;  /* 1..; of one alone nothing is kept for short jobs */
    uint64_t limit_ms; /* for one job, or one step of it (helpers_step); it is cancelled then, and
                          stuck when it goes on as long again; 0: none */
    void *(*tool_new)(void *ctx); /* what each thread works with, made in it; or NULL */
    void (*tool_free)(void *tool);
    void (*on_lost)(void *ctx, unsigned n); /* n threads in all are lost to stuck jobs; or NULL */
    void *ctx;
    int nice; /* added to the threads' niceness: loops go first */
};

/* NULL in *ret and -1 with ERR_IO when there are no threads or descriptors. */
RG_MUSTCHECK int helpers_new(struct loop *l, const struct helpers_options *o, struct helpers **ret,
                             struct err *e);

/* Cancels what runs, forgets what waits (nobody is told), ends the threads. Returns how many
 * threads do not end: then nothing that their jobs use may be freed, and the process should leave
 * by _exit. NULL is accepted. */
unsigned helpers_free(struct helpers *h);

/* Jobs may take so long from now on, those that run included; nothing happens when they may
 * already. */
void helpers_lengthen(struct helpers *h, uint64_t limit_ms);

/* The job waits for a thread; key is copied. */
void helpers_push(struct helpers *h, struct helper_job *j, struct str key);

/* How many jobs of the key there are whose end was not told yet. */
unsigned helpers_jobs(const struct helpers *h, struct str key);

/* Whether there are any: what must come after them is pushed, too. */
bool helpers_busy(const struct helpers *h, struct str key);

/* From within run: calls fn on the loop and waits for it. What a job needs of the loop's own is
 * fetched so. False: it was not called, the pool ends. */
bool helpers_ask(struct helpers *h, void (*fn)(void *ctx), void *ctx);

/* From within run: a step of the job is over, and the limit counts anew for the next. For jobs of
 * many steps that wait for a disk each. Does nothing outside of a job. */
void helpers_step(void);

/* Whether this thread is within a job's run. */
bool helpers_within(void);

/* Nobody wants the job's result any more: done follows, soon when its work asks cancel_wanted. */
void helpers_cancel(struct helpers *h, struct helper_job *j);

#endif
