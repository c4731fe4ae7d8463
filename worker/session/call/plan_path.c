/* Keeps the payloads of the path that a call continues in memory while the call runs, and reads
 * them back before they are needed. */
#include "common/base/arena.h"
#include "common/base/err.h"
#include "worker/session/call/plan.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/store.h"

/* Holds the new path before the old one is let go, so that shared payloads stay in memory. */
void plan_hold(struct plan *p, struct checkpoint *t)
{
    if (t)
        payload_hold(t->payload);
    plan_let(p);
    p->held = t;
}

void plan_let(struct plan *p)
{
    if (p->held)
        payload_release(p->held->payload);
    p->held = NULL;
    if (p->compared)
        recall_done(p->compared);
}

int plan_check_open(const struct plan *p, struct err *e)
{
    return session_has_ended(p->session) ? err_set(e, ERR_SESSION_ENDED, "this session has ended")
                                         : 0;
}

int plan_read_path(struct plan *p, struct err *e)
{
    struct recall r = {.session = p->session, .holds = true, .open_only = true};
    int rc;

    if (!p->held || p->held->payload->leads)
        return plan_check_open(p, e);
    recall_path(&r, p->held);
    rc = recall_read(&r, e);
    if (rc == 0 && !p->held->text)
        payload_lead(p->held);
    recall_done(&r);
    return plan_check_open(p, e) ? -1 : rc;
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
         n && n->depth > (p->parent ? p->parent->node->depth : 0); n = n->parent)
        if (n->through && n->through->parent == p->parent)
            return n->through;
    return NULL;
}

/* Returns the neighbour whose context session_read_compared has read. A later call may have become
 * a nearer one since. */
static struct checkpoint *compared_neighbour(const struct plan *p)
{
    struct checkpoint *t = p->alone ? NULL : p->neighbour;

    return t && t->parent == p->parent ? t : find_neighbour(p);
}

struct checkpoint *plan_shared_run(struct plan *p, uint32_t *ret_n)
{
    struct checkpoint *t = compared_neighbour(p);
    struct recall r = {.session = p->session};
    struct err unread;

    if (!t)
        return NULL;
    recall_context(&r, t);
    if (recall_end(&r, &unread) != 0)
        return NULL;
    *ret_n = context_run_common(&t->context, plan_own_context(p, 0));
    return *ret_n >= SHARED_LEAST && context_run_extends(&t->context, *ret_n) ? t : NULL;
}

int session_read_compared(struct session_plan *pub, struct err *e)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    struct checkpoint *t = find_neighbour(p);

    if (!t)
        return 0;
    p->neighbour = t;
    p->compared = ARENA_NEW(p->arena, struct recall);
    *p->compared = (struct recall){.session = p->session, .holds = true, .open_only = true};
    recall_context(p->compared, t);
    p->alone = recall_read(p->compared, e) != 0;
    return p->alone && e->kind == ERR_CANCELLED ? -1 : 0;
}
