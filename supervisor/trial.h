/*
 * struct trial: the new binary of an upgrade, started aside to see whether it serves. RG_TRIAL in
 * its environment names a folder. The binary checks our configuration, folders and keys. It runs
 * one worker and one router in that folder, on a port of its own, and ends with TRIAL_SERVED as
 * soon as these serve. Any other end is a failure. The trial dies with the supervisor.
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
    int said_fd;   /* memory file with its stdout and stderr */
    bool too_late; /* it was killed for that */
    const char *run_dir;
};

/* Starts it; `address` is where we listen. -1 with ERR_IO when it cannot even be forked. */
int trial_start(struct trial *t, const char *binary, const struct config *c, const char *address,
                struct err *e);

/* Ends the trial: 0 if it served, otherwise -1 with the reason. */
int trial_end(struct trial *t, int wait_status, struct err *e);

/* Kills it; it is reaped as ever. */
void trial_kill(struct trial *t);

/* Reports whether this process is a trial. Call it before anything forks. */
bool trial_is_me(void);

/* Gives the trial its own folder and few processes. Call it after all checks. */
void trial_move_aside(struct config *c);

#endif
