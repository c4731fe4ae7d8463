/*
 * struct attempt_log: the output of an attempt's processes, in a file
 * LOGS/GROUP/ROLLOUT.ATTEMPT.log. The file has at most ATTEMPT_LOG_MAX bytes: the beginning and the
 * end of a longer output. The last bytes are also kept in memory, for the attempt's result. If the
 * file cannot be written, that is logged once, and the attempt continues without it.
 */
#ifndef RG_RUNNER_ATTEMPT_LOG_H
#define RG_RUNNER_ATTEMPT_LOG_H

#include <stdint.h>

#include "common/base/buf.h"

enum { ATTEMPT_LOG_MAX = 4 << 20, ATTEMPT_LOG_TAIL = 4096 };

struct attempt_log {
    char *path;
    int fd;         /* -1: there is no file */
    uint64_t total; /* bytes of output so far */
    struct buf tail;
};

/* Makes folder and file. `group` may be any text; it becomes the name of one folder. */
void attempt_log_open(struct attempt_log *l, const char *logs, struct str group, int64_t rollout,
                      int64_t attempt);
void attempt_log_add(struct attempt_log *l, struct str bytes);

/* Writes the end of a long log after its beginning and closes the file. */
void attempt_log_close(struct attempt_log *l);

/* Appends the last bytes as UTF-8; invalid bytes become '?'. */
void attempt_log_tail(const struct attempt_log *l, struct buf *out);
void attempt_log_done(struct attempt_log *l);

#endif
