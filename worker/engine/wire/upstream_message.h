/*
 * struct upstream_message: reads one answer of an OpenAI-compatible server, whole or in deltas, and
 * converts its form to the normalised one (upstream_out.h). Anything that cannot be read is an
 * error that names the field. Pure.
 *
 *   content            a text, or a list of parts: text, output_text, refusal, thinking, reasoning
 *   the thought        reasoning_content, reasoning, reasoning_text, thinking, parts of the
 *                      content, reasoning_details, thinking_blocks: the first of them that has any
 *   calls              tool_calls, or function_call
 */
#ifndef RG_WIRE_UPSTREAM_MESSAGE_H
#define RG_WIRE_UPSTREAM_MESSAGE_H

#include <stddef.h>

#include "worker/engine/wire/upstream_calls.h"
#include "worker/engine/wire/upstream_signed.h"

struct json;

struct upstream_message {
    struct upstream_calls calls;
    struct upstream_signed signed_members;
    int thought_from; /* 1 + index of the member with the thought; 0: unknown so far */
    size_t bytes;     /* bytes of texts */
    struct buf said;  /* content of a stream so far, for comparison with a `message` */
};

void upstream_message_done(struct upstream_message *m);

/* Reads choices[0] of a chunk (out->stream) or of a whole answer: its delta or message. Appends
 * what is in order to out. Returns -1 with ERR_ENGINE_INVALID. */
int upstream_message_add(struct upstream_message *m, const struct json *choice,
                         const struct upstream_out *out, struct err *e);

/* Appends the rest, because the answer has ended. Returns -1 with ERR_ENGINE_INVALID. */
int upstream_message_end(struct upstream_message *m, const struct upstream_out *out, struct err *e);

/* Returns the bytes of everything that was read. */
size_t upstream_message_bytes(const struct upstream_message *m);

#endif
