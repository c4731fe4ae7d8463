/* Policies tree and timelines: every answer is a checkpoint of its own, and a request attaches at
 * the deepest checkpoint that covers a prefix of it. timelines differs only in exports: see
 * worker/export/build/timeline_merge.c. */

#include "worker/session/forest/policy.h"

#include "common/base/vec.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/branch.h"
#include "worker/session/store/store.h"

static void position_deepest(struct plan *p)
{
    const struct message_node *at = p->walk.last;

    while (at && at->depth > 0 && !at->newest)
        at = at->parent;
    if (!at || at->depth == 0)
        return;
    p->parent = at->newest;
    p->covered = at->depth;
}

static int tree_position(struct session *s, struct plan *p, struct err *e)
{
    (void)s;
    (void)e;
    position_deepest(p);
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
