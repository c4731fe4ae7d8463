/* struct run_board, for its two files. */
#ifndef RG_PROC_RUN_BOARD_INTERNAL_H
#define RG_PROC_RUN_BOARD_INTERNAL_H

#include <pthread.h>

#include "common/proc/run_board.h"

enum { RUN_TASKS = 16, RUN_MODELS = 8, RUN_VERSIONS = 16 };

struct run_minute {
    uint32_t minute, n;
    struct run_ended slowest[RUN_SLOWEST]; /* longest first */
};

struct run_board {
    pthread_mutex_t lock; /* guards what follows but `since_ms` */
    uint64_t since_ms;
    int64_t newest_version;  /* of the policy's own weights; -1: not known */
    uint64_t version_set_ms; /* by a trainer; 0: by none */
    struct run_series total, evaluation;
    struct run_series rows[RUN_TASKS + RUN_MODELS + RUN_VERSIONS];
    struct run_minute minutes[RUN_MINUTES];
    struct run_mismatch_row mismatch[RUN_ROWS_MAX];
    struct run_token worst[RUN_WORST]; /* worst first */
    size_t n_worst;
};

/* The process that held the lock may have died: what it left is used as it is. */
void run_board_lock(struct run_board *b);
void run_board_unlock(struct run_board *b);

#endif
