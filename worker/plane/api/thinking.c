/*
 * Three settings of thoughts are handled one by one: the mode (think, or not) by the template's
 * switch, an effort by the template's variable of that name, a budget of tokens by the engines. A
 * mode without a switch still counts as obeyed if the model always behaves so.
 *
 * Switches are added to chat.kwargs, so they belong to the session's environment (prompt_env) like
 * arguments that the client gave itself, and those win. Nothing is done for a request that goes to
 * the engines unchanged.
 */
#include "worker/plane/api/thinking.h"

#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/json_build.h"
#include "common/codec/sampling.h"
#include "worker/dialect/request_members.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_rules.h"
#include "worker/text/model/thought_switch.h"
#include "worker/text/request/chat.h"

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
        model_reads_variable(env->model, req->chat->tools != NULL, "reasoning_effort"))
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

/* Reports whether the argument is a switch to what the model does anyway. */
static bool is_moot(const struct call_env *env, struct str name, const struct json *v)
{
    bool thinks = env->rules->formats.reasoning != REASONING_NONE;

    return (str_eq_c(name, "enable_thinking") || str_eq_c(name, "thinking")) &&
           v->kind == JSON_BOOL && json_is_true(v) == thinks;
}

/* Records arguments of the template that it does not read. An effort of the request is among the
 * arguments; settle_effort handles it. */
static void report_unread(const struct call_env *env, struct arena *a, struct chat_request *req)
{
    const struct json *all = req->chat->kwargs;
    uint32_t n = 0;

    for (uint32_t i = 0; all && i < all->n && n < DROPPED_NAMES_MAX; i++) {
        struct str key = json_string(&all->members[i].key);

        if ((req->thinking.effort_field && str_eq_c(key, "reasoning_effort")) ||
            json_is_null(&all->members[i].value) || is_moot(env, key, &all->members[i].value) ||
            model_reads_variable(env->model, req->chat->tools != NULL, arena_cstr(a, key)))
            continue;
        key = arena_printf(a, "chat_template_kwargs.%.*s", (int)MIN_OF(key.len, (size_t)40), key.p);
        request_add_unobeyed(a, arena_cstr(a, key), req);
        n++;
    }
}

/* Records strict tools if merge_constraint makes no grammar for the calls. */
static void report_strict(const struct call_env *env, struct arena *a, struct chat_request *req)
{
    enum tool_kind calls = env->rules->formats.tool;
    bool single = !req->parallel_tool_calls && !tool_kind_ends_answer(calls);

    if (req->strict && req->tool_choice == CHOICE_AUTO && !req->sampling->grammar &&
        (calls == TOOL_NONE || (!single && !req->tool_allowed)))
        request_add_unobeyed(a, "tools.strict", req);
}

void api_settle_thinking(const struct call_env *env, const struct engine_pool *engines,
                         struct arena *a, const char *dialect, struct chat_request *req)
{
    const struct thinking_wish *w = &req->thinking;
    const char *name;
    bool mode_lost, budget_lost;

    if (engine_pool_all_text(engines) && strcmp(dialect, "chat") == 0)
        return;
    report_strict(env, a, req);
    if (!engine_pool_all_text(engines))
        report_unread(env, a, req);
    if (w->mode == THINKING_UNSAID && !w->effort_field && !req->sampling->max_thinking_tokens)
        return;
    name = model_thinking_switch(env->model, req->chat->tools != NULL);
    settle_effort(env, engines, a, name, req);
    mode_lost = w->mode != THINKING_UNSAID && !settle_mode(env, engines, a, name, req);
    budget_lost = req->sampling->max_thinking_tokens && !engine_pool_budgets_thinking(engines);
    if (budget_lost)
        req->sampling->max_thinking_tokens = NULL;
    note(a, mode_lost, budget_lost, req);
}
