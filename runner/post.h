/*
 * struct post: one request, as a rule a POST of JSON, whose whole answer is wanted: to the gateway,
 * or to a service that runs attempts.
 */
#ifndef RG_RUNNER_POST_H
#define RG_RUNNER_POST_H

#include "common/base/buf.h"
#include "common/net/http_client.h"

struct post;

/* status 0: no answer, *e says why. The post is gone afterwards. */
typedef void (*post_fn)(void *ctx, int status, struct str body, const struct err *e);

/* path: behind the client's URL. key: NULL or of the Authorization header. body is taken over.
 * total_timeout_ms 0: none. fn is never called from here. */
struct post *post_start(struct http_client *c, const char *path, const char *key, struct buf *body,
                        uint64_t total_timeout_ms, post_fn fn, void *ctx);

/* The same with any method; body NULL: none. */
struct post *post_request(struct http_client *c, const char *method, const char *path,
                          const char *key, struct buf *body, uint64_t total_timeout_ms, post_fn fn,
                          void *ctx);

/* Ends it without a callback. NULL is accepted. */
void post_cancel(struct post *p);

#endif
