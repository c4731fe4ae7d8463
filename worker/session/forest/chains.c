/* Policy chains: append-only linear chains; a request continues one or starts one. Chains hang in
 * two lists at the nodes of the trie, newest first: where they end (heads) and, when their last
 * answer may be rolled back, where that answer follows (backs). So choosing costs one look at each
 * node of the walk, however many chains there are. */

#include <string.h>

#include "worker/session/forest/policy.h"
#include "worker/text/model/model.h"

#include "worker/session/call/plan.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/store.h"

/* Out of one of the two lists; `prev` is where the pointer to this chain stands. */
static void unlink_from(struct chain ***prev, struct chain *next, struct chain ***next_prev)
{
    if (!*prev)
        return;
    **prev = next;
    if (next)
        *next_prev = *prev;
    *prev = NULL;
}

static void leave_lists(struct chain *c)
{
    unlink_from(&c->prev_head, c->next_head, c->next_head ? &c->next_head->prev_head : NULL);
    unlink_from(&c->prev_back, c->next_back, c->next_back ? &c->next_back->prev_back : NULL);
}

/* Enters the chain in the lists; c->head must be set. */
static void enter_lists(struct chain *c)
{
    struct message_node *end = c->head->node, *before = end->parent;

    c->next_head = end->heads;
    c->prev_head = &end->heads;
    if (end->heads)
        end->heads->prev_head = &c->next_head;
    end->heads = c;
    if (!c->head->parent) /* nothing trained would be left before the dropped answer */
        return;
    c->next_back = before->backs;
    c->prev_back = &before->backs;
    if (before->backs)
        before->backs->prev_back = &c->next_back;
    before->backs = c;
}

/* True if no running call continues the chain; with `left`, also if that call's clients left. */
static bool is_free(const struct chain *c, bool left)
{
    return !c->reserved || (left && c->reserved->left);
}

static struct chain *first_free_head(const struct message_node *at, bool left)
{
    struct chain *c = at->heads;

    while (c && !is_free(c, left))
        c = c->next_head;
    return c;
}

/* The only chain that could be rolled back to `at`; NULL when there is none, and *ret_tie when
 * there are several. `continued` is the request's next node: chains through it match exactly. */
static struct chain *only_free_back(const struct message_node *at,
                                    const struct message_node *continued, bool left, bool *ret_tie)
{
    struct chain *found = NULL;

    for (struct chain *c = at->backs; c; c = c->next_back) {
        if (!is_free(c, left) || c->head->node == continued)
            continue;
        if (found) {
            *ret_tie = true;
            return NULL;
        }
        found = c;
    }
    return found;
}

/* Chooses a chain at one node: one that ends there is continued; else, with
 * rollback_last_assistant, one whose last answer the request has rewritten is rolled back. Several
 * that could be rolled back are a tie. Returns true if the choice is made. */
static bool choose_at(struct session *s, struct plan *p, const struct message_node *at,
                      const struct message_node *next, bool left)
{
    bool tie = false;

    p->chain = first_free_head(at, left);
    if (p->chain)
        return true;
    /* A request that ends exactly before an answer is a fresh sample, never a rewrite. */
    if (!s->options.rollback_last_assistant || at->depth >= p->walk.n)
        return false;
    p->chain = only_free_back(at, next, left, &tie);
    p->rollback = p->chain != NULL;
    return tie || p->chain;
}

/* Goes from the longest match backwards. At each node free chains come first, so that a client
 * that left may still come back for its answer. */
static void choose_chain(struct session *s, struct plan *p)
{
    const struct message_node *next = NULL;

    for (struct message_node *at = p->walk.last; at && at->depth > 0; next = at, at = at->parent)
        if (choose_at(s, p, at, next, false) || choose_at(s, p, at, next, true))
            return;
}

static void reserve_chain(struct plan *p)
{
    if (p->chain->reserved)
        p->pub.displaced = &p->chain->reserved->pub;
    p->chain->reserved = p;
}

/* Reserves the chain for this call until it is committed, dropped, or displaced by a call that
 * came after its clients left. A look (a count of tokens) leaves the chain to calls. */
static int chains_position(struct session *s, struct plan *p, struct err *e)
{
    (void)e;
    choose_chain(s, p);
    if (!p->chain)
        return 0;
    p->parent = p->rollback ? p->chain->head->parent : p->chain->head;
    p->covered = p->parent->node->depth;
    if (!p->look)
        reserve_chain(p);
    return 0;
}

static struct chain *chain_at(struct session *s, uint32_t id, struct err *e)
{
    if (id < s->chains.n && !s->chains.at[id]->closed)
        return s->chains.at[id];
    (void)err_set(e, ERR_IO, "record names chain %u, which is not open", id);
    return NULL;
}

/* UINT32_MAX: a new chain begins. */
static int chains_commit(struct session *s, struct checkpoint *t, uint32_t chain, bool rollback,
                         struct err *e)
{
    struct chain *c;

    if (chain == UINT32_MAX) {
        c = ARENA_NEW(&s->forest.arena, struct chain);
        c->id = (uint32_t)s->chains.n;
        *vec_push(&s->chains) = c;
    } else {
        c = chain_at(s, chain, e);
        if (!c)
            return -1;
        leave_lists(c);
        if (rollback) {
            s->rollbacks++;
            s->rollback_dropped += c->head->n;
        }
    }
    c->head = t;
    c->seq = t->seq;
    c->reserved = NULL;
    enter_lists(c);
    return 0;
}

/* How many ids a chain keeps whose last answer is dropped: the context before that answer
 * without the template's beginning of it (lead_ids); if the context does not end with those,
 * nothing of it. */
uint32_t chains_kept(const struct session *s, const struct checkpoint *dropped, const int32_t *ids)
{
    const struct model_info *info = model_info(s->store->model);
    uint32_t end = checkpoint_start(dropped), least = end - dropped->n_context;
    size_t lead = info->n_lead_ids;

    if (end - least < lead ||
        (lead && memcmp(ids + end - lead, info->lead_ids, lead * sizeof(*ids)) != 0))
        return least;
    return end - (uint32_t)lead;
}

/* A call did not fit any more; a chain that is closed is never continued. */
int chains_close(struct session *s, uint32_t chain, uint32_t kept, struct err *e)
{
    struct chain *c = chain_at(s, chain, e);
    struct checkpoint *last = c ? c->head : NULL;

    if (!c)
        return -1;
    if (kept && (!last->parent || kept > checkpoint_start(last) ||
                 kept < checkpoint_start(last) - last->n_context))
        return err_set(e, ERR_IO, "record keeps what the chain does not have");
    leave_lists(c);
    if (kept) {
        s->rollbacks++;
        s->rollback_dropped += last->n;
        c->dropped = last;
        c->kept = kept;
        c->head = last->parent;
    }
    c->closed = true;
    c->reserved = NULL;
    c->seq = s->next_seq++;
    return 0;
}

/* Lists the chains, closed ones included. */
static void chains_branches(struct session *s, struct branch_vec *out)
{
    for (size_t i = 0; i < s->chains.n; i++) {
        const struct chain *c = s->chains.at[i];

        *vec_push(out) = (struct branch){
            c->head, c->seq, c->closed ? "max_trajectory_length" : NULL, c->dropped, c->kept};
    }
}

const struct policy policy_chains = {.name = "chains",
                                     .position = chains_position,
                                     .commit = chains_commit,
                                     .branches = chains_branches};
