/* GET /stats: sends the figures of the run (common/proc/run_board.h) of all workers of the node.
 * They are in shared memory, so no other worker is asked and no session is read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/run_board.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

enum figure_kind { FIGURE_COUNT, FIGURE_SECONDS, FIGURE_NUMBER };

static const struct {
    enum figure_kind kind;
    const char *group, *name;
} figures[RUN_FIGURES] = {

#define FIGURE(field, kind, group, name, metric, label) \
    [RUN_##field] = {FIGURE_##kind, group, name},
#include "common/proc/run_figures.def"
};

enum { MINUTE_S = 60 };

/* A request for the figures. Times are minutes since 1970. */
struct stats {
    const struct heritage *heritage;
    struct run_board *run;
    uint32_t from, to, step, now;
    bool by;
    enum run_label label;
    struct run_series series; /* the series of the total, or of evaluation */
    struct run_series *rows;  /* RUN_ROWS_MAX series, or NULL */
    /* sums of each time step (`step` minutes) of the series being written */
    struct run_counts points[RUN_MINUTES];
    bool used[RUN_MINUTES];
    struct run_mismatch_row mismatch[RUN_ROWS_MAX];
    struct run_token worst[RUN_WORST];
    struct run_ended slowest[RUN_WORST];
};

/* --- figures --- */

static void put_figure(struct json_out *o, int i, int64_t v)
{
    json_out_key(o, figures[i].name);
    if (figures[i].kind == FIGURE_COUNT)
        json_out_i64(o, v);
    else
        json_out_double(o, (double)v / 1e6);
}

static void put_ratio(struct json_out *o, const char *name, double sum, int64_t n)
{
    json_out_key(o, name);
    if (n > 0)
        json_out_double(o, sum / (double)n);
    else
        json_out_null(o);
}

static void put_ratios(struct json_out *o, const int64_t *at)
{
    int64_t measured = at[RUN_SESSIONS] - at[RUN_UNMEASURED], n = at[RUN_REWARDED];
    double sum = (double)at[RUN_REWARD] / 1e6, square = (double)at[RUN_REWARD_SQUARE] / 1e6;
    double mean = n > 0 ? sum / (double)n : 0;

    put_ratio(o, "turns_mean", (double)at[RUN_TURNS], measured);
    put_ratio(o, "tokens_mean", (double)at[RUN_TOKENS], measured);
    put_ratio(o, "run_mean_s", (double)at[RUN_RUN] / 1e6, measured);
    put_ratio(o, "reward_mean", sum, n);
    json_out_key(o, "reward_std");
    if (n > 0)
        json_out_double(o, sqrt(MAX_OF(square / (double)n - mean * mean, 0.0)));
    else
        json_out_null(o);
    put_ratio(o, "pass_rate", (double)at[RUN_PASSED], n);
    put_ratio(o, "staleness_mean", (double)at[RUN_STALENESS], at[RUN_STALENESS_SESSIONS]);
}

/* Writes the figures as members of an open object. Figures of a group must be consecutive in the
 * table. */
static void put_figures(struct json_out *o, const struct run_counts *c)
{
    const char *group = "";

    for (int i = 0; i < RUN_FIGURES; i++) {
        if (strcmp(group, figures[i].group) != 0) {
            if (*group)
                json_out_end_obj(o);
            else
                put_ratios(o, c->at);
            group = figures[i].group;
            json_out_member_obj(o, group);
        }
        put_figure(o, i, c->at[i]);
    }
    json_out_end_obj(o);
}

/* --- rows --- */

/* Sums the minutes of a row into steps. Returns the sum of all. */
static struct run_counts sum_row(struct stats *v, const struct run_series *row)
{
    struct run_counts total = {0};

    memset(v->points, 0, sizeof(v->points));
    memset(v->used, 0, sizeof(v->used));
    for (unsigned i = 0; i < RUN_MINUTES; i++) {
        uint32_t minute = row->minutes[i];

        if (minute < v->from || minute >= v->to)
            continue;
        v->used[(minute - v->from) / v->step] = true;
        run_counts_add(&v->points[(minute - v->from) / v->step], &row->counts[i]);
        run_counts_add(&total, &row->counts[i]);
    }
    return total;
}

static void put_total(struct json_out *o, const char *key, const struct run_counts *total)
{
    json_out_member_obj(o, key);
    put_figures(o, total);
    json_out_end_obj(o);
}

/* Writes the steps in which a session ended. */
MAY_PAUSE static int put_series(struct answering *a, struct stats *v, struct json_out *o,
                                struct err *e)
{
    json_out_member_arr(o, "series");
    for (unsigned i = 0; i < RUN_MINUTES; i++) {
        if (!v->used[i])
            continue;
        json_out_obj(o);
        json_out_member_i64(o, "at", ((int64_t)v->from + (int64_t)i * v->step) * MINUTE_S);
        put_figures(o, &v->points[i]);
        json_out_end_obj(o);
        if (answering_flow(a, e))
            return -1;
    }
    json_out_end_arr(o);
    return 0;
}

MAY_PAUSE static int put_row(struct answering *a, struct stats *v, const struct run_series *row,
                             bool other, struct json_out *o, struct err *e)
{
    struct run_counts total = sum_row(v, row);

    json_out_obj(o);
    json_out_member_str(o, "name", str_cstr(other ? "other" : row->name));
    json_out_member_bool(o, "other", other);
    put_total(o, "total", &total);
    if (put_series(a, v, o, e))
        return -1;
    json_out_end_obj(o);
    return 0;
}

MAY_PAUSE static int put_rows(struct answering *a, struct stats *v, struct json_out *o,
                              struct err *e)
{
    unsigned n = 0;

    if (v->by) {
        v->rows = mem_alloc(RUN_ROWS_MAX * sizeof(*v->rows));
        n = run_board_read_rows(v->run, v->label, v->rows);
    }
    json_out_key(o, "by");
    if (v->by)
        json_out_cstr(o, run_label_name(v->label));
    else
        json_out_null(o);
    json_out_member_arr(o, "rows");
    for (unsigned i = 0; i < n; i++) {
        const struct run_series *row = &v->rows[i];

        if (row->newest > 0 && row->newest >= v->from && put_row(a, v, row, i == n - 1, o, e))
            return -1;
    }
    json_out_end_arr(o);
    if (v->by)
        json_out_member_i64(o, "row_limit", run_label_rows(v->label));
    return 0;
}

/* --- the slowest sessions --- */

static void put_spent(struct json_out *o, const struct run_ended *x)
{
    int longest = 0;

    json_out_member_obj(o, "time_s");
    for (int i = 0; i < RUN_SPENDINGS; i++) {
        put_figure(o, RUN_SPENT_START + i, x->spent_us[i]);
        longest = x->spent_us[i] > x->spent_us[longest] ? i : longest;
    }
    json_out_end_obj(o);
    json_out_member_str(o, "waited_for", str_cstr(figures[RUN_SPENT_START + longest].name));
}

static void put_ended(struct json_out *o, const struct run_ended *x)
{
    json_out_obj(o);
    json_out_member_str(o, "session_id", str_cstr(x->session));
    json_out_member_str(o, "group", x->group[0] ? str_cstr(x->group) : (struct str){0});
    json_out_member_seconds(o, "ended_at", x->ended_ms);
    json_out_member_double(o, "run_s", (double)x->run_us / 1e6);
    json_out_key(o, "reward");
    if (x->rewarded)
        json_out_double(o, x->reward);
    else
        json_out_null(o);
    json_out_member_i64(o, "turns", x->turns);
    json_out_member_i64(o, "tokens", x->tokens);
    json_out_member_str(o, "ended", str_cstr(figures[x->cause].name));
    put_spent(o, x);
    json_out_end_obj(o);
}

static void put_slowest(struct json_out *o, struct stats *v)
{
    size_t n = run_board_read_slowest(v->run, v->from, v->to, v->slowest);

    json_out_member_arr(o, "slowest");
    for (size_t i = 0; i < n; i++)
        put_ended(o, &v->slowest[i]);
    json_out_end_arr(o);
}

/* --- trainer against sampler --- */

/* Writes a version that has tokens. */
static void put_version(struct json_out *o, const struct run_mismatch_row *r, bool other)
{
    struct run_mismatch all = {0};

    for (int i = 0; i < RUN_POSITIONS; i++)
        run_mismatch_merge(&all, &r->positions[i]);
    if (all.tokens == 0)
        return;
    json_out_obj(o);
    json_out_member_str(o, "version", str_cstr(other ? "other" : r->version));
    json_out_member_bool(o, "other", other);
    run_mismatch_put(&all, o);
    json_out_member_arr(o, "positions");
    for (int i = 0; i < RUN_POSITIONS; i++) {
        json_out_obj(o);
        run_mismatch_put(&r->positions[i], o);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
}

static void put_token(struct json_out *o, const struct run_token *t)
{
    json_out_obj(o);
    json_out_member_str(o, "session_id", str_cstr(t->session));
    json_out_member_str(o, "response_id", str_cstr(t->response));
    json_out_member_i64(o, "position", t->position);
    json_out_member_i64(o, "token_id", t->id);
    json_out_member_str(o, "version", t->version[0] ? str_cstr(t->version) : (struct str){0});
    json_out_member_str(o, "reported_version", str_cstr(t->reported));
    json_out_member_double(o, "sampled", (double)t->sampled);
    json_out_member_double(o, "trained", (double)t->trained);
    json_out_member_double(o, "difference", (double)t->trained - (double)t->sampled);
    json_out_member_str(o, "before", str_cstr(t->before));
    json_out_member_str(o, "token", str_cstr(t->token));
    json_out_member_str(o, "after", str_cstr(t->after));
    json_out_end_obj(o);
}

static void put_mismatch(struct json_out *o, struct stats *v)
{
    struct run_mismatch all = {0};
    size_t n = run_board_read_worst(v->run, v->from, v->to, v->worst);

    run_board_read_mismatch(v->run, v->from, v->to, v->mismatch);
    for (int i = 0; i < RUN_ROWS_MAX; i++)
        for (int k = 0; k < RUN_POSITIONS; k++)
            run_mismatch_merge(&all, &v->mismatch[i].positions[k]);
    json_out_member_obj(o, "mismatch");
    json_out_member_arr(o, "positions");
    for (int i = 0; i < RUN_POSITIONS; i++)
        json_out_i64(o, run_positions[i]);
    json_out_end_arr(o);
    json_out_member_obj(o, "total");
    run_mismatch_put(&all, o);
    json_out_end_obj(o);
    json_out_member_arr(o, "versions");
    for (int i = 0; i < RUN_ROWS_MAX; i++)
        put_version(o, &v->mismatch[i], i == RUN_ROWS_MAX - 1);
    json_out_end_arr(o);
    json_out_member_arr(o, "worst");
    for (size_t i = 0; i < n; i++)
        put_token(o, &v->worst[i]);
    json_out_end_arr(o);
    json_out_end_obj(o);
}

/* --- the answer --- */

static void put_range(struct json_out *o, const struct stats *v)
{
    json_out_member_seconds(o, "now", clock_wall_ms());
    json_out_member_seconds(o, "since", run_board_since(v->run));
    json_out_member_i64(o, "from", (int64_t)v->from * MINUTE_S);
    json_out_member_i64(o, "to", (int64_t)v->to * MINUTE_S);
    json_out_member_i64(o, "step", (int64_t)v->step * MINUTE_S);
    json_out_member_i64(o, "held_s", (int64_t)RUN_MINUTES * MINUTE_S);
    control_put_node(v->heritage, o);
}

MAY_PAUSE static int put_stats(struct answering *a, struct stats *v, struct err *e)
{
    struct json_out o = json_out_to(&a->out);
    struct run_counts total;

    json_out_obj(&o);
    put_range(&o, v);
    run_board_read(v->run, false, &v->series);
    total = sum_row(v, &v->series);
    put_total(&o, "total", &total);
    if (put_series(a, v, &o, e))
        return -1;
    run_board_read(v->run, true, &v->series);
    total = sum_row(v, &v->series);
    put_total(&o, "evaluation", &total);
    if (put_rows(a, v, &o, e))
        return -1;
    put_slowest(&o, v);
    if (answering_flow(a, e))
        return -1;
    put_mismatch(&o, v);
    json_out_member_arr(&o, "unreachable");
    heritage_put_peers(v->heritage, &o);
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    return 0;
}

static void write_stats(struct answering *a, void *ctx)
{
    struct stats *v = ctx;
    struct err e = {0};

    if (put_stats(a, v, &e) == 0)
        answering_end(a);
    else
        answering_fail(a, "the run's figures cannot be sent", &e);
    free(v->rows);
    free(v);
}

/* --- the request --- */

/* Returns a number of the query, or `otherwise`. Its form was checked. */
static double read_seconds(struct arena *a, struct str query, const char *name, double otherwise)
{
    struct str text = query_get(a, query, name);

    return text.len > 0 ? strtod(arena_cstr(a, text), NULL) : otherwise;
}

static void read_label(struct stats *v, struct str name)
{
    for (int i = 0; i < RUN_LABELS; i++) {
        if (str_eq_c(name, run_label_name((enum run_label)i))) {
            v->by = true;
            v->label = (enum run_label)i;
        }
    }
}

static int read_query(struct stats *v, struct arena *a, struct str query, struct err *e)
{
    double now = (double)clock_wall_ms() / 1000, from, to;
    uint32_t oldest, step = (uint32_t)read_seconds(a, query, "step", MINUTE_S);

    v->now = (uint32_t)(now / MINUTE_S);
    oldest = v->now - MIN_OF(v->now, (uint32_t)RUN_MINUTES - 1);
    from = read_seconds(a, query, "from", 0);
    to = read_seconds(a, query, "to", ((double)v->now + 1) * MINUTE_S);
    if (step % MINUTE_S != 0)
        return err_field(e, "step", "step: %u is not a multiple of %d", step, MINUTE_S);
    if (from >= to)
        return err_field(e, "from", "from: %.0f is not before `to`, %.0f", from, to);
    v->step = step / MINUTE_S;
    v->to = MIN_OF((uint32_t)ceil(to / MINUTE_S), v->now + 1);
    v->from = MAX_OF((uint32_t)(from / MINUTE_S), oldest) / v->step * v->step;
    v->from = MIN_OF(v->from, v->to);
    read_label(v, query_get(a, query, "by"));
    return 0;
}

void stats_get(struct service_request *r)
{
    const struct heritage *h = r->service->heritage;
    struct stats *v = mem_zalloc(sizeof(*v));
    struct arena a = {0};
    struct err e = {0};

    v->heritage = h;
    v->run = h->board->run;
    if (control_check_node(h, &a, exchange_query(r->x), &e) == 0 &&
        read_query(v, &a, exchange_query(r->x), &e) == 0) {
        answering_start(r, write_stats, v);
    } else {
        respond_error(r, NULL, &e);
        free(v);
    }
    arena_done(&a);
}
