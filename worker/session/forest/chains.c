/* Policy chains: append-only linear chains; a request continues one or starts one. A chain is in
 * two lists of the trie's nodes, newest first: at the node where it ends (heads) and, if its last
 * answer may be rolled back, at the node before that answer (backs). Choosing a chain therefore
 * looks once at each node of the walk, however many chains there are. */

#include <string.h>

#include "worker/session/forest/policy.h"
#include "worker/text/model/model.h"

#include "worker/session/call/plan.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/store.h"

/* Takes a chain out of one of the two lists. `prev` is the address of the pointer to this chain. */
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

static struct node_chains *chains_at(struct forest *f, struct message_node *n)
{
    if (!n->chains)
        n->chains = ARENA_NEW(&f->arena, struct node_chains);
    return n->chains;
}

/* Adds the chain to the lists. c->head must be set. */
static void enter_lists(struct forest *f, struct chain *c)
{
    struct node_chains *end = chains_at(f, c->head->node), *before;

    c->next_head = end->heads;
    c->prev_head = &end->heads;
    if (end->heads)
        end->heads->prev_head = &c->next_head;
    end->heads = c;
    if (!c->head->parent) /* no trained token would be left before the dropped answer */
        return;
    before = chains_at(f, c->head->node->parent);
    c->next_back = before->backs;
    c->prev_back = &before->backs;
    if (before->backs)
        before->backs->prev_back = &c->next_back;
    before->backs = c;
}

/* Reports whether no running call continues the chain. With `left`, a call whose clients have left
 * does not count. */
static bool is_free(const struct chain *c, bool left)
{
    return !c->reserved || (left && c->reserved->left);
}

static struct chain *first_free_head(const struct message_node *at, bool left)
{
    struct chain *c = at->chains ? at->chains->heads : NULL;

    while (c && !is_free(c, left))
        c = c->next_head;
    return c;
}

/* Returns the only chain that can be rolled back to `at`. Returns NULL if there is none, or
 * several (then *ret_tie is true). `continued` is the request's next node: chains through it match
 * exactly. */
static struct chain *only_free_back(const struct message_node *at,
                                    const struct message_node *continued, bool left, bool *ret_tie)
{
    struct chain *found = NULL;

    for (struct chain *c = at->chains ? at->chains->backs : NULL; c; c = c->next_back) {
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

/* Chooses a chain at one node: a chain that ends there is continued; else, with
 * rollback_last_assistant, a chain whose last answer the request has rewritten is rolled back. If
 * several could be rolled back, it is a tie. Returns true if the choice is made. */
static bool choose_at(struct session *s, struct plan *p, const struct message_node *at,
                      const struct message_node *next, bool left)
{
    bool tie = false;

    p->chain = first_free_head(at, left);
    if (p->chain)
        return true;
    /* A request that ends right before an answer is a new sample, never a rewrite. */
    if (!s->options.rollback_last_assistant || at->depth >= p->walk.n)
        return false;
    p->chain = only_free_back(at, next, left, &tie);
    p->rollback = p->chain != NULL;
    return tie || p->chain;
}

/* Chooses a chain, from the longest match backwards. At each node free chains are tried first, so
 * that a client that has left may still return for its answer. */
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
 * arrived after its clients had left. A token count reserves nothing. */
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

/* UINT32_MAX: begins a new chain. */
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
    enter_lists(&s->forest, c);
    return 0;
}

/* Returns how many ids of a chain stay if its last answer is dropped: the context before that
 * answer without the template's beginning of it (lead_ids). Returns 0 if the context does not end
 * with lead_ids. */
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

/* Closes a chain into which a call did not fit any more. A closed chain is never continued. */
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

/* Lists the chains, including closed ones. */
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
