/* Adapts a request that was read to its session and the settings: calls that the client sent back
 * in a different grouping, its thought settings, answers that are not read, and members without
 * effect. On the loop. */
#include <string.h>

#include "common/base/log.h"
#include "common/codec/json_build.h"
#include "common/codec/sampling.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/regroup.h"
#include "worker/dialect/request_members.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_rules.h"
#include "worker/session/store/session.h"
#include "worker/text/model/thought_switch.h"
#include "worker/text/request/chat.h"

/* --- thinking: settings of a request --- */

/* Three settings are handled one by one: the mode (think, or not) by the template's switch, an
 * effort by the template's variable of that name, a budget of tokens by the engines. A mode without
 * a switch still counts as obeyed if the model always behaves so. Switches are added to chat.kwargs,
 * so they belong to the session's environment (prompt_env) like arguments that the client gave
 * itself, and those win. A request that goes to the engines unchanged is left alone. */

/* Sets the switch, unless the client has set this argument of the template. */
static void put_switch(struct arena *a, const char *name, bool on, struct chat_request *req)
{
    const struct json *old = req->chat->kwargs;
    struct json all = json_empty(JSON_OBJECT);

    if (json_get(old, name))
        return;
    for (uint32_t i = 0; old && i < old->n; i++)
        json_put(a, &all, arena_cstr(a, json_string(&old->members[i].key)), old->members[i].value);
    json_put(a, &all, name, json_make_bool(on));
    req->chat->kwargs = json_keep(a, all);
}

/* Passes the effort to the template; the switch can also do an effort of "none". Upstreams have a
 * field for it. */
static void settle_effort(const struct call_env *env, const struct engine_pool *engines,
                          struct arena *a, const char *name, struct chat_request *req)
{
    struct str effort = json_string(json_get(req->chat->kwargs, "reasoning_effort"));

    if (!req->thinking.effort_field || engine_pool_all_text(engines) ||
        model_knows_effort(env->model, req->chat->tools != NULL))
        return;
    if (name && str_eq_c(effort, "none"))
        put_switch(a, name, false, req);
    else
        req->thinking.effort_lost = true;
}

/* Reports whether the model thinks as requested. */
static bool settle_mode(const struct call_env *env, const struct engine_pool *engines,
                        struct arena *a, const char *name, struct chat_request *req)
{
    enum thinking_mode mode = req->thinking.mode;

    if (mode == THINKING_ODD || engine_pool_all_text(engines))
        return false;
    if (mode == THINKING_ADAPTIVE)
        return name || env->rules->formats.reasoning != REASONING_NONE;
    if (name)
        put_switch(a, name, mode == THINKING_ON, req);
    return name || (mode == THINKING_ON) == (env->rules->formats.reasoning != REASONING_NONE);
}

/* Records the lost member by name. A member that contained both settings is named once. */
static void note(struct arena *a, bool mode_lost, bool budget_lost, struct chat_request *req)
{
    const struct thinking_wish *w = &req->thinking;
    const char *budget = w->budget_field ? w->budget_field : "max_thinking_tokens";
    bool both = str_starts(str_cstr(budget), STR("thinking."));

    if (mode_lost && both && !budget_lost)
        request_add_unobeyed(a, "thinking.type", req);
    else if (mode_lost)
        request_add_unobeyed(a, w->mode_field, req);
    if (budget_lost && !(mode_lost && both))
        request_add_unobeyed(a, budget, req);
}

/* Fills chat.kwargs, removes a budget for which these engines have no field, and records settings
 * without effect. Does nothing if the request itself goes to the engines. On the loop. */
static void api_settle_thinking(const struct call_env *env, const struct engine_pool *engines,
                                struct arena *a, const char *dialect, struct chat_request *req)
{
    const struct thinking_wish *w = &req->thinking;
    const char *name;
    bool mode_lost, budget_lost;

    if ((engine_pool_all_text(engines) && strcmp(dialect, "chat") == 0) ||
        (w->mode == THINKING_UNSAID && !w->effort_field && !req->sampling->max_thinking_tokens))
        return;
    name = model_thinking_switch(env->model, req->chat->tools != NULL);
    settle_effort(env, engines, a, name, req);
    mode_lost = w->mode != THINKING_UNSAID && !settle_mode(env, engines, a, name, req);
    budget_lost = req->sampling->max_thinking_tokens && !engine_pool_budgets_thinking(engines);
    if (budget_lost)
        req->sampling->max_thinking_tokens = NULL;
    note(a, mode_lost, budget_lost, req);
}

/* --- settling --- */

void api_call_meet_session(struct api_call *c)
{
    const struct call_env *env = &c->service->calls;
    bool ended = false;
    const struct session *s = session_find(env->store, str_cstr(c->id), &ended);
    const struct engine_pool *p = call_engines(env, c->req->model, s);

    if (!p)
        return;
    api_settle_thinking(env, p, &c->arena, c->dialect->name, c->req);
    api_call_note_locked(c, s, p);
}

static struct str owner_of(void *ctx, struct str call_id)
{
    return session_call_owner(ctx, call_id);
}

/* Groups the history like the session, by call ids. */
void api_call_regroup(struct api_call *c)
{
    bool ended = false;
    struct session *s = session_find(c->service->calls.store, str_cstr(c->id), &ended);

    if (s && c->regroups)
        c->req->chat->messages =
            regroup_calls(&c->arena, c->req->chat->messages, (struct regroup_owner){owner_of, s});
}

/* Reports members of the request without effect. They are not refused, because SDKs send them. */
void api_call_report_dropped(struct api_call *c)
{
    const struct dropped_fields *d = &c->req->dropped;
    struct str unobeyed = request_unobeyed(&c->arena, c->req);
    struct metrics_page *page = c->service->calls.page;
    struct log_scope scope = {str_cstr(c->id), str_cstr(c->request_id)};

    if (unobeyed.p)
        exchange_set_header(c->x, "Rollgate-Not-Obeyed", unobeyed);
    if (!d->names.p)
        return;
    metrics_count_at(page, METRIC_dropped_fields, c->dialect_label, METRIC_DROPPED_UNKNOWN,
                     d->unknown);
    metrics_count_at(page, METRIC_dropped_fields, c->dialect_label, METRIC_DROPPED_UNUSED,
                     d->unused);
    log_debug(&scope, "fields of the request have no effect", LOG_S("fields", d->names));
}
