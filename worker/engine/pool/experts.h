/*
 * Routed experts, and what else comes with a row for each token (worker/text/request/token_rows.h):
 * whether an engine's block covers what was asked for. A block is int32 little-endian, C order
 * [rows, layers, topk], one row for every token position but the last, from position `from` on when
 * the engine honours that, else from 0. Rows are not in the block: the size of a row comes from the
 * model's configuration or from a block that can only be whole.
 */
#ifndef RG_ENGINE_EXPERTS_H
#define RG_ENGINE_EXPERTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct experts_block {
    size_t bytes;
    size_t tokens;       /* tokens of prompt and answer */
    uint32_t from, rows; /* in: as asked; out: as it is */
};

/* Returns 0 and sets b->from and b->rows. -1 ERR_ENGINE_INVALID if the size fits neither; 1 if both
 * fit, so that the block cannot be used. *row_bytes is the size of a row; 0: unknown, and learned
 * here from a block that can only be whole. `what` names the rows in the error. */
int experts_check(size_t *row_bytes, struct experts_block *b, const char *what, struct err *e);

#endif
