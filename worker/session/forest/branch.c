/* Makes the branches on which a session is trained: each is a head checkpoint and, by `parent`, the
 * path before it. The policy chooses the heads. Completions, which have no messages, are branches
 * of their own. */

#include "worker/session/forest/branch.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/session/forest/policy.h"
#include "worker/session/store/store.h"

static const struct policy *const POLICIES[] = {&policy_tree, &policy_chains, &policy_linear,
                                                &policy_timelines};

const struct policy *policy_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(POLICIES); i++)
        if (str_eq_c(name, POLICIES[i]->name))
            return POLICIES[i];
    return NULL;
}

static int by_seq(const void *a, const void *b)
{
    const struct branch *x = a, *y = b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

static void sort_branches(struct branch_vec *v)
{
    if (v->n)
        qsort(v->at, v->n, sizeof(*v->at), by_seq);
}

static bool has_forest_branches(const struct session *s)
{
    return s->options.policy == &policy_tree || s->options.policy == &policy_timelines;
}

/* Adds completions, which have no history: each is a branch of its own under every policy. */
static void add_completions(struct session *s, struct branch_vec *out)
{
    for (size_t i = 0; i < s->forest.checkpoints.n; i++) {
        struct checkpoint *t = s->forest.checkpoints.at[i];

        if (!t->node)
            *vec_push(out) = (struct branch){.head = t, .seq = t->seq};
    }
}

/* Adds every checkpoint that no other checkpoint has replaced. */
static void add_shown(const struct session *s, struct branch_vec *out)
{
    for (size_t i = 0; i < s->forest.checkpoints.n; i++) {
        struct checkpoint *t = s->forest.checkpoints.at[i];

        if (!t->hidden)
            *vec_push(out) = (struct branch){.head = t, .seq = t->seq};
    }
}

bool session_keeps_pool(const struct session *s, const struct checkpoint *t)
{
    struct str pool = checkpoint_pool(t);

    return !pool.len || str_eq(pool, s->options.pool);
}

void session_count_leaf(struct session *s, const struct checkpoint *t, int by)
{
    struct forest_leaves *l = &s->forest.leaves;

    if (t->children > 0 || t->hidden || !session_keeps_pool(s, t))
        return;
    l->n += (uint64_t)by;
    if (t->audit.done && t->audit.audited)
        l->audited += (uint64_t)by;
    l->drift += (uint64_t)by * t->audit.count;
}

/* Removes answers of pools other than the session's, which are not part of its history. */
static void leave_pools(const struct session *s, struct branch_vec *v)
{
    size_t n = 0;

    for (size_t i = 0; i < v->n; i++)
        if (session_keeps_pool(s, v->at[i].head))
            v->at[n++] = v->at[i];
    v->n = n;
}

/* Adds the leaves of the session's own pool, whose answers form a tree under every policy
 * (prepare.c). */
static void add_own_pool(const struct session *s, struct branch_vec *out)
{
    for (size_t i = 0; s->options.pool.len && i < s->forest.checkpoints.n; i++) {
        struct checkpoint *t = s->forest.checkpoints.at[i];

        if (!t->hidden && t->children == 0 && str_eq(checkpoint_pool(t), s->options.pool))
            *vec_push(out) = (struct branch){.head = t, .seq = t->seq};
    }
}

/* Sorts the branches in the order in which their heads were recorded. The session must be in
 * memory. */
void session_branches(struct session *s, struct branch_vec *out)
{
    CHECK(s->residence == RESIDENT);
    s->options.policy->branches(s, out);
    leave_pools(s, out);
    if (!has_forest_branches(s)) {
        add_completions(s, out);
        add_own_pool(s, out);
    }
    sort_branches(out);
}

/* Lists each checkpoint of any branch once, as a head of its own. */
void session_checkpoints(struct session *s, struct branch_vec *out)
{
    char *seen;

    if (has_forest_branches(s)) {
        add_shown(s, out);
        sort_branches(out);
        return;
    }
    /* checkpoints that a rollback dropped are in no branch */
    session_branches(s, out);
    seen = mem_zalloc(s->forest.checkpoints.n + 1);
    for (size_t i = 0, heads = out->n; i < heads; i++) {
        seen[out->at[i].head->id] = 1;
        for (struct checkpoint *t = out->at[i].head->parent; t && !seen[t->id]; t = t->parent) {
            seen[t->id] = 1;
            *vec_push(out) = (struct branch){.head = t, .seq = t->seq};
        }
    }
    free(seen);
    sort_branches(out);
}
