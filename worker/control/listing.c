/*
 * GET /sessions over all workers: this worker asks its siblings one after the other for the rows
 * behind the cursor until the page is full. A cursor is "<worker index>.<last session id>": both
 * parts stay valid while sessions come and go; a last id that is gone means that worker's rows from
 * the start.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/control/handlers.h"
#include "worker/control/session_walk.h"
#include "worker/control/sibling.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

enum { LIMIT_DEFAULT = 100, SLICE_MS = 2 };

struct listing {
    struct service *service;
    struct exchange *x;
    unsigned dialect;
    struct arena arena;
    struct str phase, label, reseeded; /* filters, decoded */
    struct str query;                  /* as given */
    uint64_t limit, got;
    uint32_t workers[BOARD_WORKERS_MAX];
    size_t n_workers, at;
    struct str after;         /* last id already sent of workers[at]; absent: from the start */
    struct buf rows;          /* JSON objects, comma separated */
    struct buf last;          /* id of the last row */
    struct buf unreachable;   /* indexes of workers that did not answer, comma separated */
    struct http_fetch *asked; /* the running question */
    struct session_walk walk; /* over this worker's own */
    struct loop_task later;
    bool waiting; /* for a session whose row is not known, or for the next slice */
};

/* Also called when the client leaves while a sibling or a reload is awaited. */
static void listing_free(struct listing *v)
{
    http_fetch_cancel(v->asked);
    session_walk_done(&v->walk);
    loop_task_cancel(v->service->calls.loop, &v->later);
    buf_done(&v->rows);
    buf_done(&v->last);
    buf_done(&v->unreachable);
    arena_done(&v->arena);
    free(v);
}

static void on_closed(void *ctx, bool delivered)
{
    (void)delivered;
    listing_free(ctx);
}

static bool any_filter(const struct listing *v)
{
    return v->phase.len > 0 || v->label.len > 0 || v->reseeded.len > 0;
}

/* Holds a row against the filters; a label filter is NAME or NAME=VALUE. */
static bool row_wanted(const struct listing *v, const struct json *row)
{
    const struct json *labels = json_get(row, "labels");
    struct str label = v->label;
    size_t eq = str_find(label, STR("="), 0);
    bool reseeded = json_get(row, "reseeded_from") != NULL;

    if (v->phase.len > 0 && !str_eq(json_string(json_get(row, "phase")), v->phase))
        return false;
    if (v->reseeded.len > 0 && str_eq_c(v->reseeded, "true") != reseeded)
        return false;
    if (label.len == 0)
        return true;
    if (eq == SIZE_MAX)
        return json_get_str(labels, label) != NULL;
    return str_eq(json_text(json_get_str(labels, str_sub(label, 0, eq))),
                  str_sub(label, eq + 1, SIZE_MAX));
}

/* Before its row is made, which reads a session back that is not in memory. */
static bool may_be_wanted(const struct listing *v, const struct session *s)
{
    size_t eq = str_find(v->label, STR("="), 0);

    return v->label.len == 0 || session_may_have_label(s, str_sub(v->label, 0, eq));
}

/* Rows are copied as text. */
static void add_row(struct listing *v, struct str text, struct str id)
{
    if (v->rows.len > 0)
        buf_add_c(&v->rows, ',');
    buf_add_str(&v->rows, text);
    buf_clear(&v->last);
    buf_add_str(&v->last, id);
    v->got++;
}

static void go_on(struct listing *v);

static void on_later(struct loop_task *t)
{
    struct listing *v = CONTAINER_OF(t, struct listing, later);

    v->waiting = false;
    go_on(v);
}

/* The session is back, or gone, or cannot be read: such a one has no row. */
static void on_back(void *ctx, const struct err *e)
{
    struct listing *v = ctx;

    if (e)
        session_walk_leave(&v->walk, v->walk.awaited);
    loop_task_post(v->service->calls.loop, &v->later, on_later);
}

/* The first own session behind the cursor, or behind the last one looked at. */
static struct session *own_first(struct listing *v)
{
    struct session_store *st = v->service->calls.store;
    bool ended = false;

    if (v->walk.seen == 0 && v->after.p)
        return session_next(st, session_find_any(st, v->after, &ended));
    return session_walk_next(&v->walk, st);
}

/* This worker's own rows behind the last one looked at, until the page is full or the slice over.
 */
static void own_rows(struct listing *v)
{
    uint64_t end_ms = clock_ms() + SLICE_MS;
    struct buf row = {0};

    for (struct session *s = own_first(v); s && v->got < v->limit && !v->waiting;
         s = session_next(v->service->calls.store, s)) {
        struct arena a = {0};
        const struct json *parsed = NULL;
        struct err e = {0};

        bool wanted = may_be_wanted(v, s) && !session_copying(s);

        if (wanted &&
            !session_walk_row(&v->walk, v->service->calls.residency, s, &row, on_back, v)) {
            v->waiting = true;
            break;
        }
        if (wanted && any_filter(v))
            wanted = json_parse(&a, buf_str(&row), &parsed, &e) == 0 && row_wanted(v, parsed);
        if (wanted)
            add_row(v, buf_str(&row), session_id(s));
        arena_done(&a);
        session_walk_pass(&v->walk, s);
        if (clock_ms() >= end_ms) {
            v->waiting = true;
            loop_task_post(v->service->calls.loop, &v->later, on_later);
        }
    }
    buf_done(&row);
}

/* The page, with a cursor only if there may be more. */
static void answer(struct listing *v)
{
    struct buf body = {0};
    bool full = v->got >= v->limit;

    buf_puts(&body, "{\"sessions\":[");
    buf_add_str(&body, buf_str(&v->rows));
    buf_puts(&body, "],\"next_cursor\":");
    if (full && v->last.len > 0)
        buf_printf(&body, "\"%u.%.*s\"", v->workers[v->at], (int)v->last.len, v->last.p);
    else
        buf_puts(&body, "null");
    buf_puts(&body, ",\"unreachable\":[");
    buf_add_str(&body, buf_str(&v->unreachable));
    buf_puts(&body, "]}");
    exchange_watch(v->x, NULL, NULL);
    respond_count(v->service, v->dialect, 200);
    exchange_reply(v->x, 200, "application/json", buf_str(&body));
    buf_done(&body);
    listing_free(v);
}

/* The worker at hand has no more rows, or the page is full. */
static void step(struct listing *v)
{
    if (v->got >= v->limit)
        return;
    v->at++;
    v->after = (struct str){0};
    session_walk_done(&v->walk);
    buf_clear(&v->last);
}

static void miss(struct listing *v, int status, const struct err *e)
{
    uint32_t index = v->workers[v->at];

    log_warn(NULL, "a worker did not list its sessions", LOG_U("index", index),
             LOG_I("status", status), LOG_T("error", e->text));
    buf_printf(&v->unreachable, "%s%u", v->unreachable.len > 0 ? "," : "", index);
}

/* A sibling's page. One that cannot be reached is left out, and named. */
static void on_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct listing *v = ctx;
    struct arena a = {0};
    const struct json *page = NULL;
    const struct json *rows;
    struct err bad = {0};

    v->asked = NULL;
    if (status != 200 || json_parse(&a, body, &page, &bad))
        miss(v, status, e);
    rows = json_get(page, "sessions");
    for (size_t i = 0; rows && i < rows->n && v->got < v->limit; i++) {
        struct buf text = {0};

        json_write(&text, json_at(rows, i));
        add_row(v, buf_str(&text), json_string(json_get(json_at(rows, i), "session_id")));
        buf_done(&text);
    }
    arena_done(&a);
    step(v);
    go_on(v);
}

/* The query's filters as they were given: this page's limit and cursor are ours. */
static void add_filters(struct str query, struct buf *path)
{
    static const char *const ours[] = {"limit", "cursor", "local"};

    while (query.len > 0) {
        size_t amp = str_find(query, STR("&"), 0);
        struct str pair = str_sub(query, 0, amp == SIZE_MAX ? query.len : amp);
        struct str name = str_sub(pair, 0, str_find(pair, STR("="), 0));
        bool filter = pair.len > 0;

        for (size_t i = 0; i < ARRAY_LEN(ours); i++)
            filter = filter && !str_eq_c(name, ours[i]);
        if (filter) {
            buf_add_c(path, '&');
            buf_add_str(path, pair);
        }
        query = str_sub(query, pair.len + 1, SIZE_MAX);
    }
}

/* The worker at hand, for as many rows as are missing. */
static void ask(struct listing *v)
{
    struct buf path = {0};
    uint32_t index = v->workers[v->at];

    buf_printf(&path, "/sessions?local=1&limit=%llu", (unsigned long long)(v->limit - v->got));
    buf_printf(&path, "&cursor=%u.%.*s", index, (int)v->after.len, v->after.p ? v->after.p : "");
    add_filters(v->query, &path);
    v->asked = sibling_ask(
        siblings_of(v->service), index,
        &(struct sibling_question){.method = "GET", .path = buf_str(&path), .from = v->x},
        on_answer, v);
    buf_done(&path);
}

/* Worker by worker until the page is full; returns early when something must be awaited. */
static void go_on(struct listing *v)
{
    while (v->at < v->n_workers && v->got < v->limit) {
        if (v->workers[v->at] == v->service->heritage->index)
            own_rows(v);
        else
            ask(v);
        if (v->asked || v->waiting)
            return;
        step(v);
    }
    answer(v);
}

/* Checked by inputs.def. */
static void read_query(struct listing *v, struct str query, struct str *ret_cursor)
{
    v->limit = LIMIT_DEFAULT;
    (void)str_to_u64(query_get(&v->arena, query, "limit"), UINT32_MAX, &v->limit);
    v->phase = query_get(&v->arena, query, "phase");
    v->label = query_get(&v->arena, query, "label");
    v->reseeded = query_get(&v->arena, query, "reseeded");
    *ret_cursor = query_get(&v->arena, query, "cursor");
}

/* The workers to ask and where the cursor stands. */
static int place_cursor(struct listing *v, struct str cursor, bool local, struct err *e)
{
    size_t dot = str_find(cursor, STR("."), 0);
    uint64_t index = 0;

    if (local) {
        v->workers[0] = v->service->heritage->index;
        v->n_workers = 1;
    } else {
        v->n_workers = siblings_list(v->service->heritage, v->workers);
    }
    if (!cursor.p)
        return 0;
    if (dot == SIZE_MAX || str_to_u64(str_sub(cursor, 0, dot), UINT32_MAX, &index))
        return err_field(e, "cursor", "cursor is not one of ours");
    while (v->at < v->n_workers && v->workers[v->at] < index)
        v->at++;
    if (v->at < v->n_workers && v->workers[v->at] == index)
        v->after = str_sub(cursor, dot + 1, SIZE_MAX);
    return 0;
}

/* ?local=1 (other workers ask so) lists this worker's sessions only. */
void listing_get(struct service_request *r)
{
    struct listing *v = mem_zalloc(sizeof(*v));
    struct str query = arena_str(&v->arena, exchange_query(r->x));
    struct str cursor = {0};
    struct err e = {0};

    v->service = r->service;
    v->x = r->x;
    v->dialect = r->dialect;
    v->query = query;
    read_query(v, query, &cursor);
    if (place_cursor(v, cursor, query_get(&v->arena, query, "local").p != NULL, &e)) {
        respond_error(r, NULL, &e);
        listing_free(v);
        return;
    }
    exchange_watch(v->x, on_closed, v);
    go_on(v);
}
