/* Walks over a worker's sessions (session_walk.h). The walk finds its place again by the id of a
 * passed session, because a search from the first session on would take longer than a slice of the
 * walk. */

#include "worker/plane/control/session_walk.h"

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "common/codec/json_scan.h"
#include "worker/plane/service/service.h"
#include "worker/residency/await_session.h"
#include "worker/session/store/session.h"

/* most bytes of a member's name in a row; the gateway itself wrote the names */
enum { MEMBER_MAX = 4096 };

void session_walk_done(struct session_walk *w)
{
    buf_done(&w->anchor_id);
    buf_done(&w->at_id);
    *w = (struct session_walk){0};
}

struct session *session_walk_next(const struct session_walk *w, struct session_store *st)
{
    bool ended = false;
    struct session *s =
        w->anchor_id.len > 0 ? session_find_any(st, buf_str(&w->anchor_id), &ended) : NULL;

    /* the session is gone, or was read back with a different serial */
    if (!s || session_serial(s) != w->anchor)
        s = session_next(st, NULL);
    while (s && session_serial(s) <= w->seen)
        s = session_next(st, s);
    return s;
}

void session_walk_enter(struct session_walk *w, const struct session *s)
{
    w->at = session_serial(s);
    buf_set(&w->at_id, session_id(s));
}

/* A session that was read back from the journal has a different serial, and comes later in the
 * walk. */
struct session *session_walk_find(const struct session_walk *w, struct session_store *st)
{
    bool ended = false;
    struct session *s = session_find_any(st, buf_str(&w->at_id), &ended);

    return s && session_serial(s) == w->at ? s : NULL;
}

void session_walk_pass(struct session_walk *w)
{
    struct buf spare = w->anchor_id;

    w->seen = w->anchor = w->at;
    w->anchor_id = w->at_id;
    w->at_id = spare;
}

void session_walk_leave(struct session_walk *w)
{
    w->seen = w->at;
}

void session_walk_stop_before(struct session_walk *w, const struct session *s)
{
    session_walk_enter(w, s);
    session_walk_pass(w);
    w->seen--;
}

int session_walk_row(const struct session_walk *w, struct service *a, struct session *s,
                     struct buf *row, struct err *e)
{
    struct session *back;

    buf_clear(row);
    if (!session_resident(s) && session_kept_row(s).p) {
        buf_add_str(row, session_kept_row(s));
        return 0;
    }
    if (session_resident(s)) {
        session_write_row(s, row);
        return 0;
    }
    if (await_session(a->calls.residency, buf_str(&w->at_id), false, &back, e))
        return e->kind == ERR_CANCELLED ? -1 : 0;
    if (!back)
        return 0;
    if (back == session_walk_find(w, a->calls.store) && session_resident(back))
        session_write_row(back, row);
    session_unpin(a->calls.store, back);
    return 0;
}

/* Returns the bytes of the row before the member "metadata" and its comma. Returns 0 if the text is
 * not a row. */
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
        found--; /* the scanner may have passed the colon already */
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
