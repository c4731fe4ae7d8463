/*
 * The heads that the router sends on: a parsed head as an iovec over the bytes it came in, without
 * hop-by-hop lines, with our own version, framing and connection lines. Pure; nothing is copied but
 * the few lines of our own.
 */
#ifndef RG_ROUTER_HEADS_H
#define RG_ROUTER_HEADS_H

#include "common/net/http1.h"

enum {
    HEADS_EXTRA = 160,                /* bytes of our own lines, at most */
    HEADS_IOV = HTTP1_HEADERS_MAX + 5 /* entries, one for a part of the body included */
};

/* What an answer's head says beside what the worker said. */
struct heads_answer {
    bool closing;          /* the connection ends with this answer */
    bool old;              /* the client speaks HTTP/1.0 */
    struct str request_id; /* absent when the worker gave one */
};

/* The head of a request, and `body`, what has come of its body (may be empty). `confirms`: the
 * worker is told that its answer will be confirmed (link_confirm). `extra` holds our lines and must
 * live as long as iov. Returns the number of entries. */
int heads_request(const struct http1_head *h, bool confirms, struct str body,
                  char extra[HEADS_EXTRA], struct iovec iov[HEADS_IOV]);

/* The head of a final answer that stands at `in`; there is room for one more entry. */
int heads_answer(const struct http1_head *h, const char *in, const struct heads_answer *a,
                 char extra[HEADS_EXTRA], struct iovec iov[HEADS_IOV]);

/* The head of a 1xx that stands at `in`. */
int heads_interim(const struct http1_head *h, const char *in, struct iovec iov[HEADS_IOV]);

#endif
