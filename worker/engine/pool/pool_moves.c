/* Detects, counts and logs sessions that move from one replica to another. */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/pool_call.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"

/* --- homes of sessions --- */

/* The replica of each session's last call. A session has the entry that its id's hash selects. Of
 * several sessions with the same entry only the last one is known, so a move may go unnoticed, but
 * no false move is reported. Mapped, because touching all of it at once would take the loop
 * milliseconds. */
struct session_homes {
    struct session_home *at; /* NULL: no call was recorded */
};

enum { HOMES = 1 << 16 };

struct session_home {
    uint64_t session, replica; /* hashes of the session's id and of the replica's name */
};

/* Records that the session's call goes to the replica of that hash (not 0). Returns the hash of the
 * one before; 0: unknown. */
static uint64_t session_homes_note(struct session_homes *h, struct str session_id, uint64_t replica)
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

static void session_homes_done(struct session_homes *h)
{
    if (h->at)
        mem_unmap(h->at, HOMES * sizeof(*h->at));
    h->at = NULL;
}

/* --- moves --- */

void pool_moves_init(struct engine_pool *p)
{
    p->homes = mem_zalloc(sizeof(*p->homes));
}

void pool_moves_done(struct engine_pool *p)
{
    session_homes_done(p->homes);
    free(p->homes);
}

void pool_note_home(struct engine_call *c, const struct replica *r)
{
    struct engine_pool *p = c->pool;
    struct replica_wish w = {.session_id = c->req.session_id, .avoid = c->avoid};
    uint64_t before = session_homes_note(p->homes, c->req.session_id, r->hash);
    struct log_scope scope = {.session = c->req.session_id};
    enum replica_move why;

    if (before == 0 || before == r->hash)
        return;
    why = replicas_move(p->replicas, &w, before, r);
    metrics_count_at(p->opt.metrics, METRIC_session_moves, why, 0, 1);
    if (why == MOVE_LOAD || why == MOVE_HOME)
        log_debug(&scope, "session moves to another engine", LOG_T("engine", r->target.name),
                  LOG_T("reason", replica_move_name(why)));
    else
        log_info(&scope, "session moves to another engine", LOG_T("engine", r->target.name),
                 LOG_T("reason", replica_move_name(why)));
}
