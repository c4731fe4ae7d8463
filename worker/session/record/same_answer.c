/* Two calls with the same prompt and answer: one checkpoint stays, the other is hidden. */
#include "worker/session/record/same_answer.h"

#include "common/base/arena.h"
#include "common/base/str.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/store.h"
#include "worker/text/request/purpose.h"

/* Takes a checkpoint out of its node, so that no branch has it. Records still name it by number. */
static void unlink_node(struct checkpoint *t)
{
    struct checkpoint **at = &t->node->newest;

    while (*at && *at != t)
        at = &(*at)->older;
    if (*at)
        *at = t->older;
    t->hidden = true;
}

void checkpoint_hide(struct session *s, struct checkpoint *t)
{
    session_count_leaf(s, t, -1);
    s->forest.shape++;
    if (t->node)
        unlink_node(t);
    t->hidden = true;
    if (!t->parent)
        return;
    t->parent->children--;
    session_count_leaf(s, t->parent, 1);
}

/* Makes the checkpoint the first, and newest, of its node. */
static void bring_forward(struct checkpoint *t)
{
    struct message_node *n = t->node;

    unlink_node(t);
    t->hidden = false;
    t->older = n->newest;
    n->newest = t;
}

static bool is_mains(const struct checkpoint *t)
{
    return str_eq_c(role_of(checkpoint_remarks(t)->label), "main");
}

/* Names the speaker of a turn that two calls share: that of the first call. If only the second is
 * main's, the turn is main's, because main may continue it. */
static void name_speaker(struct forest *f, struct checkpoint *stays, const struct checkpoint *first,
                         const struct checkpoint *second)
{
    const struct checkpoint *speaks = !is_mains(first) && is_mains(second) ? second : first;
    struct checkpoint_remarks *both;

    if (speaks == stays || (!speaks->remarks && !stays->remarks))
        return;
    both = arena_alloc(&f->arena, sizeof(*both));
    *both = *checkpoint_remarks(stays);
    both->label = checkpoint_remarks(speaks)->label;
    both->parent_label = checkpoint_remarks(speaks)->parent_label;
    stays->remarks = both;
}

void same_answer_link(struct session *s, struct checkpoint *t, struct checkpoint *duplicate,
                      enum commit_duplicate mode)
{
    s->refreshed++;
    name_speaker(&s->forest, mode == DUPLICATE_REPLACE ? t : duplicate, duplicate, t);
    if (mode == DUPLICATE_REPLACE) {
        checkpoint_hide(s, duplicate);
        duplicate->instead = t;
        reward_move(s, duplicate->response_id, t->response_id);
        return;
    }
    checkpoint_hide(s, t);
    t->instead = duplicate;
    duplicate->seq = t->seq;
    bring_forward(duplicate);
}
