/* The book of groups: what follows from records, and what is claimed and delivered next. */
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/json.h"
#include "costs.h"
#include "dispatcher/book.h"
#include "dispatcher/book_record.h"
#include "dispatcher/result.h"
#include "testing.h"

static void apply(struct book *b, struct buf *record)
{
    struct err e = {0};

    cr_assert_eq(book_apply(b, buf_str(record), &e), 0, "%s", e.text);
    buf_done(record);
}

static void submit(struct book *b, const char *id, const char *more)
{
    struct buf text = {0}, record = {0};

    buf_printf(&text, "{\"id\":\"%s\",\"runner\":\"r\"%s}", id, more);
    record_group(str_cstr(id), buf_str(&text), 1000, &record);
    apply(b, &record);
    buf_done(&text);
}

/* ctx: the name of the queue that is closed, or NULL. */
static bool closed_queue(void *ctx, const struct queue *q)
{
    return ctx && strcmp(q->name, ctx) == 0;
}

/* Claims the next rollout for an executor; its attempt, or NULL. */
static struct attempt *claim(struct book *b, const char *executor, uint64_t at_ms)
{
    static unsigned n;
    struct runner *r = book_runner_made(b, STR("r"));
    struct rollout *m = book_next_rollout(b, r, str_cstr(executor), at_ms, closed_queue, NULL);
    struct buf record = {0};
    char id[ATTEMPT_ID_LEN + 1];

    if (!m)
        return NULL;
    (void)snprintf(id, sizeof(id), "%032x", ++n);
    record_claim(m->group->spec.id,
                 &(struct record_claim){m->index, str_cstr(id), STR("w0-x"), str_cstr(executor)},
                 at_ms, &record);
    apply(b, &record);
    return book_attempt(b, str_cstr(id));
}

static void end(struct book *b, struct attempt *a, enum outcome outcome, uint64_t at_ms)
{
    struct result result = {.trained_tokens = 3};
    struct buf record = {0};

    record_end(a, outcome, END_FINALIZED, &result, at_ms, &record);
    apply(b, &record);
}

TEST(book, a_group_finishes_when_n_have_succeeded)
{
    struct book b;
    struct group *g;

    book_init(&b);
    submit(&b, "g", ",\"n\":2,\"extra\":1");
    g = book_group(&b, STR("g"));
    struct attempt *all[3] = {claim(&b, "x", 2000), claim(&b, "x", 2000), claim(&b, "x", 2000)};

    cr_assert(all[2] && !claim(&b, "x", 2000));
    cr_assert_eq(g->state, GROUP_RUNNING);
    end(&b, all[2], OUTCOME_OK, 3000);
    cr_assert_eq(g->state, GROUP_RUNNING);
    end(&b, all[0], OUTCOME_OK, 3000);
    cr_assert_eq(g->state, GROUP_FINISHED);
    cr_assert(all[1]->ended && all[1]->outcome == OUTCOME_CANCELLED);
    cr_assert_eq(g->queue->offered, 1);
    cr_assert_eq(b.n_waiting, 0);
    book_done(&b);
}

TEST(book, failures_of_each_kind_have_their_own_count)
{
    struct book b;
    struct group *g;
    struct attempt *a;

    book_init(&b);
    submit(&b, "g", ",\"attempts\":2,\"infra_attempts\":3");
    g = book_group(&b, STR("g"));
    for (unsigned i = 0; i < 2; i++) {
        a = claim(&b, "x", 100000 * (i + 1));
        end(&b, a, OUTCOME_INFRA, 100000 * (i + 1));
        cr_assert_eq(a->verdict, ROLLOUT_WAITING);
    }
    a = claim(&b, "x", 900000);
    end(&b, a, OUTCOME_ERROR, 900000);
    cr_assert_eq(a->verdict, ROLLOUT_WAITING);
    a = claim(&b, "x", 900000);
    end(&b, a, OUTCOME_ERROR, 900000);
    cr_assert_eq(a->verdict, ROLLOUT_FAILED);
    cr_assert_eq(g->state, GROUP_FAILED);
    book_done(&b);
}

/* What has no export cannot be kept: the rollout is tried again, and fails in the end. */
TEST(book, an_attempt_is_kept_once_its_session_is_finalized)
{
    static const struct {
        enum outcome outcome;
        enum end_kind kind;
        enum rollout_state first, last;
        uint32_t failures; /* of the runner, for its breaker */
        bool beside;
    } cases[] = {
        {OUTCOME_ERROR, END_FINALIZED, ROLLOUT_SUCCEEDED, ROLLOUT_SUCCEEDED, 1, false},
        {OUTCOME_ERROR, END_OPEN, ROLLOUT_WAITING, ROLLOUT_FAILED, 2, false},
        {OUTCOME_TIMEOUT, END_OPEN, ROLLOUT_WAITING, ROLLOUT_FAILED, 2, false},
        {OUTCOME_INFRA, END_OPEN, ROLLOUT_WAITING, ROLLOUT_FAILED, 2, false},
        {OUTCOME_INFRA, END_OPEN, ROLLOUT_WAITING, ROLLOUT_FAILED, 0, true},
        {OUTCOME_INFRA, END_FINALIZED, ROLLOUT_SUCCEEDED, ROLLOUT_SUCCEEDED, 0, true},
        {OUTCOME_INFRA, END_LOST, ROLLOUT_WAITING, ROLLOUT_FAILED, 0, false},
        {OUTCOME_ERROR, END_REFUSED, ROLLOUT_FAILED, ROLLOUT_FAILED, 0, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct result result = {.beside = cases[i].beside};
        struct book b;

        book_init(&b);
        submit(&b, "g",
               ",\"attempts\":2,\"infra_attempts\":2,"
               "\"on\":{\"timeout\":\"keep\",\"error\":\"keep\",\"infra\":\"keep\"}");
        for (unsigned k = 0; k < 2; k++) {
            struct attempt *a = claim(&b, "x", 100000 * (k + 1));
            struct buf record = {0};

            if (!a)
                continue;
            record_end(a, cases[i].outcome, cases[i].kind, &result, 100000 * (k + 1), &record);
            apply(&b, &record);
            cr_expect_eq(a->verdict, k ? cases[i].last : cases[i].first, "case %zu", i);
        }
        cr_expect_eq(book_group(&b, STR("g"))->rollouts[0].state, cases[i].last, "case %zu", i);
        cr_expect_eq(book_runner(&b, STR("r"))->failures, cases[i].failures, "case %zu", i);
        book_done(&b);
    }
}

/* Attempts that a group's deadline ends say nothing of their runner; those that end so by
 * themselves do. */
TEST(book, a_deadline_is_no_failure_of_the_runner)
{
    struct buf record = {0};
    struct attempt *a[4];
    struct book b;
    uint64_t at;

    book_init(&b);
    submit(&b, "g", ",\"n\":4,\"deadline_s\":9,\"on\":{\"timeout\":\"retry\"}");
    for (unsigned i = 0; i < 4; i++)
        a[i] = claim(&b, "x", 1000);
    end(&b, a[0], OUTCOME_TIMEOUT, 2000);
    cr_assert_eq(book_runner(&b, STR("r"))->failures, 1);
    at = book_group(&b, STR("g"))->submitted_at_ms + 9001; /* nobody has recorded it yet */
    end(&b, a[3], OUTCOME_TIMEOUT, at);
    cr_expect_eq(book_runner(&b, STR("r"))->failures, 1);
    record_plain(RECORD_DEADLINE, STR("g"), 10000, &record);
    apply(&b, &record);
    buf_done(&record);
    end(&b, a[1], OUTCOME_TIMEOUT, 11000);
    end(&b, a[2], OUTCOME_ERROR, 12000);
    cr_expect_eq(book_runner(&b, STR("r"))->failures, 1);
    cr_expect_eq(book_group(&b, STR("g"))->state, GROUP_FAILED);
    book_done(&b);
}

/* What was written before a record said whether its session is finalized. */
TEST(book, an_old_record_counts_as_it_did)
{
    struct attempt *a;
    struct buf record = {0};
    struct book b;

    book_init(&b);
    submit(&b, "g", ",\"on\":{\"infra\":\"keep\"}");
    a = claim(&b, "x", 1000);
    buf_printf(&record,
               "{\"t\":\"end\",\"id\":\"g\",\"attempt\":\"%s\",\"outcome\":\"infra\","
               "\"lost\":true}",
               a->id);
    apply(&b, &record);
    cr_assert_eq(a->verdict, ROLLOUT_SUCCEEDED);
    book_done(&b);
}

TEST(book, infrastructure_failures_back_off_and_go_elsewhere_first)
{
    struct book b;
    struct attempt *a;

    book_init(&b);
    cr_assert_eq(book_backoff_ms(1), 1000);
    cr_assert_eq(book_backoff_ms(4), 8000);
    cr_assert_eq(book_backoff_ms(100), 60000);
    submit(&b, "g", ",\"n\":2");
    a = claim(&b, "x", 5000);
    end(&b, a, OUTCOME_INFRA, 5000);
    a = claim(&b, "x", 5999);
    cr_assert_eq(a->rollout->index, 1, "the failed one waits a second");
    cr_assert_null(claim(&b, "y", 5999));
    cr_assert_not_null(claim(&b, "y", 6000));
    book_done(&b);
}

TEST(book, a_replay_gives_the_same_book)
{
    static const char *const ids[] = {"a", "b", "c"};
    struct book first, second;
    struct buf record = {0}, told[2] = {{0}};
    VEC(struct buf) log = {0};

    book_init(&first);
    book_init(&second);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct buf text = {0};

        buf_printf(&text, "{\"id\":\"%s\",\"runner\":\"r\",\"n\":2,\"priority\":%zu}", ids[i], i);
        record_group(str_cstr(ids[i]), buf_str(&text), 1000 + i, &record);
        *vec_push(&log) = record;
        record = (struct buf){0};
        cr_assert_eq(book_apply(&first, buf_str(&vec_last(&log)), NULL), 0);
        buf_done(&text);
    }
    for (int i = 0; i < 5; i++) {
        struct runner *r = book_runner_made(&first, STR("r"));
        struct rollout *m = book_next_rollout(&first, r, STR("x"), 1000000, closed_queue, NULL);
        char id[ATTEMPT_ID_LEN + 1];
        struct result result = {.has_reward = true, .reward = 0.25};

        (void)snprintf(id, sizeof(id), "%032x", 100 + i);
        record_claim(m->group->spec.id,
                     &(struct record_claim){m->index, str_cstr(id), STR("w0-s"), STR("x")}, 2000,
                     &record);
        *vec_push(&log) = record;
        record = (struct buf){0};
        cr_assert_eq(book_apply(&first, buf_str(&vec_last(&log)), NULL), 0);
        if (i == 3)
            continue;
        record_end(book_attempt(&first, str_cstr(id)), i == 2 ? OUTCOME_ERROR : OUTCOME_OK,
                   END_FINALIZED, &result, 3000, &record);
        *vec_push(&log) = record;
        record = (struct buf){0};
        cr_assert_eq(book_apply(&first, buf_str(&vec_last(&log)), NULL), 0);
    }
    for (size_t i = 0; i < log.n; i++)
        cr_assert_eq(book_apply(&second, buf_str(&log.at[i]), NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct json_out o = json_out_to(&told[0]), p = json_out_to(&told[1]);

        result_write_group(book_group(&first, str_cstr(ids[i])), &o);
        result_write_group(book_group(&second, str_cstr(ids[i])), &p);
    }
    cr_assert(str_eq(buf_str(&told[0]), buf_str(&told[1])));
    for (size_t i = 0; i < log.n; i++)
        buf_done(&log.at[i]);
    vec_done(&log);
    buf_done(&told[0]);
    buf_done(&told[1]);
    book_done(&first);
    book_done(&second);
}

TEST(book, records_that_do_not_fit_change_nothing)
{
    static const char *const bad[] = {"{}",
                                      "{\"t\":\"claim\",\"id\":\"g\"}",
                                      "{\"t\":\"end\",\"id\":\"g\",\"attempt\":\"x\"}",
                                      "{\"t\":\"taken\",\"id\":\"g\"}",
                                      "{\"t\":\"acked\",\"id\":\"g\"}",
                                      "{\"t\":\"returned\",\"id\":\"none\"}",
                                      "{\"t\":\"group\",\"group\":{\"id\":\"g\",\"runner\":\"r\"}}",
                                      "{\"t\":\"cancel\",\"id\":\"none\"}",
                                      "[",
                                      "{\"t\":\"deadline\",\"id\":\"none\"}"};
    struct book b;

    book_init(&b);
    submit(&b, "g", "");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};

        cr_assert_eq(book_apply(&b, str_cstr(bad[i]), &e), -1, "%s", bad[i]);
        cr_assert_eq(b.groups.n, 1);
        cr_assert_eq(book_group(&b, STR("g"))->state, GROUP_WAITING);
    }
    book_done(&b);
}

TEST(book, delivery_by_settling_and_by_submission)
{
    struct book b;
    struct attempt *a[2];
    struct queue *q;
    struct buf record = {0};

    book_init(&b);
    submit(&b, "a", "");
    submit(&b, "b", "");
    q = book_queue(&b, STR("train"));
    a[0] = claim(&b, "x", 0);
    a[1] = claim(&b, "x", 0);
    end(&b, a[1], OUTCOME_OK, 10);
    cr_assert_null(book_next_group(q, 1u << GROUP_FINISHED, true));
    cr_assert(str_eq_c(book_next_group(q, 1u << GROUP_FINISHED, false)->spec.id, "b"));
    cr_assert_null(book_next_group(q, 1u << GROUP_FAILED, false));
    end(&b, a[0], OUTCOME_OK, 20);
    cr_assert(str_eq_c(book_next_group(q, 1u << GROUP_FINISHED, true)->spec.id, "a"));
    record_taken(STR("a"), 5000, 30, &record);
    apply(&b, &record);
    record_plain(RECORD_ACKED, STR("a"), 40, &record);
    apply(&b, &record);
    cr_assert_null(book_group(&b, STR("a")));
    cr_assert_eq(q->acked_total, 1);
    book_done(&b);
}

/* What was acknowledged may not have been given to sinks: a start must find it. */
static const char *next_group(struct book *b, const char *closed)
{
    struct runner *r = book_runner_made(b, STR("r"));
    struct rollout *m =
        book_next_rollout(b, r, STR("x"), 1000, closed_queue, (void *)(uintptr_t)closed);

    return m ? m->group->spec.id.p : "";
}

/* Over all queues of one priority: begun groups first, then by submission; a closed one has none.
 */
TEST(book, claims_go_by_submission_over_open_queues)
{
    struct book b;

    book_init(&b);
    submit(&b, "a", ",\"queue\":\"train\",\"n\":2");
    submit(&b, "b", ",\"queue\":\"val\",\"n\":2");
    submit(&b, "c", ",\"queue\":\"train\"");
    submit(&b, "d", ",\"queue\":null");
    submit(&b, "e", ",\"queue\":\"val\",\"priority\":1");
    cr_expect_str_eq(next_group(&b, NULL), "e");
    cr_expect_str_eq(next_group(&b, "val"), "a");
    cr_expect_str_eq(claim(&b, "x", 1000)->rollout->group->spec.id.p, "e");
    cr_expect_str_eq(next_group(&b, "train"), "b");
    cr_expect_str_eq(claim(&b, "x", 1000)->rollout->group->spec.id.p, "a");
    cr_expect_str_eq(next_group(&b, NULL), "a"); /* begun */
    cr_expect_str_eq(claim(&b, "x", 1000)->rollout->group->spec.id.p, "a");
    cr_expect_str_eq(next_group(&b, NULL), "b");
    cr_expect_str_eq(next_group(&b, "val"), "c");
    book_done(&b);
}

/* --- groups of which nothing can be claimed --- */

enum { KIND_RESTS, KIND_RESERVED, KINDS };

static struct rollout *next_rollout(struct book *b, uint64_t wall_ms)
{
    return book_next_rollout(b, book_runner_made(b, STR("r")), STR("x"), wall_ms, closed_queue,
                             NULL);
}

/* So many begun groups before a claim, which wait for a back-off's end, or are all reserved. */
static void begin_groups(struct book *b, int kind, uint32_t n)
{
    char id[16];

    for (uint32_t i = 0; i < n; i++) {
        struct rollout *m;

        (void)snprintf(id, sizeof(id), "g%u", i);
        submit(b, id, kind == KIND_RESERVED ? ",\"n\":2" : "");
        if (kind == KIND_RESTS) {
            end(b, claim(b, "x", 5000), OUTCOME_INFRA, 5000);
        } else {
            cr_assert_not_null(claim(b, "x", 5000));
            m = next_rollout(b, 5000);
            cr_assert(m && str_eq_c(m->group->spec.id, id));
            book_reserve(m);
        }
    }
}

/* As one claim takes them: so many picks behind as many groups. */
static struct cost cost_of_picks(const void *ctx, uint32_t n)
{
    struct cost cost = {0};
    struct book b;
    char id[16];

    book_init(&b);
    begin_groups(&b, *(const int *)ctx, n);
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(id, sizeof(id), "f%u", i);
        submit(&b, id, "");
    }
    cost.seconds = -cost_now_s();
    for (uint32_t i = 0; i < n; i++) {
        struct rollout *m = next_rollout(&b, 5999);

        cr_assert_not_null(m);
        book_reserve(m);
    }
    cost.seconds += cost_now_s();
    book_done(&b);
    return cost;
}

TEST(book, groups_of_which_nothing_can_be_claimed_cost_a_look)
{
    static const char *const names[KINDS] = {"back-off", "reserved"};

    for (int kind = 0; kind < KINDS; kind++)
        expect_linear(names[kind], cost_of_picks, &kind, 512);
}

TEST(book, what_can_be_claimed_again_goes_first_again)
{
    struct book b;
    struct rollout *m;
    struct buf told = {0};
    struct json_out o = json_out_to(&told);

    book_init(&b);
    begin_groups(&b, KIND_RESTS, 1);
    submit(&b, "h", "");
    submit(&b, "i", "");
    m = next_rollout(&b, 5999);
    cr_assert(str_eq_c(m->group->spec.id, "h"));
    book_reserve(m);
    cr_expect(str_eq_c(next_rollout(&b, 5999)->group->spec.id, "i"));
    book_release(m);
    cr_expect(str_eq_c(next_rollout(&b, 5999)->group->spec.id, "h"));
    cr_expect(str_eq_c(next_rollout(&b, 6000)->group->spec.id, "g0"));
    for (int i = 0; i < 3; i++)
        book_reserve(next_rollout(&b, 6000));
    cr_expect_null(next_rollout(&b, 6000));
    result_write_queue(&b, STR("train"), book_queue(&b, STR("train")), 6000, 6000, &o);
    cr_expect(str_find(buf_str(&told), STR("no executor offers it"), 0) != SIZE_MAX,
              "they wait all the same");
    buf_done(&told);
    book_done(&b);
}

/* Of the group, by looking at all of it. */
static struct rollout *look_at_group(const struct group *g, uint64_t wall_ms)
{
    struct rollout *second = NULL;

    for (uint32_t i = 0; i < group_rollouts(g); i++) {
        struct rollout *r = &g->rollouts[i];

        if (r->state != ROLLOUT_WAITING || r->reserved || r->not_before_ms > wall_ms)
            continue;
        if (!r->avoid || strcmp(r->avoid, "x") != 0)
            return r;
        second = second ? second : r;
    }
    return second;
}

/* What book_next_rollout is to have found, by looking at everything. It has begun the group if that
 * was fresh; `missed`: there are others, and it found none. */
static struct rollout *look_at_all(const struct book *b, uint64_t wall_ms)
{
    static struct rollout missed;
    const struct group *g;

    for (int priority = 1; priority >= 0; priority--) {
        struct rollout *fresh = NULL;

        LIST_EACH(&b->all, g, struct group, all_entry) {
            struct rollout *m = NULL;

            if (g->spec.priority != priority || group_settled(g))
                continue;
            if (g->rollouts)
                m = look_at_group(g, wall_ms);
            else
                fresh = &missed;
            if (m)
                return m;
        }
        if (fresh)
            return fresh;
    }
    return NULL;
}

static void do_something(struct book *b, struct rollout *m, uint64_t at_ms, unsigned what)
{
    static unsigned n;
    struct buf record = {0};
    struct attempt *a = LIST_FIRST_OF(&b->running, struct attempt, entry);
    struct group *g;
    char id[ATTEMPT_ID_LEN + 1];

    (void)snprintf(id, sizeof(id), "%032x", 1u << 20 | ++n);
    if (what < 2) {
        if (b->n_waiting >= 4 || n % 3 > 0)
            return;
        (void)snprintf(id, sizeof(id), "s%u", n);
        submit(b, id, what ? ",\"n\":3,\"priority\":1" : ",\"n\":2,\"extra\":1");
    } else if (what < 6 && m) {
        book_reserve(m);
        if (what < 4)
            return;
        record_claim(m->group->spec.id,
                     &(struct record_claim){m->index, str_cstr(id), STR("w0-x"), STR("x")}, at_ms,
                     &record);
        apply(b, &record);
    } else if (what < 9 && a) {
        end(b, a, what == 6 ? OUTCOME_OK : what == 7 ? OUTCOME_ERROR : OUTCOME_INFRA, at_ms);
    } else if (what == 9) {
        LIST_EACH(&b->all, g, struct group, all_entry)
            for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++)
                if (g->rollouts[i].reserved && (n + i) % 3 == 0)
                    book_release(&g->rollouts[i]);
    } else if (what == 10 && n % 4 == 0 && (g = LIST_FIRST_OF(&b->all, struct group, all_entry))) {
        record_cancel(g->spec.id, false, at_ms, &record);
        apply(b, &record);
    }
}

TEST(book, the_next_rollout_is_the_one_that_a_look_at_all_finds)
{
    struct book b;
    uint64_t at_ms = 5000;
    unsigned random = 7, found = 0;

    book_init(&b);
    for (unsigned i = 0; i < 20000; i++) {
        struct rollout *m = next_rollout(&b, at_ms);

        cr_assert_eq(m, look_at_all(&b, at_ms), "step %u", i);
        found += m != NULL;
        random = random * 1103515245u + 12345u;
        at_ms += (random >> 16) % 400;
        do_something(&b, m, at_ms, (random >> 8) % 11);
    }
    cr_expect(found > 5000 && found < 18000, "%u", found);
    book_done(&b);
}

/* Sinks have the entry of a group whose id is another one's by now: that one is still to be told.
 */
TEST(book, a_telling_is_of_one_group_and_not_of_its_namesake)
{
    struct book b;
    struct buf record = {0};

    book_init(&b);
    b.keeps_gone = true;
    submit(&b, "a", ""); /* at 1000 */
    end(&b, claim(&b, "x", 0), OUTCOME_OK, 10);
    record_plain(RECORD_ACKED, STR("a"), 40, &record);
    apply(&b, &record);
    record_group(STR("a"), STR("{\"id\":\"a\",\"runner\":\"r\"}"), 2000, &record);
    apply(&b, &record);
    record_told(STR("a"), 1000, 2001, &record); /* the namesake has not settled: no fault */
    apply(&b, &record);
    cr_assert(book_gone_group(&b, STR("a"))->told && !book_group(&b, STR("a"))->told);
    end(&b, claim(&b, "x", 0), OUTCOME_OK, 2002);
    record_told(STR("a"), 1000, 2003, &record);
    apply(&b, &record);
    cr_assert(!book_group(&b, STR("a"))->told);
    record_told(STR("a"), 2000, 2004, &record);
    apply(&b, &record);
    cr_assert(book_group(&b, STR("a"))->told);
    book_done(&b);
}

TEST(book, gone_groups_are_kept_until_they_are_forgotten)
{
    struct book b;
    struct buf record = {0};
    struct attempt *lost, *counts;
    char ids[2][ATTEMPT_ID_LEN + 1];

    book_init(&b);
    b.keeps_gone = true;
    submit(&b, "a", "");
    lost = claim(&b, "x", 0);
    end(&b, lost, OUTCOME_ERROR, 10);
    counts = claim(&b, "x", 20);
    end(&b, counts, OUTCOME_OK, 30);
    memcpy(ids[0], lost->id, sizeof(ids[0]));
    memcpy(ids[1], counts->id, sizeof(ids[1]));
    record_plain(RECORD_ACKED, STR("a"), 40, &record);
    apply(&b, &record);
    cr_assert(!book_group(&b, STR("a")) && !book_attempt(&b, str_cstr(ids[1])));
    cr_assert_null(book_gone_attempt(&b, str_cstr(ids[0])), "a retried attempt is owed to nobody");
    cr_assert_eq(book_gone_attempt(&b, str_cstr(ids[1]))->rollout->group,
                 book_gone_group(&b, STR("a")));
    record_told(STR("a"), 1000, 50, &record);
    apply(&b, &record);
    cr_assert(book_gone_group(&b, STR("a"))->told);
    submit(&b, "a", ""); /* the id is free: another group */
    cr_assert(book_group(&b, STR("a")) && !book_group(&b, STR("a"))->told);
    book_forget_gone(&b);
    cr_assert(!book_gone_group(&b, STR("a")) && book_group(&b, STR("a")));
    book_done(&b);
}

/* Offers a runner that claims leave at once. */
static void offer(struct book *b, const char *name)
{
    book_runner_rest(b, book_runner_made(b, str_cstr(name)));
}

/* Executors may offer any name, again and again. */
TEST(book, runners_that_no_group_names_are_kept_up_to_a_number)
{
    struct book b;
    struct runner *waits;
    char name[32];

    book_init(&b);
    offer(&b, "r");
    submit(&b, "g", "");
    offer(&b, "first");
    waits = book_runner_made(&b, STR("waits"));
    waits->slots = 3;
    for (unsigned i = 0; i < 10 * UNASKED_MAX; i++) {
        (void)snprintf(name, sizeof(name), "unknown %u", i);
        offer(&b, name);
        if (i == UNASKED_MAX / 2)
            offer(&b, "first");
        cr_assert_leq(b.runners.n, UNASKED_MAX + 2);
    }
    cr_expect_eq(b.runners.n, UNASKED_MAX + 2);
    cr_expect_eq(book_runner(&b, STR("r")), book_group(&b, STR("g"))->runner, "a group's stays");
    cr_expect_eq(book_runner(&b, STR("waits")), waits, "and one that is offered");
    cr_expect_null(book_runner(&b, STR("unknown 0")));
    cr_expect_null(book_runner(&b, STR("first")));
    cr_expect_not_null(book_runner(&b, str_cstr(name)), "the newest are there");
    for (size_t i = 0; i < b.runners.n; i++)
        cr_expect_eq(book_runner(&b, str_cstr(b.runners.at[i]->name)), b.runners.at[i]);
    book_done(&b);
}

/* What a name says behind a NUL is not kept: it is the same runner by both. */
TEST(book, a_name_ends_at_a_nul)
{
    struct book b;
    struct runner *r;

    book_init(&b);
    r = book_runner_made(&b, STR("r"));
    cr_expect_eq(book_runner_made(&b, STR("r\0x")), r);
    cr_expect_eq(book_runner(&b, STR("r")), r);
    cr_expect_eq(b.runners.n, 1);
    book_done(&b);
}

/* One that was kept without a group gets one. */
TEST(book, a_runner_that_a_group_names_late_stays)
{
    struct book b;
    struct runner *r;
    char name[32];

    book_init(&b);
    offer(&b, "r");
    r = book_runner(&b, STR("r"));
    submit(&b, "g", "");
    for (unsigned i = 0; i < 2 * UNASKED_MAX; i++) {
        (void)snprintf(name, sizeof(name), "unknown %u", i);
        offer(&b, name);
        offer(&b, "r");
    }
    cr_expect_eq(book_runner(&b, STR("r")), r);
    cr_expect_eq(book_group(&b, STR("g"))->runner, r);
    cr_assert_not_null(claim(&b, "x", 2000));
    book_done(&b);
}
