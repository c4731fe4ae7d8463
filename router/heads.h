/*
 * The heads that the router sends on: a parsed head as an iovec over the bytes it came in, without
 * hop-by-hop lines, with our own version, framing and connection lines. Pure; nothing is copied but
 * the few lines of our own.
 */
#ifndef RG_ROUTER_HEADS_H
#define RG_ROUTER_HEADS_H

#include "common/base/limits.h"
#include "common/net/http1.h"

enum {
    HEADS_EXTRA = 320,                /* bytes of our own lines, at most */
    HEADS_IOV = HTTP1_HEADERS_MAX + 8 /* entries, one for a part of the body included */
};

/* What an answer's head says beside what the worker said. */
struct heads_answer {
    bool closing;          /* the connection ends with this answer */
    bool old;              /* the client speaks HTTP/1.0 */
    struct str request_id; /* absent when the worker gave one */
};

/* What a request's head says in addition to what the client said. */
struct heads_request {
    bool confirms;   /* the answer will be confirmed (link_confirm) */
    bool encrypted;  /* the client speaks TLS: says so, unless a proxy has written it */
    struct str host; /* of another gateway: the Host that it gets, at most HEADS_HOST_MAX bytes;
                        the client's goes into X-Forwarded-Host. Absent: Host stays */
    struct str
        forwarded; /* HTTP1_FORWARDED_BY, at most HEADS_HOST_MAX bytes; absent: no such line */
};

enum { HEADS_HOST_MAX = 72 };

/* The head of a request, and `body`, what has come of its body (may be empty). Marks the Host of h
 * as dropped if r->host replaces it. `extra` holds our lines and must live as long as iov. Returns
 * the number of entries. */
int heads_request(struct http1_head *h, const struct heads_request *r, struct str body,
                  char extra[HEADS_EXTRA], struct iovec iov[HEADS_IOV]);

/* The head of a final answer that stands at `in`; there is room for one more entry. */
int heads_answer(const struct http1_head *h, const char *in, const struct heads_answer *a,
                 char extra[HEADS_EXTRA], struct iovec iov[HEADS_IOV]);

/* The head of a 1xx that stands at `in`. */
int heads_interim(const struct http1_head *h, const char *in, struct iovec iov[HEADS_IOV]);

#endif
