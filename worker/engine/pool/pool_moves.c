/* Detects, counts and logs sessions that move from one replica to another. */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/pool_call.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"
#include "worker/engine/pool/session_homes.h"

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
