/* The question that longest.h rests on, for its two files. */
#ifndef RG_TOKENS_LONGEST_BEAR_H
#define RG_TOKENS_LONGEST_BEAR_H

#include <stdbool.h>

#include "worker/text/tokens/longest.h"
#include "worker/text/tokens/pair_table.h"

/* Whether nothing merges across the border of a and b before they are what they
 * are. */
static inline bool longest_bear(const struct longest *l, int32_t a, int32_t b)
{
    const struct token_origin *x = &l->origins[a], *y = &l->origins[b];
    uint32_t bound;

    while (x->order || y->order) {
        /* The left one of equal pairs merges first. So b's merge is the later of two equal ones,
         * and yields to a merge of its own rank across the border. */
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
