/*
 * struct dialect: the functions of one wire dialect (OpenAI Chat Completions, Responses,
 * Completions; Anthropic Messages): a parser of requests and a writer of answers. Both are pure: no
 * I/O, no clock, no session. The api layer owns the connection.
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

/* The headers of a request. Names are in lower case. */
struct dialect_headers {
    const struct dialect_header {
        struct str name, value;
    } * at;

    size_t n;
};

/* Further input for reading a request: the rules for images, and earlier items of the session by id
 * (previous_response_id and item_reference of Responses). Each function may be NULL if nothing is
 * stored. Results are in the arena. */
struct dialect_past {
    /* Returns an array of all messages up to and including that response. NULL: unknown id. Sets
     * *ret_instructions to those of its request, or absent. */
    const struct json *(*response)(void *ctx, struct arena *a, struct str response_id,
                                   struct str *ret_instructions);
    /* Returns only the message of that response, as its client got it. NULL: unknown id. Sets
     * *ret_compacts if its request asked for a compaction. */
    const struct json *(*message)(void *ctx, struct str response_id, bool *ret_compacts);
    /* Reports whether an answer of the session has that upstream seal. NULL: no session. */
    bool (*sealed)(void *ctx, struct str seal);
    void *ctx;
    const struct image_rules *images;   /* NULL: the model accepts only text */
    struct image_lifts *lifts;          /* images that were lifted out of the body; NULL: none */
    const struct known_messages *known; /* messages that need not be made again; NULL: none */
};

struct dialect_writer;

struct dialect {
    const char *name;    /* label in metrics: "chat", "messages", "responses", "completions" */
    const char *id_head; /* prefix of its responses' ids; NULL: they have no ids */
    bool ends_whole;     /* the last event of a stream contains the whole answer again */
    unsigned members;    /* its rows in request_members.def (IN_...); 0: no rows */
    const char *list;    /* member with the conversation (known_body.h); NULL: none */

    /* Makes the message of one item of that list. `at`: the item's index, for errors. Returns -1
     * and *e if the item is invalid. NULL: the dialect does not make one message per item. */
    int (*message)(struct arena *a, const struct json *item, uint32_t at, struct json *ret,
                   struct err *e);

    /* Fills *ret with defaults, then from `body`, a JSON object. Invalid input fails with
     * ERR_INVALID, and e->param names the field. Unknown fields are accepted. */
    int (*parse)(struct arena *a, const struct json *body, const struct dialect_headers *headers,
                 const struct dialect_past *past, struct chat_request *ret, struct err *e);

    /* Makes a writer for one answer, in the arena. Its sink appends bytes to `out`: SSE events if
     * req->stream, otherwise one JSON text at the end. The api layer may send and clear `out` at
     * any time. `body` is the parsed request, of which the answer echoes members. */
    struct dialect_writer *(*writer)(struct arena *a, const struct chat_request *req,
                                     const struct json *body, struct buf *out);

    /* Lists the members of the request that a stored answer must echo, by enum asked_text. The
     * texts are in the arena or the body. NULL: no such members. */
    const struct str *(*asked)(struct arena *a, const struct chat_request *req,
                               const struct json *body);

    /* Checks the total size of the recorded members of a parsed request that are in no prompt. If
     * they exceed max_bytes, fails with ERR_INVALID, which names the field. NULL: no members are
     * recorded. */
    int (*recorded)(struct arena *a, const struct json *body, uint64_t max_bytes, struct err *e);

    /* Writes the error body in the dialect's form, for errors before any byte of an answer was
     * sent. */
    void (*error)(const struct err *e, struct str request_id, struct buf *out);
};

extern const struct dialect dialect_chat, dialect_messages, dialect_count_tokens, dialect_responses,
    dialect_completions;

struct dialect_writer {
    const struct answer_sink *sink; /* call with ctx = this writer */
};

/* Returns the path without prefixes that clients add or repeat: /v1, /openai (Groq, Azure),
 * /deployments/NAME (Azure; only before a dialect's path). */
struct str dialect_path(struct str path);

/* Returns the dialect of a request path below /v1 ("/chat/completions" ...), or NULL. */
const struct dialect *dialect_for_path(struct str path);

/* Returns the i-th path that dialects serve (after /v1), or NULL after the last. */
const char *dialect_path_at(size_t i);

/* Returns the i-th path's summary, one sentence for /openapi.json, or NULL after the last. */
const char *dialect_summary_at(size_t i);

#endif
