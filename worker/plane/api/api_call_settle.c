/* Adapts a request that was read to its session and the settings: calls that the client sent back
 * in a different grouping, its thought settings, answers that are not read, and members without
 * effect. On the loop. */
#include <string.h>

#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/regroup.h"
#include "worker/dialect/request_members.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/thinking.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/sampling_merge.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat.h"

/* --- parameters that the session locks (lock_sampling) --- */

/* Adds the parameters that the session (or NULL) replaces by a different value
 * to req->dropped. Locks apply to the session's own engines. */
static void api_call_add_overruled(struct api_call *c, const struct session *s,
                                   const struct engine_pool *engines)
{
    struct arena *a = &c->arena;
    struct json names;

    if (!s || !str_eq(session_pool(s), str_cstr(engine_pool_name(engines))))
        return;
    names = sampling_list_overruled(a, c->req, session_sampling(s), session_lock_sampling(s));
    for (uint32_t i = 0; i < names.n; i++)
        request_add_unobeyed(a, arena_cstr(a, json_string(&names.items[i])), c->req);
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
    api_call_add_overruled(c, s, p);
}

static struct str owner_of(void *ctx, struct str call_id)
{
    return session_call_owner(ctx, call_id);
}

static const struct json *message_of(void *ctx, struct str answer_id)
{
    struct str told = {0};

    return session_message(ctx, answer_id, &told);
}

static const struct json *before_of(void *ctx, struct str answer_id)
{
    return session_message_before(ctx, answer_id);
}

/* Groups the history like the session, by call ids. */
void api_call_regroup(struct api_call *c)
{
    bool ended = false;
    struct session *s = session_find(c->service->calls.store, str_cstr(c->id), &ended);
    bool has_items = c->dialect->list && strcmp(c->dialect->list, "input") == 0;
    struct regroup_owner owner = {owner_of, message_of, before_of, s, has_items};

    if (s && c->regroups)
        c->req->chat->messages = regroup_calls(&c->arena, c->req->chat->messages, owner);
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
    if (!d->names.p || c->counts)
        return;
    metrics_count_at(page, METRIC_dropped_fields, c->dialect_label, METRIC_DROPPED_UNKNOWN,
                     d->unknown);
    metrics_count_at(page, METRIC_dropped_fields, c->dialect_label, METRIC_DROPPED_UNUSED,
                     d->unused);
    log_debug(&scope, "fields of the request have no effect", LOG_S("fields", d->names));
}
