/* Encodes by the longest tokens that are stable as neighbours (longest.h): a walk with steps back.
 * room.closed has a bit for each position from which no way led on. Such a position is not tried
 * again, so every position is left at most once and the cost stays linear. */

#include "worker/text/tokens/longest.h"

#include <string.h>

#include "common/base/budget.h"
#include "common/base/check.h"
#include "worker/text/tokens/longest_bear.h"
#include "worker/text/tokens/pair_table.h"

enum { SPEND_EVERY = 1 << 10, FAILED_STEPS = 32 }; /* tokens; steps of one that does not fit */

/* The node of one byte more; 0: none. */
static inline uint32_t step_node(const struct longest *l, uint32_t node, char byte)
{
    uint32_t from = l->nodes[node].longer, n = l->nodes[node + 1].longer - from;
    const uint8_t *found;

    if (n <= 1)
        return n == 1 && l->last[from] == (uint8_t)byte ? from : 0;
    found = memchr(l->last + from, (uint8_t)byte, n);
    return found ? (uint32_t)(found - l->last) : 0;
}

/* The longest token that n > 0 bytes begin with. */
static inline int32_t longest_at(const struct longest *l, const char *text, size_t n)
{
    uint8_t first = (uint8_t)text[0];
    int32_t best = l->nodes[first].token;
    uint32_t node = n > 1 ? l->twos[first << 8 | (uint8_t)text[1]] : 0;

    for (size_t i = 2; node; i++) {
        if (l->nodes[node].token >= 0) {
            best = l->nodes[node].token;
            __builtin_prefetch(&l->origins[best]); /* looked into next */
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

/* Whether two tokens that touch stay what they are. */
static inline bool pair_is_stable(const struct longest *l, int32_t a, int32_t b)
{
    return pair_table_get(l->ranks, a, b) == PAIR_NONE && longest_bear(l, a, b);
}

/* Tries the longest token at the place, then shorter ones; when none is left, the place is
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
        while (token < 0) { /* no way leads on from here */
            CHECK(count > 0);
            room.closed[at / 32] |= 1u << at % 32;
            token = room.tokens[--count];
            at -= l->origins[token].len;
            token = l->origins[token].shorter;
        }
    }
}
