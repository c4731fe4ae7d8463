#include "common/proc/metrics.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "testing.h"

static bool has(const struct buf *b, const char *line)
{
    return str_find(buf_str(b), str_cstr(line), 0) != SIZE_MAX;
}

TEST(metrics, counts_of_a_dead_child_survive_it)
{
    struct metrics *m = metrics_new(8);
    struct metrics_page *own = metrics_page(m, 0, "supervisor");
    struct buf text = {0};
    pid_t pid;
    int status;

    metrics_count_at(own, METRIC_restarts, METRIC_ROLE_WORKER, 0, 3);
    pid = fork();
    if (pid == 0) {
        struct metrics_page *page = metrics_page(m, 5, "worker-0");

        metrics_count(page, METRIC_tokens_prompt, 41);
        metrics_count_at(page, METRIC_requests, METRIC_DIALECT_CHAT, METRIC_STATUS_200, 2);
        metrics_move(page, METRIC_calls_inflight, 3);
        metrics_observe_us(page, METRIC_turn_engine, 700);
        metrics_set(page, METRIC_rss, 4096);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    metrics_count(own, METRIC_tokens_prompt, 1);
    metrics_render(m, &text);
    cr_assert(has(&text, "\nrollgate_prompt_tokens_total 42\n"));
    cr_assert(has(&text, "\nrollgate_requests_total{dialect=\"chat\",status=\"200\"} 2\n"));
    cr_assert(has(&text, "\nrollgate_calls_inflight 3\n"));
    cr_assert(has(&text, "\nrollgate_turn_engine_seconds_bucket{le=\"0.0005\"} 0\n"));
    cr_assert(has(&text, "\nrollgate_turn_engine_seconds_bucket{le=\"0.001\"} 1\n"));
    cr_assert(has(&text, "\nrollgate_turn_engine_seconds_sum 0.000700\n"));
    cr_assert(has(&text, "{process=\"worker-0\"} 4096\n"));
    metrics_reset_gauges(metrics_page(m, 5, NULL));
    buf_clear(&text);
    metrics_render(m, &text);
    cr_assert(has(&text, "\nrollgate_calls_inflight 0\n"));
    cr_assert(has(&text, "\nrollgate_prompt_tokens_total 42\n"));
    buf_done(&text);
    metrics_free(m);
}

TEST(metrics, gauges_never_fall_below_zero)
{
    struct metrics *m = metrics_new(1);
    struct metrics_page *page = metrics_page(m, 0, "x");

    metrics_move_at(page, METRIC_sessions, METRIC_PHASE_OPEN, -5);
    cr_assert_eq(metrics_read(m, METRIC_sessions, METRIC_PHASE_OPEN, 0), 0);
    metrics_move_at(page, METRIC_sessions, METRIC_PHASE_OPEN, 2);
    cr_assert_eq(metrics_read(m, METRIC_sessions, METRIC_PHASE_OPEN, 0), 2);
    metrics_free(m);
}

TEST(metrics, promtool_finds_nothing)
{
    struct metrics *m = metrics_new(2);
    struct buf text = {0};
    FILE *tool;
    int status;

    if (system("command -v promtool >/dev/null") != 0)
        cr_skip_test("promtool is not installed");
    metrics_set_at(metrics_page(m, 1, "worker-0"), METRIC_engine_up, 3, 1);
    metrics_render(m, &text);
    cr_assert(has(&text, "rollgate_engine_up{engine=\"3\"} 1"));
    cr_assert_not(has(&text, "rollgate_engine_up{engine=\"2\"}"));
    tool = popen("promtool check metrics", "w");
    cr_assert_not_null(tool);
    cr_assert_eq(fwrite(text.p, 1, text.len, tool), text.len);
    status = pclose(tool);
    cr_assert_eq(status, 0, "promtool status %d", status);
    buf_done(&text);
    metrics_free(m);
}
