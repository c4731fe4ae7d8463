/*
 * A request of the data plane until it is a call: its body is read (by a helper when it is long),
 * its session found or made, its history brought into the session's form.
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/api/known_bodies.h"
#include "worker/api/reseed.h"
#include "worker/dialect/dialect.h"
#include "worker/request/chat_request.h"
#include "worker/request/request_limits.h"
#include "worker/residency/residency.h"
#include "worker/service/respond.h"
#include "worker/session/session.h"

static int refuse_ended(struct err *e)
{
    return err_set(e, ERR_SESSION_ENDED, "the session has ended");
}

/* The session the call belongs to; a fresh one for an unknown id. c->id is filled. */
static int find_session(struct service_request *r, struct api_call *c, struct err *e)
{
    const struct session *s = NULL;
    bool ended = false;

    if (r->id_valid)
        s = session_find(r->service->calls.store, r->id, &ended);
    if (s) {
        memcpy(c->id, r->id.p, r->id.len);
        if (session_phase(s) == SESSION_COMPLETED) /* recorded all the same, and said */
            exchange_set_header(r->x, "Rollgate-Session-Phase", STR("completed"));
        return session_refuse_foreign(s, e);
    }
    if (ended)
        return refuse_ended(e);
    return call_reseed(r, c->id, e);
}

/* An api_call before anything is read; the limits are a copy, as settings may change meanwhile. */
static struct api_call *call_new(struct service_request *r, const struct dialect *d)
{
    struct api_call *c = mem_zalloc(sizeof(*c) + ID_TEXT_MAX);

    c->id = (char *)(c + 1);
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

/* What meet_session would refuse is refused before the network is used for it. Nothing is made. */
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

/* What of a request needs its session, after it was read. */
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
    api_call_settle(c);
    if (request_limits_memory(&c->limits, &c->arena, e))
        return -1;
    c->arena.max_bytes = 0; /* what the engine answers is not the request's to pay for */
    /* A request that waited in the socket while its client left and tried elsewhere. */
    if (!c->service->calls.finish_on_disconnect && exchange_peer_gone(c->x))
        return err_set(e, ERR_CANCELLED, "the client has left");
    return 0;
}

/* Nothing that a stuck helper may still read is freed. */
static void refuse_call(struct api_call *c, const struct err *e)
{
    if (e->kind == ERR_CANCELLED) /* the client has left */
        exchange_mute(c->x);
    respond_error(&c->request, c->dialect, e);
    if (!api_call_stuck(c))
        api_call_free(c);
}

/* It is over: it would hold what others of the session know as long as the answer takes. */
static void note_body(struct api_call *c)
{
    if (c->knows)
        known_bodies_note(c->service, str_cstr(c->id), c->known);
    known_reading_free(c->known);
    c->known = NULL;
}

/* The session stays in memory until the call stands somewhere in it. */
static void settle(struct api_call *c, const struct err *given)
{
    struct call_env *env = &c->service->calls;
    struct session *held = api_call_stuck(c) ? NULL : c->held; /* what is stuck keeps it */
    struct err e = {0};
    int rc = given ? -1 : meet_session(c, &e);

    if (held)
        c->held = NULL;
    if (c->id[0])
        exchange_set_header(c->x, "Rollgate-Session", str_cstr(c->id));
    if (rc) {
        refuse_call(c, given ? given : &e);
    } else {
        api_call_tell_dropped(c);
        if (c->known)
            note_body(c);
        c->ready(c);
    }
    if (held)
        session_unpin(env->store, held);
}

static void on_pictures(struct api_call *c, const struct err *e)
{
    c->late = true;
    settle(c, e);
}

static void on_read(struct api_call *c, const struct err *given)
{
    struct err e = {0};

    if (given || c->req->n_awaited == 0)
        settle(c, given);
    else if (judge_session(c, &e) ||
             residency_room(c->service->calls.residency, c->held,
                            exchange_closed_body(c->x).len + c->arena.held_bytes, &e))
        settle(c, &e);
    else
        api_call_fetch(c, on_pictures);
}

/* A helper has read the body. */
static void on_helped(struct long_work *w, const struct err *e)
{
    struct api_call *c = CONTAINER_OF(w, struct api_call, reading);

    c->late = true;
    on_read(c, e);
}

/* The client left while a helper read the body; the helper has let go now. */
static void on_dropped(struct long_work *w)
{
    api_call_free(CONTAINER_OF(w, struct api_call, reading));
}

/* What earlier requests of the session began with. Where pictures are lifted out of a body, it is
 * another text that is read: longer ones of a model that sees are looked through for them. */
static void know_body(struct api_call *c)
{
    size_t bytes = exchange_closed_body(c->x).len;

    if (c->held && c->dialect->list && (bytes <= WORK_KNOWN_MAX || !c->images.vision))
        c->known = known_bodies_look(c->service, str_cstr(c->id), bytes);
}

/* Whether the loop reads it: a short body, or one of which little is new. */
static bool is_short(struct api_call *c)
{
    size_t bytes = exchange_closed_body(c->x).len;

    if (bytes <= WORK_JSON_MAX || !c->known || bytes > WORK_KNOWN_MAX)
        return bytes <= WORK_JSON_MAX;
    return known_reading_work(c->known, c->dialect, exchange_body(c->x)) <= WORK_JSON_MAX &&
           !api_call_may_lift(c);
}

/* Nothing of the body would change that. */
static int read_ended(struct long_work *w, struct work_tools *tools, struct err *e)
{
    (void)tools;
    api_call_drop_body(CONTAINER_OF(w, struct api_call, reading));
    return refuse_ended(e);
}

/* Reads on the spot when the body is short, else in a helper; `ready` is called on the loop. The
 * session is pinned meanwhile, so it is not evicted between its look-up and the call's position
 * in it. */
void call_read(struct service_request *r, const struct dialect *d, call_ready_fn ready)
{
    struct api_call *c = call_new(r, d);
    struct err e = {0};
    bool ended = false;
    enum work_state state;

    c->ready = ready;
    if (r->id_valid && r->id.len < ID_TEXT_MAX)
        memcpy(c->id, r->id.p, r->id.len); /* for previous responses; find_session decides */
    if (c->id[0])
        c->held = session_find(r->service->calls.store, str_cstr(c->id), &ended);
    if (c->held)
        session_pin(c->held);
    c->reading.run = ended ? read_ended : api_call_read;
    if (c->held && !session_exhausts(c->held))
        c->limits.context = call_context_length(&r->service->calls);
    know_body(c);
    c->reading.done = on_helped;
    c->reading.drop = on_dropped;
    c->reading.exchange = c->x;
    if (ended) {
        state = work_begin(&r->service->calls, &c->reading, str_cstr(c->id),
                           exchange_closed_body(c->x).len < BODY_DROP_LEAST, &e);
        if (state != WORK_HELPED)
            on_read(c, &e);
        return;
    }
    c->reading.is_long = exchange_closed_body(c->x).len > WORK_JSON_LONG;
    if (exchange_closed_body(r->x).len > WORK_JSON_MAX &&
        residency_room(r->service->calls.residency, c->held, exchange_closed_body(r->x).len, &e)) {
        on_read(c, &e); /* reading it would take more than it is long */
        return;
    }
    state = work_begin(&r->service->calls, &c->reading, str_cstr(c->id), is_short(c), &e);
    if (state != WORK_HELPED)
        on_read(c, state == WORK_FAILED ? &e : NULL);
}
