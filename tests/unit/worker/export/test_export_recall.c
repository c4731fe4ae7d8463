/* An export reads back evicted payloads, and pauses between parts, whatever is evicted meanwhile.
 */
#include "common/base/attrs.h"
#include "common/os/task.h"
#include "testing.h"
#include "worker/export/build/export.h"
#include "worker/session/ahead_kit.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session.h"
#include "worker/session/store/store.h"

enum { PART = 128 << 10, IDS = 300000, BYTES = 8 * IDS };

enum { STEP_MOST = RECALL_STEP + PART + (8 << 10) };

/* A session whose journal counts the bytes that are read. */
struct lab {
    struct kit k;
    size_t bytes, now; /* in total; since the test has set it to 0 */
    size_t broken;     /* record that cannot be read; 0: all can */
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

/* A reader of exports, in a task. */
struct reader {
    struct export_out out;
    struct export *x;
    int rc;
    struct lab *w;
    bool leaves;  /* evicts the same payloads at each pause */
    bool fails;   /* fails at the first pause after a read */
    size_t steps; /* number of steps between pauses with a read */
};

static void count_step(struct reader *r)
{
    cr_assert_leq(r->w->now, STEP_MOST);
    r->steps += r->w->now > 0;
    r->w->now = 0;
}

static int pause_flow(struct export_out *o, struct err *e)
{
    (void)o;
    return task_pause(e);
}

static void run_export(void *ctx)
{
    struct reader *r = ctx;

    r->rc = export_write(r->x, &r->out, &r->w->k.err);
}

static int read_export(struct reader *r, enum export_format format, struct buf *out)
{
    struct export_options o = {.format = format};
    struct err *e = &r->w->k.err;
    struct kit_task task;

    r->out = (struct export_out){.bytes = out, .flow = pause_flow};
    r->steps = r->w->now = 0;
    cr_assert_eq(export_new(r->w->k.s, NULL, NULL, &o, &r->x, e), 0, "%s", e->text);
    kit_task_begin(&task, run_export, r);
    while (task.tasks) {
        count_step(r);
        if (r->leaves)
            evict(r->w);
        if (r->fails && r->w->bytes > 0) {
            cr_expect_gt(r->w->k.s->room_bytes, 0);
            kit_task_cancel(&task);
        }
        (void)kit_task_step(&task);
    }
    count_step(r);
    export_free(r->x);
    return r->rc;
}

TEST(export_recall, comes_in_steps_and_is_the_same)
{
    for (int i = 0; i <= EXPORT_NONE; i++) {
        enum export_format format = (enum export_format)i;
        struct buf want = {0}, got = {0}, again = {0};
        struct lab w;
        struct reader r = {.w = &w};

        lab_init(&w);
        cr_assert_eq(read_export(&r, format, &want), 0);
        cr_expect_eq(w.bytes, 0);
        evict(&w);
        cr_assert_eq(w.k.s->payload_bytes, 0);
        cr_assert_eq(read_export(&r, format, &got), 0, "%s", w.k.err.text);
        cr_expect_geq(r.steps, BYTES / STEP_MOST);
        cr_expect_lt(w.bytes, BYTES + BYTES / 100, "it is read once");
        cr_expect(str_eq(buf_str(&want), buf_str(&got)), "format %d", i);
        evict(&w);
        cr_assert_eq(w.k.s->payload_bytes, 0, "nothing is held any more");
        w.bytes = 0;
        r.leaves = true;
        cr_assert_eq(read_export(&r, format, &again), 0);
        cr_expect(str_eq(buf_str(&want), buf_str(&again)), "format %d", i);
        cr_expect_lt(w.bytes, 11 * BYTES, "twice in each of five passes, at most");
        buf_done(&want);
        buf_done(&got);
        buf_done(&again);
        lab_done(&w);
    }
}

TEST(export_recall, is_given_up_in_the_middle)
{
    struct buf out = {0};
    struct lab w;
    struct reader r = {.w = &w, .fails = true};

    lab_init(&w);
    evict(&w);
    cr_expect_eq(read_export(&r, EXPORT_JSON, &out), -1);
    cr_expect_eq(w.k.err.kind, ERR_CANCELLED);
    cr_expect_eq(w.k.s->room_bytes, 0);
    cr_expect_eq(w.k.s->payload_bytes, 0);
    buf_done(&out);
    lab_done(&w);
}

TEST(export_recall, fails_where_the_journal_does)
{
    for (size_t broken = 2; broken < 15; broken += 6) {
        struct buf out = {0};
        struct lab w;
        struct reader r = {.w = &w};

        lab_init(&w);
        cr_assert(ahead_is_numbers(&w.k, broken));
        evict(&w);
        w.broken = broken;
        cr_assert_eq(read_export(&r, EXPORT_JSON, &out), -1);
        cr_expect_eq(w.k.err.kind, ERR_IO);
        cr_expect_eq(w.k.s->room_bytes, 0);
        w.broken = 0;
        buf_clear(&out);
        cr_assert_eq(read_export(&r, EXPORT_JSON, &out), 0);
        buf_done(&out);
        lab_done(&w);
    }
}
