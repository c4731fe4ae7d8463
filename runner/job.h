/*
 * struct job: one run (or scorer) as a process on the loop: its output and its end. It is over when
 * none of its processes lives (keeper.h).
 */
#ifndef RG_RUNNER_JOB_H
#define RG_RUNNER_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/os/loop.h"

struct job;

struct job_spec {
    char *const *argv, *const *envp;
    const char *folder;
    uint64_t grace_ms;
    bool apart; /* whether standard output and standard error are reported separately */
};

struct job_end {
    bool lost;       /* its keeper was killed or stopped: how the job ended is unknown */
    int not_started; /* errno's value, or 0 */
    int status;      /* wait status */
};

struct job_events {
    void (*output)(void *ctx, bool is_error, struct str bytes);
    void (*ended)(void *ctx, const struct job_end *end); /* the job is freed afterwards */
};

/* The spec is used until this returns, events and ctx until `ended`, which is never called from
 * here. -1 with ERR_IO. */
RG_MUSTCHECK int job_start(struct loop *l, const struct job_spec *spec,
                           const struct job_events *events, void *ctx, struct job **ret,
                           struct err *e);

/* TERM to all of it, KILL after the grace; `ended` comes. */
void job_stop(struct job *j);

/* KILL, at once, to all of it. */
void job_kill(struct job *j);

/* On SIGCHLD: takes what has ended. Orphans of keepers that were killed are killed, too. */
void jobs_reap(void);

#endif
