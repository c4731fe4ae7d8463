/* Marks of sessions that may lack records. */
#include <string.h>

#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/session.h"
#include "worker/session/store/store.h"

enum { SINCE_MS = 1000, UNTIL_MS = 5000 };

static void mark(struct kit *k, uint64_t since_ms, uint64_t until_ms)
{
    struct buf record = {0};

    session_doubt_record(k->s->id, since_ms, until_ms, ++k->now, &record);
    cr_assert_eq(session_apply(k->store, buf_str(&record), &k->err), 0, "%s", k->err.text);
    buf_done(&record);
}

/* The warnings of losses, as JSON. */
static struct buf read_warnings(const struct session *s)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);

    json_out_arr(&o);
    session_put_loss(s, &o);
    json_out_end_arr(&o);
    return text;
}

TEST_WITH(doubt, marks_of_several_losses_become_one, kit)
{
    struct buf text;

    cr_assert(!session_has_losses(f->s) && session_needs_doubt(f->s, SINCE_MS, UNTIL_MS));
    mark(f, SINCE_MS, UNTIL_MS);
    cr_assert(session_has_losses(f->s) && !session_needs_doubt(f->s, SINCE_MS, UNTIL_MS));
    cr_assert(session_needs_doubt(f->s, SINCE_MS, UNTIL_MS + 1), "a later claim");
    mark(f, 7000, 6000);
    text = read_warnings(f->s);
    cr_assert_neq(str_find(buf_str(&text),
                           STR("[\"answers from 1970-01-01T00:00:01Z to 1970-01-01T00:00:07Z may"),
                           0),
                  SIZE_MAX, "%.*s", (int)text.len, text.p);
    buf_done(&text);
}

TEST_WITH(doubt, a_mark_stays_while_the_session_is_not_in_memory, kit)
{
    f->s->residence = EVICTED;
    mark(f, SINCE_MS, UNTIL_MS);
    cr_assert(f->s->doubt_since_ms == SINCE_MS && f->s->doubt_until_ms == UNTIL_MS);
    f->s->residence = RESIDENT;
}

TEST(doubt, a_torn_mark_is_refused)
{
    static const uint64_t times[][2] = {{0, 5}, {6, 5}};

    for (size_t i = 0; i <= ARRAY_LEN(times); i++) {
        struct buf record = {0};
        struct kit k;

        kit_init(&k, NULL);
        record_begin(&record, RECORD_DOUBT, k.s->id, 9);
        record_put_u64(&record, times[i % 2][0]);
        if (i < ARRAY_LEN(times))
            record_put_u64(&record, times[i][1]);
        cr_expect_eq(session_apply(k.store, buf_str(&record), &k.err), -1);
        cr_expect(strstr(k.err.text, "torn doubt"), "%s", k.err.text);
        buf_done(&record);
        kit_done(&k);
    }
}
