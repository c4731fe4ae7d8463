/*
 * struct upstream_text: what is kept of an OpenAI chat completion beside its ids, logprobs and the
 * deltas that went on, and the limits of its text. Pure.
 */
#ifndef RG_WIRE_UPSTREAM_TEXT_H
#define RG_WIRE_UPSTREAM_TEXT_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct engine_rows;
struct json;
struct upstream_out;
struct upstream_text;

struct upstream_text *upstream_text_new(void);

/* NULL is fine. */
void upstream_text_free(struct upstream_text *t);

/* Takes a chunk, or the whole answer. Messages in the one form (upstream_out.h) are appended to
 * out. -1 ERR_ENGINE_INVALID when it is no such document, or beyond a limit, which is named. */
int upstream_text_add(struct upstream_text *t, const struct json *doc,
                      const struct upstream_out *out, struct err *e);

/* Appends the messages that waited: the stream has ended. -1 ERR_ENGINE_INVALID. */
int upstream_text_end(struct upstream_text *t, const struct upstream_out *out, struct err *e);

/* The logprobs of an answer or a chunk (a list, or something else: none): the same, where one has
 * too many alternatives to be told in a step. */
int upstream_text_check_tops(const struct json *lps, struct err *e);

/* The logprobs of a whole answer. */
void upstream_text_rows(const struct json *doc, struct engine_rows *ret);

/* Appends what is needed of an answer besides its ids, its logprobs and the messages that went on:
 * `rest`, the messages that did not, whether it was filtered, usage, and what is signed. */
void upstream_text_write(const struct upstream_text *t, const struct json *rest, struct buf *out);

#endif
