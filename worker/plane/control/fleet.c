/* GET /fleet: the nodes, and who owns which place, as the keeper of this node sees them. */
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/fleet/place_table.h"
#include "common/fleet/store_url.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

static const char *const state_names[] = {
    [FLEET_UP] = "up", [FLEET_DRAINING] = "draining", [FLEET_LOST] = "lost"};

static void put_node(const struct fleet_node *n, struct json_out *out)
{
    json_out_obj(out);
    json_out_member_cstr(out, "name", n->name);
    json_out_member_cstr(out, "address", n->address);
    json_out_member_cstr(out, "state", state_names[n->state]);
    json_out_key(out, "since");
    json_out_seconds(out, n->since_ms);
    json_out_member_i64(out, "first_index", (int64_t)n->block * FLEET_BLOCK_SIZE);
    json_out_member_double(out, "load", (double)n->load / 1000);
    json_out_member_i64(out, "sessions", n->sessions);
    json_out_member_i64(out, "calls", n->calls);
    json_out_member_i64(out, "edition", (int64_t)n->edition);
    json_out_end_obj(out);
}

/* The dispatcher's place has no index. */
static void put_index(uint32_t index, struct json_out *out)
{
    json_out_key(out, "index");
    if (index == FLEET_DISPATCHER)
        json_out_cstr(out, "dispatcher");
    else
        json_out_i64(out, index);
}

static void put_place(const struct place_table *t, const struct fleet_place *p,
                      struct json_out *out)
{
    struct fleet_node owner;

    json_out_obj(out);
    put_index(p->index, out);
    json_out_key(out, "node");
    if (place_table_node(t, p->node, &owner))
        json_out_cstr(out, owner.name);
    else
        json_out_null(out);
    json_out_member_i64(out, "epoch", (int64_t)p->epoch);
    json_out_member_bool(out, "whole", p->whole);
    json_out_member_bool(out, "loss", p->taken);
    json_out_end_obj(out);
}

/* Places that this node owns: what the store lacks of them, and their last renewal. */
static void put_own(const struct place_table *t, struct json_out *out)
{
    struct fleet_own_place own;
    uint64_t now_ms = clock_boot_ms();

    json_out_key(out, "own");
    json_out_arr(out);
    for (size_t at = 0; place_table_next_own(t, &at, &own);) {
        if (own.epoch == 0)
            continue;
        json_out_obj(out);
        put_index(own.index, out);
        json_out_member_i64(out, "epoch", (int64_t)own.epoch);
        json_out_member_i64(out, "behind", (int64_t)own.behind);
        json_out_key(out, "renewed_s");
        if (own.renewed_ms > 0)
            json_out_seconds(out, now_ms - own.renewed_ms);
        else
            json_out_null(out);
        json_out_end_obj(out);
    }
    json_out_end_arr(out);
}

/* What this node has to do now. */
static void put_work(const struct metrics *m, struct json_out *out)
{
    json_out_member_i64(out, "sessions",
                        (int64_t)metrics_read(m, METRIC_sessions, METRIC_PHASE_OPEN, 0));
    json_out_member_i64(out, "calls", (int64_t)metrics_read(m, METRIC_calls_inflight, 0, 0));
}

static void put_fleet(const struct place_table *t, struct json_out *out)
{
    struct fleet_node node = {0};
    struct fleet_place place;

    json_out_key(out, "nodes");
    json_out_arr(out);
    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++)
        if (place_table_node(t, slot, &node))
            put_node(&node, out);
    json_out_end_arr(out);
    json_out_key(out, "places");
    json_out_arr(out);
    for (size_t at = 0; place_table_next(t, &at, &place);)
        put_place(t, &place, out);
    json_out_end_arr(out);
    put_own(t, out);
}

/* Notes in the board that this node leaves its fleet. The supervisor drains it. */
void fleet_drain(struct service_request *r)
{
    const struct heritage *h = r->service->heritage;
    struct fleet_node self = {0};
    struct buf answer = {0};
    struct json_out out = json_out_to(&answer);
    struct err e;

    if (!h->fleet) {
        err_set(&e, ERR_NOT_FOUND, "this gateway is in no fleet: it was started without --fleet");
        respond_error(r, NULL, &e);
        return;
    }
    if (!place_table_has_successor(h->fleet)) {
        err_set(&e, ERR_NO_OWNER,
                "no other node that is up has this node's tokenizer, so none can take its places: "
                "stop the node instead");
        respond_error(r, NULL, &e);
        return;
    }
    atomic_store(&h->board->leaving, 1);
    (void)place_table_node(h->fleet, place_table_self(h->fleet), &self);
    json_out_obj(&out);
    json_out_member_cstr(&out, "draining", self.name);
    json_out_end_obj(&out);
    respond_json(r, &answer);
    buf_done(&answer);
}

void control_put_node(const struct heritage *h, struct json_out *out)
{
    struct fleet_node node;

    json_out_key(out, "node");
    if (h->fleet && place_table_node(h->fleet, place_table_self(h->fleet), &node))
        json_out_cstr(out, node.name);
    else
        json_out_null(out);
}

int control_check_node(const struct heritage *h, struct arena *a, struct str query, struct err *e)
{
    struct str name = query_get(a, query, "node");
    struct fleet_node node;

    if (!name.p)
        return 0;
    if (!h->fleet)
        return err_field(e, "node", "node: this gateway is in no fleet");
    if (place_table_node(h->fleet, place_table_self(h->fleet), &node) && str_eq_c(name, node.name))
        return 0;
    return err_field(e, "node", "node: no node of this fleet has the name \"%.*s\"", (int)name.len,
                     name.p);
}

void fleet_get(struct service_request *r)
{
    const struct heritage *h = r->service->heritage;
    struct store_url url;
    struct buf answer = {0};
    struct json_out out = json_out_to(&answer);
    struct arena a = {0};
    struct err e;
    int named;

    if (!h->fleet || store_url_parse(str_cstr(h->config->fleet), &url, &e)) {
        err_set(&e, ERR_NOT_FOUND, "this gateway is in no fleet: it was started without --fleet");
        respond_error(r, NULL, &e);
        return;
    }
    named = control_check_node(h, &a, exchange_query(r->x), &e);
    arena_done(&a);
    if (named != 0) {
        respond_error(r, NULL, &e);
        store_url_done(&url);
        return;
    }
    json_out_obj(&out);
    json_out_member_cstr(&out, "name", url.name);
    control_put_node(h, &out);
    put_fleet(h->fleet, &out);
    put_work(h->metrics, &out);
    json_out_end_obj(&out);
    respond_json(r, &answer);
    buf_done(&answer);
    store_url_done(&url);
}
