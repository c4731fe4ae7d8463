#include "worker/residency/await_session.h"

#include "common/base/err.h"
#include "common/os/task.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"

struct session_await {
    struct residency_waiter residency;
    struct waiter waiter;
    struct session_store *store;
    struct str id;
    struct session *session; /* pinned: it stays until the task runs */
    struct err err;
};

static void pin_session(struct session_await *w)
{
    bool ended;

    w->session = session_find_any(w->store, w->id, &ended);
    if (w->session)
        session_pin(w->session);
}

static void on_back(void *ctx, const struct err *e)
{
    struct session_await *w = ctx;

    if (e)
        w->err = *e;
    else
        pin_session(w);
    waiter_wake(&w->waiter);
}

int await_session(struct residency *r, struct str id, bool ended, struct session **ret,
                  struct err *e)
{
    struct session_await w = {.residency.fn = on_back, .store = r->store, .id = id};

    w.residency.ctx = &w;
    *ret = NULL;
    if (residency_ready(r, id, ended)) {
        pin_session(&w);
        *ret = w.session;
        return 0;
    }
    residency_add_waiter(r, id, &w.residency);
    if (task_wait(&w.waiter, e)) {
        residency_leave(&w.residency);
        return -1;
    }
    if (w.err.kind != ERR_NONE) {
        *e = w.err;
        return -1;
    }
    *ret = w.session;
    return 0;
}
