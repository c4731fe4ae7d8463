/* HTTP/1.1 of a worker over libh2o (server.h). libh2o has a loop of its own, which never waits:
 * our loop watches its epoll descriptor, and calls libh2o when that is readable or when we have
 * given it work (server_run_libh2o). An answer that the kernel takes at once costs no poll.
 *
 *   connection readable -> on_watch -> intake_read -> libh2o parses -> on_request -> handler
 *   answer written, accept, end -> run_libh2o -> libh2o's callbacks
 *
 * Each connection is watched by our loop (on_watch): we read requests for libh2o (intake.c), and
 * see when the peer leaves, when a router confirms a delivery, and how much of an unfinished body
 * has come. A retiring worker announces 199 on connections without an answer under way, serves
 * what still comes, and after PATIENCE_MS shuts the rest. */

#include "common/serve/server.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
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

/* Time limit of libh2o for a request: a year, because the router keeps the real ones. libh2o's
 * clock stands still while it has no work, so a connection would seem to be as old as that. */
#define REQUEST_TIMEOUT_MS (365 * UINT64_C(86400000))

/* The handler that libh2o calls, with a pointer back to our server. */
struct server_entry {
    h2o_handler_t super;
    struct server *server;
};

static struct server_conn *conn_of(h2o_req_t *req)
{
    return req->conn->callbacks->get_socket(req->conn)->on_close.data;
}

/* libh2o calls back for written bytes after each entry of a timeout. This one is for that only. */
static void on_flush(h2o_timeout_entry_t *t)
{
    (void)t;
}

/* Runs libh2o's callbacks that need no system call, then its loop if sockets have changed. */
static void run_libh2o(struct server *s)
{
    h2o_timeout_link(s->evloop, &s->ctx.zero_timeout, &s->flush);
    h2o_timeout_run(s->evloop, &s->ctx.zero_timeout, h2o_now(s->evloop));
    if (s->changed) {
        s->changed = false;
        (void)h2o_evloop_run(s->evloop, 0);
    }
    if (!s->changed)
        loop_task_cancel(s->loop, &s->run);
}

static void on_libh2o_ready(struct loop_io *io, unsigned events)
{
    struct server *s = CONTAINER_OF(io, struct server, libh2o);

    (void)events;
    s->changed = true;
    run_libh2o(s);
}

static void on_libh2o_work(struct loop_task *t)
{
    run_libh2o(CONTAINER_OF(t, struct server, run));
}

void server_run_libh2o(struct server *s, const h2o_socket_t *sock)
{
    bool written = sock && (const void *)s->evloop->_pending_as_server == (const void *)sock;

    s->changed = s->changed || !written;
    loop_task_post_last(s->loop, &s->run, on_libh2o_work);
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

    if (conn_of(req)->refused) {
        /* the handler was notified already; the reply is only logged */
        exchange_reply(x, 499, "text/plain", STR(""));
    } else if (list_is_empty(&s->late) && loop_has_time(s->loop)) {
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
    server_run_libh2o(c->server, NULL); /* frees the socket */
    free(c);
}

/* Refuses a connection that could not be watched: its arriving bytes would never be reported.
 * libh2o sees the end. */
static void refuse_unwatched(struct server_conn *c, const struct err *e)
{
    log_warn(NULL, "cannot watch a connection", LOG_T("error", e->text));
    c->refused = true;
    (void)shutdown(c->fd, SHUT_RDWR);
    server_run_libh2o(c->server, NULL);
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
    server_run_libh2o(s, NULL);
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
    for (int i = 0; i < ACCEPT_BATCH && accept_one(s, listener); i++)
        ;
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

/* Returns libh2o's epoll descriptor, which libh2o 2.2.5 keeps directly behind the public part of
 * its loop. */
static int libh2o_fd(const h2o_evloop_t *evloop)
{
    struct epoll_event ready;
    int fd;

    memcpy(&fd, evloop + 1, sizeof(fd));
    CHECK(epoll_wait(fd, &ready, 1, 0) == 0);
    return fd;
}

int server_new(struct loop *loop, const struct server_options *o, server_handler_fn handler,
               void *ctx, struct server **ret, struct err *e)
{
    struct server *s = mem_zalloc(sizeof(*s));
    int fd;

    s->loop = loop;
    s->opt = *o;
    s->handler = handler;
    s->handler_ctx = ctx;
    s->flush.cb = on_flush;
    setup_conf(s);
    s->evloop = h2o_evloop_create();
    fd = libh2o_fd(s->evloop);
    h2o_context_init(&s->ctx, s->evloop, &s->conf);
    s->accept = (h2o_accept_ctx_t){.ctx = &s->ctx, .hosts = s->conf.hosts};
    if (loop_add(loop, &s->libh2o, fd, LOOP_IN | LOOP_LEVEL, on_libh2o_ready, e)) {
        server_free(s);
        return -1;
    }
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
    server_run_libh2o(s, NULL);
}

/* A stop that came before the run, while the owner drove the loop, counts, too. */
void server_run(struct server *s)
{
    if (!s->stop)
        loop_run(s->loop);
    s->stop = false;
}

void server_stop(struct server *s)
{
    s->stop = true;
    loop_stop(s->loop);
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
        server_check_confirmation(c); /* libh2o may see the end before our watch does */
        intake_stop_libh2o(c);
        if (lent_leaves(c))
            continue;
        (void)shutdown(c->fd, SHUT_RDWR);
        intake_resume_libh2o(c);
        if (c->exchange)
            exchange_abandon(c->exchange);
    }
    for (int i = 0; i < 8 && !list_is_empty(&s->conns); i++)
        (void)loop_poll(s->loop, 1);
}

void server_free(struct server *s)
{
    h2o_multithread_queue_t *queue;

    if (!s)
        return;
    server_drain(s);
    close_exchanges(s);
    lent_end_all(s);
    s->changed = true;
    run_libh2o(s);
    loop_task_cancel(s->loop, &s->run);
    loop_del(s->loop, &s->libh2o);
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
