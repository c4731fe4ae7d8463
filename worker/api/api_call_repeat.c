/* Whether a request is a retry. The rule is that a client gets the answer it missed and nobody gets
 * an answer twice: struct delivery (ledger/delivery.h) knows which answers are not confirmed yet.
 */

#include "common/proc/config.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/ledger.h"
#include "worker/request/answer_sink.h"
#include "worker/request/chat_request.h"
#include "worker/session/session.h"
#include "worker/session/session_call.h"
#include "worker/session/session_past.h"

/* A request that waits is silent: no longer than a model call may be. */
bool api_call_await(struct api_call *c, exchange_again_fn again, void *ctx)
{
    struct exchange_wait w = {.key_start = str_of((const char *)c->hash, sizeof(c->hash)),
                              .max_ms = (uint64_t)c->service->config->keepalive_ms,
                              .again = again,
                              .ctx = ctx};

    if (!exchange_await(c->x, &w))
        return false;
    api_call_hold_session(c);
    return true;
}

void api_call_hold_session(struct api_call *c)
{
    bool ended = false;

    c->awaiting = session_find(c->service->calls.store, str_cstr(c->id), &ended);
    if (c->awaiting)
        session_pin(c->awaiting);
}

void api_call_awaited(struct api_call *c)
{
    if (c->awaiting)
        session_unpin(c->service->calls.store, c->awaiting);
    c->awaiting = NULL;
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

/* A committed call that did not arrive and has no other key than the request. The first whose
 * answer is lost for sure; maybe: there are only answers under way, which a dying router may yet
 * lose. */
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

/* The committed call whose recorded answer the request means, if any: the one with its key, one
 * that did not arrive, or with a mark the newest. Maybe: not to be known before an answer under way
 * has arrived or is lost. */
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

/* The running call that the request repeats: one that nobody waits for any more; with a mark any,
 * unless there is an answer that did not arrive. */
static struct model_call *find_running(const struct api_call *c, const struct call_input *in)
{
    struct model_call *t = model_call_find(&c->service->calls, in, listener_gone);
    uint64_t call;

    if (t || !api_call_marked(c) || find_missing(c, &call) == MISSING_SURELY)
        return t;
    return model_call_find(&c->service->calls, in, NULL);
}

static void on_known(void *ctx)
{
    api_call_awaited(ctx);
    api_call_start(ctx);
}

/* A repeated request whose answer did not arrive: joins the running call, replays, or waits until
 * it is known. The request may be here before the loop has seen what became of the old connection:
 * the kernel is asked. */
bool api_call_repeats(struct api_call *c, const struct call_input *in)
{
    struct call_env *env = &c->service->calls;
    bool ended = false;
    struct session *s = session_find(env->store, in->session_id, &ended);
    enum missing found;
    struct model_call *t;
    uint64_t call;
    struct err e;

    if (!s || c->anew)
        return false;
    exchange_settle(c->x, str_of((const char *)c->hash, sizeof(c->hash)));
    t = find_running(c, in);
    if (t) {
        api_call_heed(c);
        if (model_call_join(t, &c->listener, &e) != 0)
            c->listener.sink->failed(c->listener.ctx, &e);
        return true;
    }
    found = find_answered(c, s, &call);
    if (found == MISSING_MAYBE && api_call_await(c, on_known, c))
        return true;
    if (found == MISSING_SURELY) {
        api_call_heed(c);
        return api_call_replay(c, s, call);
    }
    /* A sample more of what was answered: after a crash it must be known that that one arrived. */
    if (session_find_call(s, c->hash, (struct str){0}, &call))
        ledger_note_deliveries(env->ledger);
    if (session_reserves_chains(s))
        model_call_drop_gone(env, in->session_id, listener_gone);
    return false;
}
