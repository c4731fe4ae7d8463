/*
 * GET /sessions over all workers: this worker asks its siblings one after the other for the rows
 * behind the cursor until the page is full. What is long is sent as it is made, a part at a time:
 *
 *     go_on -> own_rows -> a slice of them -> send_some -> a later turn, or when there is room
 *           -> ask      -> a sibling's page, of some 192 KiB at most, and the next -> send_some
 *           -> answer: the end; all of it, where it is short
 *
 * A worker lists the sessions of its store, then finalized ones that have left the store and are
 * still kept (past_rows): each is read back for its row, and leaves again.
 *
 * A cursor is "<worker index>.<last session id>.<its serial>.<process>": a last session that is
 * gone is told from those behind it by its serial, as long as the process is the same; else that
 * worker's rows come from the start. Among the finalized ones it is "<worker index>.past.<last
 * session id>.<its end>.<last serial of the store's rows>.<process>".
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
#include "worker/control/list_page.h"
#include "worker/control/session_walk.h"
#include "worker/control/sibling.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

enum { LIMIT_DEFAULT = 100, SLICE_US = 1000 };

/* Bytes of rows that are made in one turn (and the row that is longer): a sibling's page, what is
 * sent at once. */
enum { PART_BYTES = 192 << 10 };

struct listing {
    struct service *service;
    struct exchange *x;
    unsigned dialect;
    struct arena arena;
    struct str phase, label, reseeded; /* filters, decoded */
    bool archived;                     /* finalized sessions that have left the store, too */
    struct str query;                  /* as given */
    uint64_t limit, got;
    uint32_t workers[BOARD_WORKERS_MAX];
    size_t n_workers, at;
    struct str after;         /* cursor in workers[at], without its index; absent: from the start */
    struct buf rows;          /* of the answer, not sent yet */
    struct buf last;          /* the same of the last row */
    struct buf unreachable;   /* indexes of workers that did not answer, then peers; by commas */
    struct http_fetch *asked; /* the running question */
    struct session_walk walk; /* over this worker's own */

    struct {
        bool begun;
        struct session_past at; /* the last one looked at; its id is in `id` */
        struct buf id;
        uint64_t last_serial; /* of the store's rows: entries behind it were not listed */
        bool revived;         /* the entry of the one at hand was made for its row */
        bool awaited;         /* the one at hand has no row yet */
        bool unread;          /* the one at hand cannot be read back */
    } past;
    struct loop_task later;
    bool waiting; /* for a session whose row is not known, for the next slice, or for room */
    bool local;   /* a sibling asks: a part is a page */
    bool begun;   /* the head of the answer is out, and some rows */
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
    buf_done(&v->past.id);
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

/* The label filter's name. */
static struct str label_name(const struct listing *v)
{
    return str_sub(v->label, 0, str_find(v->label, STR("="), 0));
}

/* Before its row is made, which reads a session back that is not in memory. */
static bool may_be_wanted(const struct listing *v, const struct session *s)
{
    return v->label.len == 0 || session_may_have_label(s, label_name(v));
}

static bool past_may_be_wanted(const struct listing *v)
{
    bool phase_fits =
        v->phase.len == 0 || str_eq_c(v->phase, "finalized") || str_eq_c(v->phase, "expired");

    return phase_fits && v->past.at.kept &&
           (v->label.len == 0 || session_past_may_have_label(&v->past.at, label_name(v)));
}

/* Rows are copied as text. */
static void add_row(struct listing *v, struct str text)
{
    buf_puts(&v->rows, v->got == 0 ? "{\"sessions\":[" : ",");
    buf_add_str(&v->rows, text);
    v->got++;
}

/* No more rows are wanted of anybody. */
static bool is_full(const struct listing *v)
{
    return v->got >= v->limit || (v->local && v->rows.len >= PART_BYTES);
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

    if (e && v->past.begun)
        v->past.unread = true;
    else if (e)
        session_walk_leave(&v->walk, v->walk.awaited);
    loop_task_post(v->service->calls.loop, &v->later, on_later);
}

/* A client that reads slowly is waited for, others have the loop between two parts. */
static void send_some(struct listing *v)
{
    if (v->local || (!v->begun && v->rows.len < PART_BYTES))
        return;
    if (!v->begun) {
        respond_count(v->service, v->dialect, 200);
        exchange_start(v->x, "application/json");
    }
    v->begun = true;
    exchange_send(v->x, &v->rows);
}

static void on_room(void *ctx)
{
    struct listing *v = ctx;

    loop_task_post(v->service->calls.loop, &v->later, on_later);
}

/* on_later follows. */
static void rest_a_turn(struct listing *v)
{
    v->waiting = true;
    if (v->begun && exchange_waiting(v->x) >= EXCHANGE_WINDOW)
        exchange_on_room(v->x, on_room, v);
    else
        loop_task_post_behind(v->service->calls.loop, &v->later, on_later);
}

/* The number of a decimal text up to its end or a dot, which is passed; 0: there is none. */
static uint64_t take_number(struct str *text)
{
    size_t dot = str_find(*text, STR("."), 0);
    uint64_t n = 0;

    (void)str_to_u64(str_sub(*text, 0, dot), UINT64_MAX, &n);
    *text = str_sub(*text, dot == SIZE_MAX ? text->len : dot + 1, SIZE_MAX);
    return n;
}

/* Tells this process from others that had its place, whose serials are others' too. */
static uint64_t own_start(void)
{
    static uint64_t at_ms;

    if (at_ms == 0)
        at_ms = (uint64_t)clock_wall_ms();
    return at_ms;
}

/* The first own session behind the cursor, or behind the last one looked at. A session that has
 * left memory and is back has another serial and place: the list goes on where it was. */
static struct session *own_first(struct listing *v)
{
    struct session_store *st = v->service->calls.store;
    struct str tail = v->after;
    struct session *s;
    uint64_t serial;
    size_t dot;
    bool ended = false;

    if (v->past.begun)
        return NULL;
    if (v->walk.seen > 0 || !tail.p)
        return session_walk_next(&v->walk, st);
    dot = str_find(tail, STR("."), 0);
    s = session_find_any(st, str_sub(tail, 0, dot), &ended);
    tail = str_sub(tail, dot == SIZE_MAX ? tail.len : dot + 1, SIZE_MAX);
    serial = take_number(&tail);
    if (take_number(&tail) == own_start() && !(s && session_serial(s) == serial)) {
        session_walk_leave(&v->walk, serial);
        s = NULL;
    }
    return s ? session_next(st, s) : session_walk_next(&v->walk, st);
}

static void own_row(struct listing *v, struct str row, const struct session *s)
{
    struct str id = session_id(s);

    add_row(v, row);
    buf_clear(&v->last);
    buf_printf(&v->last, "%.*s.%llu.%llu", (int)id.len, id.p, (unsigned long long)session_serial(s),
               (unsigned long long)own_start());
}

/* The slice is over; a page may be. */
static void break_off(struct listing *v)
{
    if (is_full(v))
        return;
    send_some(v);
    rest_a_turn(v);
}

/* This worker's own rows behind the last one looked at, until the page is full or the slice over.
 */
static void own_rows(struct listing *v)
{
    uint64_t end_us = clock_us() + SLICE_US;
    struct buf row = {0};
    size_t had = v->rows.len;

    for (struct session *s = own_first(v); s && !is_full(v) && !v->waiting;
         s = session_next(v->service->calls.store, s)) {
        struct arena a = {0};
        bool wanted = may_be_wanted(v, s) && !session_copying(s);

        if (wanted &&
            !session_walk_row(&v->walk, v->service->calls.residency, s, &row, on_back, v)) {
            v->waiting = true;
            break;
        }
        if (wanted && any_filter(v))
            wanted = row_wanted(v, session_row_head(&a, buf_str(&row)));
        if (wanted)
            own_row(v, buf_str(&row), s);
        arena_done(&a);
        session_walk_pass(&v->walk, s);
        if (clock_us() >= end_us || v->rows.len - had >= PART_BYTES)
            break_off(v);
    }
    buf_done(&row);
}

/* --- finalized sessions that have left the store --- */

static void past_begin(struct listing *v)
{
    if (v->past.begun)
        return;
    v->past.begun = true;
    v->past.last_serial = session_last_serial(v->service->calls.store);
}

static void past_done(struct listing *v)
{
    buf_clear(&v->past.id);
    v->past.at = (struct session_past){0};
    v->past.begun = v->past.revived = v->past.awaited = v->past.unread = false;
}

/* Goes on behind the cursor, if it is one of the second kind. */
static void past_place(struct listing *v)
{
    struct str tail = v->after;
    size_t dot;

    if (v->past.begun || !str_starts(tail, STR("past.")))
        return;
    tail = str_sub(tail, 5, SIZE_MAX);
    dot = str_find(tail, STR("."), 0);
    past_begin(v);
    buf_add_str(&v->past.id, str_sub(tail, 0, dot));
    tail = str_sub(tail, dot == SIZE_MAX ? tail.len : dot + 1, SIZE_MAX);
    v->past.at.ended_ms = take_number(&tail);
    v->past.last_serial = take_number(&tail);
    if (take_number(&tail) != own_start())
        v->past.last_serial = 0; /* of a different process: all entries have other serials */
}

/* Moves to the next one that is not among the store's rows. False: there is none. */
static bool past_next(struct listing *v)
{
    struct session_store *st = v->service->calls.store;
    bool ended = false;
    const struct session *s;

    v->past.at.id = buf_str(&v->past.id);
    if (!session_next_past(st, clock_wall_ms(), &v->past.at))
        return false;
    buf_clear(&v->past.id);
    buf_add_str(&v->past.id, v->past.at.id);
    s = session_find_any(st, v->past.at.id, &ended);
    if (s && session_serial(s) <= v->past.last_serial)
        v->past.at.kept = false; /* it was listed */
    return true;
}

/* The row of the one at hand, in `row`. False: it is read back, and on_back comes. */
static bool past_row(struct listing *v, struct buf *row)
{
    struct residency *r = v->service->calls.residency;
    struct session_store *st = v->service->calls.store;
    struct str id = buf_str(&v->past.id);
    bool ended = false;
    struct session *s = session_find_any(st, id, &ended);

    buf_clear(row);
    if (v->past.unread)
        return true;
    v->past.revived |= !s;
    if (!residency_ready(r, id, true)) {
        v->walk.waiter = (struct residency_waiter){.fn = on_back, .ctx = v};
        residency_wait(r, id, &v->walk.waiter);
        return false;
    }
    s = session_find_any(st, id, &ended);
    if (s && session_resident(s))
        session_write_row(s, row);
    if (s && v->past.revived)
        session_leave_again(s);
    return true;
}

static void past_add(struct listing *v, struct str row)
{
    struct arena a = {0};

    if (row.len > 0 && (!any_filter(v) || row_wanted(v, session_row_head(&a, row))))
        add_row(v, row);
    arena_done(&a);
    buf_clear(&v->last);
    buf_printf(&v->last, "past.%.*s.%llu.%llu.%llu", (int)v->past.id.len, v->past.id.p,
               (unsigned long long)v->past.at.ended_ms, (unsigned long long)v->past.last_serial,
               (unsigned long long)own_start());
}

/* Rows of finalized sessions, behind the store's, until the page is full or the slice over. */
static void past_rows(struct listing *v)
{
    uint64_t end_us = clock_us() + SLICE_US;
    struct buf row = {0};
    size_t had = v->rows.len;

    past_begin(v);
    while (!is_full(v) && !v->waiting && (v->past.awaited || past_next(v))) {
        if (v->past.awaited || past_may_be_wanted(v)) {
            v->past.awaited = v->waiting = !past_row(v, &row);
            if (v->waiting)
                break;
            past_add(v, buf_str(&row));
        }
        v->past.revived = v->past.unread = false;
        if (clock_us() >= end_us || v->rows.len - had >= PART_BYTES)
            break_off(v);
    }
    buf_done(&row);
}

/* The end of the page, with a cursor only if there may be more. */
static void answer(struct listing *v)
{
    struct exchange *x = v->x;
    struct json_out missing = {&v->unreachable, v->unreachable.len > 0};

    if (!v->local)
        heritage_put_peers(v->service->heritage, &missing);
    if (v->got == 0)
        buf_puts(&v->rows, "{\"sessions\":[");
    buf_puts(&v->rows, "],\"next_cursor\":");
    if (v->at < v->n_workers && v->last.len > 0)
        buf_printf(&v->rows, "\"%u.%.*s\"", v->workers[v->at], (int)v->last.len, v->last.p);
    else
        buf_puts(&v->rows, "null");
    buf_puts(&v->rows, ",\"unreachable\":[");
    buf_add_str(&v->rows, buf_str(&v->unreachable));
    buf_puts(&v->rows, "]}");
    exchange_watch(x, NULL, NULL);
    if (v->begun) {
        exchange_send(x, &v->rows);
        exchange_end(x);
    } else {
        respond_count(v->service, v->dialect, 200);
        exchange_reply_buf(x, 200, "application/json", &v->rows);
    }
    listing_free(v);
}

/* The worker at hand has no more rows, or the page is full. */
static void step(struct listing *v)
{
    if (is_full(v))
        return;
    v->at++;
    v->after = (struct str){0};
    session_walk_done(&v->walk);
    past_done(v);
    buf_clear(&v->last);
}

static void miss(struct listing *v, int status, const struct err *e)
{
    uint32_t index = v->workers[v->at];

    log_warn(NULL, "a worker did not list its sessions", LOG_U("index", index),
             LOG_I("status", status), LOG_T("error", e->text));
    buf_printf(&v->unreachable, "%s%u", v->unreachable.len > 0 ? "," : "", index);
}

static void on_page_row(void *ctx, struct str text)
{
    add_row(ctx, text);
}

/* A sibling's page. One that cannot be reached is left out, and named. */
static void on_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct listing *v = ctx;
    struct str cursor = {0};
    struct err bad = {0};

    v->asked = NULL;
    if (status != 200 || list_page_read(body, &v->arena, on_page_row, v, &cursor, &bad))
        miss(v, status, e);
    buf_clear(&v->last);
    buf_add_str(&v->last, cursor);
    if (cursor.p && !is_full(v))
        v->after = cursor;
    else
        step(v);
    if (!v->begun && v->rows.len < PART_BYTES) {
        go_on(v);
        return;
    }
    send_some(v);
    rest_a_turn(v);
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
    while (v->at < v->n_workers && !is_full(v)) {
        if (v->workers[v->at] == v->service->heritage->index) {
            past_place(v);
            own_rows(v);
            if (v->archived && !v->waiting && !is_full(v))
                past_rows(v);
        } else {
            ask(v);
        }
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
    v->archived = !str_eq_c(query_get(&v->arena, query, "archived"), "false");
    *ret_cursor = query_get(&v->arena, query, "cursor");
}

/* The workers to ask and where the cursor stands. */
static int place_cursor(struct listing *v, struct str cursor, struct err *e)
{
    size_t dot = str_find(cursor, STR("."), 0);
    uint64_t index = 0;

    if (v->local) {
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
    v->local = query_get(&v->arena, query, "local").p != NULL;
    read_query(v, query, &cursor);
    if (place_cursor(v, cursor, &e)) {
        respond_error(r, NULL, &e);
        listing_free(v);
        return;
    }
    exchange_watch(v->x, on_closed, v);
    go_on(v);
}
