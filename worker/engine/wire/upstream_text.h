/*
 * struct upstream_text: an OpenAI chat completion put together from its stream of chunks, so that
 * who reads the answer gets one body either way. Pure.
 */
#ifndef RG_WIRE_UPSTREAM_TEXT_H
#define RG_WIRE_UPSTREAM_TEXT_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct engine_rows;
struct json;

struct upstream_call {
    struct buf id, name, arguments;
};

struct upstream_text {
    struct buf id, model, role, content, reasoning, refusal, finish, usage;
    bool has_content;

    struct {
        struct upstream_call *at;
        size_t n, cap;
    } calls;
};

void upstream_text_done(struct upstream_text *t);

/* Takes a chunk. -1 ERR_ENGINE_INVALID when it is no such chunk. */
int upstream_text_add(struct upstream_text *t, const struct json *chunk, struct err *e);

/* The logprobs of a whole answer. */
void upstream_text_rows(const struct json *doc, struct engine_rows *ret);

/* Appends what is needed of a whole answer behind its ids and logprobs: message, finish reason,
 * usage. */
void upstream_text_keep(const struct json *doc, struct buf *out);

/* Appends the whole answer as a chat.completion object. */
void upstream_text_write(const struct upstream_text *t, struct buf *out);

#endif
