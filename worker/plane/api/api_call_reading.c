/*
 * A request of the data plane before it is a call: its body is read (by a helper if it is long),
 * its session found or made, its history converted to the session's form.
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/os/task.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/known_bodies.h"
#include "worker/plane/api/reseed.h"
#include "worker/plane/call/work.h"
#include "worker/plane/service/respond.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/request_limits.h"

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
MAY_PAUSE static void meet_and_begin(struct api_call *c)
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
    if (c->counts)
        api_call_count(c);
    else
        api_call_begin(c);
}

/* Looks up the beginnings of the session's earlier requests. Lifting pictures changes the text that
 * is read. So longer bodies for a model that sees are searched for pictures first. */
static void know_body(struct api_call *c)
{
    size_t bytes = exchange_closed_body(c->x).len;

    if (c->held && c->dialect->list && (bytes <= WORK_KNOWN_MAX || !c->images.vision))
        c->known = known_bodies_look(c->service, str_cstr(c->id), c->held, bytes);
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

void call_read(struct service_request *r, const struct dialect *d, bool counts)
{
    struct api_call *c = call_new(r, d);

    c->counts = counts;
    (void)task_start(r->service->calls.tasks, r->id, serve_call, c);
}
