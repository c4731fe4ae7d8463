/* Evicted payloads of a long path are read back in steps, between which the session continues. */
#include "worker/session/store/recall.h"

#include <stdlib.h>
#include <string.h>

#include "ahead_kit.h"
#include "testing.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/score.h"
#include "worker/session/record/telling.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"
#include "worker/text/request/chat.h"

/* The first answer is longer than the limit for separate pages, the second is not. */
enum { PART = 128 << 10, IDS = 600000, FEWER = 100000, BYTES = 8 * (IDS + FEWER) };

/* Most bytes that a step reads: its share, and the rest of a record. */
enum { STEP_MOST = RECALL_STEP + PART + (8 << 10) };

/* A session of two long turns, whose journal counts reads. */
struct lab {
    struct kit k;
    size_t times, records, bytes, most; /* counts of reads; most bytes of one */
    bool stops;                         /* the reader wants no more after a read */
    size_t broken;                      /* record that cannot be read; 0: all can */
    struct session_answer *a, *b;
    struct chat chat;
    struct session_call_input in;
};

static int source(void *ctx, struct str id, const uint32_t *records, size_t n,
                  const struct session_reader *to, struct err *e)
{
    struct lab *w = ctx;
    size_t bytes = 0;

    (void)id;
    w->times++;
    w->records += n;
    for (size_t i = n; i-- > 0;) { /* in any order */
        struct str record = buf_str(&w->k.journal[records[i]]);

        if (records[i] == w->broken)
            record = buf_str(&w->k.journal[0]);
        bytes += record.len;
        if (to->each(to->ctx, i, record, e) != 0)
            return -1;
    }
    w->bytes += bytes;
    w->most = MAX_OF(w->most, bytes);
    return 0;
}

static void turn(struct lab *w, const char *messages, struct session_answer *a)
{
    struct session_plan *p = kit_ask(&w->k, messages, NULL);

    cr_assert(p, "%s", w->k.err.text);
    (void)ahead_parts(&w->k, p, a, 1, PART);
    ahead_commit(&w->k, p, a, 1);
}

static struct session_answer *answer(struct lab *w, uint32_t n_ids, unsigned seed)
{
    struct session_answer *a = ARENA_NEW(&w->k.arena, struct session_answer);

    *a = ahead_answer(&w->k, 0, n_ids, seed);
    return a;
}

#define FIRST "{\"role\":\"user\",\"content\":\"a\"}"
#define SECOND                                                    \
    FIRST ",{\"role\":\"assistant\",\"content\":\"answer 0.1\"}," \
          "{\"role\":\"user\",\"content\":\"b\"}"
#define THIRD                                                      \
    SECOND ",{\"role\":\"assistant\",\"content\":\"answer 0.2\"}," \
           "{\"role\":\"user\",\"content\":\"c\"}"

static void lab_begin(struct lab *w, const char *options)
{
    *w = (struct lab){0};
    ahead_init(&w->k, options);
    session_store_source(w->k.store, source, w);
    w->a = answer(w, IDS, 1);
    w->b = answer(w, FEWER, 2);
    turn(w, "[" FIRST "]", w->a);
    w->chat = (struct chat){.messages = kit_json(&w->k, "[" THIRD "]")};
    w->in = (struct session_call_input){.chat = &w->chat, .now_ms = 5000, .body_hash = {1, 7}};
}

static void lab_open(struct lab *w)
{
    lab_begin(w, NULL);
    turn(w, "[" SECOND "]", w->b);
}

static size_t memory(const struct lab *w)
{
    struct session_totals t;

    session_store_totals(w->k.store, &t);
    return t.bytes;
}

/* Evicts all payloads, but not the session. */
static void evict(struct lab *w)
{
    session_pin(w->k.s);
    (void)session_evict(w->k.store, 0, SIZE_MAX);
    session_unpin(w->k.store, w->k.s);
}

static void lab_close(struct lab *w)
{
    kit_done(&w->k);
}

/* Runs the rest of a prepare. Counts its steps. */
static int go_through(struct kit_prepare *q, size_t *ret_steps)
{
    for (*ret_steps = 0; q->rc == 1; ++*ret_steps)
        (void)kit_prepare_step(q);
    return q->rc;
}

static int begin(struct lab *w, struct kit_prepare *q)
{
    return kit_prepare(q, &w->k, &w->in);
}

/* Compares the plan's prompt with `want`, and releases the plan. */
static void same_prompt(struct lab *w, const struct kit_prepare *q, struct token_span want)
{
    struct session_plan *p = q->p;
    struct token_span got = ahead_prompt(&w->k, p);

    cr_assert_eq(got.n, want.n);
    cr_assert_arr_eq(got.at, want.at, want.n * sizeof(*want.at));
    session_release(w->k.store, p);
}

/* Returns the prompt of the call in a session whose payloads were never evicted. In the kit's
 * arena. */
static struct token_span prompt_of(struct lab *w)
{
    struct kit_prepare q;
    struct token_span got;

    cr_assert_eq(begin(w, &q), 0, "%s", w->k.err.text);
    got = ahead_prompt(&w->k, q.p);
    cr_assert_gt(got.n, IDS + FEWER);
    session_release(w->k.store, q.p);
    return got;
}

TEST_WITH(recall, a_long_path_comes_back_in_steps, lab)
{
    struct kit_prepare q;
    struct token_span want;
    size_t steps, before;

    want = prompt_of(f);
    cr_assert_eq(f->times, 0, "all of it was in memory");
    before = memory(f);
    evict(f);
    cr_assert_leq(memory(f), before - BYTES);
    cr_assert_eq(begin(f, &q), 1);
    cr_assert_eq(go_through(&q, &steps), 0, "%s", f->k.err.text);
    cr_expect_geq(steps, BYTES / STEP_MOST);
    cr_expect_leq(steps, BYTES / RECALL_STEP);
    cr_expect_eq(f->times, steps + 1);
    cr_expect_leq(f->most, STEP_MOST);
    cr_expect_lt(f->bytes, BYTES + BYTES / 100);
    same_prompt(f, &q, want);
    cr_expect_eq(memory(f), before);
    cr_expect_eq(f->k.s->room_bytes, 0);
    ahead_same(f->k.s, f->a, 1, 0);
    ahead_same(f->k.s, f->b, 1, 1);
}

TEST(recall, a_short_path_takes_no_further_step)
{
    struct lab w;
    struct kit_prepare q;

    lab_open(&w);
    evict(&w);
    cr_assert_eq(ahead_recall(&w.k, w.k.s->forest.checkpoints.at[0]), 0);
    cr_assert_eq(w.times, 1, "in one go");
    cr_assert_gt(w.most, 8 * IDS);
    cr_assert_eq(begin(&w, &q), 1, "the other one is longer than a step");
    kit_prepare_cancel(&q);
    lab_close(&w);

    lab_begin(&w, NULL);
    turn(&w, "[" SECOND "]", answer(&w, 1000, 2));
    evict(&w);
    cr_assert_eq(ahead_recall(&w.k, w.k.s->forest.checkpoints.at[0]), 0);
    cr_assert_eq(begin(&w, &q), 0);
    cr_expect_eq(w.times, 2);
    cr_expect_eq(w.k.s->payload_evicted, 0);
    session_release(w.k.store, q.p);
    lab_close(&w);
}

/* Payloads that were read stay, whatever is evicted between two steps. */
TEST_WITH(recall, what_came_stays_between_two_steps, lab)
{
    struct kit_prepare q;
    struct token_span want;

    want = prompt_of(f);
    evict(f);
    for (int rc = begin(f, &q); rc == 1; rc = kit_prepare_step(&q))
        (void)session_evict(f->k.store, 0, SIZE_MAX);
    cr_assert_eq(q.rc, 0, "%s", f->k.err.text);
    cr_expect_lt(f->bytes, BYTES + BYTES / 100);
    (void)session_evict(f->k.store, 0, SIZE_MAX);
    same_prompt(f, &q, want);
    (void)session_evict(f->k.store, 0, SIZE_MAX);
    cr_expect_not(session_resident(f->k.s), "nothing of it is held any more");
}

/* Payloads that are being read count once, from the start. */
TEST_WITH(recall, calls_of_one_path_read_it_once, lab)
{
    enum { CALLS = 3 };

    struct kit_prepare q[CALLS];
    struct token_span want;
    size_t before, most = 0, more = CALLS;

    want = prompt_of(f);
    before = memory(f);
    evict(f);
    for (size_t i = 0; i < CALLS; i++)
        cr_assert_eq(begin(f, &q[i]), 1);
    while (more > 0) {
        more = 0;
        for (size_t i = 0; i < CALLS; i++) {
            more += kit_prepare_step(&q[i]) == 1;
            most = MAX_OF(most, memory(f));
        }
    }
    cr_expect_leq(most, before + 4096);
    cr_expect_lt(f->bytes, BYTES + BYTES / 100);
    for (size_t i = 0; i < CALLS; i++) {
        cr_assert_eq(q[i].rc, 0);
        same_prompt(f, &q[i], want);
    }
    cr_expect_eq(memory(f), before);
}

/* One of two readers leaves within a payload, then the other one. */
TEST_WITH(recall, who_leaves_takes_nothing_from_others, lab)
{
    struct kit_prepare p, q;
    struct token_span want;
    size_t steps, before;

    want = prompt_of(f);
    evict(f);
    before = memory(f);
    cr_assert_eq(begin(f, &p), 1);
    cr_assert_eq(begin(f, &q), 1);
    cr_expect_eq(memory(f), before + f->k.s->room_bytes);
    cr_expect_geq(f->k.s->room_bytes, 8 * IDS);
    kit_prepare_cancel(&p);
    cr_expect_geq(f->k.s->room_bytes, 8 * IDS);
    kit_prepare_cancel(&q);
    cr_expect_eq(f->k.s->room_bytes, 0);
    cr_expect_eq(memory(f), before);
    cr_expect_eq(session_inflight(f->k.s), 0);
    evict(f); /* nothing can be evicted */
    cr_expect_eq(memory(f), before);
    f->bytes = 0;
    cr_assert_eq(begin(f, &p), 1);
    cr_assert_eq(begin(f, &q), 1);
    kit_prepare_cancel(&p);
    cr_assert_eq(go_through(&q, &steps), 0);
    cr_expect_lt(f->bytes, BYTES + BYTES / 100, "it goes on where both were");
    same_prompt(f, &q, want);
}

/* A reader that cannot wait finishes what a call has begun. */
TEST_WITH(recall, in_one_go_goes_on_where_steps_were, lab)
{
    struct kit_prepare q;
    struct token_span want;

    want = prompt_of(f);
    evict(f);
    cr_assert_eq(begin(f, &q), 1);
    cr_assert_eq(kit_prepare_step(&q), 1);
    cr_assert_eq(ahead_recall(&f->k, f->k.s->forest.checkpoints.at[1]), 0);
    cr_expect_eq(f->times, 3);
    cr_expect_lt(f->bytes, BYTES + BYTES / 100);
    cr_expect_eq(f->k.s->room_bytes, 0);
    ahead_same(f->k.s, f->a, 1, 0);
    cr_assert_eq(kit_prepare_step(&q), 0);
    cr_expect_eq(f->times, 3);
    same_prompt(f, &q, want);
}

/* If any record cannot be read, the payloads read so far stay, calls are refused, and a later call
 * reads the rest. */
TEST_WITH(recall, an_unreadable_record_ends_it_and_a_later_call_reads_on, lab)
{
    struct kit_prepare p, q;
    struct token_span want;
    size_t steps, before, tried = 0;

    want = prompt_of(f);
    for (size_t broken = 1; broken < f->k.n_journal; broken++) {
        if (!ahead_is_numbers(&f->k, broken) || broken % 3 == 2)
            continue;
        evict(f);
        before = memory(f);
        f->broken = broken;
        if (begin(f, &p) == 1 && begin(f, &q) == 1) /* two readers continue to the same end */
            cr_assert_eq(go_through(&q, &steps), -1, "record %zu", broken);
        if (p.p && f->k.s->payload_bytes == 0)
            cr_expect_geq(f->k.s->room_bytes, 8 * IDS, "the other one still reads it");
        cr_assert_eq(go_through(&p, &steps), -1, "record %zu", broken);
        cr_expect_null(p.p);
        cr_expect_eq(f->k.err.kind, ERR_IO);
        cr_expect_eq(ahead_recall(&f->k, f->k.s->forest.checkpoints.at[1]), -1);
        cr_expect_eq(f->k.s->room_bytes, 0);
        cr_expect_eq(memory(f), before + f->k.s->payload_bytes);
        cr_expect_eq(session_inflight(f->k.s), 0);
        f->broken = 0;
        (void)begin(f, &p);
        cr_assert_eq(go_through(&p, &steps), 0, "%s", f->k.err.text);
        same_prompt(f, &p, want);
        tried++;
    }
    cr_expect_gt(tried, 20);
}

TEST(recall, ends_with_its_session)
{
    static const enum session_end how[] = {SESSION_END_DELETE, SESSION_END_ABORT,
                                           SESSION_END_FINALIZE};

    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct lab w;
        struct kit_prepare q;
        size_t steps;

        lab_open(&w);
        evict(&w);
        cr_assert_eq(begin(&w, &q), 1);
        cr_assert_eq(kit_end(&w.k, how[i]), 0);
        w.times = 0;
        cr_expect_eq(go_through(&q, &steps), -1);
        cr_expect_eq(w.times, 0, "it reads nothing more");
        cr_expect_eq(w.k.err.kind, ERR_SESSION_ENDED);
        cr_expect_null(q.p);
        lab_close(&w);
    }
}

/* Other calls of the session are recorded meanwhile, and existing data stays. */
TEST_WITH(recall, the_session_goes_on_between_two_steps, lab)
{
    struct kit_prepare q;
    struct token_span want;

    want = prompt_of(f);
    evict(f);
    for (int rc = begin(f, &q); rc == 1; rc = kit_prepare_step(&q))
        cr_assert_geq(kit_turn(&f->k, "[{\"role\":\"user\",\"content\":\"beside\"}]", "B"), 0);
    cr_assert_eq(q.rc, 0, "%s", f->k.err.text);
    cr_expect(str_eq_c(session_plan_parent(q.p), "r-2-0"));
    same_prompt(f, &q, want);
}

/* Evicts all payloads that the session may lose. Returns -1 after the first read, if the reader
 * wants no more. */
static int evict_between(void *ctx, struct err *e)
{
    struct lab *w = ctx;

    (void)session_evict(w->k.store, 0, SIZE_MAX);
    return w->stops && w->times > 0 ? err_set(e, ERR_CANCELLED, "enough") : 0;
}

/* Reads the session's state and its records. The reader may leave at any piece. */
TEST_WITH(recall, a_state_with_records_is_told_in_steps, lab)
{
    struct buf want = {0}, got = {0};
    struct session_telling t;

    ahead_state(f->k.s, &want);
    session_pin(f->k.s);
    (void)session_evict(f->k.store, 0, SIZE_MAX);
    t = (struct session_telling){.session = f->k.s,
                                 .records = true,
                                 .out = json_out_to(&got),
                                 .flow = evict_between,
                                 .ctx = f};
    f->times = 0;
    cr_assert_eq(session_tell(&t, &f->k.err), 0, "%s", f->k.err.text);
    cr_assert_leq(f->most, STEP_MOST);
    cr_expect(str_eq(buf_str(&want), buf_str(&got)));
    /* the newest path; for each call the path to its prompt, which has the answer, then the answer
     */
    cr_expect_leq(f->times, 5 * (BYTES / RECALL_STEP + 2));
    (void)session_evict(f->k.store, 0, SIZE_MAX);
    cr_expect_eq(f->k.s->payload_bytes, 0, "nothing is held any more");

    buf_clear(&got);
    f->times = 0;
    f->stops = true;
    cr_assert_eq(session_tell(&t, &f->k.err), -1);
    (void)session_evict(f->k.store, 0, SIZE_MAX);
    cr_expect_eq(f->k.s->payload_bytes, 0);
    cr_expect_eq(f->k.s->room_bytes, 0);
    session_unpin(f->k.store, f->k.s);
    buf_done(&want);
    buf_done(&got);
}

/* Reads a branch for a scorer. */
TEST_WITH(recall, a_score_is_asked_for_in_steps, lab)
{
    struct score_wants wants = {.n = 1, .at = {{.what = SCORE_TEACHER, .engine = STR("t")}}};
    struct token_span ids;
    struct score of;
    int32_t *want;

    cr_assert(session_unscored(f->k.s, &wants, &of));
    want = arena_calloc(&f->k.arena, of.head->total, sizeof(*want));
    checkpoint_copy(of.head, want);
    session_pin(f->k.s);
    (void)session_evict(f->k.store, 0, SIZE_MAX);
    cr_assert_eq(session_score_ids(&of, f->k.s, &f->k.arena, &ids, &f->k.err), 0, "%s",
                 f->k.err.text);
    cr_expect_geq(f->times, BYTES / STEP_MOST);
    cr_expect_leq(f->most, STEP_MOST);
    cr_assert_eq(ids.n, of.head->total);
    cr_assert_arr_eq(ids.at, want, ids.n * sizeof(*want));
    (void)session_evict(f->k.store, 0, SIZE_MAX);
    cr_expect_eq(f->k.s->payload_bytes, 0);
    session_unpin(f->k.store, f->k.s);
}

/* Returns a request that begins with a long message, which all of them have. */
static const char *common_request(struct lab *w, const char *end)
{
    char *text = arena_alloc(&w->k.arena, 401);

    memset(text, 'x', 400);
    text[400] = 0;
    return arena_printf(&w->k.arena,
                        "[{\"role\":\"user\",\"content\":\"%s\"},"
                        "{\"role\":\"user\",\"content\":\"%s\"}]",
                        text, end)
        .p;
}

/* Begins a call next to a different one whose context begins with its context. */
static struct session_plan *beside(struct lab *w)
{
    struct session_plan *p;

    ahead_init(&w->k, NULL);
    session_store_source(w->k.store, source, w);
    w->a = answer(w, IDS, 1);
    w->b = answer(w, 100, 2);
    turn(w, common_request(w, "1"), w->a);
    p = kit_ask(&w->k, common_request(w, "2"), NULL);
    cr_assert(p, "%s", w->k.err.text);
    return p;
}

struct comparison {
    struct session_plan *p;
    struct err err;
    int rc;
};

static void read_compared(void *ctx)
{
    struct comparison *x = ctx;

    x->rc = session_read_compared(x->p, &x->err);
}

/* The neighbour is in one payload with a long answer, which is also read in steps. */
TEST(recall, a_neighbours_context_is_compared_in_steps)
{
    for (int ends = 0; ends < 3; ends++) {
        struct lab w = {0};
        struct session_plan *p = beside(&w);
        struct comparison x = {.p = p, .rc = -1};
        struct kit_task task;
        size_t steps = 0;

        if (ends < 2)
            evict(&w);
        w.broken = ends == 1 ? 9 : 0;
        kit_task_begin(&task, read_compared, &x);
        for (; task.tasks; (void)kit_task_step(&task), steps++)
            (void)session_evict(w.k.store, 0, SIZE_MAX);
        cr_expect_eq(x.rc, 0);
        cr_expect_leq(w.most, STEP_MOST);
        if (ends == 0)
            cr_expect_geq(steps, 8 * IDS / STEP_MOST);
        cr_expect_eq(w.times, ends == 0 ? steps + 1 : ends == 1 ? 3 : 0);
        (void)session_evict(w.k.store, 0, SIZE_MAX);
        w.times = 0;
        ahead_commit(&w.k, p, w.b, 1);
        cr_expect_eq(w.times, 0, "what is compared is held until then");
        cr_expect_eq(w.k.s->forest.checkpoints.at[1]->context.base != NULL, ends != 1);
        cr_expect_eq(w.k.s->room_bytes, 0);
        w.broken = 0;
        ahead_same(w.k.s, w.b, 1, 1);
        ahead_replays(&w.k);
        lab_close(&w);
    }
}

/* The context that was read is shared, although a later call with the same beginning is recorded
 * meanwhile. */
TEST(recall, a_later_neighbour_is_not_read)
{
    struct lab w = {0};
    struct comparison x = {.p = beside(&w), .rc = -1};
    const struct checkpoint *t;
    struct kit_task task;

    evict(&w);
    kit_task_begin(&task, read_compared, &x);
    cr_assert(task.tasks);
    turn(&w, common_request(&w, "3"), answer(&w, 100, 3));
    while (task.tasks)
        (void)kit_task_step(&task);
    cr_expect_eq(x.rc, 0);
    (void)session_evict(w.k.store, 0, SIZE_MAX);
    w.times = 0;
    ahead_commit(&w.k, x.p, w.b, 1);
    cr_expect_eq(w.times, 0);
    t = w.k.s->forest.checkpoints.at[2];
    cr_expect_not_null(t->context.base);
    ahead_same(w.k.s, w.b, 1, 2);
    ahead_replays(&w.k);
    lab_close(&w);
}

TEST(recall, a_cancelled_comparison_fails)
{
    struct lab w = {0};
    struct comparison x = {.p = beside(&w)};
    struct kit_task task;

    evict(&w);
    kit_task_begin(&task, read_compared, &x);
    cr_assert(task.tasks);
    kit_task_cancel(&task);
    cr_expect_eq(x.rc, -1);
    cr_expect_eq(x.err.kind, ERR_CANCELLED);
    session_release(w.k.store, x.p);
    lab_close(&w);
}

struct prepare_end {
    struct lab *w;
    struct session_plan *p;
    int rc;
};

static void end_prepare(void *ctx)
{
    struct prepare_end *x = ctx;

    x->rc = session_prepare_end(x->p, &x->w->in, &x->w->k.err);
}

/* Makes a session of one chain and the request of a call that rolls the last answer back, but for
 * which the chain has no space. */
static void lab_full(struct lab *w)
{
    lab_begin(w, "{\"history\":\"chains\",\"prompt_length\":70,\"response_length\":600030}");
    turn(w, "[" SECOND "]", w->b);
    w->chat.messages = kit_json(
        &w->k, "[" SECOND ",{\"role\":\"assistant\",\"content\":\"another\"},"
               "{\"role\":\"user\",\"content\":\"01234567890123456789 01234567890123456789 0123"
               "01234567890123456789 01234567890123456789 01234567890123456789\"}]");
}

/* A call without space closes its chain, of which it has rolled an answer back. That answer is also
 * read in steps. */
TEST(recall, a_chain_is_closed_in_steps)
{
    struct lab w;
    struct prepare_end x = {.w = &w};
    struct kit_prepare q;
    struct kit_task task;
    struct session_plan *p;
    struct token_span prompt;
    size_t steps, before;

    lab_full(&w);
    cr_assert_eq(begin(&w, &q), 0);
    p = q.p;
    (void)ahead_prompt(&w.k, p);
    cr_assert_eq(session_prepare_end(p, &w.in, &w.k.err), 0, "%s", w.k.err.text);
    cr_assert(p->exhausted);
    prompt = ahead_ids(&w.k, p->prompt);
    session_release(w.k.store, p);
    before = memory(&w);
    evict(&w);
    (void)begin(&w, &q);
    cr_assert_eq(go_through(&q, &steps), 0);
    x.p = p = q.p;
    (void)ahead_prompt(&w.k, p);
    cr_expect_geq(w.k.s->payload_evicted, 8 * FEWER);
    kit_task_begin(&task, end_prepare, &x);
    for (steps = 0; task.tasks; (void)kit_task_step(&task), steps++) {
        cr_expect_not(p->exhausted);
        (void)session_evict(w.k.store, 0, SIZE_MAX);
    }
    cr_assert_eq(x.rc, 0, "%s", w.k.err.text);
    cr_expect_eq(steps, 1);
    cr_expect_leq(w.most, STEP_MOST);
    cr_expect(p->exhausted);
    cr_assert_eq(p->prompt.n, prompt.n);
    cr_assert_arr_eq(ahead_ids(&w.k, p->prompt).at, prompt.at, prompt.n * sizeof(*prompt.at));
    cr_expect_eq(memory(&w), before);
    session_release(w.k.store, p);
    lab_close(&w);
}

/* A later call takes the chain, whose head may then move, while the answer is read. */
TEST(recall, a_chain_that_is_taken_is_not_closed)
{
    struct lab w;
    struct prepare_end x = {.w = &w};
    struct kit_prepare q;
    struct kit_task task;
    struct session_plan *taker;
    size_t steps;

    lab_full(&w);
    evict(&w);
    (void)begin(&w, &q);
    cr_assert_eq(go_through(&q, &steps), 0);
    x.p = q.p;
    (void)ahead_prompt(&w.k, x.p);
    kit_task_begin(&task, end_prepare, &x);
    cr_assert(task.tasks, "it reads the answer");
    session_set_left(x.p, true);
    cr_assert_eq(session_prepare_position(w.k.s, &w.k.arena, &w.in, &taker, &w.k.err), 0);
    cr_assert_eq(taker->displaced, x.p);
    while (task.tasks)
        (void)kit_task_step(&task);
    cr_expect_eq(x.rc, -1);
    cr_expect_eq(w.k.err.kind, ERR_STATE_CONFLICT);
    cr_expect_not(x.p->exhausted);
    session_release(w.k.store, taker);
    session_release(w.k.store, x.p);
    lab_close(&w);
}
