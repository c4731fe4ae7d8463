/* Policy linear: one history. A request extends the history or retries from one generated
 * checkpoint back. Of several overlapping commits the first wins. */
#include "common/codec/json.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/store.h"
#include "worker/text/model/model.h"

enum { ROLLBACK_MAX = 1 };

/* Returns how many leading messages of the request belong to the history, and in *ret_beyond how
 * many of the history's checkpoints come after them. */
static uint32_t matched_of(const struct session *s, const struct plan *p, uint32_t *ret_beyond)
{
    const struct checkpoint *t = s->head;
    const struct message_node *at = t->node, *sent = p->walk.last;
    uint32_t n;

    /* The walk may have ended in a different branch of the trie: only the shared part counts. */
    while (sent && at != sent && at->parent)
        if (sent->depth > at->depth)
            sent = sent->parent;
        else
            at = at->parent;
    n = sent && at == sent ? at->depth : 0;
    *ret_beyond = 0;
    for (; t && t->node->depth > n; t = t->parent)
        ++*ret_beyond;
    return n;
}

static bool known_role(struct str role, const char *const *roles)
{
    for (; *roles; roles++)
        if (str_eq_c(role, *roles))
            return true;
    return false;
}

/* Checks that the model's template can write the roles of the new messages after an answer. */
static int may_append(const struct session *s, const struct plan *p, uint32_t from, struct err *e)
{
    static const char *const all[] = {"tool", "user", "system", "developer", "assistant", NULL};
    const char *const *roles = model_info(s->store->model)->append_roles;

    if (!roles)
        roles = all;
    for (uint32_t i = from; i < p->walk.n; i++) {
        struct str role = json_string(json_get(&p->chat.messages->items[i], "role"));
        struct buf names = {0};

        if (known_role(role, roles))
            continue;
        for (const char *const *name = roles; *name; name++)
            buf_printf(&names, "%s%s", name == roles ? "" : ", ", *name);
        (void)err_set(e, ERR_HISTORY_CONFLICT,
                      "linear history: message %u of role '%.*s' cannot be appended with this "
                      "model's chat template; roles that can: %.*s",
                      i, (int)MIN_OF(role.len, 40), role.p ? role.p : "", (int)names.len,
                      names.p ? names.p : "none");
        buf_done(&names);
        return -1;
    }
    return 0;
}

/* Extends the head, or goes one answer back (pub.drops). Any other position is a conflict with the
 * history. */
static int linear_position(struct session *s, struct plan *p, struct err *e)
{
    struct checkpoint *head = s->head;
    uint32_t matched, beyond;

    p->head_version = s->head_version;
    if (!head)
        return 0;
    matched = matched_of(s, p, &beyond);
    if (matched < head->node->depth) {
        /* no call will follow, so the prompt is only rendered */
        if (beyond > ROLLBACK_MAX && p->look)
            return 0;
        if (beyond > ROLLBACK_MAX)
            return err_set(e, ERR_HISTORY_CONFLICT,
                           "rollback failed: discard_count=%u exceeds "
                           "max_assistant_rollback_steps=%d (stored has %u messages, request has "
                           "%u messages)",
                           beyond, ROLLBACK_MAX, head->node->depth, p->walk.n);
        head = head->parent;
        p->pub.drops = true;
    }
    p->parent = head;
    p->covered = head ? head->node->depth : 0;
    return head && !p->look ? may_append(s, p, p->covered, e) : 0;
}

static int linear_check(const struct session *s, const struct plan *p, struct err *e)
{
    if (p->head_version != s->head_version)
        return err_set(e, ERR_STATE_CONFLICT,
                       "another call of this linear session was recorded first; send it again");
    return 0;
}

/* Moves the head. Checkpoints that are not on the new path count as dropped. */
void linear_move(struct session *s, struct checkpoint *head)
{
    if (s->head && s->head != head) {
        s->rollbacks++;
        s->rollback_dropped += s->head->n;
    }
    s->head = head;
}

/* A completion has no messages that a history could continue, so the history of its fork is
 * empty. */
void linear_fork(struct session *s, struct checkpoint *head)
{
    s->head = head->node ? head : NULL;
    s->head_version++;
}

/* Writes the record of a retry, which drops the newest answer before the engine is asked. */
void session_drop_record(struct session_plan *pub, uint64_t now_ms, struct buf *record)
{
    const struct plan *p = CONTAINER_OF(pub, struct plan, pub);

    record_begin(record, RECORD_DROP, p->session->id, now_ms);
    record_put_u(record, pub->call);
    record_put_u(record, p->session->head->id);
}

/* The plan that requested the drop may be committed on the new head. */
int linear_apply_drop(struct session *s, struct record_in *r, struct err *e)
{
    uint64_t call = record_u(r), checkpoint = record_u(r);
    struct plan *p;

    if (r->bad || r->p != r->end || s->options.policy != &policy_linear || !s->head ||
        s->head->id != checkpoint)
        return err_set(e, ERR_IO, "session record: drops what is not the newest checkpoint");
    linear_move(s, s->head->parent);
    s->head_version++;
    p = plan_find(s, call);
    if (p) {
        p->head_version = s->head_version;
        p->pub.drops = false;
    }
    return 0;
}

/* Only the first answer of a call belongs to the history. */
static int linear_commit(struct session *s, struct checkpoint *t, uint32_t chain, bool rollback,
                         struct err *e)
{
    (void)chain;
    (void)rollback;
    (void)e;
    if (t->answer > 0) /* further answers of a call are kept beside the history */
        return 0;
    linear_move(s, t->parent);
    s->head = t;
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
