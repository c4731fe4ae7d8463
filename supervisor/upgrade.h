/*
 * SIGUSR2: the same process becomes a new binary, or continues unchanged if that one fails.
 *
 *   trial   the new binary is started as a test (trial.h). If it does not serve (missing, not
 *           executable, refuses the configuration, crashes, too slow), the log has one line, and
 *           nothing has changed.
 *   exec    sockets and children are inherited. If it fails: the same.
 *   start   the new supervisor loads what it needs, asks the previous children to drain, and starts
 *           its own. If these do not serve, it executes the previous binary, of which it kept a
 *           descriptor, in the same way.
 */
#ifndef RG_SUPERVISOR_UPGRADE_H
#define RG_SUPERVISOR_UPGRADE_H

#include "common/base/vec.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "supervisor/trial.h"

struct supervisor;

/* A child of the previous binary, which finishes its work. */
struct previous {
    unsigned slot;
    pid_t pid;
    int control_fd; /* open while the child lives; closing it would end the child */
    uint64_t
        places[BOARD_WORKERS_MAX / 64]; /* worker: bits of the places whose journals it has open */
};

struct upgrade {
    char binary[4096]; /* path of our program, where the next one is found */
    int before_fd;     /* descriptor of the previous program, until all serve; -1: none */
    bool is_trial;     /* this process is a trial */
    struct trial trial;
    struct loop_timer deadline; /* deadline of the trial */
    VEC(struct previous) previous;
};

/* Reads, at the start, what the previous binary has left in the environment. */
void upgrade_init(struct supervisor *s);
void upgrade_done(struct supervisor *s);

/* Copies orders of the admin to the new board, so that they remain in force. */
void upgrade_restore_orders(struct board *b);

/* Copies what places of the board serve to the new board, whose worker_base is set. */
void upgrade_restore_indexes(struct board *b);

/* Starts the trial, unless one runs. */
void upgrade_begin(struct supervisor *s);

/* Continues after the end of the trial. Does not return if the trial has served and the exec
 * succeeds. */
void upgrade_continue(struct supervisor *s, int wait_status);

/* Gives up the possibility to return to the previous binary, because all processes serve. */
void upgrade_commit(struct supervisor *s);

/* Executes the previous binary after a failed start. Returns if there is none, or if it cannot be
 * executed. */
void upgrade_undo(struct supervisor *s, const char *reason);

#endif
