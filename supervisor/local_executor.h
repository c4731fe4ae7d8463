/*
 * struct local_executor: `rollgate runner` as a child of the gateway, for a single machine (serve
 * --runners FILE). It is no process of the table: a plain client on our own port, which executes
 * programs of its own choice and therefore has neither board nor sandbox; it is this very binary,
 * executed anew.
 *
 *   starts once all others serve; is replaced when it ends, after a back-off, for ever (an
 *   executor that cannot run takes no gateway down)
 *   SIGHUP: it reads its file again
 *   SIGUSR2: it stays, and so do its attempts; the next binary is its parent from then on
 *   the end: it drains first, while everybody else still serves, because ends must be told
 */
#ifndef RG_SUPERVISOR_LOCAL_EXECUTOR_H
#define RG_SUPERVISOR_LOCAL_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/os/loop.h"

struct supervisor;

struct local_executor {
    pid_t pid;     /* 0: none */
    char *runners; /* the file that the living one reads; NULL: none */
    bool drains;   /* it was told to end: told again, it would end what it runs at once */
    int64_t started_ms, backoff_ms;
    struct loop_timer again;
};

/* Starts it when one is configured and none lives; one of before an upgrade goes on with its file,
 * or ends when that is not configured any more. */
void local_executor_start(struct supervisor *s);

/* Whether the process that ended was it; then it is replaced as long as we serve. */
bool local_executor_bury(struct supervisor *s, pid_t pid, int wait_status);

/* Tells it to read its file again, to drain (once, however often it is wanted), or to end at once.
 * Nothing when there is none. */
void local_executor_signal(struct supervisor *s, int signo);

/* No further start. */
void local_executor_stop(struct supervisor *s);

/* What an upgrade leaves to the next binary, in the environment; the other takes it there. */
void local_executor_leave(const struct supervisor *s);
void local_executor_take(struct supervisor *s);
void local_executor_done(struct supervisor *s);

#endif
