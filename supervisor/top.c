/* `rollgate top`: a page of figures once a second, made from /metrics, /stats and /attempts of a
 * running gateway, like any other client would. Rates are differences of two readings. */

#include "supervisor/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/proc/command_line.h"
#include "common/proc/config.h"
#include "common/proc/gateway_client.h"
#include "common/proc/metrics.h"
#include "supervisor/local_address.h"
#include "supervisor/terminal_text.h"
#include "supervisor/top_fleet.h"
#include "supervisor/top_run.h"

enum { EVERY_S = 1 };

/* One reading: the metrics page and its time. Also the run's figures, the nodes of the fleet and
 * the oldest attempts (JSON), or nothing if the gateway does not return them. */
struct top_view {
    struct buf page, stats, fleet, attempts;
    uint64_t at_ms;
};

/* Reads the metrics. Returns 0, or -1 with the reason in look->page unless /metrics answers 200. */
static int fetch_look_page(struct gateway_client *c, struct top_view *look)
{
    struct str none = {0};
    int status = gateway_client_call(c, "GET", "/metrics", none, &look->page);

    look->at_ms = clock_ms();
    if (status == 200 &&
        gateway_client_call(c, "GET", "/stats?step=14400", none, &look->stats) != 200)
        buf_clear(&look->stats);
    buf_clear(&look->fleet);
    if (status == 200)
        top_fleet_read(c, buf_str(&look->stats), &look->fleet);
    if (status == 200 &&
        gateway_client_call(c, "GET", "/attempts?limit=10", none, &look->attempts) != 200)
        buf_clear(&look->attempts);
    if (status == 200)
        return 0;
    if (status == 401 || status == 403) {
        buf_clear(&look->page);
        buf_puts(&look->page, "it wants an admin key (--key-file FILE)");
    } else if (status > 0) {
        buf_clear(&look->page);
        buf_printf(&look->page, "GET /metrics was answered with status %d", status);
    }
    return -1;
}

/* Returns the sum of all samples of a metric whose labels contain `label` ("" = all). */
static double sum_samples(const struct top_view *look, const char *name, const char *label)
{
    struct str rest = buf_str(&look->page);
    double sum = 0;
    size_t n = strlen(name);

    while (rest.len) {
        struct str line = str_cut(&rest, '\n');
        size_t space = line.len;

        if (!str_starts(line, str_of(name, n)) || line.len <= n ||
            (line.p[n] != ' ' && line.p[n] != '{'))
            continue;
        while (space > 0 && line.p[space - 1] != ' ')
            space--;
        if (str_find(str_sub(line, 0, space), str_cstr(label), 0) != SIZE_MAX)
            sum += strtod(line.p + space, NULL); /* strtod stops at the end of the line */
    }
    return sum;
}

/* Returns the rate per second between two readings; 0 at the first one. */
static double rate_of(const struct top_view *now, const struct top_view *before, const char *name,
                      const char *label)
{
    double seconds = (double)(now->at_ms - before->at_ms) / 1000;

    if (before->page.len == 0 || seconds <= 0)
        return 0;
    return (sum_samples(now, name, label) - sum_samples(before, name, label)) / seconds;
}

/* Returns the mean of a histogram of seconds since the start, in milliseconds. */
static double mean_ms(const struct top_view *now, const char *histogram)
{
    char sum[96], count[96];
    double n;

    (void)snprintf(sum, sizeof(sum), "%s_sum", histogram);
    (void)snprintf(count, sizeof(count), "%s_count", histogram);
    n = sum_samples(now, count, "");
    return n > 0 ? sum_samples(now, sum, "") * 1000 / n : 0;
}

/* Prints sums over all processes. */
static void show_totals(const struct top_view *now, const struct top_view *before)
{
    printf("requests  %8.0f/s   routed %.0f/s   connections %.0f   refused %.0f\n",
           rate_of(now, before, "rollgate_requests_total", ""),
           rate_of(now, before, "rollgate_routed_requests_total", ""),
           sum_samples(now, "rollgate_connections", ""),
           sum_samples(now, "rollgate_refusals_total", ""));
    printf("sessions  %8.0f open   %.0f completed   calls in flight %.0f   queued %.0f\n",
           sum_samples(now, "rollgate_sessions", "\"open\""),
           sum_samples(now, "rollgate_sessions", "\"completed\""),
           sum_samples(now, "rollgate_calls_inflight", ""),
           sum_samples(now, "rollgate_queue_depth", ""));
    if (sum_samples(now, "rollgate_workers_paused", "") > 0)
        printf("PAUSED    %8.0f workers hold their calls until /admin/resume\n",
               sum_samples(now, "rollgate_workers_paused", ""));
    printf("tokens    %8.0f/s generated   %.0f/s prompt   %.0f/s reused   %.0f live\n",
           rate_of(now, before, "rollgate_generated_tokens_total", ""),
           rate_of(now, before, "rollgate_prompt_tokens_total", ""),
           rate_of(now, before, "rollgate_reused_tokens_total", ""),
           sum_samples(now, "rollgate_live_tokens", ""));
    printf("turn      %8.1f ms queue   %.1f ms engine   %.2f ms gateway (means)\n",
           mean_ms(now, "rollgate_turn_queue_seconds"),
           mean_ms(now, "rollgate_turn_engine_seconds"),
           mean_ms(now, "rollgate_turn_gateway_seconds"));
    printf("journal   %8.0f B/s   on disk %.1f MB   fsync %.2f ms\n",
           rate_of(now, before, "rollgate_journal_written_bytes_total", ""),
           sum_samples(now, "rollgate_journal_bytes", "") / 1e6,
           mean_ms(now, "rollgate_journal_fsync_seconds"));
    printf("engines   %8.0f running   %.0f failed   healthy in the eyes of workers: %.0f\n",
           sum_samples(now, "rollgate_engine_inflight", ""),
           sum_samples(now, "rollgate_engine_errors_total", ""),
           sum_samples(now, "rollgate_engine_up", ""));
    printf("sinks     %8.0f delivered   %.0f waiting (%.1f MB)   %.0f errors\n",
           sum_samples(now, "rollgate_sink_delivered_total", ""),
           sum_samples(now, "rollgate_sink_waiting", ""),
           sum_samples(now, "rollgate_sink_waiting_bytes", "") / 1e6,
           sum_samples(now, "rollgate_sink_errors_total", ""));
    printf("restarts  %8.0f\n", sum_samples(now, "rollgate_process_restarts_total", ""));
}

/* Prints a line for each process. */
static void show_processes(const struct top_view *now)
{
    static const struct str head = STR_LIT("rollgate_process_resident_memory_bytes{process=\"");
    struct str page = buf_str(&now->page);

    printf("%-14s %10s %6s %10s\n", "process", "RSS MB", "fds", "lag ms");
    for (size_t at = 0; (at = str_find(page, head, at)) != SIZE_MAX; at += head.len) {
        struct str name = str_sub(page, at + head.len, SIZE_MAX);
        char label[64];

        name = str_sub(name, 0, str_find(name, STR("\""), 0));
        (void)snprintf(label, sizeof(label), "\"%.*s\"", (int)MIN_OF(name.len, (size_t)40), name.p);
        printf("%-14.*s %10.1f %6.0f %10.2f\n", (int)name.len, name.p,
               sum_samples(now, "rollgate_process_resident_memory_bytes", label) / 1e6,
               sum_samples(now, "rollgate_process_open_fds", label),
               sum_samples(now, "rollgate_loop_lag_seconds", label) * 1000);
    }
}

/* Returns the next value of a family's first label on the page, from *at on; absent after the last
 * one. `head` is NAME{LABEL=" . */
static struct str next_value(const struct top_view *now, const char *head, size_t *at)
{
    struct str page = buf_str(&now->page), rest;
    size_t found = str_find(page, str_cstr(head), *at), n = 0;

    if (found == SIZE_MAX)
        return (struct str){0};
    rest = str_sub(page, found + strlen(head), SIZE_MAX);
    while (n < rest.len && rest.p[n] != '"')
        n += rest.p[n] == '\\' ? 2 : 1;
    *at = found + strlen(head) + n;
    return str_sub(rest, 0, n);
}

/* Returns the sample with this value of the first label. `other`: text of the second label ("": it
 * has none). */
static double labelled_value(const struct top_view *now, const char *name, const char *label,
                             struct str text, const char *more)
{
    char all[256];

    (void)snprintf(all, sizeof(all), "{%s=\"%.*s\"%s%s", label, (int)MIN_OF(text.len, 128u), text.p,
                   *more ? "," : "}", more);
    return sum_samples(now, name, all);
}

/* Prints a line for each queue with groups. */
static void show_queues(const struct top_view *now)
{
    static const char head[] = "rollgate_groups{queue=\"";
    struct str last = {0}, queue;
    char name[TERMINAL_NAME];
    size_t at = 0;

    while ((queue = next_value(now, head, &at)).p) {
        double settled = 0;

        if (last.p && str_eq(queue, last))
            continue; /* same queue, different state */
        if (!last.p)
            printf("%-14s %10s %10s %10s\n", "queue", "waiting", "running", "settled");
        last = queue;
        for (size_t i = 0; i < 4; i++)
            settled += labelled_value(
                now, "rollgate_groups", "queue", queue,
                ((const char *const[]){"state=\"finished\"", "state=\"partial\"",
                                       "state=\"failed\"", "state=\"cancelled\""})[i]);
        printf("%-14s %10.0f %10.0f %10.0f\n", terminal_name(queue, name),
               labelled_value(now, "rollgate_groups", "queue", queue, "state=\"waiting\""),
               labelled_value(now, "rollgate_groups", "queue", queue, "state=\"running\""),
               settled);
    }
    if (last.p)
        printf("oldest group   %10.0f s\n\n",
               sum_samples(now, "rollgate_queue_oldest_seconds", ""));
}

/* Prints a line for each runner. */
static void show_runners(const struct top_view *now)
{
    static const char head[] = "rollgate_attempts_running{runner=\"";
    static const char *const outcomes[] = {"outcome=\"ok\"", "outcome=\"timeout\"",
                                           "outcome=\"error\"", "outcome=\"infra\"",
                                           "outcome=\"cancelled\""};
    char name[TERMINAL_NAME];
    struct str runner;
    size_t at = 0;

    for (bool first = true; (runner = next_value(now, head, &at)).p; first = false) {
        if (first)
            printf("%-14s %8s %8s %8s %8s %8s %8s %9s\n", "runner", "running", "free", "ok",
                   "timeout", "error", "infra", "cancelled");
        printf("%-14s %8.0f %8.0f", terminal_name(runner, name),
               labelled_value(now, "rollgate_attempts_running", "runner", runner, ""),
               labelled_value(now, "rollgate_slots", "runner", runner, ""));
        for (size_t i = 0; i < ARRAY_LEN(outcomes); i++)
            printf(" %*.0f", i + 1 == ARRAY_LEN(outcomes) ? 9 : 8,
                   labelled_value(now, "rollgate_attempts_total", "runner", runner, outcomes[i]));
        printf("%s\n", labelled_value(now, "rollgate_breaker_open", "runner", runner, "") > 0
                           ? "  BLOCKED: it only fails"
                           : "");
    }
    if (at > 0)
        printf("\n");
}

/* Prints one attempt. */
static void show_attempt(const struct json *a)
{
    struct str group = json_string(json_get(a, "group"));
    struct str runner = json_string(json_get(a, "runner"));
    struct str executor = json_string(json_get(a, "executor"));
    struct str session = json_string(json_get(a, "session_id"));
    char names[4][TERMINAL_NAME];

    printf("%8.0f s %8.0f %8.0f  %-14s %-16s %-20s %s\n", json_number_of(a, "running_s"),
           json_number_of(a, "rollout"), json_number_of(a, "attempt"),
           terminal_name(runner, names[0]), terminal_name(executor, names[1]),
           terminal_name(group, names[2]), terminal_name(session, names[3]));
}

/* Prints the ten oldest running attempts. */
static void show_attempts(const struct top_view *now)
{
    const struct json *answer = NULL, *all;
    struct arena arena = {0};
    struct err e;

    if (now->attempts.len > 0 && json_parse(&arena, buf_str(&now->attempts), &answer, &e) == 0) {
        all = json_get(answer, "attempts");
        if (json_is(all, JSON_ARRAY) && all->n > 0)
            printf("%10s %8s %8s  %-14s %-16s %-20s %s\n", "oldest", "rollout", "attempt", "runner",
                   "executor", "group", "session");
        for (uint32_t i = 0; json_is(all, JSON_ARRAY) && i < all->n; i++)
            show_attempt(json_at(all, i));
        if (json_is(all, JSON_ARRAY) && all->n > 0)
            printf("\n");
    }
    arena_done(&arena);
}

/* Prints which nodes are missing: the figures are those of one node. */
static void show_unreachable(const struct top_view *now)
{
    struct str page = buf_str(&now->page), head = STR(METRICS_UNREACHABLE);
    struct str line = str_sub(page, 0, str_find(page, STR("\n"), 0));

    if (str_starts(line, head))
        printf("this node only, without its peers' workers %.*s\n", (int)(line.len - head.len),
               line.p + head.len);
}

static void print_page(const struct top_view *now, const struct top_view *before, const char *url,
                       bool once)
{
    if (!once)
        printf("\033[H\033[J");
    printf("rollgate on %s\n", url);
    show_unreachable(now);
    printf("\n");
    show_totals(now, before);
    top_print_run(buf_str(&now->stats));
    printf("\n");
    top_fleet_print(buf_str(&now->fleet));
    show_queues(now);
    show_runners(now);
    show_attempts(now);
    show_processes(now);
}

/* Prints pages until the gateway ends, or once. */
static int watch_gateway(struct gateway_client *c, const char *url, bool once, bool json)
{
    struct top_view looks[2] = {0};
    int rc = 1;

    for (unsigned i = 0;; i++) {
        struct top_view *now = &looks[i % 2], *before = &looks[(i + 1) % 2];

        if (fetch_look_page(c, now)) {
            fprintf(stderr, "rollgate top: no figures: %.*s\n", (int)now->page.len, now->page.p);
            rc = 1;
            break;
        }
        if (json)
            top_print_json(buf_str(&now->stats), buf_str(&now->fleet), buf_str(&now->page));
        else
            print_page(now, before, url, once);
        (void)fflush(stdout);
        rc = 0;
        if (once)
            break;
        sleep(EVERY_S);
    }
    for (unsigned i = 0; i < 2; i++) {
        buf_done(&looks[i].page);
        buf_done(&looks[i].stats);
        buf_done(&looks[i].fleet);
        buf_done(&looks[i].attempts);
    }
    return rc;
}

/* Returns 0 if the gateway has answered. */
int top_command(int argc, char **argv)
{
    struct gateway_client_options o = gateway_client_take_options(&argc, argv, NULL);
    bool once = command_line_take_flag(&argc, argv, "--once");
    bool json = command_line_take_flag(&argc, argv, "--json");
    struct config *c = commands_load(argc, argv, COMMANDS_SYNTAX);
    struct gateway_client *client = NULL;
    struct buf mistakes = {0}, url = {0};
    int rc = 2;

    if (c && !o.url)
        local_address_use(c, &o, &url);
    if (c && !o.key_file && c->admin_key_file && *c->admin_key_file)
        o.key_file = c->admin_key_file;
    if (c)
        client = gateway_client_new(&o, &mistakes);
    if (client)
        rc = watch_gateway(client, o.url, once, json);
    else
        fprintf(stderr, "%.*s", (int)mistakes.len, mistakes.p ? mistakes.p : "");
    gateway_client_free(client);
    buf_done(&mistakes);
    buf_done(&url);
    config_free(c);
    return rc;
}
