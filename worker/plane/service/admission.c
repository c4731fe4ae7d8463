/* Decides whether there is space for more sessions, and for more answers of a session. Both planes
 * use this. */
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/service/service.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session_totals.h"
#include "worker/sink/sink.h"

/* Reports whether the whole service stops, so that nothing new may begin. A worker that is only
 * retired or replaced still accepts requests, because its sessions continue in other workers
 * through the journal. So does a worker whose port is kept for the next instance, which replays
 * that journal. */
static bool service_ends(const struct service *a)
{
    const struct heritage *h = a->heritage;

    return atomic_load_explicit(&h->board->draining, memory_order_relaxed) != 0 &&
           !(h->port_kept && h->config->durability != DURABILITY_NONE);
}

/* Reports whether the request is for all sessions: a list, or an order by label. */
static bool is_for_all(const struct service_request *r)
{
    return (str_eq_c(r->rest, "/sessions") && str_eq_c(exchange_method(r->x), "GET")) ||
           str_eq_c(r->rest, "/sessions/abort") || str_eq_c(r->rest, "/sessions/finalize");
}

bool service_serves_index(const struct service *a, uint32_t index)
{
    return places_serve(a->calls.residency->places, index);
}

/* A model call must not run under orders that the fleet has left. */
static int check_orders(const struct heritage *h, struct err *e)
{
    if (!h->fleet || heritage_obeys(h, h->slot))
        return 0;
    return err_set(e, ERR_STORAGE_UNAVAILABLE,
                   "this node is reading the orders of its fleet: repeat the request");
}

/* A session that is unknown here may be lost. */
static int check_lost(const struct service_request *r, struct err *e)
{
    bool ended;

    if (session_find_any(r->service->calls.store, r->id, &ended) || ended)
        return 0;
    return ledger_check_known(r->service->calls.ledger, r->id, e);
}

int service_check_owner(const struct service_request *r, bool is_call, struct err *e)
{
    const struct ledger *l = r->service->calls.ledger;

    if (r->id_valid && (ledger_check_owner(l, r->id, e) || check_lost(r, e)))
        return -1;
    if (r->id_valid)
        return is_call ? check_orders(r->service->heritage, e) : 0;
    return !r->id.p && is_for_all(r) ? ledger_check_all_read(l, e) : 0;
}

int service_no_session(const struct service_request *r, struct err *e)
{
    const char *fault = r->id_valid ? NULL : ids_fault(r->id);

    if (!r->id.p)
        return err_set(
            e, ERR_UNKNOWN_SESSION,
            "the request names no session: its path begins with /sessions/ID, or it has a "
            "session's key; an ID has the form %s",
            ids_form());
    if (fault)
        return err_set(e, ERR_UNKNOWN_SESSION,
                       "no such session: an id has the form %s and this one has not: %s",
                       ids_form(), fault);
    return err_set(e, ERR_UNKNOWN_SESSION,
                   "no such session: this id, of the form %s, is mistyped, of another gateway, or "
                   "forgotten",
                   ids_form());
}

int service_room(struct service *a, int64_t count, struct err *e)
{
    const struct config *c = a->config;
    struct session_totals t;

    if (service_ends(a))
        return err_set(e, ERR_DRAINING, "the gateway is shutting down");
    if (a->disk_low) {
        metrics_count_at(a->calls.page, METRIC_refusals, METRIC_REFUSAL_DISK, 0, 1);
        return err_set(e, ERR_STORAGE_FULL, "the journal's disk is almost full");
    }
    if (sinks_full(a->sinks)) {
        metrics_count_at(a->calls.page, METRIC_refusals, METRIC_REFUSAL_DISK, 0, 1);
        return err_set(e, ERR_STORAGE_FULL,
                       "more trajectories wait for the sinks than --sink-max-waiting allows");
    }
    if (residency_room(a->calls.residency, NULL, 0, e))
        return -1;
    session_store_totals(a->calls.store, &t);
    if (t.sessions + (uint64_t)count > (uint64_t)c->max_sessions ||
        t.tokens > (uint64_t)c->max_live_tokens) {
        bool sessions = t.tokens <= (uint64_t)c->max_live_tokens;

        metrics_count_at(a->calls.page, METRIC_refusals,
                         sessions ? METRIC_REFUSAL_SESSIONS : METRIC_REFUSAL_TOKENS, 0, 1);
        return err_set(e, ERR_OVERLOADED,
                       sessions ? "too many live sessions" : "too many live tokens");
    }
    return 0;
}

int service_body_room(struct service *a, uint64_t own_bytes, struct err *e)
{
    return residency_room(a->calls.residency, NULL, own_bytes, e);
}

int service_unread_room(struct service *a, const struct exchange *x, struct str session,
                        struct err *e)
{
    uint64_t max = (uint64_t)a->config->max_session_unread_bytes;
    size_t waiting = exchange_owner_waiting(x, session);

    if (max == 0 || waiting <= max)
        return 0;
    metrics_count_at(a->calls.page, METRIC_refusals, METRIC_REFUSAL_UNREAD, 0, 1);
    return err_set(e, ERR_OVERLOADED,
                   "%zu bytes of answers wait for this session's clients to read them, more "
                   "than --max-session-unread-bytes (%llu)",
                   waiting, (unsigned long long)max);
}
