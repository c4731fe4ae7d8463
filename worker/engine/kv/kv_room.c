/* Tokens are counted on the board before the sum is checked, like running requests (replicas.c). So
 * two workers cannot both reserve the last space. */
#include "worker/engine/kv/kv_room.h"

#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/replicas.h"

static const struct engine_options *pool_options_of(const struct replica *r)
{
    return r->all->opt;
}

/* Publishes to all processes how many replicas of this worker do not report. */
static void publish_untold(const struct replicas *all)
{
    uint32_t n = 0;

    if (!all->opt->board)
        return;
    for (size_t i = 0; i < all->n; i++)
        n += all->at[i]->kv.state == KV_UNTOLD;
    atomic_store(&all->opt->board->slots[all->opt->slot].kv_untold, n);
}

static void on_kv_figures(void *ctx, const struct engine_kv *told)
{
    struct replica *r = ctx;
    struct kv_room *k = &r->kv;
    enum kv_state before = k->state;
    uint64_t leased = kv_leased(r);

    k->asking = false;
    /* A single missing report does not change the state. */
    if (told->capacity == 0 && before == KV_TOLD)
        return;
    k->state = told->capacity > 0 ? KV_TOLD : KV_UNTOLD;
    k->told = *told;
    k->others = told->used > leased ? told->used - leased : 0;
    if (k->state == KV_UNTOLD && before != KV_UNTOLD)
        log_warn(NULL, "an engine does not tell of its KV cache: no session waits for room there",
                 LOG_T("engine", r->target.name));
    else if (k->state == KV_TOLD && before != KV_TOLD)
        log_info(NULL, "engine told its KV cache", LOG_T("engine", r->target.name),
                 LOG_U("tokens", told->capacity), LOG_U("limit", kv_limit(r)));
    publish_untold(r->all);
}

void kv_look(struct replica *r)
{
    static const struct engine_kv nothing = {0};

    if (pool_options_of(r)->kv_admission == 0 || r->kv.asking)
        return;
    r->kv.asking = true;
    if (r->adapter->look_at_kv)
        r->adapter->look_at_kv(r->impl, on_kv_figures, r);
    else
        on_kv_figures(r, &nothing);
}

const char *kv_state_name(const struct replica *r)
{
    static const char *const state_names[] = {"asked", "untold", "told"};

    return state_names[r->kv.state];
}

uint64_t kv_limit(const struct replica *r)
{
    return r->kv.told.capacity * pool_options_of(r)->kv_admission / 100;
}

uint64_t kv_leased(const struct replica *r)
{
    const struct board *b = pool_options_of(r)->board;

    return b && r->number < BOARD_ENGINES_MAX ? board_kv_leased(b, r->number) : r->kv.leased;
}

uint64_t kv_free(const struct replica *r)
{
    uint64_t taken = kv_leased(r) + r->kv.others;

    return kv_limit(r) > taken ? kv_limit(r) - taken : 0;
}

static void count_leased(struct replica *r, int64_t tokens)
{
    struct board *b = pool_options_of(r)->board;

    r->kv.leased += (uint64_t)tokens;
    if (b && r->number < BOARD_ENGINES_MAX)
        atomic_fetch_add(&b->slots[pool_options_of(r)->slot].kv_leased[r->number],
                         (uint64_t)tokens);
}

static void show_free(struct replica *r, int64_t tokens)
{
    metrics_move_at(r->all->metrics, METRIC_kv_leased,
                    MIN_OF(r->number, (unsigned)METRIC_ENGINE_15), tokens);
}

void kv_move(struct replica *r, int64_t tokens)
{
    count_leased(r, tokens);
    show_free(r, tokens);
}

bool kv_take(struct replica *r, uint64_t tokens)
{
    uint64_t all;

    if (r->kv.state == KV_ASKED)
        return false;
    count_leased(r, (int64_t)tokens);
    all = kv_leased(r) + r->kv.others;
    if (r->kv.state == KV_UNTOLD || all <= kv_limit(r) ||
        (tokens >= kv_limit(r) && kv_leased(r) <= tokens)) {
        show_free(r, (int64_t)tokens);
        return true;
    }
    count_leased(r, -(int64_t)tokens);
    return false;
}

void kv_tell_held(const struct engine_options *o, size_t n, uint64_t since_us)
{
    metrics_set(o->metrics, METRIC_kv_held, n);
    if (!o->board)
        return;
    atomic_store(&o->board->slots[o->slot].kv_held, (uint32_t)n);
    atomic_store(&o->board->slots[o->slot].kv_held_since_us, since_us);
}

bool kv_older_held(const struct engine_options *o, uint64_t since_us)
{
    return o->board && board_kv_older(o->board, o->slot, since_us);
}

size_t kv_count_held(const struct engine_options *o, size_t own)
{
    return o->board ? board_kv_held(o->board) : own;
}
