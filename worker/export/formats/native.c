/* The native JSON of an export: envelope, trajectories, summary (docs/trajectories.md). */
#include <stdio.h>

#include "common/codec/json.h"
#include "worker/export/build/export.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/export_reward.h"
#include "worker/export/build/media_table.h"
#include "worker/export/build/select.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/group.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/session_view.h"
#include "worker/session/store/stop.h"
#include "worker/text/request/purpose.h"

void export_array(struct export *x, struct json_out *o, const char *key, enum rope_piece_kind kind,
                  const void *p, size_t n)
{
    json_out_key(o, key);
    o->comma = true;
    rope_json(&x->rope, kind, p, n);
}

void native_write_message(const struct trajectory *t, uint32_t i, struct json_out *o)
{
    const struct json *m = &t->messages->items[i];

    json_out_obj(o);
    for (uint32_t k = 0; k < m->n; k++)
        json_out_member_of(o, json_string(&m->members[k].key), &m->members[k].value);
    if (t->generated[i])
        json_out_member_bool(o, "generated", true);
    json_out_end_obj(o);
}

static void put_spans(const struct checkpoint *t, struct json_out *o)
{
    json_out_member_arr(o, "weight_versions");
    for (uint32_t i = 0; i < t->n_versions; i++) {
        if (t->versions[i].version.len == 0)
            continue; /* this piece has no entry */
        json_out_obj(o);
        json_out_member_str(o, "version", t->versions[i].version);
        json_out_member_i64(o, "start", t->versions[i].start);
        json_out_member_i64(o, "end", t->versions[i].end);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

/* Writes where its logprobs come from, and where they were asked to come from. Then prompt tokens
 * that the engine had in its cache (null: not reported), and those that this session had stored. */
static void put_basis(const struct checkpoint *t, struct json_out *o)
{
    json_out_member_str(o, "logprob_basis", t->basis->reported);
    json_out_member_str(o, "logprob_asked", t->basis->asked);
    json_out_member_i64(o, "scored_tokens", t->scored_tokens);
    json_out_key(o, "cached_tokens");
    if (t->cached_told)
        json_out_i64(o, t->cached_tokens);
    else
        json_out_null(o);
    json_out_member_i64(o, "reused_tokens", t->parent ? t->parent->total - t->trim : 0);
    if (t->drifted_tokens)
        json_out_member_i64(o, "media_drift", t->drifted_tokens);
    if (checkpoint_is_recomputed(t))
        json_out_member_bool(o, "recomputed", true);
    checkpoint_write_warnings(t, o);
}

static void put_place(struct json_out *o, const char *key, uint32_t at, bool text)
{
    json_out_key(o, key);
    if (text)
        json_out_null(o);
    else
        json_out_i64(o, at);
}

void native_write_turn_members(const struct trajectory *t, const struct trajectory_turn *x,
                               struct json_out *o)
{
    const struct reward *reward = trajectory_turn_reward(t->session, x->checkpoint);
    const struct checkpoint_remarks *remarks = checkpoint_remarks(x->checkpoint);

    json_out_member_str(o, "response_id", x->checkpoint->response_id);
    put_place(o, "start", x->start, t->text);
    put_place(o, "end", x->end, t->text);
    json_out_member_bool(o, "trained", x->trained);
    if (checkpoint_pool(x->checkpoint).len)
        json_out_member_str(o, "pool", checkpoint_pool(x->checkpoint));
    json_out_member_str(o, "finish_reason", x->checkpoint->finish_reason);
    put_basis(x->checkpoint, o);
    put_spans(x->checkpoint, o);
    checkpoint_put_latency(x->checkpoint, o);
    json_out_member_str(o, "cause", str_cstr(session_cause_name(x->checkpoint->cause)));
    json_out_member_str(o, "role", role_of(remarks->label));
    json_out_member_str(o, "purpose", str_cstr(purpose_name(purpose_of(remarks->label))));
    json_out_member_str(o, "label", remarks->label);
    if (remarks->parent_label.p)
        json_out_member_str(o, "parent_label", remarks->parent_label);
    if (remarks->dropped_fields.p)
        json_out_member_raw(o, "dropped_fields", remarks->dropped_fields);
    if (reward) {
        json_out_key(o, "reward");
        reward_put_members(reward, o);
    }
}

static void put_turn_rewards(const struct trajectory *t, struct json_out *o)
{
    json_out_member_obj(o, "turn_rewards");
    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct reward *r = trajectory_turn_reward(t->session, t->turns[i].checkpoint);

        if (!r)
            continue;
        json_out_key_str(o, t->turns[i].checkpoint->response_id);
        reward_put_members(r, o);
    }
    json_out_end_obj(o);
}

static void put_drift(const struct trajectory *t, struct json_out *o)
{
    json_out_key(o, "drift");
    if (!t->drift.audited) {
        json_out_null(o);
        return;
    }
    json_out_obj(o);
    json_out_member_i64(o, "count", t->drift.count);
    json_out_key(o, "first");
    if (t->drift.count) {
        json_out_obj(o);
        json_out_member_str(o, "kind", str_cstr(drift_kind_name(t->drift.first)));
        json_out_member_i64(o, "position", t->drift.position);
        json_out_end_obj(o);
    } else {
        json_out_null(o);
    }
    json_out_end_obj(o);
}

const char *native_reason(const struct trajectory *t)
{
    if (t->track->reason)
        return t->track->reason;
    return t->track->head != t->track->whole ? "max_tokens" : NULL;
}

void native_write_extra_members(const struct trajectory *t, struct json_out *o)
{
    const char *reason = native_reason(t);

    if (t->has_steps) {
        json_out_member_i64(o, "min_global_steps", t->min_step);
        json_out_member_i64(o, "max_global_steps", t->max_step);
    }
    if (reason)
        json_out_member_str(o, "materialization_reason", str_cstr(reason));
    put_drift(t, o);
    json_out_member_i64(o, "trimmed_tokens", t->trimmed);
    session_put_loss_list(t->session, o);
}

void native_write_extra(struct export *x, const struct trajectory *t, struct json_out *o)
{
    (void)x;
    json_out_obj(o);
    native_write_extra_members(t, o);
    json_out_end_obj(o);
}

void native_write_outcome(struct export *x, const struct trajectory *t, struct json_out *o)
{
    json_out_key(o, "reward");
    reward_put(x->told, o);
    json_out_key(o, "reward_info");
    reward_put_members(x->told, o);
    put_turn_rewards(t, o);
    json_out_key(o, "extra_fields");
    native_write_extra(x, t, o);
}

void native_write_experts(struct export *x, const struct trajectory *t, const char *key,
                          struct json_out *o)
{
    const char *dtype = t->experts_item == 1 ? "uint8" : t->experts_item == 2 ? "int16" : "int32";
    char name[48];

    json_out_key(o, key);
    if (!t->experts.p) {
        json_out_null(o);
        return;
    }
    o->comma = true;
    buf_add_c(o->b, '"');
    rope_add(&x->rope, PIECE_BASE64, t->experts.p, t->experts.len);
    buf_add_c(o->b, '"');
    (void)snprintf(name, sizeof(name), "%s_shape", key);
    json_out_member_arr(o, name);
    json_out_i64(o, t->experts_rows);
    json_out_i64(o, t->experts_layers);
    json_out_i64(o, t->experts_topk);
    json_out_end_arr(o);
    (void)snprintf(name, sizeof(name), "%s_dtype", key);
    json_out_member_str(o, name, str_cstr(dtype));
}

/* Writes the arrays that were asked for, each as base64 with NAME_shape and NAME_dtype. */
static void native_write_arrays(struct export *x, const struct trajectory *t, struct json_out *o)
{
    char name[64];

    for (unsigned i = 0; i < t->n_arrays; i++) {
        const struct trajectory_array *v = &t->arrays[i];
        size_t cells = trajectory_cells(v);

        json_out_key(o, v->name);
        o->comma = true;
        buf_add_c(o->b, '"');
        rope_add(&x->rope, PIECE_BASE64, v->cells, cells * 4);
        buf_add_c(o->b, '"');
        (void)snprintf(name, sizeof(name), "%s_shape", v->name);
        json_out_member_arr(o, name);
        for (unsigned k = 0; k < v->dims; k++)
            json_out_i64(o, (int64_t)v->shape[k]);
        json_out_end_arr(o);
        (void)snprintf(name, sizeof(name), "%s_dtype", v->name);
        json_out_member_str(o, name, v->floats ? STR("float32") : STR("int32"));
    }
}

static void put_versions(struct export *x, const struct trajectory *t, struct json_out *o)
{
    if (t->versions) {
        export_array(x, o, "response_versions", PIECE_JSON_I64, t->versions, t->n);
        return;
    }
    json_out_key(o, "response_versions");
    if (!t->version_texts) {
        json_out_null(o);
        return;
    }
    json_out_arr(o);
    for (uint32_t i = 0; i < t->n; i++)
        json_out_str(o, t->version_texts[i].p ? t->version_texts[i] : STR("-1"));
    json_out_end_arr(o);
}

/* Writes the arrays of tokens; none if it was captured as text. */
static void put_tokens(struct export *x, const struct trajectory *t, struct json_out *o)
{
    static const char *const names[] = {"prompt_ids", "response_ids", "response_mask"};

    for (size_t i = 0; t->text && i < ARRAY_LEN(names); i++)
        json_out_member_null(o, names[i]);
    if (!t->text) {
        export_array(x, o, names[0], PIECE_JSON_I32, t->ids, t->n_prompt);
        export_array(x, o, names[1], PIECE_JSON_I32, t->ids + t->n_prompt, t->n);
        export_array(x, o, names[2], PIECE_JSON_BITS, t->mask, t->n);
    }
    if (t->logprobs)
        export_array(x, o, "response_logprobs", PIECE_JSON_F32, t->logprobs, t->n);
    else
        json_out_member_null(o, "response_logprobs");
}

MAY_PAUSE static void native_write(struct export *x, const struct trajectory *t)
{
    struct json_out o = {&x->rope.text, t->index > 0};

    json_out_obj(&o);
    json_out_member_str(&o, "session_id", session_view(x->session).id);
    json_out_member_i64(&o, "trajectory_index", (int64_t)t->index);
    if (x->options.uid.p)
        json_out_member_str(&o, "uid", x->options.uid);
    put_tokens(x, t, &o);
    put_versions(x, t, &o);
    native_write_experts(x, t, "routed_experts", &o);
    native_write_arrays(x, t, &o);
    native_write_rest(x, t, &o);
    json_out_end_obj(&o);
}

static void put_dropped(struct export *x, struct json_out *o)
{
    json_out_member_arr(o, "dropped");
    for (size_t i = 0; i < x->selection->dropped.n; i++) {
        const struct dropped *d = &x->selection->dropped.at[i];

        json_out_obj(o);
        json_out_member_str(o, "response_id", d->head->response_id);
        json_out_member_i64(o, "tokens", d->tokens);
        json_out_member_i64(o, "turns_cut", d->turns_cut);
        json_out_member_bool(o, "gone", d->gone);
        json_out_member_str(o, "reason", str_cstr(d->reason));
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

void native_write_warnings(const struct export *x, struct json_out *o)
{
    json_out_member_arr(o, "warnings");
    if (export_has_no_calls(x))
        json_out_cstr(o,
                      "no call of this session was answered: if an agent ran, its base URL names "
                      "a different session, or none");
    session_put_loss(x->session, o);
    if (export_lacks_reward(x))
        json_out_cstr(o, "no reward is known: what this format would hold of it is null or left "
                         "out, not 0");
    if (x->odd_uid)
        json_out_cstr(o, "metadata.uid is empty, or neither a text nor a number: it does not group "
                         "the rows");
    if (x->odd_step)
        json_out_cstr(o, "metadata.global_steps is not an integer: it is not used");
    if (x->unscored)
        json_out_cstr(o, "a score that the session wants is not known of some trajectory: its "
                         "arrays are left out");
    if (x->unsupported)
        json_out_cstr(o, "no sampling support is known for some of the trained tokens: its arrays "
                         "are left out");
    if (x->unindexed)
        json_out_cstr(o,
                      "no indexer top-k is known for all of the tokens of some trajectory: it is "
                      "left out");
    if (x->unrouted)
        json_out_cstr(o, x->unrouted);
    if (x->recomputed)
        json_out_cstr(o, "an engine computed tokens of some trajectory again after it had sampled "
                         "them (a retraction): its routed experts and indexer top-k are left out");
    if (x->sums.versioned > 0 && x->sums.unversioned > 0)
        json_out_cstr(o, "the version of the weights is known of some trained turns and not of "
                         "others: their weight_versions are empty");
    if (x->unversioned)
        json_out_cstr(o, "no weight versions are known for some of the tokens: versions -1");
    json_out_end_arr(o);
}

void native_write_summary(struct export *x, struct json_out *o)
{
    struct session_view v = session_view(x->session);

    json_out_obj(o);
    json_out_member_i64(o, "calls", (int64_t)v.n_calls);
    json_out_member_i64(o, "branches", (int64_t)x->selection->tracks.n);
    json_out_member_i64(o, "trained_tokens", (int64_t)x->sums.trained);
    json_out_member_i64(o, "prompt_tokens", (int64_t)x->sums.prompt_tokens);
    json_out_member_i64(o, "rolled_back", v.rollbacks);
    json_out_member_i64(o, "rolled_back_tokens", (int64_t)v.rollback_dropped);
    json_out_member_i64(o, "trimmed_tokens", (int64_t)x->sums.trimmed);
    json_out_member_i64(o, "unversioned_turns", (int64_t)x->sums.unversioned);
    json_out_member_i64(o, "drift_count", (int64_t)x->sums.drift);
    json_out_member_i64(o, "merge_repaired", x->sums.repaired);
    json_out_member_i64(o, "merge_not_found", x->sums.lost);
    if (x->sums.has_steps) {
        json_out_member_i64(o, "min_global_steps", x->sums.min_step);
        json_out_member_i64(o, "max_global_steps", x->sums.max_step);
    }
    json_out_member_obj(o, "forks_by_cause");
    for (int i = 0; i < CAUSE_COUNT; i++)
        if (i != CAUSE_EXTENDED && v.forks[i])
            json_out_member_i64(o, session_cause_name((enum session_cause)i), (int64_t)v.forks[i]);
    json_out_end_obj(o);
    put_dropped(x, o);
    media_write(x, o);
    if (session_evaluates(x->session))
        json_out_member_bool(o, "evaluation", true);
    if (session_pool(x->session).len)
        json_out_member_str(o, "model", session_pool(x->session));
    if (session_adapter(x->session).p)
        json_out_member_str(o, "adapter", session_adapter(x->session));
    if (v.told_stop) /* so that the result is the same before and after finalize */
        session_put_stop(x->session, o);
    export_put_reward(x, "reward", o);
    native_write_warnings(x, o);
    json_out_end_obj(o);
}

static void json_begin(struct export *x, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_member_str(&o, "session_id", session_view(x->session).id);
    json_out_member_str(&o, "phase", str_cstr(session_phase_name(x->session)));
    group_put(x->session, &o);
    json_out_member_arr(&o, "trajectories");
}

void native_write_end(struct export *x, struct buf *out)
{
    struct json_out o = json_out_to(out);

    buf_puts(out, "],\"summary\":");
    native_write_summary(x, &o);
    buf_add_c(out, '}');
}

/* Images in the summary are sent through the rope. */
static void json_end(struct export *x, struct buf *out)
{
    (void)out;
    native_write_end(x, &x->rope.text);
}

const struct format format_json = {.text_too = true,
                                   .media_in_table = true,
                                   .indexer = true,
                                   .passes = 1,
                                   .begin = json_begin,
                                   .write = native_write,
                                   .end = json_end};
