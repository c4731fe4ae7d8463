/*
 * struct helpers: threads next to a loop, for pure work that would hold the loop too long. A job
 * runs in one thread; its done() is called on the loop. Each job has a key (a session). Jobs of one
 * key run one after the other, in the order of helpers_push, those with is_first before the rest.
 * Keys share the threads by used time, so that a key with long or many jobs delays the others by
 * its share only. A running job cannot be interrupted. So jobs marked as long never use the last
 * free thread, which runs only short ones.
 *
 * `run` may use what its job owns and what does not change while it runs. It must not use anything
 * else of the process, nor log. Long work calls cancel_wanted() (common/base/cancel.h) often, and
 * returns early when that is true.
 *
 * All functions except helpers_ask, helpers_step and helpers_within belong to the loop's thread.
 * helpers_new starts the threads, so call it after a fork.
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
    /* run exceeded its time and may run for ever: the job and all that it may use are lost, and
     * must not be freed or changed */
    HELPER_STUCK,
};

/* Runs a job in a helper thread. `tool` is the thread's own (helpers_options). */
typedef void (*helper_run_fn)(struct helper_job *j, void *tool);

/* Called on the loop, once for every pushed job. The job belongs to its owner again, unless it is
 * stuck. */
typedef void (*helper_done_fn)(struct helper_job *j, enum helper_end end);

/* Embedded in its owner by value. The owner sets run, done, is_long and is_first; the pool sets the
 * rest. */
struct helper_job {
    helper_run_fn run;
    helper_done_fn done;
    /* the job starts only if a further thread is free for short jobs */
    bool is_long;
    bool is_first;                          /* runs before the jobs of its key without is_first */
    uint64_t pushed_us, began_us, ended_us; /* times on clock_us; began 0: the job has not run */
    _Atomic uint64_t step_us;               /* start of the step to which the time limit applies */
    struct helper_lane *lane;
    /* `item`: in its lane, while it waits; `told`: in the list of jobs whose done() must be called
     */
    struct list_item item, told;
    struct list_item
        later;   /* in the list of jobs that were cancelled after the loop last held the lock */
    bool queued; /* the job is or was in its lane; only the loop uses this */
    bool stuck;
    atomic_bool cancel;
};

struct helpers_options {
    unsigned threads; /* at least 1; a single thread also runs long jobs */
    /* time limit of a job or of one of its steps (helpers_step). A job that exceeds it is
     * cancelled, and after twice the time it is stuck; 0: no limit */
    uint64_t limit_ms;
    void *(*tool_new)(void *ctx); /* makes a thread's tool, on that thread; or NULL */
    void (*tool_free)(void *tool);
    /* called when a thread is lost to a stuck job; n: all lost threads; or NULL */
    void (*on_lost)(void *ctx, unsigned n);
    void *ctx;
    int nice; /* added to the threads' niceness, so that loops run first */
};

/* Starts the threads. Returns -1 with ERR_IO, and NULL in *ret, if threads or descriptors are
 * missing. */
RG_MUSTCHECK int helpers_new(struct loop *l, const struct helpers_options *o, struct helpers **ret,
                             struct err *e);

/* Cancels running jobs, drops waiting ones without calling done(), and ends the threads. Returns
 * the number of threads that do not end. If it is not 0, nothing that their jobs use may be freed,
 * and the process should end with _exit. Accepts NULL. */
unsigned helpers_free(struct helpers *h);

/* Extends the time limit of all jobs, including running ones. A shorter limit than the present one
 * is ignored. */
void helpers_lengthen(struct helpers *h, uint64_t limit_ms);

/* Queues the job. The key is copied. */
void helpers_push(struct helpers *h, struct helper_job *j, struct str key);

/* Returns the number of the key's jobs whose done() was not called yet. */
unsigned helpers_jobs(const struct helpers *h, struct str key);

/* Reports whether the key has such jobs. Work that must follow them must be pushed, too. */
bool helpers_busy(const struct helpers *h, struct str key);

/* Calls fn on the loop and waits until it returns. Call it only within `run`, to get what the loop
 * owns. Returns false, without calling fn, if the pool ends. */
bool helpers_ask(struct helpers *h, void (*fn)(void *ctx), void *ctx);

/* Restarts the time limit for the job's next step. Call it only within `run`, in jobs of several
 * steps that each wait for a disk. Outside a job it does nothing. */
void helpers_step(void);

/* Reports whether this thread is running a job. */
bool helpers_within(void);

/* Cancels the job, whose result is not needed. done() still follows, soon if its work checks
 * cancel_wanted. */
void helpers_cancel(struct helpers *h, struct helper_job *j);

#endif
