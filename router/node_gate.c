/* The node of a request (node_gate.h). */
#include "router/node_gate.h"

#include "common/base/log.h"
#include "common/codec/query.h"
#include "common/fleet/place_table.h"
#include "common/net/http1.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "router/hub.h"
#include "router/owner.h"
#include "router/placement.h"
#include "router/route.h"
#include "router/upstreams.h"

enum { LOGGED_PER_SECOND = 1 };

uint32_t node_gate_place(const struct route *route)
{
    if (route->kind == ROUTE_DISPATCHER)
        return FLEET_DISPATCHER;
    return route->kind == ROUTE_WORKER ? route->index : NODE_GATE_NO_PLACE;
}

void node_gate_believe(const struct hub *h, struct http1_head *head)
{
    struct str by = http1_known(head, HTTP1_FORWARDED);
    size_t blank = str_find(by, STR(" "), 0);

    if (!h->heritage->fleet || !by.p)
        return;
    if (keys_check_node_proof(h->fleet_keys, str_sub(by, blank + 1, SIZE_MAX)))
        head->headers[head->at[HTTP1_FORWARDED] - 1].value = str_sub(by, 0, blank);
    else
        head->at[HTTP1_FORWARDED] = 0;
}

/* Logs what is wrong with the nodes' settings: no client is at fault. A gateway without other nodes
 * logs nothing, as only a client can have sent it. */
static int refuse_node(const struct hub *h, const struct err *e)
{
    static struct log_limit limit;
    unsigned dropped;

    if ((upstreams_has_nodes(h->upstreams) || h->config->upstream.n > 0) &&
        log_limit_pass(&limit, LOGGED_PER_SECOND, &dropped))
        log_warn(NULL, "refused a request that another node forwarded", LOG_T("reason", e->text),
                 LOG_U("suppressed", dropped));
    return -1;
}

/* A request that a `rollgate route` sent: another one sends it no further than to workers here. */
static int check_routed(const struct hub *h, const struct http1_head *head, int upstream,
                        struct err *e)
{
    struct str by = http1_known(head, HTTP1_FORWARDED);

    if (h->config->upstream.n == 0 || !http1_list_has(by, STR(HTTP1_ROUTE)) ||
        !upstreams_is_remote(h->upstreams, upstream))
        return 0;
    (void)err_set(e, ERR_LOOP,
                  "a `rollgate route` forwarded this request here, to another one: correct "
                  "--upstream of one of them");
    return refuse_node(h, e);
}

/* A request that another node forwarded: only one of an own worker is served, and only if the nodes
 * share no worker index. */
static int check_forwarded(const struct hub *h, const struct http1_head *head,
                           const struct route *route, int upstream, struct err *e)
{
    struct str range = http1_known(head, HTTP1_FORWARDED);
    bool has_workers = h->config->upstream.n == 0 || !upstreams_is_remote(h->upstreams, upstream);
    char own[UPSTREAMS_RANGE_TEXT];

    if (has_workers && upstreams_range_meets(h->upstreams, range)) {
        (void)upstreams_own_range(h->upstreams, own);
        (void)err_set(e, ERR_MISDIRECTED,
                      "this node has worker indexes %s, and the node that forwarded this request "
                      "has %.*s: each node needs its own --worker-base",
                      own, (int)MIN_OF(range.len, (size_t)UPSTREAMS_RANGE_TEXT), range.p);
        return refuse_node(h, e);
    }
    if (upstreams_is_peer(upstream)) {
        (void)err_set(e, ERR_LOOP,
                      "worker index %u is not of this node, and another node forwarded its request "
                      "here: correct --peer of one of them",
                      route->index);
        return refuse_node(h, e);
    }
    return 0;
}

/* Reports whether a different node, not a `rollgate route`, forwarded the request. */
static bool is_by_node(struct str by)
{
    return by.len > 0 && !str_eq_nocase(by, STR(HTTP1_ROUTE));
}

/* Refuses a request that a different node forwarded here, for a place that this node does not own:
 * that node looks again (answer.c). */
static int refuse_forwarded(const struct hub *h, struct str by, const struct owner *owner,
                            struct err *e)
{
    struct fleet_node self;

    (void)err_set(
        e, ERR_MISDIRECTED,
        "this node does not own the place of this request; the epoch that it knows is %llu",
        (unsigned long long)owner->epoch);
    if (!place_table_node(h->heritage->fleet, place_table_self(h->heritage->fleet), &self) ||
        !str_eq_c(by, self.name))
        return -1;
    (void)err_set(e, ERR_MISDIRECTED,
                  "this node's own request came back to it: correct --fleet-address of the node "
                  "that owns the place of this request");
    return refuse_node(h, e);
}

static bool makes_session(const struct http1_head *head)
{
    struct str path = str_sub(head->target, 0, str_find(head->target, STR("?"), 0));

    return str_eq_c(head->method, "POST") && str_eq_c(path, "/sessions");
}

/* Returns the node that makes a session because the load of this one is too high; -1: this one. */
static int find_lighter_node(const struct hub *h)
{
    static uint64_t drawn;

    struct heritage_load own;
    uint32_t slot;

    heritage_measure_load(h->heritage, &own);
    slot = placement_choose(h->heritage->fleet, &own, loop_now_ms(h->loop) + ++drawn);
    return slot == FLEET_NO_NODE ? -1 : upstreams_find_node(h->upstreams, slot);
}

/* Returns a node that makes sessions; -1: there is no other. */
static int find_other_node(const struct hub *h)
{
    const struct place_table *t = h->heritage->fleet;
    uint32_t first = (uint32_t)loop_now_ms(h->loop);
    struct fleet_node node;

    for (uint32_t i = 0; i < FLEET_NODES_MAX; i++) {
        uint32_t slot = (first + i) % FLEET_NODES_MAX;

        if (place_table_node(t, slot, &node) && node.state == FLEET_UP && !node.is_self)
            return upstreams_find_node(h->upstreams, slot);
    }
    return -1;
}

/* The workers of a node that leaves the fleet have ended, or end. */
static bool has_left(const struct hub *h)
{
    const struct board *b = h->heritage->board;
    bool leaves = atomic_load_explicit(&b->leaving, memory_order_relaxed) != 0;

    for (unsigned i = 0; leaves && i < BOARD_WORKERS_MAX; i++)
        leaves = !board_ready(b, BOARD_WORKER0 + i);
    return leaves;
}

/* Finds the upstream of a request that any worker serves; -1 in *ret: one of this node. `named`: no
 * other node may serve it. */
static int find_any(const struct hub *h, const struct http1_head *head, bool named, int *ret,
                    struct err *e)
{
    bool leaves = atomic_load_explicit(&h->heritage->board->leaving, memory_order_relaxed) != 0;
    bool left = has_left(h), makes = makes_session(head);

    if (!named && (left || (leaves && makes)))
        *ret = find_other_node(h);
    else if (!named && makes)
        *ret = find_lighter_node(h);
    if (left && *ret < 0)
        return err_set(e, ERR_DRAINING, "this node leaves the fleet, and its workers have ended");
    return 0;
}

/* The place moves to another node when its worker has ended. */
static bool is_leaving(const struct hub *h, uint32_t index)
{
    const struct board *b = h->heritage->board;
    int place;

    if (!atomic_load_explicit(&b->leaving, memory_order_relaxed))
        return false;
    place = board_resolve(b, index);
    return place < 0 || !board_ready(b, BOARD_WORKER0 + (unsigned)place);
}

/* The dispatcher's process runs, or is being started or replaced. */
static bool runs_dispatcher(const struct hub *h)
{
    enum board_state state = atomic_load_explicit(
        &h->heritage->board->slots[BOARD_DISPATCHER].state, memory_order_relaxed);

    return state == BOARD_STARTING || state == BOARD_READY;
}

/* No node of the fleet has ever had a dispatcher, as far as this node knows, which has none. */
static bool lacks_dispatcher(const struct hub *h, const struct route *route,
                             const struct owner *owner)
{
    return route->kind == ROUTE_DISPATCHER && !h->config->dispatcher && owner->epoch == 0;
}

/* Returns the upstream for an owner, which is not OWNER_UNKNOWN; -1: there is none now. */
static int upstream_of_owner(const struct hub *h, const struct route *route,
                             const struct owner *owner)
{
    if (owner->kind == OWNER_OTHER)
        return upstreams_find_node(h->upstreams, owner->node);
    if (owner->kind != OWNER_SELF)
        return -1;
    if (route->kind == ROUTE_DISPATCHER)
        return runs_dispatcher(h) ? upstreams_dispatcher(h->upstreams) : -1;
    return is_leaving(h, route->index) ? -1 : upstreams_find(h->upstreams, route->index);
}

/* Finds the slot of a node by its name; FLEET_NO_NODE: no node has the name. */
static uint32_t slot_of_name(const struct place_table *t, struct str name, struct fleet_node *ret)
{
    uint32_t slot = 0;

    while (slot < FLEET_NODES_MAX && !(place_table_node(t, slot, ret) && str_eq_c(name, ret->name)))
        slot++;
    return slot;
}

/* Finds the upstream of a request that names a node. -1 in *ret: it names this one, or a worker
 * refuses the name. */
static int find_named(const struct hub *h, struct str by, struct str name, int *ret, struct err *e)
{
    const struct place_table *t = h->heritage->fleet;
    struct fleet_node node;
    uint32_t slot = slot_of_name(t, name, &node);

    if (slot == FLEET_NO_NODE || slot == place_table_self(t))
        return 0;
    if (is_by_node(by))
        return err_set(e, ERR_MISDIRECTED, "this node has a different name than %s", node.name);
    if (node.state == FLEET_LOST)
        return err_set(e, ERR_WORKER_UNAVAILABLE, "the node %s is lost", node.name);
    *ret = upstreams_find_node(h->upstreams, slot);
    return *ret >= 0 ? 0 : err_set(e, ERR_NO_OWNER, "the node %s has no address now", node.name);
}

/* Reports whether the query asks for this node alone, like reach_of_request for workers. */
static bool asks_for_this_node(struct str target)
{
    struct str query = str_sub(target, str_find(target, STR("?"), 0), SIZE_MAX), name, value;

    query = str_sub(query, 1, SIZE_MAX);
    while (query_split(&query, &name, &value))
        if (str_eq_c(name, "here"))
            return !str_eq_c(value, "0") && !str_eq_c(value, "off") && !str_eq_c(value, "false");
    return false;
}

/* Finds the upstream in a fleet. A request whose place has no owner now fails with ERR_NO_OWNER,
 * and may be held. */
static int find_in_fleet(const struct hub *h, const struct http1_head *head,
                         const struct route *route, int *ret, struct err *e)
{
    struct str by = http1_known(head, HTTP1_FORWARDED);
    bool named = route->node.p || is_by_node(by) || asks_for_this_node(head->target);
    struct owner owner;

    *ret = -1;
    if (route->node.p && find_named(h, by, route->node, ret, e))
        return -1;
    if (route->kind == ROUTE_ANY)
        return *ret >= 0 ? 0 : find_any(h, head, named, ret, e);
    owner = owner_find(h->heritage->fleet, node_gate_place(route));
    if (owner.kind != OWNER_SELF && is_by_node(by))
        return refuse_forwarded(h, by, &owner, e);
    if (owner.kind == OWNER_UNKNOWN && place_table_is_taken(h->heritage->fleet, route->index))
        return err_set(
            e, ERR_SESSION_LOST,
            "the sessions of worker index %u are lost: a lost node alone had their records",
            route->index);
    if (owner.kind == OWNER_UNKNOWN)
        return err_set(e, ERR_UNKNOWN_SESSION, "no node of the fleet has worker index %u",
                       route->index);
    *ret = upstream_of_owner(h, route, &owner);
    if (*ret >= 0 || lacks_dispatcher(h, route, &owner))
        return 0; /* --dispatcher off: any worker says so */
    return err_set(e, ERR_NO_OWNER, "no node serves the place of this request now");
}

/* Finds the upstream without a fleet. */
static int find_upstream(const struct hub *h, const struct http1_head *head,
                         const struct route *route, int *ret, struct err *e)
{
    bool forwarded = is_by_node(http1_known(head, HTTP1_FORWARDED));

    *ret = -1;
    if (route->kind == ROUTE_DISPATCHER)
        *ret = upstreams_dispatcher(h->upstreams);
    if (route->kind == ROUTE_WORKER)
        *ret = upstreams_find(h->upstreams, route->index);
    if (check_routed(h, head, *ret, e) != 0)
        return -1;
    if (route->kind != ROUTE_WORKER)
        return 0;
    if (forwarded && check_forwarded(h, head, route, *ret, e))
        return -1;
    if (*ret < 0 && (forwarded || upstreams_has_nodes(h->upstreams)))
        return err_set(
            e, ERR_MISDIRECTED,
            "worker index %u is not of this node: ask the node that owns it, or name that "
            "node here with --peer",
            route->index);
    return 0;
}

int node_gate_find(const struct hub *h, const struct http1_head *head, const struct route *route,
                   int *ret_upstream, struct err *e)
{
    return h->heritage->fleet ? find_in_fleet(h, head, route, ret_upstream, e)
                              : find_upstream(h, head, route, ret_upstream, e);
}
