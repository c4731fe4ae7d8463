/*
 * Whole HTTP/1.1 answers of the router itself, with Content-Length. Error bodies have the form of
 * the dialect: OpenAI's, or Anthropic's for paths of the Messages API. Texts are fixed sentences
 * that reveal nothing internal. Pure.
 */
#ifndef RG_ROUTER_REPLY_H
#define RG_ROUTER_REPLY_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

/* What an answer needs of its request. A zeroed struct suits a head that could not be parsed. */
struct reply_to {
    bool head;             /* a HEAD request: the answer has no body, but its length */
    bool close;            /* the connection ends with this answer */
    bool old;              /* the client speaks HTTP/1.0: the answer names keep-alive */
    bool messages_dialect; /* Anthropic's error shape */
    struct str session;    /* value of Rollgate-Session, or absent */
    struct str request_id; /* value of Rollgate-Request-Id */
};

/* Appends an error answer, with status, code and retry flag of the error table. 503 has
 * Retry-After. */
void reply_error(struct buf *out, const struct reply_to *to, const struct err *e);

/* Appends an answer with this body. */
void reply_body(struct buf *out, const struct reply_to *to, int status, const char *content_type,
                struct str body);

#endif
