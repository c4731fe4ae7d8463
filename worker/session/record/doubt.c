/* Marks of sessions that may lack records, because a node of the fleet and the newest records of
 * its store were lost together. A mark is a record of its own (RECORD_DOUBT), so it stays with the
 * session. Marks of several losses become one. */
#include <stdio.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/store.h"

bool session_needs_doubt(const struct session *s, uint64_t since_ms, uint64_t until_ms)
{
    bool known =
        s->doubt_since_ms > 0 && s->doubt_since_ms <= since_ms && until_ms <= s->doubt_until_ms;

    return !known && !session_has_ended(s) && !session_copying(s);
}

void session_doubt_record(struct str id, uint64_t since_ms, uint64_t until_ms, uint64_t now_ms,
                          struct buf *record)
{
    record_begin(record, RECORD_DOUBT, id, now_ms);
    record_put_u64(record, since_ms);
    record_put_u64(record, MAX_OF(since_ms, until_ms));
}

int session_apply_doubt(struct session *s, struct record_in *r, struct err *e)
{
    uint64_t since_ms = record_u64(r), until_ms = record_u64(r);

    if (r->bad || r->p != r->end || since_ms == 0 || since_ms > until_ms)
        return err_set(e, ERR_IO, "session record: torn doubt");
    if (s->doubt_since_ms == 0 || since_ms < s->doubt_since_ms)
        s->doubt_since_ms = since_ms;
    s->doubt_until_ms = MAX_OF(s->doubt_until_ms, until_ms);
    return 0;
}

void session_put_doubt(const struct session *s, struct json_out *o)
{
    char since[CLOCK_TEXT_MAX], until[CLOCK_TEXT_MAX], text[256];

    if (s->doubt_since_ms == 0)
        return;
    (void)snprintf(text, sizeof(text),
                   "answers from %s to %s may be missing: a node was lost together with the newest "
                   "records of the fleet's store",
                   clock_wall_text(s->doubt_since_ms, since),
                   clock_wall_text(s->doubt_until_ms, until));
    json_out_cstr(o, text);
}
