/* Layout of struct run_board, shared by its two files. */
#ifndef RG_PROC_RUN_BOARD_INTERNAL_H
#define RG_PROC_RUN_BOARD_INTERNAL_H

#include <pthread.h>

#include "common/proc/run_board.h"

enum { RUN_TASKS = 16, RUN_MODELS = 8, RUN_VERSIONS = 16 };

struct run_minute {
    uint32_t minute, n;
    struct run_ended slowest[RUN_SLOWEST]; /* longest first */
};

/* A row of a weight version: a ring of minutes. The last row counts the versions without a row. */
struct run_version {
    char name[RUN_NAME_MAX];
    uint64_t newest_ms;            /* when a report was counted last; 0: the row is free */
    uint32_t minutes[RUN_MINUTES]; /* minute of each slot (minutes since 1970); 0: empty */
};

struct run_board {
    pthread_mutex_t lock; /* guards all fields below except `since_ms` */
    uint64_t since_ms;
    int64_t newest_version;  /* newest version of the policy's own weights; -1: unknown */
    uint64_t version_set_ms; /* when a trainer set the version; 0: never */
    struct run_series total, evaluation;
    struct run_series rows[RUN_TASKS + RUN_MODELS + RUN_VERSIONS];
    struct run_minute minutes[RUN_MINUTES];
    struct run_version versions[RUN_ROWS_MAX];
    struct run_token worst[RUN_WORST]; /* worst first */
    size_t n_worst;
    /* by row and slot of `versions`; memory is used for the slots that have a minute */
    struct run_mismatch mismatch[RUN_ROWS_MAX][RUN_MINUTES][RUN_POSITIONS];
};

/* Locks the board. If the process that held the lock has died, the data is used as it was left. */
void run_board_lock(struct run_board *b);
void run_board_unlock(struct run_board *b);

#endif
