/* The dispatcher's metrics. Ends are counted when they happen. Pending work is published every
 * second. */
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "common/proc/run_board.h"
#include "dispatcher/desk.h"

static unsigned queue_label(const struct desk *d, const struct queue *q)
{
    return metrics_name(d->heritage->metrics, METRIC_NAMES_QUEUE,
                        q ? str_cstr(q->name) : STR("(none)"));
}

/* Returns the metrics label of a runner. A name keeps its label for ever, and labels are few. So a
 * runner that no group has ever named shares the last label: otherwise executors could use up the
 * labels with any names. */
static unsigned runner_label(const struct desk *d, const struct runner *r)
{
    if (r->lanes.n == 0)
        return METRIC_RUNNER_OTHER;
    return metrics_name(d->heritage->metrics, METRIC_NAMES_RUNNER, str_cstr(r->name));
}

/* Observes the seconds that an executor reported for one step of its attempt. Returns them in
 * microseconds. */
static int64_t observe_timing(struct desk *d, const struct json *timings, const char *name,
                              enum metric id)
{
    double s = 0;

    if (json_to_double(json_get(timings, name), &s) != 0 || s <= 0 || s >= 1e9)
        return 0;
    metrics_observe_us(d->heritage->page, id, (uint64_t)(s * 1e6));
    return (int64_t)(s * 1e6);
}

void desk_count_claim(struct desk *d, const struct attempt *a)
{
    uint64_t submitted_at_ms = a->rollout->group->submitted_at_ms;

    if (a->number == 1 && a->claimed_at_ms > submitted_at_ms)
        metrics_observe_us(d->heritage->page, METRIC_claim_wait,
                           (a->claimed_at_ms - submitted_at_ms) * 1000);
}

_Static_assert(RUN_ATTEMPT_CANCELLED - RUN_ATTEMPT_OK == (int)OUTCOME_CANCELLED, "as enum outcome");

void desk_count_attempt(struct desk *d, const struct attempt *a)
{
    const struct group *g = a->rollout->group;
    const char *text = a->rollout->result.timings;
    struct run_event event = {.names[RUN_TASK] = group_label(g, STR("task"))};
    struct arena arena = {0};
    const struct json *timings = NULL;
    struct err e;

    metrics_count_at(d->heritage->page, METRIC_attempts, runner_label(d, g->runner), a->outcome, 1);
    event.counts.at[RUN_ATTEMPT_OK + (int)a->outcome] = 1;
    if (text && json_parse(&arena, str_cstr(text), &timings, &e) == 0) {
        event.counts.at[RUN_ATTEMPT_RUN] = observe_timing(d, timings, "run", METRIC_attempt_run);
        event.counts.at[RUN_ATTEMPT_SCORE] =
            observe_timing(d, timings, "score", METRIC_attempt_score);
    }
    arena_done(&arena);
    run_board_add(d->heritage->board->run, d->heritage->page, &event, clock_wall_ms());
}

void desk_count_settled(struct desk *d, const struct group *g)
{
    metrics_count_at(d->heritage->page, METRIC_groups_settled, queue_label(d, g->queue),
                     g->state - GROUP_FINISHED, 1);
    /* the wall clock may be set back */
    if (g->first_end_at_ms && g->settled_at_ms >= g->first_end_at_ms)
        metrics_observe_us(d->heritage->page, METRIC_group_tail,
                           (g->settled_at_ms - g->first_end_at_ms) * 1000);
}

/* Publishes the sums of each label value. Names without a value of their own share the last one. */
static void publish_queues(struct desk *d)
{
    uint64_t n[METRIC_QUEUE_VALUES][GROUP_STATES] = {0};
    bool shown[METRIC_QUEUE_VALUES] = {false};
    const struct group *g;

    for (size_t i = 0; i < d->book.queues.n; i++) {
        const struct queue *q = d->book.queues.at[i];
        unsigned v = queue_label(d, q);

        shown[v] = true;
        for (int s = 0; s < GROUP_STATES; s++)
            n[v][s] += q->n_groups[s];
    }
    for (unsigned v = 0; v < METRIC_QUEUE_VALUES; v++)
        for (unsigned s = 0; shown[v] && s < GROUP_STATES; s++)
            metrics_set_cell(d->heritage->page, METRIC_groups, v, s, n[v][s]);
    g = LIST_FIRST_OF(&d->book.all, struct group, all_entry);
    metrics_set(d->heritage->page, METRIC_queue_oldest,
                g && clock_wall_ms() > g->submitted_at_ms
                    ? (clock_wall_ms() - g->submitted_at_ms) * 1000
                    : 0);
}

_Static_assert(METRIC_RUNNER_VALUES <= 64, "a bit for each");

static void publish_runners(struct desk *d)
{
    uint64_t running[METRIC_RUNNER_VALUES] = {0}, slots[METRIC_RUNNER_VALUES] = {0};
    bool open[METRIC_RUNNER_VALUES] = {false};

    for (size_t i = 0; i < d->book.runners.n; i++) {
        const struct runner *r = d->book.runners.at[i];
        unsigned v = runner_label(d, r);

        d->shown_runners |= 1ull << v;
        running[v] += r->running;
        slots[v] += r->slots;
        open[v] |= r->blocked;
    }
    for (unsigned v = 0; v < METRIC_RUNNER_VALUES; v++) {
        if (!(d->shown_runners >> v & 1)) /* a removed runner is published, too, as zero */
            continue;
        metrics_set_at(d->heritage->page, METRIC_attempts_running, v, running[v]);
        metrics_set_at(d->heritage->page, METRIC_slots, v, slots[v]);
        metrics_set_at(d->heritage->page, METRIC_breaker_open, v, open[v]);
    }
}

void desk_publish(struct desk *d)
{
    publish_queues(d);
    publish_runners(d);
}
