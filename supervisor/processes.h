/*
 * struct process: one child in the supervisor's table. The table's slots are those of the board:
 * routers from BOARD_ROUTER0, workers from BOARD_WORKER0. A slot that is wanted has a living
 * process or a timer that will start one.
 *
 *   EMPTY --start--> STARTING --report--> READY --retire--> RETIRING --exit--> EMPTY
 *                       ^                   |
 *                       +----- back-off <---+  crash
 */
#ifndef RG_SUPERVISOR_PROCESSES_H
#define RG_SUPERVISOR_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/os/loop.h"
#include "common/proc/heritage.h"

enum { BACKOFF_FIRST_MS = 100, BACKOFF_MAX_MS = 10000, BACKOFF_RESET_MS = 60000 };

struct process {
    struct heritage heritage;
    pid_t pid;          /* 0: none */
    int control_fd;     /* our end of its control socket; -1: none */
    int64_t started_ms; /* loop clock at the fork */
    int64_t first_ms;   /* loop clock at the first fork in this slot */
    int64_t backoff_ms; /* the next wait before a restart */
    struct loop_timer respawn;
    bool wanted;                    /* a process should live here */
    bool killed;                    /* we killed it: stuck or too slow to start */
    char why[240];                  /* its own report of why it could not start */
    struct heritage_place *adopted; /* worker: heritage.adopted points here */
};

/* Writes what ended the process into `out`: "killed by signal 9 (Killed)", "exit status 3". */
void process_death(int wait_status, char *out, size_t size);

/* The wait before the next restart of a process that lived for `lived_ms`; *backoff_ms (0 at first)
 * remembers between deaths. */
int64_t process_backoff(int64_t *backoff_ms, int64_t lived_ms);

/* Adds a place to those that the process serves besides its own. Returns false if it had the place
 * already: a router's place may be in use again after another process accepted there, too. */
bool process_add_place(struct process *p, const struct heritage_place *place);
void process_done(struct process *p);

#endif
