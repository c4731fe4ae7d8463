/* The first half of a call: finds its position, makes the prompt's ids for the engine, and limits
 * the answer's length. The results are kept in a plan (plan.h), which the second half (commit.c)
 * records.
 *
 *   session_prepare_position   in a task: the walk; then the position (policy, cause)
 *   session_prepare_path       in a task: reads back what its path lacks; finds the stored ids
 *   session_prepare_render     on the loop or in a helper: the prompt, from the model's template
 *   session_prepare_end        in a task: limits, the call's number
 *
 * Once the call has its position the session may change or end: render reads only the plan, and
 * what never changes of the session (its options and matcher); payloads of the path are held. A
 * prompt is the stored ids of the parent and a suffix for the new messages (prompt_append), so
 * stored tokens are never encoded again. Without a parent the whole chat is rendered (prompt_full).
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/codec/json.h"
#include "common/os/task.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/policy.h"
#include "worker/session/store/stop.h"
#include "worker/session/store/store.h"
#include "worker/text/model/model.h"

/* --- the prompt --- */

/* Makes the conversation to render: messages that stored tokens represent are in their stored
 * spelling (a rollback keeps the context before the dropped answer), later ones in the client's
 * own. */
static void use_stored_spelling(struct plan *p)
{
    const struct json *given = p->chat.messages;
    uint32_t stored =
        p->rollback ? p->chain->head->node->depth - 1 : p->covered - (p->added.p != NULL);
    struct json *all;

    p->n_stored = stored;
    if (stored == 0)
        return;
    all = forest_messages(&p->session->forest, walk_node(&p->walk, stored), given->n - stored,
                          p->arena);
    memcpy(all->items + stored, given->items + stored, (given->n - stored) * sizeof(*all->items));
    p->chat.messages = all;
}

/* Uses ids that are in one place, and not stored yet, as the prompt. */
static void use_whole(struct plan *p, struct token_span ids)
{
    p->made.prompt = plan_one_part(p, ids);
    p->made.n_context = (uint32_t)ids.n;
}

/* Renders the whole prompt into made.prompt. */
static int prompt_full(struct plan *p, struct model_scratch *scratch, struct err *e)
{
    struct token_vec ids = {0};
    int32_t *at;

    if (model_prompt(p->session->store->model, scratch, &p->chat, &ids, e) != 0) {
        vec_done(&ids);
        return -1;
    }
    at = arena_alloc(p->arena, ids.n * sizeof(*at));
    if (ids.n)
        memcpy(at, ids.at, ids.n * sizeof(*at));
    use_whole(p, (struct token_span){at, ids.n});
    vec_done(&ids);
    return 0;
}

/* Appends the suffix to the stored ids, without those that the suffix trims: they are among the
 * parent's answer, which is the last part. */
static void prompt_append(struct plan *p, const struct model_suffix *x)
{
    size_t kept = p->parent->total - x->trim, n = p->made.stored_parts;
    int32_t *at = arena_alloc(p->arena, x->ids.n * sizeof(*at));

    if (x->ids.n)
        memcpy(at, x->ids.at, x->ids.n * sizeof(*at));
    p->made.stored[n - 1].n -= x->trim;
    p->made.stored[n] = (struct token_span){at, x->ids.n};
    p->made.prompt = (struct token_parts){p->made.stored, n + 1, kept + x->ids.n};
    p->made.reused = kept;
    p->made.n_context = (uint32_t)x->ids.n;
    p->made.n_close = x->close;
    p->made.trim = x->trim;
}

/* Debug builds compare every suffix, and prepare the new messages of every second request. */
#ifdef NDEBUG
enum { AUDITS_ALL = 0 };
#else
enum { AUDITS_ALL = 1 };
#endif

/* Returns the chat for the suffix. The answer to which text was added has its thought, so that a
 * template that drops it is noticed. */
static struct chat chat_of_suffix(const struct plan *p)
{
    struct chat ret = p->chat;
    uint32_t last = p->covered - 1;
    struct json *all;

    if (!p->added.p)
        return ret;
    all = ARENA_NEW(p->arena, struct json);
    *all = *ret.messages;
    all->items = arena_alloc(p->arena, all->n * sizeof(*all->items));
    memcpy(all->items, ret.messages->items, all->n * sizeof(*all->items));
    all->items[last] = message_with_thought(&all->items[last], p->parent->message, p->arena);
    ret.messages = all;
    return ret;
}

/* Makes the prompt after a parent. If no suffix can be made (the template does not render answers),
 * the whole chat is rendered. */
static int prompt_after_parent(struct plan *p, struct model_scratch *scratch, struct err *e)
{
    const struct session *s = p->session;
    struct chat chat = chat_of_suffix(p);
    struct model_suffix x = {0};
    struct model_tail tail = {p->made.stored[p->made.stored_parts - 1], p->parent->cut, p->added};
    int rc;

    model_scratch_audit(scratch, p->made.audits || AUDITS_ALL);
    rc = model_suffix(s->store->model, scratch, &chat, p->covered, &tail, &x, e);
    model_scratch_audit(scratch, false);
    p->made.audited = x.audit != MODEL_AUDIT_NONE;
    p->made.audit_differs = x.audit == MODEL_AUDIT_DIFFERS;
    if (rc == 0 && (x.trim > p->parent->n || x.close > x.ids.n))
        rc = err_set(e, ERR_INTERNAL, "the template's suffix trims more than the answer");
    if (!p->chain &&
        (rc == 0 ? x.rewrites && s->options.branch_on_rewrite : e->kind == ERR_UNSUPPORTED)) {
        p->made.anew = true;
        rc = prompt_full(p, scratch, e);
    } else if (rc == 0) {
        prompt_append(p, &x);
    }
    vec_done(&x.ids);
    return rc;
}

/* Moves the made prompt into the plan. */
static void adopt_made(struct plan *p)
{
    if (p->made.anew) {
        p->parent = NULL;
        p->covered = 0;
        p->pub.cause = CAUSE_TEMPLATE_REWRITE;
    }
    p->pub.prompt = p->made.prompt;
    p->pub.audited = p->made.audited;
    p->pub.audit_differs = p->made.audit_differs;
    p->pub.reused = p->made.reused;
    p->n_context = p->made.n_context;
    p->n_close = p->made.n_close;
    p->trim = p->pub.trimmed = p->made.trim;
}

/* Returns the number of rows that the path has without a gap, all in the size of the last answer's.
 * Rows of trimmed tokens do not count, because the engine computed them with different tokens. */
static uint32_t rows_known(const struct plan *p, enum rows_kind kind)
{
    struct checkpoint **path;
    uint32_t known = 0;

    if (!p->parent || !checkpoint_rows(p->parent, kind)->has)
        return 0;
    path = checkpoint_path(p->parent, p->arena);
    for (uint32_t i = 0; i < p->parent->depth; i++) {
        const struct checkpoint_rows *r = checkpoint_rows(path[i], kind);

        if (r->has && r->from <= known)
            known = MAX_OF(known, r->from + r->n);
    }
    return (uint32_t)MIN_OF((size_t)known, p->pub.reused);
}

/* --- limits --- */

/* Checks the limit of stored messages and answers. `fresh`: at least so many messages are not
 * stored yet. */
static int check_nodes(const struct session *s, const struct plan *p, uint64_t fresh, struct err *e)
{
    if (p->look || (s->forest.nodes.n + fresh + 1 <= s->options.max_nodes &&
                    s->forest.checkpoints.n < s->options.max_nodes))
        return 0;
    return err_set(e, ERR_MAX_NODES, "this session has reached its limit of %u stored messages",
                   s->options.max_nodes);
}

/* Copies the ids of the chain, its last answer rolled back if the plan says so, as the prompt of an
 * exhausted call. */
static void fill_exhausted(struct plan *p)
{
    struct checkpoint *t = p->chain ? p->chain->head : NULL;
    int32_t *ids;

    p->pub.exhausted = true;
    p->pub.max_tokens = 0;
    if (!t)
        return;
    ids = arena_alloc(p->arena, (size_t)t->total * sizeof(*ids));
    checkpoint_copy(t, ids);
    p->kept = p->rollback ? chains_kept(p->session, t, ids) : 0;
    p->pub.reused = p->rollback ? p->kept : t->total;
    p->pub.prompt = plan_one_part(p, (struct token_span){ids, p->pub.reused});
}

/* Returns how many tokens the session may still hold. A call without space is exhausted, which is
 * no error. */
static uint64_t capacity_left(const struct plan *p)
{
    const struct session_options *o = &p->session->options;
    uint64_t capacity = o->prompt_length + o->response_length;
    uint64_t used = p->pub.prompt.n + p->pub.image_extra;

    if (p->made.exhausts)
        return 0;
    if (p->look || p->text || p->pool.len || !session_exhausts(p->session))
        return UINT32_MAX;
    return capacity - MIN_OF(used, capacity);
}

/* Decides how many tokens the engine may generate: the least of what the session, the context and
 * the client allow. */
static int limit_answer(struct plan *p, const struct session_call_input *in, struct err *e)
{
    uint64_t left = MIN_OF(capacity_left(p), (uint64_t)UINT32_MAX);
    uint64_t used = p->pub.prompt.n + p->pub.image_extra;

    if (p->look)
        return 0;
    if (in->context_length) {
        if (used >= in->context_length)
            return err_context(e, (struct err_overflow){used, 1, in->context_length},
                               "This model's maximum context length is %u tokens. However, your "
                               "messages resulted in %llu tokens.",
                               in->context_length, (unsigned long long)used);
        left = MIN_OF(left, in->context_length - used);
    }
    if (session_check_tokens(p->session, p->n_context, &left, e) != 0)
        return -1;
    if (in->max_tokens > 0)
        left = MIN_OF(left, (uint64_t)in->max_tokens);
    p->pub.max_tokens = (uint32_t)left;
    return 0;
}

/* Checks that the model has all ids of the prompt. An unknown id is an error (such as a journal of
 * a different vocabulary), and an engine may refuse it or crash. Stored ids were checked when they
 * were stored (forest.top_id). */
static int check_ids(const struct plan *p, struct err *e)
{
    uint32_t size = model_info(p->session->store->model)->vocab_size;
    struct token_parts all = p->made.prompt;
    size_t known = p->made.stored_known ? p->made.reused : 0, at = 0;

    for (size_t k = 0; k < all.n_parts && size > 0; at += all.parts[k++].n) {
        struct token_span ids = all.parts[k];

        for (size_t i = known > at ? MIN_OF(known - at, ids.n) : 0; i < ids.n; i++)
            if ((uint32_t)ids.at[i] >= size)
                return err_set(e, ERR_FOREIGN,
                               "token %zu of this conversation is %d; this model's ids are 0 to %u",
                               at + i, ids.at[i], size - 1);
    }
    return 0;
}

/* --- prepare --- */

/* Checkpoints that were captured as text have no tokens to continue, so the chat is rendered
 * anew. */
static int leave_text(struct plan *p, struct err *e)
{
    if (!p->parent || !p->parent->text)
        return 0;
    if (plan_policy(p) != &policy_tree && plan_policy(p) != &policy_timelines)
        return err_set(e, ERR_STATE_CONFLICT,
                       "this history was captured as text; tokens cannot continue it");
    p->parent = NULL;
    p->covered = 0;
    p->added = (struct str){0};
    return 0;
}

/* Moves the position before answers that were cut by length. The answer before them may have added
 * text: then the request's message is not its node. */
static void leave_truncated(struct plan *p)
{
    const struct message_node *at = NULL;
    struct str added;

    do {
        p->parent = p->parent->parent;
        at = p->parent ? walk_node(&p->walk, p->parent->node->depth) : NULL;
    } while (p->parent && (checkpoint_truncated(p->parent) || (p->exact && at != p->parent->node)));
    p->covered = p->parent ? p->parent->node->depth : 0;
    if (p->parent && at != p->parent->node && message_begins_with(&at->msg, p->parent, &added))
        p->added = arena_str(p->arena, added);
}

/* Handles a request that continues an answer that was cut by length. */
static int meet_truncated(const struct session *s, struct plan *p, bool *ret_branches,
                          struct err *e)
{
    *ret_branches = false;
    if (!p->parent || !checkpoint_truncated(p->parent) || p->look)
        return 0;
    if (s->options.on_truncated == TRUNCATED_REFUSE)
        return err_set(e, ERR_TRUNCATED,
                       "a truncated generation cannot be extended: the matched answer (message %u) "
                       "ended with finish_reason 'length'; branch before it instead, or make the "
                       "session with on_truncated \"continue\" or \"branch\"",
                       p->covered - 1);
    if (s->options.on_truncated == TRUNCATED_CONTINUE || p->chain)
        return 0;
    leave_truncated(p);
    *ret_branches = true;
    return 0;
}

/* Work of a walk in one loop iteration, about a millisecond; at least one message. */
enum { WALK_MESSAGES = 2048, WALK_BYTES = 2 << 20 };

/* Walks down the trie. Everything but the session's end was checked when the call began. */
MAY_PAUSE static int walk_history(struct session *s, struct plan *p, struct err *e)
{
    bool is_over = false;

    while (!is_over) {
        struct walk_room room = {WALK_MESSAGES, WALK_BYTES, true};

        if (!p->walk.last)
            forest_walk_begin_known(&s->forest, p->env, p->chat.messages, &p->chat.known, &p->walk);
        is_over = forest_walk_on(&s->forest, p->env, p->chat.messages, p->arena, &room, &p->walk);
        if (!is_over && (task_pause(e) || plan_check_open(p, e)))
            return -1;
    }
    forest_walk_remember(&s->forest, &p->walk);
    return 0;
}

/* Lets the policy choose a parent, and applies the choice. */
static int choose_position(struct session *s, struct plan *p, struct err *e)
{
    bool branches;

    if (p->walk.n_matched)
        p->prompt = p->walk.last;
    if (check_nodes(s, p, p->walk.n - p->walk.n_matched, e) != 0 ||
        plan_policy(p)->position(s, p, e) != 0)
        return -1;
    if (!p->text && leave_text(p, e) != 0)
        return -1;
    if (meet_truncated(s, p, &branches, e) != 0)
        return -1;
    cause_find(s, p);
    if (branches)
        p->pub.cause = CAUSE_TRUNCATED;
    use_stored_spelling(p);
    return 0;
}

/* Reports whether this is an --audit-every-th suffix. */
static bool audit_is_due(struct session_store *st)
{
    uint64_t every = st->defaults.audit_every;

    return every > 0 && ++st->n_suffixes % every == 0;
}

/* Finds how much of the chat the session knows. */
MAY_PAUSE static int match_history(struct session *s, struct plan *p, struct err *e)
{
    const struct json *all = p->chat.messages;

    if (!json_is(all, JSON_ARRAY) || all->n == 0)
        return err_field(e, "messages", "messages must be a non-empty array");
    if (check_nodes(s, p, all->n > s->forest.nodes.n ? all->n - s->forest.nodes.n : 0, e) != 0)
        return -1;
    p->env = forest_env(&s->forest, &p->env_key);
    forest_walk_begin(all, &p->walk);
    if (p->env)
        return walk_history(s, p, e);
    message_read(&p->walk.unmatched, &all->items[0], &s->forest.matcher, p->arena);
    return 0;
}

/* Decides the position, and holds what rendering reads of the session. A completion has no
 * position. */
MAY_PAUSE static int find_position(struct session *s, struct plan *p,
                                   const struct session_call_input *in, struct err *e)
{
    if (!p->chat.messages) {
        p->pub.cause = CAUSE_NEW_ROOT;
        use_whole(p, in->raw);
        return in->raw.n == 0 ? err_field(e, "prompt", "the prompt is empty") : 0;
    }
    if (match_history(s, p, e) || choose_position(s, p, e) || plan_count_images(p, e))
        return -1;
    plan_hold(p, p->parent);
    return 0;
}

/* Finds the stored ids of the path, which must be in memory and stay there while the plan holds
 * it. */
static void find_stored(struct session *s, struct plan *p)
{
    if (!p->parent || p->text)
        return;
    p->made.stored = checkpoint_parts(&s->forest, p->parent, p->arena, &p->made.stored_parts);
    p->made.stored_known = s->forest.top_id < model_info(s->store->model)->vocab_size;
    p->made.audits = audit_is_due(s->store);
}

static int check_takes_calls(const struct session *s, const struct session_call_input *in,
                             struct err *e)
{
    if (session_has_ended(s))
        return err_set(e, ERR_SESSION_ENDED, "this session has ended");
    if (session_refuse_foreign(s, e) != 0)
        return -1;
    if (s->phase == SESSION_COMPLETED && s->options.refuse_completed && !in->look)
        return err_set(e, ERR_SESSION_ENDED,
                       "this session was completed, and takes no calls after that (after_complete "
                       "is refuse)");
    return in->look ? 0 : session_check_turns(s, e);
}

int session_prepare_position(struct session *s, struct arena *a,
                             const struct session_call_input *in, struct session_plan **ret,
                             struct err *e)
{
    struct plan *p;

    *ret = NULL;
    CHECK(s->residence == RESIDENT);
    if (check_takes_calls(s, in, e) != 0)
        return -1;
    p = plan_new(s, a, in);
    *ret = &p->pub;
    session_use(s);
    if (find_position(s, p, in, e) == 0)
        return 0;
    *ret = NULL;
    session_release(s->store, &p->pub);
    return -1;
}

/* Chooses the position again, without answers to which the client added text. */
MAY_PAUSE static int attach_exactly(struct plan *p, struct err *e)
{
    p->exact = true;
    p->parent = NULL;
    p->covered = 0;
    p->added = (struct str){0};
    if (choose_position(p->session, p, e) || plan_count_images(p, e))
        return -1;
    plan_hold(p, p->parent);
    return plan_read_path(p, e);
}

int session_prepare_path(struct session_plan *pub, struct err *e)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);

    if (plan_read_path(p, e))
        return -1;
    find_stored(p->session, p);
    if (!p->added.p ||
        checkpoint_trim_added(p->session->store->model, p->parent,
                              p->made.stored[p->made.stored_parts - 1], p->arena, &p->added))
        return 0;
    if (attach_exactly(p, e))
        return -1;
    find_stored(p->session, p);
    return 0;
}

struct str session_plan_parent(const struct session_plan *pub)
{
    const struct plan *p = (const struct plan *)(const void *)pub;

    return p->parent ? p->parent->response_id : (struct str){0};
}

const struct json *session_plan_messages(const struct session_plan *pub)
{
    const struct plan *p = (const struct plan *)(const void *)pub; /* pub is the first member */

    return p->chat.messages;
}

/* Estimates the text that session_prepare_render reads, up to `enough`, to decide whether a helper
 * runs it. A slow template makes any text long. For a text capture only new text counts. */
size_t session_prompt_bytes(const struct session_plan *pub, size_t enough)
{
    const struct plan *p = (const struct plan *)(const void *)pub; /* pub is the first member */
    const struct json *all = p->chat.messages;
    bool whole = !p->parent || p->made.audits || model_renders_all(p->session->store->model);
    uint32_t from = whole ? 0 : p->covered;
    size_t n = 0;

    if (!all)
        return 0;
    if (model_is_slow(p->session->store->model))
        return enough;
    if (p->text)
        from = p->walk.n_matched;
    if (!p->text || !p->env)
        n = plan_env_bytes(p, enough);
    n += p->added.len;
    for (uint32_t i = from; i < all->n && n < enough; i++)
        n += json_text_bytes(&all->items[i], enough - n);
    return n;
}

/* Reports whether a prompt that exceeds the context also exceeds what the session may hold. */
static bool is_exhausted(const struct plan *p)
{
    const struct session_options *o = &p->session->options;

    return session_exhausts(p->session) && o->prompt_length + o->response_length <= p->max_ids;
}

/* Makes the prompt. If it exceeds the context it exhausts the session, unless the session's own
 * limit is higher. */
static int make_prompt(struct plan *p, struct model_scratch *scratch, struct err *e)
{
    int rc;

    model_scratch_limit(scratch, p->max_ids);
    rc = p->parent ? prompt_after_parent(p, scratch, e) : prompt_full(p, scratch, e);
    model_scratch_limit(scratch, 0);
    p->made.exhausts = rc != 0 && e->kind == ERR_CONTEXT_LENGTH && is_exhausted(p);
    if (p->made.exhausts)
        return 0;
    return rc == 0 && check_ids(p, e) == 0 ? plan_check_images(p, e) : -1;
}

/* Renders nothing for a completion or a text capture. */
int session_prepare_render(struct session_plan *pub, struct model_scratch *scratch,
                           struct token_parts *ret, struct err *e)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    int rc = p->chat.messages && !p->text ? make_prompt(p, scratch, e) : 0;

    if (rc == 0 && p->chat.messages && !p->made.exhausts)
        plan_make_ready(p, AUDITS_ALL && p->walk.n % 2);
    *ret = p->made.prompt;
    return rc;
}

/* Reports whether the policy's engines have answered this session itself, not only the session of
 * which it is a copy, and not only other pools. Searches from the newest answer, because mostly
 * that is one. */
static bool has_run(const struct session *s)
{
    const struct forest *f = &s->forest;

    for (size_t i = f->calls.n; i > s->copied_calls; i--) {
        const struct call_record *c = f->calls.at[i - 1];

        if (c->n_checkpoints > 0 && !checkpoint_pool(f->checkpoints.at[c->first_checkpoint]).len)
            return true;
    }
    return false;
}

/* Fails if a different call has taken the chain of this one, and may have moved the chain's head.
 */
static int check_chain(const struct plan *p, struct err *e)
{
    if (!p->chain || p->chain->reserved == p)
        return 0;
    return err_set(e, ERR_STATE_CONFLICT, "a later call has continued this call's chain");
}

/* Reads back what the prompt of an exhausted call needs. The answer that it rolls back is not on
 * its path and may not be in memory. The head stays as long as the chain is this call's. */
MAY_PAUSE static int read_exhausted(struct plan *p, struct err *e)
{
    struct checkpoint *head = p->chain ? p->chain->head : NULL;

    if (head && head != p->held)
        plan_hold(p, head);
    return plan_read_path(p, e) ? -1 : check_chain(p, e);
}

/* Session and parent may have changed since; commit.c checks again. A plan that drops an answer
 * must check now, because the drop is recorded next, and a different call may have moved the head
 * during rendering. */
int session_prepare_end(struct session_plan *pub, const struct session_call_input *in,
                        struct err *e)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    struct session *s = p->session;

    adopt_made(p);
    if (capacity_left(p) == 0 && read_exhausted(p, e))
        return -1;
    if (plan_check_open(p, e) || (pub->drops && session_check_commit(pub, e)))
        return -1;
    for (int k = 0; p->chat.messages && !p->text && k < ROWS_KINDS; k++)
        p->pub.rows_known[k] = rows_known(p, (enum rows_kind)k);
    if (p->parent && p->pub.rows_known[ROWS_INDEXER])
        p->pub.indexer_row = checkpoint_row_bytes(p->parent, ROWS_INDEXER);
    if (p->text)
        p->pub.max_tokens = in->max_tokens > 0 ? (uint32_t)MIN_OF(in->max_tokens, UINT32_MAX) : 0;
    else if (capacity_left(p) == 0)
        fill_exhausted(p);
    else if (limit_answer(p, in, e))
        return -1;
    p->pub.call = s->next_call++;
    p->pub.ran = has_run(s);
    s->updated_ms = s->idle_ms = in->now_ms;
    return 0;
}

int session_prepare(struct session *s, struct model_scratch *scratch, struct arena *a,
                    const struct session_call_input *in, struct session_plan **ret, struct err *e)
{
    struct token_parts prompt;

    if (session_prepare_position(s, a, in, ret, e))
        return -1;
    if (session_prepare_path(*ret, e) == 0 &&
        session_prepare_render(*ret, scratch, &prompt, e) == 0 &&
        session_prepare_end(*ret, in, e) == 0)
        return 0;
    session_release(s->store, *ret);
    *ret = NULL;
    return -1;
}
