/*
 * struct upstream_signed: what an upstream signed or sealed of one answer: members of its message
 * and of its calls that it wants back on the next turn as it gave them. They are kept under their
 * own names, put together from a stream's pieces, and are no text of the answer. Pure.
 *
 *   message: reasoning_details (OpenRouter), thinking_blocks (LiteLLM), content_parts (our name for
 *            a content that is a list with a signature in it), extra_content (Gemini),
 *            reasoning_opaque (Copilot), encrypted_content, provider_specific_fields (LiteLLM)
 *   call:    extra_content, provider_specific_fields, thought_signature
 */
#ifndef RG_WIRE_UPSTREAM_SIGNED_H
#define RG_WIRE_UPSTREAM_SIGNED_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "worker/engine/wire/upstream_out.h"

struct json;
struct json_out;

enum { SIGNED_LISTS = 3, SIGNED_CALLS_MAX = 4096 };

/* One item of a list, whose text comes in pieces. */
struct signed_item {
    struct json *members; /* without the text, in the arena */
    const char *key;      /* name of the text member; NULL: no text */
    struct buf text;
    bool sealed; /* a signature is there, */
    bool told;   /* which has gone out */
};

struct signed_list {
    struct signed_item *at;
    size_t n, cap;
};

struct upstream_signed {
    struct arena arena;
    struct signed_list lists[SIGNED_LISTS];
    struct json *members; /* others of the message, an object, or NULL */
    struct json **calls;  /* per call number: an object or NULL */
    size_t n_calls, cap_calls;
    size_t bytes;   /* bytes kept */
    int seals_from; /* the member whose seals go out, + 1; 0: none has any */
};

void upstream_signed_done(struct upstream_signed *s);

/* Takes what a message, or the next delta of one, has. path: where it is, for errors. -1
 * ERR_ENGINE_INVALID. */
int upstream_signed_message(struct upstream_signed *s, const struct json *message, const char *path,
                            struct err *e);

/* Takes what an entry of tool_calls has, of the call of that number. */
void upstream_signed_call(struct upstream_signed *s, const struct json *entry, size_t call);

/* The text of a thought that these members alone tell, or an empty one: appends it. */
void upstream_signed_thought(const struct json *message, struct buf *out);

/* Passes on the seals that have come since the last time, of the first member that has any.
 * thought: a text of it has come. */
void upstream_signed_send(struct upstream_signed *s, bool thought, const struct upstream_out *out);

/* Writes {"message": {...}, "calls": [{...} or null, ...]}; null if there is nothing. */
void upstream_signed_write(const struct upstream_signed *s, struct json_out *o);

#endif
