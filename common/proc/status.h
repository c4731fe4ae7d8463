/*
 * Messages between supervisor and children.
 *
 * Status records: child -> supervisor over one pipe. Each is written with one call and is shorter
 * than PIPE_BUF, so records of several children never mix. A child reports once that it serves, or
 * why it cannot. Its later state is on the board.
 */
#ifndef RG_PROC_STATUS_H
#define RG_PROC_STATUS_H

#include <stdint.h>

#include "common/base/err.h"

enum status_kind {
    STATUS_READY,   /* the child serves; text: a remark for the log, or "" */
    STATUS_FAILED,  /* the child cannot start; text: why */
    STATUS_ADOPTED, /* the sessions of place `value` are now served here */
};

struct status {
    uint32_t slot;
    uint32_t kind; /* an enum status_kind */
    int32_t pid;
    uint32_t value;
    char text[240];
};

/* Orders: supervisor -> child over a SOCK_SEQPACKET pair, one message each. */
enum order_kind {
    ORDER_ADOPT,  /* adopt `place`; its listening socket comes with the order */
    ORDER_LEAVE,  /* keeper: board->leaving is set */
    ORDER_RELOAD, /* read the configuration again and apply the live settings */
};

struct order {
    uint32_t kind; /* an enum order_kind */
    uint32_t place;
};

/* Sends one order, with a descriptor if fd >= 0 (the caller keeps it). Returns -1 with ERR_IO. */
int order_send(int to, const struct order *o, int fd, struct err *e);

/* Reads one order from a non-blocking socket. Returns 1: read (*ret_fd becomes the caller's; -1:
 * the order has no descriptor); 0: no order waits; -1: end of file or broken. */
int order_receive(int from, struct order *ret, int *ret_fd);

/* Writes one record. Returns -1 with ERR_IO if the supervisor has ended. */
int status_send(int fd, const struct status *s, struct err *e);

/* Reads one record from a non-blocking pipe. Returns 1: read; 0: no record waits; -1: end of file
 * or broken. */
int status_receive(int fd, struct status *ret);

#endif
