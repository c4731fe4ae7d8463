/*
 * prompt_asker for engines over HTTP: opens the kind's adapter for connection, key and TLS
 * settings, and sends requests of its own over it. A question is one request whose whole answer is
 * read by prompt_scores. Only a 404 of vLLM's newer route is handled here: the older one is tried,
 * and remembered. The caller gets whether a failure may pass, and decides what to do.
 */
#include "worker/engine/scoring/prompt_asker.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/scoring/scorers.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/prompt_scores.h"
#include "worker/engine/wire/refusal.h"

enum { REFUSAL_MAX = 16 * 1024, ROUTES = 2 };

struct prompt_asker {
    struct loop *loop;
    const struct engine_adapter *adapter;
    struct remote *remote;
    enum scorer_kind kind;
    unsigned route; /* for vLLM: the route that it has */
};

struct prompt_attempt {
    struct prompt_asker *asker;
    struct prompt_question question;
    const struct prompt_events *events;
    void *ctx;
    struct http_call *http; /* NULL: the request has ended */
    struct prompt_scores scores;
    int status;
    struct buf refusal;
};

int prompt_asker_new(struct loop *loop, const struct engine_target *t,
                     const struct engine_options *o, struct prompt_asker **ret, struct err *e)
{
    struct prompt_asker *a = mem_zalloc(sizeof(*a));
    void *remote = NULL;

    a->loop = loop;
    a->adapter = engine_adapter_find(t->kind);
    a->kind = a->adapter->scores;
    if (a->adapter->open(a->adapter, loop, t, o, &remote, e)) {
        free(a);
        return -1;
    }
    a->remote = remote;
    *ret = a;
    return 0;
}

void prompt_asker_free(struct prompt_asker *a)
{
    if (!a)
        return;
    a->adapter->close(a->remote);
    free(a);
}

static void attempt_end(struct prompt_attempt *p)
{
    if (p->http)
        http_call_cancel(p->http);
    prompt_scores_done(&p->scores);
    buf_done(&p->refusal);
    free(p);
}

static void give_up(struct prompt_attempt *p, const struct err *e, bool passing)
{
    const struct prompt_events *events = p->events;
    void *ctx = p->ctx;
    struct err kept = *e;

    attempt_end(p);
    events->failed(ctx, &kept, passing);
}

static void send_question(struct prompt_attempt *p);

static void refused(struct prompt_attempt *p)
{
    struct prompt_asker *a = p->asker;
    struct arena arena = {0};
    struct err e = {0};

    if (p->status == 404 && a->kind == SCORER_VLLM && a->route + 1 < ROUTES) {
        a->route++;
        buf_clear(&p->refusal);
        send_question(p);
        return;
    }
    (void)refusal_of(p->status, refusal_text(&arena, buf_str(&p->refusal)), &e);
    arena_done(&arena);
    give_up(p, &e, p->status >= 500 || p->status == 429);
}

static void on_head(void *ctx, const struct http1_head *h)
{
    ((struct prompt_attempt *)ctx)->status = h->status;
}

static void on_body(void *ctx, struct str bytes)
{
    struct prompt_attempt *p = ctx;
    struct err e = {0};

    if (p->status != 200)
        buf_add_up_to(&p->refusal, bytes, REFUSAL_MAX);
    else if (prompt_scores_feed(&p->scores, bytes, &e))
        give_up(p, &e, false);
}

static void on_done(void *ctx)
{
    struct prompt_attempt *p = ctx;
    struct err e = {0};
    struct score_result r;

    p->http = NULL;
    if (p->status != 200) {
        refused(p);
        return;
    }
    if (prompt_scores_end(&p->scores, &e)) {
        give_up(p, &e, false);
        return;
    }
    r = (struct score_result){p->scores.logprobs.at, p->scores.top_ids.at,
                              p->scores.top_logprobs.at};
    p->events->done(p->ctx, &r);
    attempt_end(p);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    struct prompt_attempt *p = ctx;

    (void)began;
    p->http = NULL;
    give_up(p, e, true);
}

static const struct http_events http_events = {on_head, on_body, on_done, on_failed};

static void send_question(struct prompt_attempt *p)
{
    struct remote *r = p->asker->remote;
    struct wire_send s = {0};
    struct buf headers = {0};
    struct http_request h = {.method = "POST",
                             .idle_timeout_ms = r->options->idle_timeout_ms,
                             .total_timeout_ms = r->options->timeout_ms};

    prompt_scores_write(&p->scores, p->asker->route, &s);
    remote_headers(r, &headers, p->question.session_id, STR("application/json"),
                   STR("application/json"));
    h.path = str_cstr(s.path);
    h.headers = buf_str(&headers);
    h.body = &s.body;
    h.idle_timeout_ms = 0; /* no timeout between bytes, because the whole answer comes at the end */
    p->http = http_client_start(r->client, &h, &http_events, p);
    buf_done(&headers);
}

struct prompt_attempt *prompt_ask(struct prompt_asker *a, const struct prompt_question *q,
                                  const struct prompt_events *events, void *ctx)
{
    struct prompt_attempt *p = mem_zalloc(sizeof(*p));

    p->asker = a;
    p->question = *q;
    p->events = events;
    p->ctx = ctx;
    prompt_scores_init(&p->scores, a->kind, q->ids, q->top_k);
    p->scores.lora = q->lora;
    send_question(p);
    return p;
}

void prompt_ask_cancel(struct prompt_attempt *p)
{
    attempt_end(p);
}
