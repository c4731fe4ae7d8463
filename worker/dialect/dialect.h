/*
 * struct dialect: what one wire dialect (OpenAI chat, Anthropic messages, OpenAI responses,
 * completions) must provide: a pure request parser and a pure writer of answers. No I/O, no clock,
 * no session: the api layer owns the connection and hands bytes on.
 */
#ifndef RG_DIALECT_DIALECT_H
#define RG_DIALECT_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

struct answer_sink;
struct arena;
struct chat_request;
struct err;
struct image_rules;
struct json;
struct known_messages;

/* Header look-up of the present request; absent if it is not there. Names in lower case. */
struct dialect_headers {
    struct str (*get)(const void *ctx, const char *name);
    const void *ctx;
};

/* Further input for reading a request: the rules of pictures, and earlier items of the session by
 * id, for previous_response_id and item_reference (Responses). Each function may be NULL if nothing
 * is stored. Results live in the arena. */
struct dialect_past {
    /* All messages up to and including that response, an array; NULL: unknown id. *ret_instructions
     * are those of its request, or absent. */
    const struct json *(*response)(void *ctx, struct arena *a, struct str response_id,
                                   struct str *ret_instructions);
    /* Returns that response's own message alone, as the session stores it; NULL: unknown id. */
    const struct json *(*message)(void *ctx, struct str response_id);
    /* Whether an answer of the session has that seal, an upstream's. NULL: no session. */
    bool (*sealed)(void *ctx, struct str seal);
    void *ctx;
    const struct image_rules *images;   /* NULL: the model takes text only */
    struct image_lifts *lifts;          /* pictures that were taken out of the body; NULL: none */
    const struct known_messages *known; /* the first of its messages, made already; or NULL */
};

struct dialect_writer;

struct dialect {
    const char *name;    /* label in metrics: "chat", "messages", "responses", "completions" */
    const char *id_head; /* start of its responses' ids; NULL: they have no ids */
    bool ends_whole;     /* the end of its streams contains the whole answer again */
    unsigned members;    /* its rows in request_members.def (IN_...); 0: none */
    const char *list;    /* the member that has the conversation (known_body.h); NULL: none */

    /* Makes the message of one item of that list, its place being `at`, or what is wrong with it.
     * NULL: messages do not follow from one item each. */
    int (*message)(struct arena *a, const struct json *item, uint32_t at, struct json *ret,
                   struct err *e);

    /* body is a JSON object. Bad input: ERR_INVALID with e->param naming the field. Unknown fields
     * are accepted. *ret is filled with defaults first. */
    int (*parse)(struct arena *a, const struct json *body, const struct dialect_headers *headers,
                 const struct dialect_past *past, struct chat_request *ret, struct err *e);

    /* A writer for one answer, in the arena. Its sink appends bytes to `out` (SSE events when
     * req->stream, nothing until finish otherwise); the api layer sends and clears out whenever it
     * likes. `body` is the parsed request, for what the answer must echo. */
    struct dialect_writer *(*writer)(struct arena *a, const struct chat_request *req,
                                     const struct json *body, struct buf *out);

    /* Lists what a stored answer must echo of its request: texts in the arena or of the body, by
     * enum asked_text. NULL: nothing. */
    const struct str *(*asked)(struct arena *a, const struct chat_request *req,
                               const struct json *body);

    /* Checks that the recorded members of a parsed request that are in no prompt have at most so
     * many bytes; or -1 and ERR_INVALID with the field. NULL: none are recorded. */
    int (*recorded)(struct arena *a, const struct json *body, uint64_t max_bytes, struct err *e);

    /* The error body in the dialect's shape (before any byte was sent). */
    void (*error)(const struct err *e, struct str request_id, struct buf *out);
};

struct dialect_writer {
    const struct answer_sink *sink; /* call with ctx = this writer */
    bool failed_in_stream;          /* an in-stream error went out: close after it */
};

/* The path without what clients put before it, or base URLs have once too often: /v1, /openai
 * (Groq, Azure), /deployments/NAME (Azure; only before a dialect's path). */
struct str dialect_path(struct str path);

/* Finds a dialect by the request path below /v1 ("/chat/completions" ...), or NULL. */
const struct dialect *dialect_for_path(struct str path);

/* Returns the i-th path that dialects serve (after /v1), or NULL after the last. */
const char *dialect_path_at(size_t i);
const char *dialect_summary_at(size_t i); /* one sentence for /openapi.json */

#endif
