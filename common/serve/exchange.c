/* One request and its answer over libh2o (exchange.h). Bytes of the answer go through two
 * buffers:
 *
 *   exchange_send -> waiting --pump_waiting--> flying --libh2o--> kernel
 *                        ^                        |
 *                        `------ on_proceed <-----'    the kernel has taken all of `flying`
 *
 * Long waiting bytes are in several buffers, since one growing buffer would be copied. pump_waiting
 * hands over a buffer when nothing is flying. on_proceed frees it, and calls an owner that waits
 * for space (exchange_on_space). libh2o frees the exchange with the request's pool
 * (exchange_dispose): the last byte is then in the kernel, or the connection has broken. A note on
 * the connection waits for the peer to have it (exchange_note, server_close_note). */

#include "common/serve/exchange.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/net/http1.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "common/serve/server_internal.h"

enum {
    PART_BYTES = 256 << 10
}; /* bytes of a waiting buffer after which a new one is begun, so that it is not copied as it grows
    */

void exchange_set_header(struct exchange *x, const char *name, struct str value)
{
    h2o_headers_t *all;
    h2o_iovec_t copy;

    if (x->over)
        return;
    copy = h2o_strdup(&x->req->pool, value.p, value.len);
    all = &x->req->res.headers;
    for (size_t i = 0; i < all->size; i++) {
        const h2o_iovec_t *had = all->entries[i].name;

        if (str_eq_nocase(str_of(had->base, had->len), str_cstr(name))) {
            all->entries[i].value = copy;
            return;
        }
    }
    h2o_add_header_by_str(&x->req->pool, all, name, strlen(name), 0, NULL, copy.base, copy.len);
}

void exchange_watch(struct exchange *x, exchange_closed_fn closed, void *ctx)
{
    x->closed = closed;
    x->closed_ctx = ctx;
}

/* Removes x from the exchanges that wait for the delivery of a different answer. */
static void forget_awaiting(struct exchange *x)
{
    struct exchange **at = &x->conn->server->awaiting;

    while (*at && *at != x)
        at = &(*at)->next_awaiting;
    if (*at)
        *at = x->next_awaiting;
    loop_timer_stop(x->conn->server->loop, &x->wait_end);
}

/* Calls `closed` of the owner, at most once. */
static void call_closed(struct exchange *x, bool delivered)
{
    exchange_closed_fn fn = x->closed;

    x->closed = NULL;
    forget_awaiting(x);
    if (fn)
        fn(x->closed_ctx, delivered);
}

static bool conn_closed(const struct server_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};

    return c->gone || (!c->shut && poll(&p, 1, 0) != 0);
}

bool exchange_given(const struct server_conn *c)
{
    return c->exchange && c->exchange->final && !c->exchange->failing;
}

bool exchange_peer_gone(const struct exchange *x)
{
    return x->over || conn_closed(x->conn);
}

/* Reports whether the peer is still connected. A client of a lent connection may close its sending
 * side after it has read the whole answer. So a closed sending side counts as leaving only if it
 * was seen before the answer's end. A broken connection always does. */
static bool peer_stays(const struct server_conn *c)
{
    struct pollfd p = {.fd = c->fd};

    return c->lent ? !c->gone && poll(&p, 1, 0) == 0 : !conn_closed(c);
}

void exchange_check_delivery(struct exchange *x, struct str key_start)
{
    struct server_conn *c, *next;

    LIST_EACH_SAFE(server_notes(x->conn->server, key_start), c, next, struct server_conn, noted) {
        if (str_starts(c->note.key, key_start))
            server_check_confirmation(c);
    }
}

bool exchange_under_way(const struct exchange *x, struct str key)
{
    const struct server_conn *c;

    LIST_EACH(server_notes(x->conn->server, key), c, struct server_conn, noted) {
        if (str_eq(c->note.key, key) && peer_stays(c))
            return true;
    }
    return false;
}

static void on_wait_end(struct loop_timer *t)
{
    exchange_wake(CONTAINER_OF(t, struct exchange, wait_end));
}

/* Among exchanges that wait for the same answer, the first to wait is woken first. */
bool exchange_await(struct exchange *x, struct str key_start, uint64_t max_ms, struct waiter *known)
{
    struct exchange **at = &x->conn->server->awaiting;
    uint64_t now_ms = clock_ms();

    if (x->wait_until_ms == 0)
        x->wait_until_ms = max_ms ? now_ms + max_ms : UINT64_MAX;
    if (now_ms >= x->wait_until_ms)
        return false;
    while (*at)
        at = &(*at)->next_awaiting;
    *at = x;
    x->next_awaiting = NULL;
    x->awaited = key_start;
    x->known = known;
    if (max_ms)
        loop_timer_set(x->conn->server->loop, &x->wait_end, x->wait_until_ms - now_ms, on_wait_end);
    return true;
}

void exchange_wake(struct exchange *x)
{
    forget_awaiting(x);
    waiter_wake(x->known);
}

/* The answer's last byte is in the kernel. */
static void on_sent(struct server_conn *c, bool delivered)
{
    c->sent = true;
    if (c->confirms)
        server_check_confirmation(c);
    else if (delivered)
        server_close_note(c, true);
}

/* --- answers that wait for a delivery --- */

/* Returns the bytes of the answer that libh2o is sending. */
static struct str flying_bytes(const struct exchange *x)
{
    return x->shared ? shared_answer_bytes(x->shared) : buf_str(&x->flying);
}

/* Frees the flying bytes: they have arrived, or the exchange is over. */
static void free_flying(struct exchange *x)
{
    buf_done(&x->flying);
    shared_answer_drop(&x->conn->server->answers, x->shared);
    x->shared = NULL;
}

/* Called when libh2o frees the request's pool: either the whole answer is sent, or the connection
 * has broken. */
static void exchange_dispose(void *p)
{
    struct exchange *x = *(struct exchange **)p;
    bool sent = x->final && !x->failing;
    bool delivered = sent && peer_stays(x->conn);

    list_remove(&x->late);
    /* libh2o does not read while a handler waits, so it does not close the connection either */
    CHECK(!x->held);
    if (x->conn->lent && sent && x->req->http1_is_persistent)
        lent_answered(x->conn);
    if (sent)
        on_sent(x->conn, delivered);
    x->conn->exchange = NULL;
    packed_input_done(&x->conn->packed);
    call_closed(x, delivered);
    unread_leave(x);
    x->conn->server->answer_bytes -= x->own_counted;
    x->conn->server->body_bytes -= x->body_bytes;
    exchange_free_coding(x);
    exchange_drop_unsent(x);
    free_flying(x);
    x->over = true;
    x->sending = false;
    server_end_exchange(x->conn);
    if (x->conn->server->draining)
        server_announce(x->conn);
    x->req = NULL;
    x->conn = NULL;
    exchange_release(x);
}

void exchange_drop_unsent(struct exchange *x)
{
    for (size_t i = x->first_part; i < x->parts.n; i++)
        buf_done(&x->parts.at[i]);
    vec_done(&x->parts);
    x->first_part = x->parts_bytes = 0;
    buf_done(&x->waiting);
}

/* Removes and returns the first buffer of the waiting bytes. */
static struct buf pop_waiting(struct exchange *x)
{
    struct buf part = x->waiting;

    if (x->parts_bytes == 0) {
        x->waiting = (struct buf){0};
        return part;
    }
    part = x->parts.at[x->first_part++];
    x->parts_bytes -= part.len;
    if (x->parts_bytes == 0) {
        vec_clear(&x->parts);
        x->first_part = 0;
    }
    return part;
}

/* Hands one waiting buffer to libh2o. The end of the answer goes out with the last buffer. */
static void pump_waiting(struct exchange *x)
{
    struct server *s = x->server;
    const h2o_socket_t *sock;
    h2o_iovec_t v;

    if (x->sending || x->final)
        return;
    if (x->failing) {
        x->final = true;
        h2o_send(x->req, NULL, 0, H2O_SEND_STATE_ERROR);
        server_run_libh2o(s, NULL);
        return;
    }
    if (exchange_unsent(x) == 0 && !x->ending)
        return;
    free_flying(x);
    x->flying = pop_waiting(x);
    x->final = x->ending && exchange_unsent(x) == 0;
    if (x->final && x->flying.len >= SHARED_ANSWER_LEAST && x->flying.len <= SHARED_ANSWER_MOST)
        x->shared = shared_answer_add(&x->conn->server->answers, &x->flying);
    v = h2o_iovec_init(flying_bytes(x).p, flying_bytes(x).len);
    x->sending = true;
    sock = x->conn->sock;
    unread_count(x);
    h2o_send(x->req, &v, v.len > 0 ? 1 : 0,
             x->final ? H2O_SEND_STATE_FINAL : H2O_SEND_STATE_IN_PROGRESS);
    server_run_libh2o(s, sock);
}

/* Calls the owner that waits for space (exchange_on_space). */
static void call_on_space(struct exchange *x)
{
    exchange_space_fn fn = x->room;

    if (!fn || exchange_unsent(x) >= EXCHANGE_WINDOW || x->ending || x->failing)
        return;
    x->room = NULL;
    fn(x->room_ctx);
}

/* The kernel has accepted all flying bytes. */
static void on_proceed(h2o_generator_t *g, h2o_req_t *req)
{
    struct exchange *x = (struct exchange *)(void *)g;

    (void)req;
    x->sending = false;
    unread_count(x);
    call_on_space(x);
    pump_waiting(x);
}

/* libh2o abandons the answer; exchange_dispose follows. */
static void on_stop(h2o_generator_t *g, h2o_req_t *req)
{
    struct exchange *x = (struct exchange *)(void *)g;

    (void)req;
    x->failing = true;
}

/* Makes the exchange of a complete request. The previous answer on the connection counts as
 * delivered now. */
struct exchange *exchange_new(struct server_conn *conn, h2o_req_t *req)
{
    struct exchange *x = mem_zalloc(sizeof(*x));

    *(struct exchange **)h2o_mem_alloc_shared(&req->pool, sizeof(x), exchange_dispose) = x;
    x->generator = (h2o_generator_t){on_proceed, on_stop};
    x->req = req;
    x->conn = conn;
    x->server = conn->server;
    x->refs = 1;
    conn->exchange = x;
    x->body_bytes = exchange_closed_body(x).len;
    conn->server->body_bytes += x->body_bytes;
    server_count_unfinished(conn, 0);
    intake_forget(conn);
    /* the peer sent a next request, so the last answer has arrived */
    server_close_note(conn, conn->sent);
    conn->sent = false;
    conn->last_bytes = conn->lent ? conn->sock->input->size : 0;
    conn->confirms = exchange_header(x, HTTP1_CONFIRMS).p != NULL;
    /* libh2o reads this flag only when it reads the head. A peer that confirms must still send its
     * confirmation. Such a peer closes the connection itself, because it was notified. */
    if ((conn->announced || conn->server->draining) && !conn->lent)
        req->http1_is_persistent = conn->confirms;
    if (conn->lent && conn->server->opt.on_lent)
        conn->server->opt.on_lent(conn->server->handler_ctx);
    conn->server->busy++;
    return x;
}

/* Replaces no earlier note: a connection has at most one, for its last answer. */
void exchange_note(struct exchange *x, const struct exchange_note *note)
{
    struct server_conn *c = x->conn;

    CHECK(note->key.len >= EXCHANGE_NOTE_START && note->key.len <= sizeof(c->note_key));
    CHECK(!server_noted(c));
    memcpy(c->note_key, note->key.p, note->key.len);
    c->note = *note;
    c->note.key.p = c->note_key;
    list_append(server_notes(c->server, c->note.key), &c->noted);
}

void exchange_unnote(struct exchange *x)
{
    server_close_note(x->conn, false);
}

/* Sends the status line and headers. After that the request cannot be refused. */
static void start_answer(struct exchange *x, int status, const char *content_type)
{
    CHECK(!x->begun);
    x->begun = true;
    x->owed = 0;
    if (x->unheard) {
        exchange_mute(x);
        intake_pass_end(x->conn);
    }
    if (x->conn->lent)
        lent_answers(x->conn);
    h2o_context_update_timestamp_cache(&x->server->ctx); /* Date: libh2o's clock stands still */
    x->req->res.status = status;
    x->req->res.reason = http1_reason(status);
    if (content_type)
        h2o_add_header(&x->req->pool, &x->req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL,
                       content_type, strlen(content_type));
    h2o_start_response(x->req, &x->generator);
}

/* Writes the answer past libh2o, which would free the request after its answer. */
static void reply_stranded(struct exchange *x, int status, const char *content_type,
                           struct str body)
{
    const h2o_headers_t *all = &x->req->res.headers;
    struct buf answer = {0};

    buf_printf(&answer, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n", status,
               http1_reason(status), content_type, body.len);
    for (size_t i = 0; i < all->size; i++) {
        buf_add_str(&answer, str_of_iovec(*all->entries[i].name));
        buf_puts(&answer, ": ");
        buf_add_str(&answer, str_of_iovec(all->entries[i].value));
        buf_puts(&answer, "\r\n");
    }
    buf_puts(&answer, "Connection: close\r\n\r\n");
    buf_add_str(&answer, body);
    (void)send(x->conn->fd, answer.p, answer.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(x->conn->fd, SHUT_WR);
    buf_done(&answer);
}

static bool has_no_body(int status)
{
    return status == 204 || status == 304;
}

static void send_whole(struct exchange *x, int status, const char *content_type, struct str body)
{
    bool empty = has_no_body(status);

    if (x->stranded) {
        reply_stranded(x, status, content_type, body);
        return;
    }
    x->req->res.content_length = empty ? SIZE_MAX : body.len;
    start_answer(x, status, empty ? NULL : content_type);
    if (!empty && !str_eq_c(exchange_method(x), "HEAD"))
        buf_add_str(&x->waiting, body);
    x->ending = true;
    pump_waiting(x);
}

void exchange_reply(struct exchange *x, int status, const char *content_type, struct str body)
{
    if (!x->over)
        send_whole(x, status, content_type, body);
}

void exchange_reply_buf(struct exchange *x, int status, const char *content_type, struct buf *body)
{
    if (x->over || x->stranded || has_no_body(status)) {
        exchange_reply(x, status, content_type, buf_str(body));
        buf_done(body);
        return;
    }
    x->req->res.content_length = body->len;
    start_answer(x, status, content_type);
    x->waiting = *body;
    *body = (struct buf){0};
    x->ending = true;
    pump_waiting(x);
}

void exchange_start(struct exchange *x, const char *content_type)
{
    if (x->over)
        return;
    start_answer(x, 200, content_type);
    x->sending = true;
    h2o_send(x->req, NULL, 0, H2O_SEND_STATE_IN_PROGRESS);
    server_run_libh2o(x->server, x->conn->sock);
}

bool exchange_started(const struct exchange *x)
{
    return x->begun;
}

/* Passes the bytes on. `bytes` is empty afterwards, and may hold a used buffer for reuse. */
void exchange_send(struct exchange *x, struct buf *bytes)
{
    if (x->cut || x->over) {
        buf_clear(bytes);
        return;
    }
    if (x->waiting.len > 0 && x->waiting.len + bytes->len > PART_BYTES) {
        *vec_push(&x->parts) = x->waiting;
        x->parts_bytes += x->waiting.len;
        x->waiting = (struct buf){0};
    }
    if (x->waiting.len == 0 && (x->parts_bytes == 0 || bytes->len > PART_BYTES / 2)) {
        struct buf spare = x->waiting;

        x->waiting = *bytes;
        *bytes = spare;
    } else {
        if (x->waiting.len == 0) /* becomes a buffer of its own, which will not grow */
            (void)buf_reserve(&x->waiting, PART_BYTES);
        buf_add(&x->waiting, bytes->p, bytes->len);
    }
    buf_clear(bytes);
    unread_count(x);
    pump_waiting(x);
}

void exchange_on_space(struct exchange *x, exchange_space_fn room, void *ctx)
{
    x->room = room;
    x->room_ctx = ctx;
}

size_t exchange_waiting(const struct exchange *x)
{
    return exchange_unsent(x) + (x->sending ? flying_bytes(x).len : 0);
}

void exchange_end(struct exchange *x)
{
    if (x->over)
        return;
    x->ending = true;
    pump_waiting(x);
}

void exchange_fail(struct exchange *x)
{
    if (x->over)
        return;
    x->failing = true;
    x->req->http1_is_persistent = 0;
    pump_waiting(x); /* x may be gone now */
}

void exchange_hand_back(struct exchange *x)
{
    CHECK(!x->begun);
    x->closed = NULL;
    server_announce(x->conn);
    (void)shutdown(x->conn->fd, SHUT_WR);
    exchange_reply(x, 499, "text/plain", STR("")); /* the reply is only logged */
}

void exchange_mute(struct exchange *x)
{
    x->req->http1_is_persistent = 0;
    if (x->conn->lent)
        (void)shutdown(x->conn->fd, SHUT_RDWR);
}

/* Ends an exchange that has no peer, as far as its state permits. */
static void end_lonely(struct exchange *x)
{
    x->over = true;
    if (x->final) {
        x->req->http1_is_persistent = 0;
        return;
    }
    exchange_mute(x);
    if (!x->begun) {
        send_whole(x, 499, "text/plain", STR(""));
        return;
    }
    x->failing = true;
    pump_waiting(x);
}

void exchange_finish(struct exchange *x, unsigned n)
{
    x->owed = n;
}

void exchange_heed(struct exchange *x)
{
    if (x->owed > 0 && --x->owed == 0 && x->unheard)
        intake_pass_end(x->conn);
}

bool exchange_finishing(const struct exchange *x)
{
    return x->owed > 0;
}

/* Handles that the peer has left. A request that waits to begin but must be finished anyway
 * (server_options.finishes) is kept: its handler is called first (start_request, server.c). */
void exchange_left(struct exchange *x)
{
    const struct server *s = x->conn->server;
    bool waits = list_holds(&x->late);

    x->unheard = x->owed > 0;
    if (!x->unheard && !(waits && s->opt.finishes && s->opt.finishes(s->handler_ctx, x)))
        exchange_abandon(x);
}

/* Ends the exchange because its peer has left. */
void exchange_abandon(struct exchange *x)
{
    list_remove(&x->late);
    call_closed(x, false);
    if (x->held)
        x->abandoned = true;
    else
        end_lonely(x);
}

void exchange_hold(struct exchange *x)
{
    CHECK(!x->held);
    x->held = true;
}

void exchange_unhold(struct exchange *x)
{
    x->held = false;
    if (x->abandoned)
        end_lonely(x);
}

void exchange_strand(struct exchange *x)
{
    CHECK(x->held && !x->begun);
    x->stranded = true;
    x->closed = NULL;
    forget_awaiting(x);
    loop_del(x->conn->server->loop, &x->conn->watch);
    if (x->conn->lent)
        lent_strand(x->conn);
    x->conn->server->busy--;
}
