/*
 * The block does not contain the number of its first row, so its size must show it: it fits all
 * rows, or those from `from` on. If both fit (the size of a row is not known yet), the block is not
 * used. The size of a row is learned from blocks that can only be complete, and checked from then
 * on.
 */
#include "worker/engine/pool/experts.h"

#include <stdbool.h>

static bool fits_rows(size_t row_bytes, size_t bytes, size_t rows)
{
    if (rows == 0)
        return bytes == 0;
    return row_bytes ? bytes == rows * row_bytes : bytes % (rows * sizeof(int32_t)) == 0;
}

int experts_check(size_t *row_bytes, struct experts_block *b, const char *what, struct err *e)
{
    size_t whole = b->tokens > 0 ? b->tokens - 1 : 0;
    size_t rest = whole > b->from ? whole - b->from : 0;
    bool is_whole = fits_rows(*row_bytes, b->bytes, whole),
         is_rest = fits_rows(*row_bytes, b->bytes, rest);

    if (!is_whole && !is_rest)
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: %zu bytes of %s for %zu tokens", b->bytes,
                       what, b->tokens);
    if (b->from > 0 && is_whole && is_rest)
        return 1;
    if (b->from == 0 || is_whole) {
        b->from = 0;
        b->rows = (uint32_t)whole;
        if (*row_bytes == 0 && whole > 0)
            *row_bytes = b->bytes / whole;
        return 0;
    }
    b->rows = (uint32_t)rest;
    return 0;
}
