/*
 * Expires sessions over their TTL on a worker with scorers. Sessions that want scores first get
 * them, a few sessions at a time. If a scorer fails, or a journal cannot be read in three tries,
 * the session expires without scores, and its exports say so. A session that is used meanwhile
 * continues.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "worker/engine/scoring/scorers.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/control/ending.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/service.h"
#include "worker/residency/await_session.h"
#include "worker/session/store/session.h"

/* READ_TRIES, READ_AGAIN_MS: reading back is tried again, because it may have failed for lack of
 * descriptors or of a helper. */
enum { EXPIRING_MAX = 16, READ_TRIES = 3, READ_AGAIN_MS = 1000 };

struct expiring {
    struct list_item item; /* in service->expiring */
    struct service *service;
    char id[ID_TEXT_MAX];
};

int control_expire(struct service *a, struct session *s, struct err *e)
{
    if (control_close(a, s, SESSION_END_EXPIRE, NULL, (struct ledger_done){0}, e) != 0)
        return -1;
    metrics_count(a->calls.page, METRIC_sessions_expired, 1);
    return 0;
}

struct delay {
    struct loop_timer timer;
    struct waiter over;
};

static void on_delay_over(struct loop_timer *t)
{
    waiter_wake(&CONTAINER_OF(t, struct delay, timer)->over);
}

MAY_PAUSE int control_wait_ms(struct loop *l, uint64_t ms, struct err *e)
{
    struct delay d = {0};
    int rc;

    loop_timer_set(l, &d.timer, ms, on_delay_over);
    rc = task_wait(&d.over, e);
    loop_timer_stop(l, &d.timer);
    return rc;
}

/* Reads the session back. Returns 0 with *ret pinned, or with NULL if the session is gone. Returns
 * -1 if the session has no content (*ret is set if it has an entry), or with ERR_CANCELLED. */
MAY_PAUSE static int read_back(struct expiring *x, struct session **ret, struct err *e)
{
    struct call_env *env = &x->service->calls;
    struct str id = str_cstr(x->id);
    bool ended;

    for (int tries = 1; await_session(x->service->calls.residency, id, false, ret, e); tries++) {
        if (e->kind == ERR_CANCELLED)
            return -1;
        if (tries == READ_TRIES) {
            *ret = session_find(env->store, id, &ended);
            if (*ret)
                session_pin(*ret);
            return *ret ? -1 : 0;
        }
        if (control_wait_ms(env->loop, READ_AGAIN_MS, e))
            return -1;
    }
    return 0;
}

/* The next sweep handles what is left undone here. */
static void end_session(struct expiring *x, struct session *s)
{
    struct err e = {0};

    if (session_expired(s, clock_wall_ms()) && control_expire(x->service, s, &e) != 0)
        log_warn(NULL, "cannot expire a session", LOG_T("error", e.text));
}

static void expire_session(void *ctx)
{
    struct expiring *x = ctx;
    struct session *s = NULL;
    struct err e = {0};
    int rc = read_back(x, &s, &e);

    if (rc == 0 && s)
        rc = control_score(x->service, s, NULL, &e);
    if (rc && e.kind != ERR_CANCELLED)
        log_warn(NULL, "a session expires without its scores", LOG_T("session", x->id),
                 LOG_T("error", e.text));
    if (s && (rc == 0 || e.kind != ERR_CANCELLED))
        end_session(x, s);
    if (s)
        session_unpin(x->service->calls.store, s);
    list_remove(&x->item);
    free(x);
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
    list_append(&a->expiring, &x->item);
    (void)task_start(a->calls.tasks, id, expire_session, x);
    return true;
}
