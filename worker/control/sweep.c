/* Once a second: steps of the wall clock are noticed, memory is kept below its limits, and all
 * sessions are looked at: those whose time is over are expired, tombstones and exports past their
 * time are dropped. Of many sessions that takes a while: it is done a millisecond at a time, and
 * the next second's look begins when the last has ended. */
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "worker/call/call_env.h"
#include "worker/control/control.h"
#include "worker/control/discovery.h"
#include "worker/control/ending.h"
#include "worker/control/events.h"
#include "worker/control/handlers.h"
#include "worker/control/session_walk.h"
#include "worker/control/sibling.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/residency.h"
#include "worker/service/service.h"
#include "worker/session/session.h"
#include "worker/session/session_totals.h"

enum { STEP_MIN_MS = 500, SLICE_US = 1000 };

enum { LOOKS = 16, ENDS = 64 }; /* sessions that stay, and ends, between two looks at the clock */

struct sweeping {
    struct service *service;
    struct session_walk walk; /* its next session is the one to look at */
    uint64_t now_ms;          /* when it began, by the clock as it is set now; 0: none goes on */
    bool walked;              /* all sessions; ends are left */
    bool stuck;               /* an end could not be written: none is tried any more */
    struct loop_task task;    /* posted: it goes on */
};

/* Steps of the wall clock (somebody sets it) are no time that has passed. */
static void watch_clock(struct service *a, uint64_t now_ms)
{
    int64_t ahead_ms = (int64_t)(now_ms - clock_ms());
    int64_t step_ms = ahead_ms - a->clock_ahead_ms;

    if (a->clock_ahead_ms && (step_ms > STEP_MIN_MS || step_ms < -STEP_MIN_MS)) {
        log_warn(NULL, "the clock was set", LOG_I("by_ms", step_ms));
        session_clock_stepped(a->calls.store, step_ms);
        if (a->sweeping && a->sweeping->now_ms != 0)
            a->sweeping->now_ms += (uint64_t)step_ms;
    }
    a->clock_ahead_ms = ahead_ms;
}

/* A copy that will not be whole any more (its last record was refused, or the program died): nobody
 * was told of it. */
static void drop_copy(struct service *a, struct session *s)
{
    struct err e = {0};

    if (control_copies(a, session_id(s)))
        return;
    if (control_end(a, s, SESSION_END_DELETE, NULL, (struct ledger_done){0}, &e) != 0)
        log_warn(NULL, "cannot delete a session that was copied in part", LOG_T("error", e.text));
}

/* Whether that took more than a look; s may be gone. */
static bool look_at(struct sweeping *w, struct session *s)
{
    struct service *a = w->service;
    struct err e = {0};

    if (session_copying(s)) {
        drop_copy(a, s);
        return true;
    }
    if (!session_expired(s, w->now_ms))
        return session_leave_late(s, w->now_ms);
    if (w->stuck)
        return false;
    if (!expiring_takes(a, s) && control_expire(a, s, &e) != 0) {
        log_warn(NULL, "cannot expire a session", LOG_T("error", e.text));
        w->stuck = true;
    }
    return true;
}

/* The next slice begins with s, unless it is gone by then. */
static void stop_before(struct session_walk *w, const struct session *s)
{
    session_walk_pass(w, s);
    session_walk_leave(w, session_serial(s) - 1);
}

/* False: time is over, and there is more. */
static bool walk_on(struct sweeping *w, uint64_t until_us)
{
    struct session_store *st = w->service->calls.store;
    struct session *s = session_walk_next(&w->walk, st), *next;

    for (unsigned n = 1; s; s = next, n++) {
        next = session_next(st, s);
        if (look_at(w, s))
            n = 0;
        if (next && n % LOOKS == 0 && clock_us() >= until_us) {
            stop_before(&w->walk, next);
            return false;
        }
    }
    session_walk_done(&w->walk);
    return true;
}

/* As walk_on, of all that is to be done. */
static bool sweep_on(struct sweeping *w, uint64_t until_us)
{
    w->walked = w->walked || walk_on(w, until_us);
    if (!w->walked)
        return false;
    while (session_sweep_ends(w->service->calls.store, w->now_ms, ENDS)) {
        if (clock_us() >= until_us)
            return false;
    }
    return true;
}

static void on_slice(struct loop_task *t)
{
    struct sweeping *w = CONTAINER_OF(t, struct sweeping, task);

    if (sweep_on(w, clock_us() + SLICE_US))
        w->now_ms = 0;
    else
        loop_task_post_behind(w->service->calls.loop, t, on_slice);
}

/* NULL: the last one has not ended. */
static struct sweeping *begin(struct service *a)
{
    struct sweeping *w = a->sweeping ? a->sweeping : mem_zalloc(sizeof(*w));

    a->sweeping = w;
    if (w->now_ms != 0)
        return NULL;
    w->service = a;
    w->now_ms = clock_wall_ms();
    w->walked = w->stuck = false;
    return w;
}

/* What is looked at in each second, whatever the number of sessions. */
static void look_around(struct service *a)
{
    struct call_env *env = &a->calls;
    uint64_t max_tokens = (uint64_t)a->config->max_live_tokens;
    struct session_totals t;
    struct err e = {0};

    watch_clock(a, clock_wall_ms());
    if (engines_follow(a, &e))
        log_error(NULL, "the new set of engines cannot be obeyed", LOG_T("error", e.text));
    if (weights_follow(a, &e))
        log_error(NULL, "what was told of the weights cannot be obeyed", LOG_T("error", e.text));
    discovery_look(a);
    session_store_totals(env->store, &t);
    if (t.tokens > max_tokens)
        (void)session_make_room(env->store, t.tokens - max_tokens);
    residency_watch(env->residency);
}

void control_sweep(struct service *a)
{
    struct sweeping *w;

    look_around(a);
    w = begin(a);
    if (w)
        on_slice(&w->task);
}

void control_sweep_all(struct service *a)
{
    struct sweeping *w;

    look_around(a);
    w = begin(a);
    CHECK(w && sweep_on(w, UINT64_MAX));
    w->now_ms = 0;
}

void control_stop(struct service *a)
{
    groups_finish(a);
}

void control_done(struct service *a)
{
    if (a->sweeping) {
        loop_task_cancel(a->calls.loop, &a->sweeping->task);
        session_walk_done(&a->sweeping->walk);
        free(a->sweeping);
        a->sweeping = NULL;
    }
    admin_done(a);
    discovery_done(a);
    expiring_done(a);
    events_free(a);
    siblings_free(a->siblings);
}
