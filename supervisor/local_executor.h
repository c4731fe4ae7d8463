/*
 * struct local_executor: `rollgate runner` as a child of the gateway, for a single machine (serve
 * --runners FILE). It is not in the process table. It is a plain client on our own port. It
 * executes other programs and so has neither board nor sandbox. It runs this same binary.
 *
 *   starts once all others serve; is replaced when it ends, after a back-off, for ever (an
 *   executor that cannot run takes no gateway down)
 *   SIGHUP: it reads its file again
 *   SIGUSR2: it stays, and so do its attempts; the next binary is its parent from then on
 *   the end: it drains first, while all others still serve, because it must report ends
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
    bool drains;   /* it was asked to end; a second signal would end its runs at once */
    int64_t started_ms, backoff_ms;
    struct loop_timer again;
};

/* Starts the executor if one is configured and none lives. An executor of before an upgrade
 * continues with its file, or ends if none is configured now. */
void local_executor_start(struct supervisor *s);

/* Whether the process that ended was it; then it is replaced as long as we serve. */
bool local_executor_bury(struct supervisor *s, pid_t pid, int wait_status);

/* Asks it to read its file again, to drain (sent once, however often it is asked), or to end at
 * once. Does nothing if there is no executor. */
void local_executor_signal(struct supervisor *s, int signo);

/* Ends all further starts. */
void local_executor_stop(struct supervisor *s);

/* Puts what the next binary needs into the environment, which local_executor_inherit reads there.
 */
void local_executor_leave(const struct supervisor *s);
void local_executor_inherit(struct supervisor *s);
void local_executor_done(struct supervisor *s);

#endif
