/*
 * struct upstream_signed: signed or sealed members of one answer of an upstream: members of its
 * message and of its calls that it needs unchanged in the next turn. They are kept under their own
 * names, joined from a stream's pieces, and are not part of the answer's text. Pure.
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
    struct json *members; /* members without the text, in the arena */
    const char *key;      /* name of the text member; NULL: no text */
    struct buf text;
    bool sealed; /* the part has a signature */
    bool told;   /* the signature was sent */
};

struct signed_list {
    struct signed_item *at;
    size_t n, cap;
};

struct upstream_signed {
    struct arena arena;
    struct signed_list lists[SIGNED_LISTS];
    struct json *members; /* other members of the message, as an object, or NULL */
    struct json **calls;  /* by call number: an object or NULL */
    size_t n_calls, cap_calls;
    size_t bytes;   /* bytes that are kept */
    int seals_from; /* 1 + index of the member whose seals are sent; 0: none has any */
};

void upstream_signed_done(struct upstream_signed *s);

/* Reads the members of a message, or of its next delta. path: its position, for errors. Returns -1
 * with ERR_ENGINE_INVALID. */
int upstream_signed_message(struct upstream_signed *s, const struct json *message, const char *path,
                            struct err *e);

/* Reads the members of an entry of tool_calls, which belongs to the call of that number. */
void upstream_signed_call(struct upstream_signed *s, const struct json *entry, size_t call);

/* Appends the text of a thought that is only in these members, if there is one. */
void upstream_signed_thought(const struct json *message, struct buf *out);

/* Sends seals that came after the last call of this function, from the first member that has any.
 * thought: a text of the thought has come. */
void upstream_signed_send(struct upstream_signed *s, bool thought, const struct upstream_out *out);

/* Writes {"message": {...}, "calls": [{...} or null, ...]}; null if there is nothing. */
void upstream_signed_write(const struct upstream_signed *s, struct json_out *o);

#endif
