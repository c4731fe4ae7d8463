/*
 * GET /sessions over all workers: this worker asks the others one after the other for the rows
 * after the cursor until the page is full. A long page is sent as it is made. A sibling or a node
 * answers with a page of about 192 KiB at most, in one piece.
 *
 * In a fleet the list goes through the places of all nodes by index, and asks the present owner of
 * each. So a place that moves is listed once, or again from its beginning. A place that cannot be
 * listed is named. A node that does not own the place answers 421.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/list_page.h"
#include "worker/plane/control/listed_places.h"
#include "worker/plane/control/listing_internal.h"
#include "worker/plane/control/sibling.h"
#include "worker/plane/control/sibling_wait.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/service.h"

enum { LIMIT_DEFAULT = 100, MISDIRECTED = 421 };

static void listing_free(struct listing *v)
{
    listing_end_own(v);
    buf_done(&v->last);
    buf_done(&v->unreachable);
    arena_done(&v->arena);
    free(v);
}

/* Writes the cursor of the next page: after the last row, or the beginning of the next worker. */
static void put_cursor(struct listing *v, struct buf *out)
{
    if (v->at == v->n_workers) {
        buf_puts(out, "null");
        return;
    }
    buf_printf(out, "\"%u.", v->workers[v->at]);
    buf_add_str(out, buf_str(&v->last));
    buf_add_c(out, '"');
}

/* Writes the end of the page. */
static void put_end(struct listing *v)
{
    struct json_out missing = {&v->unreachable, v->unreachable.len > 0};
    struct buf *out = &v->answer->out;

    if (v->reach == REACH_FLEET && !v->service->heritage->fleet)
        heritage_put_peers(v->service->heritage, &missing);
    if (v->got == 0)
        buf_puts(out, "{\"sessions\":[");
    buf_puts(out, "],\"next_cursor\":");
    put_cursor(v, out);
    buf_puts(out, ",\"unreachable\":[");
    buf_add_str(out, buf_str(&v->unreachable));
    buf_puts(out, "]}");
}

/* Moves to the next worker, unless the page became full before the end of the current one. */
static void next_worker(struct listing *v)
{
    if (listing_is_full(v) && v->last.len > 0)
        return;
    v->at++;
    v->after = (struct str){0};
    listing_end_own(v);
    buf_clear(&v->last);
}

static void add_unreachable(struct listing *v, struct str text)
{
    buf_puts(&v->unreachable, v->unreachable.len > 0 ? "," : "");
    buf_add_str(&v->unreachable, text);
}

/* Names an index that nobody serves now. */
static void add_index(struct listing *v, uint32_t index)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%u", index);
    add_unreachable(v, str_cstr(text));
}

static void on_page_row(void *ctx, struct str text)
{
    listing_add_row(ctx, text);
}

static void on_page_unreachable(void *ctx, struct str text)
{
    add_unreachable(ctx, text);
}

static const struct list_page_fns page_fns = {on_page_row, on_page_unreachable};

/* Names a node, once. */
static void add_node(struct listing *v, uint32_t slot, const char *name)
{
    struct buf text = {0};

    if (v->silent[slot])
        return;
    v->silent[slot] = true;
    buf_printf(&text, "\"%s\"", name);
    add_unreachable(v, buf_str(&text));
    buf_done(&text);
}

/* Adds a page of the current worker or place. Returns false if the answer is not a page. */
static bool add_page(struct listing *v, const struct sibling_answer *q)
{
    struct str cursor = {0};
    struct err bad = {0};

    if (q->status != 200 ||
        list_page_read(buf_str(&q->body), &v->arena, &page_fns, v, &cursor, &bad)) {
        log_warn(NULL, "a worker or node did not list its sessions",
                 LOG_U("index", v->workers[v->at]), LOG_I("status", q->status),
                 LOG_T("error", q->err.text));
        return false;
    }
    if (cursor.p)
        cursor = str_sub(cursor, str_find(cursor, STR("."), 0) + 1, SIZE_MAX);
    buf_set(&v->last, cursor);
    v->after = cursor;
    return true;
}

/* Appends the query's filters as they were given. The limit and the cursor are set for this
 * page. */
static void add_filters(struct str query, struct buf *path)
{
    static const char *const ours[] = {"limit", "cursor", "local", "here", "place"};

    while (query.len > 0) {
        struct str pair = str_cut(&query, '&');
        struct str name = str_sub(pair, 0, str_find(pair, STR("="), 0));

        if (pair.len > 0 && !str_is_one_of(name, ours, ARRAY_LEN(ours))) {
            buf_add_c(path, '&');
            buf_add_str(path, pair);
        }
    }
}

/* Writes the query for the next page of the current worker, or of the node with that slot. */
static void write_page_query(const struct listing *v, const uint32_t *slot, struct buf *path)
{
    uint32_t index = v->workers[v->at];

    buf_printf(path, "/sessions?%s=1&limit=%llu&cursor=%u.", slot ? "here" : "local",
               (unsigned long long)(v->limit - v->got), index);
    if (v->after.p)
        buf_add_str(path, v->after);
    if (v->by_place)
        buf_printf(path, "&place=%u", index);
    add_filters(v->query, path);
}

/* Adds rows of the current worker, or of the current place at the node with that slot, page by
 * page, until no more are needed. *ret_status is not 200 if the last answer was not a page. */
MAY_PAUSE static int add_rows_of(struct listing *v, const uint32_t *slot, int *ret_status,
                                 struct err *e)
{
    struct sibling_answer answer = {0};
    struct buf path = {0};
    int rc = 0;

    do {
        buf_clear(&path);
        write_page_query(v, slot, &path);
        rc =
            sibling_wait(v->answer->request.service, slot ? NULL : &v->workers[v->at], slot,
                         &(struct sibling_question){
                             .method = "GET", .path = buf_str(&path), .from = v->answer->request.x},
                         &answer, e);
        *ret_status = answer.status;
        if (rc == 0 && !add_page(v, &answer)) {
            *ret_status = answer.status == 200 ? 0 : answer.status;
            buf_clear(&v->last);
            break;
        }
        if (rc == 0)
            rc = listing_send_rows(v, e);
    } while (rc == 0 && v->after.p && !listing_is_full(v));
    buf_done(&answer.body);
    buf_done(&path);
    return rc;
}

/* Adds rows of the current worker of this node. */
MAY_PAUSE static int add_worker(struct listing *v, struct err *e)
{
    const struct heritage *h = v->service->heritage;
    uint32_t index = v->workers[v->at];
    int status, rc;

    if (listing_is_own(v, index))
        return listing_add_own(v, e);
    if (!siblings_serve(h, index)) {
        add_index(v, index);
        return 0;
    }
    rc = add_rows_of(v, NULL, &status, e);
    if (rc == 0 && status != 200)
        add_index(v, index);
    return rc;
}

/* Adds rows of the current place. If its node does not list it, and another one owns it by now,
 * that one is asked. */
MAY_PAUSE static int add_place(struct listing *v, struct err *e)
{
    const struct heritage *h = v->service->heritage;
    uint32_t index = v->workers[v->at], slot, asked = FLEET_NO_NODE;
    struct fleet_node node;
    int status = 0;

    for (;;) {
        switch (listed_places_owner(h, index, &node, &slot)) {
        case LISTED_NOT:
            return 0;
        case LISTED_BY_SELF:
            return add_worker(v, e);
        case LISTED_BY_LOST:
            add_node(v, slot, node.name);
            return 0;
        case LISTED_BY_OTHER:
            break;
        case LISTED_BY_NOBODY:
        default:
            add_index(v, index);
            return 0;
        }
        if (slot == asked && status == MISDIRECTED)
            add_index(v, index);
        else if (slot == asked)
            add_node(v, slot, node.name);
        if (slot == asked || v->silent[slot])
            return 0;
        asked = slot;
        if (add_rows_of(v, &slot, &status, e))
            return -1;
        if (status == 200)
            return 0;
    }
}

/* Adds rows worker by worker, or place by place, until the page is full. */
MAY_PAUSE static int add_rows(struct listing *v, struct err *e)
{
    bool fleet = v->reach == REACH_FLEET && v->service->heritage->fleet;

    while (v->at < v->n_workers && !listing_is_full(v)) {
        if (fleet ? add_place(v, e) : add_worker(v, e))
            return -1;
        next_worker(v);
    }
    return 0;
}

/* Reads the query, which inputs.def has checked. */
static void read_query(struct listing *v, struct str query)
{
    v->limit = LIMIT_DEFAULT;
    (void)str_to_u64(query_get(&v->arena, query, "limit"), UINT32_MAX, &v->limit);
    v->phase = query_get(&v->arena, query, "phase");
    v->label = query_get(&v->arena, query, "label");
    v->reseeded = query_get(&v->arena, query, "reseeded");
    v->archived = !str_eq_c(query_get(&v->arena, query, "archived"), "false");
    v->cursor = query_get(&v->arena, query, "cursor");
}

/* Finds the only place to list, which another node or a sibling asks for. */
static int find_place(struct listing *v, struct str text, struct err *e)
{
    const struct place_table *t = v->service->heritage->fleet;
    uint64_t index;

    if (!t || str_to_u64(text, UINT32_MAX, &index))
        return err_field(e, "place", "place is not a worker index of a fleet");
    if (v->reach == REACH_NODE && place_table_own_epoch(t, (uint32_t)index) == 0)
        return err_set(e, ERR_MISDIRECTED, "this node does not have the worker index %u",
                       (uint32_t)index);
    v->by_place = true;
    v->workers = arena_alloc(&v->arena, sizeof(*v->workers));
    v->workers[0] = (uint32_t)index;
    v->n_workers = 1;
    return 0;
}

/* Finds the workers or places to list. */
static int find_workers(struct listing *v, struct err *e)
{
    const struct heritage *h = v->service->heritage;
    struct str place = query_get(&v->arena, v->query, "place");

    if (place.p)
        return find_place(v, place, e);
    if (v->reach == REACH_FLEET && h->fleet) {
        v->by_place = true;
        v->workers = listed_places_find(h, &v->arena, &v->n_workers);
        return 0;
    }
    v->workers = arena_calloc(&v->arena, SIBLINGS_MAX, sizeof(*v->workers));
    if (v->reach != REACH_PROCESS) {
        v->n_workers = siblings_list(h, v->workers);
        return 0;
    }
    v->workers[0] = h->index;
    v->n_workers = 1;
    return 0;
}

/* Reports whether the text has the bytes of a cursor only. It is sent on in the path of requests to
 * siblings and nodes. */
static bool is_cursor(struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];

        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && c != '.' && c != '-')
            return false;
    }
    return true;
}

/* Finds the worker or place of the cursor. If that is gone, the list continues with the next one.
 */
static int find_cursor(struct listing *v, struct err *e)
{
    size_t dot = str_find(v->cursor, STR("."), 0);
    uint64_t index = 0;

    if (!v->cursor.p)
        return 0;
    if (dot == SIZE_MAX || !is_cursor(v->cursor) ||
        str_to_u64(str_sub(v->cursor, 0, dot), UINT32_MAX, &index))
        return err_field(e, "cursor", "cursor is not one of ours");
    while (v->at < v->n_workers && v->workers[v->at] < index)
        v->at++;
    if (v->at < v->n_workers && v->workers[v->at] == index)
        v->after = str_sub(v->cursor, dot + 1, SIZE_MAX);
    return 0;
}

static void list_sessions(struct answering *a, void *ctx)
{
    struct listing *v = ctx;
    struct err e = {0};

    v->answer = a;
    if (find_workers(v, &e) == 0 && find_cursor(v, &e) == 0 && add_rows(v, &e) == 0) {
        put_end(v);
        answering_end(a);
    } else {
        answering_fail(a, "a list of sessions broke", &e);
    }
    listing_free(v);
}

/* Lists the sessions within the reach of the request. */
void listing_get(struct service_request *r)
{
    struct listing *v = mem_zalloc(sizeof(*v));
    struct str query = arena_str(&v->arena, exchange_query(r->x));

    v->service = r->service;
    v->query = query;
    v->reach = reach_of_request(r->x);
    v->whole = v->reach != REACH_FLEET;
    read_query(v, query);
    answering_start(r, list_sessions, v);
}
