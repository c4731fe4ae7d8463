/* Requests during which workers died (suspects.h). Workers record on the board the hashes of bodies
 * that they process. The bodies of a dead worker are blamed, more if there was only one. A body
 * with enough blame is quarantined: workers answer it with 500 instead of processing it. */

#include "supervisor/suspects.h"

#include <stdatomic.h>

#include "common/base/log.h"
#include "common/proc/board.h"

/* Weights of a death. A kill from outside (an operator, or the kernel because memory is short) says
 * little about the request. */
enum { ALONE = 3, IN_COMPANY = 2, FROM_OUTSIDE = 1, GUILTY = 6 };

/* Returns the body's entry, else one that is free or was not seen for longest. */
static struct suspect *find_suspect(struct suspects *s, uint64_t hash)
{
    struct suspect *oldest = &s->list[0];

    for (size_t i = 0; i < SUSPECTS_MAX; i++) {
        if (s->list[i].hash == hash)
            return &s->list[i];
        if (s->list[i].last_ms < oldest->last_ms)
            oldest = &s->list[i];
    }
    oldest->weight = 0;
    oldest->hash = hash;
    return oldest;
}

/* Returns true if this death quarantines the body. */
static bool blame_body(struct suspects *s, struct board *b, uint64_t hash, unsigned weight,
                       uint64_t now_ms)
{
    struct suspect *it = find_suspect(s, hash);

    if (now_ms - it->last_ms > SUSPECT_MEMORY_MS)
        it->weight = 0;
    it->last_ms = now_ms;
    it->weight += weight;
    if (it->weight < GUILTY)
        return false;
    board_quarantine(b, hash, now_ms);
    log_error(NULL, "workers died at the same request, it is answered 500 for an hour",
              LOG_U("body_hash", hash));
    return true;
}

static bool is_in_list(const uint64_t *hashes, size_t n, uint64_t hash)
{
    for (size_t i = 0; i < n; i++)
        if (hashes[i] == hash)
            return true;
    return false;
}

/* Clears the dead worker's bodies on the board. */
bool suspects_add_death(struct suspects *s, struct board *b, unsigned slot, bool from_outside,
                        uint64_t now_ms)
{
    uint64_t hashes[BOARD_WORKS_MAX];
    size_t n = 0;
    bool guilty = false;

    for (unsigned i = 0; i < BOARD_WORKS_MAX; i++) {
        hashes[n] = atomic_load_explicit(&b->slots[slot].works[i], memory_order_relaxed);
        n += hashes[n] != 0 && !is_in_list(hashes, n, hashes[n]);
    }
    board_forget_works(b, slot);
    for (size_t i = 0; i < n; i++)
        guilty |= blame_body(s, b, hashes[i],
                             from_outside ? FROM_OUTSIDE
                             : n == 1     ? ALONE
                                          : IN_COMPANY,
                             now_ms);
    return guilty;
}
