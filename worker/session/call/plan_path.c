/* Keeps the payloads of the path that a call continues in memory while the call runs, and reads
 * them back before they are needed. A plan whose path is in memory has no recall. */
#include "common/base/err.h"
#include "common/base/mem.h"
#include "worker/session/call/plan.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/recall.h"

static void keep_recall(struct plan *p, const struct recall *r)
{
    p->recall = mem_alloc(sizeof(*p->recall));
    *p->recall = *r;
}

static void drop_recall(struct plan *p)
{
    recall_free(p->recall);
    p->recall = NULL;
}

/* Holds the new path before the old one is let go, so that shared payloads stay in memory. */
void plan_hold(struct plan *p, struct checkpoint *t)
{
    struct recall r = {.session = p->session};

    payload_hold_path(p->session, t);
    plan_let(p);
    p->held = t;
    recall_path(&r, t);
    if (r.missing.n > 0)
        keep_recall(p, &r);
}

void plan_let(struct plan *p)
{
    drop_recall(p);
    payload_release_path(p->held);
    p->held = NULL;
}

int plan_recall(struct plan *p, struct err *e)
{
    int rc = p->recall ? recall_step(p->recall, RECALL_STEP, e) : 0;

    if (rc != 1)
        drop_recall(p);
    return rc;
}

/* --- context that is shared with a different checkpoint --- */

enum { SHARED_LEAST = 32 }; /* least number of shared ids */

/* Returns the checkpoint that rendered messages after the same parent, so that its context may
 * begin as the call's does. Returns NULL if there is none. */
static struct checkpoint *find_neighbour(const struct plan *p)
{
    if (p->pub.exhausted || p->alone || plan_own_context(p, 0).n < SHARED_LEAST)
        return NULL;
    for (const struct message_node *n = p->walk.last;
         n && n->depth > 0 && !(p->parent && n == p->parent->node); n = n->parent)
        if (n->through && n->through->parent == p->parent)
            return n->through;
    return NULL;
}

struct checkpoint *plan_shared_run(struct plan *p, uint32_t *ret_n)
{
    struct checkpoint *t = find_neighbour(p);
    struct err unread;

    if (!t || session_recall_context(p->session, t, &unread) != 0)
        return NULL;
    *ret_n = context_run_common(&t->context, plan_own_context(p, 0));
    return *ret_n >= SHARED_LEAST && context_run_extends(&t->context, *ret_n) ? t : NULL;
}

bool session_compares_context(struct session_plan *pub)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    const struct checkpoint *t;
    struct recall r = {.session = p->session, .holds = true};
    struct err unread;
    int rc;

    if (p->compares && !p->recall)
        return false;
    if (!p->compares) {
        p->compares = true;
        t = find_neighbour(p);
        if (!t)
            return false;
        recall_context(&r, t);
        /* the neighbour's payload was used just now, so it is in memory without being held */
        if (r.missing.n == 0) {
            recall_done(&r);
            return false;
        }
        keep_recall(p, &r);
    }
    rc = recall_step(p->recall, RECALL_STEP, &unread);
    p->alone = p->alone || rc < 0;
    return rc == 1;
}
