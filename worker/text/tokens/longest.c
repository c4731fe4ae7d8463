/* Encodes by the longest tokens that are stable as neighbours (longest.h), with backtracking.
 * room.closed has a bit for each position from which no continuation was found. Such a position is
 * not tried again, so every position is left at most once and the cost stays linear. */

#include "worker/text/tokens/longest.h"

#include <string.h>

#include "common/base/budget.h"
#include "common/base/check.h"
#include "worker/text/tokens/longest_bear.h"
#include "worker/text/tokens/pair_table.h"

/* SPEND_EVERY: tokens between two checks of the budget. FAILED_STEPS: steps for a token that does
 * not fit */
enum { SPEND_EVERY = 1 << 10, FAILED_STEPS = 32 };

/* Returns the node with one byte more; 0: there is none. */
static inline uint32_t step_node(const struct longest *l, uint32_t node, char byte)
{
    uint32_t from = l->nodes[node].longer, n = l->nodes[node + 1].longer - from;
    const uint8_t *found;

    if (n <= 1)
        return n == 1 && l->last[from] == (uint8_t)byte ? from : 0;
    found = memchr(l->last + from, (uint8_t)byte, n);
    return found ? (uint32_t)(found - l->last) : 0;
}

/* Returns the longest token with which n > 0 bytes begin. */
static inline int32_t longest_at(const struct longest *l, const char *text, size_t n)
{
    uint8_t first = (uint8_t)text[0];
    int32_t best = l->nodes[first].token;
    uint32_t node = n > 1 ? l->twos[first << 8 | (uint8_t)text[1]] : 0;

    for (size_t i = 2; node; i++) {
        if (l->nodes[node].token >= 0) {
            best = l->nodes[node].token;
            __builtin_prefetch(&l->origins[best]); /* it is read next */
        }
        node = i < n ? step_node(l, node, text[i]) : 0;
    }
    return best;
}

uint32_t longest_node(const struct longest *l, const char *text, size_t n)
{
    uint32_t node = l->twos[(uint8_t)text[0] << 8 | (uint8_t)text[1]];

    for (size_t i = 2; node && i < n; i++)
        node = step_node(l, node, text[i]);
    return node;
}

/* Reports whether two adjacent tokens stay unmerged. */
static inline bool pair_is_stable(const struct longest *l, int32_t a, int32_t b)
{
    return pair_table_get(l->ranks, a, b) == PAIR_NONE && longest_bear(l, a, b);
}

/* Tries the longest token at the position, then shorter ones. If no token is left, the position is
 * closed and the token before it is shortened. */
size_t longest_encode(const struct longest *l, const char *text, size_t n, struct longest_room room,
                      struct budget *budget)
{
    size_t at = 0, count = 0;
    int32_t token = longest_at(l, text, n);

    memset(room.closed, 0, (n / 32 + 1) * sizeof(*room.closed));
    for (;;) {
        size_t end = at + l->origins[token].len;

        if (!(room.closed[end / 32] >> end % 32 & 1) &&
            (count == 0 || pair_is_stable(l, room.tokens[count - 1], token))) {
            room.tokens[count++] = token;
            at = end;
            if (at == n)
                return count;
            if (count % SPEND_EVERY == 0 && !budget_spend(budget, SPEND_EVERY))
                return 0;
            token = longest_at(l, text + at, n - at);
            continue;
        }
        token = l->origins[token].shorter;
        if (!budget_spend(budget, FAILED_STEPS))
            return 0;
        while (token < 0) { /* no token fits at this position */
            CHECK(count > 0);
            room.closed[at / 32] |= 1u << at % 32;
            token = room.tokens[--count];
            at -= l->origins[token].len;
            token = l->origins[token].shorter;
        }
    }
}
