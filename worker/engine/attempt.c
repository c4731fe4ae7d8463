#include "worker/engine/attempt.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/net/sse.h"
#include "worker/engine/refusal.h"

enum {
    ERROR_BODY_MAX = 16 * 1024,
    EXPERTS_MAX = 1 << 30,
    EVENT_MAX = 256 << 20,
    TEXT_EVENT_MAX = 4 << 20, /* of kinds of text alone, which are held whole */
    BODY_BASE = 16 << 20,     /* bytes an answer may have without any token, */
    BODY_PER_TOKEN = 4096,    /* and for each token asked for */
    WORD_MAX = 64,            /* of an event that is no JSON */
    LATE_END_MS = 1000,       /* after the last event the connection should end soon */
};

enum body_kind { BODY_ERROR, BODY_JSON, BODY_EVENTS };

struct attempt {
    struct remote *remote;
    const struct engine_request *req;
    const struct engine_attempt_events *events;
    void *ctx;
    struct http_call *http; /* NULL: over */
    struct reply reply;
    struct fields fields;
    struct sse sse;
    struct loop_timer late;
    int status;
    enum body_kind kind;
    struct buf word; /* an error's body, or an event that is no JSON */
    bool in_json;    /* inside an event that is JSON */
    bool json_complete;
    bool ended;                /* the last event was there */
    bool all_sent;             /* [DONE] was there */
    struct upstream_text text; /* kinds of text alone */
    uint64_t body_bytes;
    uint64_t asked_us, first_us;
};

static void attempt_free(struct attempt *a)
{
    loop_timer_stop(a->remote->loop, &a->late);
    reply_done(&a->reply);
    fields_done(&a->fields);
    buf_done(&a->word);
    upstream_text_done(&a->text);
    free(a);
}

static void fail(struct attempt *a, const struct err *e, enum engine_failure how)
{
    const struct engine_attempt_events *events = a->events;
    void *ctx = a->ctx;

    attempt_free(a);
    events->failed(ctx, e, how);
}

/* We do not want the rest: closes the connection and tells the engine. */
static void drop(struct attempt *a, const struct err *e)
{
    if (a->http) {
        http_call_cancel(a->http);
        remote_abort(a->remote, a->req);
    }
    fail(a, e, ENGINE_BROKE);
}

/* --- the engine's own errors --- */

/* Its own words about a failure of its own are for the log only: they may hold exceptions. */
static void log_words(const struct attempt *a, int64_t status, struct str text)
{
    log_warn(NULL, "an engine reports a failure", LOG_T("engine", a->remote->target->name),
             LOG_I("status", status), LOG_S("text", str_sub(text, 0, 300)));
}

static enum engine_failure judge(const struct attempt *a, int64_t status, struct str text,
                                 struct err *e)
{
    enum engine_failure how = refusal_of(status, text, e);

    if (e->kind == ERR_ENGINE_INVALID || e->kind == ERR_ENGINE_UNAVAILABLE)
        log_words(a, status, text);
    return how;
}

/* The engine answered with another status than 200. */
static void refused(struct attempt *a)
{
    struct remote *r = a->remote;
    struct arena arena = {0};
    struct err e = {0};
    struct str text = refusal_text(&arena, buf_str(&a->word));
    enum engine_failure how = judge(a, a->status, text, &e);

    if ((a->status == 404 || a->status == 405) && !r->route_sure &&
        r->route + 1 < r->wire->routes) {
        r->route++;
        log_info(NULL, "engine lacks a route, trying the next", LOG_T("engine", r->target->name),
                 LOG_U("route", r->route));
        how = ENGINE_ASK_ANEW;
    }
    arena_done(&arena);
    fail(a, &e, how);
}

/* The answer itself reports an error. */
static void reported(struct attempt *a)
{
    struct err e = {0};
    int64_t status = a->reply.status >= 400 && a->reply.status < 600 ? a->reply.status : 500;
    enum engine_failure how = judge(a, status, buf_str(&a->reply.message), &e);

    if (a->http)
        http_call_cancel(a->http);
    fail(a, &e, how == ENGINE_ASK_ANEW ? how : ENGINE_BROKE);
}

/* --- fields of the answer --- */

static void on_scalar(void *ctx, int id, const struct json_scan *s, struct str key)
{
    struct attempt *a = ctx;
    struct reply *y = &a->reply;

    switch (id) {
    case FIELD_ID_PROMPT_TOKENS:
        /* Beside ids that were echoed, the usage says nothing new. */
        if (y->event.prompt_tokens < 0)
            y->event.prompt_tokens = reply_int(s);
        break;
    case FIELD_ID_COMPLETION_TOKENS:
        y->event.completion_tokens = reply_int(s);
        break;
    case FIELD_ID_ERROR:
        if (s->token != JSON_TOKEN_STRING)
            break;
        __attribute__((fallthrough));
    case FIELD_ID_ERROR_MESSAGE:
        y->failed = true;
        reply_text(&y->message, s);
        break;
    case FIELD_ID_ERROR_CODE:
        y->failed = true;
        y->status = reply_int(s);
        break;
    default:
        a->remote->wire->scalar(y, id, s, key);
    }
}

static void on_target(void *ctx, int id, struct field_target *t)
{
    struct attempt *a = ctx;
    struct reply *y = &a->reply;

    switch (id) {
    case FIELD_ID_IDS:
        vec_clear(&y->event.ids);
        *t = (struct field_target){.ints = &y->event.ids, .from = reply_from(y)};
        break;
    case FIELD_ID_TRIPLES:
        vec_clear(&y->event.logprobs);
        vec_clear(&y->event.logprob_ids);
        *t = (struct field_target){
            .ints = &y->event.logprob_ids, .floats = &y->event.logprobs, .from = reply_from(y)};
        break;
    case FIELD_ID_TOPS:
        *t = (struct field_target){.ints = &y->event.top_ids, .floats = &y->event.top_logprobs};
        break;
    case FIELD_ID_PROMPT_ECHO:
        *t = (struct field_target){.ints = &y->event.ids, .from = SIZE_MAX};
        break;
    default:
        buf_clear(&y->experts);
        *t = (struct field_target){.bytes = &y->experts, .max_bytes = EXPERTS_MAX};
    }
}

/* One position's alternatives: exactly as many as were asked for. */
static void pad_tops(struct reply *y)
{
    struct reply_event *v = &y->event;
    size_t want = ++v->top_positions * y->n_top;

    while (v->top_ids.n < want) {
        *vec_push(&v->top_ids) = -1;
        *vec_push(&v->top_logprobs) = __builtin_nanf("");
    }
    v->top_ids.n = v->top_logprobs.n = want;
}

static void on_bulk(void *ctx, int id, size_t items, bool null)
{
    struct attempt *a = ctx;
    struct reply *y = &a->reply;

    switch (id) {
    case FIELD_ID_IDS:
        y->event.has_ids = !null;
        y->event.ids_seen = items;
        break;
    case FIELD_ID_TRIPLES:
        y->event.has_logprobs = y->event.has_logprob_ids = !null;
        y->event.logprobs_seen = items;
        break;
    case FIELD_ID_TOPS:
        pad_tops(y);
        break;
    case FIELD_ID_PROMPT_ECHO:
        if (!null)
            y->event.prompt_tokens = (int64_t)items;
        break;
    default:
        y->has_experts = !null;
    }
}

static const struct field_sink sink = {on_scalar, on_target, on_bulk};

/* --- documents --- */

static void give_delta(struct attempt *a, size_t n)
{
    const struct reply *y = &a->reply;
    size_t from = y->ids.n - n;
    struct engine_delta d = {
        .ids = {y->ids.at + from, n},
        .logprobs = y->logprobs.at + from,
        .top = y->n_top ? y->tops.at + from * y->n_top : NULL,
        .n_top = y->n_top,
    };

    if (a->first_us == 0)
        a->first_us = engine_now_us();
    a->events->delta(a->ctx, &d);
}

static int check_prompt(const struct attempt *a, struct err *e)
{
    int64_t said = a->reply.event.prompt_tokens;

    if (said < 0 || a->reply.finish == REPLY_ABORT || a->remote->wire->text ||
        said == (int64_t)a->req->prompt.n)
        return 0;
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is invalid: it is for a prompt of %lld tokens, not %zu",
                   (long long)said, a->req->prompt.n);
}

/* A document is complete. False when the attempt is over. */
static bool take_document(struct attempt *a)
{
    struct reply *y = &a->reply;
    size_t n = 0;
    struct err e = {0};

    a->remote->route_sure = true;
    if (a->remote->wire->end_event)
        a->remote->wire->end_event(y);
    if (y->failed) {
        reported(a);
        return false;
    }
    if (check_prompt(a, &e) < 0 || reply_merge(y, a->kind == BODY_EVENTS, &n, &e) < 0) {
        drop(a, &e);
        return false;
    }
    if (n > 0)
        give_delta(a, n);
    a->ended = a->ended || y->finish != REPLY_RUNNING;
    return true;
}

/* The same for kinds of text alone. */
static bool take_text(struct attempt *a, struct str text)
{
    struct reply *y = &a->reply;
    struct err e = {0};

    buf_clear(&y->text);
    if (a->remote->wire->text(y, &a->text, text, a->kind == BODY_EVENTS, &e) < 0) {
        drop(a, &e);
        return false;
    }
    if (y->failed) {
        reported(a);
        return false;
    }
    if (y->text.len > 0) {
        struct engine_delta d = {.text = buf_str(&y->text)};

        a->events->delta(a->ctx, &d);
    }
    a->ended = a->ended || y->finish != REPLY_RUNNING;
    return true;
}

static bool bad_document(struct attempt *a, const struct err *why)
{
    struct err e = {0};

    (void)err_set(&e, ERR_ENGINE_INVALID, "the engine's answer is invalid: %s", why->text);
    drop(a, &e);
    return false;
}

/* Bytes of a document. False when the attempt is over. */
static bool take_json(struct attempt *a, struct str bytes)
{
    struct err e = {0};
    int rc = fields_feed(&a->fields, bytes, &e);

    if (rc < 0)
        return bad_document(a, &e);
    a->json_complete = rc > 0;
    return true;
}

/* --- event streams --- */

static void on_late(struct loop_timer *t);

/* Bytes of an event's data: JSON, or a word such as [DONE]. */
static bool take_data(struct attempt *a, struct str bytes)
{
    if (a->remote->wire->text) {
        buf_add_str(&a->word, bytes);
        return true;
    }
    if (!a->in_json && a->word.len == 0) {
        bytes = str_trim(bytes);
        if (bytes.len == 0)
            return true;
        if (bytes.p[0] == '{') {
            a->in_json = true;
            a->json_complete = false;
            fields_reset(&a->fields);
            reply_begin_event(&a->reply);
        }
    }
    if (a->in_json)
        return take_json(a, bytes);
    buf_add_str(&a->word, str_sub(bytes, 0, WORD_MAX - MIN_OF(a->word.len, (size_t)WORD_MAX)));
    return true;
}

static bool take_event(struct attempt *a)
{
    struct err e = {0};
    bool done = str_eq_c(str_trim(buf_str(&a->word)), "[DONE]");

    if (a->remote->wire->text && !done) {
        bool on = take_text(a, buf_str(&a->word));

        if (on)
            buf_clear(&a->word);
        return on;
    }
    if (!a->in_json) {
        buf_clear(&a->word);
        if (!done) {
            (void)err_set(&e, ERR_ENGINE_INVALID, "an event that is no JSON");
            return bad_document(a, &e);
        }
        a->all_sent = true;
        return true;
    }
    a->in_json = false;
    if (!a->json_complete) {
        (void)err_set(&e, ERR_ENGINE_INVALID, "an event ends inside its JSON");
        return bad_document(a, &e);
    }
    if (!take_document(a))
        return false;
    if (a->ended)
        loop_timer_set(a->remote->loop, &a->late, LATE_END_MS, on_late);
    return true;
}

static void take_events(struct attempt *a, struct str bytes)
{
    struct str data;
    struct err e = {0};
    bool on = true;

    while (on) {
        int rc = sse_next(&a->sse, &bytes, &data, &e);

        if (rc == SSE_MORE)
            return;
        if (rc < 0)
            on = bad_document(a, &e);
        else
            on = rc == SSE_DATA ? take_data(a, data) : take_event(a);
    }
}

/* --- the end --- */

/* Spans as the engine told them, or its one version for all. */
static size_t make_versions(const struct reply *y, struct engine_version *out)
{
    for (size_t i = 0; i < y->spans.n; i++) {
        const struct reply_span *s = &y->spans.at[i];

        out[i] = (struct engine_version){str_of(y->version_text.p + s->text_at, s->text_len),
                                         (uint32_t)s->start, (uint32_t)s->end};
    }
    if (y->spans.n > 0 || y->version.len == 0 || y->ids.n == 0)
        return y->spans.n;
    out[0] = (struct engine_version){buf_str(&y->version), 0, (uint32_t)y->ids.n};
    return 1;
}

static enum engine_finish finish_of(const struct reply *y)
{
    if (y->finish == REPLY_ABORT)
        return ENGINE_ABORTED;
    if (y->finish == REPLY_LENGTH)
        return ENGINE_LENGTH;
    return y->stop_text.len > 0 ? ENGINE_STOP_STRING : ENGINE_STOP;
}

static void give_result(struct attempt *a)
{
    static const float nothing; /* an empty answer has logprobs, too: none */
    struct reply *y = &a->reply;
    struct engine_version *versions = mem_calloc(y->spans.n + 1, sizeof(*versions));
    uint64_t now = engine_now_us();
    struct engine_result res = {
        .finish = finish_of(y),
        .stop_id = (int32_t)y->stop_id,
        .stop_text = y->stop_text.len ? buf_str(&y->stop_text) : (struct str){0},
        .ids = {y->ids.at, y->ids.n},
        .logprobs = a->remote->wire->text ? NULL
                    : y->ids.n            ? y->logprobs.at
                                          : &nothing,
        .top = y->n_top ? y->tops.at : NULL,
        .n_top = y->n_top,
        .versions = versions,
        .n_versions = make_versions(y, versions),
        .experts = y->has_experts ? buf_str(&y->experts) : (struct str){0},
        .first_us = (a->first_us ? a->first_us : now) - a->asked_us,
        .total_us = now - a->asked_us,
        .openai_body = a->remote->wire->text ? buf_str(&a->word) : (struct str){0},
    };

    a->events->done(a->ctx, &res);
    free(versions);
    attempt_free(a);
}

/* The answer is there and its connection done with. */
static void finish(struct attempt *a)
{
    struct reply *y = &a->reply;
    struct err e = {0};

    if (y->finish == REPLY_ABORT && y->status >= 400) {
        enum engine_failure how = judge(a, y->status, buf_str(&y->message), &e);

        fail(a, &e, how == ENGINE_ASK_ANEW ? how : ENGINE_BROKE);
        return;
    }
    if (y->finish == REPLY_BROKEN) {
        log_words(a, y->status, buf_str(&y->message));
        (void)err_set(&e, ERR_ENGINE_INVALID, "the engine failed");
        fail(a, &e, ENGINE_BROKE);
        return;
    }
    if (a->remote->wire->complete && a->remote->wire->complete(y, a->req, &e) < 0) {
        fail(a, &e, ENGINE_BROKE);
        return;
    }
    if (a->remote->wire->text && a->kind == BODY_EVENTS) {
        buf_clear(&a->word);
        upstream_text_write(&a->text, &a->word);
    }
    give_result(a);
}

static void on_late(struct loop_timer *t)
{
    struct attempt *a = CONTAINER_OF(t, struct attempt, late);

    http_call_cancel(a->http);
    finish(a);
}

/* --- HTTP --- */

static void on_head(void *ctx, const struct http1_head *h)
{
    struct attempt *a = ctx;
    struct str type = http1_get(h, STR("content-type"));
    struct err e = {0};

    a->status = h->status;
    if (h->status != 200) {
        a->kind = BODY_ERROR;
    } else if (str_starts(type, STR("text/event-stream"))) {
        a->kind = BODY_EVENTS;
    } else if (str_starts(type, STR("application/json"))) {
        a->kind = BODY_JSON;
    } else {
        (void)err_set(&e, ERR_ENGINE_INVALID, "the engine's answer is of type \"%.*s\"",
                      (int)MIN_OF(type.len, (size_t)60), type.p ? type.p : "");
        drop(a, &e);
    }
}

static void on_body(void *ctx, struct str bytes)
{
    struct attempt *a = ctx;
    struct err e = {0};

    a->body_bytes += bytes.len;
    if (a->kind == BODY_ERROR) {
        buf_add_str(
            &a->word,
            str_sub(bytes, 0, ERROR_BODY_MAX - MIN_OF(a->word.len, (size_t)ERROR_BODY_MAX)));
        return;
    }
    if (a->kind == BODY_EVENTS && !a->remote->wire->text) {
        take_events(a, bytes);
        return;
    }
    if (a->body_bytes > BODY_BASE + (uint64_t)a->req->sampling.max_tokens * BODY_PER_TOKEN &&
        !a->remote->options->routed_experts) {
        (void)err_set(&e, ERR_ENGINE_INVALID, "the engine's answer is too large");
        drop(a, &e);
        return;
    }
    if (a->kind == BODY_EVENTS)
        take_events(a, bytes);
    else if (a->remote->wire->text)
        buf_add_str(&a->word, bytes);
    else
        (void)take_json(a, bytes);
}

static void on_done(void *ctx)
{
    struct attempt *a = ctx;
    struct err e = {0};

    a->http = NULL;
    if (a->kind == BODY_ERROR) {
        refused(a);
        return;
    }
    if (a->kind == BODY_JSON && a->remote->wire->text) {
        if (!take_text(a, buf_str(&a->word)))
            return;
    } else if (a->kind == BODY_JSON) {
        if (!a->json_complete) {
            (void)err_set(&e, ERR_ENGINE_INVALID, "the engine's answer ends inside its JSON");
            fail(a, &e, ENGINE_BROKE);
            return;
        }
        if (!take_document(a))
            return;
    }
    if (!a->ended && a->all_sent && a->remote->wire->silent_abort) {
        a->reply.finish = REPLY_ABORT;
        a->ended = true;
    }
    if (!a->ended) {
        (void)err_set(&e, ERR_ENGINE_INVALID, "the engine's answer has no finish reason");
        fail(a, &e, ENGINE_BROKE);
        return;
    }
    finish(a);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    struct attempt *a = ctx;

    /* All of it had come: how the connection ended does not matter. */
    if (a->ended && a->kind == BODY_EVENTS) {
        finish(a);
        return;
    }
    if (e->kind == ERR_ENGINE_TIMEOUT)
        remote_abort(a->remote, a->req);
    fail(a, e, began || e->kind == ERR_ENGINE_TIMEOUT ? ENGINE_BROKE : ENGINE_NO_ANSWER);
}

static const struct http_events http_events = {on_head, on_body, on_done, on_failed};

void *remote_start(void *replica, const struct engine_request *q,
                   const struct engine_attempt_events *events, void *ctx)
{
    struct remote *r = replica;
    struct attempt *a = mem_zalloc(sizeof(*a));
    struct wire_send s = {.stream = q->stream};
    struct http_request h = {.method = "POST", .total_timeout_ms = r->options->timeout_ms};
    struct buf headers = {0};

    a->remote = r;
    a->req = q;
    a->events = events;
    a->ctx = ctx;
    a->asked_us = engine_now_us();
    a->sse.max_event = r->wire->text ? TEXT_EVENT_MAX : EVENT_MAX;
    reply_init(&a->reply, q->top_logprobs);
    a->reply.told = r->facts.mode;
    fields_init(&a->fields, r->wire->fields, r->wire->n_fields, &sink, a);
    r->wire->write(r, q, &s);
    remote_headers(r, &headers, q->session_id, STR("application/json"),
                   s.stream ? STR("text/event-stream") : STR("application/json"));
    h.path = str_cstr(s.path);
    h.headers = buf_str(&headers);
    h.body = &s.body;
    h.idle_timeout_ms = s.stream ? r->options->idle_timeout_ms : 0;
    h.first_timeout_ms = h.idle_timeout_ms;
    a->http = http_client_start(r->client, &h, &http_events, a);
    buf_done(&headers);
    return a;
}

void remote_cancel(void *attempt)
{
    struct attempt *a = attempt;

    http_call_cancel(a->http);
    remote_abort(a->remote, a->req);
    attempt_free(a);
}
