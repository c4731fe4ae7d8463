/*
 * A request of the data plane before it is a call: its body is read (by a helper if it is long),
 * its session found or made, its history converted to the session's form.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/task.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/known_bodies.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/work.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/request_limits.h"

/* --- calls on sessions that do not exist here (--reseed) --- */

/* An agent survives a gateway that has lost its session, because it gets a fresh one. But a
 * mistyped id must not lead to a session that no trainer knows. So only a complete id gets one
 * (--reseed minted), and only if its session cannot be here: its index is not served, or nothing is
 * kept (--durability none). A key gets none: a valid one proves that its session was here, so that
 * it has ended. With several nodes a foreign index belongs to a different node. In a fleet no id
 * leads to a fresh session: a different node may have it. */

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

/* Refuses what call_reseed would refuse, before anything is done. The error says what is known of
 * the id: ended, or unknown. */
static int call_may_reseed(const struct service_request *r, struct err *e)
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

/* Makes a fresh session for a call whose own does not exist here, if that is allowed. ret_id gets
 * its id and has ID_TEXT_MAX bytes. Returns -1 and e: ERR_UNKNOWN_SESSION, ERR_SESSION_ENDED, or no
 * capacity. Warns, and informs the client by a header. */
static int call_reseed(struct service_request *r, char *ret_id, struct err *e)
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

/* --- reading --- */

static int refuse_ended(struct err *e)
{
    return err_set(e, ERR_SESSION_ENDED, "the session has ended");
}

/* Finds the session of the call; makes a fresh one for an unknown id. Fills c->id. */
static int find_session(struct service_request *r, struct api_call *c, struct err *e)
{
    const struct session *s = NULL;
    bool ended = false;

    if (r->id_valid)
        s = session_find(r->service->calls.store, r->id, &ended);
    if (s) {
        memcpy(c->id, r->id.p, r->id.len);
        if (session_phase(s) == SESSION_COMPLETED) /* the call is recorded anyway, with a warning */
            exchange_set_header(r->x, "Rollgate-Session-Phase", STR("completed"));
        return session_refuse_foreign(s, e);
    }
    if (ended)
        return refuse_ended(e);
    return call_reseed(r, c->id, e);
}

/* Makes an api_call before anything is read. The limits are a copy, because settings may change
 * meanwhile. */
static struct api_call *call_new(struct service_request *r, const struct dialect *d)
{
    struct api_call *c = mem_zalloc(sizeof(*c) + ID_TEXT_MAX);

    c->id = (char *)(c + 1);
    c->front = c;
    c->service = r->service;
    c->request = *r;
    c->x = r->x;
    c->dialect = d;
    c->limits = call_request_limits(&r->service->calls);
    c->arena.sum = &r->service->calls.request_bytes;
    c->images = call_image_rules(&r->service->calls);
    c->dialect_label = r->dialect;
    memcpy(c->request_id, r->request_id, sizeof(c->request_id));
    return c;
}

int api_call_refuse_unread(const struct api_call *c, struct err *e)
{
    return service_unread_room(c->service, c->x, str_cstr(c->id), e);
}

/* Refuses, before the network is used, what meet_session would refuse. Makes no session. */
static int judge_session(struct api_call *c, struct err *e)
{
    const struct service_request *r = &c->request;
    const struct session *s = NULL;
    bool ended = false;

    if (r->id_valid)
        s = session_find(r->service->calls.store, r->id, &ended);
    if (s)
        return session_refuse_foreign(s, e) || api_call_refuse_unread(c, e) ? -1 : 0;
    if (ended)
        return refuse_ended(e);
    return call_may_reseed(r, e);
}

/* Handles the members of a read request that need its session. */
static int meet_session(struct api_call *c, struct err *e)
{
    struct service_request *r = &c->request;

    if (c->late && !c->held && r->id_valid &&
        !residency_ready(c->service->calls.residency, r->id, false))
        return err_set(e, ERR_OVERLOADED, "the session was just made; ask again");
    if (find_session(r, c, e) || api_call_refuse_unread(c, e))
        return -1;
    exchange_account(c->x, str_cstr(c->id));
    api_call_regroup(c);
    api_call_meet_session(c);
    if (request_limits_memory(&c->limits, &c->arena, e))
        return -1;
    c->arena.max_bytes = 0; /* the engine's answer does not count in the request's limit */
    /* The request waited in the socket while its client left and perhaps tried elsewhere. */
    if (!c->service->calls.finish_on_disconnect && exchange_peer_gone(c->x)) {
        exchange_mute(c->x);
        return err_set(e, ERR_CANCELLED, "the client has left");
    }
    return 0;
}

static void refuse_call(struct api_call *c, const struct err *e)
{
    respond_error(&c->request, c->dialect, e);
    known_reading_free(c->known);
    c->known = NULL;
    api_call_free_arena(c);
}

/* Records the body's beginning. The reading ends here, because it would keep the beginnings of
 * other requests in memory while the answer is made. */
static void remember_body(struct api_call *c)
{
    if (c->knows)
        known_bodies_note(c->service, str_cstr(c->id), c->known);
    known_reading_free(c->known);
    c->known = NULL;
}

/* Meets the session, which stays in memory while the task runs, and begins the call. */
static void meet_and_begin(struct api_call *c)
{
    struct session_store *store = c->service->calls.store;
    struct err e = {0};
    bool ended = false;
    int rc = meet_session(c, &e);

    if (c->id[0])
        exchange_set_header(c->x, "Rollgate-Session", str_cstr(c->id));
    if (rc) {
        refuse_call(c, &e);
        return;
    }
    if (!c->held) {
        c->held = session_find(store, str_cstr(c->id), &ended);
        session_pin(c->held);
    }
    api_call_report_dropped(c);
    if (c->known)
        remember_body(c);
    c->ready(c);
}

/* Looks up the beginnings of the session's earlier requests. Lifting pictures changes the text that
 * is read. So longer bodies for a model that sees are searched for pictures first. */
static void know_body(struct api_call *c)
{
    size_t bytes = exchange_closed_body(c->x).len;

    if (c->held && c->dialect->list && (bytes <= WORK_KNOWN_MAX || !c->images.vision))
        c->known = known_bodies_look(c->service, str_cstr(c->id), bytes);
}

/* Reports whether the loop reads it: a short body, or one with little new text. */
static bool is_short(struct api_call *c)
{
    size_t bytes = exchange_closed_body(c->x).len;

    if (bytes <= WORK_JSON_MAX || !c->known || bytes > WORK_KNOWN_MAX)
        return bytes <= WORK_JSON_MAX;
    return known_reading_work(c->known, c->dialect, exchange_body(c->x)) <= WORK_JSON_MAX &&
           !api_call_may_lift(c);
}

/* Ends a read that cannot succeed, whatever the body is. */
static int read_ended(void *call, void *tool, struct err *e)
{
    (void)tool;
    api_call_drop_body(call);
    return refuse_ended(e);
}

/* Reads at once if the body is short, else in a helper. */
MAY_PAUSE static int read_body(struct api_call *c, bool ended, struct err *e)
{
    struct residency *r = c->service->calls.residency;
    size_t bytes = exchange_closed_body(c->x).len;
    struct task_work w = {.fn = api_call_read, .ctx = c, .lane = str_cstr(c->id)};

    if (ended) {
        w.fn = read_ended;
        w.is_short = bytes < BODY_DROP_LEAST;
        return api_call_offload(c, &w, e);
    }
    if (bytes > WORK_JSON_MAX && residency_room(r, c->held, bytes, e))
        return -1; /* the search would take longer than it saves */
    w.is_short = is_short(c);
    w.is_long = bytes > WORK_JSON_LONG;
    return api_call_offload(c, &w, e);
}

/* Fetches the pictures that the request names by URL. */
MAY_PAUSE static int read_pictures(struct api_call *c, struct err *e)
{
    if (c->req->n_awaited == 0)
        return 0;
    if (judge_session(c, e) ||
        residency_room(c->service->calls.residency, c->held,
                       exchange_closed_body(c->x).len + c->arena.held_bytes, e))
        return -1;
    return api_call_fetch(c, e);
}

/* Reads the request. Its session is pinned, so that it is not evicted before the call has its
 * position in it. */
MAY_PAUSE static int read_request(struct api_call *c, struct err *e)
{
    const struct service_request *r = &c->request;
    struct call_env *env = &r->service->calls;
    uint64_t turns = task_turns();
    bool ended = false;
    int rc;

    if (r->id_valid && r->id.len < ID_TEXT_MAX)
        memcpy(c->id, r->id.p, r->id.len); /* for previous responses; find_session decides later */
    if (c->id[0])
        c->held = session_find(env->store, str_cstr(c->id), &ended);
    if (c->held)
        session_pin(c->held);
    if (c->held && !session_exhausts(c->held))
        c->limits.context = call_context_length(env);
    know_body(c);
    rc = read_body(c, ended, e);
    if (rc == 0)
        rc = read_pictures(c, e);
    c->late = task_turns() != turns;
    return rc;
}

static void serve_call(void *ctx)
{
    struct api_call *c = ctx;
    struct err e = {0};

    api_call_begin_task(c);
    if (read_request(c, &e) == 0) {
        meet_and_begin(c);
    } else if (e.kind != ERR_CANCELLED) {
        if (c->id[0])
            exchange_set_header(c->x, "Rollgate-Session", str_cstr(c->id));
        refuse_call(c, &e);
    }
    api_call_end_task(c);
}

void call_read(struct service_request *r, const struct dialect *d, call_ready_fn ready)
{
    struct api_call *c = call_new(r, d);

    c->ready = ready;
    (void)task_start(r->service->calls.tasks, r->id, serve_call, c);
}
