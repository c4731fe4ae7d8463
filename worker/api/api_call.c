/* The data plane: one HTTP request of a dialect becomes a model call, joins one, or gets a
 * recorded answer again; models and token counts are answered at once.
 *
 * The way of one request:
 *
 *   api_call_handle        by path and method: models, stored answers, a dialect, passthrough
 *     call_read            (api_call_reading.c) body -> chat_request, session found or made
 *       start_call         several prompts: batch.c; else call_begin
 *         call_repeated    is it a retry? joins the running call, replays, or waits to know
 *         model_call_start otherwise: the arena with the request moves into the model call
 *   on_head ... on_finish  the model call's events, through the dialect's writer, to the exchange
 *   on_closed              the exchange is over: the api_call is freed
 *
 * The model call lives on its own: a client that leaves only takes its listener off. on_finish
 * comes after the commit is durable, so what it sends is never lost. Where a request is a retry,
 * the rule is that a client gets the answer it missed and nobody gets an answer twice: struct
 * delivery (ledger/delivery.h) knows which answers are not confirmed yet. */
#include <stdlib.h>

#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/api/dispatch.h"
#include "worker/api/passthrough.h"
#include "worker/call/replay.h"
#include "worker/dialect/writers.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/ledger.h"
#include "worker/request/answer_sink.h"
#include "worker/request/chat_request.h"
#include "worker/service/respond.h"
#include "worker/session/session.h"
#include "worker/session/session_call.h"

/* --- one HTTP answer of a model call --- */

/* A request that waits is silent: no longer than a model call may be. */
bool api_call_await(struct api_call *c, exchange_again_fn again, void *ctx)
{
    struct exchange_wait w = {.key_start = str_of((const char *)c->hash, sizeof(c->hash)),
                              .max_ms = (uint64_t)c->service->config->keepalive_ms,
                              .again = again,
                              .ctx = ctx};
    bool ended = false;

    if (!exchange_await(c->x, &w))
        return false;
    c->awaiting = session_find(c->service->calls.store, str_cstr(c->id), &ended);
    if (c->awaiting)
        session_pin(c->awaiting);
    return true;
}

void api_call_awaited(struct api_call *c)
{
    if (c->awaiting)
        session_unpin(c->service->calls.store, c->awaiting);
    c->awaiting = NULL;
}

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

/* What on_arrived is told: the hash, the call's number in its session, the session's id. */
static struct str write_note(const struct api_call *c, uint64_t number,
                             char note[EXCHANGE_NOTE_MAX])
{
    size_t len = strlen(c->id);

    memcpy(note, c->hash, sizeof(c->hash));
    memcpy(note + sizeof(c->hash), &number, sizeof(number));
    memcpy(note + sizeof(c->hash) + sizeof(number), c->id, len);
    return str_of(note, sizeof(c->hash) + sizeof(number) + len);
}

/* The client has all of the answer: a repeated request is a new call from now on. */
static void on_arrived(void *ctx, struct str note)
{
    struct service *a = ctx;
    uint64_t hash[2], number;

    memcpy(hash, note.p, sizeof(hash));
    memcpy(&number, note.p + sizeof(hash), sizeof(number));
    deliveries_close(a->calls.ledger->deliveries,
                     str_sub(note, sizeof(hash) + sizeof(number), SIZE_MAX), hash, number);
}

/* The client left, or the answer is out; either way this request is over. */
static void on_closed(void *ctx, bool delivered)
{
    struct api_call *c = ctx;

    (void)delivered; /* the client may have it, or not yet: on_arrived knows */
    model_call_leave(&c->listener);
    api_call_free(c);
}

void api_call_flush(struct api_call *c)
{
    if (c->out.len > 0 && exchange_started(c->x))
        exchange_send(c->x, &c->out);
}

static void sse_start(struct api_call *c)
{
    exchange_set_header(c->x, "Cache-Control", STR("no-cache"));
    exchange_set_header(c->x, "X-Accel-Buffering", STR("no"));
    exchange_start(c->x, "text/event-stream; charset=utf-8");
}

/* The first event. A stream's HTTP head goes out now, so the client sees that the call is
 * accepted. */
static void on_head(void *ctx, const struct answer_head *h)
{
    struct api_call *c = ctx;

    c->number = h->call;
    if (c->req->stream && !exchange_started(c->x))
        sse_start(c);
    c->writer->sink->head(c->writer, h);
    api_call_flush(c);
}

static void on_text(void *ctx, uint32_t index, struct str delta)
{
    struct api_call *c = ctx;

    c->writer->sink->text(c->writer, index, delta);
    api_call_flush(c);
}

static void on_reasoning(void *ctx, uint32_t index, struct str delta)
{
    struct api_call *c = ctx;

    c->writer->sink->reasoning(c->writer, index, delta);
    api_call_flush(c);
}

static void on_tool_begin(void *ctx, uint32_t index, uint32_t tool, struct str id, struct str name)
{
    struct api_call *c = ctx;

    c->writer->sink->tool_begin(c->writer, index, tool, id, name);
    api_call_flush(c);
}

static void on_tool_args(void *ctx, uint32_t index, uint32_t tool, struct str delta)
{
    struct api_call *c = ctx;

    c->writer->sink->tool_args(c->writer, index, tool, delta);
    api_call_flush(c);
}

static void on_tool_end(void *ctx, uint32_t index, uint32_t tool)
{
    struct api_call *c = ctx;

    c->writer->sink->tool_end(c->writer, index, tool);
    api_call_flush(c);
}

static void on_logprobs(void *ctx, uint32_t index, const struct token_logprob *lp, size_t n)
{
    struct api_call *c = ctx;

    c->writer->sink->logprobs(c->writer, index, lp, n);
    api_call_flush(c);
}

/* A waiting answer that is no stream commits to 200 and sends spaces before its JSON. */
static void on_keepalive(void *ctx)
{
    struct api_call *c = ctx;
    struct buf space = {0};

    if (c->req->stream) {
        c->writer->sink->keepalive(c->writer);
        api_call_flush(c);
        return;
    }
    if (!exchange_started(c->x))
        exchange_start(c->x, "application/json");
    buf_add_c(&space, ' ');
    exchange_send(c->x, &space);
    buf_done(&space);
}

/* The answer is committed and durable. The note for on_arrived is set before the last bytes go
 * out. */
static void on_finish(void *ctx, const struct finished_answer *answers, size_t n,
                      const struct call_usage *usage)
{
    struct api_call *c = ctx;
    char note[EXCHANGE_NOTE_MAX];
    struct buf answer;

    if (!c->noted)
        exchange_note(c->x, &(struct exchange_note){.key = write_note(c, c->number, note),
                                                    .arrived = on_arrived,
                                                    .ctx = c->service});
    c->writer->sink->finish(c->writer, answers, n, usage);
    respond_count(c->service, c->dialect_label, 200);
    api_call_flush(c);
    answer = c->out;
    c->out = (struct buf){0};
    arena_done(&c->arena); /* who reads slowly, or never, holds the answer's bytes only */
    if (exchange_started(c->x)) {
        buf_done(&answer);
        exchange_end(c->x);
    } else {
        exchange_reply_buf(c->x, 200, "application/json", &answer);
        buf_done(&answer);
    }
}

/* Before the HTTP head an error is a status; afterwards it is an event of the stream, or, where
 * spaces were sent already, the error's JSON as the body. */
static void on_failed(void *ctx, const struct err *e)
{
    struct api_call *c = ctx;
    struct err shown = *e;
    struct log_scope scope = {str_cstr(c->id), str_cstr(c->request_id)};

    if (e->kind == ERR_INTERNAL)
        log_error(&scope, "call failed", LOG_T("error", e->text));
    if (!exchange_started(c->x)) {
        respond_error_to(c->service, c->x, c->dialect, c->dialect_label, c->request_id, &shown);
        return;
    }
    respond_count(c->service, c->dialect_label, err_status(e));
    if (c->req->stream)
        c->writer->sink->failed(c->writer, &shown);
    else
        c->dialect->error(&shown, str_cstr(c->request_id), &c->out);
    api_call_flush(c);
    exchange_end(c->x);
}

const struct answer_sink api_call_sink = ANSWER_SINK_ON;

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
static enum missing find_missing(const struct api_call *c, const struct session *s,
                                 uint64_t *ret_call)
{
    struct str key = c->req->idempotency_key, had;
    enum missing found = MISSING_NONE;
    const struct delivery *at = NULL;
    char note[EXCHANGE_NOTE_MAX];

    while (deliveries_missing(c->service->calls.ledger->deliveries, str_cstr(c->id), c->hash, &at,
                              ret_call)) {
        had = session_call_key(s, *ret_call);
        if (key.p && had.p && !str_eq(key, had))
            continue;
        if (!exchange_under_way(c->x, write_note(c, *ret_call, note)))
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
    found = find_missing(c, s, &missing);
    if (found == MISSING_SURELY)
        *ret_call = missing;
    return any ? MISSING_SURELY : found;
}

/* The running call that the request repeats: one that nobody waits for any more; with a mark any,
 * unless there is an answer that did not arrive. */
static struct model_call *find_running(const struct api_call *c, const struct session *s,
                                       const struct call_input *in)
{
    struct model_call *t = model_call_find(&c->service->calls, in, listener_gone);
    uint64_t call;

    if (t || !api_call_marked(c) || find_missing(c, s, &call) == MISSING_SURELY)
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
static bool call_repeated(struct api_call *c, const struct call_input *in)
{
    struct call_env *env = &c->service->calls;
    bool ended = false;
    struct session *s = session_find(env->store, in->session_id, &ended);
    enum missing found;
    struct model_call *t;
    uint64_t call;

    if (!s || c->anew)
        return false;
    exchange_settle(c->x, str_of((const char *)c->hash, sizeof(c->hash)));
    t = find_running(c, s, in);
    if (t) {
        model_call_join(t, &c->listener);
        return true;
    }
    found = find_answered(c, s, &call);
    if (found == MISSING_MAYBE && api_call_await(c, on_known, c))
        return true;
    if (found == MISSING_SURELY) {
        exchange_set_header(c->x, "Rollgate-Replayed", STR("1"));
        metrics_count(env->page, METRIC_replays, 1);
        return replay_send(env, s, &c->arena, call, &c->listener);
    }
    /* A sample more of what was answered: after a crash it must be known that that one arrived. */
    if (session_find_call(s, c->hash, (struct str){0}, &call))
        ledger_note_deliveries(env->ledger);
    return false;
}

void api_call_start(struct api_call *c)
{
    struct call_input in = input_of(c);
    struct arena arena;

    if (call_repeated(c, &in))
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
