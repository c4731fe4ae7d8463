/* Finds the checkpoint of the same answer if a request was sent twice. */
#include "common/codec/json.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/store/store.h"

/* Reports whether checkpoints continue it, or running calls will. */
static bool in_use(const struct session *s, const struct checkpoint *t)
{
    const struct plan *p;

    if (t->children)
        return true;
    LIST_EACH(&s->plans, p, struct plan, item)
        if (p->parent == t && !p->look)
            return true;
    return false;
}

/* Finds the node of the answer's message below the plan's prompt, or NULL. A long message must have
 * been read before. */
static struct message_node *find_node(const struct plan *p, const struct json *message)
{
    struct forest *f = &p->session->forest;
    const struct new_messages *ready = ready_answers_get(p->made.answers, 0);
    struct arena tmp = {0};
    struct message m;
    struct message_node *n;

    if (ready)
        return forest_find_child(f, p->prompt, &ready->nodes[0]->msg);
    message_read(&m, message, &f->matcher, &tmp);
    n = forest_find_child(f, p->prompt, &m);
    arena_done(&tmp);
    return n;
}

struct checkpoint *plan_duplicate(const struct plan *p, const struct json *message,
                                  bool *ret_in_use)
{
    const struct session *s = p->session;
    struct message_node *n;

    if (!s->options.idempotent_retry || s->options.policy != &policy_tree || !p->chat.messages ||
        !p->prompt || p->walk.n_matched < p->walk.n)
        return NULL;
    n = find_node(p, message);
    for (struct checkpoint *t = n ? n->newest : NULL; t; t = t->older)
        if (t->parent == p->parent) {
            *ret_in_use = in_use(s, t);
            return t;
        }
    return NULL;
}
