/*
 * struct upstream_text: what is kept of an OpenAI chat completion beside its ids, logprobs and the
 * deltas that went on, and the limits of its text. Pure.
 */
#ifndef RG_WIRE_UPSTREAM_TEXT_H
#define RG_WIRE_UPSTREAM_TEXT_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct engine_rows;
struct json;

struct upstream_text {
    struct buf finish, usage;
    size_t bytes;   /* of text, thought and calls so far */
    size_t n_calls; /* of a stream */
};

void upstream_text_done(struct upstream_text *t);

/* Takes a chunk. -1 ERR_ENGINE_INVALID when it is no such chunk, or beyond a limit, which is
 * named. */
int upstream_text_add(struct upstream_text *t, const struct json *chunk, struct err *e);

/* The message of a whole answer; the same. */
int upstream_text_check(struct upstream_text *t, const struct json *message, struct err *e);

/* The logprobs of an answer or a chunk (a list, or something else: none): the same, where one has
 * too many alternatives to be told in a step. */
int upstream_text_check_tops(const struct json *lps, struct err *e);

/* The logprobs of a whole answer. */
void upstream_text_rows(const struct json *doc, struct engine_rows *ret);

/* Appends what is needed of a whole answer behind its ids and logprobs: message, finish reason,
 * usage. */
void upstream_text_keep(const struct json *doc, struct buf *out);

/* Appends the same of a stream but for its message, which the deltas told. */
void upstream_text_write(const struct upstream_text *t, struct buf *out);

#endif
