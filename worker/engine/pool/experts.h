/*
 * Routed experts, and other data with a row for each token (worker/text/request/token_rows.h):
 * checks whether an engine's block covers the requested rows. A block is int32 little-endian, C
 * order [rows, layers, topk], with one row for every token position except the last. It begins at
 * position `from` if the engine supports that, else at 0. The block does not contain its number of
 * rows. The size of a row comes from the model's configuration, or from a block that can only be
 * complete.
 */
#ifndef RG_ENGINE_EXPERTS_H
#define RG_ENGINE_EXPERTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct experts_block {
    size_t bytes;
    size_t tokens;       /* number of tokens of prompt and answer */
    uint32_t from, rows; /* in: requested; out: actual */
};

/* Checks a block. Returns 0 and sets b->from and b->rows; -1 with ERR_ENGINE_INVALID if the size
 * fits neither start; 1 if it fits both, so that the block cannot be used. *row_bytes is the size
 * of a row; 0: unknown, and learned here from a block that can only be complete. `what` names the
 * rows in the error. */
int experts_check(size_t *row_bytes, struct experts_block *b, const char *what, struct err *e);

#endif
