/* A request that was read meets its session and the settings: calls that the client sent back in
 * another grouping (all of the session's are known before that), what it wants of the thought,
 * answers that nobody reads, and what of it has no effect. On the loop. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/api/thinking.h"
#include "worker/call/call_env.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/regroup.h"
#include "worker/dialect/request_members.h"
#include "worker/request/chat.h"
#include "worker/session/session.h"

void api_call_settle(struct api_call *c)
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

/* A call that waits until its session's calls are noted. Its exchange is held. */
struct noting {
    struct loop_task task;
    struct api_call *call;
    void (*done)(struct api_call *c, const struct err *e);
};

static void on_left(void *ctx, bool delivered)
{
    struct noting *n = ctx;
    struct exchange *x = n->call->x;

    (void)delivered;
    loop_task_cancel(n->call->service->calls.loop, &n->task);
    api_call_free(n->call);
    free(n);
    exchange_let(x);
}

/* Notes a part. True: there are more. */
static bool note_part(const struct api_call *c)
{
    bool ended = false;
    struct session *s = session_find(c->service->calls.store, str_cstr(c->id), &ended);

    return s && session_note_calls(s);
}

static void note_on(struct loop_task *t)
{
    struct noting *n = CONTAINER_OF(t, struct noting, task);
    struct api_call *c = n->call;
    void (*done)(struct api_call * c, const struct err *e) = n->done;

    if (note_part(c)) {
        loop_task_post_behind(c->service->calls.loop, t, note_on);
        return;
    }
    free(n);
    exchange_watch(c->x, NULL, NULL);
    exchange_let(c->x);
    done(c, NULL);
}

bool api_call_note_calls(struct api_call *c, void (*done)(struct api_call *c, const struct err *e))
{
    struct noting *n;

    if (!c->regroups || !note_part(c))
        return false;
    n = mem_zalloc(sizeof(*n));
    n->call = c;
    n->done = done;
    c->late = true;
    exchange_hold(c->x);
    exchange_watch(c->x, on_left, n);
    loop_task_post_behind(c->service->calls.loop, &n->task, note_on);
    return true;
}

static struct str owner_of(void *ctx, struct str call_id)
{
    return session_call_owner(ctx, call_id);
}

/* The history as the session knows it, where call ids tell. */
void api_call_regroup(struct api_call *c)
{
    bool ended = false;
    struct session *s = session_find(c->service->calls.store, str_cstr(c->id), &ended);

    if (s && c->regroups)
        c->req->chat->messages =
            regroup_calls(&c->arena, c->req->chat->messages, (struct regroup_owner){owner_of, s});
}

/* What the request brought in vain is not refused, as SDKs demand it, but told. */
void api_call_tell_dropped(struct api_call *c)
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
