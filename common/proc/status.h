/*
 * Status records: child -> supervisor over one pipe, each written whole (they are shorter than
 * PIPE_BUF, so records of several children never mix). A child says once that it serves, or why it
 * cannot; anything after that is read off the board.
 */
#ifndef RG_PROC_STATUS_H
#define RG_PROC_STATUS_H

#include <stdint.h>

#include "common/base/err.h"

enum status_kind {
    STATUS_READY,   /* serves; text: a remark for the log, or "" */
    STATUS_FAILED,  /* cannot start; text: why */
    STATUS_ADOPTED, /* the sessions of place `value` are now served here */
    STATUS_HANDED,  /* a retiring worker's journal is closed, another may open it */
};

struct status {
    uint32_t slot;
    uint32_t kind; /* enum status_kind */
    int32_t pid;
    uint32_t value;
    char text[240];
};

/* Writes one record; -1 with ERR_IO when the supervisor is gone. */
int status_send(int fd, const struct status *s, struct err *e);

/* Reads one record from a non-blocking pipe: 1 got one, 0 none now, -1 end of file or broken. */
int status_receive(int fd, struct status *ret);

#endif
