/* The first step of a call: checks the request against the limits, the session and the engines'
 * abilities, and finds the call's position in the session. Changes nothing. The position of a text
 * completion is found later, because it needs the ids (step_place.c). */

#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/prepare_input.h"
#include "worker/plane/call/sampling_merge.h"
#include "worker/residency/residency.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/text/parsers/kinds.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"

struct session *model_call_session(struct model_call *t)
{
    bool ended = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);

    if (!s)
        (void)err_set(&t->err, ended ? ERR_SESSION_ENDED : ERR_UNKNOWN_SESSION,
                      ended ? "the session has ended" : "no such session");
    return s;
}

/* Checks that the engines can return what the session wants to keep; the session may have been made
 * for different engines. */
static int check_wants(struct model_call *t)
{
    const struct engine_pool *p = t->engines;

    if (t->wants_support && engine_pool_tells(p, "sampling_support", &t->err))
        return -1;
    if (t->wants_indexer && engine_pool_tells(p, "indexer_topk", &t->err))
        return -1;
    if (t->wants_indexer && t->plan && t->plan->images > 0)
        return err_field(
            &t->err, "messages",
            "the chat has images, and this session keeps the indexer's top-k of every "
            "token (indexer_topk), which engines tell of what they make of images, too");
    if (t->lora.len && engine_pool_takes_lora(p, t->sampling->engine_extra, &t->err))
        return -1;
    return t->wants_top_logprobs > 0 ? engine_pool_tells(p, "top_logprobs", &t->err) : 0;
}

/* Reports whether the gateway must make a grammar. Returns -1 if the demand cannot be sent or
 * enforced. */
static int check_constraint(struct model_call *t)
{
    struct str type = json_string(json_get(t->sampling->grammar, "type"));
    const char *cannot = engine_pool_cannot_take(t->engines, t->sampling);

    *t->kinds = (struct answer_formats){
        .tool = call_formats(t->env).tool,
        .reasoning = t->in.req->chat->messages ? call_formats(t->env).reasoning : REASONING_NONE,
    };
    if (check_wants(t) || engine_pool_takes_extra(t->engines, t->sampling->engine_extra, &t->err))
        return -1; /* the session was made for different engines */
    t->constrains = !t->call_input->text && engine_pool_constrains(t->engines);
    if (!t->constrains)
        return 0; /* the request itself is valid */
    if (sampling_check_ids(t->env, t->sampling, &t->err))
        return -1;
    if (t->env->strict_logprobs && !engine_pool_name(t->engines) &&
        !t->wants_support && /* sampling support includes logprobs */
        !engine_pool_logprobs_own(t->engines, t->sampling))
        return err_set(
            &t->err, ERR_INVALID,
            "--strict-logprobs: with these sampling parameters the engine's logprobs are "
            "not those of the distribution that it samples from");
    if (cannot)
        return err_field(&t->err, cannot, "the engine has no field for %s, which would be ignored",
                         cannot);
    if (!engine_pool_enforces(t->engines, type))
        return err_field(&t->err, "response_format.type",
                         "the engine cannot enforce response_format.type %s",
                         arena_cstr(&t->arena, type));
    return 0;
}

/* Finds the position of a chat. Completions have none until their ids are known. */
MAY_PAUSE static int find_position(struct model_call *t, struct session *s)
{
    struct err e = {0};
    int rc;

    if (prepare_is_text(t->in.req)) {
        t->pinned = s;
        session_pin(s);
        return 0;
    }
    rc = session_prepare_position(s, &t->arena, t->call_input, &t->plan, &e);
    model_call_end_displaced(t);
    if (rc == 0 && !t->failing)
        rc = session_prepare_path(t->plan, &e);
    return model_call_check(t, rc, &e);
}

/* Refuses a pool that the request named but the trainer did not list. */
static int check_allowed(struct model_call *t, const struct session *s)
{
    const char *pool = engine_pool_name(t->engines);

    if (session_may_ask(s, pool ? str_cstr(pool) : (struct str){0}))
        return 0;
    (void)err_field(&t->err, "model", "model: this session may not ask the pool \"%s\" (its pools)",
                    pool ? pool : ENGINE_POOL_POLICY);
    t->err.kind = ERR_WRONG_SCOPE;
    return -1;
}

/* Chooses the engines, and checks that they accept the request. */
static int choose_engines(struct model_call *t, const struct session *s)
{
    struct str own = session_pool(s);

    t->engines = call_engines(t->env, t->in.req->model, s);
    if (!t->engines)
        return err_set(&t->err, ERR_ENGINE_UNAVAILABLE,
                       "model: this session's pool \"%.*s\" is not among this gateway's engines "
                       "(--engine, /admin/engines)",
                       (int)own.len, own.p);
    if (check_allowed(t, s) || engine_pool_check_manned(t->engines, &t->err))
        return -1;
    if (t->in.req->chat->messages)
        return 0;
    if (engine_pool_name(t->engines))
        return err_field(&t->err, "model", "model: the pool \"%s\" answers chats only",
                         engine_pool_name(t->engines));
    return engine_pool_some_text(t->engines)
               ? err_set(&t->err, ERR_INVALID, "this engine answers chats only")
               : 0;
}

/* Merges the trainer's parameters. They apply only to the session's own engines, because other
 * engines have other parameters. */
static int merge_trainer(struct model_call *t, const struct session *s)
{
    const char *pool = engine_pool_name(t->engines);
    bool own = pool ? str_eq_c(session_pool(s), pool) : !session_pool(s).len;

    if (own && !pool) {
        struct session_wants wants = session_wants(s);

        t->wants_top_logprobs = wants.top_logprobs;
        t->wants_support = wants.support;
        t->wants_indexer = wants.indexer;
        t->lora = session_adapter(s).len ? arena_str(&t->arena, session_adapter(s)) : t->lora;
    }
    return merge_sampling(&t->arena, t->in.req, own ? session_sampling(s) : NULL,
                          own ? session_lock_sampling(s) : NULL, t->sampling, &t->err);
}

/* A refusal changes nothing and costs no rendering. */
int call_prepare(struct model_call *t)
{
    struct call_env *env = t->env;
    struct session *s = model_call_session(t);
    uint64_t own_bytes = t->in.body_bytes + t->in.shared_bytes + t->arena.held_bytes;

    if (!s || residency_room(env->residency, s, own_bytes, &t->err) || choose_engines(t, s))
        return -1;
    if (session_inflight(s) >= env->max_session_inflight ||
        env->n_running - env->n_leaving > env->max_inflight) {
        metrics_count_at(env->page, METRIC_refusals, METRIC_REFUSAL_INFLIGHT, 0, 1);
        return err_set(&t->err, ERR_OVERLOADED, "too many calls are running");
    }
    t->call_input = ARENA_NEW(&t->arena, struct session_call_input);
    if (merge_trainer(t, s) ||
        prepare_input(env, t->engines, &t->in, t->sampling, t->call_input, &t->err) ||
        find_position(t, s))
        return -1;
    t->format = t->sampling->grammar;
    if (t->plan && t->plan->images > 0 && engine_pool_check_images(t->engines, &t->err))
        return -1;
    return check_constraint(t);
}
