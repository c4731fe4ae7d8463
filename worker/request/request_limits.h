/*
 * Holding a request against its struct request_limits (chat_request.h), whatever its dialect. Lists
 * are counted in the body as it came; memory is counted in the request's arena, whose budget stops
 * the reading (arena_over). A limit of 0 is none.
 */
#ifndef RG_REQUEST_REQUEST_LIMITS_H
#define RG_REQUEST_REQUEST_LIMITS_H

#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "worker/request/chat_request.h"

/* What every request may take, however short it is: history that it only names is read, too. */
enum { REQUEST_MEMORY_FREE = 64 << 20 };

/* The arena's budget for a request with a body of so many bytes. */
size_t request_limits_budget(const struct request_limits *l, size_t body_bytes);

/* The arena is within its budget, or -1 and ERR_BODY_TOO_LARGE with the limit's name. */
int request_limits_memory(const struct request_limits *l, const struct arena *a, struct err *e);

/* The body's lists are within the limits, or -1 and ERR_INVALID with field, count and limit. */
int request_limits_lists(const struct request_limits *l, const struct json *body, struct err *e);

#endif
