/* Equal answers are found by a hash of 128 bits, then compared byte by byte (shared_answer.h). If
 * two different answers have the same hash, the second is not listed, and only its owner uses it.
 */

#include "common/serve/shared_answer.h"

#include <stdlib.h>

#include "common/base/mem.h"

struct shared_answer {
    struct buf bytes;
    unsigned shares;
    bool listed; /* the answer is in by_hash */
    uint64_t hash[2];
};

static struct str hash_text(const uint64_t hash[2])
{
    return str_of((const char *)hash, 2 * sizeof(*hash));
}

struct str shared_answer_bytes(const struct shared_answer *a)
{
    return buf_str(&a->bytes);
}

/* Adds a new answer with one share. `bytes` is empty then. */
static struct shared_answer *keep_answer(struct shared_answers *all, struct buf *bytes,
                                         const uint64_t hash[2], bool listed)
{
    struct shared_answer *a = mem_zalloc(sizeof(*a));

    a->bytes = *bytes;
    *bytes = (struct buf){0};
    a->shares = 1;
    a->listed = listed;
    memcpy(a->hash, hash, sizeof(a->hash));
    if (listed)
        (void)map_set(&all->by_hash, hash_text(a->hash), a);
    all->bytes += a->bytes.len;
    return a;
}

struct shared_answer *shared_answer_add(struct shared_answers *all, struct buf *bytes)
{
    struct shared_answer *had;
    uint64_t hash[2];

    str_hash128(buf_str(bytes), hash);
    had = map_get(&all->by_hash, hash_text(hash));
    if (!had || !str_eq(buf_str(&had->bytes), buf_str(bytes)))
        return keep_answer(all, bytes, hash, !had);
    buf_done(bytes);
    had->shares++;
    return had;
}

void shared_answer_drop(struct shared_answers *all, struct shared_answer *a)
{
    if (!a || --a->shares > 0)
        return;
    if (a->listed)
        (void)map_take(&all->by_hash, hash_text(a->hash));
    if (all->by_hash.n == 0)
        map_done(&all->by_hash);
    all->bytes -= a->bytes.len;
    buf_done(&a->bytes);
    free(a);
}
