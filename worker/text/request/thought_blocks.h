/*
 * The thought of an answer as blocks that an upstream has sealed: each text with its signature, or
 * data without a text. A seal is opaque; only the upstream that made it can read it. Pure.
 */
#ifndef RG_REQUEST_THOUGHT_BLOCKS_H
#define RG_REQUEST_THOUGHT_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct arena;
struct json;

struct thought_block {
    struct str text, seal; /* absent: the block has none */
    bool signs_text;       /* the seal is the signature of a text, which may be empty */
};

/* Reads the blocks of an assistant message, whose texts are its reasoning_content. Seals come from
 * the first of these members that has any: reasoning_details, thinking_blocks, content_parts,
 * reasoning_opaque, encrypted_content. Returns the number of blocks; *ret is in the arena. */
size_t thought_blocks_read(struct arena *a, const struct json *message, struct thought_block **ret);

/* Returns the seal of one item of such a list (signature, data, encrypted_content), or absent. */
struct str thought_item_seal(const struct json *item);

#endif
