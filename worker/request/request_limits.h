/*
 * struct request_limits, and holding a request against it, whatever its dialect. Lists
 * are counted in the body as it came; memory is counted in the request's arena, whose budget stops
 * the reading (arena_over). A limit of 0 is none.
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

/* What of pictures is taken. */
struct image_rules {
    const struct vision *vision; /* NULL: none; the model takes text only */
    uint64_t image_bytes;        /* of one picture */
    uint32_t images;             /* of one request */
    bool fetches;                /* http and https addresses may be fetched (--media-fetch) */
};

/* How much one request may ask for; 0: no limit. */
struct request_limits {
    uint64_t memory_bytes;   /* of the arena of one request */
    uint32_t growth;         /* bytes of arena for each byte of the body, above some for all */
    uint64_t schema_bytes;   /* of tools and response formats: keys and values */
    uint64_t recorded_bytes; /* of metadata, and of template arguments, likewise */
    uint32_t tools, stops, messages;
    uint32_t vocabulary; /* ids that the model has: of lists of ids and words; 0: not known */
    uint32_t context;    /* tokens of the model's context, of prompts of ids */
};

/* What every request may take, however short it is: history that it only names is read, too. */
enum { REQUEST_MEMORY_FREE = 64 << 20 };

/* The arena's budget for a request with a body of so many bytes. */
size_t request_limits_budget(const struct request_limits *l, size_t body_bytes);

/* The arena is within its budget, or -1 and ERR_BODY_TOO_LARGE with the limit's name. */
int request_limits_memory(const struct request_limits *l, const struct arena *a, struct err *e);

/* Where the model's vocabulary is not known, lists of ids and words have no more than this. */
enum { REQUEST_IDS_MAX = 1 << 20 };

/* The body's lists are within the limits, or -1 and e with field, count and limit: ERR_INVALID;
 * prompts of ids ERR_CONTEXT_LENGTH. */
int request_limits_lists(const struct request_limits *l, const struct json *body, struct err *e);

/* Members of a body's object: each name that a reader asks for is compared with all of theirs. */
enum { REQUEST_MEMBERS_MAX = 1024 };

/* Values in chat_template_kwargs, lists and objects included: they are compared with those of the
 * calls before, in whatever order the members stand. */
enum { REQUEST_ARGUMENTS_MAX = 4096 };

/* Calls of one message, and parts of all messages' contents, that a request may have: the loop
 * looks at each. */
enum { REQUEST_CALLS_MAX = 16384, REQUEST_PARTS_MAX = 50000 };

/* Bytes of a call's id, and of its name. What models and SDKs write has some 64; gateways before
 * other vendors' models put a signature of several KiB into an id. */
enum { REQUEST_CALL_TEXT_MAX = 64 << 10 };

/* Calls of one answer that the client is told, for the same reason: further ones are withheld, and
 * the answer's warning says so. */
enum { ANSWER_CALLS_MAX = 2048 };

/* Bytes of all stop strings of a request: finding them takes some 65 bytes of memory for each. And
 * of all bad words, which each answer sends to its engine. */
enum { REQUEST_STOP_BYTES_MAX = 256 << 10, REQUEST_WORD_BYTES_MAX = 256 << 10 };

/* Bytes of what a completion says beside its prompts (keys, texts, numbers, and one for each
 * value), taken as often as there are prompts: each is a call, which has all of that written for
 * its engine, and into its record. */
enum { REQUEST_BATCH_BYTES_MAX = 32 << 20 };

/* A body (an object) with so many prompts, 1 or more, is within that, or -1 and ERR_INVALID with
 * the field "prompt", what it takes and the limit. */
int request_limits_batch(const struct json *body, uint32_t n_prompts, struct err *e);

/* The messages that its dialect has read of a request (an array or NULL) are within these, or -1
 * and ERR_INVALID as above. */
int request_limits_parts(const struct json *messages, struct err *e);

#endif
