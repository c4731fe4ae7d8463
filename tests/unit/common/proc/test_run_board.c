#include "common/proc/run_board.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/proc/metrics.h"
#include "testing.h"

enum { MINUTE = 60000 };

static const uint64_t NOW = (uint64_t)1000000 * MINUTE;
static const uint32_t FIRST = 1000000; /* minute of NOW */

static void add(struct run_board *b, const char *task, int64_t reward, uint64_t now_ms)
{
    struct run_event x = {.names[RUN_TASK] = str_cstr(task)};

    x.counts.at[RUN_SESSIONS] = 1;
    x.counts.at[RUN_REWARD] = reward;
    run_board_add(b, NULL, &x, now_ms);
}

struct board_case {
    struct run_board *b;
};

static void board_case_open(struct board_case *f)
{
    f->b = run_board_new(NOW);
}

static void board_case_close(struct board_case *f)
{
    run_board_free(f->b);
}

static int64_t sum_of(const struct run_series *s, enum run_figure f)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < RUN_MINUTES; i++)
        sum += s->counts[i].at[f];
    return sum;
}

/* Returns the number of sessions in a task's row, or -1. */
static int64_t sessions_of(struct run_board *b, const char *task)
{
    struct run_series *rows = calloc(RUN_ROWS_MAX, sizeof(*rows));
    unsigned last = run_board_read_rows(b, RUN_TASK, rows) - 1;
    int64_t n = -1;

    cr_assert_eq(last, run_label_rows(RUN_TASK));
    for (unsigned i = 0; i <= last; i++)
        if (rows[i].newest > 0 && strcmp(i == last ? "" : rows[i].name, task) == 0)
            n = sum_of(&rows[i], RUN_SESSIONS);
    free(rows);
    return n;
}

TEST_WITH(run_board, minutes_are_a_ring_and_numbers_may_be_negative, board_case)
{
    struct run_series *s = malloc(sizeof(*s));

    add(f->b, "", -2500000, NOW);
    add(f->b, "", 500000, NOW + 3 * MINUTE);
    run_board_read(f->b, false, s);
    cr_assert_eq(sum_of(s, RUN_SESSIONS), 2);
    cr_assert_eq(sum_of(s, RUN_REWARD), -2000000);
    add(f->b, "", 1, NOW + (uint64_t)RUN_MINUTES * MINUTE); /* the slot of the first */
    run_board_read(f->b, false, s);
    cr_assert_eq(sum_of(s, RUN_SESSIONS), 2);
    cr_assert_eq(sum_of(s, RUN_REWARD), 500001);
    run_board_read(f->b, true, s);
    cr_assert_eq(sum_of(s, RUN_SESSIONS), 0);
    free(s);
}

TEST(run_board, sums_of_figures_stop_at_the_largest_number)
{
    struct run_counts sum = {0}, x = {.at = {[RUN_REWARD] = INT64_MIN, [RUN_TOKENS] = INT64_MAX}};

    run_counts_add(&sum, &x);
    run_counts_add(&sum, &x);
    cr_assert_eq(sum.at[RUN_REWARD], INT64_MIN);
    cr_assert_eq(sum.at[RUN_TOKENS], INT64_MAX);
    cr_assert_eq(sum.at[RUN_SESSIONS], 0);
}

TEST_WITH(run_board, a_name_without_a_row_is_among_the_others_until_one_is_silent, board_case)
{
    unsigned rows = run_label_rows(RUN_TASK);
    char name[16];

    for (unsigned i = 0; i <= rows; i++) {
        (void)snprintf(name, sizeof(name), "task%u", i);
        add(f->b, name, 0, NOW + (uint64_t)i * 1000);
    }
    cr_assert_eq(sessions_of(f->b, "task0"), 1);
    cr_assert_eq(sessions_of(f->b, name), -1);
    cr_assert_eq(sessions_of(f->b, ""), 1);
    for (unsigned i = 1; i < rows; i++) { /* only task0 has no new session */
        (void)snprintf(name, sizeof(name), "task%u", i);
        add(f->b, name, 0, NOW + (uint64_t)5 * MINUTE);
    }
    add(f->b, "new", 0, NOW + (uint64_t)(RUN_SILENT_MINUTES + 1) * MINUTE);
    cr_assert_eq(sessions_of(f->b, "new"), 1);
    cr_assert_eq(sessions_of(f->b, "task0"), -1);
    cr_assert_eq(sessions_of(f->b, ""), 2, "what task0 had is among the others");
}

TEST_WITH(run_board, a_long_name_is_cut_between_characters, board_case)
{
    char name[3 * RUN_NAME_MAX] = "", cut[RUN_NAME_MAX];

    for (int i = 0; i < 32; i++)
        strcat(name, "\xd0\xb6");
    run_copy_text(cut, sizeof(cut), str_cstr(name));
    cr_assert_eq(strlen(cut), 62);
    add(f->b, name, 0, NOW); /* one caller cuts the name, the other does not */
    add(f->b, cut, 0, NOW);
    cr_assert_eq(sessions_of(f->b, cut), 2);
}

TEST_WITH(run_board, a_process_that_dies_with_the_lock_stops_nobody, board_case)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        add(f->b, "math", 1000000, NOW);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(sessions_of(f->b, "math"), 1);
    pid = fork();
    if (pid == 0) {
        /* NOLINTNEXTLINE(bugprone-casting-through-void): the lock is the board's first member */
        (void)pthread_mutex_lock((pthread_mutex_t *)(void *)f->b);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    add(f->b, "math", 0, NOW);
    cr_assert_eq(sessions_of(f->b, "math"), 2);
}

TEST_WITH(run_board, evaluation_is_in_no_other_row_and_no_metric, board_case)
{
    struct metrics *m = metrics_new(1);
    struct run_event x = {.names[RUN_TASK] = STR("math"), .evaluation = true};
    struct run_series *s = malloc(sizeof(*s));
    struct buf text = {0};

    x.counts.at[RUN_REWARDED] = 1;
    x.counts.at[RUN_REWARD] = -1500000;
    run_board_add(f->b, metrics_page(m, 0, "worker-0"), &x, NOW);
    run_board_read(f->b, true, s);
    cr_assert_eq(sum_of(s, RUN_REWARD), -1500000);
    run_board_read(f->b, false, s);
    cr_assert_eq(sum_of(s, RUN_REWARDED), 0);
    cr_assert_eq(sessions_of(f->b, "math"), -1);
    cr_assert_eq(metrics_read(m, METRIC_run_rewards, 0, 0), 0);
    x.evaluation = false;
    run_board_add(f->b, metrics_page(m, 0, "worker-0"), &x, NOW);
    cr_assert_eq(metrics_read(m, METRIC_run_rewards, 0, 0), 1);
    metrics_render(m, &text);
    cr_assert_neq(str_find(buf_str(&text), STR("\nrollgate_run_reward -1.500000\n"), 0), SIZE_MAX);
    buf_done(&text);
    free(s);
    metrics_free(m);
}

TEST_WITH(run_board, the_slowest_of_a_range_come_longest_first, board_case)
{
    struct run_ended x = {.cause = RUN_ENDED_STOP}, found[RUN_WORST];
    struct run_event event = {.ended = &x};
    size_t n;

    for (int i = 0; i < 6; i++) { /* 0, 10, 20, 30, 40, 50 in one minute: four values are kept */
        x.run_us = i * 10;
        run_board_add(f->b, NULL, &event, NOW);
    }
    x.run_us = 25;
    run_board_add(f->b, NULL, &event, NOW + MINUTE);
    n = run_board_read_slowest(f->b, NOW / MINUTE, NOW / MINUTE + 2, found);
    cr_assert_eq(n, 5);
    cr_assert_eq(found[0].run_us, 50);
    cr_assert_eq(found[3].run_us, 25);
    cr_assert_eq(found[4].run_us, 20);
    n = run_board_read_slowest(f->b, NOW / MINUTE + 1, NOW / MINUTE + 2, found);
    cr_assert_eq(n, 1);
}

TEST(run_board, the_tally_of_differences_finds_mean_and_percentile)
{
    struct run_mismatch m = {0}, more = {0};

    for (int i = 0; i < 990; i++)
        run_mismatch_add(&m, i % 2 ? 0.001 : -0.001);
    for (int i = 0; i < 10; i++)
        run_mismatch_add(&more, -2.0);
    cr_assert_lt(fabs(run_mismatch_p99(&m) - 0.001), 1e-9, "no more than the largest");
    run_mismatch_merge(&m, &more);
    cr_assert_eq(m.tokens, 1000);
    cr_assert_eq(m.max, 2.0);
    cr_assert_lt(llabs(m.sum + 20000000000), 2);
    cr_assert_lt(run_mismatch_p99(&m), 0.0014);
    run_mismatch_add(&m, 3.0);
    cr_assert_geq(run_mismatch_p99(&m), 2.0);
    cr_assert_eq(run_position_bucket(15), 0);
    cr_assert_eq(run_position_bucket(16), 1);
    cr_assert_eq(run_position_bucket(4000000000u), RUN_POSITIONS - 1);
}

TEST(run_board, huge_differences_are_cut_and_sums_stop_at_the_largest_number)
{
    struct run_mismatch m = {0}, all = {0};

    run_mismatch_add(&m, NAN);
    cr_assert_eq(m.tokens, 0);
    run_mismatch_add(&m, -3.4e38);
    run_mismatch_add(&m, -1e10);
    cr_assert_eq(m.sum, -200000000000000);
    cr_assert_eq(m.sum_abs, 200000000000000);
    cr_assert_eq(m.max, 1e5);
    for (int i = 0; i < 100000; i++)
        run_mismatch_merge(&all, &m);
    cr_assert_eq(all.tokens, 200000);
    cr_assert_eq(all.sum, INT64_MIN);
    cr_assert_eq(all.sum_abs, INT64_MAX);
}

TEST_WITH(run_board, the_worst_tokens_stay_and_a_repeated_report_replaces_its_own, board_case)
{
    struct run_token t = {.at_ms = NOW}, found[RUN_WORST];

    for (int i = 1; i <= RUN_WORST; i++) {
        t.position = (uint32_t)i;
        t.trained = (float)-i;
        run_board_add_token(f->b, &t, NOW);
    }
    cr_assert_not(run_board_wants_token(f->b, 0.5, NOW));
    cr_assert(run_board_wants_token(f->b, -1.5, NOW));
    t.position = RUN_WORST;
    t.trained = -100;
    run_board_add_token(f->b, &t, NOW);
    cr_assert_eq(run_board_read_worst(f->b, FIRST, FIRST, found), 0, "of no minute");
    cr_assert_eq(run_board_read_worst(f->b, FIRST, FIRST + 1, found), RUN_WORST);
    cr_assert_eq(found[0].trained, -100);
    cr_assert_eq(found[1].trained, -(RUN_WORST - 1));
    cr_assert_eq(found[RUN_WORST - 1].trained, -1);
    cr_assert(run_board_wants_token(f->b, 0.1, NOW + (uint64_t)RUN_MINUTES * MINUTE));
    cr_assert_eq(run_board_read_worst(f->b, 0, UINT32_MAX, found), 0,
                 "all are older than the ring");
}

TEST_WITH(run_board, rows_of_weight_versions_are_the_newest, board_case)
{
    struct run_mismatch tally[RUN_POSITIONS] = {0};
    struct run_mismatch_row *rows = calloc(RUN_ROWS_MAX, sizeof(*rows));
    char name[16];

    run_mismatch_add(&tally[2], 0.25);
    for (int i = 0; i < RUN_ROWS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        run_board_add_mismatch(f->b, NULL, str_cstr(name), tally, NOW + (uint64_t)i);
    }
    run_board_read_mismatch(f->b, FIRST, FIRST + 1, rows);
    cr_assert_str_eq(rows[0].version, "15", "version 0 was the oldest");
    cr_assert_eq(rows[0].positions[2].tokens, 1);
    cr_assert_eq(rows[RUN_ROWS_MAX - 1].positions[2].tokens, 1);
    free(rows);
}

TEST_WITH(run_board, differences_are_those_of_the_range, board_case)
{
    struct run_mismatch small[RUN_POSITIONS] = {0}, large[RUN_POSITIONS] = {0};
    struct run_mismatch_row *rows = calloc(RUN_ROWS_MAX, sizeof(*rows));
    const uint64_t held = (uint64_t)RUN_MINUTES * MINUTE;

    for (int i = 0; i < 1000; i++)
        run_mismatch_add(&small[0], 0.001);
    run_mismatch_add(&large[0], -4);
    run_board_add_mismatch(f->b, NULL, STR("7"), small, NOW);
    run_board_add_mismatch(f->b, NULL, STR("7"), large, NOW + 2 * MINUTE);
    run_board_read_mismatch(f->b, FIRST, FIRST + 2, rows);
    cr_assert_eq(rows[0].positions[0].tokens, 1000);
    cr_assert_eq(run_mismatch_p99(&rows[0].positions[0]), 0.001);
    run_board_read_mismatch(f->b, FIRST + 2, FIRST + 3, rows);
    cr_assert_eq(rows[0].positions[0].tokens, 1);
    cr_assert_eq(run_mismatch_p99(&rows[0].positions[0]), 4);
    run_board_read_mismatch(f->b, 0, UINT32_MAX, rows);
    cr_assert_eq(rows[0].positions[0].tokens, 1001);
    run_board_add_mismatch(f->b, NULL, STR("7"), large, NOW + held);
    run_board_read_mismatch(f->b, 0, UINT32_MAX, rows);
    cr_assert_eq(rows[0].positions[0].tokens, 2, "the first minute was replaced");
    for (int i = 0; i < RUN_ROWS_MAX; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "new %d", i);
        run_board_add_mismatch(f->b, NULL, str_cstr(name), small, NOW + held + 1);
    }
    run_board_read_mismatch(f->b, FIRST + 2, FIRST + 3, rows);
    cr_assert_eq(rows[0].positions[0].tokens, 0);
    cr_assert_eq(rows[RUN_ROWS_MAX - 1].positions[0].tokens, 1, "the row of 7 was needed");
    free(rows);
}

TEST_WITH(run_board, the_newest_version_is_raised_by_sessions_and_set_by_trainers, board_case)
{
    cr_assert_eq(run_board_newest_version(f->b, -1, NOW), -1);
    cr_assert_eq(run_board_newest_version(f->b, 7, NOW), 7);
    cr_assert_eq(run_board_newest_version(f->b, 5, NOW), 7);
    run_board_set_version(f->b, 3, NOW + 1);
    cr_assert_eq(run_board_newest_version(f->b, 7, NOW), 3, "it began before");
    cr_assert_eq(run_board_newest_version(f->b, 4, NOW + 1), 4);
}
