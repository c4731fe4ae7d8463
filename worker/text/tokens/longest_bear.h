/* The predicate on which longest.h is based, for its two files. */
#ifndef RG_TOKENS_LONGEST_BEAR_H
#define RG_TOKENS_LONGEST_BEAR_H

#include <stdbool.h>

#include "worker/text/tokens/longest.h"
#include "worker/text/tokens/pair_table.h"

/* Reports whether nothing merges across the border of a and b before both tokens are complete. */
static inline bool longest_bear(const struct longest *l, int32_t a, int32_t b)
{
    const struct token_origin *x = &l->origins[a], *y = &l->origins[b];
    uint32_t bound;

    while (x->order || y->order) {
        /* Of equal pairs the left one merges first. So of two equal merges b's is the later one,
         * and comes after a merge of the same rank across the border. */
        if (y->order >= x->order) {
            bound = y->order;
            b = y->left;
            y = &l->origins[b];
        } else {
            bound = x->order - 1;
            a = x->right;
            x = &l->origins[a];
        }
        if (pair_table_get(l->ranks, a, b) < bound)
            return false;
    }
    return true;
}

#endif
