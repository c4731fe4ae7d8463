/* Runs once a second: notices steps of the wall clock, keeps memory below its limits, and visits
 * all sessions: expires those over their TTL, and drops tombstones and exports over their
 * retention. A task visits the sessions, because many take a while; the next visit begins only
 * after this one has ended. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/os/task.h"
#include "common/proc/config.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/control/control.h"
#include "worker/plane/control/discovery.h"
#include "worker/plane/control/ending.h"
#include "worker/plane/control/events.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/session_walk.h"
#include "worker/plane/control/sibling.h"
#include "worker/plane/service/service.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"

enum { STEP_MIN_MS = 500 };

enum { LOOKS = 16, ENDS = 64 }; /* sessions visited, and sessions ended, between two pauses */

/* A visit of all sessions. On the stack of its task. */
struct sweep {
    struct service *service;
    struct session_walk walk;
    uint64_t now_ms; /* begin of the visit on the wall clock */
    bool stuck;      /* an end could not be written, so no more are tried */
};

/* Detects steps of the wall clock, in which no time has passed. */
static void watch_clock(struct service *a, uint64_t now_ms)
{
    int64_t ahead_ms = (int64_t)(now_ms - clock_ms());
    int64_t step_ms = ahead_ms - a->clock_ahead_ms;

    if (a->clock_ahead_ms && (step_ms > STEP_MIN_MS || step_ms < -STEP_MIN_MS)) {
        log_warn(NULL, "the clock was set", LOG_I("by_ms", step_ms));
        session_clock_stepped(a->calls.store, step_ms);
        if (a->sweep)
            a->sweep->now_ms += (uint64_t)step_ms;
    }
    a->clock_ahead_ms = ahead_ms;
}

/* Drops a copy that will never be complete, because its last record was refused or the program
 * died. The copy was never visible. */
static void drop_copy(struct service *a, struct session *s)
{
    struct err e = {0};

    if (control_copies(a, session_id(s)))
        return;
    if (control_end(a, s, SESSION_END_DELETE, NULL, (struct ledger_done){0}, &e) != 0)
        log_warn(NULL, "cannot delete a session that was copied in part", LOG_T("error", e.text));
}

/* Handles one session. Returns whether that took longer than a look; s may be freed then. */
static bool sweep_session(struct sweep *w, struct session *s)
{
    struct service *a = w->service;
    bool unread = ledger_is_unread(a->calls.ledger, session_id(s));
    struct err e = {0};

    if (session_copying(s)) {
        if (!unread)
            drop_copy(a, s);
        return true;
    }
    if (!session_expired(s, w->now_ms))
        return session_leave_late(s, w->now_ms);
    if (w->stuck || unread) /* what is still to be read may have renewed it */
        return false;
    if (!expiring_takes(a, s) && control_expire(a, s, &e) != 0) {
        log_warn(NULL, "cannot expire a session", LOG_T("error", e.text));
        w->stuck = true;
    }
    return true;
}

MAY_PAUSE static int sweep_all(struct sweep *w)
{
    struct session_store *st = w->service->calls.store;
    struct session *s = session_walk_next(&w->walk, st), *next;

    for (unsigned n = 1; s; s = next, n++) {
        uint64_t turns = task_turns();

        next = session_next(st, s);
        if (sweep_session(w, s))
            n = 0;
        if (!next || n % LOOKS != 0)
            continue;
        session_walk_stop_before(&w->walk, next);
        if (task_pause(NULL))
            return -1;
        if (task_turns() != turns)
            next = session_walk_next(&w->walk, st);
    }
    return 0;
}

static void sweep_sessions(void *ctx)
{
    struct service *a = ctx;
    struct sweep w = {.service = a, .now_ms = clock_wall_ms()};

    a->sweep = &w;
    if (sweep_all(&w) == 0)
        while (session_sweep_ends(a->calls.store, w.now_ms, ENDS) && task_pause(NULL) == 0)
            ;
    session_walk_done(&w.walk);
    a->sweep = NULL;
}

/* Does the work of each second that does not depend on the number of sessions. */
static void check_service(struct service *a)
{
    struct call_env *env = &a->calls;
    uint64_t max_tokens = (uint64_t)a->config->max_live_tokens;
    uint64_t engines = a->engines_failed, weights = a->weights_failed; /* those were reported */
    struct session_totals t;
    struct err e = {0};

    watch_clock(a, clock_wall_ms());
    if (engines_follow(a, &e) && a->engines_failed != engines)
        log_error(NULL, "the new set of engines cannot be obeyed", LOG_T("error", e.text));
    if (weights_follow(a, &e) && a->weights_failed != weights)
        log_error(NULL, "what was told of the weights cannot be obeyed", LOG_T("error", e.text));
    discovery_look(a);
    events_sweep(a);
    session_store_totals(env->store, &t);
    if (t.tokens > max_tokens)
        (void)session_make_room(env->store, t.tokens - max_tokens);
    residency_watch(env->residency);
}

void control_sweep(struct service *a)
{
    check_service(a);
    if (!a->sweep)
        (void)task_start(a->calls.tasks, STR("sweep"), sweep_sessions, a);
}

void control_sweep_all(struct service *a)
{
    check_service(a);
    sweep_sessions(a);
}

void control_done(struct service *a)
{
    admin_done(a);
    discovery_done(a);
    events_free(a);
    siblings_free(a->siblings);
}
