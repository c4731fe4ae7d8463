/*
 * The request's way up: body bytes from the client to the worker, scanned as they pass, copied or
 * (long Content-Length bodies to unix sockets) spliced. The worker's refusal stops the reading.
 */
#ifndef RG_ROUTER_UPLOAD_H
#define RG_ROUTER_UPLOAD_H

#include "router/conn.h"

/* Sends bytes to the worker, or parks them while the link is still connecting. When the worker
 * takes no more at all, c->up_broken is set. */
void upload_write(struct conn *c, struct iovec *iov, int n);

/* Moves what can be moved within the budget (bytes, counted down). The connection may be closed or
 * have become a refusal afterwards. */
void upload_pump(struct conn *c, size_t *budget);

/* For a body that breaks the rules or is too much: ends the exchange with an error, or at once when
 * the answer has begun. The worker has seen a part of the body and loses the connection. */
void upload_refuse(struct conn *c, const struct err *e);

#endif
