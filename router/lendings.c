/* Each worker has a channel, which is opened when the first connection is lent, and a table of
 * slots. A slot is in use from GIVE until BACK or CLOSED arrives for it, or the channel ends. It
 * stays in use even if the connection is closed here meanwhile (its entry is NULL then), because
 * the worker may still use it. When a channel ends, its worker has ended. The shared page shows
 * what to do with each connection. */

#include "router/lendings.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/http1.h"
#include "common/net/lending.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/conn.h"
#include "router/gate.h"
#include "router/hub.h"
#include "router/upstreams.h"

enum {
    AFTER_MOST = 4096, /* most requests in a row that a connection may need */
    SERVED_MANY = 4,   /* number of served requests that make lending worth it */
    REOPEN_MS = 10000, /* pause after a channel could not be opened, or has ended */
    MESSAGES_A_TURN = 16
};

/* Channel to one worker. */
struct channel {
    struct lendings *all;
    struct loop_io io;
    int fd; /* -1: not open */
    struct lending_page *page;
    unsigned upstream;
    uint64_t closed_until_ms;
    bool recalls; /* RECALL must still be sent */
    bool taken[LENDING_SLOTS];
    struct conn *lent[LENDING_SLOTS]; /* NULL: free, or closed by the router */
    uint16_t free_slots[LENDING_SLOTS];
    size_t n_free;
};

struct lendings {
    struct hub *hub;
    lendings_back_fn back;
    struct channel *channels[BOARD_WORKERS_MAX]; /* made at first use */
};

/* ------------------------------------------------------------------ which */

static bool is_model_call(const struct http1_head *h)
{
    return str_eq(h->method, STR("POST")) && gate_dialect(h->target) != METRIC_DIALECT_CONTROL;
}

void lendings_note(struct conn *c, int upstream)
{
    const struct hub *h = c->hub;
    unsigned after = (unsigned)h->config->lend_after;
    struct str head;
    size_t length_at;

    buf_done(&c->lent.head);
    if (c->tls || after == 0 || upstream < 0 || upstream >= BOARD_WORKERS_MAX ||
        !upstreams_confirmed(h->upstreams, upstream) || !is_model_call(h->head) ||
        !lending_plain(h->head, &head, &length_at)) {
        c->lent.alike = 0;
        return;
    }
    if (c->lent.upstream != upstream)
        c->lent.alike = 0;
    c->lent.upstream = upstream;
    if (++c->lent.alike < MAX_OF(after, c->lent.after))
        return;
    buf_add_str(&c->lent.head, head);
    c->lent.length_at = length_at;
}

/* ------------------------------------------------------------------ back again */

/* Puts the connection back into state HEAD and its socket into the loop. Closes it if the loop
 * refuses the socket. */
static void watch_again(struct conn *c)
{
    struct err e;

    conn_not_lent(c);
    c->lent.alike = 0;
    conn_set_state(c, CONN_HEAD);
    conn_set_deadline(c, (uint64_t)c->hub->config->idle_timeout_ms);
    if (conn_watch(c, &e) != 0)
        conn_close(c);
}

/* Resumes a connection that the worker returned after `served` requests. `bytes` are the last ones
 * that the worker read; c->in has the earlier ones. */
static void resume_returned(struct conn *c, struct str bytes, size_t served)
{
    unsigned after = MAX_OF(c->lent.after, (unsigned)c->hub->config->lend_after);

    c->lent.after = served >= SERVED_MANY ? 0 : MIN_OF(2 * after, (unsigned)AFTER_MOST);
    watch_again(c);
    if (c->state == CONN_CLOSED)
        return;
    buf_add_str(&c->in, bytes);
    c->in_seen = 0;
    c->readable = true;
    c->hub->lendings->back(c);
}

/* Answers with an error: the worker has read a request and will not answer it. */
static void fail_request(struct conn *c)
{
    struct err e;

    buf_done(&c->in); /* the start of a request whose rest is lost */
    watch_again(c);
    if (c->state == CONN_CLOSED)
        return;
    err_set(&e, ERR_WORKER_UNAVAILABLE, "the session-worker ended before it answered");
    hub_blame_worker(c->hub, c->session, c->lent.upstream, e.text);
    conn_fail(c, &e);
    c->hub->run(c);
}

static enum lending_state state_of(const struct channel *ch, uint32_t slot)
{
    return (enum lending_state)atomic_load_explicit(&ch->page->state[slot], memory_order_acquire);
}

/* Resolves a slot whose connection the worker has closed, or whose worker has ended, by the state
 * on the page. */
static void resolve_slot(struct channel *ch, uint32_t slot, bool ended)
{
    struct conn *c = ch->lent[slot];
    enum lending_state state = state_of(ch, slot);

    ch->lent[slot] = NULL;
    if (!c)
        return;
    if (state == LENDING_ASKED)
        fail_request(c);
    else if (state == LENDING_IDLE && ended)
        resume_returned(c, (struct str){0}, SERVED_MANY);
    else
        conn_close(c);
}

/* ------------------------------------------------------------------ channels */

static void close_channel(struct channel *ch)
{
    if (ch->fd < 0)
        return;
    loop_del(ch->all->hub->loop, &ch->io);
    close(ch->fd);
    ch->fd = -1;
    ch->closed_until_ms = loop_now_ms(ch->all->hub->loop) + REOPEN_MS;
}

/* Ends a channel. All messages of the worker have been read. */
static void end_channel(struct channel *ch)
{
    close_channel(ch);
    for (uint32_t slot = 0; slot < LENDING_SLOTS; slot++)
        resolve_slot(ch, slot, true);
    lending_unmap(ch->page);
    ch->page = NULL;
}

static void handle_message(struct channel *ch, const struct lending_message *m, struct str bytes)
{
    struct conn *c = ch->lent[m->slot];

    if (m->kind == LENDING_PIECE) {
        if (c)
            buf_add_str(&c->in, bytes);
        return;
    }
    ch->taken[m->slot] = false;
    ch->free_slots[ch->n_free++] = (uint16_t)m->slot;
    if (m->kind == LENDING_CLOSED) {
        resolve_slot(ch, m->slot, false);
        return;
    }
    ch->lent[m->slot] = NULL;
    if (c)
        resume_returned(c, bytes, m->length_at);
}

static void send_recall(struct channel *ch)
{
    struct lending_message m = {.kind = LENDING_RECALL};

    ch->recalls = lending_send(ch->fd, &m, (struct str){0}, -1) != 0;
    loop_mod(ch->all->hub->loop, &ch->io,
             LOOP_IN | LOOP_RDHUP | LOOP_LEVEL | (ch->recalls ? LOOP_OUT : 0));
}

/* Handles the messages of a channel, each before the next one is read into the scratch. */
static void on_channel(struct loop_io *io, unsigned events)
{
    struct channel *ch = CONTAINER_OF(io, struct channel, io);

    if ((events & LOOP_OUT) && ch->recalls)
        send_recall(ch);
    for (int i = 0; i < MESSAGES_A_TURN; i++) {
        struct lending_message m;
        struct str bytes;
        int fd, r = lending_receive(ch->fd, ch->all->hub->scratch, &m, &bytes, &fd);
        bool good = r > 0 && fd < 0 && ch->taken[m.slot] &&
                    (m.kind == LENDING_PIECE || m.kind == LENDING_BACK || m.kind == LENDING_CLOSED);

        if (r < 0)
            return;
        if (r > 0 && fd >= 0)
            close(fd);
        if (!good) {
            end_channel(ch);
            return;
        }
        handle_message(ch, &m, bytes);
    }
}

/* Sends the channel to the worker on a separate link, which the worker closes. */
static int announce_channel(struct channel *ch, const struct lending_channel *made, struct err *e)
{
    int link = upstreams_dial(ch->all->hub->upstreams, ch->upstream);
    int r = link >= 0 ? lending_introduce(link, made) : -1;

    if (r != 0)
        (void)err_sys(e, ERR_IO, "cannot reach the session-worker");
    if (link >= 0)
        close(link);
    return r;
}

static void reset_slots(struct channel *ch)
{
    ch->n_free = 0;
    memset(ch->taken, 0, sizeof(ch->taken));
    for (uint32_t i = LENDING_SLOTS; i > 0; i--)
        ch->free_slots[ch->n_free++] = (uint16_t)(i - 1);
}

static int open_channel(struct channel *ch, struct err *e)
{
    struct hub *h = ch->all->hub;
    struct lending_channel made;
    int r;

    if (lending_open(&made, e) != 0)
        return -1;
    r = announce_channel(ch, &made, e);
    close(made.fd_of_worker);
    close(made.page_fd);
    if (r == 0)
        r = loop_add(h->loop, &ch->io, made.fd, LOOP_IN | LOOP_RDHUP | LOOP_LEVEL, on_channel, e);
    if (r != 0) {
        close(made.fd);
        lending_unmap(made.page);
        return -1;
    }
    ch->fd = made.fd;
    ch->page = made.page;
    ch->recalls = false;
    reset_slots(ch);
    return 0;
}

/* Returns the open channel to that worker, or NULL if there is none now. */
static struct channel *channel_to(struct lendings *l, unsigned upstream)
{
    struct channel *ch = l->channels[upstream];
    struct err e;

    if (!ch) {
        ch = l->channels[upstream] = mem_zalloc(sizeof(*ch));
        ch->all = l;
        ch->fd = -1;
        ch->upstream = upstream;
    }
    if (ch->fd >= 0)
        return ch;
    if (loop_now_ms(l->hub->loop) < ch->closed_until_ms)
        return NULL;
    if (open_channel(ch, &e) == 0)
        return ch;
    log_warn(NULL, "connections are not lent to a session-worker", LOG_U("upstream", upstream),
             LOG_T("reason", e.text));
    ch->closed_until_ms = loop_now_ms(l->hub->loop) + REOPEN_MS;
    return NULL;
}

/* ------------------------------------------------------------------ lending */

/* Sets the kernel's timeout for unread answers, because a worker does not watch slow clients. */
static bool set_kernel_timeout(struct conn *c)
{
    unsigned ms = (unsigned)MIN_OF(c->hub->config->send_timeout_ms, (int64_t)INT32_MAX);

    return setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)) == 0;
}

static bool may_lend(const struct conn *c)
{
    return c->hub->config->lend_after > 0 && c->lent.head.len > 0 && c->in.len == 0 && !c->hup &&
           !c->hub->draining && c->status < 400;
}

bool lendings_lend(struct conn *c)
{
    struct lending_message m = {.kind = LENDING_GIVE, .length_at = (uint32_t)c->lent.length_at};
    struct channel *ch;

    if (!may_lend(c))
        return false;
    ch = channel_to(c->hub->lendings, (unsigned)c->lent.upstream);
    if (!ch || ch->n_free == 0 || !set_kernel_timeout(c))
        return false;
    m.slot = ch->free_slots[ch->n_free - 1];
    atomic_store_explicit(&ch->page->state[m.slot], LENDING_IDLE, memory_order_release);
    conn_unwatch(c);
    if (lending_send(ch->fd, &m, buf_str(&c->lent.head), c->fd) != 0) {
        struct err e;

        if (conn_watch(c, &e) != 0)
            conn_close(c);
        return c->state == CONN_CLOSED;
    }
    ch->n_free--;
    ch->taken[m.slot] = true;
    ch->lent[m.slot] = c;
    c->lent.place = &ch->lent[m.slot];
    buf_done(&c->lent.head);
    conn_no_deadline(c);
    conn_set_state(c, CONN_LENT);
    metrics_move_at(c->hub->page, METRIC_connections_lent, 0, 1);
    return true;
}

void lendings_recall(struct lendings *l)
{
    for (size_t i = 0; i < ARRAY_LEN(l->channels); i++)
        if (l->channels[i] && l->channels[i]->fd >= 0)
            send_recall(l->channels[i]);
}

/* ------------------------------------------------------------------ life */

struct lendings *lendings_new(struct hub *h, lendings_back_fn back)
{
    struct lendings *l = mem_zalloc(sizeof(*l));

    l->hub = h;
    l->back = back;
    return l;
}

void lendings_free(struct lendings *l)
{
    for (size_t i = 0; l && i < ARRAY_LEN(l->channels); i++) {
        if (!l->channels[i])
            continue;
        close_channel(l->channels[i]);
        lending_unmap(l->channels[i]->page);
        free(l->channels[i]);
    }
    free(l);
}
