/* Held requests (holds.h). One timer looks at all of them: often while there are some, else only to
 * see whether a place has a new owner. If this node has lost it, workers return the connections
 * that they were lent, whose requests no router looks at. */
#include "router/holds.h"

#include <sys/socket.h>

#include "common/fleet/place_table.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "router/conn.h"
#include "router/hub.h"
#include "router/lendings.h"
#include "router/owner.h"
#include "router/upstreams.h"

enum {
    LOOK_MS = 20,        /* between two looks at held requests */
    CALM_MS = 200,       /* between two looks at the own places */
    AGAIN_MS = 250,      /* until an owner is asked again that did not have its place yet */
    UNREACHED_MS = 2000, /* until an owner is tried again that could not be reached; if it starts
                            again, it claims its place and the epoch grows */
};

static bool is_leaving(const struct hub *h)
{
    return atomic_load_explicit(&h->heritage->board->leaving, memory_order_relaxed) != 0;
}

/* Whether this node owns the place, but has not started a worker for it. */
static bool is_unserved(const struct hub *h, const struct owner *owner, uint32_t place)
{
    return owner->kind == OWNER_SELF && place != FLEET_DISPATCHER &&
           upstreams_find(h->upstreams, place) < 0;
}

/* Whether the request can be tried now. `changed`: the place table differs from that of the last
 * look. */
static bool is_due(struct conn *c, bool changed, uint64_t now_ms)
{
    struct owner now;

    if (!changed && !c->hold.unserved && now_ms < c->hold.again_ms)
        return false;
    now = owner_find(c->hub->heritage->fleet, c->hold.place);
    if (now.kind == OWNER_NONE) {
        c->hold.again_ms = UINT64_MAX; /* with the next change */
        return false;
    }
    if (c->hold.unserved && !is_unserved(c->hub, &now, c->hold.place))
        return true;
    return c->hold.again_ms == UINT64_MAX || now_ms >= c->hold.again_ms ||
           now.epoch != c->hold.epoch;
}

/* Hashes the places that this node owns, in any order. */
static uint64_t hash_own_places(const struct place_table *t)
{
    struct fleet_own_place own;
    uint64_t sum = 0;

    for (size_t at = 0; place_table_next_own(t, &at, &own);) {
        const uint64_t row[] = {own.index, own.epoch};

        if (own.epoch != 0)
            sum += str_hash(str_of((const char *)row, sizeof(row)), 0);
    }
    return sum;
}

static void recall_lent(struct hub *h)
{
    uint64_t sum = hash_own_places(h->heritage->fleet);

    if (sum != h->own_places)
        lendings_recall(h->lendings);
    h->own_places = sum;
}

/* Whether the node that serves the request is lost, and its place, if it has one, has a new owner.
 * A node that lives answers by itself. */
static bool has_new_owner(const struct conn *c)
{
    const struct place_table *t = c->hub->heritage->fleet;
    struct fleet_node node;

    if (place_table_node(t, c->hold.node, &node) && node.state != FLEET_LOST)
        return false;
    return owner_find(t, c->hold.place).kind != OWNER_NONE;
}

/* The links end like those of a node that died. One that is not connected yet ends by itself. */
static void cut_hops(struct hub *h)
{
    struct conn *c;

    LIST_EACH(&h->hops, c, struct conn, hold.hop) {
        if (c->link && c->link->state == LINK_OPEN && has_new_owner(c))
            (void)shutdown(c->link->fd, SHUT_RDWR);
    }
}

static void on_look(struct loop_timer *t)
{
    struct hub *h = CONTAINER_OF(t, struct hub, hold_timer);
    uint32_t generation = place_table_generation(h->heritage->fleet);
    bool changed = generation != h->fleet_generation;
    uint64_t now_ms = loop_now_ms(h->loop);
    struct conn *c, *next;

    h->fleet_generation = generation;
    if (changed) {
        recall_lent(h);
        cut_hops(h);
    }
    LIST_EACH_SAFE(&h->held, c, next, struct conn, hold.item) {
        if (!is_due(c, changed, now_ms))
            continue;
        holds_end(c);
        h->run(c);
    }
    loop_timer_set(h->loop, &h->hold_timer, list_is_empty(&h->held) ? CALM_MS : LOOK_MS, on_look);
}

void holds_end_all(struct hub *h)
{
    struct conn *c, *next;

    LIST_EACH_SAFE(&h->held, c, next, struct conn, hold.item) {
        holds_end(c);
        c->hold.over = true;
        h->run(c);
    }
}

void holds_drain(struct hub *h)
{
    if (!is_leaving(h))
        holds_end_all(h);
}

void holds_init(struct hub *h)
{
    if (h->heritage->fleet)
        loop_timer_set(h->loop, &h->hold_timer, CALM_MS, on_look);
}

void holds_done(struct hub *h)
{
    loop_timer_stop(h->loop, &h->hold_timer);
}

bool holds_may_hold(const struct conn *c)
{
    return !c->hold.over && (!c->hub->draining || is_leaving(c->hub));
}

/* How long a request waits for an owner. A node that leaves the fleet still owns a place while the
 * place's running calls end. */
static uint64_t hold_ms(const struct hub *h)
{
    return (uint64_t)(h->config->fleet_hold_ms + (is_leaving(h) ? h->config->grace_ms : 0));
}

void holds_watch_hop(struct conn *c, int upstream)
{
    const struct hub *h = c->hub;
    uint64_t now_ms = loop_now_ms(h->loop);
    uint64_t until_ms = c->hold.until_ms ? c->hold.until_ms : now_ms + hold_ms(h);

    c->hold.node = upstreams_node(upstream);
    c->hold.accept_ms = MAX_OF(until_ms, now_ms + (uint64_t)h->config->fleet_lease_ms);
    list_append(&c->hub->hops, &c->hold.hop);
}

uint64_t holds_accept_ms(const struct conn *c)
{
    const struct hub *h = c->hub;
    struct fleet_node node;
    bool drains =
        place_table_node(h->heritage->fleet, c->hold.node, &node) && node.state == FLEET_DRAINING;

    return c->hold.accept_ms + (drains ? (uint64_t)h->config->grace_ms : 0);
}

/* Returns the time until the same owner is tried again. The first try after a broken link follows
 * at once: the link may have been an old one. */
static uint64_t again_ms(const struct conn *c, bool first)
{
    if (first)
        return 0;
    return c->state == CONN_HEAD || c->hold.misdirected ? AGAIN_MS : UNREACHED_MS;
}

void holds_begin(struct conn *c, uint32_t place)
{
    struct hub *h = c->hub;
    uint64_t now_ms = loop_now_ms(h->loop);
    bool first = c->hold.until_ms == 0 && c->state == CONN_RELAY;
    struct owner owner;

    if (c->hold.until_ms == 0)
        c->hold.until_ms = now_ms + hold_ms(h);
    c->hold.place = place;
    owner = owner_find(h->heritage->fleet, place);
    c->hold.epoch = owner.epoch;
    c->hold.unserved = is_unserved(h, &owner, place);
    c->hold.again_ms = owner.kind == OWNER_NONE ? UINT64_MAX : now_ms + again_ms(c, first);
    c->hold.misdirected = false;
    if (c->state == CONN_RELAY)
        conn_unread(c);
    conn_set_state(c, CONN_HELD);
    conn_set_deadline(c, c->hold.until_ms > now_ms ? c->hold.until_ms - now_ms : 0);
    list_prepend(&h->held, &c->hold.item); /* on_look has passed it */
    metrics_move_at(h->page, METRIC_fleet_held, 0, 1);
    if (loop_timer_due_ms(&h->hold_timer) > now_ms + LOOK_MS)
        loop_timer_set(h->loop, &h->hold_timer, first ? 0 : LOOK_MS, on_look);
}

void holds_end(struct conn *c)
{
    conn_not_held(c);
    conn_set_state(c, CONN_HEAD);
    c->in_seen = 0;
}
