/*
 * struct request_limits, and checking a request of any dialect against it. Lists are counted in the
 * body as it came; memory is counted in the request's arena, whose budget stops the reading
 * (arena_over). A limit of 0 is none.
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
    const struct vision *vision; /* NULL: none; the model takes text only */
    uint64_t image_bytes;        /* limit of one image */
    uint32_t images;             /* number of images in one request */
    bool fetches;                /* http and https addresses may be fetched (--media-fetch) */
};

/* How much one request may ask for; 0: no limit. */
struct request_limits {
    uint64_t memory_bytes;   /* limit of the arena of one request */
    uint32_t growth;         /* bytes of arena for each byte of the body, above some for all */
    uint64_t schema_bytes;   /* limit of tools and response formats: keys and values */
    uint64_t recorded_bytes; /* limit of metadata, and of template arguments: keys and values */
    uint32_t tools, stops, messages;
    uint32_t vocabulary; /* ids that the model has: of lists of ids and words; 0: not known */
    uint32_t context;    /* tokens of the model's context, of prompts of ids */
};

/* Memory that every request may use, however short it is: history that it only names is read, too.
 */
enum { REQUEST_MEMORY_FREE = 64 << 20 };

/* Returns the arena's budget for a request with a body of so many bytes. */
size_t request_limits_budget(const struct request_limits *l, size_t body_bytes);

/* The arena is within its budget, or -1 and ERR_BODY_TOO_LARGE with the limit's name. */
int request_limits_memory(const struct request_limits *l, const struct arena *a, struct err *e);

/* The body's lists are within the limits, or -1 and e with field, count and limit: ERR_INVALID;
 * prompts of ids ERR_CONTEXT_LENGTH. */
int request_limits_lists(const struct request_limits *l, const struct json *body, struct err *e);

/* Checks that a body (an object) with so many prompts, 1 or more, is within the budget. -1 and
 * ERR_INVALID with the field "prompt", its size and the limit. */
int request_limits_batch(const struct json *body, uint32_t n_prompts, struct err *e);

/* Texts, content parts and tool calls of the messages (an array or NULL) are within the limits, or
 * -1 and ERR_INVALID. */
int request_limits_parts(const struct json *messages, struct err *e);

#endif
