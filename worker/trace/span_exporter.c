/*
 *   add ---> queue ---(a second later, or BATCH_SPANS)---> batch ---> POST ---> 2xx: sent
 *              |                                             ^  |
 *              | full: dropped                               |  | 429, 502, 503, 504, no answer
 *              v                                             '--' later, at most TRIES times;
 *           counted                                               others: dropped
 *
 * While a batch is being sent, or waits to be tried again, spans are collected in the queue. Its
 * bounds are the most memory that a dead endpoint costs.
 */
#include "worker/trace/span_exporter.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "common/net/url.h"
#include "common/os/file.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "worker/trace/trace_span.h"

enum {
    BATCH_SPANS = 512,
    QUEUE_SPANS = 8192,
    QUEUE_BYTES = 16 << 20,
    FLUSH_MS = 1000,
    TRIES = 5,
    PAUSE_FIRST_MS = 1000, /* doubled with each try */
    PAUSE_MAX_MS = 30000,  /* also the limit of Retry-After */
    TIMEOUT_MS = 10000,
    ANSWER_MAX = 64 << 10,
    HEADERS_MAX = 16 << 10,
    DRAIN_MS = 5000,
    TELL_MS = 60000, /* time between two log lines about lost spans */
    HOST_MAX = 256,
};

struct span_exporter {
    struct loop *loop;
    struct metrics_page *page;
    struct http_client *client;
    struct buf headers;
    struct buf path;
    char host[HOST_MAX], instance[HOST_MAX + 32];
    VEC(struct buf) queue;
    size_t queue_bytes;
    struct buf batch; /* body of the request, kept until the collector has it */
    size_t batch_spans;
    unsigned tries;
    struct loop_timer timer; /* timer of the next flush, or of the next try */
    struct http_call *call;  /* request in progress, or NULL */
    int status;              /* status of its answer */
    uint64_t retry_after_ms; /* Retry-After of its answer; 0: none */
    struct buf answer;
    uint64_t drain_ms;      /* time when the process began to end; 0: it does not end */
    bool failing;           /* the last request was not accepted */
    uint64_t lost, told_ms; /* spans lost since the last log line, and its time; 0: none yet */
};

/* --- settings --- */

static bool is_token(struct str name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.p[i] <= ' ' || name.p[i] > '~' || strchr("()<>@,;:\\\"/[]?={}", name.p[i]))
            return false;
    return name.len > 0;
}

static bool is_line_text(struct str value)
{
    for (size_t i = 0; i < value.len; i++)
        if ((unsigned char)value.p[i] < ' ' || value.p[i] == 0x7f)
            return false;
    return value.len > 0;
}

/* Reports whether the client or the exporter writes the header itself. */
static bool is_ours(struct str name)
{
    static const char *const ours[] = {"host",         "content-length", "transfer-encoding",
                                       "content-type", "connection",     "content-encoding"};

    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (str_eq_nocase(name, str_cstr(ours[i])))
            return true;
    return false;
}

/* Adds the header of one line of the file, which has no blanks around it. */
static int add_header(const char *file, unsigned number, struct str line, struct buf *out,
                      struct err *e)
{
    size_t colon = str_find(line, STR(":"), 0);
    struct str name = str_sub(line, 0, colon == SIZE_MAX ? 0 : colon);
    struct str value = colon == SIZE_MAX ? STR("") : str_trim(str_sub(line, colon + 1, line.len));

    /* the error must not contain the value, which is a secret */
    if (!is_token(name) || !is_line_text(value) || is_ours(name))
        return err_set(e, ERR_CONFIG, "--otlp-headers-file %s: line %u is not NAME: VALUE%s", file,
                       number, is_ours(name) ? " of a header that can be set" : "");
    buf_printf(out, "%.*s: %.*s\r\n", (int)name.len, name.p, (int)value.len, value.p);
    return 0;
}

static int read_headers(const char *file, struct buf *out, struct err *e)
{
    struct buf text = {0};
    struct err why = {0};
    struct str rest;
    int rc = 0;

    if (!file || !file[0])
        return 0;
    if (file_read(file, HEADERS_MAX, &text, &why) != 0) {
        buf_done(&text);
        return err_set(e, ERR_CONFIG, "--otlp-headers-file %s: %s", file, why.text);
    }
    rest = buf_str(&text);
    for (unsigned number = 1; rc == 0 && rest.len > 0; number++) {
        struct str line = str_trim(str_cut(&rest, '\n'));

        if (line.len > 0)
            rc = add_header(file, number, line, out, e);
    }
    buf_done(&text);
    return rc;
}

/* Splits an endpoint into scheme and host (`base`) and the path, or the default path. */
static int split_endpoint(const char *endpoint, struct buf *base, struct buf *path, struct err *e)
{
    struct url u;
    struct err why = {0};

    if (url_parse(str_cstr(endpoint), &u, &why) != 0 || u.local)
        return err_set(e, ERR_CONFIG, "--otlp-endpoint %s: must be http://HOST[:PORT][/PATH]%s%s",
                       endpoint, why.text[0] ? ": " : "", why.text);
    buf_printf(base, "%s://%.*s", u.tls ? "https" : "http", (int)u.authority.len, u.authority.p);
    if (u.prefix.len > 0)
        buf_add_str(path, u.prefix);
    else
        buf_puts(path, "/v1/traces");
    return 0;
}

int span_exporter_check(const char *endpoint, const char *headers_file, struct err *e)
{
    struct buf base = {0}, path = {0}, headers = {0};
    int rc = split_endpoint(endpoint, &base, &path, e);

    if (rc == 0)
        rc = read_headers(headers_file, &headers, e);
    buf_done(&base);
    buf_done(&path);
    buf_done(&headers);
    return rc;
}

/* --- making and freeing --- */

static const char *with_end(struct buf *text)
{
    buf_add_c(text, 0);
    return text->p;
}

int span_exporter_new(const struct span_exporter_options *o, struct span_exporter **ret,
                      struct err *e)
{
    struct span_exporter *x = mem_zalloc(sizeof(*x));
    struct buf base = {0};
    int rc = split_endpoint(o->endpoint, &base, &x->path, e);

    x->loop = o->loop;
    x->page = o->page;
    if (rc == 0)
        rc = read_headers(o->headers_file, &x->headers, e);
    if (rc == 0)
        rc = http_client_new(o->loop, with_end(&base), &(struct http_client_options){.max_idle = 1},
                             &x->client, e);
    buf_done(&base);
    if (rc != 0) {
        span_exporter_free(x);
        return -1;
    }
    buf_puts(&x->headers, "content-type: application/json\r\n");
    if (gethostname(x->host, sizeof(x->host) - 1) != 0)
        x->host[0] = 0;
    (void)snprintf(x->instance, sizeof(x->instance), "%s%sworker-%u", x->host,
                   x->host[0] ? ":" : "", o->worker);
    *ret = x;
    return 0;
}

static void count_spans(struct span_exporter *x, unsigned result, size_t n)
{
    if (n > 0)
        metrics_count_at(x->page, METRIC_spans, result, 0, n);
}

/* Logs at most one line every TELL_MS, however many spans are lost. */
static void log_lost(struct span_exporter *x, size_t n, const char *why)
{
    uint64_t now = clock_ms();

    x->lost += n;
    if (x->lost == 0 || (x->told_ms > 0 && now - x->told_ms < TELL_MS))
        return;
    log_warn(NULL, "spans were dropped (--otlp-endpoint)", LOG_U("spans", x->lost),
             LOG_T("why", why));
    x->lost = 0;
    x->told_ms = MAX_OF(now, 1);
}

static void drop_batch(struct span_exporter *x, unsigned result, const char *why)
{
    count_spans(x, result, x->batch_spans);
    log_lost(x, x->batch_spans, why);
    x->batch_spans = 0;
    buf_clear(&x->batch);
}

void span_exporter_free(struct span_exporter *x)
{
    if (!x)
        return;
    loop_timer_stop(x->loop, &x->timer);
    if (x->call)
        http_call_cancel(x->call);
    count_spans(x, METRIC_SPANS_UNSENT, x->batch_spans + x->queue.n);
    if (x->batch_spans + x->queue.n > 0) {
        x->told_ms = 0;
        log_lost(x, x->batch_spans + x->queue.n, "the worker ends");
    }
    if (x->client)
        http_client_free(x->client);
    for (size_t i = 0; i < x->queue.n; i++)
        buf_done(&x->queue.at[i]);
    vec_done(&x->queue);
    buf_done(&x->batch);
    buf_done(&x->answer);
    buf_done(&x->headers);
    buf_done(&x->path);
    free(x);
}

/* --- sending --- */

static void on_timer(struct loop_timer *t);

static void wait_for(struct span_exporter *x, uint64_t ms)
{
    loop_timer_set(x->loop, &x->timer, ms, on_timer);
}

/* Makes a request of the next spans of the queue. */
static void make_batch(struct span_exporter *x)
{
    struct span_source from = {str_cstr(RG_VERSION), str_cstr(x->instance),
                               x->host[0] ? str_cstr(x->host) : (struct str){0}};
    size_t n = MIN_OF(x->queue.n, (size_t)BATCH_SPANS);

    span_request_open(&x->batch, &from);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_add_c(&x->batch, ',');
        buf_add_str(&x->batch, buf_str(&x->queue.at[i]));
        x->queue_bytes -= x->queue.at[i].len;
        buf_done(&x->queue.at[i]);
    }
    span_request_close(&x->batch);
    x->queue.n -= n;
    memmove(x->queue.at, x->queue.at + n, x->queue.n * sizeof(*x->queue.at));
    x->batch_spans = n;
    x->tries = 0;
}

/* Returns the number of spans that the collector rejected (partialSuccess) although it accepted the
 * request. */
static size_t count_rejected(struct span_exporter *x)
{
    struct arena a = {0};
    const struct json *v = NULL, *n;
    int64_t told = 0;

    if (x->answer.len > 0 && json_parse(&a, buf_str(&x->answer), &v, NULL) == 0) {
        n = json_get(json_get(v, "partialSuccess"), "rejectedSpans");
        if (json_is(n, JSON_STRING)) {
            uint64_t as_text = 0;

            told = str_to_u64(json_string(n), INT64_MAX, &as_text) == 0 ? (int64_t)as_text : 0;
        } else {
            (void)json_to_i64(n, &told);
        }
    }
    arena_done(&a);
    return (size_t)MIN_OF(MAX_OF(told, 0), (int64_t)x->batch_spans);
}

static void finish_sent(struct span_exporter *x)
{
    size_t bad = count_rejected(x);

    count_spans(x, METRIC_SPANS_SENT, x->batch_spans - bad);
    count_spans(x, METRIC_SPANS_REJECTED, bad);
    if (bad > 0)
        log_lost(x, bad, "the collector took the request and rejected spans of it");
    x->failing = false;
    x->batch_spans = 0;
    buf_clear(&x->batch);
    if (x->queue.n > 0)
        wait_for(x, x->queue.n >= BATCH_SPANS ? 1 : FLUSH_MS);
}

static void try_again(struct span_exporter *x, const char *why)
{
    uint64_t pause = (uint64_t)PAUSE_FIRST_MS << MIN_OF(x->tries, 5u);

    x->failing = true;
    if (++x->tries >= TRIES)
        drop_batch(x, METRIC_SPANS_UNSENT, why);
    wait_for(x, MIN_OF(MAX_OF(x->retry_after_ms, pause), (uint64_t)PAUSE_MAX_MS));
}

static bool is_passing(int status)
{
    return status == 429 || status == 502 || status == 503 || status == 504;
}

/* --- the answer --- */

static void on_head(void *ctx, const struct http1_head *h)
{
    struct span_exporter *x = ctx;
    uint64_t seconds = 0;

    x->status = h->status;
    if (str_to_u64(http1_get(h, STR("retry-after")), PAUSE_MAX_MS, &seconds) == 0)
        x->retry_after_ms = seconds * 1000;
}

static void on_body(void *ctx, struct str bytes)
{
    struct span_exporter *x = ctx;

    buf_add_up_to(&x->answer, bytes, ANSWER_MAX);
}

static void on_done(void *ctx)
{
    struct span_exporter *x = ctx;
    char why[48];

    x->call = NULL;
    (void)snprintf(why, sizeof(why), "the collector answered %d", x->status);
    if (x->status >= 200 && x->status < 300) {
        finish_sent(x);
    } else if (is_passing(x->status)) {
        try_again(x, why);
    } else {
        x->failing = true;
        drop_batch(x, METRIC_SPANS_REJECTED, why);
        if (x->queue.n > 0)
            wait_for(x, FLUSH_MS);
    }
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    struct span_exporter *x = ctx;

    (void)began;
    x->call = NULL;
    try_again(x, e->text);
}

static const struct http_events events = {on_head, on_body, on_done, on_failed};

static void send_batch(struct span_exporter *x)
{
    struct buf body = {0};
    struct http_request r = {.method = "POST",
                             .path = buf_str(&x->path),
                             .headers = buf_str(&x->headers),
                             .body = &body,
                             .total_timeout_ms = TIMEOUT_MS};

    loop_timer_stop(x->loop, &x->timer);
    if (x->batch_spans == 0)
        make_batch(x);
    buf_add_str(&body, buf_str(&x->batch));
    buf_clear(&x->answer);
    x->status = 0;
    x->retry_after_ms = 0;
    x->call = http_client_start(x->client, &r, &events, x);
}

static void on_timer(struct loop_timer *t)
{
    struct span_exporter *x = CONTAINER_OF(t, struct span_exporter, timer);

    if (!x->call && (x->batch_spans > 0 || x->queue.n > 0))
        send_batch(x);
}

void span_exporter_add(struct span_exporter *x, struct buf *span)
{
    if (x->queue.n >= QUEUE_SPANS || x->queue_bytes + span->len > QUEUE_BYTES) {
        count_spans(x, METRIC_SPANS_QUEUE_FULL, 1);
        log_lost(x, 1, "the queue is full");
        buf_clear(span);
        return;
    }
    x->queue_bytes += span->len;
    *vec_push(&x->queue) = *span;
    *span = (struct buf){0};
    if (x->call || x->batch_spans > 0)
        return; /* the timer is in use for the batch */
    if (x->queue.n >= BATCH_SPANS)
        wait_for(x, 1);
    else if (!loop_timer_active(&x->timer))
        wait_for(x, FLUSH_MS);
}

bool span_exporter_drain(struct span_exporter *x)
{
    uint64_t now = clock_ms();

    if (!x)
        return false;
    if (x->drain_ms == 0)
        x->drain_ms = now;
    if (x->failing || now - x->drain_ms > DRAIN_MS ||
        (!x->call && x->batch_spans + x->queue.n == 0))
        return false;
    if (!x->call)
        send_batch(x);
    return true;
}
