/* A router accepts while it has capacity. When it is full, it closes the oldest connection that has
 * proved nothing yet. If there is none, a limited number of connections is accepted and refused
 * with an answer. After that accepting pauses, and the kernel's queue holds the other connections.
 */

#include "router/front.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cancel.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "router/callers.h"
#include "router/clients.h"
#include "router/upstreams.h"

enum {
    ACCEPT_BATCH = 8, /* connections accepted in a turn: each brings work to the next one */
    PAUSE_MS = 100,
    REFUSALS_MAX = 256,       /* connections beyond the limit that get an answer */
    UNSENT_BYTES = 64 * 1024, /* bytes that the kernel may hold unsent for a slow reader */
    RESERVED_DESCRIPTORS = 64
};

static void on_listener(struct loop_io *io, unsigned events);

static int listen_on(struct front_listener *l, struct err *e)
{
    return loop_add(l->front->hub->loop, &l->io, l->fd, LOOP_IN | LOOP_LEVEL, on_listener, e);
}

/* Accepts again after a pause. */
static void on_pause_end(struct loop_timer *t)
{
    struct front *f = CONTAINER_OF(t, struct front, pause);
    struct err e;

    for (unsigned i = 0; i < f->n; i++)
        if (f->listeners[i]->io.mask == 0 && listen_on(f->listeners[i], &e) != 0)
            loop_timer_set(f->hub->loop, &f->pause, PAUSE_MS, on_pause_end);
}

static void stop_listening(struct front *f)
{
    for (unsigned i = 0; i < f->n; i++)
        loop_del(f->hub->loop, &f->listeners[i]->io);
}

/* Pauses accepting: there is no descriptor or memory, or too many refusals are pending. */
static void pause_accepting(struct front *f, const char *why)
{
    static struct log_limit limit;
    unsigned dropped;

    metrics_count(f->hub->page, METRIC_accept_pauses, 1);
    if (log_limit_pass(&limit, 1, &dropped))
        log_warn(NULL, "accepting is paused, retrying", LOG_T("reason", why),
                 LOG_U("connections", f->hub->conn_count), LOG_U("suppressed", dropped));
    stop_listening(f);
    loop_timer_set(f->hub->loop, &f->pause, PAUSE_MS, on_pause_end);
}

/* Refuses a connection because the router is full. */
static void refuse_full(struct front *f, int fd, struct str address)
{
    struct err e;

    err_set(&e, ERR_OVERLOADED, "too many connections");
    e.status = 503;
    metrics_count_at(f->hub->page, METRIC_refusals, METRIC_REFUSAL_CONNECTIONS, 0, 1);
    clients_refuse(f->hub, fd, address, &e);
}

/* Reports whether the address has as many connections as it may have. */
static bool has_its_share(const struct front *f, struct str address)
{
    return f->max_address_connections > 0 &&
           callers_connections(&f->hub->callers, address) >= f->max_address_connections;
}

/* Returns the number of descriptors for refusals. A refused connection is closed at once, unless
 * its client does not read. */
static size_t spare_for_refusals(size_t descriptors)
{
    return MIN_OF(descriptors / 64, (size_t)REFUSALS_MAX);
}

size_t front_capacity(size_t descriptors)
{
    size_t spare = RESERVED_DESCRIPTORS + spare_for_refusals(descriptors);

    return descriptors > 2 * spare ? descriptors - spare : descriptors / 2;
}

/* Reports whether the router can serve an additional connection. Refused ones have descriptors of
 * their own. */
static bool has_capacity_left(const struct front *f)
{
    const struct hub *h = f->hub;
    size_t served = h->conn_count - h->refused;

    if (f->max_connections > 0)
        return served < f->max_connections;
    if (served + upstreams_busy(h->upstreams) + 2 > f->capacity)
        return false;
    if (served + upstreams_busy(h->upstreams) + upstreams_idle(h->upstreams) + 2 > f->capacity)
        upstreams_trim(h->upstreams);
    return true;
}

static bool may_refuse(const struct front *f)
{
    return f->hub->refused < f->refusals;
}

/* Refuses a connection of an address that has reached its limit. No other connection is closed for
 * it. It gets an answer while the number of refusals is below its limit, otherwise it is closed
 * without one. */
static void refuse_more(struct front *f, int fd, struct str address)
{
    struct err e;

    metrics_count_at(f->hub->page, METRIC_refusals, METRIC_REFUSAL_ADDRESS_CONNECTIONS, 0, 1);
    if (!may_refuse(f)) {
        close(fd);
        return;
    }
    err_set(&e, ERR_OVERLOADED,
            "more than %zu connections from one address (--max-address-connections)",
            f->max_address_connections);
    clients_refuse(f->hub, fd, address, &e);
}

/* Accepts the next connection. Returns -1 if there is none, or accepting was paused. */
static int accept_next(struct front *f, int listener)
{
    struct sockaddr_storage from = {0};
    socklen_t from_len = sizeof(from);
    char text[CALLER_NAME_MAX];
    int fd = accept4(listener, (struct sockaddr *)&from, &from_len, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0) {
        struct str address = caller_of_address(&from, text);

        if (has_its_share(f, address)) {
            refuse_more(f, fd, address);
            return 0;
        }
        if (has_capacity_left(f) || (clients_make_room(f->hub) && has_capacity_left(f))) {
            clients_add(f->hub, fd, address);
            return 0;
        }
        refuse_full(f, fd, address);
        if (may_refuse(f))
            return 0;
        pause_accepting(f, "connection limit");
        return -1;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        pause_accepting(f, "out of descriptors or memory");
    /* A connection that ended in the queue is no reason to stop. */
    return errno == EINTR || errno == ECONNABORTED || errno == EPROTO ? 0 : -1;
}

/* Accepts a batch of connections; then other events are handled. */
static void on_listener(struct loop_io *io, unsigned events)
{
    struct front_listener *l = CONTAINER_OF(io, struct front_listener, io);

    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++)
        if (accept_next(l->front, l->fd) != 0)
            return;
}

/* Sets the limits from settings and descriptors. */
static void set_limits(struct front *f)
{
    struct rlimit r = {.rlim_cur = 0};

    (void)getrlimit(RLIMIT_NOFILE, &r);
    f->max_connections = (size_t)f->hub->config->max_connections;
    f->max_address_connections = (size_t)f->hub->config->max_address_connections;
    f->capacity = front_capacity((size_t)r.rlim_cur);
    f->hub->max_clients = f->max_connections > 0 ? f->max_connections : f->capacity / 2;
    f->refusals = f->max_connections > 0 ? REFUSALS_MAX : spare_for_refusals((size_t)r.rlim_cur);
}

/* Reports whether the socket is bound to a loopback address. */
static bool is_loopback(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);

    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return false;
    if (a.ss_family == AF_INET)
        return ntohl(((struct sockaddr_in *)(void *)&a)->sin_addr.s_addr) >> 24 == 127;
    return a.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)(void *)&a)->sin6_addr);
}

/* Sets options that accepted sockets inherit. All are optional. */
static void tune_listener(int fd)
{
    int one = 1, unsent = UNSENT_BYTES;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    /* If the host's default is bbr, its timers slow downloads over loopback by 40 %. */
    if (is_loopback(fd))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

int front_add(struct front *f, int fd, struct err *e)
{
    struct front_listener *l;

    if (f->n == ARRAY_LEN(f->listeners))
        return err_set(e, ERR_INTERNAL, "too many listening sockets");
    l = mem_zalloc(sizeof(*l));
    l->front = f;
    l->fd = fd;
    f->listeners[f->n++] = l;
    tune_listener(fd);
    return loop_timer_active(&f->pause) ? 0 : listen_on(l, e);
}

/* Listens on the router's own sockets, those of additional addresses, and adopted ones. */
int front_init(struct front *f, struct hub *h, struct err *e)
{
    const struct heritage *own = h->heritage;

    *f = (struct front){.hub = h};
    set_limits(f);
    if (front_add(f, own->listen_fd, e) != 0)
        return -1;
    for (unsigned i = 0; i < own->n_also; i++)
        if (front_add(f, own->also[i], e) != 0)
            return -1;
    for (size_t i = 0; i < own->n_adopted; i++)
        if (front_add(f, own->adopted[i].listen_fd, e) != 0)
            return -1;
    return 0;
}

void front_reload(struct front *f)
{
    set_limits(f);
}

void front_take_queued(struct front *f)
{
    for (unsigned i = 0; i < f->n; i++)
        while (f->listeners[i]->io.mask != 0 && accept_next(f, f->listeners[i]->fd) == 0)
            ;
}

void front_drain(struct front *f)
{
    const struct heritage *h = f->hub->heritage;
    bool ends = atomic_load_explicit(&h->board->draining, memory_order_relaxed) != 0;

    /* While the whole service stops, its port reports that, unless a next instance serves the port.
     * Other nodes of a fleet answer for it, so its port is closed. */
    if (ends && h->fleet) {
        front_done(f);
    } else if (!ends || h->port_kept) {
        loop_timer_stop(f->hub->loop, &f->pause);
        stop_listening(f);
    }
}

void front_done(struct front *f)
{
    if (f->hub == NULL)
        return;
    loop_timer_stop(f->hub->loop, &f->pause);
    stop_listening(f);
    for (unsigned i = 0; i < f->n; i++) {
        close(f->listeners[i]->fd);
        free(f->listeners[i]);
    }
    f->n = 0;
}
