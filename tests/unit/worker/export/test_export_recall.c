/* An export reads back what has left memory a part in each step, whatever leaves it meanwhile. */
#include "testing.h"
#include "worker/export/export.h"
#include "worker/session/ahead_kit.h"
#include "worker/session/commit.h"
#include "worker/session/recall.h"
#include "worker/session/session.h"
#include "worker/session/session_answer.h"
#include "worker/session/store.h"

enum { PART = 128 << 10, IDS = 300000, BYTES = 8 * IDS };

enum { STEP_MOST = RECALL_STEP + PART + (8 << 10), BUDGET = 4 << 10 };

/* A session whose journal counts what is read. */
struct lab {
    struct kit k;
    size_t bytes, now; /* in all; since somebody has set it to 0 */
    size_t broken;     /* this record cannot be had; 0: all can */
};

static int source(void *ctx, struct str id, const uint32_t *records, size_t n,
                  const struct session_reader *to, struct err *e)
{
    struct lab *w = ctx;

    (void)id;
    for (size_t i = 0; i < n; i++) {
        struct str record = buf_str(&w->k.journal[records[i] == w->broken ? 0 : records[i]]);

        w->bytes += record.len;
        w->now += record.len;
        if (to->each(to->ctx, i, record, e) != 0)
            return -1;
    }
    return 0;
}

static void lab_init(struct lab *w)
{
    struct session_answer a;
    struct session_plan *p;

    *w = (struct lab){0};
    ahead_init(&w->k, NULL);
    session_store_source(w->k.store, source, w);
    a = ahead_answer(&w->k, 0, IDS, 1);
    p = kit_ask(&w->k, "[{\"role\":\"user\",\"content\":\"a\"}]", NULL);
    cr_assert(p);
    (void)ahead_parts(&w->k, p, &a, 1, PART);
    ahead_commit(&w->k, p, &a, 1);
    session_pin(w->k.s);
}

static void lab_done(struct lab *w)
{
    session_unpin(w->k.store, w->k.s);
    kit_done(&w->k);
}

static void evict(struct lab *w)
{
    (void)session_evict(w->k.store, 0, SIZE_MAX);
}

static struct export *begin(struct lab *w, enum export_format format)
{
    struct export_options o = {.format = format};
    struct export *x;

    cr_assert_eq(export_new(w->k.s, NULL, NULL, &o, &x, &w->k.err), 0, "%s", w->k.err.text);
    return x;
}

/* All of it, with what leaves memory between two steps, or none; in how many steps some was read.
 */
static int export_all(struct lab *w, struct export *x, bool leaves, struct buf *out, size_t *ret)
{
    int rc;

    *ret = 0;
    do {
        w->now = 0;
        rc = export_next(x, out, BUDGET, &w->k.err);
        cr_assert_leq(w->now, STEP_MOST);
        *ret += w->now > 0;
        if (leaves)
            evict(w);
    } while (rc == 0);
    export_free(x);
    return rc;
}

TEST(export_recall, comes_in_steps_and_is_the_same)
{
    for (int i = 0; i <= EXPORT_NONE; i++) {
        struct buf want = {0}, got = {0}, again = {0};
        struct lab w;
        size_t steps;

        lab_init(&w);
        cr_assert_eq(export_all(&w, begin(&w, (enum export_format)i), false, &want, &steps), 1);
        cr_expect_eq(w.bytes, 0);
        evict(&w);
        cr_assert_eq(w.k.s->payload_bytes, 0);
        cr_assert_eq(export_all(&w, begin(&w, (enum export_format)i), false, &got, &steps), 1, "%s",
                     w.k.err.text);
        cr_expect_geq(steps, BYTES / STEP_MOST);
        cr_expect_lt(w.bytes, BYTES + BYTES / 100, "it is read once");
        cr_expect(str_eq(buf_str(&want), buf_str(&got)), "format %d", i);
        evict(&w);
        cr_assert_eq(w.k.s->payload_bytes, 0, "nothing is held any more");
        w.bytes = 0;
        cr_assert_eq(export_all(&w, begin(&w, (enum export_format)i), true, &again, &steps), 1);
        cr_expect(str_eq(buf_str(&want), buf_str(&again)), "format %d", i);
        cr_expect_lt(w.bytes, 10 * BYTES, "twice in each pass, at most");
        buf_done(&want);
        buf_done(&got);
        buf_done(&again);
        lab_done(&w);
    }
}

TEST(export_recall, is_given_up_in_the_middle)
{
    struct buf out = {0};
    struct export *x;
    struct lab w;

    lab_init(&w);
    evict(&w);
    x = begin(&w, EXPORT_JSON);
    while (w.bytes == 0)
        cr_assert_eq(export_next(x, &out, BUDGET, &w.k.err), 0);
    cr_expect_gt(w.k.s->room_bytes, 0);
    export_free(x);
    cr_expect_eq(w.k.s->room_bytes, 0);
    cr_expect_eq(w.k.s->payload_bytes, 0);
    buf_done(&out);
    lab_done(&w);
}

TEST(export_recall, fails_where_the_journal_does)
{
    for (size_t broken = 1; broken < 15; broken += 6) {
        struct buf out = {0};
        struct lab w;
        size_t steps;

        lab_init(&w);
        cr_assert_eq(ahead_head(&w.k, broken).type, RECORD_BLOCKS);
        evict(&w);
        w.broken = broken;
        cr_assert_eq(export_all(&w, begin(&w, EXPORT_JSON), false, &out, &steps), -1);
        cr_expect_eq(w.k.err.kind, ERR_IO);
        cr_expect_eq(w.k.s->room_bytes, 0);
        w.broken = 0;
        buf_clear(&out);
        cr_assert_eq(export_all(&w, begin(&w, EXPORT_JSON), false, &out, &steps), 1);
        buf_done(&out);
        lab_done(&w);
    }
}
