/* Writes the state object of GET /sessions/{id} and the rows of GET /sessions as JSON text. */
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/telling.h"
#include "worker/session/store/group.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/stop.h"
#include "worker/session/store/store.h"
#include "worker/text/request/purpose.h"

const char *session_phase_name(const struct session *s)
{
    static const char *const names[] = {"open", "completed", "finalized", "aborted"};

    return s->expired ? "expired" : names[s->phase];
}

static void put_rewards(struct json_out *o, const struct session *s)
{
    json_out_key(o, "reward");
    reward_put(&s->reward, o);
    json_out_key(o, "reward_info");
    reward_put_members(&s->reward, o);
    json_out_member_obj(o, "turn_rewards");
}

/* Writes the causes that occurred. */
static void put_forks(struct json_out *o, const uint64_t *forks)
{
    json_out_member_obj(o, "forks_by_cause");
    for (int i = 0; i < CAUSE_COUNT; i++)
        if (i != CAUSE_EXTENDED && forks[i])
            json_out_member_i64(o, session_cause_name((enum session_cause)i), forks[i]);
    json_out_end_obj(o);
}

/* A key of state.ids. */
struct tree_key {
    uint64_t parent, node;
};

/* A state that is being written. Its sizes are those at the beginning. */
struct state {
    struct session_telling *telling;
    struct session *session;
    struct json_out *out;
    size_t n_checkpoints, n_rewards, n_calls, n_chains;
    struct branch_vec branches;
    struct arena arena;       /* memory of the nodes' ids */
    struct map ids;           /* (parent checkpoint, trie node) -> state id */
    uint32_t *checkpoint_ids; /* by checkpoint id: state id */
    bool *hidden;             /* by checkpoint id: hidden when the writing began */
    uint32_t next_id;
};

/* Writes the members that all nodes have. The object stays open. */
static void put_node_head(struct state *x, uint32_t id, int64_t parent)
{
    json_out_obj(x->out);
    json_out_member_i64(x->out, "id", id);
    json_out_key(x->out, "parent");
    if (parent < 0)
        json_out_null(x->out);
    else
        json_out_i64(x->out, parent);
}

static struct str tree_key(struct tree_key *k, const struct message_node *n,
                           const struct checkpoint *parent)
{
    *k = (struct tree_key){parent ? parent->id + (uint64_t)1 : 0, n->id};
    return str_of((const char *)k, sizeof(*k));
}

enum { ID_NONE = -1, ID_UNTOLD = -2 };

/* Returns the state's id of a message below `parent`. ID_NONE: there is none, so its child is a
 * root. ID_UNTOLD: the message was not generated and is not written yet. */
static int64_t id_of(const struct state *x, const struct message_node *n,
                     const struct checkpoint *parent)
{
    struct tree_key k;
    const uint32_t *id;

    if (!n || n->depth == 0)
        return ID_NONE;
    if (parent && (n == parent->node || n->depth < parent->node->depth))
        return x->checkpoint_ids[parent->id];
    id = map_get(&x->ids, tree_key(&k, n, parent));
    return id ? (int64_t)*id : ID_UNTOLD;
}

/* Writes a message that was not generated. The message above must have been written. */
static void put_structural(struct state *x, const struct message_node *n,
                           const struct checkpoint *parent)
{
    int64_t up = id_of(x, n->parent, parent);
    uint32_t *id = ARENA_NEW(&x->arena, uint32_t);

    *id = x->next_id++;
    (void)map_set(&x->ids, tree_key(ARENA_NEW(&x->arena, struct tree_key), n, parent), id);
    put_node_head(x, *id, up);
    json_out_member_str(x->out, "role", n->msg.role);
    json_out_member_bool(x->out, "generated", false);
    json_out_end_obj(x->out);
}

/* Writes the messages above an answer that are not written yet. */
MAY_PAUSE static int put_above(struct state *x, const struct checkpoint *t, struct err *e)
{
    VEC(const struct message_node *) above = {0};
    int rc = 0;

    for (const struct message_node *n = t->node ? t->node->parent : NULL;
         n && id_of(x, n, t->parent) == ID_UNTOLD; n = n->parent)
        *vec_push(&above) = n;
    while (above.n > 0 && rc == 0) {
        put_structural(x, vec_pop(&above), t->parent);
        rc = telling_flow(x->telling, e);
    }
    vec_done(&above);
    return rc;
}

/* Writes the difference to the stored history, if known. */
static void put_diff(struct json_out *o, const struct checkpoint_diff *diff)
{
    if (!diff)
        return;
    json_out_member_obj(o, "diff");
    json_out_member_i64(o, "message", diff->message);
    json_out_member_str(o, "field", diff->field);
    json_out_member_str(o, "stored", diff->stored);
    json_out_member_str(o, "request", diff->request);
    json_out_end_obj(o);
}

/* Writes a generated node, after those above it. */
static void put_checkpoint(struct state *x, const struct session *s, const struct checkpoint *t)
{
    const struct checkpoint_remarks *remarks = checkpoint_remarks(t);
    int64_t up = t->node ? id_of(x, t->node->parent, t->parent) : ID_NONE;
    struct json_out *o = x->out;

    x->checkpoint_ids[t->id] = x->next_id++;
    put_node_head(x, x->checkpoint_ids[t->id], up);
    json_out_member_i64(o, "seq", t->seq);
    json_out_member_str(o, "role", STR("assistant"));
    json_out_member_bool(o, "generated", true);
    json_out_member_bool(o, "truncated", checkpoint_truncated(t));
    if (t->copied)
        json_out_member_bool(o, "copied", true);
    if (checkpoint_pool(t).len)
        json_out_member_str(o, "pool", checkpoint_pool(t));
    json_out_member_seconds(o, "committed_at", t->at_ms);
    json_out_member_arr(o, "completion_span");
    json_out_i64(o, checkpoint_start(t));
    json_out_i64(o, t->total);
    json_out_end_arr(o);
    json_out_member_i64(o, "num_tokens", t->total);
    json_out_member_str(o, "response_id", t->response_id);
    json_out_member_str(o, "finish_reason", t->finish_reason);
    json_out_member_str(o, "cause", str_cstr(session_cause_name(t->cause)));
    put_diff(o, remarks->diff);
    json_out_member_str(o, "role", role_of(remarks->label));
    json_out_member_str(o, "purpose", str_cstr(purpose_name(purpose_of(remarks->label))));
    json_out_member_str(o, "label", remarks->label);
    json_out_member_str(o, "parent_label", remarks->parent_label);
    if (remarks->dropped_fields.p)
        json_out_member_raw(o, "dropped_fields", remarks->dropped_fields);
    json_out_member_i64(o, "call", s->forest.calls.at[t->call]->number);
    json_out_member_i64(o, "trimmed", t->trim);
    json_out_member_str(o, "logprob_basis", t->basis->reported);
    json_out_member_str(o, "logprob_asked", t->basis->asked);
    json_out_member_i64(o, "scored_tokens", t->scored_tokens);
    checkpoint_put_latency(t, o);
    if (t->cached_told)
        json_out_member_i64(o, "cached_tokens", t->cached_tokens);
    if (t->drifted_tokens)
        json_out_member_i64(o, "media_drift", t->drifted_tokens);
    if (checkpoint_is_recomputed(t))
        json_out_member_bool(o, "recomputed", true);
    if (remarks->parse_warning.p)
        json_out_member_str(o, "parse_warning", remarks->parse_warning);
    checkpoint_write_warnings(t, o);
    json_out_end_obj(o);
}

/* Writes the path of a branch. Its answers were written, because an answer that is hidden now was
 * visible before. */
static void put_leaf(struct state *x, const struct branch *leaf)
{
    struct json_out *o = x->out;
    struct arena tmp = {0};
    struct checkpoint *t = leaf->head, **path = checkpoint_path(t, &tmp);

    json_out_obj(o);
    json_out_member_i64(o, "node_id", x->checkpoint_ids[t->id]);
    json_out_member_arr(o, "path_node_ids");
    for (uint32_t k = 0; k < t->depth; k++)
        json_out_i64(o, x->checkpoint_ids[path[k]->id]);
    json_out_end_arr(o);
    json_out_end_obj(o);
    arena_done(&tmp);
}

/* --- state --- */

/* Writes the members that rows have, too. */
static void put_head(struct json_out *o, const struct session *s)
{
    json_out_member_str(o, "session_id", s->id);
    json_out_member_str(o, "phase", str_cstr(session_phase_name(s)));
    if (session_foreign(s))
        json_out_member_bool(o, "foreign", true);
    json_out_member_str(o, "history", str_cstr(s->options.policy->name));
    json_out_member_str(o, "message_matcher", str_cstr(matcher_name(s->options.matcher.kind)));
    json_out_member_seconds(o, "created_at", s->created_ms);
    json_out_member_seconds(o, "updated_at", s->updated_ms);
    if (s->exported_ms)
        json_out_member_seconds(o, "exported_at", s->exported_ms);
    if (s->options.dispatched)
        json_out_member_bool(o, "dispatched", true);
    if (s->options.evaluation)
        json_out_member_bool(o, "evaluation", true);
    if (s->options.adapter.p)
        json_out_member_str(o, "adapter", s->options.adapter);
    if (s->options.pool.len)
        json_out_member_str(o, "model", s->options.pool);
    if (s->options.pools)
        json_out_member_value(o, "pools", s->options.pools);
    session_put_stop(s, o);
    if (s->forked_from.p)
        json_out_member_str(o, "forked_from", s->forked_from);
    if (s->has_finished)
        json_out_member_bool(o, "finished", s->finished);
    if (s->complete_reason.p)
        json_out_member_str(o, "reason", s->complete_reason);
    group_put(s, o);
    if (s->options.reseeded_from.p)
        json_out_member_str(o, "reseeded_from", s->options.reseeded_from);
    json_out_key(o, "labels");
    if (s->options.labels)
        json_out_value(o, s->options.labels);
    else
        json_out_raw(o, STR("{}"));
    json_out_key(o, "metadata");
    if (s->options.metadata)
        json_out_value(o, s->options.metadata);
    else
        json_out_raw(o, STR("{}"));
}

/* Writes the numbers of the session. */
static void put_counts(struct json_out *o, const struct session *s, size_t branches)
{
    size_t closed = 0, records = s->forest.calls.n;

    for (size_t i = 0; i < s->chains.n; i++)
        closed += s->chains.at[i]->closed;
    if (s->options.policy == &policy_linear) /* the checkpoints that still count */
        records = s->head ? s->head->depth : 0;
    json_out_member_i64(o, "num_calls", s->forest.calls.n);
    json_out_member_i64(o, "num_records", records);
    json_out_member_i64(o, "num_branches", branches);
    json_out_member_i64(o, "num_nodes", s->forest.nodes.n);
    json_out_member_i64(o, "num_checkpoints", s->forest.checkpoints.n);
    json_out_member_i64(o, "num_tokens", s->forest.tokens);
    json_out_member_i64(o, "num_active_chains", s->chains.n - closed);
    json_out_member_i64(o, "num_trajectories", closed);
    json_out_member_i64(o, "num_inflight_generations", s->inflight);
    json_out_member_i64(o, "rollback_count", s->rollbacks);
    json_out_member_i64(o, "rollback_dropped_trainable_tokens_total", s->rollback_dropped);
    json_out_member_i64(o, "refreshed", s->refreshed);
    json_out_member_i64(o, "trimmed_tokens", s->trimmed);
    json_out_member_i64(o, "merge_repaired", s->merge_repaired);
    json_out_member_i64(o, "merge_not_found", s->merge_lost);
    put_forks(o, s->forks);
    session_sums_put(s, o);
}

/* Kinds of sentences about rows that answers lack, each a constant. */
enum { LACKS_MAX = 4 };

/* Writes the sentence, unless it is NULL or was written before. Returns how many were written. */
static size_t put_lack(struct json_out *o, const char *told[LACKS_MAX], size_t n, const char *why)
{
    for (size_t i = 0; i < n; i++)
        if (told[i] == why)
            return n;
    if (!why || n == LACKS_MAX)
        return n;
    json_out_cstr(o, why);
    told[n] = why;
    return n + 1;
}

/* Writes the member `warnings`: sentences, each once, about data of its answers that trainers may
 * miss. */
static void put_warnings(struct json_out *o, const struct session *s)
{
    const struct forest *f = &s->forest;
    const char *told[LACKS_MAX] = {NULL};
    size_t n = 0;

    json_out_member_arr(o, "warnings");
    for (size_t i = 0; i < f->checkpoints.n && n < LACKS_MAX; i++) {
        const struct checkpoint *t = f->checkpoints.at[i];

        if (!t->hidden)
            n = put_lack(o, told, put_lack(o, told, n, checkpoint_lacks_experts(t)),
                         checkpoint_lost_indexer(t));
    }
    session_put_loss(s, o);
    json_out_end_arr(o);
}

/* Decides which answers and calls are written, and writes the head. */
static void begin_state(struct state *x, struct session_telling *t)
{
    struct session *s = t->session;

    *x = (struct state){.telling = t, .session = s, .out = &t->out};
    x->n_checkpoints = s->forest.checkpoints.n;
    x->n_rewards = s->checkpoint_rewards.n;
    x->n_calls = s->forest.calls.n;
    x->n_chains = session_has_ended(s) ? 0 : s->chains.n;
    x->checkpoint_ids = mem_calloc(x->n_checkpoints + 1, sizeof(*x->checkpoint_ids));
    x->hidden = mem_calloc(x->n_checkpoints + 1, sizeof(*x->hidden));
    for (size_t i = 0; i < x->n_checkpoints; i++)
        x->hidden[i] = s->forest.checkpoints.at[i]->hidden;
    session_branches(s, &x->branches); /* works only for resident sessions */
    json_out_obj(x->out);
    put_head(x->out, s);
    put_counts(x->out, s, x->branches.n);
    put_warnings(x->out, s);
}

MAY_PAUSE static int put_chains_and_rewards(struct state *x, struct err *e)
{
    json_out_member_arr(x->out, "active_chains");
    for (size_t i = 0; i < x->n_chains; i++) {
        chain_put(x->session, x->session->chains.at[i], x->out);
        if (telling_flow(x->telling, e))
            return -1;
    }
    json_out_end_arr(x->out);
    put_rewards(x->out, x->session);
    for (size_t i = 0; i < x->n_rewards; i++) {
        const struct reward *r = x->session->checkpoint_rewards.at[i];

        json_out_key_str(x->out, r->response_id);
        reward_put_members(r, x->out);
        if (telling_flow(x->telling, e))
            return -1;
    }
    json_out_end_obj(x->out);
    return 0;
}

/* Gives ids to nodes in the order of writing: a parent always comes before its children. */
MAY_PAUSE static int put_tree(struct state *x, struct err *e)
{
    json_out_member_obj(x->out, "tree");
    json_out_member_arr(x->out, "nodes");
    for (size_t i = 0; i < x->n_checkpoints; i++) {
        const struct checkpoint *t = x->session->forest.checkpoints.at[i];

        if (x->hidden[i])
            continue;
        if (put_above(x, t, e))
            return -1;
        put_checkpoint(x, x->session, t);
        if (telling_flow(x->telling, e))
            return -1;
    }
    json_out_end_arr(x->out);
    json_out_member_arr(x->out, "leaves");
    for (size_t i = 0; i < x->branches.n; i++) {
        put_leaf(x, &x->branches.at[i]);
        if (telling_flow(x->telling, e))
            return -1;
    }
    json_out_end_arr(x->out);
    json_out_end_obj(x->out);
    return 0;
}

/* Writes the ids of the newest branch, or of its continuation. */
MAY_PAUSE static int put_newest(struct state *x, struct err *e)
{
    const struct branch *newest = x->branches.n ? &x->branches.at[x->branches.n - 1] : NULL;
    const struct checkpoint *end = NULL;

    if (newest)
        end = newest->tail ? newest->tail : newest->head;
    json_out_member_arr(
        x->out, "tito_session_mismatch"); /* empty, because checkpoints are never re-encoded */
    json_out_end_arr(x->out);
    return telling_put_path(x->telling, "accumulated_token_ids", end,
                            newest ? branch_total(newest) : 0, e);
}

MAY_PAUSE static int put_records(struct state *x, struct err *e)
{
    json_out_member_arr(x->out, "records");
    for (size_t i = 0; i < x->n_calls; i++)
        if (telling_put_record(x->telling, i, e))
            return -1;
    json_out_end_arr(x->out);
    return 0;
}

int telling_flow(struct session_telling *t, struct err *e)
{
    return t->flow ? t->flow(t->ctx, e) : 0;
}

int session_tell(struct session_telling *t, struct err *e)
{
    struct state x;
    int rc;

    begin_state(&x, t);
    rc = put_chains_and_rewards(&x, e) || put_tree(&x, e) || put_newest(&x, e) ||
                 (t->records && put_records(&x, e))
             ? -1
             : 0;
    json_out_end_obj(x.out);
    vec_done(&x.branches);
    map_done(&x.ids);
    arena_done(&x.arena);
    free(x.checkpoint_ids);
    free(x.hidden);
    return rc;
}

/* Writes all at once. */
int session_write_state(struct session *s, bool records, struct buf *json, struct err *e)
{
    struct session_telling t = {.session = s, .records = records, .out = json_out_to(json)};

    return session_tell(&t, e);
}

/* Uses only what is in memory. */
void session_write_row(const struct session *s, struct buf *json)
{
    struct json_out o = json_out_to(json);
    const struct forest_leaves *l = &s->forest.leaves;

    CHECK(s->filled);
    json_out_obj(&o);
    put_head(&o, s);
    json_out_member_i64(&o, "calls", s->forest.calls.n);
    json_out_member_i64(&o, "tokens", s->forest.tokens);
    json_out_member_i64(&o, "branches", l->n);
    json_out_member_i64(&o, "inflight", s->inflight);
    session_sums_put(s, &o);
    json_out_key(&o, "drift"); /* known after an export has audited a branch */
    if (l->audited)
        json_out_i64(&o, (int64_t)l->drift);
    else
        json_out_null(&o);
    json_out_key(&o, "reward");
    reward_put(&s->reward, &o);
    json_out_key(&o, "reward_info");
    reward_put_members(&s->reward, &o);
    session_put_loss_list(s, &o);
    json_out_end_obj(&o);
}
