/*
 * struct helpers: threads next to a loop, for pure work that would hold the loop too long. A job
 * runs in one thread; its done() is called on the loop. Jobs have a key (a session). Jobs of one
 * key run one after the other, in the order of their pushing. Keys share the threads by used time,
 * so that a key with long or many jobs delays the others by its share only. A running job cannot be
 * interrupted. So jobs marked as long never take the last thread, which runs short ones only.
 *
 * `run` may use what its job owns and what does not change while it runs. It must not use anything
 * else of the process, nor log. Long work asks cancel_wanted() (common/base/cancel.h) now and then,
 * and returns early when it is.
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
    HELPER_STUCK, /* run exceeded its time and may run for ever: the job and all that it may use are
                     lost, and must not be freed or changed */
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
    struct list_item item, told; /* `item`: in its lane, while it waits; `told`: in the list of jobs
                                    whose done() is to be called */
    struct list_item
        later;   /* in the list of jobs that were cancelled since the loop last held the lock */
    bool queued; /* it is or was in its lane; the loop's alone */
    bool stuck;
    atomic_bool cancel;
};

struct helpers_options {
    unsigned threads;  /* 1..; of one alone nothing is kept for short jobs */
    uint64_t limit_ms; /* time limit of a job or of one step of it (helpers_step); then it is
                          cancelled, and after twice the time stuck; 0: no limit */
    void *(*tool_new)(void *ctx); /* makes what a thread works with, on that thread; or NULL */
    void (*tool_free)(void *tool);
    void (*on_lost)(void *ctx, unsigned n); /* n threads in all are lost to stuck jobs; or NULL */
    void *ctx;
    int nice; /* added to the threads' niceness: loops go first */
};

/* NULL in *ret and -1 with ERR_IO when there are no threads or descriptors. */
RG_MUSTCHECK int helpers_new(struct loop *l, const struct helpers_options *o, struct helpers **ret,
                             struct err *e);

/* Cancels running jobs, drops waiting ones without calling done(), and ends the threads. Returns
 * the number of threads that do not end. If it is not 0, nothing that their jobs use may be freed,
 * and the process should leave by _exit. Accepts NULL. */
unsigned helpers_free(struct helpers *h);

/* Jobs may take so long from now on, those that run included; nothing happens when they may
 * already. */
void helpers_lengthen(struct helpers *h, uint64_t limit_ms);

/* The job waits for a thread; key is copied. */
void helpers_push(struct helpers *h, struct helper_job *j, struct str key);

/* Counts the key's jobs whose done() was not called yet. */
unsigned helpers_jobs(const struct helpers *h, struct str key);

/* Whether there are any: what must come after them is pushed, too. */
bool helpers_busy(const struct helpers *h, struct str key);

/* Calls fn on the loop and waits until it returns. Only from within `run`, to fetch what the loop
 * owns. Returns false, without a call, if the pool ends. */
bool helpers_ask(struct helpers *h, void (*fn)(void *ctx), void *ctx);

/* Restarts the time limit for the job's next step. Only from within `run`, for jobs of several
 * steps that each wait for a disk. Outside a job it does nothing. */
void helpers_step(void);

/* Whether this thread is within a job's run. */
bool helpers_within(void);

/* Cancels the job: its result is not needed. done() still follows, soon if its work checks
 * cancel_wanted. */
void helpers_cancel(struct helpers *h, struct helper_job *j);

#endif
