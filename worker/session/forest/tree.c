/* Policies tree and timelines: every answer is a checkpoint of its own, and a request attaches at
 * the deepest checkpoint that covers a prefix of it. timelines differs only in exports: see
 * worker/export/build/timeline_merge.c. */

#include "worker/session/forest/policy.h"

#include "common/base/vec.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/branch.h"
#include "worker/session/store/store.h"

/* Attaches after an answer below `above` if the message, which is number `depth`, begins with it.
 * The ids of what the client added follow the answer's. */
static bool attach_begun(struct session *s, struct plan *p, const struct message_node *above,
                         const struct message *m, uint32_t depth)
{
    struct str added;
    const struct message_node *n =
        p->exact || p->text ? NULL : forest_find_begun(&s->forest, above, m, &added);

    if (!n)
        return false;
    p->parent = n->newest;
    p->covered = depth;
    p->added = arena_str(p->arena, added);
    return true;
}

static void position_deepest(struct session *s, struct plan *p)
{
    const struct message_node *at = p->walk.last;

    if (p->env && p->walk.n_matched < p->walk.n &&
        attach_begun(s, p, at ? at : &p->env->root, &p->walk.unmatched, p->walk.n_matched + 1))
        return;
    for (; at && at->depth > 0; at = at->parent) {
        if (at->newest) {
            p->parent = at->newest;
            p->covered = at->depth;
            return;
        }
        if (attach_begun(s, p, at->parent, &at->msg, at->depth))
            return;
    }
}

static int tree_position(struct session *s, struct plan *p, struct err *e)
{
    (void)e;
    position_deepest(s, p);
    return 0;
}

/* Lists every answer that no other continues. */
static void tree_branches(struct session *s, struct branch_vec *out)
{
    for (size_t i = 0; i < s->forest.checkpoints.n; i++) {
        struct checkpoint *t = s->forest.checkpoints.at[i];

        if (t->children == 0 && !t->hidden)
            *vec_push(out) = (struct branch){.head = t, .seq = t->seq};
    }
}

const struct policy policy_tree = {
    .name = "tree", .position = tree_position, .branches = tree_branches};

/* Every call is a timeline of its own. Exports merge them. */
const struct policy policy_timelines = {
    .name = "timelines", .position = tree_position, .branches = session_checkpoints};
