/* "Did you mean" (nearest.h): the known name with the fewest edits, if they are at most four and at
 * most a third of the shorter name's letters. Case and '-' for '_' do not count. A name that
 * consists of whole words at the start of the other one is near. */

#include "common/base/nearest.h"

#include "common/base/attrs.h"

enum { LONG = 40, SHARED_MIN = 3 };

static char lower_letter(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return (char)(c == '-' ? '_' : c);
}

/* Returns the number of letters to change, add, leave out or swap with their neighbour. Both texts
 * have at most LONG letters. */
static unsigned edit_distance(struct str a, struct str b)
{
    unsigned rows[3][LONG + 1];

    for (size_t j = 0; j <= b.len; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a.len; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b.len; j++) {
            char x = lower_letter(a.p[i - 1]), y = lower_letter(b.p[j - 1]);
            unsigned best = above[j - 1] + (x != y);

            best = MIN_OF(best, MIN_OF(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == lower_letter(b.p[j - 2]) && lower_letter(a.p[i - 2]) == y)
                best = MIN_OF(best, before[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[a.len % 3][b.len];
}

/* Reports whether one name is whole words at the start of the other: "timeout" of "timeout_s",
 * "reward" of "reward_info". */
static bool begins_with_word(struct str longer, struct str shorter)
{
    return shorter.len >= SHARED_MIN && longer.len > shorter.len &&
           lower_letter(longer.p[shorter.len]) == '_' &&
           edit_distance(str_sub(longer, 0, shorter.len), shorter) == 0;
}

void nearest_offer(struct nearest *n, const char *name)
{
    struct str known = str_cstr(name);
    unsigned cost, most;

    if (n->given.len == 0 || n->given.len > LONG || known.len == 0 || known.len > LONG)
        return;
    most = (unsigned)MIN_OF(n->given.len, known.len) / 3;
    cost = edit_distance(n->given, known);
    if (cost > most && (begins_with_word(known, n->given) || begins_with_word(n->given, known)))
        cost = most = 1;
    if (cost > MIN_OF(most, 4u) || (n->name && cost >= n->cost))
        return;
    n->name = name;
    n->cost = cost;
}
