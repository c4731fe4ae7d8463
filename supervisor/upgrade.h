/*
 * SIGUSR2: the same process becomes a new binary, or continues unchanged if that one fails.
 *
 *   trial   the new binary starts aside (trial.h). When it does not serve there (missing, not
 *           executable, refuses the configuration, crashes, is late): one line in the log, and
 *           nothing has changed.
 *   exec    sockets and children are inherited. When it fails: the same.
 *   start   the new supervisor loads what it needs, asks the children of before to drain, and
 *           starts its own. When these do not come to serve, it executes the binary of before, of
 *           which a descriptor was kept, in the same way.
 */
#ifndef RG_SUPERVISOR_UPGRADE_H
#define RG_SUPERVISOR_UPGRADE_H

#include "common/base/vec.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "supervisor/trial.h"

struct supervisor;

/* A child of the binary that ran before: it finishes what it has. */
struct previous {
    unsigned slot;
    pid_t pid;
    int control_fd; /* open while it lives; closing it would end it */
    uint64_t
        places[BOARD_WORKERS_MAX / 64]; /* a worker's: bits of those whose journals it has open */
};

struct upgrade {
    char binary[4096]; /* our program's path: where the next one is found */
    int before_fd;     /* the program before this one, until all serve; -1: none */
    bool is_trial;     /* this process is one */
    struct trial trial;
    struct loop_timer deadline; /* deadline of the trial */
    VEC(struct previous) previous;
};

/* At the start: what the binary before has left in the environment. */
void upgrade_init(struct supervisor *s);
void upgrade_done(struct supervisor *s);

/* Passes the orders of the admin to the board, when there is one: they remain in force. */
void upgrade_restore_orders(struct board *b);

/* Starts the trial, unless one runs. */
void upgrade_begin(struct supervisor *s);

/* The trial has ended. Does not return when it served and the exec succeeds. */
void upgrade_continue(struct supervisor *s, int wait_status);

/* Ends the way back: all processes serve. */
void upgrade_commit(struct supervisor *s);

/* The start failed. Returns when there is no binary of before, or it cannot be executed. */
void upgrade_undo(struct supervisor *s, const char *reason);

#endif
