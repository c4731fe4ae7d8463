/* Once a second: sessions whose time is over are expired (at most EXPIRE_MAX in one sweep),
 * steps of the wall clock are noticed, tombstones and exports past their time are dropped, and
 * memory is kept below its limits. */

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/config.h"
#include "worker/call/call_env.h"
#include "worker/control/control.h"
#include "worker/control/discovery.h"
#include "worker/control/ending.h"
#include "worker/control/events.h"
#include "worker/control/handlers.h"
#include "worker/control/sibling.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/residency.h"
#include "worker/service/service.h"
#include "worker/session/session.h"
#include "worker/session/session_totals.h"

enum { STEP_MIN_MS = 500, EXPIRE_MAX = 1000 /* in one sweep */ };

/* Steps of the wall clock (somebody sets it) are no time that has passed. */
static void watch_clock(struct service *a, uint64_t now_ms)
{
    int64_t ahead_ms = (int64_t)(now_ms - clock_ms());
    int64_t step_ms = ahead_ms - a->clock_ahead_ms;

    if (a->clock_ahead_ms && (step_ms > STEP_MIN_MS || step_ms < -STEP_MIN_MS)) {
        log_warn(NULL, "the clock was set", LOG_I("by_ms", step_ms));
        session_clock_stepped(a->calls.store, step_ms);
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

/* See the head of this file; called by the worker's timer and once before it serves. */
void control_sweep(struct service *a)
{
    struct call_env *env = &a->calls;
    uint64_t now = clock_wall_ms();
    uint64_t max_tokens = (uint64_t)a->config->max_live_tokens;
    struct session_totals t;
    struct session *next;
    struct err e = {0};
    int n = 0;

    watch_clock(a, now);
    if (engines_follow(a, &e))
        log_error(NULL, "the new set of engines cannot be obeyed", LOG_T("error", e.text));
    if (weights_follow(a, &e))
        log_error(NULL, "what was told of the weights cannot be obeyed", LOG_T("error", e.text));
    discovery_look(a);
    for (struct session *s = session_next(env->store, NULL); s && n < EXPIRE_MAX; s = next) {
        next = session_next(env->store, s);
        if (session_copying(s)) {
            drop_copy(a, s);
            continue;
        }
        if (!session_expired(s, now))
            continue;
        n++;
        if (!expiring_takes(a, s) && control_expire(a, s, &e) != 0) {
            log_warn(NULL, "cannot expire a session", LOG_T("error", e.text));
            break;
        }
    }
    session_sweep(env->store, now);
    session_store_totals(env->store, &t);
    if (t.tokens > max_tokens)
        (void)session_make_room(env->store, t.tokens - max_tokens);
    residency_watch(env->residency);
}

void control_stop(struct service *a)
{
    groups_finish(a);
}

void control_done(struct service *a)
{
    admin_done(a);
    discovery_done(a);
    expiring_done(a);
    events_free(a);
    siblings_free(a->siblings);
}
