/* The node that makes a session (handlers.h): `node` names it, `prefer` names an engine that it
 * has. Nodes do not publish their engines. So the request goes to one node after the other, those
 * with the lowest load first, and a node without the engine answers 421. */
#include "common/base/buf.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "common/serve/reach.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/sibling.h"
#include "worker/plane/control/sibling_wait.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/service.h"

enum { MISDIRECTED = 421, NAMES_MAX = 400, NODE_TIMEOUT_MS = 60 * 1000 };

/* What the options ask for; an absent text asks for nothing. */
struct node_wish {
    struct str node, engine;
};

/* --- this node --- */

/* Fails because this node lacks the engine. */
static int fail_engine(enum err_kind kind, struct str engine, struct str known, struct err *e)
{
    (void)err_field(e, "prefer",
                    "prefer.engine: no node has an engine \"%.*s\"; this one has: %.*s",
                    (int)MIN_OF(engine.len, (size_t)200), engine.p,
                    (int)MIN_OF(known.len, (size_t)NAMES_MAX), known.p);
    e->kind = kind;
    return -1;
}

/* Checks the engine of a session that this node makes. */
static int check_engine(const struct service *s, const struct node_wish *w, enum err_kind kind,
                        struct err *e)
{
    struct buf known = {0};
    int rc = 0;

    if (w->engine.p && !engine_pool_has(s->calls.engines, w->engine, &known))
        rc = fail_engine(kind, w->engine, buf_str(&known), e);
    buf_done(&known);
    return rc;
}

/* --- other nodes --- */

/* Fails because of the node that `node` names; `state` is its state. */
static int fail_node(const struct place_table *t, struct str name, enum err_kind kind,
                     const char *state, struct err *e)
{
    struct fleet_node node;
    struct buf up = {0};

    for (uint32_t slot = 0; slot < FLEET_NODES_MAX && up.len < NAMES_MAX; slot++)
        if (place_table_node(t, slot, &node) && node.state == FLEET_UP)
            buf_printf(&up, "%s%s", up.len > 0 ? ", " : "", node.name);
    (void)err_field(e, "node", "node: the node \"%.*s\" %s; nodes that make sessions: %.*s",
                    (int)name.len, name.p, state, (int)up.len, up.p);
    e->kind = kind;
    buf_done(&up);
    return -1;
}

/* Finds the slot of the node that makes the sessions. */
static int find_named(const struct place_table *t, struct str name, uint32_t *ret, struct err *e)
{
    struct fleet_node node;

    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        if (!place_table_node(t, slot, &node) || !str_eq_c(name, node.name))
            continue;
        *ret = slot;
        if (node.state == FLEET_UP)
            return 0;
        return node.state == FLEET_LOST ? fail_node(t, name, ERR_WORKER_UNAVAILABLE, "is lost", e)
                                        : fail_node(t, name, ERR_DRAINING, "is being drained", e);
    }
    return fail_node(t, name, ERR_INVALID, "is not one of this fleet", e);
}

/* Returns the node with the lowest load that was not asked; FLEET_NO_NODE: all were. */
static uint32_t find_lightest(const struct place_table *t, const bool asked[FLEET_NODES_MAX])
{
    uint32_t found = FLEET_NO_NODE, load = 0;
    struct fleet_node node;

    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        if (asked[slot] || !place_table_node(t, slot, &node) || node.is_self ||
            node.state != FLEET_UP || (found != FLEET_NO_NODE && node.load >= load))
            continue;
        found = slot;
        load = node.load;
    }
    return found;
}

/* Passes the request on to the node. Returns 1 with its answer in a; 0: it lacks the engine. */
MAY_PAUSE static int ask_node(struct answering *a, uint32_t slot, const struct json *options,
                              struct err *e)
{
    struct service_request *r = &a->request;
    struct sibling_answer answer = {0};
    struct buf headers = {0}, body = {0};
    int rc;

    siblings_write_keys(r->x, &headers);
    control_write_origin(r, &headers);
    json_write(&body, options);
    rc = sibling_wait(r->service, NULL, &slot,
                      &(struct sibling_question){.method = "POST",
                                                 .path = STR("/sessions?here=1"),
                                                 .body = buf_str(&body),
                                                 .keys = buf_str(&headers),
                                                 .node_timeout_ms = NODE_TIMEOUT_MS},
                      &answer, e);
    buf_done(&headers);
    buf_done(&body);
    if (rc == 0 && answer.status == 0)
        rc = err_set(e, ERR_WORKER_UNAVAILABLE, "the node that makes the session: %s",
                     answer.err.text);
    if (rc == 0 && answer.status != MISDIRECTED) {
        a->status = answer.status;
        buf_add_str(&a->out, buf_str(&answer.body));
        if (answer.status == 429 || answer.status == 503) {
            exchange_set_header(r->x, "x-should-retry", STR("true"));
            exchange_set_header(r->x, "Retry-After", STR("1"));
        }
        rc = 1;
    }
    buf_done(&answer.body);
    return rc;
}

/* Returns a node that makes no session now, so that its engines are unknown; NULL: there is none.
 */
static const char *find_absent(const struct place_table *t, struct fleet_node *ret)
{
    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++)
        if (place_table_node(t, slot, ret) && !ret->is_self && ret->state != FLEET_UP)
            return ret->name;
    return NULL;
}

/* No node that makes sessions has the engine. A node that is lost or drained may return with it. */
static int fail_all(const struct service *s, const struct node_wish *w, struct err *e)
{
    struct fleet_node node;
    const char *absent = find_absent(s->heritage->fleet, &node);

    if (!absent)
        return check_engine(s, w, ERR_INVALID, e);
    (void)err_field(e, "prefer",
                    "prefer.engine: no node that makes sessions has an engine \"%.*s\"; "
                    "the node \"%s\" is lost or being drained, and was not asked",
                    (int)MIN_OF(w->engine.len, (size_t)200), w->engine.p, absent);
    e->kind = ERR_WORKER_UNAVAILABLE;
    return -1;
}

/* Finds a node that has the engine, which this one lacks. */
MAY_PAUSE static int ask_all(struct answering *a, const struct node_wish *w,
                             const struct json *options, struct err *e)
{
    const struct place_table *t = a->request.service->heritage->fleet;
    bool asked[FLEET_NODES_MAX] = {false};
    uint32_t slot;

    while ((slot = find_lightest(t, asked)) != FLEET_NO_NODE) {
        int rc = ask_node(a, slot, options, e);

        if (rc != 0)
            return rc;
        asked[slot] = true;
    }
    return fail_all(a->request.service, w, e);
}

/* The request of a client, in a fleet. */
MAY_PAUSE static int choose_node(struct answering *a, const struct node_wish *w,
                                 const struct json *options, struct err *e)
{
    struct service *s = a->request.service;
    const struct place_table *t = s->heritage->fleet;
    uint32_t slot = place_table_self(t);
    int rc;

    if (w->node.p && find_named(t, w->node, &slot, e))
        return -1;
    if (slot == place_table_self(t))
        return check_engine(s, w, ERR_INVALID, e) == 0 ? 0
               : w->node.p                             ? -1
                                                       : ask_all(a, w, options, e);
    rc = ask_node(a, slot, options, e);
    return rc != 0 ? rc
                   : err_set(e, ERR_WORKER_UNAVAILABLE,
                             "the node \"%.*s\" has a different name now: send it again",
                             (int)w->node.len, w->node.p);
}

/* The request of another node, which asks this one. */
static int check_chosen(const struct service *s, const struct node_wish *w, struct err *e)
{
    const struct place_table *t = s->heritage->fleet;
    struct fleet_node self;

    if (w->node.p &&
        !(place_table_node(t, place_table_self(t), &self) && str_eq_c(w->node, self.name)))
        return err_set(e, ERR_MISDIRECTED, "this node has a different name");
    return check_engine(s, w, w->node.p ? ERR_INVALID : ERR_MISDIRECTED, e);
}

int control_create_elsewhere(struct answering *a, const struct json *options, struct err *e)
{
    const struct service_request *r = &a->request;
    const struct service *s = r->service;
    struct node_wish w = {json_string(json_get(options, "node")),
                          json_string(json_get(json_get(options, "prefer"), "engine"))};

    if (!w.node.p && !w.engine.p)
        return 0;
    if (!s->heritage->fleet)
        return w.node.p ? err_field(e, "node", "node: this gateway is in no fleet")
                        : check_engine(s, &w, ERR_INVALID, e);
    return reach_of_request(r->x) == REACH_FLEET ? choose_node(a, &w, options, e)
                                                 : check_chosen(s, &w, e);
}
