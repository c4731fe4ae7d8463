/*
 * An attempt is one HTTP request and its result:
 *
 *   remote_start -> on_head -> on_body ... -> on_done -> finish -> give_result -> deliver: done
 *                                               |          '-> score (left-out logprobs) -^
 *                                               '-> refused: failed
 *
 * It ends by exactly one of `done` and `failed`, and frees itself just before (fail) or after
 * (deliver) that call. `failed` says whether a further attempt is useful: ENGINE_ASK_ANEW (other
 * route, or without budget or rank), ENGINE_NO_ANSWER, ENGINE_FULL and ENGINE_SAID_5XX (at a
 * different replica), ENGINE_BROKE (no). The end of the connection does not matter when the answer
 * has its finish; a server that keeps it open is cut off. Some engines report the version of their
 * weights only on request. They are asked during the call and once more after it, and the result
 * waits for that.
 */
#include "worker/engine/wire/attempt.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/sampling.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "common/net/retry_after.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/wire/reading.h"
#include "worker/engine/wire/scoring.h"

enum {
    ERROR_BODY_MAX = 16 * 1024,
    BODY_BASE = 16 << 20,    /* bytes that an answer may have without tokens */
    BODY_PER_TOKEN = 4096,   /* additional bytes for each requested token */
    BODY_PER_TOP = 512,      /* additional bytes for each alternative of a token */
    BODY_TOKENS = 64 * 1024, /* number of tokens if none is given (kind openai) */
    LATE_END_MS = 1000,      /* time in which the connection should end after the last event */
    HEADERS_USUAL = 512,     /* space for the headers that a request usually has */
};

struct engine_attempt {
    struct remote *remote;
    const struct engine_request *req;
    const struct engine_attempt_events *events;
    void *ctx;
    struct http_call *http;  /* NULL: the request has ended */
    struct reading *reading; /* NULL while a helper thread reads it */
    struct task *task;       /* task that waits for this thread; or NULL */
    bool dropped;            /* the attempt is over, and the task frees it */
    bool streams;            /* the answer is an event stream */
    bool gave;               /* some of the answer was passed on */
    /* scoring of missing logprobs, after the answer has ended; or NULL */
    struct scoring *scoring;
    struct aside *look;       /* pending request for the weights' version; or NULL */
    struct buf before, after; /* version when the call began, and at its end */
    bool looks, ended; /* the version must be asked for; the answer has ended and waits for it */
    struct loop_timer late;
    int status;
    struct asked_by by; /* fields that the request has */
    /* A copy of the request's pointer, because the request may be freed when the answer is passed
     * on; or NULL. */
    atomic_size_t *held;
    size_t body_bytes;      /* bytes of the request, counted in held */
    struct buf refusal;     /* body of an answer with a status other than 200 */
    uint32_t retry_after_s; /* wait that the answer's head asks for; 0: none */
};

/* Counts the request's body, which is kept until the attempt has ended. */
static void count_body(struct engine_attempt *a, size_t bytes)
{
    if (a->held)
        atomic_fetch_add_explicit(a->held, bytes - a->body_bytes, memory_order_relaxed);
    a->body_bytes = bytes;
}

static void free_memory(struct engine_attempt *a)
{
    reading_free(a->reading);
    free(a);
}

/* Ends the attempt. A task that waits for a helper thread frees the rest. */
static void attempt_free(struct engine_attempt *a)
{
    count_body(a, 0);
    loop_timer_stop(a->remote->loop, &a->late);
    scoring_cancel(a->scoring);
    if (a->look)
        aside_cancel(a->look);
    buf_done(&a->before);
    buf_done(&a->after);
    buf_done(&a->refusal);
    a->dropped = true;
    if (a->task)
        task_cancel(a->task);
    else
        free_memory(a);
}

static void fail(struct engine_attempt *a, const struct err *e, enum engine_failure how)
{
    const struct engine_attempt_events *events = a->events;
    void *ctx = a->ctx;

    attempt_free(a);
    events->failed(ctx, e, how);
}

/* Aborts the request by the id that the engine has returned, if it has. */
static void abort_request(struct engine_attempt *a)
{
    remote_abort(a->remote, a->req, a->reading ? reading_own_id(a->reading) : (struct str){0});
}

/* Drops the rest of the answer: closes the connection and aborts at the engine. */
static void drop(struct engine_attempt *a, const struct err *e)
{
    if (a->http) {
        http_call_cancel(a->http);
        abort_request(a);
    }
    fail(a, e, ENGINE_BROKE);
}

/* --- the engine's own errors --- */

/* Handles an answer with a status other than 200. */
static void refused(struct engine_attempt *a)
{
    struct err e = {0};
    enum engine_failure how =
        remote_refused(a->remote, a->req, a->status, buf_str(&a->refusal), a->by, &e);

    e.retry_after_s = a->retry_after_s;
    fail(a, &e, how);
}

/* Handles an answer that itself reports an error. If none of the answer was passed on, it is
 * handled like a status. */
static void reported(struct engine_attempt *a)
{
    struct err e = {0};
    int64_t told;
    struct str words = reading_words(a->reading, &told);
    int64_t status = told >= 400 && told < 600 ? told : 500;
    enum engine_failure how = remote_judge(a->remote, status, words, &e);
    uint32_t wait_s = reading_error_wait_s(a->reading);

    if (a->http)
        http_call_cancel(a->http);
    e.retry_after_s = wait_s ? wait_s : a->retry_after_s;
    fail(a, &e, how == ENGINE_FULL || !a->gave ? how : ENGINE_BROKE);
}

/* Handles an answer to a different request. Ours may follow on this connection, which is closed.
 * Nothing of either was passed on, so the call may be repeated. */
static void fail_stray(struct engine_attempt *a, const struct err *e)
{
    if (a->http)
        http_call_cancel(a->http);
    remote_note_stray(a->remote, a->req->session_id, reading_answer_id(a->reading));
    abort_request(a);
    fail(a, e, ENGINE_NO_ANSWER);
}

/* --- the end --- */

static void deliver(struct engine_attempt *a)
{
    struct engine_result res;

    reading_result(a->reading, &res);
    res.asked = a->req->support ? a->remote->wire->asks_of_support : a->remote->adapter->asks_basis;
    remote_note_answer(a->remote, a->req, reading_reply(a->reading), res.basis, a->streams);
    res.unbudgeted = a->req->sampling->max_thinking_tokens && a->req->thinks && !a->by.budget &&
                     !a->remote->wire->text;
    if (res.n_versions == 0) {
        res.version_before = buf_str(&a->before);
        res.version_after = buf_str(&a->after);
    }
    a->events->done(a->ctx, &res);
    attempt_free(a);
}

/* --- versions of the weights that answers do not contain --- */

/* If the version is the same before and after, everything was sampled under it. If it differs, the
 * change is at an unknown position, and the answer has no version. */
static void on_weights_after(void *ctx, struct str version)
{
    struct engine_attempt *a = ctx;

    a->look = NULL;
    buf_add_str(&a->after, version);
    if (version.p && a->before.len > 0 && str_eq(version, buf_str(&a->before)))
        reading_set_version(a->reading, version);
    else
        remote_note_versionless(a->remote, buf_str(&a->before), version);
    deliver(a);
}

static void look_after(struct engine_attempt *a)
{
    a->look = remote_ask_weights(a->remote, on_weights_after, a);
    if (!a->look)
        deliver(a);
}

static void on_weights_before(void *ctx, struct str version)
{
    struct engine_attempt *a = ctx;

    a->look = NULL;
    buf_add_str(&a->before, version);
    if (a->ended)
        look_after(a);
}

static void give_result(struct engine_attempt *a)
{
    remote_note_spans(a->remote, reading_reply(a->reading));
    if (!a->looks || reading_versioned(a->reading)) {
        deliver(a);
        return;
    }
    loop_timer_stop(a->remote->loop, &a->late);
    a->ended = true;
    if (!a->look)
        look_after(a);
}

/* Acts on a READING_ value other than MORE, after which the attempt is over. */
static void judge_reading(struct engine_attempt *a, int rc, const struct err *e)
{
    if (rc == READING_TOLD)
        reported(a);
    else if (rc == READING_STRAY)
        fail_stray(a, e);
    else
        drop(a, e);
}

/* Continues when the left-out logprobs are known, or cannot be. */
static void on_scored(void *ctx, const struct err *e)
{
    struct engine_attempt *a = ctx;

    a->scoring = NULL;
    if (e) /* nothing was passed on of an answer that leaves out logprobs */
        fail(a, e, e->kind == ERR_ENGINE_UNAVAILABLE ? ENGINE_NO_ANSWER : ENGINE_BROKE);
    else
        give_result(a);
}

/* Requests the logprobs that the engine has left out of an otherwise complete answer. */
static void score(struct engine_attempt *a)
{
    struct remote *r = a->remote;

    loop_timer_stop(r->loop, &a->late);
    remote_note_scoring(r, reading_reply(a->reading));
    a->scoring = scoring_new(r, a->req, reading_reply(a->reading), on_scored, a);
    scoring_begin(a->scoring);
}

static void finish(struct engine_attempt *a);

static int parse_text(void *reading, void *tool, struct err *e)
{
    (void)tool;
    (void)e;
    reading_parse(reading);
    return 0;
}

static void drop_unread(struct engine_attempt *a)
{
    struct err e = {0};

    (void)err_set(&e, ERR_ENGINE_INVALID, "the engine's answer took too long to read");
    drop(a, &e);
}

/* Handles a helper thread that hangs. The reading is leaked. */
static void on_lost(void *ctx)
{
    struct engine_attempt *a = ctx;

    remote_note_hung();
    a->task = NULL;
    if (!a->dropped)
        drop_unread(a);
}

/* Reads a long answer of a text kind in a helper thread. If the worker ends, the owner still
 * cancels the attempt. */
static void run_reading(void *ctx)
{
    struct engine_attempt *a = ctx;
    struct reading *reading = a->reading;
    struct task_work w = {.fn = parse_text,
                          .ctx = reading,
                          .lane = a->req->session_id,
                          .is_long = reading_takes_long(reading)};
    struct err e = {0};
    int rc;

    a->reading = NULL;
    a->task = task_running;
    task_on_lost(on_lost, a);
    rc = task_offload(&w, &e);
    a->task = NULL;
    a->reading = reading;
    if (a->dropped)
        free_memory(a);
    else if (rc == 0)
        finish(a);
    else if (e.kind != ERR_CANCELLED)
        drop_unread(a);
}

/* Finishes when the body is complete, or its end does not matter. */
static void finish(struct engine_attempt *a)
{
    struct reading *reading = a->reading;
    struct err e = {0};
    int64_t status;
    struct str words;
    int rc;

    if (reading_is_long(reading) && a->remote->options->tasks) {
        (void)task_start(a->remote->options->tasks, a->req->session_id, run_reading, a);
        return;
    }
    rc = reading_end(reading, &e);
    words = reading_words(reading, &status);
    remote_note_echo(a->remote, a->streams, reading_echoed(reading));
    if (rc < 0 && words.p)
        remote_log_words(a->remote, status, words);
    if (rc == READING_LACKS)
        score(a);
    else if (rc == READING_MORE)
        give_result(a);
    else if (rc < 0 && reading_cut(a->reading))
        fail(a, &e, ENGINE_SAID_5XX);
    else
        judge_reading(a, rc, &e);
}

static void on_late(struct loop_timer *t)
{
    struct engine_attempt *a = CONTAINER_OF(t, struct engine_attempt, late);

    http_call_cancel(a->http);
    a->http = NULL;
    finish(a);
}

/* --- HTTP --- */

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct engine_attempt *a = ctx;

    a->gave = a->gave || d->ids.n > 0 || d->message || d->n_chat_lps > 0;
    a->events->delta(a->ctx, d);
}

static void on_head(void *ctx, const struct http1_head *h)
{
    struct engine_attempt *a = ctx;
    struct err e = {0};

    a->status = remote_status(a->remote, h, &a->streams, &e);
    a->retry_after_s =
        retry_after_read(http1_get(h, STR("retry-after")), http1_get(h, STR("retry-after-ms")),
                         (int64_t)(clock_wall_ms() / 1000));
    reading_expect_events(a->reading, a->streams);
    reading_expect_echo(a->reading, remote_echoes(a->remote, a->streams));
    if (e.kind != ERR_NONE)
        drop(a, &e);
}

static void on_body(void *ctx, struct str bytes)
{
    struct engine_attempt *a = ctx;
    struct err e = {0};
    int rc;

    if (a->status != 200) {
        buf_add_up_to(&a->refusal, bytes, ERROR_BODY_MAX);
        return;
    }
    rc = reading_feed(a->reading, bytes, &e);
    if (rc != READING_MORE)
        judge_reading(a, rc, &e);
    else if (reading_ended(a->reading))
        loop_timer_set(a->remote->loop, &a->late, LATE_END_MS, on_late);
}

static void on_done(void *ctx)
{
    struct engine_attempt *a = ctx;

    a->http = NULL;
    if (a->status == 200)
        finish(a);
    else
        refused(a);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    struct engine_attempt *a = ctx;

    /* The whole answer has arrived, so it does not matter how the connection ended. */
    if (reading_ended(a->reading)) {
        a->http = NULL;
        finish(a);
        return;
    }
    if (e->kind == ERR_ENGINE_TIMEOUT)
        abort_request(a);
    fail(a, e,
         e->kind == ERR_ENGINE_TIMEOUT || e->kind == ERR_STORAGE_FAILED ? ENGINE_BROKE
         : began                                                        ? ENGINE_SAID_5XX
                                                                        : ENGINE_NO_ANSWER);
}

static const struct http_events http_events = {on_head, on_body, on_done, on_failed};

static uint64_t body_max(const struct engine_request *q)
{
    int64_t tokens = q->sampling->max_tokens > 0 ? q->sampling->max_tokens : BODY_TOKENS;

    return BODY_BASE + (uint64_t)tokens * (BODY_PER_TOKEN + q->top_logprobs * BODY_PER_TOP);
}

/* Adds the header with the session's rank, if the kind has one. Returns whether it was added. */
static bool add_rank(const struct remote *r, const struct engine_request *q, struct buf *headers)
{
    int64_t rank = r->wire->rank_header ? remote_rank_of(r, q) : -1;

    if (rank >= 0)
        buf_printf(headers, "%s%lld\r\n", r->wire->rank_header, (long long)rank);
    return rank >= 0;
}

void *remote_start(void *replica, const struct engine_request *q,
                   const struct engine_attempt_events *events, void *ctx)
{
    struct remote *r = replica;
    struct engine_attempt *a = mem_zalloc(sizeof(*a));
    struct wire_send s = {.stream = q->stream};
    struct http_request h = {.method = "POST"};
    struct buf headers = {0};

    (void)buf_reserve(&headers, HEADERS_USUAL);
    remote_rid(&s.id, q);
    a->remote = r;
    a->req = q;
    a->held = q->held;
    a->events = events;
    a->ctx = ctx;
    a->reading = reading_new(r, r->wire, q, on_delta, a);
    reading_expect(a->reading, r->facts.mode,
                   remote_tells_basis(r) ? r->wire->basis : remote_basis(r),
                   remote_asks_experts(r) || q->all_fields);
    if (!remote_asks_experts(r) && !q->support && !q->indexer.wanted)
        reading_limit(a->reading, body_max(q));
    a->by.budget = remote_gives_budget(r, q);
    r->wire->write(r, q, &s);
    count_body(a, s.body.cap);
    remote_headers(r, &headers, q->session_id, STR("application/json"),
                   s.stream ? STR("text/event-stream") : STR("application/json"));
    a->by.rank = add_rank(r, q, &headers);
    if (r->wire->sends_request_id)
        remote_add_header(&headers, "x-request-id: ", buf_str(&s.id));
    reading_expect_id(a->reading, &s.id);
    buf_add_str(&headers, q->trace);
    h.path = str_cstr(s.path);
    h.headers = buf_str(&headers);
    h.body = &s.body;
    h.inserts = s.inserts.at;
    h.n_inserts = s.inserts.n;
    remote_patience(r, &h);
    /* a whole answer begins only when it is finished */
    h.first_timeout_ms = s.stream ? h.idle_timeout_ms : 0;
    a->http = http_client_start(r->client, &h, &http_events, a);
    a->look = remote_ask_weights(r, on_weights_before, a);
    a->looks = a->look != NULL;
    buf_done(&headers);
    return a;
}

void remote_cancel(void *attempt)
{
    struct engine_attempt *a = attempt;

    if (a->http)
        http_call_cancel(a->http);
    abort_request(a);
    attempt_free(a);
}
