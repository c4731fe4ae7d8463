/*
 * Rows of GET /sessions from this process: first the sessions of its store, then finalized ones
 * that have left the store and are still kept (add_past_rows). Each of those is read back for its
 * row, and then evicted again.
 *
 * A cursor is "<worker index>.<last session id>.<its serial>.<process>". If the last session is
 * gone, its serial distinguishes it from those after it. Another process has other serials, and
 * another order: that worker's rows start from the beginning. Among the finalized ones the cursor
 * is "<worker index>.past.<last session id>.<its end>.<last serial of the store's rows>.<process>".
 */
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "worker/plane/control/listing_internal.h"
#include "worker/plane/control/session_walk.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/service.h"
#include "worker/residency/await_session.h"
#include "worker/session/store/session.h"

/* Bytes of a sibling's page: it ends with the row that exceeds this. */
enum { PAGE_BYTES = 192 << 10 };

struct listing_own {
    struct session_walk walk; /* of the store */

    struct {
        bool begun;
        struct session_past at; /* the last finalized session that was read; its id is in `id` */
        struct buf id;
        uint64_t last_serial; /* serial of the store's last row; later entries were not listed */
    } past;
};

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

/* Reports whether the session belongs to the listed place. */
static bool is_of_place(const struct listing *v, struct str id)
{
    uint32_t index;

    return !v->by_place || (ids_parse(id, &index) == 0 && index == v->workers[v->at]);
}

/* Filters cheaply, so that a session is not loaded only to be skipped. */
static bool may_be_wanted(const struct listing *v, const struct session *s)
{
    return is_of_place(v, session_id(s)) &&
           (v->label.len == 0 || session_may_have_label(s, label_name(v)));
}

static bool past_may_be_wanted(const struct listing *v)
{
    bool phase_fits =
        v->phase.len == 0 || str_eq_c(v->phase, "finalized") || str_eq_c(v->phase, "expired");

    return phase_fits && v->own->past.at.kept && is_of_place(v, buf_str(&v->own->past.id)) &&
           (v->label.len == 0 || session_past_may_have_label(&v->own->past.at, label_name(v)));
}

void listing_add_row(struct listing *v, struct str text)
{
    struct buf *out = &v->answer->out;

    buf_puts(out, v->got == 0 ? "{\"sessions\":[" : ",");
    buf_add_str(out, text);
    v->got++;
}

bool listing_is_full(const struct listing *v)
{
    return v->got >= v->limit || (v->whole && v->answer->out.len >= PAGE_BYTES);
}

MAY_PAUSE int listing_send_rows(struct listing *v, struct err *e)
{
    return v->whole ? task_pause(e) : answering_flow(v->answer, e);
}

/* Cuts a decimal number, with the dot after it, off the text and returns it. Returns 0 if there is
 * none. */
static uint64_t cut_number(struct str *text)
{
    uint64_t n = 0;

    (void)str_to_u64(str_cut(text, '.'), UINT64_MAX, &n);
    return n;
}

/* Returns a number that distinguishes this process from others, at other nodes, too. */
static uint64_t own_start(const struct listing *v)
{
    static uint64_t start;

    uint64_t now_ms = (uint64_t)clock_wall_ms();

    if (start == 0)
        start = str_hash(str_of((const char *)&now_ms, sizeof(now_ms)),
                         v->service->heritage->board->hash_seed);
    return start;
}

/* Returns the first own session after the cursor, or after the last session listed. A session that
 * was evicted and read back has a different serial and place; the list continues where it was. */
static struct session *own_first(struct listing *v)
{
    struct session_store *st = v->service->calls.store;
    struct str tail = v->after;
    struct session *s;
    uint64_t serial;
    bool ended = false;

    if (v->own->walk.seen > 0 || !tail.p)
        return session_walk_next(&v->own->walk, st);
    s = session_find_any(st, str_cut(&tail, '.'), &ended);
    serial = cut_number(&tail);
    if (cut_number(&tail) != own_start(v))
        return session_walk_next(&v->own->walk, st);
    if (s && session_serial(s) == serial)
        return session_next(st, s);
    v->own->walk.seen = serial;
    return session_walk_next(&v->own->walk, st);
}

/* Adds the row of the entered session. */
MAY_PAUSE static int add_own(struct listing *v, struct session *s, struct buf *row, struct err *e)
{
    const struct session_walk *w = &v->own->walk;
    struct arena a = {0};

    if (session_walk_row(w, v->service, s, row, e))
        return -1;
    if (row->len > 0 && (!any_filter(v) || row_wanted(v, session_row_head(&a, buf_str(row))))) {
        listing_add_row(v, buf_str(row));
        buf_clear(&v->last);
        buf_printf(&v->last, "%.*s.%llu.%llu", (int)w->at_id.len, w->at_id.p,
                   (unsigned long long)w->at, (unsigned long long)own_start(v));
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

    while (rc == 0 && s && !listing_is_full(v)) {
        uint64_t turns = task_turns();

        session_walk_enter(&v->own->walk, s);
        if (may_be_wanted(v, s) && !session_copying(s))
            rc = add_own(v, s, &row, e);
        session_walk_pass(&v->own->walk);
        if (rc == 0)
            rc = listing_send_rows(v, e);
        if (rc == 0)
            s = task_turns() == turns ? session_next(st, s) : session_walk_next(&v->own->walk, st);
    }
    buf_done(&row);
    return rc;
}

/* --- finalized sessions that have left the store --- */

static void past_begin(struct listing *v)
{
    if (v->own->past.begun)
        return;
    v->own->past.begun = true;
    v->own->past.last_serial = session_last_serial(v->service->calls.store);
}

static void past_done(struct listing *v)
{
    buf_clear(&v->own->past.id);
    v->own->past.at = (struct session_past){0};
    v->own->past.begun = false;
}

/* Continues after the cursor, if that is one of the second kind. */
static void find_past_cursor(struct listing *v)
{
    struct str tail = v->after;

    if (v->own->past.begun || !str_starts(tail, STR("past.")))
        return;
    tail = str_sub(tail, 5, SIZE_MAX);
    past_begin(v);
    buf_add_str(&v->own->past.id, str_cut(&tail, '.'));
    v->own->past.at.ended_ms = cut_number(&tail);
    v->own->past.last_serial = cut_number(&tail);
    if (cut_number(&tail) != own_start(v)) {
        past_done(v);
        v->after = (struct str){0};
    }
}

/* Moves to the next finalized session that is not among the store's rows. Returns false if there is
 * none. */
static bool past_next(struct listing *v)
{
    struct session_store *st = v->service->calls.store;
    bool ended = false;
    const struct session *s;

    v->own->past.at.id = buf_str(&v->own->past.id);
    if (!session_next_past(st, clock_wall_ms(), &v->own->past.at))
        return false;
    buf_set(&v->own->past.id, v->own->past.at.id);
    s = session_find_any(st, v->own->past.at.id, &ended);
    if (s && session_serial(s) <= v->own->past.last_serial)
        v->own->past.at.kept = false; /* the session was listed already */
    return true;
}

/* Writes the row of the current session, which is then evicted again. Writes none if the session
 * cannot be read back. */
MAY_PAUSE static int past_row(struct listing *v, struct buf *row, struct err *e)
{
    struct session_store *st = v->service->calls.store;
    struct str id = buf_str(&v->own->past.id);
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
        listing_add_row(v, row);
    arena_done(&a);
    buf_clear(&v->last);
    buf_printf(&v->last, "past.%.*s.%llu.%llu.%llu", (int)v->own->past.id.len, v->own->past.id.p,
               (unsigned long long)v->own->past.at.ended_ms,
               (unsigned long long)v->own->past.last_serial, (unsigned long long)own_start(v));
}

/* Adds rows of finalized sessions after the store's, until the page is full. */
MAY_PAUSE static int add_past_rows(struct listing *v, struct err *e)
{
    struct buf row = {0};
    int rc = 0;

    past_begin(v);
    while (rc == 0 && !listing_is_full(v) && past_next(v)) {
        if (past_may_be_wanted(v)) {
            rc = past_row(v, &row, e);
            if (rc == 0)
                past_add(v, buf_str(&row));
        }
        if (rc == 0)
            rc = listing_send_rows(v, e);
    }
    buf_done(&row);
    return rc;
}

MAY_PAUSE int listing_add_own(struct listing *v, struct err *e)
{
    int rc = 0;

    v->own = arena_calloc(&v->arena, 1, sizeof(*v->own));
    find_past_cursor(v);
    if (!v->own->past.begun)
        rc = add_own_rows(v, e);
    if (rc == 0 && v->archived && !listing_is_full(v))
        rc = add_past_rows(v, e);
    return rc;
}

void listing_end_own(struct listing *v)
{
    if (!v->own)
        return;
    session_walk_done(&v->own->walk);
    buf_done(&v->own->past.id);
    v->own = NULL;
}

bool listing_is_own(const struct listing *v, uint32_t index)
{
    const struct heritage *h = v->service->heritage;

    return v->reach == REACH_PROCESS || board_resolve(h->board, index) == (int)h->place;
}
