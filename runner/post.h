/*
 * Requests of an executor: each a POST of JSON, to the gateway or to a service that runs
 * attempts.
 */
#ifndef RG_RUNNER_POST_H
#define RG_RUNNER_POST_H

#include <stdint.h>

#include "common/net/http_fetch.h"

struct buf;

/* path: behind the client's URL. key: NULL or of the Authorization header. body is taken over.
 * total_timeout_ms 0: none. */
struct http_fetch *post_start(struct http_client *c, const char *path, const char *key,
                              struct buf *body, uint64_t total_timeout_ms, http_fetch_fn fn,
                              void *ctx);

#endif
