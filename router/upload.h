/*
 * The request's way up: body bytes from the client to the worker, scanned as they pass, copied or
 * (long Content-Length bodies to unix sockets) spliced. The worker's refusal stops the reading.
 */
#ifndef RG_ROUTER_UPLOAD_H
#define RG_ROUTER_UPLOAD_H

#include "router/conn.h"

/* Larger requests are not kept for a second try. */
enum { UPLOAD_KEPT_MAX = 16 * 1024, UPLOAD_HOP_KEPT_MAX = 64 * 1024 /* at a different node */ };

/* Sends bytes to the worker, or parks them while the link is still connecting. When the worker
 * takes no more at all, c->upload is UPLOAD_ENDED afterwards. */
void upload_write(struct conn *c, struct iovec *iov, int n);

/* Moves what can be moved within the budget (bytes, counted down). Returns WAIT, CLOSE (the client
 * is gone), or REFUSE with *e: the body breaks the rules. */
enum verdict upload_pump(struct conn *c, size_t *budget, struct err *e);

/* The verdict on a body that is not to come any further: REFUSE, or CLOSE when the answer has
 * begun. The worker has seen a part of the body and loses the connection. */
enum verdict upload_refuse(struct conn *c);

#endif
