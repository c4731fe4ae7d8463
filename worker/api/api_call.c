/* The data plane: one HTTP request of a dialect becomes a model call, joins one, or gets a
 * recorded answer again; models and token counts are answered at once.
 *
 * The way of one request:
 *
 *   api_call_handle        by path and method: models, stored answers, a dialect, passthrough
 *     call_read            (api_call_reading.c) body -> chat_request, session found or made
 *       start_call         several prompts: batch.c; else call_begin
 *         api_call_repeats is it a retry? (api_call_repeat.c) joins the running call, replays, or
 *                          waits to know
 *         model_call_start otherwise: the arena with the request moves into the model call
 *   on_head ... on_finish  (api_call_answer.c) the model call's events, through the dialect's
 *                          writer, to the exchange
 *   on_closed              the exchange is over: the api_call is freed
 *
 * The model call lives on its own: a client that leaves only takes its listener off. */
#include <stdlib.h>

#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/api/dispatch.h"
#include "worker/api/passthrough.h"
#include "worker/dialect/writers.h"
#include "worker/request/chat_request.h"
#include "worker/service/respond.h"
#include "worker/session/session.h"

/* Lets the session go and frees what the request still owns. */
void api_call_free(struct api_call *c)
{
    api_call_awaited(c);
    if (c->held)
        session_unpin(c->service->calls.store, c->held);
    buf_done(&c->out);
    arena_done(&c->arena);
    free(c);
}

/* The client left, or the answer is out; either way this request is over. */
static void on_closed(void *ctx, bool delivered)
{
    struct api_call *c = ctx;

    (void)delivered; /* the client may have it, or not yet: on_arrived knows */
    model_call_leave(&c->listener);
    api_call_free(c);
}

/* --- from request to model call --- */

/* What the model call is told; texts are copied into the arena, because the call outlives this
 * request. */
static struct call_input input_of(struct api_call *c)
{
    struct arena *a = &c->arena;
    struct call_input in = {
        .session_id = arena_str(a, str_cstr(c->id)),
        .req = c->req,
        .body = c->body,
        .body_hash = {c->hash[0], c->hash[1]},
        .body_bytes = exchange_body(c->x).len,
        .work_hash = c->reading.body_hash,
        .scope = {arena_str(a, str_cstr(c->id)), arena_str(a, str_cstr(c->request_id))},
        .dialect = c->dialect->name,
    };

    if (c->dialect->asked)
        c->dialect->asked(a, c->req, c->body, in.asked);
    return in;
}

void api_call_start(struct api_call *c)
{
    struct call_input in = input_of(c);
    struct arena arena;

    if (api_call_repeats(c, &in))
        return;
    arena = c->arena; /* the request lies in it; the model call outlives what uses it */
    c->arena = (struct arena){.sum = arena.sum};
    model_call_start(&c->service->calls, &arena, &in, &c->listener);
}

/* Makes the dialect's writer and becomes the listener. */
static void call_begin(struct api_call *c)
{
    c->writer = c->dialect->writer(&c->arena, c->req, c->body, &c->out);
    c->listener = (struct call_listener){
        .sink = &api_call_sink,
        .ctx = c,
        .stream = c->req->stream,
    };
    exchange_watch(c->x, on_closed, c);
    api_call_start(c);
}

static void start_call(struct api_call *c)
{
    if (c->req->n_prompts > 1)
        batch_begin(c);
    else
        call_begin(c);
}

/* The client left while its tokens were being counted. */
static void on_count_left(void *ctx, bool delivered)
{
    struct api_call *c = ctx;

    (void)delivered;
    token_count_drop(c->counting);
    api_call_free(c);
}

/* The count is there, perhaps from a helper. */
static void on_counted(void *ctx, struct arena *arena, size_t n, const struct err *e)
{
    struct api_call *c = ctx;
    struct service_request r = c->request;
    const struct dialect *d = c->dialect;
    struct buf body = {0};

    (void)arena;
    exchange_watch(c->x, NULL, NULL);
    api_call_free(c);
    if (e) {
        respond_error(&r, d, e);
        return;
    }
    anthropic_write_count(n, &body);
    respond_json(&r, &body);
    buf_done(&body);
}

/* Renders and tokenizes the request as a call would, without one. */
static void count_tokens(struct api_call *c)
{
    struct call_input in = input_of(c);
    struct arena arena = c->arena; /* the request lies in it */
    struct token_count *counting;
    struct exchange *x = c->x;

    c->arena = (struct arena){.sum = arena.sum};
    exchange_watch(x, on_count_left, c);
    counting = call_count_tokens(&c->service->calls, &arena, &in, on_counted, c);
    if (counting)
        c->counting = counting;
}

/* --- the entry --- */

/* The dialect's label in metrics. */
static unsigned label_of(const struct dialect *d)
{
    static const struct {
        const char *name;
        unsigned label;
    } labels[] = {
        {"chat", METRIC_DIALECT_CHAT},
        {"responses", METRIC_DIALECT_RESPONSES},
        {"messages", METRIC_DIALECT_MESSAGES},
        {"completions", METRIC_DIALECT_COMPLETIONS},
    };

    for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
        if (strcmp(labels[i].name, d->name) == 0)
            return labels[i].label;
    }
    return METRIC_DIALECT_PASSTHROUGH;
}

/* An error with a fixed text, in the dialect's shape. */
static void refuse(struct service_request *r, const struct dialect *d, enum err_kind kind,
                   const char *text)
{
    struct err e = {0};

    (void)err_set(&e, kind, "%s", text);
    respond_error(r, d, &e);
}

/* For requests that are refused before they are read (a wrong key): the path tells the shape. */
void api_call_refuse(struct service_request *r, const struct err *e)
{
    const struct dialect *d = dialect_for_path(dialect_path(r->rest));

    r->dialect = d == &dialect_count_tokens ? METRIC_DIALECT_COUNT_TOKENS
                 : d                        ? label_of(d)
                                            : METRIC_DIALECT_PASSTHROUGH;
    respond_error(r, d, e);
}

/* A path that no dialect has goes to the engine as it is (passthrough), if that is allowed. */
void api_call_handle(struct service_request *r)
{
    struct str path = dialect_path(r->rest);
    bool get = str_eq_c(exchange_method(r->x), "GET");
    bool post = str_eq_c(exchange_method(r->x), "POST");
    struct str stored = STR("/responses/");
    const struct dialect *d = dialect_for_path(path);
    bool count = d == &dialect_count_tokens;

    if (get && (str_eq_c(path, "/models") || str_starts(path, STR("/models/")))) {
        r->dialect = METRIC_DIALECT_MODELS;
        models_get(r, str_sub(path, strlen("/models"), SIZE_MAX));
    } else if (get && str_starts(path, stored)) {
        r->dialect = METRIC_DIALECT_RESPONSES;
        stored_get(r, str_sub(path, stored.len, SIZE_MAX));
    } else if (d && post) {
        r->dialect = count ? METRIC_DIALECT_COUNT_TOKENS : label_of(d);
        call_read(r, d, count ? count_tokens : start_call);
    } else if (d && get && exchange_header(r->x, "upgrade").p) {
        refuse(r, d, ERR_UPGRADE, "this path does not speak websockets");
    } else if (d) {
        exchange_set_header(r->x, "Allow", STR("POST"));
        refuse(r, d, ERR_METHOD, "the path has no such method");
    } else {
        r->dialect = METRIC_DIALECT_PASSTHROUGH;
        passthrough_serve(r);
    }
}
