#include "worker/session/forest/text_compare.h"

#include <string.h>

enum { BLOCK = 64 };

/* Returns the number of bytes in leading equal blocks of x from i and y from k on. */
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

/* Blanks in equal blocks are the same on both sides, so the blocks are skipped. At a different
 * block as many bytes are compared one by one before the next block is tried. */
bool texts_same_but_blanks(struct str x, struct str y, size_t *went)
{
    size_t i = 0, k = 0;
    bool over = false, same = false;

    while (!over) {
        size_t n = equal_blocks(x, i, y, k);

        i += n;
        k += n;
        for (int step = 0; step < BLOCK && !over; step++) {
            i = behind_blanks(x, i);
            k = behind_blanks(y, k);
            over = i == x.len || k == y.len;
            same = i == x.len && k == y.len;
            if (!over)
                over = x.p[i++] != y.p[k++];
        }
    }
    *went += i + k;
    return same;
}
