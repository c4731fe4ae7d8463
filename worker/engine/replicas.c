#include "worker/engine/replicas.h"

#include <math.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/metrics.h"
#include "worker/engine/engine_target.h"

enum { BAD_LIMIT = 3, GOOD_LIMIT = 2, BUSY_MS = 60000 };

static const double load_factor = 1.25;
static const double load_slack = 8;

static unsigned label(const struct replica *r)
{
    size_t i = (size_t)(r - r->all->at);

    return (unsigned)MIN_OF(i, (size_t)METRIC_ENGINE_15);
}

static void set_up(struct replica *r, bool up)
{
    r->up = up;
    metrics_set_at(r->all->metrics, METRIC_engine_up, label(r), up);
}

/* --- health --- */

bool replica_serves(const struct replica *r)
{
    return r->up && (r->proven || !r->adapter->probe);
}

static void observe(struct replica *r, bool good)
{
    bool served = replica_serves(r);

    r->bad = good ? 0 : (uint8_t)MIN_OF(r->bad + 1, BAD_LIMIT);
    r->good = good ? (uint8_t)MIN_OF(r->good + 1, GOOD_LIMIT) : 0;
    r->proven = r->proven || good;
    if (r->up && r->bad >= BAD_LIMIT) {
        log_warn(NULL, "engine is down", LOG_T("engine", r->target.name));
        set_up(r, false);
    } else if (!r->up && r->good >= GOOD_LIMIT) {
        log_info(NULL, "engine is up", LOG_T("engine", r->target.name));
        set_up(r, true);
    }
    if (replica_serves(r) != served)
        r->all->changed(r->all->ctx);
}

static void on_answer(void *ctx, enum engine_health h)
{
    struct replica *r = ctx;
    bool busy = r->alive_ms > 0 && clock_ms() - r->alive_ms < BUSY_MS;

    r->probing = false;
    if (h == ENGINE_SLOW && busy)
        return;
    observe(r, h == ENGINE_UP);
}

static void on_timer(struct loop_timer *t)
{
    struct replicas *all = CONTAINER_OF(t, struct replicas, timer);

    for (size_t i = 0; i < all->n; i++) {
        struct replica *r = &all->at[i];

        if (!r->adapter->probe || r->probing)
            continue;
        r->probing = true;
        r->adapter->probe(r->impl, on_answer, r);
    }
    loop_timer_set(all->loop, &all->timer, all->opt->health_interval_ms, on_timer);
}

void replica_alive(struct replica *r)
{
    r->alive_ms = clock_ms();
}

/* The last one weighs an eighth: the mean follows the engine without jumping with every answer. */
static void note_time(struct replica *r, uint64_t us)
{
    if (r->answer_us == 0)
        r->answer_us = us;
    else
        r->answer_us = r->answer_us - r->answer_us / 8 + us / 8;
}

static void note_version(struct replica *r, const struct engine_result *answer)
{
    struct str version;

    if (answer->n_versions == 0)
        return;
    version = answer->versions[answer->n_versions - 1].version;
    if (str_eq(version, buf_str(&r->version)))
        return;
    buf_clear(&r->version);
    buf_add_str(&r->version, version);
}

void replica_answered(struct replica *r, const struct engine_result *answer)
{
    note_time(r, answer->total_us);
    note_version(r, answer);
    replica_alive(r);
    observe(r, true);
}

void replica_unreachable(struct replica *r)
{
    observe(r, false);
}

/* --- load --- */

/* This worker's count on the board, or NULL. */
static _Atomic uint32_t *shared(const struct replica *r)
{
    const struct engine_options *o = r->all->opt;
    size_t i = (size_t)(r - r->all->at);

    return o->board && i < BOARD_ENGINES_MAX ? &o->board->slots[o->slot].engine_inflight[i] : NULL;
}

/* Counted before it is looked at, so that two workers cannot both take the last place. */
static bool take_place(struct replica *r)
{
    uint32_t max = r->all->opt->max_inflight;
    _Atomic uint32_t *mine = shared(r);

    if (!mine)
        return true;
    atomic_fetch_add(mine, 1);
    if (max == 0 || board_engine_inflight(r->all->opt->board, (unsigned)(r - r->all->at)) <= max)
        return true;
    atomic_fetch_sub(mine, 1);
    return false;
}

bool replica_begin(struct replica *r)
{
    if (!take_place(r))
        return false;
    r->inflight++;
    r->requests++;
    metrics_count_at(r->all->metrics, METRIC_engine_requests, label(r), 0, 1);
    metrics_move_at(r->all->metrics, METRIC_engine_inflight, label(r), 1);
    return true;
}

void replica_end(struct replica *r)
{
    _Atomic uint32_t *mine = shared(r);

    if (mine)
        atomic_fetch_sub(mine, 1);
    r->inflight--;
    metrics_move_at(r->all->metrics, METRIC_engine_inflight, label(r), -1);
}

/* Whether another request may run there, as far as can be seen now. */
static bool has_place(const struct replica *r)
{
    uint32_t max = r->all->opt->max_inflight;

    if (max == 0)
        return true;
    return r->inflight < max &&
           (!shared(r) ||
            board_engine_inflight(r->all->opt->board, (unsigned)(r - r->all->at)) < max);
}

void replica_retried(struct replica *r)
{
    r->retries++;
    metrics_count_at(r->all->metrics, METRIC_engine_retries, label(r), 0, 1);
}

void replica_failed(struct replica *r)
{
    r->errors++;
    metrics_count_at(r->all->metrics, METRIC_engine_errors, label(r), 0, 1);
}

void replica_aborted(struct replica *r)
{
    metrics_count_at(r->all->metrics, METRIC_engine_aborts, label(r), 0, 1);
}

/* --- choice --- */

/* Highest wins. With u uniform in (0, 1), -weight / ln(u) gives each replica its share. */
static double score(const struct replica *r, struct str session_id)
{
    uint64_t bits = str_hash(session_id, r->hash) >> 11;
    double u = ((double)bits + 0.5) / 9007199254740992.0;

    return -r->target.weight / log(u);
}

struct load {
    double total, weights;
};

bool replicas_any_up(const struct replicas *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->at[i].up)
            return true;
    }
    return false;
}

static struct load load_of(const struct replicas *r)
{
    struct load l = {0};

    for (size_t i = 0; i < r->n; i++) {
        if (!r->at[i].up)
            continue;
        l.total += r->at[i].inflight;
        l.weights += r->at[i].target.weight;
    }
    return l;
}

static bool within_share(const struct replica *r, const struct load *l)
{
    double share = l->weights > 0 ? (l->total + 1) * r->target.weight / l->weights : 0;

    return r->inflight < load_factor * share + load_slack;
}

/* The best of those allowed; bounded: only those within their share of the load. */
static struct replica *best(struct replicas *all, struct str session_id,
                            const struct replica *avoid, bool bounded)
{
    struct load l = load_of(all);
    struct replica *found = NULL;
    double found_score = -1;

    for (size_t i = 0; i < all->n; i++) {
        struct replica *r = &all->at[i];
        double s;

        if (r == avoid || !r->up || (bounded && !within_share(r, &l)) || !has_place(r))
            continue;
        s = score(r, session_id);
        if (s > found_score) {
            found = r;
            found_score = s;
        }
    }
    return found;
}

struct replica *replicas_pick(struct replicas *r, struct str session_id,
                              const struct replica *avoid)
{
    struct replica *found = best(r, session_id, avoid, true);

    if (!found)
        found = best(r, session_id, avoid, false);
    return found || !avoid ? found : best(r, session_id, NULL, false);
}

/* --- life --- */

static int open_one(struct replicas *all, struct arena *a, const char *text,
                    const struct engine_options *o, struct err *e)
{
    struct replica *r = &all->at[all->n];

    r->all = all;
    if (engine_target_parse(a, text, &r->target, e) < 0)
        return -1;
    r->adapter = engine_adapter_find(r->target.kind);
    if (r->adapter->open(all->loop, &r->target, o, &r->impl, e) < 0)
        return -1;
    r->hash = str_hash(str_cstr(r->target.name), 0);
    all->n++;
    set_up(r, true);
    return 0;
}

int replicas_open(struct replicas *r, struct arena *a, const struct engine_options *o,
                  struct err *e)
{
    r->at = arena_calloc(a, o->n_engines, sizeof(*r->at));
    r->opt = o;
    if (o->board)
        board_forget_engines(o->board, o->slot);
    for (size_t i = 0; i < o->n_engines; i++) {
        if (open_one(r, a, o->engines[i], o, e) < 0)
            return -1;
    }
    loop_timer_set(r->loop, &r->timer, 1, on_timer);
    return 0;
}

void replicas_reload(struct replicas *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->at[i].adapter->reload)
            r->at[i].adapter->reload(r->at[i].impl);
    }
    loop_timer_set(r->loop, &r->timer, 1, on_timer);
}

void replicas_close(struct replicas *r)
{
    loop_timer_stop(r->loop, &r->timer);
    for (size_t i = 0; i < r->n; i++) {
        r->at[i].adapter->close(r->at[i].impl);
        buf_done(&r->at[i].version);
    }
}
