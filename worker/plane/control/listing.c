/*
 * GET /sessions over all workers of all nodes: this worker asks the others one after the other for
 * the rows after the cursor until the page is full. A long page is sent as it is made. A sibling or
 * a node answers with a page of about 192 KiB at most, in one piece. Nodes follow each other by
 * name, so that each node continues the pages of all.
 *
 * A worker lists first the sessions of its store, then finalized ones that have left the store and
 * are still kept (add_past_rows): each is read back for its row, and then evicted again.
 *
 * A cursor is "<worker index>.<last session id>.<its serial>.<process>". If the last session is
 * gone, its serial distinguishes it from those after it, as long as the process is the same;
 * otherwise that worker's rows start from the beginning. Among the finalized ones the cursor is
 * "<worker index>.past.<last session id>.<its end>.<last serial of the store's rows>.<process>".
 * In a fleet the name of the node and a dot precede both.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "common/serve/reach.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/list_page.h"
#include "worker/plane/control/listed_nodes.h"
#include "worker/plane/control/session_walk.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/service.h"
#include "worker/residency/await_session.h"
#include "worker/session/store/session.h"

enum { LIMIT_DEFAULT = 100 };

/* Bytes of a sibling's page: it ends with the row that exceeds this. */
enum { PAGE_BYTES = 192 << 10 };

struct listing {
    struct service *service;
    struct answering *answer; /* its `out` has the rows that are not sent yet */
    struct arena arena;
    struct str phase, label, reseeded; /* filters, decoded */
    bool archived;                     /* also list finalized sessions that have left the store */
    enum reach reach;
    bool whole;        /* the page is sent in one piece: the request is from a sibling or a node */
    struct str query;  /* the query as given */
    struct str cursor; /* cursor of the query; absent: none */
    uint64_t limit, got;
    uint32_t workers[SIBLINGS_MAX];
    size_t n_workers, at;
    struct listed_nodes *nodes; /* NULL: this node alone is listed */
    struct str after; /* cursor in workers[at] or in a different node, without the index or name of
                         that; absent: from the start */
    struct buf last;  /* cursor of the last row */
    /* indexes of workers and names of nodes that did not answer, then peers, separated by commas */
    struct buf unreachable;
    struct session_walk walk; /* walk over this worker's own sessions */

    struct {
        bool begun;
        struct session_past at; /* the last finalized session that was read; its id is in `id` */
        struct buf id;
        uint64_t last_serial; /* serial of the store's last row; later entries were not listed */
    } past;
};

static void listing_free(struct listing *v)
{
    session_walk_done(&v->walk);
    buf_done(&v->last);
    buf_done(&v->unreachable);
    listed_nodes_free(v->nodes);
    buf_done(&v->past.id);
    arena_done(&v->arena);
    free(v);
}

static bool any_filter(const struct listing *v)
{
    return v->phase.len > 0 || v->label.len > 0 || v->reseeded.len > 0;
}

/* Reports whether a row passes the filters. A label filter is NAME or NAME=VALUE. */
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

/* Returns the label filter's name. */
static struct str label_name(const struct listing *v)
{
    return str_sub(v->label, 0, str_find(v->label, STR("="), 0));
}

/* Filters cheaply, so that a session is not loaded only to be skipped. */
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

/* Adds a row, which is copied as text. */
static void add_row(struct listing *v, struct str text)
{
    struct buf *out = &v->answer->out;

    buf_puts(out, v->got == 0 ? "{\"sessions\":[" : ",");
    buf_add_str(out, text);
    v->got++;
}

/* Reports whether the page needs no further rows. */
static bool is_full(const struct listing *v)
{
    return v->got >= v->limit || (v->whole && v->answer->out.len >= PAGE_BYTES);
}

/* Called after each row: sends the rows so far. */
MAY_PAUSE static int send_rows(struct listing *v, struct err *e)
{
    return v->whole ? task_pause(e) : answering_flow(v->answer, e);
}

/* Cuts a decimal number, with the dot after it, off the text and returns it. Returns 0 if there is
 * none. */
static uint64_t cut_number(struct str *text)
{
    size_t dot = str_find(*text, STR("."), 0);
    uint64_t n = 0;

    (void)str_to_u64(str_sub(*text, 0, dot), UINT64_MAX, &n);
    *text = str_sub(*text, dot == SIZE_MAX ? text->len : dot + 1, SIZE_MAX);
    return n;
}

/* Returns a number that distinguishes this process from others with the same worker index, whose
 * serials differ. */
static uint64_t own_start(void)
{
    static uint64_t at_ms;

    if (at_ms == 0)
        at_ms = (uint64_t)clock_wall_ms();
    return at_ms;
}

/* Returns the first own session after the cursor, or after the last session listed. A session that
 * was evicted and read back has a different serial and place; the list continues where it was. */
static struct session *own_first(struct listing *v)
{
    struct session_store *st = v->service->calls.store;
    struct str tail = v->after;
    struct session *s;
    uint64_t serial;
    size_t dot;
    bool ended = false;

    if (v->walk.seen > 0 || !tail.p)
        return session_walk_next(&v->walk, st);
    dot = str_find(tail, STR("."), 0);
    s = session_find_any(st, str_sub(tail, 0, dot), &ended);
    tail = str_sub(tail, dot == SIZE_MAX ? tail.len : dot + 1, SIZE_MAX);
    serial = cut_number(&tail);
    if (cut_number(&tail) == own_start() && !(s && session_serial(s) == serial)) {
        v->walk.seen = serial;
        s = NULL;
    }
    return s ? session_next(st, s) : session_walk_next(&v->walk, st);
}

/* Adds the row of the entered session. */
MAY_PAUSE static int add_own(struct listing *v, struct session *s, struct buf *row, struct err *e)
{
    const struct session_walk *w = &v->walk;
    struct arena a = {0};

    if (session_walk_row(w, v->service, s, row, e))
        return -1;
    if (row->len > 0 && (!any_filter(v) || row_wanted(v, session_row_head(&a, buf_str(row))))) {
        add_row(v, buf_str(row));
        buf_clear(&v->last);
        buf_printf(&v->last, "%.*s.%llu.%llu", (int)w->at_id.len, w->at_id.p,
                   (unsigned long long)w->at, (unsigned long long)own_start());
    }
    arena_done(&a);
    return 0;
}

/* Adds this worker's own rows after the cursor, until the page is full. */
MAY_PAUSE static int add_own_rows(struct listing *v, struct err *e)
{
    struct session_store *st = v->service->calls.store;
    struct buf row = {0};
    struct session *s = own_first(v);
    int rc = 0;

    while (rc == 0 && s && !is_full(v)) {
        uint64_t turns = task_turns();

        session_walk_enter(&v->walk, s);
        if (may_be_wanted(v, s) && !session_copying(s))
            rc = add_own(v, s, &row, e);
        session_walk_pass(&v->walk);
        if (rc == 0)
            rc = send_rows(v, e);
        if (rc == 0)
            s = task_turns() == turns ? session_next(st, s) : session_walk_next(&v->walk, st);
    }
    buf_done(&row);
    return rc;
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
    v->past.begun = false;
}

/* Continues after the cursor, if that is one of the second kind. */
static void find_past_cursor(struct listing *v)
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
    v->past.at.ended_ms = cut_number(&tail);
    v->past.last_serial = cut_number(&tail);
    if (cut_number(&tail) != own_start())
        v->past.last_serial = 0; /* the cursor is from a different process, so all serials differ */
}

/* Moves to the next finalized session that is not among the store's rows. Returns false if there is
 * none. */
static bool past_next(struct listing *v)
{
    struct session_store *st = v->service->calls.store;
    bool ended = false;
    const struct session *s;

    v->past.at.id = buf_str(&v->past.id);
    if (!session_next_past(st, clock_wall_ms(), &v->past.at))
        return false;
    buf_set(&v->past.id, v->past.at.id);
    s = session_find_any(st, v->past.at.id, &ended);
    if (s && session_serial(s) <= v->past.last_serial)
        v->past.at.kept = false; /* the session was listed already */
    return true;
}

/* Writes the row of the current session, which is then evicted again. Writes none if the session
 * cannot be read back. */
MAY_PAUSE static int past_row(struct listing *v, struct buf *row, struct err *e)
{
    struct session_store *st = v->service->calls.store;
    struct str id = buf_str(&v->past.id);
    bool ended = false, revived = session_find_any(st, id, &ended) == NULL;
    struct session *s;

    buf_clear(row);
    if (await_session(v->service->calls.residency, id, true, &s, e))
        return e->kind == ERR_CANCELLED ? -1 : 0;
    if (!s)
        return 0;
    if (session_resident(s))
        session_write_row(s, row);
    session_unpin(st, s);
    if (revived)
        session_leave_again(s);
    return 0;
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

/* Adds rows of finalized sessions after the store's, until the page is full. */
MAY_PAUSE static int add_past_rows(struct listing *v, struct err *e)
{
    struct buf row = {0};
    int rc = 0;

    past_begin(v);
    while (rc == 0 && !is_full(v) && past_next(v)) {
        if (past_may_be_wanted(v)) {
            rc = past_row(v, &row, e);
            if (rc == 0)
                past_add(v, buf_str(&row));
        }
        if (rc == 0)
            rc = send_rows(v, e);
    }
    buf_done(&row);
    return rc;
}

/* Writes the last row's cursor, if more rows may follow. */
static void put_cursor(struct listing *v, struct buf *out)
{
    const struct listed_node *n = v->nodes ? listed_nodes_current(v->nodes) : NULL;
    bool more = v->nodes ? n != NULL : v->at < v->n_workers;

    if (!more || v->last.len == 0) {
        buf_puts(out, "null");
        return;
    }
    buf_add_c(out, '"');
    if (n)
        buf_printf(out, "%s.", n->name);
    if (!n || n->is_self)
        buf_printf(out, "%u.", v->workers[v->at]);
    buf_add_str(out, buf_str(&v->last));
    buf_add_c(out, '"');
}

/* Writes the end of the page. */
static void put_end(struct listing *v)
{
    struct json_out missing = {&v->unreachable, v->unreachable.len > 0};
    struct buf *out = &v->answer->out;

    if (v->reach == REACH_FLEET && !v->nodes)
        heritage_put_peers(v->service->heritage, &missing);
    if (v->got == 0)
        buf_puts(out, "{\"sessions\":[");
    buf_puts(out, "],\"next_cursor\":");
    put_cursor(v, out);
    buf_puts(out, ",\"unreachable\":[");
    buf_add_str(out, buf_str(&v->unreachable));
    buf_puts(out, "]}");
}

/* Moves to the next worker if the page is not full: the current one has no more rows. */
static void next_worker(struct listing *v)
{
    if (is_full(v))
        return;
    v->at++;
    v->after = (struct str){0};
    session_walk_done(&v->walk);
    past_done(v);
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
    add_row(ctx, text);
}

static void on_page_unreachable(void *ctx, struct str text)
{
    add_unreachable(ctx, text);
}

static const struct list_page_fns page_fns = {on_page_row, on_page_unreachable};

/* Names the current worker, or `node`, in the answer. */
static void mark_unreachable(struct listing *v, const struct listed_node *node, int status,
                             const struct err *e)
{
    struct buf name = {0};

    if (node)
        buf_printf(&name, "\"%s\"", node->name);
    else
        buf_printf(&name, "%u", v->workers[v->at]);
    log_warn(NULL, "a worker or node did not list its sessions", LOG_S("of", buf_str(&name)),
             LOG_I("status", status), LOG_T("error", e->text));
    add_unreachable(v, buf_str(&name));
    buf_done(&name);
}

/* Adds the page of a sibling, or of `node`. If it cannot be reached, the answer names it instead.
 */
static void add_page(struct listing *v, const struct listed_node *node, const struct list_answer *q)
{
    struct str cursor = {0};
    struct err bad = {0};

    if (q->status != 200 ||
        list_page_read(buf_str(&q->body), &v->arena, &page_fns, v, &cursor, &bad))
        mark_unreachable(v, node, q->status, &q->err);
    if (!node && cursor.p)
        cursor = str_sub(cursor, str_find(cursor, STR("."), 0) + 1, SIZE_MAX);
    buf_set(&v->last, cursor);
    v->after = cursor;
}

/* Appends the query's filters as they were given. The limit and the cursor are set for this
 * page. */
static void add_filters(struct str query, struct buf *path)
{
    static const char *const ours[] = {"limit", "cursor", "local", "here"};

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

/* Writes the query for the next page of the current worker, or of `node`. */
static void write_page_query(const struct listing *v, const struct listed_node *node,
                             struct buf *path)
{
    buf_printf(path, "/sessions?%s=1&limit=%llu", node ? "here" : "local",
               (unsigned long long)(v->limit - v->got));
    if (!node)
        buf_printf(path, "&cursor=%u.", v->workers[v->at]);
    else if (v->after.p)
        buf_puts(path, "&cursor=");
    if (v->after.p)
        buf_add_str(path, v->after);
    add_filters(v->query, path);
}

/* Adds rows of the current worker, or of `node`, page by page, until no more are needed. */
MAY_PAUSE static int add_rows_of(struct listing *v, const struct listed_node *node, struct err *e)
{
    struct list_answer answer = {0};
    struct buf path = {0};
    int rc = 0;

    do {
        buf_clear(&answer.body);
        buf_clear(&path);
        write_page_query(v, node, &path);
        rc = list_page_ask(&v->answer->request, node ? NULL : &v->workers[v->at],
                           node ? &node->slot : NULL, buf_str(&path), &answer, e);
        if (rc == 0) {
            add_page(v, node, &answer);
            rc = send_rows(v, e);
        }
    } while (rc == 0 && v->after.p && !is_full(v));
    buf_done(&answer.body);
    buf_done(&path);
    return rc;
}

/* Adds rows worker by worker until the page is full. */
MAY_PAUSE static int add_own_node(struct listing *v, struct err *e)
{
    while (v->at < v->n_workers && !is_full(v)) {
        int rc = 0;

        if (!siblings_serve(v->service->heritage, v->workers[v->at])) {
            add_index(v, v->workers[v->at]);
        } else if (v->workers[v->at] == v->service->heritage->index) {
            find_past_cursor(v);
            if (!v->past.begun)
                rc = add_own_rows(v, e);
            if (rc == 0 && v->archived && !is_full(v))
                rc = add_past_rows(v, e);
        } else {
            rc = add_rows_of(v, NULL, e);
        }
        if (rc)
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

/* Finds the workers to ask, and the place of the cursor. */
static int find_workers(struct listing *v, struct err *e)
{
    struct str cursor = v->cursor;
    size_t dot = str_find(cursor, STR("."), 0);
    uint64_t index = 0;

    if (v->reach == REACH_PROCESS) {
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

/* Adds rows of this node. */
MAY_PAUSE static int list_own_node(struct listing *v, struct err *e)
{
    return find_workers(v, e) ? -1 : add_own_node(v, e);
}

/* Adds rows node by node until the page is full. */
MAY_PAUSE static int list_fleet(struct listing *v, struct err *e)
{
    const struct listed_node *n;
    const uint32_t *unowned;
    size_t n_unowned = siblings_unowned(v->service->heritage, &unowned);

    v->nodes = listed_nodes_new(v->service->heritage, &v->cursor, e);
    if (!v->nodes)
        return -1;
    for (size_t i = 0; i < n_unowned; i++)
        add_index(v, unowned[i]);
    while ((n = listed_nodes_current(v->nodes)) && !is_full(v)) {
        int rc;

        if (!n->is_self)
            v->after = v->cursor;
        rc = n->is_self ? list_own_node(v, e) : add_rows_of(v, n, e);
        if (rc)
            return -1;
        if (is_full(v))
            break;
        listed_nodes_advance(v->nodes);
        v->cursor = v->after = (struct str){0};
        buf_clear(&v->last);
    }
    return 0;
}

static void list_sessions(struct answering *a, void *ctx)
{
    struct listing *v = ctx;
    struct err e = {0};

    v->answer = a;
    if ((v->reach == REACH_FLEET && a->request.service->heritage->fleet
             ? list_fleet(v, &e)
             : list_own_node(v, &e)) == 0) {
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
