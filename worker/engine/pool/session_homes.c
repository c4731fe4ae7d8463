/* A session has the entry that its id's hash selects. The table is mapped, because touching all of
 * it at once would take the loop milliseconds. */
#include "worker/engine/pool/session_homes.h"

#include "common/base/mem.h"

enum { HOMES = 1 << 16 };

struct session_home {
    uint64_t session, replica; /* hashes of the session's id and of the replica's name */
};

uint64_t session_homes_note(struct session_homes *h, struct str session_id, uint64_t replica)
{
    uint64_t session = str_hash(session_id, 0);
    struct session_home *home;
    uint64_t before;

    if (!h->at)
        h->at = mem_map(HOMES * sizeof(*h->at));
    home = &h->at[session % HOMES];
    before = home->session == session ? home->replica : 0;
    *home = (struct session_home){session, replica};
    return before;
}

void session_homes_done(struct session_homes *h)
{
    if (h->at)
        mem_unmap(h->at, HOMES * sizeof(*h->at));
    h->at = NULL;
}
