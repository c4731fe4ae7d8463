/*
 * Requests of an executor: each is a POST of JSON, to the gateway or to a service that runs
 * attempts.
 */
#ifndef RG_RUNNER_POST_H
#define RG_RUNNER_POST_H

#include <stdint.h>

#include "common/net/http_fetch.h"

struct buf;

/* Sends a POST. path: appended to the client's URL. key: for the Authorization header, or NULL.
 * Takes ownership of body. total_timeout_ms 0: no limit. */
struct http_fetch *post_start(struct http_client *c, const char *path, const char *key,
                              struct buf *body, uint64_t total_timeout_ms, http_fetch_fn fn,
                              void *ctx);

#endif
