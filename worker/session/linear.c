/* Policy linear: one history. A request extends it or retries from one generated turn back; the
 * first of several overlapping commits wins. */
#include "worker/session/policy.h"

enum { ROLLBACK_MAX = 1 };

/* How many leading messages of the request are the history's, and how many of its turns lie
 * beyond them. */
static uint32_t matched_of(const struct session *s, const struct plan *p, uint32_t *ret_beyond)
{
    const struct turn *t = s->head;
    const struct node *at = t->node;
    uint32_t n = 0;

    /* The walk may have gone down another branch of the trie: what they share counts. */
    while (at->depth > 0) {
        if (at->depth <= p->walk.n_matched && p->walk.path[at->depth - 1] == at) {
            n = at->depth;
            break;
        }
        at = at->parent;
    }
    *ret_beyond = 0;
    for (; t && t->node->depth > n; t = t->parent)
        ++*ret_beyond;
    return n;
}

static int may_append(const struct plan *p, uint32_t from, struct err *e)
{
    static const char *const roles[] = {"tool", "user", "system", "developer", "assistant"};

    for (uint32_t i = from; i < p->walk.n; i++) {
        struct str role = json_string(json_get(&p->chat.messages->items[i], "role"));
        bool known = false;

        for (size_t k = 0; k < ARRAY_LEN(roles); k++)
            known |= str_eq_c(role, roles[k]);
        if (!known)
            return err_set(e, ERR_HISTORY_CONFLICT,
                           "linear history: a message of role '%.*s' cannot be appended",
                           (int)MIN_OF(role.len, 40), role.p ? role.p : "");
    }
    return 0;
}

static int linear_position(struct session *s, struct plan *p, struct err *e)
{
    struct turn *head = s->head;
    uint32_t matched, beyond;

    p->head_version = s->head_version;
    if (!head)
        return 0;
    matched = matched_of(s, p, &beyond);
    if (matched < head->node->depth) {
        if (beyond > ROLLBACK_MAX)
            return err_set(e, ERR_HISTORY_CONFLICT,
                           "rollback failed: discard_count=%u exceeds "
                           "max_assistant_rollback_steps=%d (stored has %u messages, request has "
                           "%u messages): a linear history may be extended or retried from one "
                           "generated turn back",
                           beyond, ROLLBACK_MAX, head->node->depth, p->walk.n);
        /* The discarded turn is gone from here on, whatever becomes of this call; its tokens stay
         * in the records. */
        head = head->parent;
        if (!p->look) {
            s->head = head;
            p->head_version = ++s->head_version;
        }
    }
    p->parent = head;
    p->covered = head ? head->node->depth : 0;
    return may_append(p, p->covered, e);
}

static int linear_check(const struct session *s, const struct plan *p, struct err *e)
{
    if (p->head_version != s->head_version)
        return err_set(e, ERR_STATE_CONFLICT,
                       "another call of this linear session was recorded first; send it again");
    return 0;
}

void linear_move(struct session *s, struct turn *head)
{
    if (s->recorded && s->recorded != head) {
        s->rollbacks++;
        s->rollback_dropped += s->recorded->n;
    }
    s->head = s->recorded = head;
}

static int linear_commit(struct session *s, struct turn *t, uint32_t chain, bool rollback,
                         struct err *e)
{
    (void)chain;
    (void)rollback;
    (void)e;
    if (t->answer > 0) /* further answers of one call stand beside the one history */
        return 0;
    linear_move(s, t->parent);
    s->head = s->recorded = t;
    s->head_version++;
    return 0;
}

static void linear_branches(struct session *s, struct branch_vec *out)
{
    if (s->head)
        *vec_push(out) = (struct branch){.head = s->head, .seq = s->head->seq};
}

const struct policy policy_linear = {.name = "linear",
                                     .position = linear_position,
                                     .check = linear_check,
                                     .commit = linear_commit,
                                     .branches = linear_branches};
