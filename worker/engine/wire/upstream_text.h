/*
 * struct upstream_text: keeps the data of an OpenAI chat completion other than ids, logprobs and
 * the deltas that were passed on, and checks the limits of its text. Pure.
 */
#ifndef RG_WIRE_UPSTREAM_TEXT_H
#define RG_WIRE_UPSTREAM_TEXT_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct engine_rows;
struct json;
struct upstream_out;
struct upstream_text;

struct upstream_text *upstream_text_new(void);

/* Accepts NULL. */
void upstream_text_free(struct upstream_text *t);

/* Reads a chunk, or the whole answer. Appends messages in normalised form (upstream_out.h) to out.
 * Returns -1 with ERR_ENGINE_INVALID if it is not such a document, or exceeds a limit, which is
 * named. */
int upstream_text_add(struct upstream_text *t, const struct json *doc,
                      const struct upstream_out *out, struct err *e);

/* Appends the messages that have waited, because the stream has ended. Returns -1 with
 * ERR_ENGINE_INVALID. */
int upstream_text_end(struct upstream_text *t, const struct upstream_out *out, struct err *e);

/* Checks the logprobs of an answer or a chunk (anything but a list means none): none may have too
 * many alternatives for one step. */
int upstream_text_check_tops(const struct json *lps, struct err *e);

/* Checks n logprobs that the client wants, and their alternatives: each is a number; an
 * alternative's may be null. Returns -1 with ERR_ENGINE_INVALID, which names the field. */
int upstream_text_check_logprobs(const struct json *lps, size_t n, struct err *e);

/* Reads the logprobs of a whole answer. */
void upstream_text_rows(const struct json *doc, struct engine_rows *ret);

/* Appends the data of an answer other than ids, logprobs and messages that were passed on: `rest`
 * (the messages that were not), whether it was filtered, usage, and signed members. */
void upstream_text_write(const struct upstream_text *t, const struct json *rest, struct buf *out);

#endif
