/* Runs calls of the HTTP client (http_client.h). A call owns a connection: an idle one from the
 * pool, or a new one (http_conn.c). It has time limits for connect, first byte, silence in the
 * body, and the whole call. Events may free the call (http_call_cancel in a callback), so after
 * each event the code checks n->call. A paused call's bytes wait in n->in, and the socket is not
 * read. An answer may arrive before the whole request was sent; such a connection is not pooled. */

#include "common/net/http_client.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/base64.h"
#include "common/net/encoded_file.h"
#include "common/net/http_conn.h"
#include "common/net/tls.h"

enum {
    HEAD_MAX = 64 * 1024,
    SEND_PER_TURN = 192 * 1024,
    CONNECT_TIMEOUT_MS = 5000,
    IDLE_MAX = 64,
    HEAD_REST = 160 /* space for the rest of a request's head */
};

enum http_phase { PHASE_CONNECT, PHASE_FIRST, PHASE_BODY };

struct http_call {
    struct http_client *client;
    struct http_conn *conn;
    const struct http_events *events;
    void *ctx;
    struct buf out; /* head of the request; its body is in `body`, with `inserts` in between */
    struct buf body;
    struct http_insert *inserts;
    size_t n_inserts, insert;  /* number of inserts, and index of the next one to send */
    size_t sent, inserted;     /* bytes sent of `out`, then of `body`; and of the current insert */
    struct encoded_file *file; /* the file that is being sent, or NULL */
    size_t share;              /* bytes that may still be sent in this loop iteration */
    struct loop_task more;     /* continues to send in the next loop iteration */
    struct loop_timer phase_timer, total_timer;
    enum http_phase phase;
    uint64_t first_timeout_ms, idle_timeout_ms;
    bool began;
    bool paused;
    bool to_head;
};

/* --- idle connections --- */

/* Takes the connection out of the pool. */
static void idle_remove(struct http_conn *n)
{
    struct http_client *c = n->client;

    if (!list_holds(&n->item))
        return;
    list_remove(&n->item);
    c->n_idle--;
}

/* Adds a connection to the pool. Closes it if the pool is full or the peer has ended. */
static void idle_add(struct http_conn *n)
{
    struct http_client *c = n->client;

    n->call = NULL;
    if (c->n_idle >= c->max_idle || n->ended || n->hangup) {
        http_conn_close(n);
        return;
    }
    n->in_body = false;
    list_prepend(&c->idle, &n->item);
    c->n_idle++;
}

/* --- the end of a call --- */

static void file_end(struct http_call *call)
{
    if (call->file)
        encoded_file_close(call->file);
    free(call->file);
    call->file = NULL;
}

/* Frees a call that no longer owns a connection. */
static void call_free(struct http_call *call)
{
    struct loop *l = call->client->loop;

    loop_timer_stop(l, &call->phase_timer);
    loop_timer_stop(l, &call->total_timer);
    loop_task_cancel(l, &call->more);
    file_end(call);
    buf_done(&call->out);
    buf_done(&call->body);
    free(call->inserts);
    free(call);
}

/* Sends the last event of a failed call. */
static void call_failed(struct http_call *call, const struct err *e)
{
    const struct http_events *events = call->events;
    void *ctx = call->ctx;
    bool began = call->began;

    http_conn_close(call->conn);
    call_free(call);
    events->failed(ctx, e, began);
}

/* Sends the last event of a call. The connection returns to the pool if no bytes are left on it. */
static void call_done(struct http_call *call)
{
    const struct http_events *events = call->events;
    struct http_conn *n = call->conn;
    void *ctx = call->ctx;
    bool sent_all = call->out.len == 0 && call->body.len == 0;

    call_free(call);
    if (n->keep_alive && sent_all && n->in.len == 0)
        idle_add(n);
    else
        http_conn_close(n);
    events->done(ctx);
}

static void fail(struct http_call *call, enum err_kind kind, const char *what)
{
    struct err e = {0};

    /* the text may be sent to a client, so it contains no address */
    (void)err_set(&e, kind, "upstream: %s", what);
    call_failed(call, &e);
}

void http_call_cancel(struct http_call *call)
{
    http_conn_close(call->conn);
    call_free(call);
}

/* --- timeouts --- */

/* The error says which limit was exceeded. */
static void on_phase_timeout(struct loop_timer *t)
{
    struct http_call *call = CONTAINER_OF(t, struct http_call, phase_timer);
    struct err e = {0};

    if (call->phase == PHASE_CONNECT) {
        errno = ETIMEDOUT;
        (void)err_sys(&e, ERR_ENGINE_UNAVAILABLE, "upstream: cannot connect");
        call_failed(call, &e);
        return;
    }
    fail(call, ERR_ENGINE_TIMEOUT,
         call->phase == PHASE_FIRST ? "no answer in time" : "silent in the middle of its answer");
}

static void on_total_timeout(struct loop_timer *t)
{
    fail(CONTAINER_OF(t, struct http_call, total_timer), ERR_ENGINE_TIMEOUT,
         "its answer took too long");
}

/* Starts the time limit of the phase; none while paused. */
static void enter_phase(struct http_call *call, enum http_phase phase)
{
    uint64_t ms = phase == PHASE_CONNECT ? call->client->connect_timeout_ms
                  : phase == PHASE_FIRST ? call->first_timeout_ms
                                         : call->idle_timeout_ms;

    call->phase = phase;
    if (ms > 0 && !call->paused)
        loop_timer_set(call->client->loop, &call->phase_timer, ms, on_phase_timeout);
    else
        loop_timer_stop(call->client->loop, &call->phase_timer);
}

/* --- sending --- */

static void on_send_more(struct loop_task *t);

/* Sends as many bytes of this loop iteration's share as possible (limited, because the kernel may
 * take megabytes at once). Returns 0 if nothing was sent, or the share is used up. A TLS record
 * that waits must be tried again with as many bytes, so no share cuts one short. */
static size_t send_some(struct http_call *call, struct str bytes)
{
    ssize_t n;

    if (call->share == 0) {
        loop_task_post(call->client->loop, &call->more, on_send_more);
        return 0;
    }
    n = http_conn_write(call->conn, str_sub(bytes, 0, MAX_OF(call->share, (size_t)TLS_RECORD)),
                        call->out.len > 0 && call->body.len > 0);
    if (n <= 0)
        return 0;
    call->share -= MIN_OF(call->share, (size_t)n);
    return (size_t)n;
}

/* Sends bytes from *at on. Returns true when all are sent. A failed write is no error yet,
 * because a server may answer and close before it has read everything, and the answer must still
 * be read. */
static bool send_bytes(struct http_call *call, struct str bytes, size_t *at)
{
    while (*at < bytes.len) {
        size_t n = send_some(call, str_sub(bytes, *at, bytes.len));

        if (n == 0)
            return false;
        *at += n;
    }
    return true;
}

static bool send_head(struct http_call *call)
{
    if (call->out.len == 0)
        return true;
    if (!send_bytes(call, buf_str(&call->out), &call->sent))
        return false;
    call->sent = 0; /* counts bytes of the body from here on */
    buf_done(&call->out);
    return true;
}

/* Sends a file. Returns 1 when it is sent completely, 0 if not yet, -1 with errno. */
static int send_file(struct http_call *call, const struct http_insert *x)
{
    struct str text;

    if (!call->file) {
        call->file = mem_alloc(sizeof(*call->file));
        if (encoded_file_open(call->file, x->file, x->file_bytes, x->zero) != 0)
            return -1;
    }
    for (;;) {
        size_t n = 0;

        if (encoded_file_next(call->file, &text) != 0)
            return -1;
        if (text.len == 0)
            break;
        if (!send_bytes(call, text, &n)) {
            encoded_file_take(call->file, n);
            return 0;
        }
        encoded_file_take(call->file, n);
    }
    file_end(call);
    return 1;
}

static int send_insert(struct http_call *call, const struct http_insert *x)
{
    if (x->file)
        return send_file(call, x);
    return send_bytes(call, x->bytes, &call->inserted);
}

static int send_body(struct http_call *call)
{
    for (; call->insert < call->n_inserts; call->insert++, call->inserted = 0) {
        const struct http_insert *x = &call->inserts[call->insert];
        int rc;

        if (!send_bytes(call, str_sub(buf_str(&call->body), 0, x->at), &call->sent))
            return 0;
        rc = send_insert(call, x);
        if (rc <= 0)
            return rc;
    }
    if (!send_bytes(call, buf_str(&call->body), &call->sent))
        return 0;
    buf_done(&call->body);
    return 1;
}

/* Returns false if the call has failed: the call is then freed, and its connection closed. */
static bool send_request(struct http_call *call)
{
    struct err e = {0};

    call->share = SEND_PER_TURN;
    if (!send_head(call) || call->body.len == 0 || send_body(call) >= 0)
        return true;
    (void)err_sys(&e, ERR_STORAGE_FAILED, "a file of the request cannot be read");
    call_failed(call, &e);
    return false;
}

static void on_send_more(struct loop_task *t)
{
    struct http_call *call = CONTAINER_OF(t, struct http_call, more);
    struct http_conn *n = call->conn;

    http_conn_enter(n);
    (void)send_request(call);
    http_conn_leave(n);
}

/* --- reading the answer --- */

static void body_bytes(struct http_call *call, struct str bytes)
{
    if (bytes.len > 0)
        call->events->body(call->ctx, bytes);
}

/* Takes chunked bytes off *in. Returns 1 when the body is complete, 0 if not yet, -1 after bad
 * framing (reported). Stops early when the call is freed or paused. */
static int take_chunked(struct http_conn *n, struct http_call *call, struct str *in)
{
    while (in->len > 0 && n->call == call && !call->paused) {
        struct chunked_run run;
        struct err e;
        int rc = chunked_next(&n->chunked, *in, &run, &e);

        if (rc < 0) {
            fail(call, ERR_ENGINE_INVALID, "malformed chunked answer");
            return -1;
        }
        if (run.kind == CHUNKED_DATA)
            body_bytes(call, str_of(in->p, run.len_bytes));
        *in = str_sub(*in, run.len_bytes, in->len);
        if (rc > 0)
            return 1;
    }
    return 0;
}

/* Takes body bytes. Returns 1 when the body is complete, 0 if not, -1 after an error was
 * reported. */
static int take_body(struct http_conn *n, struct http_call *call, struct str *in)
{
    struct str run = *in;

    if (n->framing == HTTP1_CHUNKED)
        return take_chunked(n, call, in);
    if (n->framing == HTTP1_LENGTH) {
        run = str_sub(*in, 0, (size_t)MIN_OF(n->left_bytes, (uint64_t)in->len));
        n->left_bytes -= run.len;
    }
    *in = str_sub(*in, run.len, in->len);
    body_bytes(call, run);
    return n->framing == HTTP1_LENGTH && n->left_bytes == 0;
}

/* Handles a complete head. Returns 1 if the answer is complete, too, 0 if its body follows, -1 if
 * the call is freed. */
static int take_head(struct http_conn *n, struct http_call *call, const struct http1_head *h)
{
    if (h->status < 200) {
        if (h->status != 101)
            return 0;
        fail(call, ERR_ENGINE_INVALID, "switches protocols unasked");
        return -1;
    }
    n->in_body = true;
    n->framing = h->body;
    n->left_bytes = h->length;
    n->keep_alive = h->keep_alive && h->body != HTTP1_UNTIL_CLOSE;
    n->chunked = (struct chunked){0};
    call->events->head(call->ctx, h);
    if (n->call != call)
        return -1;
    return h->body == HTTP1_NO_BODY;
}

/* Reads a head. Incomplete heads are kept in n->in. Returns the same as take_head, or 2 if more
 * bytes are needed. */
static int read_head(struct http_conn *n, struct http_call *call, struct str *in)
{
    bool direct = n->in.len == 0;
    struct http1_head *h = &n->client->head;
    struct err e;
    struct str text = *in;
    size_t before = n->in.len, used;
    int rc;

    if (!direct) {
        buf_add_str(&n->in, *in);
        text = buf_str(&n->in);
    }
    rc = http1_response(h, text, n->seen_bytes, HEAD_MAX, call->to_head, &e);
    if (rc == 0) {
        if (direct)
            buf_add_str(&n->in, *in);
        n->seen_bytes = n->in.len;
        *in = str_sub(*in, in->len, 0);
        rc = 2;
    } else if (rc < 0) {
        fail(call, ERR_ENGINE_INVALID, e.text);
    } else {
        used = h->len_bytes - before;
        *in = str_sub(*in, used, in->len);
        rc = take_head(n, call, h);
        buf_done(&n->in);
        n->seen_bytes = 0;
    }
    return rc;
}

/* Reads bytes of the answer. A paused call keeps the rest in n->in. Returns false if the call has
 * ended. */
static bool input(struct http_conn *n, struct str in)
{
    struct http_call *call = n->call;
    int rc = 0;

    call->began = true;
    while (in.len > 0 && n->call == call && rc == 0) {
        if (call->paused) {
            buf_add_str(&n->in, in);
            return true;
        }
        rc = n->in_body ? take_body(n, call, &in) : read_head(n, call, &in);
    }
    if (n->call != call || rc < 0)
        return false;
    if (rc == 1) {
        /* Bytes after the answer were not requested, so the connection is not reused. */
        n->keep_alive = n->keep_alive && in.len == 0;
        call_done(call);
        return false;
    }
    enter_phase(call, n->in_body ? PHASE_BODY : PHASE_FIRST);
    return true;
}

static void input_end(struct http_conn *n)
{
    struct http_call *call = n->call;

    if (n->in_body && n->framing == HTTP1_UNTIL_CLOSE && n->clean_end && n->in.len == 0)
        call_done(call);
    else if (call->began)
        fail(call, ERR_ENGINE_INVALID, "closed in the middle of its answer");
    else
        fail(call, ERR_ENGINE_UNAVAILABLE, "closed without an answer");
}

static void on_read_again(struct loop_task *t);

/* Handles bytes that a pause held back. Returns false if the call has ended. */
static bool take_parked(struct http_conn *n)
{
    struct buf parked = n->in;
    bool on;

    if (!n->in_body || parked.len == 0)
        return true;
    n->in = (struct buf){0};
    on = input(n, buf_str(&parked));
    buf_done(&parked);
    return on;
}

/* Reads until the socket is empty, the call is paused or freed, or this loop iteration's share is
 * used up. */
static void read_answer(struct http_conn *n)
{
    uint64_t began_us = clock_us(), now_us = began_us;

    if (!n->call || n->call->paused || !take_parked(n))
        return;
    for (;;) {
        uint64_t from_us = now_us;
        size_t most = n->read_bytes;
        ssize_t got;

        if (n->call->paused)
            return;
        got = http_conn_read(n, n->client->scratch, most);
        if (got < 0)
            input_end(n);
        if (got <= 0 || !input(n, str_of(n->client->scratch, (size_t)got)))
            return;
        now_us = clock_us();
        http_conn_set_pace(n, (size_t)got, now_us - from_us);
        /* A short read has emptied a plain socket: the next bytes cause a new event. */
        if (!n->tls && (size_t)got < most && !n->hangup)
            return;
        if (now_us - began_us >= READ_TURN_US) {
            loop_task_post(n->client->loop, &n->again, on_read_again);
            return;
        }
    }
}

static void on_read_again(struct loop_task *t)
{
    struct http_conn *n = CONTAINER_OF(t, struct http_conn, again);

    http_conn_enter(n);
    read_answer(n);
    http_conn_leave(n);
}

void http_call_pause(struct http_call *call)
{
    call->paused = true;
    loop_timer_stop(call->client->loop, &call->phase_timer);
}

void http_call_resume(struct http_call *call)
{
    if (!call->paused)
        return;
    call->paused = false;
    if (call->conn->state != CONN_OPEN)
        return;
    enter_phase(call, call->phase);
    loop_task_post(call->client->loop, &call->conn->again, on_read_again);
}

/* --- events of the connection --- */

void http_conn_opened(struct http_conn *n)
{
    enter_phase(n->call, PHASE_FIRST);
    (void)send_request(n->call);
}

/* Handles readiness of the connection's socket, for a call or in the pool. */
void http_conn_ready(struct http_conn *n, unsigned events)
{
    n->hangup = n->hangup || (events & (LOOP_RDHUP | LOOP_HUP | LOOP_ERR));
    if (n->call && (events & LOOP_OUT) && (n->call->out.len > 0 || n->call->body.len > 0) &&
        !send_request(n->call))
        return;
    if (n->call && ((events & ~LOOP_OUT) || n->tls))
        read_answer(n);
    else if (list_holds(&n->item) && (events & LOOP_IN))
        n->hangup = true; /* an idle peer sent something (also TLS tickets and alerts) */
    if (list_holds(&n->item) && n->hangup) {
        idle_remove(n);
        http_conn_close(n);
    }
}

void http_conn_broken(struct http_conn *n, const struct err *e)
{
    call_failed(n->call, e);
}

/* --- starting --- */

/* Returns the bytes of the whole body, with its inserts. */
static size_t body_length(const struct http_request *r)
{
    size_t n = r->body ? r->body->len : 0;

    for (size_t i = 0; i < r->n_inserts; i++) {
        const struct http_insert *x = &r->inserts[i];

        n += x->file ? base64_encoded_len((size_t)x->file_bytes + x->zero) : x->bytes.len;
    }
    return n;
}

static void write_head(struct http_call *call, const struct http_request *r)
{
    const struct url *u = &call->client->url;
    struct buf *b = &call->out;

    buf_reserve(b, strlen(call->client->url_text) + r->path.len + r->headers.len + HEAD_REST);
    buf_printf(b, "%s %.*s%.*s HTTP/1.1\r\nhost: %.*s\r\n", r->method, (int)u->prefix.len,
               u->prefix.p ? u->prefix.p : "", (int)r->path.len, r->path.p, (int)u->authority.len,
               u->authority.p);
    buf_add_str(b, r->headers);
    if (r->body || strcmp(r->method, "POST") == 0 || strcmp(r->method, "PUT") == 0)
        buf_printf(b, "content-length: %zu\r\n", body_length(r));
    buf_puts(b, "\r\n");
}

/* Sends the request on a pooled connection. One with inserts is sent in the next loop iteration,
 * because reading a file may fail. */
static void begin_on_idle(struct http_call *call)
{
    idle_remove(call->conn);
    call->conn->call = call;
    enter_phase(call, PHASE_FIRST);
    if (call->n_inserts > 0)
        loop_task_post(call->client->loop, &call->more, on_send_more);
    else
        CHECK(send_request(call)); /* only a file fails */
}

/* Events are sent later, never from inside of this call. */
struct http_call *http_client_start(struct http_client *c, const struct http_request *r,
                                    const struct http_events *events, void *ctx)
{
    struct http_call *call = mem_zalloc(sizeof(*call));

    call->client = c;
    call->events = events;
    call->ctx = ctx;
    call->first_timeout_ms = r->first_timeout_ms;
    call->idle_timeout_ms = r->idle_timeout_ms;
    call->to_head = strcmp(r->method, "HEAD") == 0;
    write_head(call, r);
    if (r->body) {
        call->body = *r->body;
        *r->body = (struct buf){0};
        call->inserts = r->inserts;
        call->n_inserts = r->n_inserts;
    }
    if (r->total_timeout_ms > 0)
        loop_timer_set(c->loop, &call->total_timer, r->total_timeout_ms, on_total_timeout);
    call->conn = LIST_FIRST_OF(&c->idle, struct http_conn, item);
    if (call->conn) {
        begin_on_idle(call);
    } else {
        call->conn = http_conn_open(c, call);
        enter_phase(call, PHASE_CONNECT);
    }
    return call;
}

void http_client_limits(struct http_client *c, uint64_t connect_timeout_ms, size_t max_idle)
{
    c->connect_timeout_ms = connect_timeout_ms ? connect_timeout_ms : CONNECT_TIMEOUT_MS;
    c->max_idle = max_idle ? max_idle : IDLE_MAX;
}

/* Later look-ups of the name are done by a thread. */
int http_client_new(struct loop *loop, const char *url, const struct http_client_options *o,
                    struct http_client **ret, struct err *e)
{
    struct http_client *c = mem_zalloc(sizeof(*c));

    *c = (struct http_client){.loop = loop, .background = o->background};
    c->url_text = mem_strdup(url);
    http_client_limits(c, o->connect_timeout_ms, o->max_idle);
    if (url_parse(str_cstr(c->url_text), &c->url, e) < 0)
        goto out;
    c->host = mem_strndup(c->url.host.p, c->url.host.len);
    if (c->url.tls && tls_context_new(o->ca_file, o->insecure_tls, &c->tls, e) < 0)
        goto out;
    if (c->url.tls && o->pinned)
        tls_context_pin(c->tls);
    if (!c->url.local)
        (o->background ? resolve_begin : resolve_init)(&c->resolve, loop, c->host, c->url.port);
    c->scratch = mem_alloc(SCRATCH_BYTES);
    *ret = c;
    return 0;
out:
    http_client_free(c);
    return -1;
}

void http_client_close_idle(struct http_client *c)
{
    struct http_conn *n, *next;

    LIST_EACH_SAFE(&c->idle, n, next, struct http_conn, item) {
        idle_remove(n);
        http_conn_close(n);
    }
}

void http_client_free(struct http_client *c)
{
    if (!c)
        return;
    http_client_close_idle(c);
    CHECK(c->n_conns == 0);
    if (c->resolve.loop)
        resolve_done(&c->resolve);
    tls_session_free(c->session);
    tls_context_free(c->tls);
    free(c->scratch);
    free(c->host);
    free(c->url_text);
    free(c);
}

int http_client_connect_error(const struct http_client *c)
{
    return c->connect_error;
}

size_t http_client_connections(const struct http_client *c)
{
    return c->n_conns;
}

size_t http_client_idle(const struct http_client *c)
{
    return c->n_idle;
}
