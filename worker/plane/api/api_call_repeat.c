/* Decides whether a request is a retry. The rule: a client gets the answer that it missed, and no
 * client gets an answer twice. struct delivery (ledger/delivery.h) knows which answers are not
 * confirmed yet. */

#include "common/os/task.h"
#include "common/proc/config.h"
#include "common/serve/exchange.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/service/awaits.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_past.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/chat_request.h"

/* Waits at most as long as a model call may, because the waiting request is silent. */
int api_call_await(struct api_call *c)
{
    struct waiter *known = ARENA_NEW(&c->arena, struct waiter);

    if (!exchange_await(c->x, str_of((const char *)c->hash, sizeof(c->hash)),
                        (uint64_t)c->service->config->keepalive_ms, known))
        return 0;
    return task_wait(known, NULL) || c->front->left ? -1 : 1;
}

static bool listener_gone(struct call_listener *l)
{
    const struct api_call *c = l->ctx;

    return exchange_peer_gone(c->x);
}

bool api_call_marked(const struct api_call *c)
{
    return c->req->idempotency_key.p || c->req->retry_count > 0;
}

enum missing { MISSING_NONE, MISSING_MAYBE, MISSING_SURELY };

/* Finds a committed call that did not arrive and is identified only by the request. Returns the
 * first whose answer is certainly lost; MAYBE: there are only pending answers, which a dying router
 * may still lose. */
static enum missing find_missing(const struct api_call *c, uint64_t *ret_call)
{
    enum missing found = MISSING_NONE;
    const struct delivery *at = NULL;
    char note[EXCHANGE_NOTE_MAX];

    while ((at = deliveries_missing(c->service->calls.ledger->deliveries, str_cstr(c->id), c->hash,
                                    c->req->idempotency_key, at))) {
        *ret_call = delivery_call(at);
        if (!exchange_under_way(c->x, api_call_note(c, *ret_call, note)))
            return MISSING_SURELY;
        found = MISSING_MAYBE;
    }
    return found;
}

/* Finds the committed call whose recorded answer the request means, if any: the one with its key,
 * one that did not arrive, or with a mark the newest. MAYBE: unknown until a pending answer has
 * arrived or is lost. */
static enum missing find_answered(const struct api_call *c, const struct session *s,
                                  uint64_t *ret_call)
{
    struct str key = c->req->idempotency_key, had = {0};
    bool marked = api_call_marked(c);
    bool any = marked && session_find_call(s, c->hash, key, ret_call);
    enum missing found;
    uint64_t missing;

    if (any && key.p)
        had = session_call_key(s, *ret_call);
    if (had.p)
        return MISSING_SURELY;
    found = find_missing(c, &missing);
    if (found == MISSING_SURELY)
        *ret_call = missing;
    return any ? MISSING_SURELY : found;
}

/* Finds the running call that the request repeats: one without a waiting client. With a mark any,
 * unless some answer did not arrive. */
static struct model_call *find_running(const struct api_call *c, const struct call_input *in)
{
    struct model_call *t = model_call_find(&c->service->calls, in, listener_gone);
    uint64_t call;

    if (t || !api_call_marked(c) || find_missing(c, &call) == MISSING_SURELY)
        return t;
    return model_call_find(&c->service->calls, in, NULL);
}

/* Joins the running call that the request repeats. Returns false if there is none. */
MAY_PAUSE static bool join_running(struct api_call *c, const struct call_input *in)
{
    struct model_call *t = find_running(c, in);
    struct err e;

    if (!t)
        return false;
    api_call_heed(c);
    if (model_call_join(t, &c->listener, &e) != 0)
        c->listener.sink->failed(c->listener.ctx, &e);
    return true;
}

/* In a fleet the first try may have ended before the store had the answer. -1: the client has left,
 * or the request is refused. */
MAY_PAUSE static int await_recorded(struct api_call *c, struct session *s)
{
    struct call_env *env = &c->service->calls;
    struct durable_wait durable = {0};
    struct err e = {0};
    bool ended = false;
    int rc;

    if (!env->ledger->copy)
        return 0;
    ledger_wait_durable(env->ledger, session_id(s), durable_wait_done(&durable));
    rc = await_durable(c->service, &durable, &e);
    if (c->front->left || e.kind == ERR_CANCELLED)
        return -1;
    if (rc == 0 && session_find(env->store, str_cstr(c->id), &ended) != s)
        rc = err_set(&e, ERR_SESSION_ENDED, "the session has ended");
    if (rc)
        c->listener.sink->failed(c->listener.ctx, &e);
    return rc;
}

/* Records that no running call is repeated. */
static void record_new(const struct api_call *c, struct session *s)
{
    struct call_env *env = &c->service->calls;
    uint64_t call;

    /* An additional sample of an answered request: after a crash the journal must show that the
     * answer arrived. */
    if (session_find_call(s, c->hash, (struct str){0}, &call))
        ledger_write_deliveries(env->ledger);
    if (session_reserves_chains(s))
        model_call_drop_gone(env, str_cstr(c->id), listener_gone);
}

/* If the answer to a repeated request did not arrive, the request joins the running call, replays,
 * or waits until that is known. The request may come before the loop has noticed the end of the old
 * connection, so the kernel is asked. */
bool api_call_repeats(struct api_call *c, const struct call_input *in)
{
    int waited = 1;

    while (waited == 1) {
        bool ended = false;
        struct session *s = session_find(c->service->calls.store, in->session_id, &ended);
        enum missing found;
        uint64_t call;

        if (!s || c->anew)
            return false;
        exchange_check_delivery(c->x, str_of((const char *)c->hash, sizeof(c->hash)));
        if (join_running(c, in))
            return true;
        found = find_answered(c, s, &call);
        waited = found == MISSING_MAYBE ? api_call_await(c) : 0;
        if (found == MISSING_SURELY) {
            api_call_heed(c);
            return await_recorded(c, s) || api_call_replay(c, s, call);
        }
        if (waited == 0)
            record_new(c, s);
    }
    return waited < 0;
}
