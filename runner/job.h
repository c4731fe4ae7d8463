/*
 * struct job: one run (or scorer) as a process on the loop: its output and its end. It ends when
 * all its processes have ended (job.c).
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
    bool lost;       /* the keeper was killed or stopped: how the job ended is unknown */
    int not_started; /* errno if the program could not be started, or 0 */
    int status;      /* wait status of the program */
};

struct job_events {
    void (*output)(void *ctx, bool is_error, struct str bytes);
    /* called at the end; the job is freed afterwards */
    void (*ended)(void *ctx, const struct job_end *end);
};

/* Starts a job. The spec is used until this returns, events and ctx until `ended`, which is never
 * called from here. Returns -1 with ERR_IO. */
RG_MUSTCHECK int job_start(struct loop *l, const struct job_spec *spec,
                           const struct job_events *events, void *ctx, struct job **ret,
                           struct err *e);

/* Sends TERM to all its processes, and KILL after the grace. `ended` follows. */
void job_stop(struct job *j);

/* Handles SIGCHLD: ends the jobs whose keepers have ended. Orphans of keepers that were killed are
 * killed, too. */
void jobs_reap(void);

#endif
