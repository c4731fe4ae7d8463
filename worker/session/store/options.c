/* Reads and checks POST /sessions options, applies the process's defaults, and writes the
 * result. */
#include "common/base/limits.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/score.h"
#include "worker/session/store/group.h"
#include "worker/session/store/store.h"

/* *ret, the default, is unchanged if the option is absent. */
static int read_bool(const struct json *v, const char *name, bool *ret, struct err *e)
{
    const struct json *x = json_get(v, name);

    if (json_is_null(x))
        return 0;
    if (x->kind != JSON_BOOL)
        return err_field(e, name, "%s must be a boolean", name);
    *ret = json_is_true(x);
    return 0;
}

/* Reads an integer >= 0 and multiplies it by `scale` (seconds become ms). */
static int read_count(const struct json *v, const char *name, uint64_t scale, uint64_t *ret,
                      struct err *e)
{
    const struct json *x = json_get(v, name);
    int64_t n;

    if (json_is_null(x))
        return 0;
    if (json_to_i64(x, &n) != 0 || n < 0 || (uint64_t)n > UINT64_MAX / 2 / scale)
        return err_field(e, name, "%s must be an integer >= 0", name);
    *ret = (uint64_t)n * scale;
    return 0;
}

/* Reads an object or an array without a copy. */
static int read_kind(const struct json *v, const char *name, enum json_kind kind,
                     const struct json **ret, struct err *e)
{
    const struct json *x = json_get(v, name);

    if (json_is_null(x))
        return 0;
    if (x->kind != kind)
        return err_field(e, name, "%s must be %s", name,
                         kind == JSON_OBJECT ? "an object" : "an array");
    *ret = x;
    return 0;
}

/* Reads a list of strings. */
static int read_names(const struct json *v, const char *name, const char *what,
                      const struct json **ret, struct err *e)
{
    if (read_kind(v, name, JSON_ARRAY, ret, e) != 0)
        return -1;
    for (uint32_t i = 0; *ret && i < (*ret)->n; i++)
        if ((*ret)->items[i].kind != JSON_STRING)
            return err_field(e, name, "%s must hold %s", name, what);
    return 0;
}

/* Reads a string option. Sets the default if it is absent. */
static int read_name(const struct json *v, const char *name, const char *otherwise, struct str *ret,
                     struct err *e)
{
    const struct json *x = json_get(v, name);

    *ret = str_cstr(otherwise);
    if (json_is_null(x))
        return 0;
    if (x->kind != JSON_STRING)
        return err_field(e, name, "%s must be a string", name);
    *ret = json_string(x);
    return 0;
}

/* Reads history, matcher, and how timelines are compared. */
static int read_policy(const struct session_store *st, const struct json *v,
                       struct session_options *o, struct err *e)
{
    const struct session_defaults *d = &st->defaults;
    struct str history, matcher, level;

    if (read_name(v, "history", d->history, &history, e) != 0 ||
        read_name(v, "message_matcher", d->message_matcher, &matcher, e) != 0 ||
        read_name(v, "timeline_compare_level", d->timeline_compare_level, &level, e) != 0)
        return -1;
    o->policy = policy_find(history);
    if (!o->policy)
        return err_field(e, "history", "history must be one of tree, chains, linear, timelines");
    if (matcher_from_name(matcher, &o->matcher.kind) != 0)
        return err_field(e, "message_matcher",
                         "message_matcher must be one of canonical, strict, loose_tool_call, "
                         "role_content_only");
    o->compare_tokens = str_eq_c(level, "token");
    if (!o->compare_tokens && !str_eq_c(level, "text"))
        return err_field(e, "timeline_compare_level",
                         "timeline_compare_level must be text or token");
    return 0;
}

static const char *const truncated_names[] = {[TRUNCATED_AUTO] = "auto",
                                              [TRUNCATED_CONTINUE] = "continue",
                                              [TRUNCATED_BRANCH] = "branch",
                                              [TRUNCATED_REFUSE] = "refuse"};

/* Reports whether the history can branch. A chain and a linear history have only one path. */
static bool can_branch(const struct session_options *o)
{
    return o->policy == &policy_tree || o->policy == &policy_timelines;
}

/* Resolves "auto", and replaces "branch" by "continue" if the history cannot branch. */
static enum session_truncated resolve_truncated(const struct session_options *o,
                                                enum session_truncated given)
{
    if (given == TRUNCATED_AUTO)
        return o->policy == &policy_tree && o->matcher.kind == MATCHER_STRICT ? TRUNCATED_REFUSE
                                                                              : TRUNCATED_CONTINUE;
    return given == TRUNCATED_BRANCH && !can_branch(o) ? TRUNCATED_CONTINUE : given;
}

/* Reads what happens at the end of a cut answer, and at the end of the session. */
static int read_ends(const struct session_store *st, const struct json *v,
                     struct session_options *o, struct err *e)
{
    const struct session_defaults *d = &st->defaults;
    enum session_truncated given = TRUNCATED_AUTO;
    struct str truncated, complete;

    if (read_name(v, "on_truncated", truncated_names[d->on_truncated], &truncated, e) != 0 ||
        read_name(v, "after_complete", d->refuse_completed ? "refuse" : "serve", &complete, e) != 0)
        return -1;
    while (given < ARRAY_LEN(truncated_names) && !str_eq_c(truncated, truncated_names[given]))
        given++;
    if (given == ARRAY_LEN(truncated_names))
        return err_field(e, "on_truncated",
                         "on_truncated must be one of auto, continue, branch, refuse");
    if (session_rules_branch(v, o->policy->name, e) != 0)
        return -1;
    o->on_truncated = resolve_truncated(o, given);
    o->refuse_completed = str_eq_c(complete, "refuse");
    if (!o->refuse_completed && !str_eq_c(complete, "serve"))
        return err_field(e, "after_complete", "after_complete must be serve or refuse");
    return 0;
}

/* Reads two options that POST /sessions does not have: calls with an unknown id write the first,
 * forks and imports the second. */
static int read_origin(const struct json *v, struct session_options *o, struct err *e)
{
    uint64_t copies = 0;

    o->reseeded_from = json_string(json_get(v, "reseeded_from"));
    if (read_count(v, "copies", 1, &copies, e) != 0)
        return -1;
    o->copies = (uint32_t)MIN_OF(copies, UINT32_MAX);
    return 0;
}

/* Reads options that are kept as JSON. Sampling parameters are not checked here. */
static int read_values(const struct json *v, struct session_options *o, struct err *e)
{
    if (read_kind(v, "sampling_params", JSON_OBJECT, &o->sampling, e) != 0 ||
        read_kind(v, "labels", JSON_OBJECT, &o->labels, e) != 0 ||
        read_kind(v, "metadata", JSON_OBJECT, &o->metadata, e) != 0 ||
        read_kind(v, "score", JSON_ARRAY, &o->score, e) != 0 ||
        score_wants_read(o->score, &(struct score_wants){0}, e) != 0 ||
        read_names(v, "lock_sampling", "parameter names", &o->lock_sampling, e) != 0 ||
        read_names(v, "pools", "names of pools", &o->pools, e) != 0)
        return -1;
    return 0;
}

static int read_wants(const struct json *v, struct session_wants *ret, struct err *e)
{
    uint64_t top = 0;

    if (read_bool(v, "sampling_support", &ret->support, e) != 0 ||
        read_bool(v, "indexer_topk", &ret->indexer, e) != 0 ||
        read_count(v, "top_logprobs", 1, &top, e) != 0)
        return -1;
    if (top > SESSION_TOP_LOGPROBS_MAX)
        return err_field(e, "top_logprobs", "top_logprobs must be at most %d, not %llu",
                         SESSION_TOP_LOGPROBS_MAX, (unsigned long long)top);
    ret->top_logprobs = (uint32_t)top;
    return 0;
}

/* Reads options of POST /sessions, or of a create record, over the defaults. Values point into v.
 * Returns -1 with e naming the option. */
int session_options_read(const struct session_store *st, const struct json *v,
                         struct session_options *ret, struct err *e)
{
    const struct session_defaults *d = &st->defaults;
    uint64_t max_nodes = d->max_nodes, max_turns = 0;
    bool sink = !json_is_true(json_get(v, "evaluation"));

    *ret = (struct session_options){
        .matcher.ignore_cch = d->ignore_cch,
        .rollback_last_assistant = d->rollback_last_assistant,
        .idempotent_retry = d->idempotent_retry,
        .ignore_tools = d->ignore_tools,
        .branch_on_rewrite = d->branch_on_rewrite,
        .ttl_ms = d->ttl_ms,
        .rollout = -1,
    };
    if (!json_is_null(v) && v->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "session options must be an object");
    if (read_policy(st, v, ret, e) != 0 || read_values(v, ret, e) != 0 ||
        read_ends(st, v, ret, e) != 0 || group_read(v, ret, e) != 0)
        return -1;
    if (read_bool(v, "rollback_last_assistant", &ret->rollback_last_assistant, e) != 0 ||
        read_bool(v, "idempotent_retry", &ret->idempotent_retry, e) != 0 ||
        read_bool(v, "ignore_tools", &ret->ignore_tools, e) != 0 ||
        read_bool(v, "ignore_cch", &ret->matcher.ignore_cch, e) != 0 ||
        read_bool(v, "branch_on_rewrite", &ret->branch_on_rewrite, e) != 0 ||
        read_bool(v, "hold", &ret->hold, e) != 0 ||
        read_bool(v, "dispatched", &ret->dispatched, e) != 0 ||
        read_bool(v, "evaluation", &ret->evaluation, e) != 0 || read_bool(v, "sink", &sink, e) != 0)
        return -1;
    if (read_count(v, "prompt_length", 1, &ret->prompt_length, e) != 0 ||
        read_count(v, "response_length", 1, &ret->response_length, e) != 0 ||
        read_count(v, "ttl_s", 1000, &ret->ttl_ms, e) != 0 ||
        read_count(v, "max_nodes", 1, &max_nodes, e) != 0 ||
        read_count(v, "max_turns", 1, &max_turns, e) != 0 ||
        read_count(v, "max_total_tokens", 1, &ret->max_total_tokens, e) != 0)
        return -1;
    if (read_wants(v, &ret->wants, e) != 0 || read_origin(v, ret, e) != 0)
        return -1;
    ret->max_turns = (uint32_t)MIN_OF(max_turns, UINT32_MAX);
    ret->max_nodes = (uint32_t)MIN_OF(max_nodes, d->max_nodes);
    ret->adapter = json_string(json_get(v, "adapter"));
    ret->pool = json_string(json_get(v, "model"));
    if (str_eq_c(ret->pool, "policy"))
        ret->pool = (struct str){0};
    ret->no_sinks = !sink;
    return 0;
}

static void put_value(struct json_out *o, const char *name, const struct json *v)
{
    if (!v)
        return;
    json_out_member_value(o, name, v);
}

/* Writes the options that are written only if set. */
static void write_set(const struct session_options *opt, struct json_out *o)
{
    if (opt->hold)
        json_out_member_bool(o, "hold", true);
    if (opt->dispatched)
        json_out_member_bool(o, "dispatched", true);
    if (opt->evaluation)
        json_out_member_bool(o, "evaluation", true);
    if (opt->no_sinks || opt->evaluation)
        json_out_member_bool(o, "sink", !opt->no_sinks);
    if (opt->max_turns)
        json_out_member_i64(o, "max_turns", opt->max_turns);
    if (opt->max_total_tokens)
        json_out_member_i64(o, "max_total_tokens", opt->max_total_tokens);
    if (opt->wants.support)
        json_out_member_bool(o, "sampling_support", true);
    if (opt->wants.indexer)
        json_out_member_bool(o, "indexer_topk", true);
    if (opt->wants.top_logprobs)
        json_out_member_i64(o, "top_logprobs", opt->wants.top_logprobs);
    if (opt->adapter.p)
        json_out_member_str(o, "adapter", opt->adapter);
    if (opt->pool.len)
        json_out_member_str(o, "model", opt->pool);
}

/* Writes all resolved options, so that session_options_read gives the same options whatever the
 * defaults are then. */
void session_options_write(const struct session_options *opt, struct buf *json)
{
    struct json_out o = json_out_to(json);

    json_out_obj(&o);
    json_out_member_cstr(&o, "history", opt->policy->name);
    json_out_member_cstr(&o, "message_matcher", matcher_name(opt->matcher.kind));
    json_out_member_cstr(&o, "timeline_compare_level", opt->compare_tokens ? "token" : "text");
    json_out_member_bool(&o, "rollback_last_assistant", opt->rollback_last_assistant);
    json_out_member_bool(&o, "idempotent_retry", opt->idempotent_retry);
    json_out_member_bool(&o, "ignore_tools", opt->ignore_tools);
    json_out_member_bool(&o, "ignore_cch", opt->matcher.ignore_cch);
    json_out_member_bool(&o, "branch_on_rewrite", opt->branch_on_rewrite);
    json_out_member_cstr(&o, "on_truncated", truncated_names[opt->on_truncated]);
    json_out_member_cstr(&o, "after_complete", opt->refuse_completed ? "refuse" : "serve");
    write_set(opt, &o);
    json_out_member_i64(&o, "prompt_length", opt->prompt_length);
    json_out_member_i64(&o, "response_length", opt->response_length);
    json_out_member_i64(&o, "ttl_s", opt->ttl_ms / 1000);
    json_out_member_i64(&o, "max_nodes", opt->max_nodes);
    put_value(&o, "sampling_params", opt->sampling);
    put_value(&o, "lock_sampling", opt->lock_sampling);
    put_value(&o, "pools", opt->pools);
    put_value(&o, "labels", opt->labels);
    put_value(&o, "metadata", opt->metadata);
    put_value(&o, "score", opt->score);
    group_write(opt, &o);
    if (opt->reseeded_from.p)
        json_out_member_str(&o, "reseeded_from", opt->reseeded_from);
    if (opt->copies)
        json_out_member_i64(&o, "copies", opt->copies);
    json_out_end_obj(&o);
}
