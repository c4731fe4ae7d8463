/*
 * Connections that routers lend (common/net/lending.h), on the server's side. The first bytes of a
 * link may say that it is a router's channel (lent_introduced). Then each GIVE message brings a
 * client's connection, which becomes a server_conn like any other. Differences:
 *
 *     before we read from it          the shared page says so (lent_reads)
 *     after each read (intake.c)      is this the request that the loan is for? (lent_goes_on)
 *     if not, or if recalled          return_connection: all bytes read so far go back in messages
 *     when its answer begins, ends    the shared page says so (lent_answers, lent_rests)
 *     when it ends by itself          the router gets a message, and closes its own descriptor
 *
 * A connection that is idle, or whose request comes slowly, returns as well: the router keeps all
 * time limits for clients. Returning makes libh2o close its descriptor. So it happens only where
 * libh2o waits for bytes: in intake_read, after an exchange, or in a task of ours.
 *
 * The connection's watch has a descriptor of its own. libh2o closes its descriptor before its
 * callback, but the epoll entry would remain, because the router has the socket open.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/lending.h"
#include "common/os/loop.h"
#include "common/serve/server_internal.h"

enum {
    SWEEP_MS = 1000,
    IDLE_MS = 10000,   /* an idle connection returns to its router after this time */
    PARTIAL_MS = 2000, /* time after which a connection with an incomplete request goes back */
    GIVE_BATCH = 8     /* connections accepted in one loop iteration: each brings its own work */
};

/* A router's channel. Lives until it has ended and all connections are gone. */
struct lender {
    struct server *server;
    struct list_item item; /* in server->lenders */
    struct loop_io io;
    int fd;
    struct lending_page *page;
    struct list_head lents;
    VEC(struct buf) unsent; /* messages that the channel has not accepted yet */
    struct loop_timer sweep;
    char *room; /* buffer for one message */
    bool ended; /* the channel is over: the router has closed it, or the server has */
};

struct lent {
    struct lender *lender;
    struct list_item item; /* in lender->lents */
    struct server_conn *conn;
    struct str head;  /* head of the request that the connection was lent for; owned */
    size_t length_at; /* offset of the digits of its Content-Length */
    uint32_t slot;
    uint32_t served;
    int watch_fd;
    bool recalled; /* must return as soon as it is idle */
    /* the loan is over for the router: it has the connection back, or closes it */
    bool let_go;
    /* when the connection became idle, or when the first bytes of an incomplete request came */
    uint64_t since_ms;
    struct loop_task back;
};

static void end_lender(struct lender *l);

static void mark_page(const struct lent *t, enum lending_state state)
{
    atomic_store_explicit(&t->lender->page->state[t->slot], (unsigned char)state,
                          memory_order_release);
}

static uint64_t now_ms(const struct lent *t)
{
    return loop_now_ms(t->lender->server->loop);
}

/* ------------------------------------------------------------------ messages to the router */

static void watch_writable(struct lender *l)
{
    loop_mod(l->server->loop, &l->io, LOOP_IN | LOOP_RDHUP | LOOP_OUT | LOOP_LEVEL);
}

/* Sends one message. Returns false if the channel is full. A channel that fails ends. */
static bool send_message(struct lender *l, const struct lending_message *m, struct str bytes)
{
    if (lending_send(l->fd, m, bytes, -1) == 0)
        return true;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
        return false;
    end_lender(l);
    return true;
}

/* Sends a message to the router, in order. A message that the channel does not accept yet waits. */
static void send_to_router(struct lender *l, const struct lending_message *m, struct str bytes)
{
    struct buf *waits;

    if (l->ended || (l->unsent.n == 0 && send_message(l, m, bytes)))
        return;
    waits = vec_push(&l->unsent);
    *waits = (struct buf){0};
    buf_add(waits, (const char *)m, sizeof(*m));
    buf_add_str(waits, bytes);
    watch_writable(l);
}

/* Sends the bytes that were read of a request, except for the last message, which is returned. */
static struct str send_pieces(struct server_conn *c)
{
    struct lending_message m = {.kind = LENDING_PIECE, .slot = c->lent->slot};
    struct str left = str_of(c->sock->input->bytes, c->sock->input->size);

    packed_input_open(&c->packed, left);
    for (; left.len > LENDING_MESSAGE_MAX; left = str_sub(left, LENDING_MESSAGE_MAX, SIZE_MAX))
        send_to_router(c->lent->lender, &m, str_sub(left, 0, LENDING_MESSAGE_MAX));
    return left;
}

/* Ends the loan: sends the router the bytes that were read so far. */
static void end_loan(struct lent *t, enum lending_kind kind, struct str bytes)
{
    struct lending_message m = {.kind = kind, .slot = t->slot, .length_at = t->served};

    t->let_go = true;
    send_to_router(t->lender, &m, bytes);
}

static void send_unsent(struct lender *l)
{
    size_t sent = 0;

    for (; !l->ended && sent < l->unsent.n; sent++) {
        struct str all = buf_str(&l->unsent.at[sent]);
        struct lending_message m;

        memcpy(&m, all.p, sizeof(m));
        if (!send_message(l, &m, str_sub(all, sizeof(m), SIZE_MAX)))
            break;
        if (!l->ended)
            buf_done(&l->unsent.at[sent]);
    }
    if (l->ended)
        return; /* nothing is left to send */
    memmove(l->unsent.at, l->unsent.at + sent, (l->unsent.n - sent) * sizeof(*l->unsent.at));
    l->unsent.n -= sent;
    if (l->unsent.n > 0)
        watch_writable(l);
}

/* ------------------------------------------------------------------ connections */

/* Returns the connection to its router and frees it. libh2o must be waiting for bytes of it. */
static void return_connection(struct server_conn *c)
{
    struct lent *t = c->lent;
    struct str last = send_pieces(c);
    h2o_socket_cb had = c->intake.had;

    if (c->sock->input->size == 0)
        mark_page(t, LENDING_IDLE); /* otherwise the message carries the bytes */
    end_loan(t, LENDING_BACK, last);
    c->intake.had = NULL;
    had(c->sock, "given back");
}

/* Reports whether the connection may return to its router: no request is being answered. A refused
 * peer does not return, because it has no request that the router could serve. */
static bool can_return(const struct server_conn *c)
{
    return !c->exchange && c->intake.had && !c->refused;
}

static void on_return(struct loop_task *task)
{
    struct server_conn *c = CONTAINER_OF(task, struct lent, back)->conn;

    if (!c->exchange)
        intake_stop_libh2o(c);
    if (can_return(c))
        return_connection(c); /* otherwise it returns when its exchange has ended */
}

void lent_recall(struct server_conn *c)
{
    c->lent->recalled = true;
    loop_task_post(c->server->loop, &c->lent->back, on_return);
}

bool lent_leaves(struct server_conn *c)
{
    if (!c->lent || !c->lent->recalled || !can_return(c))
        return false;
    return_connection(c);
    return true;
}

void lent_reads(struct server_conn *c)
{
    if (c->sock->input->size > 0)
        return;
    c->lent->since_ms = now_ms(c->lent);
    mark_page(c->lent, LENDING_ASKED);
}

bool lent_goes_on(struct server_conn *c)
{
    const struct lent *t = c->lent;
    struct str in = str_of(c->sock->input->bytes, c->sock->input->size);
    size_t whole;

    if (c->refused)
        return true; /* the connection has had its answer */
    if (!t->recalled && lending_matches(t->head, t->length_at, in, &whole) &&
        (whole == 0 || in.len <= whole) && whole <= c->server->conf.max_request_entity_size)
        return true;
    return_connection(c);
    return false;
}

void lent_rests(struct server_conn *c)
{
    if (c->sock->input->size == 0)
        mark_page(c->lent, LENDING_IDLE);
}

void lent_answers(struct server_conn *c)
{
    mark_page(c->lent, LENDING_ANSWERED);
}

void lent_answered(struct server_conn *c)
{
    struct lent *t = c->lent;

    t->since_ms = now_ms(t);
    t->served++;
    mark_page(t, LENDING_IDLE);
}

void lent_strand(struct server_conn *c)
{
    mark_page(c->lent, LENDING_ANSWERED);
    end_loan(c->lent, LENDING_CLOSED, (struct str){0});
}

static void free_lent(struct lent *t)
{
    close(t->watch_fd);
    free((char *)(uintptr_t)t->head.p);
    free(t);
}

/* Frees a lender whose channel has ended and that has no connection left. */
static void free_lender(struct lender *l)
{
    if (!l->ended || !list_is_empty(&l->lents))
        return;
    loop_timer_stop(l->server->loop, &l->sweep);
    vec_done(&l->unsent);
    lending_unmap(l->page);
    list_remove(&l->item);
    free(l->room);
    free(l);
}

void lent_closed(struct server_conn *c)
{
    struct lent *t = c->lent;
    struct lender *l = t->lender;

    loop_del(c->server->loop, &c->watch);
    /* if the channel ends now, this connection must not be returned a second time */
    list_remove(&t->item);
    if (!t->let_go)
        end_loan(t, LENDING_CLOSED, (struct str){0});
    loop_task_cancel(c->server->loop, &t->back);
    free_lent(t);
    free_lender(l);
}

/* ------------------------------------------------------------------ channels */

static bool is_due(const struct lent *t)
{
    const struct server_conn *c = t->conn;
    uint64_t max_ms = c->sock->input->size > 0 ? PARTIAL_MS : IDLE_MS;

    return !c->exchange && now_ms(t) - t->since_ms >= max_ms;
}

static void on_sweep(struct loop_timer *timer)
{
    struct lender *l = CONTAINER_OF(timer, struct lender, sweep);
    struct lent *t;

    LIST_EACH(&l->lents, t, struct lent, item) {
        if (is_due(t))
            lent_recall(t->conn);
    }
    if (!list_is_empty(&l->lents))
        loop_timer_set(l->server->loop, timer, SWEEP_MS, on_sweep);
}

/* Ends the channel, because the router has ended or broke the rules. Idle connections are closed,
 * present requests are answered. */
static void end_lender(struct lender *l)
{
    struct lent *t;

    if (l->ended)
        return;
    l->ended = true;
    loop_del(l->server->loop, &l->io);
    close(l->fd);
    for (size_t i = 0; i < l->unsent.n; i++)
        buf_done(&l->unsent.at[i]);
    l->unsent.n = 0;
    LIST_EACH(&l->lents, t, struct lent, item)
        lent_recall(t->conn);
}

static void recall_all(struct lender *l)
{
    struct lent *t;

    LIST_EACH(&l->lents, t, struct lent, item)
        lent_recall(t->conn);
}

/* Reports whether the server can serve a further lent connection, which could as well stay with its
 * router. A lent connection needs one more descriptor than others. */
static bool has_capacity(const struct server *s)
{
    return !s->draining && s->n_conns < s->opt.max_connections / 2;
}

/* Returns a connection that the server does not accept. If the server is ending, the router does
 * not count that against the connection. */
static void refuse_loan(struct lender *l, uint32_t slot)
{
    struct lending_message m = {
        .kind = LENDING_BACK, .slot = slot, .length_at = l->server->draining ? UINT32_MAX : 0};

    send_to_router(l, &m, (struct str){0});
}

/* Accepts a lent connection. Takes ownership of both descriptors: fd becomes libh2o's. */
static void accept_loan(struct lender *l, const struct lending_message *m, struct str head, int fd,
                        int watch_fd)
{
    struct lent *t = mem_zalloc(sizeof(*t));

    *t = (struct lent){.lender = l,
                       .slot = m->slot,
                       .head = str_of(mem_strndup(head.p, head.len), head.len),
                       .length_at = m->length_at,
                       .watch_fd = watch_fd};
    t->since_ms = now_ms(t);
    list_append(&l->lents, &t->item);
    server_open_lent(l->server, fd, watch_fd, t, &t->conn);
    if (!loop_timer_active(&l->sweep))
        loop_timer_set(l->server->loop, &l->sweep, SWEEP_MS, on_sweep);
}

/* Accepts or refuses a loan. A message without a descriptor, which this process may have been
 * unable to receive, is ignored. */
static void accept_or_refuse(struct lender *l, const struct lending_message *m, struct str head,
                             int fd)
{
    int watch_fd = fd >= 0 && has_capacity(l->server) ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;

    if (watch_fd >= 0) {
        accept_loan(l, m, head, fd, watch_fd);
        return;
    }
    if (fd >= 0)
        close(fd);
    refuse_loan(l, m->slot);
}

/* Handles one message of the router. Returns false if the channel must be ended. */
static bool handle_message(struct lender *l, const struct lending_message *m, struct str bytes,
                           int fd)
{
    if (m->kind == LENDING_GIVE && bytes.len <= LENDING_HEAD_MAX && m->length_at < bytes.len) {
        accept_or_refuse(l, m, bytes, fd);
        return true;
    }
    if (fd >= 0)
        close(fd);
    if (m->kind != LENDING_RECALL)
        return false;
    recall_all(l);
    return true;
}

/* Reads messages of the router. The interest is level-triggered, so the loop calls again for the
 * remaining ones. */
static void on_channel(struct loop_io *io, unsigned events)
{
    struct lender *l = CONTAINER_OF(io, struct lender, io);

    if (events & LOOP_OUT) {
        loop_mod(l->server->loop, io, LOOP_IN | LOOP_RDHUP | LOOP_LEVEL);
        send_unsent(l);
    }
    for (int i = 0; i < GIVE_BATCH && !l->ended; i++) {
        struct lending_message m;
        struct str bytes;
        int fd, r = lending_receive(l->fd, l->room, &m, &bytes, &fd);

        if (r < 0)
            break;
        if (r == 0 || !handle_message(l, &m, bytes, fd))
            end_lender(l);
    }
    free_lender(l);
}

static void open_lender(struct server *s, int fd, struct lending_page *page)
{
    struct lender *l = mem_zalloc(sizeof(*l));
    struct err e;

    l->server = s;
    l->fd = fd;
    l->page = page;
    l->room = mem_alloc(LENDING_MESSAGE_MAX);
    list_append(&s->lenders, &l->item);
    if (loop_add(s->loop, &l->io, fd, LOOP_IN | LOOP_RDHUP | LOOP_LEVEL, on_channel, &e) == 0)
        return;
    log_warn(NULL, "a router's lent connections are not taken", LOG_T("error", e.text));
    l->ended = true;
    close(fd);
    free_lender(l);
}

bool lent_introduced(struct server *s, struct str first, const int fds[2])
{
    bool opens = str_eq(first, STR(LENDING_OPENS)) && fds[0] >= 0 && fds[1] >= 0 && !s->draining;
    struct lending_page *page = NULL;
    struct err e = {0};

    if (opens)
        page = lending_map(fds[1], &e);
    if (opens && !page)
        log_warn(NULL, "a router's lent connections are not taken", LOG_T("error", e.text));
    if (page)
        open_lender(s, fds[0], page);
    else if (fds[0] >= 0)
        close(fds[0]);
    if (fds[1] >= 0)
        close(fds[1]);
    return page != NULL;
}

size_t lent_unsent(const struct server *s)
{
    const struct lender *l;
    size_t n = 0;

    LIST_EACH(&s->lenders, l, struct lender, item)
        n += l->unsent.n;
    return n;
}

void lent_end_all(struct server *s)
{
    struct lender *l, *next;

    LIST_EACH_SAFE(&s->lenders, l, next, struct lender, item) {
        end_lender(l);
        free_lender(l);
    }
}
