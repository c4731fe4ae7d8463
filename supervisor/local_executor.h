/*
 * struct local_executor: `rollgate runner` as a child of the gateway, for a single machine (serve
 * --runners FILE). It is not in the process table. It is an ordinary client on our own port. It
 * executes other programs, so it has neither board nor sandbox. It runs this same binary.
 *
 *   start     when all other processes serve; after its death again, with a growing pause, for
 *             ever (an executor that cannot run ends no gateway)
 *   SIGHUP    it reads its file again
 *   SIGUSR2   it and its attempts continue; the next binary is its parent from then on
 *   the end   it drains first, while all others still serve, because it must report ends
 */
#ifndef RG_SUPERVISOR_LOCAL_EXECUTOR_H
#define RG_SUPERVISOR_LOCAL_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/os/loop.h"

struct supervisor;

struct local_executor {
    pid_t pid;     /* 0: the executor does not run */
    char *runners; /* runner file of the running executor; NULL: it does not run */
    bool drains;   /* the executor got SIGTERM; a second one would end its runs at once */
    int64_t started_ms, backoff_ms;
    struct loop_timer again;
};

/* Starts the executor if one is configured and does not run. The executor of the binary before an
 * upgrade continues if its file is still configured; otherwise it ends. */
void local_executor_start(struct supervisor *s);

/* Reports whether the process that ended was the executor. If so, it is replaced while we serve. */
bool local_executor_bury(struct supervisor *s, pid_t pid, int wait_status);

/* Sends a signal: HUP to read the file again, TERM to drain (sent only once), KILL or QUIT to end
 * at once. Does nothing if the executor does not run. */
void local_executor_signal(struct supervisor *s, int signo);

/* Prevents further starts. */
void local_executor_stop(struct supervisor *s);

/* Puts what the next binary needs into the environment, where local_executor_inherit reads it. */
void local_executor_leave(const struct supervisor *s);
void local_executor_inherit(struct supervisor *s);
void local_executor_done(struct supervisor *s);

#endif
