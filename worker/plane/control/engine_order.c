/* Makes and ends the orders that change the set of engines (engine_order.h). */
#include "worker/plane/control/engine_order.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/control/sibling.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

enum { LOOK_MS = 50, NODE_MS = 30000 };

static void order_free(struct engine_order *o)
{
    loop_timer_stop(o->service->calls.loop, &o->look);
    if (o->x)
        exchange_watch(o->x, NULL, NULL);
    if (o->lock_fd >= 0)
        (void)close(o->lock_fd);
    list_remove(&o->item);
    engine_set_done(&o->now);
    engine_set_done(&o->next);
    buf_done(&o->silent);
    buf_done(&o->keys);
    order_outcome_done(&o->outcome);
    arena_done(&o->arena);
    free(o);
}

static void on_closed(void *ctx, bool delivered)
{
    struct engine_order *o = ctx;

    (void)delivered;
    o->x = NULL;
    if (!o->trying)
        return;
    engine_pool_untry(o->service->calls.engines);
    order_free(o);
}

struct engine_order *engine_order_new(struct service *a, const struct service_request *r)
{
    struct engine_order *o = mem_zalloc(sizeof(*o));

    o->service = a;
    o->lock_fd = -1;
    list_append(&a->engine_orders, &o->item);
    if (!r)
        return o;
    o->x = r->x;
    o->dialect = r->dialect;
    o->reach = reach_of_request(r->x);
    siblings_write_keys(r->x, &o->keys);
    exchange_watch(o->x, on_closed, o);
    return o;
}

/* Takes the exchange out of the order, to be answered now. Returns NULL if the client has left. */
static struct exchange *detach_exchange(struct engine_order *o)
{
    struct exchange *x = o->x;

    o->x = NULL;
    if (x)
        exchange_watch(x, NULL, NULL);
    return x;
}

/* Frees the order before its answer is sent, because the client may send the next order as soon as
 * it reads the answer. */
void engine_order_fail(struct engine_order *o, const struct err *e)
{
    struct exchange *x = detach_exchange(o);
    struct service *a = o->service;
    unsigned dialect = o->dialect;
    engines_taken_fn taken = o->taken;
    void *ctx = o->taken_ctx;

    order_free(o);
    if (x)
        respond_error_to(a, x, NULL, dialect, "", e);
    if (taken)
        taken(ctx, (struct str){0}, e);
}

/* Answers an order of a source, which was applied as far as possible. */
void engine_order_answer_taken(struct engine_order *o)
{
    engines_taken_fn taken = o->taken;
    void *ctx = o->taken_ctx;
    struct buf silent = o->silent;

    o->silent = (struct buf){0};
    order_free(o);
    taken(ctx, buf_str(&silent), NULL);
    buf_done(&silent);
}

/* Writes the names of those engines of `of` that `other` does not have. */
static void put_names(struct engine_order *o, const struct engine_set *of,
                      const struct engine_set *other, struct json_out *out)
{
    json_out_arr(out);
    for (size_t i = 0; i < of->n; i++) {
        if (!engine_order_find(other, str_cstr(of->at[i].text)))
            json_out_cstr(out, engine_order_name(o, of->at[i].text));
    }
    json_out_end_arr(out);
}

/* Reports whether a removed engine still runs requests of any worker. */
static bool is_draining_engine(const struct engine_order *o)
{
    for (size_t i = 0; i < o->now.n; i++) {
        if (!engine_order_find(&o->next, str_cstr(o->now.at[i].text)) &&
            engine_pool_at_number(o->service->calls.engines, o->now.at[i].number) > 0)
            return true;
    }
    return false;
}

void engine_order_answer(struct engine_order *o)
{
    struct buf body = {0};
    struct json_out out = json_out_to(&body);
    struct service *a = o->service;
    unsigned dialect = o->dialect;
    struct exchange *x;
    struct err e = {0};

    if (order_outcome_check(&o->outcome, &e)) {
        engine_order_fail(o, &e);
        return;
    }
    json_out_obj(&out);
    json_out_member_cstr(&out, "status", "ok");
    json_out_member_i64(&out, "edition", (int64_t)o->next.edition);
    json_out_key(&out, "added");
    put_names(o, &o->next, &o->now, &out);
    json_out_key(&out, "removed");
    put_names(o, &o->now, &o->next, &out);
    json_out_member_bool(&out, "drained", !is_draining_engine(o));
    json_out_key(&out, "engines");
    engine_pool_write(o->service->calls.engines, &body);
    out.comma = true;
    order_outcome_write(&o->outcome, a->heritage, o->edition > 0, &out);
    json_out_end_obj(&out);
    x = detach_exchange(o);
    order_free(o);
    if (x) {
        respond_count(a, dialect, 200);
        exchange_reply(x, 200, "application/json", buf_str(&body));
    }
    buf_done(&body);
}

static void on_drain_check(struct loop_timer *t)
{
    struct engine_order *o = CONTAINER_OF(t, struct engine_order, look);

    if (o->x && is_draining_engine(o) && clock_ms() < o->until_ms)
        loop_timer_set(o->service->calls.loop, t, LOOK_MS, on_drain_check);
    else
        engine_order_answer(o);
}

static void on_obeyed(void *ctx, struct str body)
{
    (void)ctx, (void)body;
}

static void on_round(void *ctx, const struct siblings_missing *missing)
{
    struct engine_order *o = ctx;

    o->round = NULL;
    order_outcome_record(&o->outcome, missing);
    if (missing->workers + missing->nodes > 0)
        engine_order_answer(o);
    else
        on_drain_check(&o->look);
}

static const struct sibling_round_fns round_fns = {on_obeyed, on_round};

void engine_order_notify_others(struct engine_order *o)
{
    struct sibling_question q = {.method = "PUT",
                                 .keys = buf_str(&o->keys),
                                 .node_timeout_ms = NODE_MS,
                                 .living = true,
                                 .edition = o->edition};
    struct buf path = {0};

    buf_puts(&path, "/admin/engines");
    if (o->edition > 0)
        buf_printf(&path, "?edition=%llu", (unsigned long long)o->edition);
    q.path = buf_str(&path);
    o->round = sibling_ask_all(siblings_of(o->service), &q,
                               o->edition > 0 ? REACH_FLEET : REACH_NODE, &round_fns, o);
    buf_done(&path);
    if (!o->round)
        on_drain_check(&o->look);
}
