/*
 * Answers that the router gives itself, as whole HTTP/1.1 messages with Content-Length. Error
 * bodies have the shape of the dialect: OpenAI's, or Anthropic's for paths of the Messages API;
 * texts are fixed sentences, they show nothing of the inside. Pure: bytes out.
 */
#ifndef RG_ROUTER_REPLY_H
#define RG_ROUTER_REPLY_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

/* What the answer needs to know of the request. A zeroed one suits a head that could not be read.
 */
struct reply_to {
    bool head;             /* a HEAD request: no body, but its length */
    bool close;            /* the connection ends with this answer */
    bool old;              /* the client speaks HTTP/1.0: say keep-alive aloud */
    bool messages_dialect; /* Anthropic's error shape */
    struct str session;    /* for Rollgate-Session, or absent */
    struct str request_id; /* for Rollgate-Request-Id */
};

/* Appends an error answer: status, code and retry flag from the error table; 503 says when to come
 * again. */
void reply_error(struct buf *out, const struct reply_to *to, const struct err *e);

/* Appends an answer with this body. */
void reply_body(struct buf *out, const struct reply_to *to, int status, const char *content_type,
                struct str body);

#endif
