/*
 * Heads that the router forwards: a parsed head as an iovec over the received bytes, without
 * hop-by-hop lines, and with our version, framing and connection lines. Pure. Only our own lines
 * are copied.
 */
#ifndef RG_ROUTER_HEADS_H
#define RG_ROUTER_HEADS_H

#include "common/base/limits.h"
#include "common/net/http1.h"

enum {
    HEADS_EXTRA = 384,                /* most bytes of our own lines */
    HEADS_IOV = HTTP1_HEADERS_MAX + 8 /* entries, including one for bytes of the body */
};

/* What we add to the head of an answer. */
struct heads_answer {
    bool closing;          /* the connection ends with this answer */
    bool old;              /* the client speaks HTTP/1.0 */
    struct str request_id; /* absent if the worker sent one */
};

/* What we add to the head of a request. */
struct heads_request {
    bool confirms;      /* the answer will be confirmed (link_confirm) */
    bool expects;       /* the body is sent after 100 Continue */
    uint64_t waited_ms; /* HTTP1_WAITED; 0: no such line */
    bool encrypted;     /* the client speaks TLS: X-Forwarded-Proto, if no proxy set it */
    struct str host;    /* Host for a different gateway, at most HEADS_HOST_MAX bytes. The client's
                           becomes X-Forwarded-Host. Absent: no change */
    /* HTTP1_FORWARDED_BY, at most HEADS_FORWARDER_MAX bytes; absent: no such line */
    struct str forwarded;
};

enum { HEADS_HOST_MAX = 72, HEADS_FORWARDER_MAX = 81 };

/* Reports whether a worker, which takes HTTP1_CLIENT_HEADERS_MAX headers, can take those of h and
 * some of ours. Without space it gets none of the lines that it can do without. */
bool heads_have_space(const struct http1_head *h);

/* Makes the head of a request, followed by `body`, the first bytes of its body, which may be empty.
 * Marks the Host of h as dropped if r->host replaces it. `extra` receives our lines and must live
 * as long as iov. Returns the number of entries. */
int heads_request(struct http1_head *h, const struct heads_request *r, struct str body,
                  char extra[HEADS_EXTRA], struct iovec iov[HEADS_IOV]);

/* Makes the head of a final answer whose bytes begin at `in`. iov has space for one additional
 * entry. Returns the number of entries. */
int heads_answer(const struct http1_head *h, const char *in, const struct heads_answer *a,
                 char extra[HEADS_EXTRA], struct iovec iov[HEADS_IOV]);

/* Makes the head of a 1xx whose bytes begin at `in`. Returns the number of entries. */
int heads_interim(const struct http1_head *h, const char *in, struct iovec iov[HEADS_IOV]);

#endif
