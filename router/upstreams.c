/* A pool of idle links for each worker, peer and the dispatcher. If an upstream cannot be reached,
 * requests that any worker may serve avoid it for SHUN_MS. Links get descriptors above all clients'
 * (lift_descriptor; upstreams.h says why). */

#include "router/upstreams.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/cancel.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/net/resolve.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "router/node_address.h"
#include "router/socket_address.h"

enum {
    SEND_BUFFER = 1 << 20, /* Unix sockets: with the default of 208 KB large uploads pause often */
    SHUN_MS = 1000,
    IDLE_MAX_MS = 55000,
    SWEEP_MS = 5000,
    RETRY_MS = 5,
    CONNECT_MS = 2000,
    PROBE_IDLE_S = 10, /* TCP keep-alive */
    PROBE_S = 5,
    PROBES = 3,
    UNREAD_MS = 25000, /* TCP_USER_TIMEOUT */
    ABOVE_FIRST = 256, /* initial value of upstreams.above */
    PEERS_MAX = 256,
    DISPATCHER = BOARD_WORKERS_MAX + PEERS_MAX /* index of the dispatcher in `at` */
};

struct upstream {
    struct socket_address to;
    struct list_head idle; /* links, newest first */
    uint64_t shunned_until_ms;
};

_Static_assert((int)PEERS_MAX == (int)FLEET_NODES_MAX,
               "the nodes of a fleet have the peers' slots");

/* Worker indexes of a different gateway, --peer FIRST-LAST=HOST:PORT. */
struct peer_range {
    uint32_t first, last;
};

struct upstreams {
    const struct heritage *heritage;
    struct loop *loop;
    struct upstream at[DISPATCHER + 1]; /* own workers, then peers, then the dispatcher */
    struct peer_range peers[PEERS_MAX];
    size_t peer_count;
    struct node_address *nodes; /* addresses by slot; NULL without --fleet */
    size_t links, idle_links;   /* number of open links; of idle ones */
    unsigned turn;
    int above; /* all clients' descriptors are below this one */
    bool left_behind;
    struct loop_timer sweep;
};

static void close_idle(struct upstream *at);

/* ------------------------------------------------------------------ addresses */

/* Sets the addresses of the workers' sockets, from the settings or in the run folder. */
static int parse_workers(struct upstreams *u, const struct heritage *h, struct err *e)
{
    const struct config_list *given = &h->config->upstream;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];

    if (given->n > BOARD_WORKERS_MAX)
        return err_set(e, ERR_CONFIG, "more than %d upstreams", BOARD_WORKERS_MAX);
    for (size_t i = 0; i < given->n; i++)
        if (socket_address_parse(&u->at[i].to, given->at[i], e) != 0)
            return -1;
    for (uint32_t i = 0; given->n == 0 && i < BOARD_WORKERS_MAX; i++) {
        if (heritage_socket_path(h->run_dir, h->board->worker_base + i, path, sizeof(path)) != 0)
            return err_set(e, ERR_CONFIG, "the run folder's path is too long: %s", h->run_dir);
        if (socket_address_set_path(&u->at[i].to, path, e) != 0)
            return -1;
    }
    if (given->n > 0 || heritage_dispatcher_path(h->run_dir, path, sizeof(path)) != 0)
        return 0;
    return socket_address_set_path(&u->at[DISPATCHER].to, path, e);
}

/* Parses FIRST-LAST. Returns -1 if it is not a range. */
static int parse_range(struct str text, struct peer_range *ret)
{
    size_t dash = str_find(text, STR("-"), 0);
    uint64_t first, last;

    if (dash == SIZE_MAX || str_to_u64(str_sub(text, 0, dash), ID_INDEX_MAX, &first) != 0 ||
        str_to_u64(str_sub(text, dash + 1, SIZE_MAX), ID_INDEX_MAX, &last) != 0 || first > last)
        return -1;
    *ret = (struct peer_range){(uint32_t)first, (uint32_t)last};
    return 0;
}

static bool ranges_meet(const struct peer_range *a, const struct peer_range *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Parses FIRST-LAST=HOST:PORT. */
static int parse_peer(struct peer_range *r, struct upstream *to, const char *text, struct err *e)
{
    struct str all = str_cstr(text);
    size_t equals = str_find(all, STR("="), 0);

    if (equals == SIZE_MAX || parse_range(str_sub(all, 0, equals), r) != 0)
        return err_set(e, ERR_CONFIG, "a peer is FIRST-LAST=HOST:PORT, not %s", text);
    return socket_address_parse(&to->to, text + equals + 1, e);
}

/* Appends a line for each index that has two owners. The first n ranges are peers', the next is
 * this node's own. */
static void check_owners(const struct config *c, const struct peer_range *ranges, size_t n,
                         struct buf *mistakes)
{
    const struct peer_range *own = &ranges[n];

    for (size_t i = 0; i < n; i++) {
        if (ranges_meet(&ranges[i], own))
            buf_printf(mistakes,
                       "--peer: %s: worker indexes %u-%u are this node's own (--worker-base, "
                       "--workers)\n",
                       c->peer.at[i], own->first, own->last);
        for (size_t k = 0; k < i; k++) {
            if (ranges_meet(&ranges[i], &ranges[k]))
                buf_printf(mistakes, "--peer: %s and %s have a worker index in common\n",
                           c->peer.at[k], c->peer.at[i]);
        }
    }
}

void upstreams_check(const struct config *c, struct buf *mistakes)
{
    struct upstream *to = mem_calloc(1, sizeof(*to));
    struct peer_range ranges[PEERS_MAX + 1];
    size_t before = mistakes->len, n = MIN_OF(c->peer.n, (size_t)PEERS_MAX);
    int64_t workers = c->upstream.n > 0 ? (int64_t)c->upstream.n : c->workers;
    struct err e;

    if (c->upstream.n > BOARD_WORKERS_MAX)
        buf_printf(mistakes, "--upstream: more than %d\n", BOARD_WORKERS_MAX);
    for (size_t i = 0; i < c->upstream.n; i++)
        if (socket_address_parse(&to->to, c->upstream.at[i], &e) != 0)
            buf_printf(mistakes, "--upstream: %s\n", e.text);
    if (c->peer.n > PEERS_MAX)
        buf_printf(mistakes, "--peer: more than %d\n", PEERS_MAX);
    for (size_t i = 0; i < n; i++)
        if (parse_peer(&ranges[i], to, c->peer.at[i], &e) != 0)
            buf_printf(mistakes, "--peer: %s\n", e.text);
    ranges[n] = (struct peer_range){(uint32_t)c->worker_base,
                                    (uint32_t)(c->worker_base + MAX_OF(workers, 1) - 1)};
    if (mistakes->len == before)
        check_owners(c, ranges, n, mistakes);
    free(to);
}

/* All peers are parsed before anything changes. */
int upstreams_reload_peers(struct upstreams *u, struct err *e)
{
    const struct config_list *given = &u->heritage->config->peer;
    struct peer_range ranges[PEERS_MAX];
    struct upstream *to = mem_calloc(PEERS_MAX, sizeof(*to));
    int r = 0;

    if (given->n > PEERS_MAX)
        r = err_set(e, ERR_CONFIG, "more than %d peers", PEERS_MAX);
    for (size_t i = 0; r == 0 && i < given->n; i++)
        r = parse_peer(&ranges[i], &to[i], given->at[i], e);
    if (r == 0) {
        memcpy(u->peers, ranges, given->n * sizeof(*ranges));
        u->peer_count = given->n;
        for (size_t i = 0; i < given->n; i++) {
            struct upstream *at = &u->at[BOARD_WORKERS_MAX + i];

            close_idle(at);
            at->to = to[i].to;
        }
    }
    free(to);
    return r;
}

/* ------------------------------------------------------------------ choice */

size_t upstreams_busy(const struct upstreams *u)
{
    return u->links - u->idle_links;
}

size_t upstreams_idle(const struct upstreams *u)
{
    return u->idle_links;
}

size_t upstreams_count(const struct upstreams *u)
{
    return atomic_load_explicit(&u->heritage->board->workers, memory_order_relaxed);
}

/* A place that a different worker has adopted keeps its own socket. A router that an upgrade left
 * behind is not informed of later places, so it treats every index of this node that is not a
 * peer's as served. */
int upstreams_find(const struct upstreams *u, uint32_t index)
{
    const struct board *b = u->heritage->board;

    if (board_resolve(b, index) >= 0)
        return board_place(b, index);
    for (size_t i = 0; i < u->peer_count; i++)
        if (index >= u->peers[i].first && index <= u->peers[i].last)
            return (int)(BOARD_WORKERS_MAX + i);
    if (u->left_behind && index - b->worker_base < BOARD_WORKERS_MAX)
        return (int)(index - b->worker_base);
    return -1;
}

int upstreams_find_node(struct upstreams *u, uint32_t slot)
{
    struct upstream *at = &u->at[BOARD_WORKERS_MAX + slot];
    const struct resolve_address *found = NULL;
    struct fleet_node node;

    if (place_table_node(u->heritage->fleet, slot, &node))
        found = node_address_find(&u->nodes[slot], u->loop, node.address);
    if (!found)
        return -1;
    if (at->to.len != found->len || memcmp(&at->to.addr, &found->addr, found->len) != 0) {
        close_idle(at);
        at->to.len = found->len;
        memcpy(&at->to.addr, &found->addr, found->len);
        resolve_text((const struct sockaddr *)&found->addr, found->len, at->to.authority);
    }
    return (int)(BOARD_WORKERS_MAX + slot);
}

bool upstreams_is_node(const struct upstreams *u, int upstream)
{
    return u->nodes && upstreams_is_peer(upstream);
}

uint32_t upstreams_node(int upstream)
{
    return (uint32_t)upstream - BOARD_WORKERS_MAX;
}

struct str upstreams_own_name(const struct upstreams *u, char text[UPSTREAMS_NAME_TEXT])
{
    const struct place_table *t = u->heritage->fleet;
    const char *given = u->heritage->config->fleet_node;
    struct fleet_node self;

    /* after a keeper's death the row may be unreadable for a moment */
    if (place_table_node(t, place_table_self(t), &self))
        given = self.name;
    (void)snprintf(text, UPSTREAMS_NAME_TEXT, "%s", given ? given : "");
    return str_cstr(text);
}

void upstreams_close_idle(struct upstreams *u, unsigned upstream)
{
    close_idle(&u->at[upstream]);
}

bool upstreams_is_peer(int upstream)
{
    return upstream >= BOARD_WORKERS_MAX && upstream < DISPATCHER;
}

bool upstreams_has_nodes(const struct upstreams *u)
{
    return u->peer_count > 0 || u->heritage->config->worker_base_given;
}

bool upstreams_is_remote(const struct upstreams *u, int upstream)
{
    if (upstream >= 0)
        return u->at[upstream].to.authority[0] != '\0';
    for (size_t i = 0; i < u->heritage->config->upstream.n; i++) {
        if (u->at[i].to.authority[0] != '\0')
            return true;
    }
    return false;
}

struct str upstreams_authority(const struct upstreams *u, int upstream)
{
    struct str text = str_cstr(upstream >= 0 ? u->at[upstream].to.authority : "");

    return text.len > 0 ? text : (struct str){0};
}

static struct peer_range own_range(const struct upstreams *u)
{
    uint32_t first = u->heritage->board->worker_base;

    return (struct peer_range){first, first + (uint32_t)MAX_OF(upstreams_count(u), (size_t)1) - 1};
}

struct str upstreams_own_range(const struct upstreams *u, char text[UPSTREAMS_RANGE_TEXT])
{
    struct peer_range own = own_range(u);
    int n = snprintf(text, UPSTREAMS_RANGE_TEXT, "%u-%u", own.first, own.last);

    return str_of(text, (size_t)n);
}

bool upstreams_range_meets(const struct upstreams *u, struct str range)
{
    struct peer_range own = own_range(u), other;
    struct str first = str_sub(range, 0, str_find(range, STR(","), 0));

    return parse_range(first, &other) == 0 && ranges_meet(&own, &other);
}

int upstreams_dispatcher(const struct upstreams *u)
{
    const struct config *c = u->heritage->config;

    return c->dispatcher && c->upstream.n == 0 ? DISPATCHER : -1;
}

void upstreams_leave_behind(struct upstreams *u)
{
    u->left_behind = true;
}

int upstreams_any(struct upstreams *u)
{
    size_t n = upstreams_count(u);
    uint64_t now_ms = loop_now_ms(u->loop);

    if (n == 0)
        return -1;
    /* All slots, not the first n: after a reload the workers' slots may have gaps. */
    for (size_t k = 0; k < BOARD_WORKERS_MAX; k++) {
        unsigned i = u->turn++ % BOARD_WORKERS_MAX;

        if (board_ready(u->heritage->board, BOARD_WORKER0 + i) &&
            !board_is_foreign(u->heritage->board, i) && u->at[i].shunned_until_ms <= now_ms)
            return (int)i;
    }
    return (int)(u->turn++ % n);
}

void upstreams_keep_above(struct upstreams *u, int fd)
{
    if (fd < u->above)
        return;
    while (u->above <= fd)
        u->above *= 2;
    upstreams_trim(u);
}

bool upstreams_confirmed(const struct upstreams *u, int upstream)
{
    return u->heritage->config->upstream.n == 0 && upstream < BOARD_WORKERS_MAX;
}

/* ------------------------------------------------------------------ idle links */

static void idle_remove(struct link *link)
{
    list_remove(&link->item);
    link->all->idle_links--;
}

/* Closes the link and frees it. */
static void link_destroy(struct link *link)
{
    loop_timer_stop(link->all->loop, &link->retry);
    loop_forget(link->all->loop, &link->io);
    if (link->fd >= 0) {
        close(link->fd);
        link->all->links--;
    }
    free(link);
}

/* Handles an event of an open link. */
static void on_link(struct loop_io *io, unsigned events)
{
    struct link *link = (struct link *)(void *)io;

    if (link->owner == NULL) {
        /* An idle link has closed, or sent bytes without a request. */
        idle_remove(link);
        link_destroy(link);
        return;
    }
    if (events & (LOOP_IN | LOOP_RDHUP | LOOP_HUP | LOOP_ERR))
        link->readable = true;
    if (events & (LOOP_RDHUP | LOOP_HUP | LOOP_ERR))
        link->hup = true;
    link->on_event(link, events);
}

/* A link whose descriptor is not above all clients' any longer is closed. */
void link_release(struct link *link)
{
    struct upstream *to = &link->all->at[link->upstream];

    if (link->above != link->all->above) {
        link_destroy(link);
        return;
    }
    link_want_out(link, false);
    link->owner = NULL;
    link->reused = true;
    link->readable = false;
    link->idle_since_ms = loop_now_ms(link->all->loop);
    link->keeps = false;
    list_prepend(&to->idle, &link->item);
    link->all->idle_links++;
}

bool link_confirm(struct link *link)
{
    return send(link->fd, "\r\n", 2, MSG_NOSIGNAL | MSG_DONTWAIT) == 2;
}

void link_close(struct link *link)
{
    link_destroy(link);
}

/* Closes the links that have been idle since before_ms or longer, oldest first. */
static void close_older(struct upstream *at, uint64_t before_ms)
{
    struct link *link = LIST_LAST_OF(&at->idle, struct link, item);

    while (link != NULL && link->idle_since_ms <= before_ms) {
        struct link *newer = LIST_PREV_OF(&at->idle, link, struct link, item);

        idle_remove(link);
        link_destroy(link);
        link = newer;
    }
}

static void close_idle(struct upstream *at)
{
    close_older(at, UINT64_MAX);
}

void upstreams_trim(struct upstreams *u)
{
    for (size_t i = 0; i < ARRAY_LEN(u->at); i++)
        close_idle(&u->at[i]);
}

/* Closes links that were idle for IDLE_MAX_MS. */
static void on_sweep(struct loop_timer *t)
{
    struct upstreams *u = CONTAINER_OF(t, struct upstreams, sweep);
    uint64_t now_ms = loop_now_ms(u->loop);

    for (size_t i = 0; i < ARRAY_LEN(u->at) && now_ms > IDLE_MAX_MS; i++)
        close_older(&u->at[i], now_ms - IDLE_MAX_MS);
    loop_timer_set(u->loop, &u->sweep, SWEEP_MS, on_sweep);
}

/* ------------------------------------------------------------------ new links */

void link_want_out(struct link *link, bool want)
{
    unsigned mask = LOOP_IN | LOOP_RDHUP | (want ? LOOP_OUT : 0);

    if (link->io.mask != 0)
        loop_mod(link->all->loop, &link->io, mask);
}

static void shun_upstream(struct upstreams *u, unsigned upstream)
{
    if (upstreams_is_node(u, (int)upstream))
        node_address_failed(&u->nodes[upstream - BOARD_WORKERS_MAX]);
    u->at[upstream].shunned_until_ms = loop_now_ms(u->loop) + SHUN_MS;
}

static void on_attempt(struct loop_timer *t);

/* Reports a failed connection. The callback may free the link. */
static void connect_failed(struct link *link)
{
    shun_upstream(link->all, link->upstream);
    link->on_event(link, LOOP_ERR);
}

/* Handles the end of connecting. */
static void on_connecting(struct loop_io *io, unsigned events)
{
    struct link *link = (struct link *)(void *)io;
    int error = 0;
    socklen_t len = sizeof(error);

    (void)events;
    loop_timer_stop(link->all->loop, &link->retry);
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) {
        connect_failed(link);
        return;
    }
    link->state = LINK_OPEN;
    loop_set_fn(&link->io, on_link);
    link_want_out(link, false);
    link->on_event(link, LOOP_OUT);
}

static void on_connect_timeout(struct loop_timer *t)
{
    connect_failed(CONTAINER_OF(t, struct link, retry));
}

/* Moves the link to a higher descriptor. Without a free one it stays. */
static void lift_descriptor(struct link *link)
{
    int high = fcntl(link->fd, F_DUPFD_CLOEXEC, link->above);

    if (high < 0)
        return;
    close(link->fd);
    link->fd = high;
}

void upstreams_probe(const struct upstreams *u, int fd)
{
    int one = 1, idle = PROBE_IDLE_S, interval = PROBE_S, count = PROBES;

    if (u->nodes)
        idle = interval = MAX_OF((int)u->heritage->config->fleet_lease_ms / 4000, 1);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* Unread bytes end the link after UNREAD_MS, in a fleet after one lease. */
static void set_tcp_options(const struct upstreams *u, int fd)
{
    int one = 1, unread = u->nodes ? (int)u->heritage->config->fleet_lease_ms : UNREAD_MS;

    upstreams_probe(u, fd);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread, sizeof(unread));
}

/* Opens the socket of a link. Returns 0, or -1 with errno. */
static int open_socket(struct link *link, int family)
{
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    int size = SEND_BUFFER;

    link->fd = socket(family, type, 0);
    if (link->fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        upstreams_trim(link->all);
        link->fd = socket(family, type, 0);
    }
    if (link->fd < 0)
        return -1;
    link->all->links++;
    lift_descriptor(link);
    link->unix_socket = family == AF_UNIX;
    if (link->unix_socket)
        (void)setsockopt(link->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    else
        set_tcp_options(link->all, link->fd);
    return 0;
}

/* Tries to connect. Returns 0 if the link is open or connecting, and -1 with errno if it is
 * refused. */
static int try_connect(struct link *link)
{
    struct upstreams *u = link->all;
    struct upstream *to = &u->at[link->upstream];
    struct err e;

    if (connect(link->fd, (struct sockaddr *)&to->to.addr, to->to.len) == 0) {
        link->state = LINK_OPEN;
        return loop_add(u->loop, &link->io, link->fd, LOOP_IN | LOOP_RDHUP, on_link, &e);
    }
    link->state = LINK_CONNECTING;
    if (errno == EINPROGRESS) {
        loop_timer_set(u->loop, &link->retry, CONNECT_MS, on_connect_timeout);
        return loop_add(u->loop, &link->io, link->fd, LOOP_IN | LOOP_RDHUP | LOOP_OUT,
                        on_connecting, &e);
    }
    if (errno != EAGAIN)
        return -1;
    /* The backlog of a Unix socket is full: no event will report free space. */
    if (loop_now_ms(u->loop) >= link->give_up_ms)
        return -1;
    loop_timer_set(u->loop, &link->retry, RETRY_MS, on_attempt);
    return 0;
}

/* Tries again after a short pause: a worker may be starting. */
static void on_attempt(struct loop_timer *t)
{
    struct link *link = CONTAINER_OF(t, struct link, retry);

    if (try_connect(link) != 0)
        connect_failed(link);
    else if (link->state == LINK_OPEN)
        link->on_event(link, LOOP_OUT);
}

/* Takes the newest idle link from the pool; NULL: none. */
static struct link *link_reuse_idle(struct upstreams *u, unsigned upstream)
{
    struct link *link = LIST_FIRST_OF(&u->at[upstream].idle, struct link, item);

    if (link != NULL)
        idle_remove(link);
    return link;
}

struct link *link_get(struct upstreams *u, unsigned upstream, bool fresh, void *owner,
                      link_event_fn on_event, struct err *e)
{
    struct link *link = fresh ? NULL : link_reuse_idle(u, upstream);

    CHECK(upstream < ARRAY_LEN(u->at) && owner != NULL);
    if (link == NULL) {
        link = mem_zalloc(sizeof(*link));
        link->all = u;
        link->upstream = upstream;
        link->above = u->above;
        link->give_up_ms = loop_now_ms(u->loop) + CONNECT_MS;
        if (open_socket(link, u->at[upstream].to.addr.ss_family) != 0 || try_connect(link) != 0) {
            shun_upstream(u, upstream);
            link_destroy(link);
            err_set(e, ERR_WORKER_UNAVAILABLE, "the session-worker cannot be reached");
            return NULL;
        }
    }
    link->owner = owner;
    link->on_event = on_event;
    return link;
}

int upstreams_dial(const struct upstreams *u, unsigned upstream)
{
    const struct upstream *to = &u->at[upstream];
    int fd = socket(to->to.addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&to->to.addr, to->to.len) == 0)
        return fd;
    close(fd);
    return -1;
}

/* ------------------------------------------------------------------ life */

struct upstreams *upstreams_new(const struct heritage *h, struct loop *l, struct err *e)
{
    struct upstreams *u = mem_zalloc(sizeof(*u));

    u->heritage = h;
    u->loop = l;
    u->above = ABOVE_FIRST;
    if (h->fleet)
        u->nodes = mem_calloc(FLEET_NODES_MAX, sizeof(*u->nodes));
    u->turn = h->place; /* routers begin at different workers */
    if (parse_workers(u, h, e) != 0 || upstreams_reload_peers(u, e) != 0) {
        upstreams_free(u);
        return NULL;
    }
    loop_timer_set(l, &u->sweep, SWEEP_MS, on_sweep);
    return u;
}

void upstreams_free(struct upstreams *u)
{
    if (u == NULL)
        return;
    loop_timer_stop(u->loop, &u->sweep);
    upstreams_trim(u);
    for (size_t i = 0; u->nodes && i < FLEET_NODES_MAX; i++)
        node_address_done(&u->nodes[i]);
    free(u->nodes);
    free(u);
}
