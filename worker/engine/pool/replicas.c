/*
 * Health: `observe` counts good and bad observations in a row. Load: slots are counted on the board
 * for all workers before they are checked, so that two workers cannot both take the last one. Then
 * choice, and the life of replicas:
 *
 *   staged --replicas_set--> in --removed from the set--> out --seen idle twice--> freed
 *
 * Choice: each replica gets a score from a hash of session and name, scaled by its weight. The
 * highest score wins among replicas that are up, have a free slot and suit the request. So a
 * replica that is added or removed moves only the sessions that it wins or loses.
 */
#include "worker/engine/pool/replicas.h"
#include "common/os/loop.h"
#include "worker/engine/kv/kv_room.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/extra.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/proc/board.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/pool/engine_target.h"
#include "worker/engine/pool/vision_probe.h"

enum { BAD_LIMIT = 3, GOOD_LIMIT = 2, BUSY_MS = 60000, REAP_MS = 1000 };

/* See replicas.h for the reasons. */
static const double load_factor = 1.25;
static const double load_slack = 8;

static unsigned label(const struct replica *r)
{
    return MIN_OF(r->number, (unsigned)METRIC_ENGINE_15);
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

    if (r->stage != REPLICA_IN) {
        r->proven = r->proven || good;
        return;
    }
    r->bad = good ? 0 : (uint8_t)MIN_OF(r->bad + 1, BAD_LIMIT);
    r->good = good ? (uint8_t)MIN_OF(r->good + 1, GOOD_LIMIT) : 0;
    r->proven = r->proven || good;
    if (r->up && r->bad >= BAD_LIMIT) {
        log_warn(NULL, "engine is down", LOG_T("engine", r->target.name));
        vision_probe_forget(r);
        set_up(r, false);
    } else if (!r->up && r->good >= GOOD_LIMIT) {
        log_info(NULL, "engine is up", LOG_T("engine", r->target.name));
        set_up(r, true);
    }
    if (replica_serves(r) != served)
        pool_changed(r->all->pool);
}

static void on_tried(struct loop_timer *t)
{
    pool_tried(CONTAINER_OF(t, struct replicas, trial)->pool);
}

/* Notes that so many replicas are left to try. After the last one pool_tried is called, by a timer
 * and never from within a probe, because it may close the replica that was probed. */
static void trial_look(struct replicas *all, size_t left)
{
    all->on_trial = left;
    if (left == 0)
        loop_timer_set(all->loop, &all->trial, 1, on_tried);
}

static void on_answer(void *ctx, enum engine_health h)
{
    struct replica *r = ctx;
    bool busy = r->alive_ms > 0 && clock_ms() - r->alive_ms < BUSY_MS;

    r->probing = false;
    if (h != ENGINE_SLOW || !busy)
        observe(r, h == ENGINE_UP);
    if (h == ENGINE_UP) {
        vision_probe_begin(r);
        kv_look(r);
    }
    replicas_note_halves(r->all);
    if (r->stage == REPLICA_STAGED && r->all->on_trial > 0)
        trial_look(r->all, r->all->on_trial - 1);
}

static void probe(struct replica *r)
{
    if (!r->adapter->probe && r->kv.state == KV_ASKED)
        kv_look(r); /* needed because nothing else reports that it is up */
    if (!r->adapter->probe || r->probing)
        return;
    r->probing = true;
    r->adapter->probe(r->impl, on_answer, r);
}

static void on_timer(struct loop_timer *t)
{
    struct replicas *all = CONTAINER_OF(t, struct replicas, timer);

    for (size_t i = 0; i < all->n; i++)
        probe(all->at[i]);
    replicas_note_halves(all);
    loop_timer_set(all->loop, &all->timer, all->opt->health_interval_ms, on_timer);
}

void replica_alive(struct replica *r)
{
    r->alive_ms = clock_ms();
}

/* Updates the mean, in which the last time counts an eighth. */
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
    if (version.len == 0 || str_eq(version, buf_str(&r->version)))
        return;
    buf_set(&r->version, version);
}

void replica_answered(struct replica *r, const struct engine_result *answer)
{
    note_time(r, answer->total_us);
    note_version(r, answer);
    r->full_until_ms = 0;
    replica_alive(r);
    observe(r, true);
}

void replica_unreachable(struct replica *r)
{
    observe(r, false);
}

/* --- load --- */

/* Returns this worker's counter on the board, or NULL. */
static _Atomic uint32_t *shared(const struct replica *r)
{
    const struct engine_options *o = r->all->opt;

    return o->board && r->number < BOARD_ENGINES_MAX
               ? &o->board->slots[o->slot].engine_inflight[r->number]
               : NULL;
}

/* Returns how many requests of all workers it may run; 0: unlimited. */
static uint32_t limit_of(const struct replica *r)
{
    return r->target.max_inflight > 0 ? r->target.max_inflight : r->all->opt->max_inflight;
}

/* Takes a slot: counts first, then checks, so that two workers cannot both take the last. */
static bool take_slot(struct replica *r)
{
    uint32_t max = limit_of(r);
    _Atomic uint32_t *mine = shared(r);

    if (!mine)
        return true;
    atomic_fetch_add(mine, 1);
    if (max == 0 || board_engine_inflight(r->all->opt->board, r->number) <= max)
        return true;
    atomic_fetch_sub(mine, 1);
    return false;
}

bool replica_begin(struct replica *r)
{
    if (!take_slot(r))
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

void replica_unbegin(struct replica *r)
{
    replica_end(r);
    r->requests--;
}

void replica_queue(struct replica *r)
{
    r->queued++;
    metrics_move_at(r->all->metrics, METRIC_engine_queued, label(r), 1);
}

void replica_unqueue(struct replica *r)
{
    r->queued--;
    metrics_move_at(r->all->metrics, METRIC_engine_queued, label(r), -1);
}

bool replica_has_slot(const struct replica *r)
{
    uint32_t max = limit_of(r);

    if (max == 0)
        return true;
    return r->inflight < max &&
           (!shared(r) || board_engine_inflight(r->all->opt->board, r->number) < max);
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

/* The highest score wins. With u uniform in (0, 1), -weight / ln(u) gives each replica its
 * share. */
double replica_score(const struct replica *r, struct str session_id)
{
    uint64_t bits = str_hash(session_id, r->hash) >> 11;
    double u = ((double)bits + 0.5) / 9007199254740992.0;

    return -r->target.weight / log(u);
}

struct load {
    double total, weights;
};

static struct load load_of(const struct replicas *r)
{
    struct load l = {0};

    for (size_t i = 0; i < r->n; i++) {
        if (!r->at[i]->up)
            continue;
        l.total += r->at[i]->inflight;
        l.weights += r->at[i]->target.weight;
    }
    return l;
}

static bool within_share(const struct replica *r, const struct load *l)
{
    double share = l->weights > 0 ? (l->total + 1) * r->target.weight / l->weights : 0;

    return r->inflight < load_factor * share + load_slack;
}

enum engine_lora replica_lora(const struct replica *r)
{
    if (!r->adapter->lora_field)
        return LORA_NONE;
    return r->adapter->lora ? r->adapter->lora(r->impl) : LORA_TAKEN;
}

static bool takes_lora(const struct replica *r, struct str lora, bool later)
{
    enum engine_lora how = lora.len > 0 ? replica_lora(r) : LORA_TAKEN;

    return how == LORA_TAKEN || (later && how == LORA_UNTOLD);
}

/* Reports whether the kind of replica accepts the request. later: or may accept its adapter. */
static bool suits(const struct replica *r, const struct engine_request *q, bool later)
{
    const struct engine_adapter *kind = r->adapter;

    if (!q)
        return true;
    if ((q->n_images > 0 && !vision_probe_lets(r)) || !takes_lora(r, q->lora, later))
        return false;
    return kind->passes_request ? q->chat_body != NULL
                                : !q->text && engine_takes_fields(kind, q->sampling);
}

bool replica_suits(const struct replica *r, const struct engine_request *q)
{
    return suits(r, q, false);
}

bool replicas_suit(const struct replicas *r, const struct engine_request *q, bool later)
{
    for (size_t i = 0; i < r->n; i++) {
        if (suits(r->at[i], q, later))
            return true;
    }
    return false;
}

static bool is_full(const struct replica *r)
{
    return r->full_until_ms > 0 && clock_ms() < r->full_until_ms;
}

void replica_full(struct replica *r, uint32_t wait_s)
{
    r->full_until_ms = clock_ms() + (uint64_t)MAX_OF(wait_s, 1u) * 1000;
}

/* Reports whether the wish avoids the replica. */
static bool is_avoided(const struct replica *r, const struct replica_wish *w)
{
    return r == w->avoid || (!w->takes_full && is_full(r));
}

bool replicas_any_free(const struct replicas *r, const struct engine_request *q)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct replica *one = r->at[i];

        if (one->up && !is_full(one) && replica_has_slot(one) && suits(one, q, false) &&
            !(replicas_split(r) && replica_half(one) == HALF_PREFILL))
            return true;
    }
    return false;
}

/* Returns the best of the permitted replicas. bounded: only those within their share of the
 * load. */
static struct replica *best(struct replicas *all, const struct replica_wish *w, bool bounded)
{
    struct load l = load_of(all);
    struct replica *found = NULL;
    bool split = replicas_split(all);
    double found_score = -1;

    for (size_t i = 0; i < all->n; i++) {
        struct replica *r = all->at[i];
        double s;

        if (split && replica_half(r) == HALF_PREFILL)
            continue;
        if (is_avoided(r, w) || !r->up || (bounded && !within_share(r, &l)) ||
            !replica_has_slot(r) || !suits(r, w->request, false))
            continue;
        s = replica_score(r, w->session_id);
        if (s > found_score) {
            found = r;
            found_score = s;
        }
    }
    return found;
}

/* Returns the replica of the session's lease, if it is up and accepts the request. */
static struct replica *lease_home(const struct replicas *all, const struct replica_wish *w)
{
    for (size_t i = 0; i < all->n; i++) {
        struct replica *r = all->at[i];

        if (r == w->kept && !is_avoided(r, w) && r->up && suits(r, w->request, false))
            return r;
    }
    return NULL;
}

/* Like lease_home, but only if it has a free slot. */
static struct replica *keep(const struct replicas *all, const struct replica_wish *w)
{
    struct replica *r = lease_home(all, w);

    return r && replica_has_slot(r) ? r : NULL;
}

struct replica *replicas_pick(struct replicas *r, const struct replica_wish *w)
{
    struct replica_wish any = {
        .session_id = w->session_id, .request = w->request, .takes_full = true};
    struct replica *found = w->kept ? keep(r, w) : NULL;

    if (!found)
        found = best(r, w, true);
    if (!found)
        found = best(r, w, false);
    return found ? found : best(r, &any, false);
}

struct replica *replicas_home(const struct replicas *r, const struct replica_wish *w)
{
    struct replica *found = w->kept ? lease_home(r, w) : NULL;
    double found_score = -1;
    bool split = replicas_split(r);

    if (found)
        return found;
    for (size_t i = 0; i < r->n; i++) {
        struct replica *one = r->at[i];
        double s;

        if (split && replica_half(one) == HALF_PREFILL)
            continue;
        if (!suits(one, w->request, true) || (found && found->up && !one->up))
            continue;
        s = r->n > 1 ? replica_score(one, w->session_id) : 0;
        if (!found || (one->up && !found->up) || s > found_score) {
            found = one;
            found_score = s;
        }
    }
    return found;
}

enum replica_move replicas_move(const struct replicas *r, const struct replica_wish *w,
                                uint64_t before, const struct replica *now)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct replica *old = r->at[i];

        if (old->hash != before)
            continue;
        if (!old->up)
            return MOVE_DOWN;
        if (old == w->avoid)
            return MOVE_FAILED;
        return replica_score(old, w->session_id) < replica_score(now, w->session_id) ? MOVE_HOME
                                                                                     : MOVE_LOAD;
    }
    return MOVE_REMOVED;
}

const char *replica_move_name(enum replica_move m)
{
    static const char *const move_names[] = {"removed", "down", "failed", "load", "home"};

    return move_names[m];
}

/* --- life --- */

static void free_replica(struct replica *r)
{
    vision_probe_forget(r);
    r->adapter->close(r->impl);
    buf_done(&r->version);
    arena_done(&r->arena);
    free(r);
}

static struct replica *open_one(struct replicas *all, const struct engine_entry *entry,
                                struct err *e)
{
    struct replica *r = mem_zalloc(sizeof(*r));

    r->all = all;
    r->text = arena_cstr(&r->arena, str_cstr(entry->text));
    r->number = entry->number;
    r->stage = REPLICA_STAGED;
    r->vision = ARENA_NEW(&r->arena, struct vision_probe);
    if (engine_target_parse(&r->arena, r->text, &r->target, e) < 0)
        goto out;
    r->adapter = engine_adapter_find(r->target.kind);
    if (all->opt->pool) {
        r->target.pool = arena_cstr(&r->arena, str_cstr(all->opt->pool));
        r->target.name = r->target.own ? r->target.own : r->target.whole;
        /* all engines of the policy have the same vocabulary; ids of other pools are another
         * model's */
        if (r->adapter->wire)
            r->adapter = &engine_openai;
    }
    if (r->adapter->open(r->adapter, all->loop, &r->target, all->opt, &r->impl, e) < 0)
        goto out;
    r->hash = str_hash(str_cstr(r->target.name), 0);
    return r;
out:
    arena_done(&r->arena);
    free(r);
    return NULL;
}

static struct replica *find(struct replica *const *at, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(at[i]->text, text) == 0)
            return at[i];
    }
    return NULL;
}

static void list_drop(struct replica_list *l, size_t i)
{
    l->at[i] = l->at[--l->n];
}

/* Frees removed replicas that run nothing any longer. Each must be seen idle twice, a second apart,
 * so that an abort that its adapter is still sending arrives. */
static void on_reap(struct loop_timer *t)
{
    struct replicas *all = CONTAINER_OF(t, struct replicas, reap);

    for (size_t i = all->out.n; i-- > 0;) {
        struct replica *r = all->out.at[i];

        if (r->inflight > 0 || r->probing || !r->rests) {
            r->rests = r->inflight == 0;
            continue;
        }
        log_info(NULL, "engine is gone", LOG_T("engine", r->target.name));
        list_drop(&all->out, i);
        pool_forget(all->pool, r);
        free_replica(r);
    }
    if (all->out.n > 0)
        loop_timer_set(all->loop, t, REAP_MS, on_reap);
}

static void retire(struct replicas *all, struct replica *r)
{
    log_info(NULL, "engine is taken out", LOG_T("engine", r->target.name),
             LOG_U("running", r->inflight));
    set_up(r, false);
    r->stage = REPLICA_OUT;
    *vec_push(&all->out) = r;
    loop_timer_set(all->loop, &all->reap, REAP_MS, on_reap);
}

static void take_in(struct replica *r)
{
    r->stage = REPLICA_IN;
    set_up(r, true);
}

int replicas_stage(struct replicas *r, const struct engine_set *set, struct err *e)
{
    for (size_t i = 0; i < set->n; i++) {
        const struct engine_entry *entry = &set->at[i];
        struct replica *one;

        if (find(r->at, r->n, entry->text) || find(r->staged.at, r->staged.n, entry->text))
            continue;
        one = open_one(r, entry, e);
        if (!one) {
            replicas_unstage(r);
            return -1;
        }
        *vec_push(&r->staged) = one;
    }
    return 0;
}

void replicas_try(struct replicas *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->staged.n; i++) {
        probe(r->staged.at[i]);
        n += r->staged.at[i]->probing;
    }
    trial_look(r, n);
}

void replicas_unstage(struct replicas *r)
{
    loop_timer_stop(r->loop, &r->trial);
    r->on_trial = 0;
    while (r->staged.n > 0)
        free_replica(vec_pop(&r->staged));
}

int replicas_set(struct replicas *r, const struct engine_set *set, struct err *e)
{
    struct replica_list next = {0};

    if (replicas_stage(r, set, e))
        return -1;
    for (size_t i = 0; i < set->n; i++) {
        struct replica *one = find(r->at, r->n, set->at[i].text);

        *vec_push(&next) = one ? one : find(r->staged.at, r->staged.n, set->at[i].text);
    }
    for (size_t i = 0; i < r->n; i++) {
        if (!find(next.at, next.n, r->at[i]->text))
            retire(r, r->at[i]);
    }
    for (size_t i = 0; i < next.n; i++) {
        if (next.at[i]->stage == REPLICA_STAGED)
            take_in(next.at[i]);
    }
    for (size_t i = r->staged.n; i-- > 0;) {
        if (r->staged.at[i]->stage == REPLICA_IN)
            list_drop(&r->staged, i);
    }
    replicas_unstage(r);
    free(r->at);
    r->at = next.at;
    r->n = next.n;
    loop_timer_set(r->loop, &r->timer, 1, on_timer);
    return 0;
}

void replicas_begin(struct replicas *r, const struct engine_options *o)
{
    r->opt = o;
    r->lets_drift = o->media_drift;
    r->sample = ARENA_NEW(&r->arena, struct vision_sample);
    if (o->pool) /* engines of other pools get no pictures */
        return;
    vision_sample_make(o->model, &r->arena, r->sample);
    if (o->board)
        board_forget_engines(o->board, o->slot);
}

static void reload_list(struct replica *const *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i]->adapter->reload)
            at[i]->adapter->reload(at[i]->impl);
    }
}

void replicas_reload(struct replicas *r)
{
    reload_list(r->at, r->n);
    reload_list(r->out.at, r->out.n);
    loop_timer_set(r->loop, &r->timer, 1, on_timer);
}

void replicas_close(struct replicas *r)
{
    loop_timer_stop(r->loop, &r->timer);
    loop_timer_stop(r->loop, &r->reap);
    replicas_unstage(r);
    vec_done(&r->staged);
    for (size_t i = 0; i < r->n; i++)
        free_replica(r->at[i]);
    for (size_t i = 0; i < r->out.n; i++)
        free_replica(r->out.at[i]);
    vec_done(&r->out);
    free(r->at);
    r->at = NULL;
    r->n = 0;
    arena_done(&r->arena);
}

enum logprob_basis replica_basis(const struct replica *r)
{
    return r->adapter->basis ? r->adapter->basis(r->impl) : BASIS_PROCESSED;
}
