/* Collects all rows of a path from the blocks of its turns, or none: an incomplete replay is worse
 * than no replay. A block begins at the end of the blocks before it, or earlier; then its own copy
 * counts. */
#include "worker/export/build/trajectory_rows.h"

#include "common/base/arena.h"
#include "worker/export/build/track.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/build/trajectory_odds.h"
#include "worker/session/forest/checkpoint.h"

/* Returns the checkpoint of turn i; after the last turn, that of the tail. */
static const struct checkpoint *turn_at(const struct trajectory *r, uint32_t i)
{
    return i < r->n_turns ? r->turns[i].checkpoint : r->track->tail;
}

/* Reports whether the blocks make `rows` rows of the same size as the last turn's. */
static bool covers_rows(const struct trajectory *r, enum rows_kind kind, uint64_t row,
                        uint32_t rows)
{
    uint32_t known = 0;

    for (uint32_t i = 0; i <= r->n_turns; i++) {
        const struct checkpoint *t = turn_at(r, i);
        const struct checkpoint_rows *x = t ? checkpoint_rows(t, kind) : NULL;

        if (!x || !x->has)
            continue; /* a later block may fill the gap */
        if (checkpoint_row_bytes(t, kind) != row || x->from > known)
            return false;
        known = MAX_OF(known, x->from + x->n);
    }
    return known >= rows;
}

static struct str join_blocks(struct arena *a, const struct trajectory *r, enum rows_kind kind,
                              uint64_t row, uint32_t rows)
{
    char *out = arena_alloc(a, rows * row);

    for (uint32_t i = 0; i <= r->n_turns; i++) {
        const struct checkpoint *t = turn_at(r, i);
        const struct checkpoint_rows *x = t ? checkpoint_rows(t, kind) : NULL;

        if (x && x->has && x->from < rows)
            checkpoint_block_copy(t, kind, MIN_OF(x->n, rows - x->from) * row, out + x->from * row);
    }
    return str_of(out, rows * row);
}

/* Returns shape and number of rows of all blocks together; 0 rows: they leave gaps. */
static struct token_rows shape_of(const struct trajectory *r, enum rows_kind kind,
                                  uint64_t *ret_row)
{
    const struct checkpoint *last = r->n_turns ? r->turns[r->n_turns - 1].checkpoint : NULL;
    const struct checkpoint_rows *x = last ? checkpoint_rows(last, kind) : NULL;
    struct token_rows ret = {.rows = r->total - 1};
    uint64_t cells;

    *ret_row = last ? checkpoint_row_bytes(last, kind) : 0;
    if (!*ret_row || !x->layers || !x->topk || !r->own)
        return (struct token_rows){0};
    ret.layers = x->layers;
    ret.topk = x->topk;
    cells = (uint64_t)ret.layers * ret.topk;
    if (*ret_row % cells || !covers_rows(r, kind, *ret_row, ret.rows))
        return (struct token_rows){0};
    return ret;
}

void trajectory_fill_experts(struct arena *a, struct trajectory *r)
{
    uint64_t row;
    struct token_rows x = shape_of(r, ROWS_EXPERTS, &row);

    if (x.rows == 0)
        return;
    r->experts = join_blocks(a, r, ROWS_EXPERTS, row, x.rows);
    r->experts_rows = x.rows;
    r->experts_layers = x.layers;
    r->experts_topk = x.topk;
    r->experts_item = (uint32_t)(row / ((uint64_t)x.layers * x.topk));
}

void trajectory_fill_indexer(bool wanted, struct arena *a, struct trajectory *r)
{
    uint64_t row;
    struct token_rows x = shape_of(r, ROWS_INDEXER, &row);

    r->has_indexer = x.rows > 0;
    if (!r->has_indexer || !wanted)
        return;
    x.block = join_blocks(a, r, ROWS_INDEXER, row, x.rows);
    r->indexer = x;
    trajectory_add(r, (struct trajectory_array){
                          "indexer_topk", false, {x.rows, x.layers, x.topk}, 3, x.block.p});
}
