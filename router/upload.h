/*
 * Relays the request's body from the client to the worker. The bytes are scanned, and copied or, if
 * a long body with Content-Length goes to a Unix socket, spliced. Reading stops if the worker
 * refuses bytes.
 */
#ifndef RG_ROUTER_UPLOAD_H
#define RG_ROUTER_UPLOAD_H

#include "router/conn.h"

/* Largest requests that are kept for a second try, in bytes. */
enum { UPLOAD_KEPT_MAX = 16 * 1024, UPLOAD_HOP_KEPT_MAX = 64 * 1024 /* at a different node */ };

/* Sends bytes to the worker. Parks them while the link is connecting. If the worker accepts no more
 * bytes at all, c->upload is UPLOAD_ENDED afterwards. */
void upload_write(struct conn *c, struct iovec *iov, int n);

/* Moves bytes of the request, at most *budget, which is decreased. Returns WAIT, CLOSE (the client
 * is gone), or REFUSE with *e: the body breaks the rules. */
enum verdict upload_pump(struct conn *c, size_t *budget, struct err *e);

/* Returns the verdict on a body that must not continue: REFUSE, or CLOSE if the answer has begun.
 * The worker has seen a part of the body, and loses the connection. */
enum verdict upload_refuse(struct conn *c);

#endif
