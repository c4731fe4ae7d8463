/*
 * struct trial: a test start of the new binary of an upgrade. RG_TRIAL in its environment names a
 * folder. The binary checks our configuration, folders and keys. It runs one worker and one router
 * in that folder, on a port of its own, and ends with TRIAL_SERVED when these serve. Any other end
 * is a failure. The trial dies with the supervisor.
 */
#ifndef RG_SUPERVISOR_TRIAL_H
#define RG_SUPERVISOR_TRIAL_H

#include <stdbool.h>
#include <sys/types.h>

struct config;
struct err;

enum { TRIAL_SERVED = 86 }; /* exit status of a successful trial */

struct trial {
    pid_t pid;     /* 0: no trial runs */
    int said_fd;   /* memory file with its stdout and stderr */
    bool too_late; /* the trial was killed because it took too long */
    const char *run_dir;
};

/* Starts the trial. `address` is where we listen. Returns -1 with ERR_IO if the fork fails. */
int trial_start(struct trial *t, const char *binary, const struct config *c, const char *address,
                struct err *e);

/* Ends the trial: 0 if it served, otherwise -1 with the reason. */
int trial_end(struct trial *t, int wait_status, struct err *e);

/* Kills the trial, which is then reaped like every child. */
void trial_kill(struct trial *t);

/* Reports whether this process is a trial. Call it before the first fork. */
bool trial_is_me(void);

/* Gives the trial its own folder and few processes. Call it after all checks. */
void trial_move_aside(struct config *c);

#endif
