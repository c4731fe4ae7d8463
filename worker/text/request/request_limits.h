/*
 * struct request_limits, and the checks of a request of any dialect. Lists are counted in the body
 * as it came. Memory is counted in the request's arena, whose budget stops the reading
 * (arena_over). A limit of 0 means no limit.
 */
#ifndef RG_REQUEST_REQUEST_LIMITS_H
#define RG_REQUEST_REQUEST_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct err;
struct json;
struct vision;

/* The limits of pictures. */
struct image_rules {
    const struct vision *vision; /* NULL: the model accepts text only */
    uint64_t image_bytes;        /* limit of one image */
    uint32_t images;             /* number of images in one request */
    bool fetches;                /* http and https addresses may be fetched (--media-fetch) */
};

/* How much one request may ask for. 0: no limit. */
struct request_limits {
    uint64_t memory_bytes; /* limit of the arena of one request */
    /* bytes of arena for each byte of the body, in addition to a fixed amount */
    uint32_t growth;
    uint64_t schema_bytes;   /* limit of tools and response formats: keys and values */
    uint64_t recorded_bytes; /* limit of metadata, and of template arguments: keys and values */
    uint32_t tools, stops, messages;
    /* number of ids in the model's vocabulary, for lists of ids and words; 0: unknown */
    uint32_t vocabulary;
    uint32_t context; /* tokens of the model's context, for prompts of ids */
};

/* Memory that every request may use, however short its body is: history that it only names is read,
 * too. */
enum { REQUEST_MEMORY_FREE = 64 << 20 };

/* Returns the arena's budget for a request with a body of that size. */
size_t request_limits_budget(const struct request_limits *l, size_t body_bytes);

/* Checks that the arena is within its budget. Otherwise returns -1 and ERR_BODY_TOO_LARGE with the
 * limit's name. */
int request_limits_memory(const struct request_limits *l, const struct arena *a, struct err *e);

/* Checks the lengths of the body's lists. Returns -1 and e with field, count and limit:
 * ERR_INVALID, or for prompts of ids ERR_CONTEXT_LENGTH. */
int request_limits_lists(const struct request_limits *l, const struct json *body, struct err *e);

/* Checks that a body (an object) with this number of prompts is within the budget. Returns -1 and
 * ERR_INVALID with the field "prompt", its size and the limit. */
int request_limits_batch(const struct json *body, uint32_t n_prompts, struct err *e);

/* Checks texts, content parts and tool calls of the messages (an array or NULL). Returns -1 and
 * ERR_INVALID if they exceed the limits. */
int request_limits_parts(const struct json *messages, struct err *e);

#endif
