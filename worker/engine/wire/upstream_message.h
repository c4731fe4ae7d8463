/*
 * struct upstream_message: reads one answer of an OpenAI-compatible server, whole or in deltas,
 * whatever form it has there, into the one form that the rest knows (upstream_out.h). What cannot
 * be read is an error that names the field. Pure.
 *
 *   content            a text, or a list of parts: text, output_text, refusal, thinking, reasoning
 *   the thought        reasoning_content, reasoning, reasoning_text, thinking, parts of the
 * content, reasoning_details, thinking_blocks: the first of them that has any calls tool_calls, or
 * function_call
 */
#ifndef RG_WIRE_UPSTREAM_MESSAGE_H
#define RG_WIRE_UPSTREAM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/engine/wire/upstream_calls.h"
#include "worker/engine/wire/upstream_signed.h"

struct json;

struct upstream_message {
    struct upstream_calls calls;
    struct upstream_signed signed_members;
    int thought_from; /* number of the thought's member, + 1; 0: not known yet */
    size_t bytes;     /* text bytes */
    struct buf said;  /* a stream's content so far, to compare with a `message` */
};

void upstream_message_done(struct upstream_message *m);

/* Takes choices[0] of a chunk (out->stream) or of a whole answer: its delta or message. What is in
 * order is appended to out. -1 ERR_ENGINE_INVALID. */
int upstream_message_add(struct upstream_message *m, const struct json *choice,
                         const struct upstream_out *out, struct err *e);

/* Appends the rest: the answer has ended. -1 ERR_ENGINE_INVALID. */
int upstream_message_end(struct upstream_message *m, const struct upstream_out *out, struct err *e);

/* Bytes of all that was taken. */
size_t upstream_message_bytes(const struct upstream_message *m);

#endif
