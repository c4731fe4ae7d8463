/* The book of groups: effects of records, and the next claims and deliveries. */
#include <stdio.h>
#include <stdlib.h>

#include "book_kit.h"
#include "common/codec/json.h"
#include "dispatcher/book.h"
#include "dispatcher/book_record.h"
#include "dispatcher/result.h"
#include "testing.h"

TEST_WITH(book, a_group_finishes_when_n_have_succeeded, book)
{
    struct group *g;

    submit(f, "g", ",\"n\":2,\"extra\":1");
    g = book_group(f, STR("g"));
    struct attempt *all[3] = {claim(f, "x", 2000), claim(f, "x", 2000), claim(f, "x", 2000)};

    cr_assert(all[2] && !claim(f, "x", 2000));
    cr_assert_eq(g->state, GROUP_RUNNING);
    end(f, all[2], OUTCOME_OK, 3000);
    cr_assert_eq(g->state, GROUP_RUNNING);
    end(f, all[0], OUTCOME_OK, 3000);
    cr_assert_eq(g->state, GROUP_FINISHED);
    cr_assert(all[1]->ended && all[1]->outcome == OUTCOME_CANCELLED);
    cr_assert_eq(g->queue->offered, 1);
    cr_assert_eq(f->n_waiting, 0);
}

TEST_WITH(book, failures_of_each_kind_have_their_own_count, book)
{
    struct group *g;
    struct attempt *a;

    submit(f, "g", ",\"attempts\":2,\"infra_attempts\":3");
    g = book_group(f, STR("g"));
    for (unsigned i = 0; i < 2; i++) {
        a = claim(f, "x", 100000 * (i + 1));
        end(f, a, OUTCOME_INFRA, 100000 * (i + 1));
        cr_assert_eq(a->verdict, ROLLOUT_WAITING);
    }
    a = claim(f, "x", 900000);
    end(f, a, OUTCOME_ERROR, 900000);
    cr_assert_eq(a->verdict, ROLLOUT_WAITING);
    a = claim(f, "x", 900000);
    end(f, a, OUTCOME_ERROR, 900000);
    cr_assert_eq(a->verdict, ROLLOUT_FAILED);
    cr_assert_eq(g->state, GROUP_FAILED);
}

static int lose(struct book *b, const struct attempt *a, uint64_t at_ms)
{
    struct buf record = {0};
    struct err e;
    int rc;

    record_lost(a, at_ms, &record);
    rc = book_apply(b, buf_str(&record), &e);
    buf_done(&record);
    return rc;
}

TEST_WITH(book, a_lost_session_is_tried_again_until_its_group_settles, book)
{
    struct group *g;
    struct attempt *first, *last;

    submit(f, "g", ",\"n\":2,\"min\":1,\"infra_attempts\":2");
    g = book_group(f, STR("g"));
    first = claim(f, "x", 2000);
    last = claim(f, "x", 2000);
    cr_assert_neq(lose(f, first, 3000), 0, "it runs");
    end(f, first, OUTCOME_OK, 3000);
    cr_assert_eq(lose(f, first, 3000), 0);
    cr_assert(g->waiting == 1 && g->succeeded == 0 && !claim(f, "x", 3999));
    cr_assert_neq(lose(f, first, 3000), 0, "once");
    first = claim(f, "x", 4000);
    cr_assert(first && first->number == 2);
    end(f, first, OUTCOME_OK, 5000);
    cr_assert_eq(lose(f, first, 5000), 0, "no attempt is left");
    cr_assert_eq(first->rollout->state, ROLLOUT_LOST);
    end(f, last, OUTCOME_OK, 6000);
    cr_assert(g->state == GROUP_PARTIAL && g->queue->offered == 1);
}

TEST_WITH(book, a_settled_group_loses_members_until_it_is_delivered, book)
{
    struct group *g;
    struct attempt *all[2];
    struct buf record = {0};

    submit(f, "g", ",\"n\":2,\"min\":1");
    g = book_group(f, STR("g"));
    for (int i = 0; i < 2; i++)
        all[i] = claim(f, "x", 2000);
    for (int i = 0; i < 2; i++)
        end(f, all[i], OUTCOME_OK, 3000);
    cr_assert_eq(g->state, GROUP_FINISHED);
    cr_assert_eq(lose(f, all[1], 4000), 0);
    cr_assert(g->state == GROUP_PARTIAL && g->succeeded == 1);
    cr_assert(g->queue->n_groups[GROUP_FINISHED] == 0 && g->queue->n_groups[GROUP_PARTIAL] == 1);
    g->sought = 1;
    cr_assert_not(book_next_group(g->queue, UINT32_MAX, false));
    cr_assert_not(book_next_group(g->queue, UINT32_MAX, true));
    g->sought = 0;
    cr_assert_eq(book_next_group(g->queue, UINT32_MAX, false), g);
    record_taken(STR("g"), 1000, 5000, &record);
    apply(f, &record);
    cr_assert_neq(lose(f, all[0], 6000), 0);
    cr_assert_eq(g->succeeded, 1);
}

/* An attempt without an export cannot be kept: the rollout is repeated, and fails in the end. */
TEST(book, an_attempt_is_kept_once_its_session_is_finalized)
{
    static const struct {
        enum outcome outcome;
        enum end_kind kind;
        enum rollout_state first, last;
        uint32_t failures; /* failures of the runner, for its breaker */
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

/* Attempts that a group's deadline ends do not count for their runner. Those that time out by
 * themselves do. */
TEST_WITH(book, a_deadline_is_no_failure_of_the_runner, book)
{
    struct buf record = {0};
    struct attempt *a[4];
    uint64_t at;

    submit(f, "g", ",\"n\":4,\"deadline_s\":9,\"on\":{\"timeout\":\"retry\"}");
    for (unsigned i = 0; i < 4; i++)
        a[i] = claim(f, "x", 1000);
    end(f, a[0], OUTCOME_TIMEOUT, 2000);
    cr_assert_eq(book_runner(f, STR("r"))->failures, 1);
    at = book_group(f, STR("g"))->submitted_at_ms + 9001; /* the deadline is not recorded yet */
    end(f, a[3], OUTCOME_TIMEOUT, at);
    cr_expect_eq(book_runner(f, STR("r"))->failures, 1);
    record_plain(RECORD_DEADLINE, STR("g"), 10000, &record);
    apply(f, &record);
    buf_done(&record);
    end(f, a[1], OUTCOME_TIMEOUT, 11000);
    end(f, a[2], OUTCOME_ERROR, 12000);
    cr_expect_eq(book_runner(f, STR("r"))->failures, 1);
    cr_expect_eq(book_group(f, STR("g"))->state, GROUP_FAILED);
}

/* Records of older versions do not say whether the session is finalized. */
TEST_WITH(book, an_old_record_counts_as_it_did, book)
{
    struct attempt *a;
    struct buf record = {0};

    submit(f, "g", ",\"on\":{\"infra\":\"keep\"}");
    a = claim(f, "x", 1000);
    buf_printf(&record,
               "{\"t\":\"end\",\"id\":\"g\",\"attempt\":\"%s\",\"outcome\":\"infra\","
               "\"lost\":true}",
               a->id);
    apply(f, &record);
    cr_assert_eq(a->verdict, ROLLOUT_SUCCEEDED);
}

TEST_WITH(book, infrastructure_failures_back_off_and_go_elsewhere_first, book)
{
    struct attempt *a;

    cr_assert_eq(book_backoff_ms(1), 1000);
    cr_assert_eq(book_backoff_ms(4), 8000);
    cr_assert_eq(book_backoff_ms(100), 60000);
    submit(f, "g", ",\"n\":2");
    a = claim(f, "x", 5000);
    end(f, a, OUTCOME_INFRA, 5000);
    a = claim(f, "x", 5999);
    cr_assert_eq(a->rollout->index, 1, "the failed one waits a second");
    cr_assert_null(claim(f, "y", 5999));
    cr_assert_not_null(claim(f, "y", 6000));
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
        record_group(str_cstr(ids[i]), buf_str(&text), (struct record_begin){0}, 1000 + i, &record);
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

        result_write_group(book_group(&first, str_cstr(ids[i])), NULL, NULL, &o);
        result_write_group(book_group(&second, str_cstr(ids[i])), NULL, NULL, &p);
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

TEST_WITH(book, records_that_do_not_fit_change_nothing, book)
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

    submit(f, "g", "");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};

        cr_assert_eq(book_apply(f, str_cstr(bad[i]), &e), -1, "%s", bad[i]);
        cr_assert_eq(f->groups.n, 1);
        cr_assert_eq(book_group(f, STR("g"))->state, GROUP_WAITING);
    }
}

TEST_WITH(book, delivery_by_settling_and_by_submission, book)
{
    struct attempt *a[2];
    struct queue *q;
    struct buf record = {0};

    submit(f, "a", "");
    submit(f, "b", "");
    q = book_queue(f, STR("train"));
    a[0] = claim(f, "x", 0);
    a[1] = claim(f, "x", 0);
    end(f, a[1], OUTCOME_OK, 10);
    cr_assert_null(book_next_group(q, 1u << GROUP_FINISHED, true));
    cr_assert(str_eq_c(book_next_group(q, 1u << GROUP_FINISHED, false)->spec.id, "b"));
    cr_assert_null(book_next_group(q, 1u << GROUP_FAILED, false));
    end(f, a[0], OUTCOME_OK, 20);
    cr_assert(str_eq_c(book_next_group(q, 1u << GROUP_FINISHED, true)->spec.id, "a"));
    record_taken(STR("a"), 5000, 30, &record);
    apply(f, &record);
    record_plain(RECORD_ACKED, STR("a"), 40, &record);
    apply(f, &record);
    cr_assert_null(book_group(f, STR("a")));
    cr_assert_eq(q->acked_total, 1);
}

/* An acknowledged group may not have been passed to sinks, so a start must find it. */
static const char *next_group(struct book *b, const char *closed)
{
    struct runner *r = book_runner_made(b, STR("r"));
    struct rollout *m =
        book_next_rollout(b, r, STR("x"), 1000, closed_queue, (void *)(uintptr_t)closed);

    return m ? m->group->spec.id.p : "";
}

/* Order of claims over all queues of one priority: started groups first, then by submission. Closed
 * queues are skipped. */
TEST_WITH(book, claims_go_by_submission_over_open_queues, book)
{
    submit(f, "a", ",\"queue\":\"train\",\"n\":2");
    submit(f, "b", ",\"queue\":\"val\",\"n\":2");
    submit(f, "c", ",\"queue\":\"train\"");
    submit(f, "d", ",\"queue\":null");
    submit(f, "e", ",\"queue\":\"val\",\"priority\":1");
    cr_expect_str_eq(next_group(f, NULL), "e");
    cr_expect_str_eq(next_group(f, "val"), "a");
    cr_expect_str_eq(claim(f, "x", 1000)->rollout->group->spec.id.p, "e");
    cr_expect_str_eq(next_group(f, "train"), "b");
    cr_expect_str_eq(claim(f, "x", 1000)->rollout->group->spec.id.p, "a");
    cr_expect_str_eq(next_group(f, NULL), "a"); /* started */
    cr_expect_str_eq(claim(f, "x", 1000)->rollout->group->spec.id.p, "a");
    cr_expect_str_eq(next_group(f, NULL), "b");
    cr_expect_str_eq(next_group(f, "val"), "c");
}

/* Labels are known without reading the group's text, which may be long. */
TEST_WITH(book, a_groups_labels_are_known_without_its_text, book)
{
    struct group *g;

    submit(f, "g", ",\"labels\":{\"step\":\"7\",\"a\\n\":\"\\u00e9\",\"\":\"\"},\"input\":1");
    submit(f, "h", ",\"labels\":{}");
    submit(f, "i", ",\"labels\":null");
    g = book_group(f, STR("g"));
    memset(g->text, ' ', g->text_len);
    cr_expect(str_eq_c(group_label(g, STR("step")), "7"));
    cr_expect(str_eq_c(group_label(g, STR("a\n")), "\u00e9"));
    cr_expect(group_label(g, STR("")).p && group_label(g, STR("")).len == 0);
    cr_expect_null(group_label(g, STR("ste")).p);
    cr_expect_null(group_label(book_group(f, STR("h")), STR("step")).p);
    cr_expect_null(group_label(book_group(f, STR("i")), STR("")).p);
}

/* Sinks have the entry of a group whose id belongs to a new group now. The new group is still to be
 * reported. */
TEST_WITH(book, a_telling_is_of_one_group_and_not_of_its_namesake, book)
{
    struct buf record = {0};

    f->keeps_gone = true;
    submit(f, "a", ""); /* submitted at 1000 */
    end(f, claim(f, "x", 0), OUTCOME_OK, 10);
    record_plain(RECORD_ACKED, STR("a"), 40, &record);
    apply(f, &record);
    record_group(STR("a"), STR("{\"id\":\"a\",\"runner\":\"r\"}"), (struct record_begin){0}, 2000,
                 &record);
    apply(f, &record);
    record_told(STR("a"), 1000, 2001, &record); /* the new group has not settled: no error */
    apply(f, &record);
    cr_assert(book_gone_group(f, STR("a"))->told && !book_group(f, STR("a"))->told);
    end(f, claim(f, "x", 0), OUTCOME_OK, 2002);
    record_told(STR("a"), 1000, 2003, &record);
    apply(f, &record);
    cr_assert(!book_group(f, STR("a"))->told);
    record_told(STR("a"), 2000, 2004, &record);
    apply(f, &record);
    cr_assert(book_group(f, STR("a"))->told);
}

/* Two groups of an id are gone before the sinks have the entry of the first one. */
TEST_WITH(book, a_telling_finds_the_older_of_two_that_are_gone, book)
{
    struct buf record = {0};
    const struct group *g;
    unsigned n = 0;

    f->keeps_gone = true;
    for (uint64_t at = 1000; at <= 2000; at += 1000) {
        record_group(STR("a"), STR("{\"id\":\"a\",\"runner\":\"r\"}"), (struct record_begin){0}, at,
                     &record);
        apply(f, &record);
        end(f, claim(f, "x", 0), OUTCOME_OK, at + 10);
        record_plain(RECORD_ACKED, STR("a"), at + 20, &record);
        apply(f, &record);
    }
    record_told(STR("a"), 1000, 3000, &record);
    apply(f, &record);
    record_told(STR("a"), 1500, 3001, &record); /* a group that is not kept: no error */
    apply(f, &record);
    LIST_EACH(&f->gone, g, struct group, all_entry) {
        cr_assert_eq(g->told, g->submitted_at_ms == 1000);
        n++;
    }
    cr_assert_eq(n, 2);
}

/* Sinks may have the entry. */
TEST_WITH(book, a_group_that_is_being_told_loses_no_member, book)
{
    struct buf record = {0};
    struct attempt *a;
    struct err e = {0};

    submit(f, "a", "");
    record_plain(RECORD_TELLING, STR("a"), 5, &record);
    cr_assert(record_is_telling(buf_str(&record)));
    cr_assert_eq(book_apply(f, buf_str(&record), &e), -1, "it has not settled");
    a = claim(f, "x", 0);
    end(f, a, OUTCOME_OK, 10);
    apply(f, &record);
    cr_assert(group_is_delivered(book_group(f, STR("a"))));
    record_lost(a, 20, &record);
    cr_assert_eq(book_apply(f, buf_str(&record), &e), -1);
    cr_assert_eq(a->rollout->state, ROLLOUT_SUCCEEDED);
    buf_done(&record);
}

TEST_WITH(book, a_kind_of_a_later_version_is_named, book)
{
    struct err e = {0};

    cr_assert_eq(book_apply(f, STR("{\"t\": \"newer\", \"id\": \"a\", \"at\": 5}"), &e), -1);
    cr_assert(e.kind == ERR_UNSUPPORTED && strstr(e.text, "\"newer\""), "%s", e.text);
}

TEST_WITH(book, gone_groups_are_kept_until_they_are_forgotten, book)
{
    struct buf record = {0};
    struct attempt *lost, *counts;
    char ids[2][ATTEMPT_ID_LEN + 1];

    f->keeps_gone = true;
    submit(f, "a", "");
    lost = claim(f, "x", 0);
    end(f, lost, OUTCOME_ERROR, 10);
    counts = claim(f, "x", 20);
    end(f, counts, OUTCOME_OK, 30);
    memcpy(ids[0], lost->id, sizeof(ids[0]));
    memcpy(ids[1], counts->id, sizeof(ids[1]));
    record_plain(RECORD_ACKED, STR("a"), 40, &record);
    apply(f, &record);
    cr_assert(!book_group(f, STR("a")) && !book_attempt(f, str_cstr(ids[1])));
    cr_assert_null(book_gone_attempt(f, str_cstr(ids[0])), "a retried attempt is owed to nobody");
    cr_assert_eq(book_gone_attempt(f, str_cstr(ids[1]))->rollout->group,
                 book_gone_group(f, STR("a")));
    record_told(STR("a"), 1000, 50, &record);
    apply(f, &record);
    cr_assert(book_gone_group(f, STR("a"))->told);
    submit(f, "a", ""); /* the id is free: a new group */
    cr_assert(book_group(f, STR("a")) && !book_group(f, STR("a"))->told);
    book_forget_gone(f);
    cr_assert(!book_gone_group(f, STR("a")) && book_group(f, STR("a")));
}

/* Offers a runner by a claim that ends at once. */
static void offer(struct book *b, const char *name)
{
    book_runner_withdraw(b, book_runner_made(b, str_cstr(name)));
}

/* Executors may offer any number of names. */
TEST_WITH(book, runners_that_no_group_names_are_kept_up_to_a_number, book)
{
    struct runner *waits;
    char name[32];

    offer(f, "r");
    submit(f, "g", "");
    offer(f, "first");
    waits = book_runner_made(f, STR("waits"));
    waits->slots = 3;
    for (unsigned i = 0; i < 10 * UNASKED_MAX; i++) {
        (void)snprintf(name, sizeof(name), "unknown %u", i);
        offer(f, name);
        if (i == UNASKED_MAX / 2)
            offer(f, "first");
        cr_assert_leq(f->runners.n, UNASKED_MAX + 2);
    }
    cr_expect_eq(f->runners.n, UNASKED_MAX + 2);
    cr_expect_eq(book_runner(f, STR("r")), book_group(f, STR("g"))->runner, "a group's stays");
    cr_expect_eq(book_runner(f, STR("waits")), waits, "and one that is offered");
    cr_expect_null(book_runner(f, STR("unknown 0")));
    cr_expect_null(book_runner(f, STR("first")));
    cr_expect_not_null(book_runner(f, str_cstr(name)), "the newest are there");
    for (size_t i = 0; i < f->runners.n; i++)
        cr_expect_eq(book_runner(f, str_cstr(f->runners.at[i]->name)), f->runners.at[i]);
}

/* A name ends at a NUL: both names are the same runner. */
TEST_WITH(book, a_name_ends_at_a_nul, book)
{
    struct runner *r;

    r = book_runner_made(f, STR("r"));
    cr_expect_eq(book_runner_made(f, STR("r\0x")), r);
    cr_expect_eq(book_runner(f, STR("r")), r);
    cr_expect_eq(f->runners.n, 1);
}

/* A runner that was kept without a group gets one. */
TEST_WITH(book, a_runner_that_a_group_names_late_stays, book)
{
    struct runner *r;
    char name[32];

    offer(f, "r");
    r = book_runner(f, STR("r"));
    submit(f, "g", "");
    for (unsigned i = 0; i < 2 * UNASKED_MAX; i++) {
        (void)snprintf(name, sizeof(name), "unknown %u", i);
        offer(f, name);
        offer(f, "r");
    }
    cr_expect_eq(book_runner(f, STR("r")), r);
    cr_expect_eq(book_group(f, STR("g"))->runner, r);
    cr_assert_not_null(claim(f, "x", 2000));
}
