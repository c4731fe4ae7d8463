/*
 * Calls on sessions that do not exist here. An agent survives a gateway that has lost its session,
 * because it gets a fresh one. But a mistyped id must not lead to a session that no trainer knows.
 * So only a complete id gets one (--reseed minted), and only if its session cannot be here: its
 * index is not served, or nothing is kept (--durability none). A key gets none: a valid one proves
 * that its session was here, so that it has ended. With several nodes a foreign index belongs to a
 * different node. In a fleet no id leads to a fresh session: a different node may have it.
 */
#include "worker/plane/api/reseed.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/service/service.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"

enum { SHOWN_MAX = 64 };

/* True if a worker of this gateway has the sessions of that index. */
static bool is_served(const struct service *a, uint32_t index)
{
    return places_serve(a->calls.residency->places, index) ||
           board_resolve(a->heritage->board, index) >= 0;
}

/* Returns true if the request's id may lead to a fresh session. */
static bool may_recreate(const struct service_request *r)
{
    const struct config *c = r->service->config;
    bool keeps = c->durability != DURABILITY_NONE,
         has_nodes = c->peer.n > 0 || c->worker_base_given;
    uint32_t index;

    if (c->reseed == RESEED_OFF || (r->service->heritage->fleet && r->id.p))
        return false;
    if (!r->id.p) /* an admin's key makes a session of its own */
        return c->reseed == RESEED_ANY || keys_required(r->service->keys);
    if (!r->id_valid || ids_parse(r->id, &index) != 0)
        return c->reseed == RESEED_ANY;
    return is_served(r->service, index) ? !keeps : !has_nodes;
}

/* The error says what is known of the id: ended, or unknown. */
int call_may_reseed(const struct service_request *r, struct err *e)
{
    bool keys = keys_required(r->service->keys);

    if (keys && !r->admin)
        return err_set(e, ERR_SESSION_ENDED, "the session has ended");
    if ((r->id.p && keys) || !may_recreate(r))
        return service_no_session(r, e);
    return service_room(r->service, 1, e);
}

/* Returns the id that was asked for, cut to what can be shown: it may be any text. */
static struct str shown_id(const struct service_request *r, char text[SHOWN_MAX])
{
    size_t n = MIN_OF(r->id.len, (size_t)SHOWN_MAX);

    for (size_t i = 0; i < n; i++)
        text[i] = r->id.p[i] > ' ' && r->id.p[i] < 0x7f ? r->id.p[i] : '?';
    return str_of(text, n);
}

/* Makes a session whose only option is its origin. The record is journaled like any other. */
static int create_fresh(struct service_request *r, struct str asked, char *id, struct err *e)
{
    struct call_env *env = &r->service->calls;
    struct buf text = {0}, record = {0};
    struct json_out o = json_out_to(&text);
    const struct json *options = NULL;
    struct arena a = {0};
    int rc;

    json_out_obj(&o);
    json_out_member_str(&o, "reseeded_from", asked);
    json_out_end_obj(&o);
    (void)ids_session(env->ids, r->service->heritage->index, id);
    rc = json_parse(&a, buf_str(&text), &options, e);
    if (rc == 0)
        rc = session_create_record(env->store, str_cstr(id), options, clock_wall_ms(), &record, e);
    if (rc == 0)
        rc = ledger_write(env->ledger, str_cstr(id), buf_str(&record), (struct ledger_done){0}, e);
    buf_done(&record);
    buf_done(&text);
    arena_done(&a);
    return rc;
}

/* Warns, and informs the client by a header. */
int call_reseed(struct service_request *r, char *ret_id, struct err *e)
{
    struct log_scope scope = {.request = str_cstr(r->request_id)};
    char text[SHOWN_MAX];
    struct str asked = shown_id(r, text);

    if (call_may_reseed(r, e) || create_fresh(r, asked, ret_id, e))
        return -1;
    scope.session = str_cstr(ret_id);
    log_warn(&scope, "session reseeded", LOG_S("asked", asked));
    exchange_set_header(r->x, "Rollgate-Reseeded", STR("1"));
    metrics_count(r->service->calls.page, METRIC_sessions_reseeded, 1);
    return 0;
}
