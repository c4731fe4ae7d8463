/* HTTP/1.1 of a worker over libh2o (server.h). Two loops run in one thread: libh2o's is the
 * outer one and watches our own (loop_embed) as one readable socket, on_inner.
 *
 *   libh2o's loop:  connections -> on_request -> handler (at once, or on_begin_deferred)
 *                   our loop's descriptor -> on_inner -> loop_poll -> engines, timers, tasks
 *                   nothing of these      -> on_due -> timers and tasks, in the same turn
 *
 * Each connection is watched by our loop (on_watch): we read requests for libh2o (intake.c), and
 * see when the peer leaves, when a router confirms a delivery, and how much of an unfinished body
 * has come. A retiring worker announces 199 on connections without an answer under way, serves
 * what still comes, and after PATIENCE_MS shuts the rest. */

#include "common/serve/server.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/http1.h"
#include "common/os/loop.h"
#include "common/serve/exchange.h"
#include "common/serve/server_internal.h"

/* Connections accepted in one loop iteration, few because each adds work to the next iteration;
 * pause after a failed accept. */
enum { ACCEPT_BATCH = 2, PAUSE_MS = 100 };

enum { BEGIN_SLICE_US = 1000 }; /* longest time for beginning requests in one loop iteration */

enum { PATIENCE_MS = 5000 }; /* time that a drain gives peers to close their connections */

enum { REQUEST_TIMEOUT_MS = 3600 * 1000 }; /* the router keeps the real deadlines */

/* The handler that libh2o calls, with a pointer back to our server. */
struct server_entry {
    h2o_handler_t super;
    struct server *server;
};

static struct server_conn *conn_of(h2o_req_t *req)
{
    return req->conn->callbacks->get_socket(req->conn)->on_close.data;
}

static void record_turn(struct server *s)
{
    if (s->turn_us == 0)
        s->turn_us = clock_us();
}

static void on_begin_deferred(struct loop_task *t);

static void begin_later(struct server *s, struct exchange *x)
{
    deferred_add(s, x);
    loop_task_post(s->loop, &s->begin_late, on_begin_deferred);
}

/* Begins a request. An encoded body is decoded first, a piece at a time. If the peer has left by
 * now, it gets no answer; the handler gets `closed` as usual. */
static void start_request(struct server *s, struct exchange *x)
{
    if (!exchange_decode_body(x)) {
        begin_later(s, x);
        return;
    }
    if (x->conn->gone)
        intake_pass_end(x->conn);
    s->handler(s->handler_ctx, x); /* x may be gone */
}

static void on_begin_deferred(struct loop_task *t)
{
    struct server *s = CONTAINER_OF(t, struct server, begin_late);
    uint64_t until_us = clock_us() + BEGIN_SLICE_US;
    struct exchange *x;

    while ((x = deferred_next(s))) {
        start_request(s, x);
        if (clock_us() >= until_us)
            break;
    }
    if (!list_is_empty(&s->late))
        loop_task_post(s->loop, t, on_begin_deferred);
}

/* Begins a single request at once. If more descriptors are ready, their requests are read first,
 * which costs little. Then each owner's requests begin in turn, for a while in each loop iteration,
 * with other work between. */
static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
    struct server *s = ((struct server_entry *)(void *)self)->server;
    struct exchange *x = exchange_new(conn_of(req), req);

    record_turn(s);
    if (conn_of(req)->refused) {
        /* the handler was notified already; the reply is only logged */
        exchange_reply(x, 499, "text/plain", STR(""));
    } else if (list_is_empty(&s->late) && !loop_has_events(s->loop) &&
               clock_us() - s->turn_us < BEGIN_SLICE_US) {
        start_request(s, x);
    } else {
        begin_later(s, x);
    }
    return 0;
}

/* Reports whether the peer has sent bytes that are not of the present request: in the socket, or
 * read by libh2o. `empty`: the empty line of a confirmation counts, too. */
static bool server_has_input(const struct server_conn *c, bool empty)
{
    static const struct str line = STR_LIT("\r\n");
    /* libh2o's input still has a request that is being disposed of. */
    struct str had = str_of(c->sock->input->bytes, c->exchange ? 0 : c->sock->input->size);
    char peek[3];
    ssize_t n = recv(c->fd, peek, sizeof(peek), MSG_PEEK | MSG_DONTWAIT);
    struct str waits = str_of(peek, n > 0 ? (size_t)n : 0);

    if (empty)
        return had.len > 0 || waits.len > 0;
    if (str_eq(had, line))
        return waits.len > 0;
    return had.len > 0 || (waits.len > 0 && !str_eq(waits, line));
}

/* Wakes the exchanges that wait for the delivery with this key. */
static void wake_awaiting(struct server *s, struct str key)
{
    struct exchange *x, *next;

    for (x = s->awaiting; x; x = next) {
        next = x->next_awaiting;
        if (str_starts(key, x->awaited))
            exchange_wake(x);
    }
}

/* Closes the note of the connection's last answer: the answer has arrived or is lost. */
void server_close_note(struct server_conn *c, bool arrived)
{
    struct exchange_note note = c->note;

    if (!server_noted(c))
        return;
    c->note = (struct exchange_note){0};
    list_remove(&c->noted);
    if (arrived)
        note.arrived(note.ctx, note.key);
    if (note.drop)
        note.drop(note.ctx);
    wake_awaiting(c->server, note.key);
}

void server_check_confirmation(struct server_conn *c)
{
    if (server_noted(c) && (c->sent || exchange_given(c)) && c->confirms &&
        server_has_input(c, true))
        server_close_note(c, true);
}

/* Handles the kernel's events of the connection, next to libh2o. */
static void on_watch(struct loop_io *io, unsigned events)
{
    struct server_conn *c = CONTAINER_OF(io, struct server_conn, watch);
    bool left;

    if (events & LOOP_IN) {
        server_check_confirmation(c);
        server_count_input(c);
    }
    /* A peer's closed sending side means nothing in two cases. Either we shut the connection
     * ourselves (requests in the socket are still served). Or the peer of a lent connection may
     * just have read the whole answer. */
    if (c->shut || (c->lent && exchange_given(c)))
        events &= ~LOOP_RDHUP;
    left = (events & (LOOP_HUP | LOOP_ERR | LOOP_RDHUP)) && !c->gone;
    c->gone = c->gone || left;
    c->intake.unread = true;
    if (!c->exchange)
        intake_read(c); /* frees c, perhaps */
    else if (left)
        exchange_left(c->exchange); /* frees c, perhaps */
}

/* Takes over reading in the loop iteration in which an exchange has ended. libh2o has begun to
 * read, but has not waited yet. */
static void on_exchange_ended(h2o_timeout_entry_t *t)
{
    struct server_conn *c = CONTAINER_OF(t, struct server_conn, intake.rest);

    record_turn(c->server);
    intake_stop_libh2o(c);
    if (lent_leaves(c))
        return;
    if (!c->exchange && (c->intake.unread || c->refused))
        intake_read(c); /* frees c, perhaps */
}

void server_end_exchange(struct server_conn *c)
{
    struct server *s = c->server;

    if (!h2o_timeout_is_linked(&c->intake.rest))
        h2o_timeout_link(s->evloop, &s->ctx.zero_timeout, &c->intake.rest);
}

/* libh2o has closed the descriptor, so the kernel has removed the watch as well. */
static void on_conn_closed(void *data)
{
    struct server_conn *c = data;

    if (c->lent)
        lent_closed(c);
    else
        loop_forget(c->server->loop, &c->watch);
    intake_forget(c);
    h2o_timeout_unlink(&c->intake.rest);
    packed_input_done(&c->packed);
    server_close_note(c, false);
    server_count_unfinished(c, 0);
    c->server->n_conns--;
    list_remove(&c->item);
    free(c);
}

/* Refuses a connection that could not be watched: its arriving bytes would never be reported.
 * libh2o sees the end. */
static void refuse_unwatched(struct server_conn *c, const struct err *e)
{
    log_warn(NULL, "cannot watch a connection", LOG_T("error", e->text));
    c->refused = true;
    (void)shutdown(c->fd, SHUT_RDWR);
}

/* Makes the server_conn of an accepted socket. It lives until libh2o closes the socket. */
static void conn_open(struct server *s, h2o_socket_t *sock, int watch_fd, struct lent *t,
                      struct server_conn **ret)
{
    struct server_conn *c = mem_zalloc(sizeof(*c));
    struct err e = {0};

    *ret = c;
    c->server = s;
    c->lent = t;
    c->spoken = t != NULL;
    c->fd = h2o_socket_get_fd(sock);
    c->sock = sock;
    list_prepend(&s->conns, &c->item);
    s->n_conns++;
    sock->on_close.cb = on_conn_closed;
    sock->on_close.data = c;
    c->intake.rest.cb = on_exchange_ended;
    h2o_accept(&s->accept, sock);
    if (loop_add(s->loop, &c->watch, watch_fd, LOOP_IN | LOOP_RDHUP, on_watch, &e))
        refuse_unwatched(c, &e);
    else
        intake_stop_libh2o(c);
}

void server_open_lent(struct server *s, int fd, int watch_fd, struct lent *t,
                      struct server_conn **ret)
{
    conn_open(s, h2o_evloop_socket_create(s->evloop, fd, H2O_SOCKET_FLAG_IS_ACCEPTED_CONNECTION),
              watch_fd, t, ret);
}

static void on_accept(h2o_socket_t *listener, const char *err);

static void on_pause_end(struct loop_timer *t)
{
    struct server *s = CONTAINER_OF(t, struct server, pause);

    for (size_t i = 0; i < s->n_listeners; i++)
        h2o_socket_read_start(s->listeners[i], on_accept);
}

/* Pauses accepting when there are too many connections or no descriptors. Waiting connections stay
 * in the sockets' queues, and peers are asked to close idle connections. */
static void pause_accepting(struct server *s)
{
    struct server_conn *c;

    for (size_t i = 0; i < s->n_listeners; i++)
        h2o_socket_read_stop(s->listeners[i]);
    loop_timer_set(s->loop, &s->pause, PAUSE_MS, on_pause_end);
    LIST_EACH(&s->conns, c, struct server_conn, item) {
        if (!c->exchange)
            server_announce(c);
    }
}

/* Accepts a connection. False: no more waits, or none can be accepted now. */
static bool accept_one(struct server *s, h2o_socket_t *listener)
{
    h2o_socket_t *sock = NULL;
    struct server_conn *c;

    errno = EMFILE;
    if (s->n_conns < s->opt.max_connections)
        sock = h2o_evloop_socket_accept(listener);
    if (sock)
        conn_open(s, sock, h2o_socket_get_fd(sock), NULL, &c);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        pause_accepting(s);
    return sock != NULL;
}

/* Accepts a few connections in one loop iteration. */
static void on_accept(h2o_socket_t *listener, const char *err)
{
    struct server *s = listener->data;

    if (err)
        return;
    record_turn(s);
    for (int i = 0; i < ACCEPT_BATCH && accept_one(s, listener); i++)
        ;
}

/* Descriptors of our loop are ready. */
static void on_inner(h2o_socket_t *sock, const char *err)
{
    struct server *s = sock->data;

    (void)err;
    record_turn(s);
    h2o_timeout_unlink(&s->due);
    (void)loop_poll(s->loop, 0);
}

/* Timers are due in our loop, or tasks. */
static void on_due(h2o_timeout_entry_t *t)
{
    struct server *s = CONTAINER_OF(t, struct server, due);

    record_turn(s);
    (void)loop_poll_due(s->loop);
}

/* Runs our loop in the same iteration of libh2o's, unless that has taken long already. What is
 * linked without delay runs before the iteration ends, even if such a callback links it. */
static void on_wanted(void *ctx)
{
    struct server *s = ctx;

    if (s->turn_us > 0 && clock_us() - s->turn_us >= BEGIN_SLICE_US)
        return; /* run_turn will be called again */
    if (!h2o_timeout_is_linked(&s->due))
        h2o_timeout_link(s->evloop, &s->ctx.zero_timeout, &s->due);
}

/* Sets up libh2o: it writes nothing to disk, and the router keeps the time limits. */
static void setup_conf(struct server *s)
{
    h2o_hostconf_t *host;
    h2o_pathconf_t *path;
    struct server_entry *entry;

    h2o_config_init(&s->conf);
    s->conf.server_name = h2o_iovec_init(NULL, 0);
    s->conf.http1.upgrade_to_http2 = 0;
    s->conf.http1.req_timeout = REQUEST_TIMEOUT_MS;
    s->conf.max_request_entity_size = s->opt.max_body_bytes;
    h2o_socket_buffer_mmap_settings.threshold = SIZE_MAX; /* no temporary files */
    host = h2o_config_register_host(&s->conf, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    path = h2o_config_register_path(host, "/", 0);
    entry = (struct server_entry *)(void *)h2o_create_handler(path, sizeof(*entry));
    entry->super.on_req = on_request;
    entry->server = s;
}

/* Makes the server. From here on only server_run may drive the loop. */
int server_new(struct loop *loop, const struct server_options *o, server_handler_fn handler,
               void *ctx, struct server **ret, struct err *e)
{
    struct server *s;
    int fd = dup(loop_fd(loop));

    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot watch the loop");
    s = mem_zalloc(sizeof(*s));
    s->loop = loop;
    s->opt = *o;
    s->handler = handler;
    s->handler_ctx = ctx;
    setup_conf(s);
    s->evloop = h2o_evloop_create();
    h2o_context_init(&s->ctx, s->evloop, &s->conf);
    s->accept = (h2o_accept_ctx_t){.ctx = &s->ctx, .hosts = s->conf.hosts};
    s->inner = h2o_evloop_socket_create(s->evloop, fd, H2O_SOCKET_FLAG_DONT_READ);
    s->inner->data = s;
    h2o_socket_read_start(s->inner, on_inner);
    s->due.cb = on_due;
    loop_embed(loop, on_wanted, s);
    *ret = s;
    return 0;
}

void server_limit_bodies(struct server *s, size_t max_bytes, size_t max_unfinished_bytes)
{
    s->conf.max_request_entity_size = max_bytes;
    s->opt.max_unfinished_bytes = max_unfinished_bytes;
}

void server_listen(struct server *s, int fd)
{
    h2o_socket_t *l;

    if (s->draining)
        return;
    l = h2o_evloop_socket_create(s->evloop, dup(fd), H2O_SOCKET_FLAG_DONT_READ);
    l->data = s;
    s->listeners = mem_realloc_array(s->listeners, s->n_listeners + 1, sizeof(l));
    s->listeners[s->n_listeners++] = l;
    if (!loop_timer_active(&s->pause))
        h2o_socket_read_start(l, on_accept);
}

/* Returns how long an iteration of libh2o's loop, called at called_us, has held the thread. Our
 * callbacks record when they were called. Work of libh2o before them (reading, parsing) is visible
 * only in whole milliseconds, because libh2o records the end of its wait so. */
static uint64_t hold_us(const struct server *s, uint64_t called_us, uint64_t now_us)
{
    uint64_t seen_us = s->turn_us ? now_us - s->turn_us : 0;
    uint64_t woken_us = (h2o_now(s->evloop) + 1) * 1000;
    uint64_t wall_us = clock_read_us(CLOCK_REALTIME);

    if (wall_us > woken_us + seen_us && wall_us - woken_us <= now_us - called_us)
        return wall_us - woken_us;
    return seen_us;
}

/* Runs one iteration of both loops. Timers that become due end the wait, and fire in the next
 * iteration. */
static void run_turn(struct server *s, int32_t max_wait_ms)
{
    int64_t wait_ms = loop_next_timeout_ms(s->loop);

    s->turn_us = 0;
    if (wait_ms == 0)
        on_wanted(s);
    (void)h2o_evloop_run(s->evloop,
                         wait_ms < 0 || wait_ms > max_wait_ms ? max_wait_ms : (int32_t)wait_ms);
}

/* Runs until server_stop. Reports to the loop how long libh2o has held the thread. */
void server_run(struct server *s)
{
    uint64_t called_us = clock_us();

    while (!s->stop) {
        uint64_t now_us, us;

        run_turn(s, INT32_MAX);
        now_us = clock_us();
        us = hold_us(s, called_us, now_us);
        if (us > 0)
            loop_report_hold(s->loop, us);
        called_us = now_us;
    }
    s->stop = false;
}

void server_stop(struct server *s)
{
    s->stop = true;
}

/* Announces the drain on the connection, once. */
void server_announce(struct server_conn *c)
{
    static const char line[] = "HTTP/1.1 199 Retiring\r\n\r\n";

    _Static_assert(HTTP1_RETIRING == 199, "the line names it");
    if (c->lent) {
        lent_recall(c); /* the peer is a client, which does not know the announcement */
        return;
    }
    /* Nothing of ours is being written on this connection, so the socket accepts the whole text or
     * is broken. */
    if (!c->announced)
        (void)send(c->fd, line, sizeof(line) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    c->announced = true;
}

/* Shuts the connection of a peer that ignores the announcement. Requests in the socket are still
 * served. The peer's next write fails, which shows that it had no effect. */
static void shut_connection(struct server_conn *c)
{
    if (c->shut)
        return;
    c->shut = true;
    (void)shutdown(c->fd, SHUT_RD);
}

void server_drain(struct server *s)
{
    struct server_conn *c;

    if (s->draining)
        return;
    s->draining = true;
    /* A router that confirms closes its connection at once. on_watch must see the confirmation in
     * the loop iteration in which libh2o sees the end, or it is lost. */
    loop_serve_all(s->loop);
    s->patience_until_ms = clock_ms() + PATIENCE_MS;
    /* h2o_context_request_shutdown is not used, because it starts HTTP/2 timers that keep the
     * context busy. */
    s->ctx.shutdown_requested = 1;
    for (size_t i = 0; i < s->n_listeners; i++) {
        while (accept_one(s, s->listeners[i])) /* a request in the queue may have no other server */
            ;
        h2o_socket_close(s->listeners[i]);
    }
    s->n_listeners = 0;
    loop_timer_stop(s->loop, &s->pause);
    LIST_EACH(&s->conns, c, struct server_conn, item) {
        if (!c->exchange)
            server_announce(c);
    }
}

size_t server_busy(struct server *s)
{
    bool patient = s->draining && clock_ms() < s->patience_until_ms;
    size_t waiting = 0;
    struct server_conn *c;

    LIST_EACH(&s->conns, c, struct server_conn, item) {
        if (!s->draining || c->exchange)
            continue;
        if (patient || server_has_input(c, false))
            waiting++;
        else
            shut_connection(c);
    }
    return s->busy + waiting + (patient ? lent_unsent(s) : 0);
}

struct server_bytes server_bytes(const struct server *s)
{
    return (struct server_bytes){s->unfinished_bytes + s->body_bytes,
                                 s->answer_bytes + s->answers.bytes};
}

/* Ends pending requests as if their peers had left, because their data is freed next. libh2o gets a
 * few iterations to notice that its connections were shut. A callback may end other exchanges,
 * which are freed then, so the loop always takes the first one and moves it to the end. */
static void close_exchanges(struct server *s)
{
    struct server_conn *c;

    while ((c = LIST_FIRST_OF(&s->conns, struct server_conn, item)) && !c->ends) {
        c->ends = true;
        list_remove(&c->item);
        list_append(&s->conns, &c->item);
        intake_stop_libh2o(c);
        if (lent_leaves(c))
            continue;
        (void)shutdown(c->fd, SHUT_RDWR);
        intake_resume_libh2o(c);
        if (c->exchange)
            exchange_abandon(c->exchange);
    }
    for (int i = 0; i < 8 && !list_is_empty(&s->conns); i++)
        run_turn(s, 1);
}

void server_free(struct server *s)
{
    h2o_multithread_queue_t *queue;

    if (!s)
        return;
    server_drain(s);
    close_exchanges(s);
    lent_end_all(s);
    loop_embed(s->loop, NULL, NULL);
    h2o_timeout_unlink(&s->due);
    h2o_socket_close(s->inner);
    (void)h2o_evloop_run(s->evloop, 0);
    loop_task_cancel(s->loop, &s->begin_late);
    deferred_done(s);
    queue = s->ctx.queue;
    h2o_context_dispose(&s->ctx);
    free(queue); /* h2o 2.2.5 destroys the queue but does not free its memory */
    h2o_evloop_destroy(s->evloop);
    h2o_config_dispose(&s->conf);
    free(s->listeners);
    map_done(&s->unread);
    free(s);
}
