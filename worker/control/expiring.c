/*
 * Sessions whose time is over, on a worker that has scorers: those that want scores get them first,
 * a few at a time, and then expire. A scorer that fails holds nothing up, nor does a journal that
 * cannot be read, three times: the session expires without, and its exports say so. One that
 * somebody uses meanwhile goes on.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "worker/control/ending.h"
#include "worker/control/handlers.h"
#include "worker/engine/scorers.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/residency.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

/* READ_TRIES, READ_AGAIN_MS: what cannot be read back may be for want of descriptors, or of a
 * helper. */
enum { EXPIRING_MAX = 16, READ_TRIES = 3, READ_AGAIN_MS = 1000 };

struct expiring {
    struct list_item item;
    struct service *service;
    char id[ID_TEXT_MAX];
    struct residency_waiter waiter;
    struct loop_timer again;
    int failed;              /* times that it could not be read back */
    struct session *session; /* pinned while it is scored */
    struct scoring_wait *scoring;
};

static void forget(struct expiring *x)
{
    residency_leave(&x->waiter);
    loop_timer_stop(x->service->calls.loop, &x->again);
    scoring_wait_cancel(x->scoring);
    if (x->session)
        session_unpin(x->service->calls.store, x->session);
    list_remove(&x->item);
    free(x);
}

int control_expire(struct service *a, struct session *s, struct err *e)
{
    if (control_close(a, s, SESSION_END_EXPIRE, NULL, (struct ledger_done){0}, e) != 0)
        return -1;
    metrics_count(a->calls.page, METRIC_sessions_expired, 1);
    return 0;
}

/* What the next sweep finds undone, it begins anew. */
static void end(struct expiring *x)
{
    struct session *s = x->session;
    struct err e = {0};

    if (s && session_expired(s, clock_wall_ms()) && control_expire(x->service, s, &e) != 0)
        log_warn(NULL, "cannot expire a session", LOG_T("error", e.text));
    forget(x);
}

static void end_unscored(struct expiring *x, const struct err *why)
{
    log_warn(NULL, "a session expires without its scores", LOG_T("session", x->id),
             LOG_T("error", why->text));
    end(x);
}

static void on_scored(void *ctx, const struct err *e)
{
    struct expiring *x = ctx;

    x->scoring = NULL;
    if (e)
        end_unscored(x, e);
    else
        end(x);
}

/* Unless it has ended meanwhile. */
static void hold(struct expiring *x)
{
    bool ended;

    x->session = session_find(x->service->calls.store, str_cstr(x->id), &ended);
    if (x->session)
        session_pin(x->session);
}

/* Its content is in memory. */
static void score(struct expiring *x)
{
    struct err e = {0};
    int rc;

    hold(x);
    rc = x->session ? scoring_wait_begin(x->service, x->session, NULL,
                                         (struct scoring_done){on_scored, x}, &x->scoring, &e)
                    : 1;
    if (rc < 0)
        end_unscored(x, &e);
    else if (rc > 0)
        end(x);
}

static void read_back(struct expiring *x)
{
    struct residency *r = x->service->calls.residency;
    struct str id = str_cstr(x->id);

    if (residency_ready(r, id, false))
        score(x);
    else
        residency_wait(r, id, &x->waiter);
}

static void on_again(struct loop_timer *t)
{
    struct expiring *x = CONTAINER_OF(t, struct expiring, again);
    bool ended;

    if (session_find(x->service->calls.store, str_cstr(x->id), &ended))
        read_back(x);
    else
        forget(x);
}

/* What cannot be read back is not tried for ever. */
static void on_ready(void *ctx, const struct err *e)
{
    struct expiring *x = ctx;

    if (!e) {
        score(x);
        return;
    }
    if (++x->failed < READ_TRIES) {
        loop_timer_set(x->service->calls.loop, &x->again, READ_AGAIN_MS, on_again);
        return;
    }
    hold(x);
    if (x->session)
        end_unscored(x, e);
    else
        end(x);
}

static bool is_under_way(const struct service *a, struct str id, size_t *ret_n)
{
    const struct expiring *x;

    *ret_n = 0;
    LIST_EACH(&a->expiring, x, struct expiring, item) {
        if (str_eq_c(id, x->id))
            return true;
        (*ret_n)++;
    }
    return false;
}

bool expiring_takes(struct service *a, struct session *s)
{
    struct str id = session_id(s);
    struct expiring *x;
    size_t n;

    if (!scorers_any(a->scorers))
        return false;
    if (is_under_way(a, id, &n) || n >= EXPIRING_MAX || id.len >= sizeof(x->id))
        return id.len < sizeof(x->id);
    x = mem_zalloc(sizeof(*x));
    x->service = a;
    memcpy(x->id, id.p, id.len);
    x->waiter.fn = on_ready;
    x->waiter.ctx = x;
    list_append(&a->expiring, &x->item);
    if (session_resident(s))
        score(x);
    else
        read_back(x);
    return true;
}

void expiring_done(struct service *a)
{
    struct expiring *x, *next;

    LIST_EACH_SAFE(&a->expiring, x, next, struct expiring, item)
        forget(x);
}
