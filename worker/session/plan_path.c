/* The path that a call goes on from, as long as the call runs: its payloads stay in memory, and
 * come back before it is read. A plan whose path is all there has no recall. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/session/payload.h"
#include "worker/session/plan.h"
#include "worker/session/recall.h"

static void drop_recall(struct plan *p)
{
    if (!p->recall)
        return;
    recall_done(p->recall);
    free(p->recall);
    p->recall = NULL;
}

/* The new path first: the old one's payloads may be on it, too, and stay then. */
void plan_hold(struct plan *p, struct checkpoint *t)
{
    struct recall r = {.session = p->session};

    payload_hold_path(t);
    plan_let(p);
    p->held = t;
    recall_path(&r, t);
    if (r.missing.n == 0)
        return;
    p->recall = mem_alloc(sizeof(*p->recall));
    *p->recall = r;
}

void plan_let(struct plan *p)
{
    drop_recall(p);
    payload_let_path(p->held);
    p->held = NULL;
}

int plan_recall(struct plan *p, struct err *e)
{
    int rc = p->recall ? recall_some(p->recall, RECALL_STEP, e) : 0;

    if (rc != 1)
        drop_recall(p);
    return rc;
}
