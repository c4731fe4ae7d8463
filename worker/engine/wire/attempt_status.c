/* Judges the status of an engine's answer: by which route the engine can be asked, what it refuses,
 * and whether a further attempt is useful. Its text about a failure of its own is logged; clients
 * get it only with --engine-error-texts. */
#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/net/http1.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/refusal.h"

void remote_log_words(const struct remote *r, int64_t status, struct str text)
{
    log_warn(NULL, "an engine reports a failure", LOG_T("engine", r->target->name),
             LOG_I("status", status), LOG_S("text", str_sub(text, 0, 300)));
}

enum engine_failure remote_judge(const struct remote *r, int64_t status, struct str text,
                                 struct err *e)
{
    enum engine_failure how = refusal_of(status, text, e);

    if (how != ENGINE_NOT_READY &&
        (e->kind == ERR_ENGINE_INVALID || e->kind == ERR_ENGINE_UNAVAILABLE))
        remote_log_words(r, status, text);
    if (status >= 500 && r->options->error_texts && text.len > 0 &&
        (e->kind == ERR_ENGINE_INVALID || e->kind == ERR_ENGINE_UNAVAILABLE))
        err_add(e, ": %.*s", (int)MIN_OF(text.len, sizeof(e->text)), text.p);
    return how;
}

/* Changes the route, because the engine does not have the present one. Returns false if it has
 * none. An engine that had one was replaced by a different version. */
static bool next_route(struct remote *r)
{
    bool more = r->route_sure ? r->wire->routes > 1 : r->route + 1 < r->wire->routes;

    r->route = more ? (r->route + 1) % r->wire->routes : 0;
    r->route_sure = false;
    if (more)
        log_info(NULL, "engine lacks a route, trying the next", LOG_T("engine", r->target->name),
                 LOG_U("route", r->route));
    return more;
}

/* Names that the texts of such refusals contain. */
static const char budget_field[] = "thinking_token_budget", rank_field[] = "data_parallel_rank";

static bool refuses_field(int status, struct str text, const char *field)
{
    return (status == 400 || status == 422) && str_find(text, str_cstr(field), 0) != SIZE_MAX;
}

/* Reports whether the text is about the field itself: the server was not started for it, or does
 * not know it. Other texts are about its value. */
static bool about_field(struct str text)
{
    static const char *const words[] = {"reasoning_config", "--reasoning-", "not permitted",
                                        "not supported",    "unsupported",  "unexpected",
                                        "unknown",          "unrecognized"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_find(text, str_cstr(words[i]), 0) != SIZE_MAX)
            return true;
    }
    return false;
}

/* Handles a refusal of budgets. A server that was not started for them names the field, and is
 * asked without it from then on. If a server refuses a value, only calls with that value are asked
 * without it. */
static bool refuses_budget(struct remote *r, const struct engine_request *q, bool budgeted,
                           int status, struct str text)
{
    bool all = about_field(text);

    if (!budgeted || !refuses_field(status, text, budget_field))
        return false;
    if (all ? !r->refuses_budgets : r->refused_budget != remote_budget_of(q))
        log_warn(NULL,
                 all ? "an engine refuses max_thinking_tokens: it is asked without"
                     : "an engine refuses a value of max_thinking_tokens: calls of that value are "
                       "asked without",
                 LOG_T("engine", r->target->name), LOG_I("value", remote_budget_of(q)),
                 LOG_S("text", str_sub(text, 0, 300)));
    if (all)
        r->refuses_budgets = true;
    else
        r->refused_budget = remote_budget_of(q);
    return true;
}

/* Handles a server with fewer ranks than the settings say, whose text names the requested one. */
static bool refuses_rank(struct remote *r, bool ranked, int status, struct str text)
{
    if (!ranked || !refuses_field(status, text, rank_field))
        return false;
    if (!r->refuses_ranks)
        log_warn(NULL, "an engine refuses a data-parallel rank: it is asked without",
                 LOG_T("engine", r->target->name), LOG_S("text", str_sub(text, 0, 300)));
    r->refuses_ranks = true;
    remote_note_lacks(r, LACKS_RANK);
    return true;
}

/* Restores a field: the text names one that this call did not have, so it is about something else
 * (such as a stop string), and perhaps was when the field was turned off. The field is sent
 * again. */
static void reconsider_field(struct remote *r, struct asked_by by, int status, struct str text)
{
    bool ranks = r->refuses_ranks && !by.rank && refuses_field(status, text, rank_field);
    bool budgets = (r->refuses_budgets || r->refused_budget >= 0) && !by.budget &&
                   refuses_field(status, text, budget_field);

    if (!ranks && !budgets)
        return;
    log_info(NULL, "an engine refused something else: it is asked with the field again",
             LOG_T("engine", r->target->name), LOG_T("field", ranks ? rank_field : budget_field));
    r->refuses_ranks = r->refuses_ranks && !ranks;
    r->refuses_budgets = r->refuses_budgets && !budgets;
    r->refused_budget = budgets ? -1 : r->refused_budget;
    if (ranks)
        r->lacks &= ~(unsigned)LACKS_RANK;
}

/* Handles vLLM's "no such model" for an adapter that is not loaded, which does not mean that the
 * route is missing. */
static bool lacks_adapter(int status, struct str name, struct str text, struct err *e)
{
    if (status != 404 || name.len == 0 || str_find(text, name, 0) == SIZE_MAX ||
        str_find(text, STR("does not exist"), 0) == SIZE_MAX)
        return false;
    (void)err_set(e, ERR_ENGINE_REFUSED, "the engine has no adapter \"%.*s\"", (int)name.len,
                  name.p);
    return true;
}

/* Reports whether a Content-Type has that media type, whatever its parameters. */
static bool is_type(struct str type, struct str wanted)
{
    return str_eq_nocase(str_sub(type, 0, wanted.len), wanted);
}

/* Records that the engine has the present route. */
static void keep_route(struct remote *r)
{
    if (!r->route_sure && r->wire->routes > 1)
        log_info(NULL, "engine is asked by a route that it has", LOG_T("engine", r->target->name),
                 LOG_U("route", r->route));
    r->route_sure = true;
}

enum engine_failure remote_refused(struct remote *r, const struct engine_request *q, int status,
                                   struct str body, struct asked_by by, struct err *e)
{
    struct arena arena = {0};
    struct str text = refusal_text(&arena, body);
    enum engine_failure how = remote_judge(r, status, text, e);

    reconsider_field(r, by, status, text);
    if (lacks_adapter(status, q->lora, text, e))
        how = ENGINE_BROKE;
    else if (((status == 404 || status == 405) && next_route(r)) ||
             refuses_budget(r, q, by.budget, status, text) ||
             refuses_rank(r, by.rank, status, text))
        how = ENGINE_ASK_ANEW;
    arena_done(&arena);
    return how;
}

int remote_status(struct remote *r, const struct http1_head *h, bool *ret_events, struct err *e)
{
    struct str type = http1_get(h, STR("content-type"));
    struct str coding = str_trim(http1_get(h, STR("content-encoding")));

    if (h->status != 200)
        return h->status;
    *ret_events = is_type(type, STR("text/event-stream"));
    if (coding.len > 0 && !str_eq_nocase(coding, STR("identity")))
        (void)err_set(
            e, ERR_ENGINE_INVALID,
            "the engine's answer has the content-encoding \"%.*s\", and none was asked for",
            (int)MIN_OF(coding.len, (size_t)60), coding.p);
    else if (*ret_events || is_type(type, STR("application/json")))
        keep_route(r);
    else
        (void)err_set(e, ERR_ENGINE_INVALID, "the engine's answer is of type \"%.*s\"",
                      (int)MIN_OF(type.len, (size_t)60), type.p ? type.p : "");
    return h->status;
}
