/* Payloads of calls that are evicted while their session is in use, and read back from records. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead_kit.h"
#include "testing.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/remains.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"

enum { BRANCHES = 120, ANSWER = 3000 };

/* A session whose source counts reads. */
struct world {
    struct kit k;
    size_t read, times;
    int broken; /* 1: fails; 2: returns a wrong record */
};

static int source(void *ctx, struct str id, const uint32_t *records, size_t n,
                  const struct session_reader *to, struct err *e)
{
    struct world *w = ctx;

    cr_assert(str_eq_c(id, "w0-1"));
    w->times++;
    w->read += n;
    if (w->broken == 1)
        return err_set(e, ERR_IO, "the disk is gone");
    for (size_t i = n; i-- > 0;) { /* in any order */
        cr_assert_lt(records[i], w->k.n_journal);
        if (to->each(to->ctx, i, buf_str(&w->k.journal[records[i] - (w->broken == 2)]), e) != 0)
            return -1;
    }
    return 0;
}

static void ask_text(char *out, size_t size, int branch)
{
    (void)snprintf(
        out, size,
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"A\"},"
        "{\"role\":\"user\",\"content\":\"branch %d\"}]",
        branch);
}

static void world_init(struct world *w, const char *options)
{
    char ask[300], *text = malloc(ANSWER + 1);

    *w = (struct world){0};
    kit_init(&w->k, options);
    w->k.part_bytes = 1 << 20; /* everything in one record */
    session_store_evicts(w->k.store, true);
    session_store_source(w->k.store, source, w);
    cr_assert_geq(kit_turn(&w->k, "[{\"role\":\"user\",\"content\":\"a\"}]", "A"), 0);
    for (int i = 0; i < BRANCHES; i++) {
        memset(text, 'A' + i % 26, ANSWER);
        text[ANSWER] = 0;
        ask_text(ask, sizeof(ask), i);
        cr_assert_geq(kit_turn(&w->k, ask, text), 0);
    }
    free(text);
}

static struct session_totals totals(const struct world *w)
{
    struct session_totals t;

    session_store_totals(w->k.store, &t);
    return t;
}

static struct session_plan *run_on(struct world *w, int branch)
{
    char ask[300];

    ask_text(ask, sizeof(ask), branch);
    return kit_ask(&w->k, ask, NULL);
}

TEST(payload, cold_branches_leave_while_a_call_runs)
{
    struct world w;
    struct session_plan *p;
    struct session_totals before, after;
    struct buf want = {0}, got = {0};

    world_init(&w, NULL);
    p = run_on(&w, 7);
    cr_assert(p);
    cr_assert_eq(session_write_state(w.k.s, true, &want, &w.k.err), 0);
    before = totals(&w);
    cr_expect_eq(session_evict(w.k.store, 0, SIZE_MAX), BRANCHES);
    after = totals(&w);
    cr_expect(session_resident(w.k.s));
    cr_expect_eq(after.payload_evictions,
                 BRANCHES); /* the first checkpoint is on the call's path */
    cr_expect_eq(after.tokens, before.tokens);
    cr_expect_eq(after.evicted, 0);
    cr_expect_geq(after.evicted_bytes, (size_t)BRANCHES * ANSWER * 8);
    cr_expect_eq(before.bytes - after.bytes, after.evicted_bytes);
    cr_expect_eq(w.times, 0);
    cr_assert_eq(session_write_state(w.k.s, true, &got, &w.k.err), 0);
    session_release(w.k.store, p);
    cr_expect_eq(w.read, BRANCHES);
    cr_expect_eq(got.len, want.len);
    cr_expect(str_eq(buf_str(&want), buf_str(&got)));
    cr_expect_eq(totals(&w).payload_loads, BRANCHES);
    cr_expect_eq(totals(&w).evicted_bytes, 0);
    cr_expect_eq(totals(&w).bytes, before.bytes);
    buf_done(&want);
    buf_done(&got);
    kit_done(&w.k);
}

TEST(payload, a_running_call_commits_on_what_stayed)
{
    struct world w;
    struct session_plan *p;

    world_init(&w, NULL);
    p = run_on(&w, BRANCHES + 1);
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    cr_assert_eq(kit_answer(&w.k, p, "fine", false), 0);
    cr_expect_eq(w.times, 0);
    kit_done(&w.k);
}

static int64_t ask_longer(struct world *w, int branch, char letter)
{
    struct buf ask = {0};
    int64_t cause;

    buf_printf(
        &ask,
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"A\"},"
        "{\"role\":\"user\",\"content\":\"branch %d\"},{\"role\":\"assistant\",\"content\":\"",
        branch);
    for (int i = 0; i < ANSWER; i++)
        buf_add_c(&ask, letter);
    buf_printf(&ask, "\"},{\"role\":\"user\",\"content\":\"go on\"}]%c", 0);
    cause = kit_turn(&w->k, ask.p, "more");
    buf_done(&ask);
    return cause;
}

TEST(payload, the_coldest_goes_first)
{
    struct world w;
    uint64_t goal;

    world_init(&w, NULL);
    goal = totals(&w).bytes - (uint64_t)10 * ANSWER * 8; /* about ten branches */
    cr_expect_geq(session_evict(w.k.store, goal, SIZE_MAX), 10);
    cr_expect_leq(totals(&w).payload_evictions, 12);
    cr_expect(session_resident(w.k.s)); /* idle, but used recently */
    cr_expect_eq(ask_longer(&w, 30, 'A' + 30 % 26), 0);
    cr_expect_eq(w.read, 0);
    cr_expect_eq(ask_longer(&w, 2, 'A' + 2), 0);
    cr_expect_eq(w.times, 1);
    cr_expect_eq(w.read, 1);
    kit_done(&w.k);
}

enum { TURNS = 12 };

/* Plays TURNS turns that continue each other. `ask` becomes the request of the next one. */
static void play_path(struct world *w, struct buf *ask)
{
    buf_puts(ask, "[{\"role\":\"user\",\"content\":\"path\"}");
    for (int i = 0; i < TURNS; i++) {
        buf_printf(ask, "]%c", 0);
        cr_assert_geq(kit_turn(&w->k, ask->p, "step"), 0);
        ask->len -= 2;
        buf_puts(ask, ",{\"role\":\"assistant\",\"content\":\"step\"},"
                      "{\"role\":\"user\",\"content\":\"next\"}");
    }
    buf_printf(ask, "]%c", 0);
}

/* Returns how many of the path's last answers are not in memory. All others must be. */
static uint32_t absent_at_end(const struct world *w)
{
    const struct checkpoint *t = vec_last(&w->k.s->forest.checkpoints);
    uint32_t n = 0;

    for (; t && !t->payload->bytes; t = t->parent)
        n++;
    for (; t; t = t->parent)
        cr_assert(t->payload->bytes);
    return n;
}

TEST(payload, a_path_leaves_from_its_end_on)
{
    struct world w;
    struct session_plan *p, *also;
    struct buf ask = {0};

    world_init(&w, NULL);
    play_path(&w, &ask);
    p = kit_ask(&w.k, ask.p, NULL);
    also = kit_ask(&w.k, ask.p, NULL);
    cr_assert(p && also);
    cr_expect_eq(session_evict(w.k.store, 0, SIZE_MAX), BRANCHES + 1);
    cr_expect_eq(absent_at_end(&w), 0);
    session_release(w.k.store, p);
    cr_expect_eq(session_evict(w.k.store, 0, SIZE_MAX), 0, "the other call runs");
    session_pin(w.k.s);
    session_release(w.k.store, also);
    for (uint32_t i = 1; i <= 3; i++) {
        cr_expect_eq(session_evict(w.k.store, 0, 1), 1);
        cr_expect_eq(absent_at_end(&w), i);
    }
    p = kit_ask(&w.k, ask.p, NULL);
    cr_assert(p);
    cr_expect_eq(w.read, 3);
    cr_expect_eq(session_evict(w.k.store, 0, SIZE_MAX), 0);
    cr_assert_eq(kit_answer(&w.k, p, "end", false), 0);
    cr_expect_eq(session_evict(w.k.store, 0, SIZE_MAX), TURNS + 1);
    cr_expect_eq(absent_at_end(&w), TURNS + 1);
    cr_expect_eq(w.k.s->payload_bytes, 0);
    session_unpin(w.k.store, w.k.s);
    buf_done(&ask);
    kit_done(&w.k);
}

/* A branch that was used lately keeps the beginning that it shares with one that was not. */
TEST(payload, a_shared_beginning_leaves_with_its_last_branch)
{
    struct world w;
    struct checkpoint **all;

    world_init(&w, NULL);
    session_pin(w.k.s);
    all = w.k.s->forest.checkpoints.at;
    session_release(w.k.store, run_on(&w, BRANCHES + 1)); /* uses the first answer */
    cr_expect_eq(session_evict(w.k.store, 0, BRANCHES - 1), BRANCHES - 1);
    cr_expect(all[0]->payload->bytes && all[BRANCHES]->payload->bytes);
    cr_expect_eq(session_evict(w.k.store, 0, 1), 1);
    cr_expect(all[0]->payload->bytes && !all[BRANCHES]->payload->bytes);
    cr_expect_eq(session_evict(w.k.store, 0, SIZE_MAX), 1);
    session_unpin(w.k.store, w.k.s);
    kit_done(&w.k);
}

/* What is released by an evicted end is as old as that end: it goes before what was used later. */
TEST(payload, an_old_path_goes_whole_before_a_later_branch)
{
    struct world w;
    struct buf ask = {0};
    struct checkpoint **all;

    world_init(&w, NULL);
    play_path(&w, &ask);
    cr_assert_eq(ask_longer(&w, 0, 'A'), 0);
    session_pin(w.k.s);
    cr_expect_eq(session_evict(w.k.store, 0, BRANCHES - 1 + TURNS), BRANCHES - 1 + TURNS);
    all = w.k.s->forest.checkpoints.at;
    for (int i = 1; i <= BRANCHES + TURNS; i++)
        cr_expect_eq(all[i]->payload->bytes != NULL, i == 1, "answer %d", i);
    cr_expect(all[0]->payload->bytes && all[BRANCHES + TURNS + 1]->payload->bytes);
    session_unpin(w.k.store, w.k.s);
    buf_done(&ask);
    kit_done(&w.k);
}

/* The context that an answer shares may be evicted between its fragments and its commit. */
TEST(payload, an_answer_whose_shared_context_left_is_read_with_it)
{
#define SHARED "[{\"role\":\"user\",\"content\":\"a beginning that is longer than 32 bytes\"},"
    static const char *const asks[] = {SHARED "{\"role\":\"user\",\"content\":\"one\"}]",
                                       SHARED "{\"role\":\"user\",\"content\":\"two\"}]",
                                       SHARED "{\"role\":\"user\",\"content\":\"two\"},"
                                              "{\"role\":\"assistant\",\"content\":\"answer 0.1\"},"
                                              "{\"role\":\"user\",\"content\":\"go on\"}]"};
#undef SHARED
    struct world w;
    struct session_answer a;
    struct session_plan *p;
    const struct checkpoint *t;

    world_init(&w, NULL);
    cr_assert_geq(kit_turn(&w.k, asks[0], "one"), 0);
    p = kit_ask(&w.k, asks[1], NULL);
    a = ahead_answer(&w.k, 0, ANSWER, 1);
    cr_assert_gt(ahead_parts(&w.k, p, &a, 1, ANSWER), 1);
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    ahead_commit(&w.k, p, &a, 1);
    t = vec_last(&w.k.s->forest.checkpoints);
    cr_assert(t->context.base && !t->context.base->payload->bytes && t->payload->bytes);
    cr_expect_geq(kit_turn(&w.k, asks[2], "more"), 0, "%s", w.k.err.text);
    cr_expect_eq(w.read, 1);
    kit_done(&w.k);
}

TEST(payload, all_of_an_idle_session_goes_when_that_is_what_it_takes)
{
    struct world w;

    world_init(&w, NULL);
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    cr_expect(!session_resident(w.k.s));
    cr_expect_eq(totals(&w).evictions, 1);
    cr_expect_eq(totals(&w).evicted, 1);
    session_load_begin(w.k.s);
    for (size_t i = 0; i < w.k.n_journal; i++) {
        session_load_at(w.k.s, i);
        cr_assert_eq(session_apply(w.k.store, buf_str(&w.k.journal[i]), &w.k.err), 0);
        if (i % 2) /* larger than the free space: parts are evicted before the rest is read */
            (void)session_evict(w.k.store, 0, SIZE_MAX);
    }
    cr_assert_eq(session_load_end(w.k.s, true, w.k.now), 0);
    cr_expect_eq(ask_longer(&w, 5, 'A' + 5), 0);
    cr_expect_leq(w.read, 2); /* only its own path */
    kit_done(&w.k);
}

/* The last answer comes into memory when the beginning of its path has left it again. */
TEST(payload, an_answer_that_is_loaded_without_its_beginning_is_read_with_it)
{
    struct world w;

    world_init(&w, NULL);
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    session_load_begin(w.k.s);
    for (size_t i = 0; i < w.k.n_journal; i++) {
        session_load_at(w.k.s, i);
        if (i + 1 == w.k.n_journal)
            (void)session_evict(w.k.store, 0, SIZE_MAX);
        cr_assert_eq(session_apply(w.k.store, buf_str(&w.k.journal[i]), &w.k.err), 0);
    }
    cr_assert_eq(session_load_end(w.k.s, true, w.k.now), 0);
    cr_expect_eq(ask_longer(&w, BRANCHES - 1, 'A' + (BRANCHES - 1) % 26), 0);
    cr_expect_eq(w.read, 1);
    kit_done(&w.k);
}

static struct session_remains *buried;

static void bury(void *ctx, struct session_remains *r)
{
    cr_assert_null(buried);
    (*(int *)ctx)++;
    buried = r;
}

static void free_buried(void)
{
    remains_free(buried);
    buried = NULL;
}

/* Messages and tokens of an ended session are freed later by another owner. */
TEST(payload, what_a_session_held_is_freed_by_others)
{
    struct world w;
    int times = 0;

    world_init(&w, NULL);
    session_store_buries(w.k.store, bury, &times);
    kit_done(&w.k);
    cr_assert_eq(times, 1);
    free_buried();
    world_init(&w, NULL);
    session_store_buries(w.k.store, bury, &times);
    (void)session_evict(w.k.store, 0, SIZE_MAX); /* payloads first, then the rest */
    cr_expect_not(session_resident(w.k.s));
    cr_assert_eq(times, 2);
    free_buried();
    kit_done(&w.k);
}

/* Messages that are held outlive their session's content, and are freed with the last hold. */
TEST(payload, messages_stay_as_long_as_they_are_held)
{
    struct world w;
    const struct message_node *node;
    struct str text;
    char was[64];
    void *held, *also;

    world_init(&w, NULL);
    node = vec_last(&w.k.s->forest.nodes);
    text = str_sub(node_text(node), 0, sizeof(was));
    cr_assert_gt(text.len, 0);
    memcpy(was, text.p, text.len);
    held = session_hold_messages(w.k.s);
    also = session_hold_messages(w.k.s);
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    cr_expect_not(session_resident(w.k.s));
    cr_expect(str_eq(text, str_of(was, text.len)));
    session_release_messages(also);
    kit_done(&w.k);
    cr_expect(str_eq(text, str_of(was, text.len)));
    session_release_messages(held);
}

/* The last hold passes on what is left, so that the loop does not free it. */
TEST(payload, messages_that_were_held_longest_are_freed_by_others)
{
    struct world w;
    int times = 0;
    void *held;

    world_init(&w, NULL);
    session_store_buries(w.k.store, bury, &times);
    held = session_hold_messages(w.k.s);
    cr_expect(session_has_messages(w.k.s, held));
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    cr_expect_not(session_has_messages(w.k.s, held));
    cr_assert_eq(times, 1);
    free_buried();
    session_release_messages(held);
    cr_assert_eq(times, 2);
    free_buried();
    kit_done(&w.k);
}

TEST(payload, what_cannot_be_read_back_refuses_and_hurts_nothing)
{
    struct world w;
    struct session_plan *p;
    struct buf state = {0};

    world_init(&w, NULL);
    p = run_on(&w, 3);
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    for (w.broken = 1; w.broken < 3; w.broken++) {
        cr_expect_eq(ask_longer(&w, 4, 'A' + 4), -1);
        cr_expect_eq(w.k.err.kind, ERR_IO);
        cr_expect_eq(session_write_state(w.k.s, true, &state, &w.k.err), -1);
        cr_expect_eq(session_inflight(w.k.s), 1);
    }
    w.broken = 0;
    cr_expect_eq(ask_longer(&w, 4, 'A' + 4), 0);
    session_release(w.k.store, p);
    buf_done(&state);
    kit_done(&w.k);
}

/* Timelines share context over many checkpoints. Each can be read without reading all of them. */
TEST(payload, shared_context_comes_back_with_few_records)
{
    struct world w;
    struct buf ask = {0};
    struct session_plan *p;
    struct buf want = {0}, got = {0};

    world_init(&w, "{\"history\":\"timelines\"}");
    for (int i = 0; i < 60; i++) {
        buf_clear(&ask);
        buf_puts(&ask, "[");
        for (int k = 0; k <= i; k++)
            buf_printf(&ask,
                       "%s{\"role\":\"user\",\"content\":\"a message of some length, number %d\"}",
                       k ? "," : "", k);
        buf_printf(&ask, "]%c", 0);
        cr_assert_geq(kit_turn(&w.k, ask.p, "an answer"), 0);
    }
    p = run_on(&w, 3);
    cr_assert_eq(session_write_state(w.k.s, true, &want, &w.k.err), 0);
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    cr_assert_eq(session_write_state(w.k.s, true, &got, &w.k.err), 0);
    cr_expect(str_eq(buf_str(&want), buf_str(&got)));
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    w.read = 0;
    cr_assert_geq(kit_turn(&w.k, ask.p, "another"), 0);
    cr_expect_leq(w.read, 18);
    session_release(w.k.store, p);
    buf_done(&ask);
    buf_done(&want);
    buf_done(&got);
    kit_done(&w.k);
}
