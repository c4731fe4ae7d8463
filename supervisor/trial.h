/*
 * struct trial: the new binary of an upgrade, started aside to see whether it serves. RG_TRIAL in
 * its environment names a folder; then it checks our configuration, folders and keys as they are,
 * but runs one worker and one router in that folder and on a port of its own, and ends with
 * TRIAL_SERVED as soon as these serve. Whatever else it does is a failure. It dies with the
 * supervisor.
 */
#ifndef RG_SUPERVISOR_TRIAL_H
#define RG_SUPERVISOR_TRIAL_H

#include <stdbool.h>
#include <sys/types.h>

struct config;
struct err;

enum { TRIAL_SERVED = 86 }; /* exit status */

struct trial {
    pid_t pid;     /* 0: none runs */
    int said_fd;   /* what it wrote to stdout and stderr */
    bool too_late; /* it was killed for that */
    const char *run_dir;
};

/* Starts it; `address` is where we listen. -1 with ERR_IO when it cannot even be forked. */
int trial_start(struct trial *t, const char *binary, const struct config *c, const char *address,
                struct err *e);

/* It has ended: 0 when it served, else -1 and why. */
int trial_end(struct trial *t, int wait_status, struct err *e);

/* Kills it; it is reaped as ever. */
void trial_kill(struct trial *t);

/* In the trial: whether this is one; asked before anything forks. */
bool trial_is_me(void);

/* In the trial, after all checks: from now on with its own folder and few processes. */
void trial_move_aside(struct config *c);

#endif
