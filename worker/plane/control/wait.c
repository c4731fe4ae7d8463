/* GET /sessions/{id}/wait: a long poll until the session has ended. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/control.h"
#include "worker/plane/control/events.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"

enum { WAIT_DEFAULT_S = 60 };

struct wait_entry {
    struct service *service;
    struct list_item item; /* in service->waits */
    struct exchange *x;
    struct loop_timer timer;
    struct residency_waiter waiter; /* waits for the state of the ended session to be read back */
    char id[ID_TEXT_MAX];
};

static void wait_free(struct wait_entry *w)
{
    loop_timer_stop(w->service->calls.loop, &w->timer);
    residency_leave(&w->waiter);
    list_remove(&w->item);
    free(w);
}

static void on_closed(void *ctx, bool delivered)
{
    (void)delivered;
    wait_free(ctx);
}

/* Answers 204, because the session still runs; the client asks again. */
static void on_timeout(struct loop_timer *t)
{
    struct wait_entry *w = CONTAINER_OF(t, struct wait_entry, timer);

    exchange_watch(w->x, NULL, NULL);
    respond_count(w->service, METRIC_DIALECT_CONTROL, 204);
    exchange_reply(w->x, 204, "application/json", STR(""));
    wait_free(w);
}

/* Answers with the state if the session has ended (or is unknown). Returns 0 if it still runs. */
static int answer_if_over(struct service *a, struct exchange *x, struct str id)
{
    bool ended = false;
    struct session *s = session_find_any(a->calls.store, id, &ended);
    struct service_request r = {.service = a, .x = x, .dialect = METRIC_DIALECT_CONTROL};
    struct buf body = {0};
    struct err e = {0};

    if (s && session_phase(s) == SESSION_OPEN)
        return 0;
    if (s) {
        state_send(&r, s, false);
    } else if (ended) {
        struct json_out o = json_out_to(&body);

        json_out_obj(&o);
        json_out_member_str(&o, "session_id", id);
        json_out_member_cstr(&o, "phase",
                             session_is_kept(a->calls.store, id) ? "finalized" : "aborted");
        json_out_end_obj(&o);
        respond_count(a, METRIC_DIALECT_CONTROL, 200);
        exchange_reply(x, 200, "application/json", buf_str(&body));
    } else {
        (void)service_no_session(&(struct service_request){.id = id, .id_valid = true}, &e);
        respond_error_to(a, x, NULL, METRIC_DIALECT_CONTROL, "", &e);
    }
    buf_done(&body);
    return 1;
}

/* Returns what is left of timeout_s, in ms. inputs.def has checked the value. */
static uint64_t timeout_ms(struct service_request *r)
{
    struct arena a = {0};
    struct str given = query_get(&a, exchange_query(r->x), "timeout_s");
    const struct json *number = NULL;
    double s = WAIT_DEFAULT_S;
    uint64_t waited_ms = exchange_waited_ms(r->x), all_ms;

    if (given.p && json_parse(&a, given, &number, NULL) == 0)
        (void)json_to_double(number, &s);
    arena_done(&a);
    all_ms = (uint64_t)(s * 1000.0);
    return all_ms - MIN_OF(all_ms, waited_ms);
}

/* Ends a wait. A worker that is scaled away or replaced hands its waiters back, because its
 * successor can answer them, or the next owner if its node leaves the fleet. */
static void end_wait(struct service *a, struct exchange *x)
{
    struct err e = {0};

    if (!atomic_load_explicit(&a->heritage->board->draining, memory_order_relaxed)) {
        exchange_hand_back(x);
        return;
    }
    (void)err_set(&e, ERR_DRAINING, "the gateway is shutting down");
    respond_error_to(a, x, NULL, METRIC_DIALECT_CONTROL, "", &e);
}

/* Answers at once if the session has ended, else waits in service->waits. */
void wait_get(struct service_request *r)
{
    struct wait_entry *w;
    struct err e = {0};

    if (!r->id_valid && !control_find(r, true, &e)) {
        respond_error(r, NULL, &e);
        return;
    }
    if (answer_if_over(r->service, r->x, r->id))
        return;
    if (r->service->draining) {
        end_wait(r->service, r->x);
        return;
    }
    w = mem_zalloc(sizeof(*w));
    w->service = r->service;
    w->x = r->x;
    memcpy(w->id, r->id.p, r->id.len);
    list_prepend(&r->service->waits, &w->item);
    exchange_watch(w->x, on_closed, w);
    loop_timer_set(w->service->calls.loop, &w->timer, timeout_ms(r), on_timeout);
}

/* Answers, or continues to wait. */
static void try_answer(struct wait_entry *w)
{
    exchange_watch(w->x, NULL, NULL);
    if (answer_if_over(w->service, w->x, str_cstr(w->id)))
        wait_free(w);
    else
        exchange_watch(w->x, on_closed, w);
}

/* Called when the session's state was read back, or cannot be. */
static void on_back(void *ctx, const struct err *e)
{
    struct wait_entry *w = ctx;

    if (e)
        on_timeout(&w->timer); /* a repeated request gets the error */
    else
        try_answer(w);
}

/* Called for every change that may end a wait. */
void waits_wake(struct service *a, struct str id)
{
    struct wait_entry *w, *next;

    LIST_EACH_SAFE(&a->waits, w, next, struct wait_entry, item) {
        if (!str_eq(str_cstr(w->id), id) || w->waiter.load)
            continue;
        if (residency_ready(a->calls.residency, id, false)) {
            try_answer(w);
            continue;
        }
        w->waiter.fn = on_back;
        w->waiter.ctx = w;
        residency_add_waiter(a->calls.residency, id, &w->waiter);
    }
}

/* Hands all waiters back, so that they ask the worker's successor. */
void control_drain(struct service *a)
{
    struct wait_entry *w, *next;

    a->draining = true;
    events_end(a);
    LIST_EACH_SAFE(&a->waits, w, next, struct wait_entry, item) {
        exchange_watch(w->x, NULL, NULL);
        end_wait(a, w->x);
        wait_free(w);
    }
}
