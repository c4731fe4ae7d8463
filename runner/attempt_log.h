/*
 * struct attempt_log: what an attempt's processes write, in a file LOGS/GROUP/ROLLOUT.ATTEMPT.log:
 * at most ATTEMPT_LOG_MAX bytes, of longer ones the beginning and the end. The last bytes are kept
 * in memory, too, for the attempt's result. A file that cannot be written is said once and costs
 * the file, not the attempt.
 */
#ifndef RG_RUNNER_ATTEMPT_LOG_H
#define RG_RUNNER_ATTEMPT_LOG_H

#include <stdint.h>

#include "common/base/buf.h"

enum { ATTEMPT_LOG_MAX = 4 << 20, ATTEMPT_LOG_TAIL = 4096 };

struct attempt_log {
    char *path;
    int fd;         /* -1: there is no file */
    uint64_t total; /* bytes that were written to it */
    struct buf tail;
};

/* Makes folder and file. `group` may be any text: it becomes one folder's name. */
void attempt_log_open(struct attempt_log *l, const char *logs, struct str group, int64_t rollout,
                      int64_t attempt);
void attempt_log_add(struct attempt_log *l, struct str bytes);

/* Writes the end of a long log after its beginning and closes the file. */
void attempt_log_close(struct attempt_log *l);

/* Appends the last bytes as UTF-8; invalid bytes become '?'. */
void attempt_log_tail(const struct attempt_log *l, struct buf *out);
void attempt_log_done(struct attempt_log *l);

#endif
