/* See text_compare.h. */
#include "worker/session/text_compare.h"

#include <string.h>

enum { BLOCK = 64 };

/* Bytes in equal blocks that x from i and y from k on begin with. */
static size_t equal_blocks(struct str x, size_t i, struct str y, size_t k)
{
    size_t n = 0;

    while (x.len - i - n >= BLOCK && y.len - k - n >= BLOCK &&
           memcmp(x.p + i + n, y.p + k + n, BLOCK) == 0)
        n += BLOCK;
    return n;
}

size_t texts_agree(struct str x, struct str y)
{
    size_t at = equal_blocks(x, 0, y, 0);

    while (at < x.len && at < y.len && x.p[at] == y.p[at])
        at++;
    return at;
}

static size_t behind_blanks(struct str s, size_t i)
{
    while (i < s.len && (s.p[i] == ' ' || s.p[i] == '\t' || s.p[i] == '\r' || s.p[i] == '\n'))
        i++;
    return i;
}

/* Blanks in equal blocks are the same on both sides, so they can be passed with them. Where a block
 * differs as many bytes are compared one by one before the next is tried. */
static bool same_but_blanks(struct str x, struct str y, size_t *ret_went)
{
    size_t i = 0, k = 0;

    for (;;) {
        size_t n = equal_blocks(x, i, y, k);

        i += n;
        k += n;
        *ret_went = i;
        for (int step = 0; step < BLOCK; step++) {
            i = behind_blanks(x, i);
            k = behind_blanks(y, k);
            if (i == x.len || k == y.len)
                return i == x.len && k == y.len;
            if (x.p[i++] != y.p[k++])
                return false;
        }
    }
}

bool texts_same_but_blanks(struct str x, struct str y, size_t *went)
{
    size_t at = 0;
    bool same = same_but_blanks(x, y, &at);

    *went += at;
    return same;
}
