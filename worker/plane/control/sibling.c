/* Sends requests to the other workers of the node over their sockets, and to other nodes of the
 * fleet (sibling.h). Clients are made on first use and kept. A request carries the keys of the
 * request for which it is sent, so that the receiver checks them as if the client had asked it
 * directly. The board lists the workers that serve, the place table the nodes. A frozen node keeps
 * its connections open, so requests to a node that is lost are ended here. */

#include "worker/plane/control/sibling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/net/http_client.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/presented.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/service.h"

enum { ANSWER_TIMEOUT_MS = 3600 * 1000, WATCH_MS = 200 };

/* The client of a node. */
struct node_link {
    struct http_client *client;
    char address[FLEET_ADDRESS_MAX];
    struct list_head calls; /* fetches in progress */
    struct list_item old;   /* in siblings->old: the node has a different address now */
};

struct siblings {
    const struct heritage *h;
    struct loop *loop;
    struct list_head calls; /* fetches in progress */
    /* clients by worker index; NULL: not used yet */
    struct http_client *clients[BOARD_WORKERS_MAX];
    struct node_link *nodes[FLEET_NODES_MAX]; /* by slot; NULL: not used yet */
    struct list_head old;
    struct loop_timer watch; /* looks for lost nodes; active while requests to nodes are pending */
};

/* Opens no client yet. */
static struct siblings *siblings_new(const struct heritage *h, struct loop *loop)
{
    struct siblings *s = mem_zalloc(sizeof(*s));

    s->h = h;
    s->loop = loop;
    return s;
}

/* Answers pending requests with the reason. */
static void node_link_free(struct node_link *n, const struct err *why)
{
    list_remove(&n->old);
    http_fetches_end(&n->calls, why);
    http_client_free(n->client);
    free(n);
}

static void free_old_links(struct siblings *s, const struct err *why)
{
    struct node_link *n, *next;

    LIST_EACH_SAFE(&s->old, n, next, struct node_link, old) {
        node_link_free(n, why);
    }
}

/* Answers pending requests with an error. */
void siblings_free(struct siblings *s)
{
    struct err e = {0};

    if (!s)
        return;
    (void)err_set(&e, ERR_WORKER_UNAVAILABLE, "this worker ends");
    loop_timer_stop(s->loop, &s->watch);
    http_fetches_end(&s->calls, &e);
    free_old_links(s, &e);
    for (size_t i = 0; i < FLEET_NODES_MAX; i++) {
        if (s->nodes[i])
            node_link_free(s->nodes[i], &e);
    }
    for (size_t i = 0; i < BOARD_WORKERS_MAX; i++) {
        if (s->clients[i])
            http_client_free(s->clients[i]);
    }
    free(s);
}

/* Returns the client of that worker, or NULL if the worker has no place or no socket path. */
static struct http_client *client_of(struct siblings *s, uint32_t index, struct err *e)
{
    int at = board_place(s->h->board, index);
    uint32_t place = (uint32_t)at;
    struct http_client_options o = {.max_idle = 2};
    char path[128];
    char url[160];

    if (at < 0 ||
        heritage_socket_path(s->h->run_dir, s->h->board->worker_base + place, path, sizeof(path)))
        return NULL;
    if (!s->clients[place]) {
        (void)snprintf(url, sizeof(url), "unix:%s", path);
        if (http_client_new(s->loop, url, &o, &s->clients[place], e))
            return NULL;
    }
    return s->clients[place];
}

void siblings_write_keys(const struct exchange *x, struct buf *out)
{
    struct presented shown = {.n = 0};

    exchange_keys(x, &shown); /* the keys from any place in the request */
    for (size_t i = 0; i < shown.n; i++)
        buf_printf(out, "x-api-key: %.*s\r\n", (int)shown.at[i].len, shown.at[i].p);
}

/* Sends the question. Copies the body, so that the caller may free its own at once. */
static struct http_fetch *send_question(struct http_client *client,
                                        const struct sibling_question *q, uint64_t timeout_ms,
                                        struct list_head *calls, http_fetch_fn fn, void *ctx)
{
    struct http_fetch *f;
    struct buf headers = {0};
    struct buf sent = {0};
    if (q->from)
        siblings_write_keys(q->from, &headers);
    else
        buf_add_str(&headers, q->keys);
    buf_add_str(&sent, q->body);
    f = http_fetch(client,
                   &(struct http_request){
                       .method = q->method,
                       .path = q->path,
                       .headers = buf_str(&headers),
                       .body = q->body.len > 0 ? &sent : NULL,
                       .total_timeout_ms = timeout_ms,
                   },
                   calls, fn, ctx);
    buf_done(&headers);
    buf_done(&sent);
    return f;
}

struct http_fetch *sibling_ask(struct siblings *s, uint32_t index, const struct sibling_question *q,
                               http_fetch_fn fn, void *ctx)
{
    struct err e = {0};
    struct http_client *client = client_of(s, index, &e);

    return client ? send_question(client, q, ANSWER_TIMEOUT_MS, &s->calls, fn, ctx) : NULL;
}

/* --- other nodes --- */

/* Owners in the place table. */
struct owners {
    bool known;
    uint32_t generation;
    bool owns[FLEET_NODES_MAX]; /* by slot: whether the node owns a place */
    VEC(uint32_t) unowned;      /* indexes that no node owns */
    VEC(uint32_t) unclaimed;    /* indexes of this node that it has not claimed, or has lost */
};

/* Reads the whole table once after each change. */
static const struct owners *read_owners(const struct place_table *t)
{
    static struct owners seen;

    uint32_t generation = place_table_generation(t), self = place_table_self(t);
    struct fleet_place place;

    if (seen.known && seen.generation == generation)
        return &seen;
    memset(seen.owns, 0, sizeof(seen.owns));
    vec_clear(&seen.unowned);
    vec_clear(&seen.unclaimed);
    for (size_t at = 0; place_table_next(t, &at, &place);) {
        if (place.index == FLEET_DISPATCHER)
            continue;
        if (place.node < FLEET_NODES_MAX)
            seen.owns[place.node] = true;
        if (place.node >= FLEET_NODES_MAX)
            *vec_push(&seen.unowned) = place.index;
        else if (place.node == self && place_table_own_epoch(t, place.index) == 0)
            *vec_push(&seen.unclaimed) = place.index;
    }
    seen.known = true;
    seen.generation = generation;
    return &seen;
}

/* Finds the next other node from slot *at on that must be asked, and advances *at beyond it: one
 * that is up, or drains or is lost and still owns places. False: there is no further one. */
static bool siblings_next_node(const struct heritage *h, uint32_t *at, struct fleet_node *ret)
{
    while (h->fleet && *at < FLEET_NODES_MAX) {
        uint32_t slot = (*at)++;

        if (place_table_node(h->fleet, slot, ret) && !ret->is_self &&
            (ret->state == FLEET_UP || read_owners(h->fleet)->owns[slot]))
            return true;
    }
    return false;
}

void siblings_write_lost(const struct heritage *h, bool all_nodes, struct buf *out)
{
    struct json_out o = json_out_to(out);
    struct fleet_node node;

    if (!h->fleet) {
        heritage_write_unreachable(h, out);
        return;
    }
    json_out_obj(&o);
    if (all_nodes) {
        json_out_member_arr(&o, "unreachable");
        for (uint32_t at = 0; siblings_next_node(h, &at, &node);) {
            if (node.state == FLEET_LOST)
                json_out_cstr(&o, node.name);
        }
        json_out_end_arr(&o);
    }
    json_out_end_obj(&o);
}

/* Ends the requests to nodes that are lost. */
static void on_watch(struct loop_timer *t)
{
    struct siblings *s = CONTAINER_OF(t, struct siblings, watch);
    struct fleet_node node;
    struct err e = {0};
    bool pending = false;

    (void)err_set(&e, ERR_WORKER_UNAVAILABLE, "the node was lost");
    free_old_links(s, &e);
    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        struct node_link *n = s->nodes[slot];

        if (!n || list_is_empty(&n->calls))
            continue;
        if (!place_table_node(s->h->fleet, slot, &node) || node.state == FLEET_LOST)
            http_fetches_end(&n->calls, &e);
        pending = true;
    }
    if (pending)
        loop_timer_set(s->loop, t, WATCH_MS, on_watch);
}

/* Returns the client of the node at its present address, or NULL if that is no address. */
static struct node_link *link_of(struct siblings *s, uint32_t slot, const struct fleet_node *node)
{
    struct http_client_options o = {.max_idle = 2, .background = true};
    struct node_link *n = s->nodes[slot];
    char url[FLEET_ADDRESS_MAX + 16];
    struct err e;

    if (n && strcmp(n->address, node->address) != 0) {
        list_append(&s->old, &n->old); /* the caller may be a callback of its client */
        s->nodes[slot] = n = NULL;
    }
    if (n)
        return n;
    (void)snprintf(url, sizeof(url), "http://%s", node->address);
    n = mem_zalloc(sizeof(*n));
    if (http_client_new(s->loop, url, &o, &n->client, &e)) {
        free(n);
        return NULL;
    }
    memcpy(n->address, node->address, sizeof(n->address));
    s->nodes[slot] = n;
    return n;
}

static struct http_fetch *refuse_question(struct siblings *s, const char *why, http_fetch_fn fn,
                                          void *ctx)
{
    struct err e = {0};

    (void)err_set(&e, ERR_WORKER_UNAVAILABLE, "%s", why);
    return http_fetch_refused(s->loop, &e, &s->calls, fn, ctx);
}

struct http_fetch *sibling_ask_node(struct siblings *s, uint32_t slot,
                                    const struct sibling_question *q, http_fetch_fn fn, void *ctx)
{
    struct fleet_node node;
    struct node_link *n;

    if (!place_table_node(s->h->fleet, slot, &node) || node.state == FLEET_LOST)
        return refuse_question(s, "the node is lost", fn, ctx);
    n = link_of(s, slot, &node);
    if (!n)
        return refuse_question(s, "the node's address is wrong", fn, ctx);
    if (!loop_timer_active(&s->watch))
        loop_timer_set(s->loop, &s->watch, WATCH_MS, on_watch);
    return send_question(n->client, q,
                         q->node_timeout_ms > 0 ? q->node_timeout_ms : ANSWER_TIMEOUT_MS, &n->calls,
                         fn, ctx);
}

/* Whether the JSON members have the key. Names of nodes need no escapes. */
static bool has_member(struct str members, const char *key)
{
    char text[FLEET_NAME_MAX + 4];

    (void)snprintf(text, sizeof(text), "\"%s\":", key);
    return str_find(members, str_cstr(text), 0) != SIZE_MAX;
}

void siblings_put_obeyed(const struct heritage *h, struct str others, struct json_out *out)
{
    struct fleet_node node;

    json_out_key(out, "nodes");
    json_out_obj(out);
    if (place_table_node(h->fleet, place_table_self(h->fleet), &node))
        json_out_member_cstr(out, node.name, "obeyed");
    if (others.len > 0) {
        buf_printf(out->b, "%s%.*s", out->comma ? "," : "", (int)others.len, others.p);
        out->comma = true;
    }
    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        if (place_table_node(h->fleet, slot, &node) && node.state == FLEET_LOST &&
            !has_member(others, node.name))
            json_out_member_cstr(out, node.name, "lost");
    }
    json_out_end_obj(out);
}

/* --- rounds --- */

struct sibling_round {
    const struct heritage *h;
    const struct sibling_round_fns *fns;
    void *ctx;
    size_t waiting;
    struct siblings_missing missing;
    struct buf names;  /* of missing nodes and indexes */
    struct buf obeyed; /* JSON members of the nodes that answered 2xx */
    bool fleet;        /* nodes are asked */
    bool living;       /* of the question */
    uint64_t edition;  /* of the question */
    bool asked[FLEET_NODES_MAX];
    VEC(struct fleet_place) places; /* owned when the round began; empty with `living` */
    bool left;
};

/* One request of a round. */
struct round_call {
    struct sibling_round *round;
    char node[FLEET_NAME_MAX]; /* "": a worker */
    bool unserved;             /* `node` is the name of an index that was not reached */
};

static void add_name(struct sibling_round *r, const char *name)
{
    buf_printf(&r->names, "%s%s", r->names.len > 0 ? ", " : "", name);
}

static void count_missing(struct sibling_round *r, const struct round_call *call)
{
    if (call->unserved)
        r->missing.indexes++;
    else if (call->node[0])
        r->missing.nodes++;
    else
        r->missing.workers++;
    if (call->node[0])
        add_name(r, call->node);
}

static void note_obeyed(struct sibling_round *r, const char *node)
{
    struct json_out o = {&r->obeyed, r->obeyed.len > 0};

    if (!node[0])
        return;
    json_out_member_cstr(&o, node, "obeyed");
    r->missing.n_obeyed++;
}

/* Counts nodes that joined during the round, unless they have obeyed. */
static void count_unasked(struct sibling_round *r)
{
    struct fleet_node node;

    for (uint32_t at = 0; r->fleet && siblings_next_node(r->h, &at, &node);) {
        if (r->asked[at - 1] || (r->living && node.state == FLEET_LOST))
            continue;
        if (r->edition > 0 && node.edition >= r->edition) {
            note_obeyed(r, node.name);
            continue;
        }
        r->missing.nodes++;
        add_name(r, node.name);
    }
}

static void note_places(struct sibling_round *r)
{
    struct fleet_place place;

    for (size_t at = 0; place_table_next(r->h->fleet, &at, &place);)
        if (place.node < FLEET_NODES_MAX && place.index != FLEET_DISPATCHER)
            *vec_push(&r->places) = place;
}

/* Counts places that have moved during the round: the node before may have answered after, and the
 * node now before. */
static void count_moved(struct sibling_round *r)
{
    for (size_t i = 0; i < r->places.n; i++) {
        const struct fleet_place *before = &r->places.at[i];
        struct round_call moved = {.unserved = true};
        struct fleet_place now;

        if ((place_table_find(r->h->fleet, before->index, &now) && now.node == before->node) ||
            place_table_is_vacant(r->h->fleet, before->index))
            continue;
        (void)snprintf(moved.node, sizeof(moved.node), "w%u", before->index);
        count_missing(r, &moved);
    }
}

static void round_end(struct sibling_round *r)
{
    count_unasked(r);
    count_moved(r);
    r->missing.names = buf_str(&r->names);
    r->missing.obeyed = buf_str(&r->obeyed);
    if (!r->left)
        r->fns->all(r->ctx, &r->missing);
    buf_done(&r->names);
    buf_done(&r->obeyed);
    vec_done(&r->places);
    free(r);
}

/* Counts the answers. The last one ends the round. */
static void on_sibling_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct round_call *call = ctx;
    struct sibling_round *r = call->round;

    (void)e;
    if (status < 200 || status > 299) {
        count_missing(r, call);
    } else {
        note_obeyed(r, call->node);
        if (!r->left)
            r->fns->one(r->ctx, body);
    }
    free(call);
    if (--r->waiting == 0)
        round_end(r);
}

void sibling_round_leave(struct sibling_round *r)
{
    if (r)
        r->left = true;
}

static struct round_call *round_call_new(struct sibling_round *r, const char *node)
{
    struct round_call *call = mem_zalloc(sizeof(*call));

    call->round = r;
    (void)snprintf(call->node, sizeof(call->node), "%s", node);
    r->waiting++;
    return call;
}

/* Counts the index as missing, later. */
static void ask_nobody(struct siblings *s, uint32_t index, struct sibling_round *r)
{
    struct round_call *call = round_call_new(r, "");

    (void)snprintf(call->node, sizeof(call->node), "w%u", index);
    call->unserved = true;
    (void)refuse_question(s, "nobody serves the index now", on_sibling_answer, call);
}

static void ask_workers(struct siblings *s, const struct sibling_question *q,
                        struct sibling_round *r)
{
    uint32_t workers[SIBLINGS_MAX];
    size_t n = siblings_list(s->h, workers);

    for (size_t i = 0; i < n; i++) {
        struct round_call *call;

        if (workers[i] == s->h->index)
            continue;
        if (!siblings_serve(s->h, workers[i])) {
            if (!q->living)
                ask_nobody(s, workers[i], r);
            continue;
        }
        call = round_call_new(r, "");
        if (sibling_ask(s, workers[i], q, on_sibling_answer, call))
            continue;
        free(call);
        r->waiting--;
    }
}

static void ask_nodes(struct siblings *s, const struct sibling_question *q, struct sibling_round *r)
{
    const struct owners *o = s->h->fleet && !q->living ? read_owners(s->h->fleet) : NULL;
    struct fleet_node node;

    for (size_t i = 0; o && i < o->unowned.n; i++)
        ask_nobody(s, o->unowned.at[i], r);
    for (uint32_t at = 0; siblings_next_node(s->h, &at, &node);) {
        if (q->living && node.state == FLEET_LOST)
            continue;
        r->asked[at - 1] = true;
        (void)sibling_ask_node(s, at - 1, q, on_sibling_answer, round_call_new(r, node.name));
    }
}

/* Writes the path with the query that the receiver finds its reach in. */
static struct str write_path(struct buf *out, struct str path, const char *query)
{
    buf_clear(out);
    buf_add_str(out, path);
    buf_add_c(out, str_find(path, STR("?"), 0) == SIZE_MAX ? '?' : '&');
    buf_puts(out, query);
    return buf_str(out);
}

struct sibling_round *sibling_ask_all(struct siblings *s, const struct sibling_question *q,
                                      enum reach reach, const struct sibling_round_fns *fns,
                                      void *ctx)
{
    struct sibling_round *r = mem_zalloc(sizeof(*r));
    struct sibling_question sent = *q;
    struct buf path = {0};

    *r = (struct sibling_round){.h = s->h,
                                .fns = fns,
                                .ctx = ctx,
                                .fleet = reach == REACH_FLEET && s->h->fleet,
                                .living = q->living,
                                .edition = q->edition};
    sent.path = write_path(&path, q->path, "local=1");
    if (reach >= REACH_NODE)
        ask_workers(s, &sent, r);
    sent.path = write_path(&path, q->path, "here=1");
    if (reach == REACH_FLEET)
        ask_nodes(s, &sent, r);
    if (r->fleet && !r->living)
        note_places(r);
    buf_done(&path);
    if (r->waiting > 0)
        return r;
    vec_done(&r->places);
    free(r);
    return NULL;
}

static int compare_indexes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

bool siblings_serve(const struct heritage *h, uint32_t index)
{
    int place = board_resolve(h->board, index);

    return index == h->index ||
           (place >= 0 && board_ready(h->board, BOARD_WORKER0 + (unsigned)place));
}

/* Adds the indexes of this node that have sessions and no worker now. */
static size_t add_unserved(const struct heritage *h, uint32_t *ret, size_t n)
{
    const struct owners *o = read_owners(h->fleet);
    struct fleet_own_place own;

    for (size_t at = 0; n < SIBLINGS_MAX && place_table_next_own(h->fleet, &at, &own);)
        if (own.epoch != 0 && own.empty_epoch != own.epoch && own.index != FLEET_DISPATCHER &&
            !siblings_serve(h, own.index))
            ret[n++] = own.index;
    for (size_t i = 0; n < SIBLINGS_MAX && i < o->unclaimed.n; i++)
        if (!siblings_serve(h, o->unclaimed.at[i]))
            ret[n++] = o->unclaimed.at[i];
    return n;
}

/* Places that were adopted from other nodes have indexes out of order. */
size_t siblings_list(const struct heritage *h, uint32_t *ret)
{
    size_t n = 0;

    for (uint32_t place = 0; place < BOARD_WORKERS_MAX; place++) {
        if (board_ready(h->board, BOARD_WORKER0 + place) || place == h->place)
            ret[n++] = board_index(h->board, place);
    }
    if (h->fleet)
        n = add_unserved(h, ret, n);
    if (n > 1)
        qsort(ret, n, sizeof(*ret), compare_indexes);
    return n;
}

struct siblings *siblings_of(struct service *a)
{
    if (!a->siblings)
        a->siblings = siblings_new(a->heritage, a->calls.loop);
    return a->siblings;
}

bool siblings_lead(const struct heritage *h)
{
    for (unsigned place = 0; place < h->place; place++) {
        if (board_ready(h->board, BOARD_WORKER0 + place))
            return false;
    }
    return board_ready(h->board, BOARD_WORKER0 + h->place);
}
