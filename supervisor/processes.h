/*
 * struct process: one child in the supervisor's table. The table's slots are those of the board:
 * routers from BOARD_ROUTER0, workers from BOARD_WORKER0. A wanted slot has a living process, or a
 * timer that will start one.
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
    pid_t pid;          /* 0: the slot has no process */
    int control_fd;     /* our end of the child's control socket; -1: none */
    int64_t started_ms; /* loop clock at the last fork */
    int64_t first_ms;   /* loop clock at the first fork in this slot */
    int64_t backoff_ms; /* wait before the next restart */
    struct loop_timer respawn;
    bool wanted;                    /* the slot should have a process */
    bool killed;                    /* we killed the process: stuck or too slow to start */
    unsigned deaths;                /* number of deaths in a row, each soon after the start */
    char why[240];                  /* the process's own report of why it could not start */
    struct heritage_place *adopted; /* worker: heritage.adopted points here */
};

/* True for a worker of a place that came from another node, which must not end this gateway, too:
 * no start waits for it. */
bool process_is_foreign(const struct process *p);

/* Writes what ended the process into `out`: "killed by signal 9 (Killed)", "exit status 3". */
void process_death(int wait_status, char *out, size_t size);

/* Returns the wait before the restart of a process that lived for `lived_ms`. *backoff_ms keeps the
 * last wait between deaths (0 at first). */
int64_t process_backoff(int64_t *backoff_ms, int64_t lived_ms);

/* Adds a place to those that the process serves in addition to its own. Returns false if it had the
 * place already: a router's place may be in use again after a different process began to accept
 * there, too. */
bool process_add_place(struct process *p, const struct heritage_place *place);
void process_done(struct process *p);

#endif
