/* A walk over a worker's sessions (session_walk.h). The way back to the last one is by its id: from
 * the first session on, each slice of a long walk would take longer than the slice. */

#include "worker/control/session_walk.h"

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "common/codec/json_scan.h"
#include "worker/session/session.h"

enum { MEMBER_MAX = 4096 }; /* bytes of a member's name in a row: they are ours */

void session_walk_done(struct session_walk *w)
{
    residency_leave(&w->waiter);
    buf_done(&w->anchor_id);
    *w = (struct session_walk){0};
}

struct session *session_walk_next(const struct session_walk *w, struct session_store *st)
{
    bool ended = false;
    struct session *s =
        w->anchor_id.len > 0 ? session_find_any(st, buf_str(&w->anchor_id), &ended) : NULL;

    if (!s || session_serial(s) != w->anchor) /* gone, or back with another serial */
        s = session_next(st, NULL);
    while (s && session_serial(s) <= w->seen)
        s = session_next(st, s);
    return s;
}

void session_walk_pass(struct session_walk *w, const struct session *s)
{
    w->seen = w->anchor = session_serial(s);
    buf_clear(&w->anchor_id);
    buf_add_str(&w->anchor_id, session_id(s));
}

void session_walk_leave(struct session_walk *w, uint64_t serial)
{
    w->seen = serial;
}

bool session_walk_row(struct session_walk *w, struct residency *r, struct session *s,
                      struct buf *row, void (*fn)(void *ctx, const struct err *e), void *ctx)
{
    buf_clear(row);
    if (!session_resident(s) && session_kept_row(s).p) {
        buf_add_str(row, session_kept_row(s));
        return true;
    }
    if (session_resident(s) || residency_ready(r, session_id(s), false)) {
        session_write_row(s, row);
        return true;
    }
    w->waiter.fn = fn;
    w->waiter.ctx = ctx;
    w->awaited = session_serial(s);
    residency_wait(r, session_id(s), &w->waiter);
    return false;
}

/* Bytes of the row before the member "metadata" and its comma; 0: it is no row. */
static size_t head_bytes(struct str row)
{
    static const struct str name = STR_LIT(",\"metadata\"");
    struct json_scan s;
    struct err e = {0};
    size_t found = 0;

    json_scan_init(&s, MEMBER_MAX);
    json_scan_feed(&s, row);
    if (json_scan_next(&s, &e) == 1 && s.token == JSON_TOKEN_OBJECT) {
        while (json_scan_next(&s, &e) == 1 && s.token == JSON_TOKEN_KEY) {
            size_t behind = (size_t)(s.at - row.p);

            if (str_eq_c(s.text, "metadata") && behind >= name.len) {
                found = behind - name.len;
                break;
            }
            if (json_scan_skip(&s, &e) != 1)
                break;
        }
    }
    json_scan_done(&s);
    while (found > 0 && !str_starts(str_sub(row, found, row.len), name))
        found--; /* the scanner is behind the colon, or not */
    return found;
}

const struct json *session_row_head(struct arena *a, struct str row)
{
    size_t n = head_bytes(row);
    const struct json *head;
    struct buf text = {0};
    int rc;

    if (n == 0)
        return NULL;
    buf_add(&text, row.p, n);
    buf_add_c(&text, '}');
    rc = json_parse(a, arena_str(a, buf_str(&text)), &head, NULL);
    buf_done(&text);
    return rc == 0 ? head : NULL;
}
