/*
 * Messages between supervisor and children.
 *
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
};

struct status {
    uint32_t slot;
    uint32_t kind; /* enum status_kind */
    int32_t pid;
    uint32_t value;
    char text[240];
};

/* Orders: supervisor -> child over a SOCK_SEQPACKET pair, one message each. */
enum order_kind {
    ORDER_ADOPT,  /* take over `place`; its listening socket comes along */
    ORDER_RELOAD, /* read the configuration again and apply what may change */
};

struct order {
    uint32_t kind; /* enum order_kind */
    uint32_t place;
};

/* Sends one order, with a descriptor when fd >= 0 (it stays the caller's). -1 with ERR_IO. */
int order_send(int to, const struct order *o, int fd, struct err *e);

/* Reads one order from a non-blocking socket: 1 got one (*ret_fd becomes the caller's, -1 when none
 * came), 0 none now, -1 end of file or broken. */
int order_receive(int from, struct order *ret, int *ret_fd);

/* Writes one record; -1 with ERR_IO when the supervisor is gone. */
int status_send(int fd, const struct status *s, struct err *e);

/* Reads one record from a non-blocking pipe: 1 got one, 0 none now, -1 end of file or broken. */
int status_receive(int fd, struct status *ret);

#endif
