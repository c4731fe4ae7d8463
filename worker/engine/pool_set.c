/* struct engine_pool: its set of engines, and how it changes while calls run. */
#include <string.h>

#include "common/base/log.h"
#include "common/proc/board.h"
#include "worker/engine/engine_set.h"
#include "worker/engine/kv_room.h"
#include "worker/engine/pool_internal.h"

int engine_pool_set(struct engine_pool *p, const struct engine_set *set, struct err *e)
{
    if (replicas_set(&p->replicas, set, e))
        return -1;
    p->edition = set->edition;
    log_info(NULL, "the set of engines has changed", LOG_U("edition", set->edition),
             LOG_U("engines", set->n));
    pool_changed(p);
    return 0;
}

static void on_tried(void *ctx)
{
    struct engine_pool *p = ctx;
    struct buf silent = {0};

    for (size_t i = 0; i < p->replicas.staged.n; i++) {
        const struct replica *r = p->replicas.staged.at[i];

        if (!r->adapter->probe || r->proven)
            continue;
        buf_puts(&silent, silent.len > 0 ? ", " : "");
        buf_puts(&silent, r->target.name);
    }
    p->tried(p->tried_ctx, buf_str(&silent));
    buf_done(&silent);
}

int engine_pool_try(struct engine_pool *p, const struct engine_set *set,
                    void (*tried)(void *ctx, struct str silent), void *ctx, struct err *e)
{
    if (replicas_stage(&p->replicas, set, e))
        return -1;
    p->tried = tried;
    p->tried_ctx = ctx;
    replicas_try(&p->replicas, on_tried, p);
    return 0;
}

bool engine_pool_tried(const struct engine_pool *p, const char *text)
{
    for (size_t i = 0; i < p->replicas.staged.n; i++) {
        const struct replica *r = p->replicas.staged.at[i];

        if (strcmp(r->text, text) == 0)
            return r->proven || !r->adapter->probe;
    }
    return false;
}

void engine_pool_untry(struct engine_pool *p)
{
    replicas_unstage(&p->replicas);
}

uint64_t engine_pool_edition(const struct engine_pool *p)
{
    return p->edition;
}

size_t engine_pool_at_number(const struct engine_pool *p, unsigned number)
{
    size_t n = 0;

    if (p->opt.board && number < BOARD_ENGINES_MAX)
        return board_engine_inflight(p->opt.board, number);
    for (size_t i = 0; i < p->replicas.out.n; i++)
        n += p->replicas.out.at[i]->number == number ? p->replicas.out.at[i]->inflight : 0;
    return n;
}

/* What the last answers told: null before the first. */
static void put_answers(const struct replica *r, struct json_out *o)
{
    json_out_key(o, "latency_ms");
    if (r->answer_us > 0)
        json_out_double(o, (double)r->answer_us / 1000);
    else
        json_out_null(o);
    json_out_key(o, "weight_version");
    if (r->version.len > 0)
        json_out_str(o, buf_str(&r->version));
    else
        json_out_null(o);
}

/* null: sessions do not wait for room. */
static void put_kv(const struct replica *r, struct json_out *o)
{
    json_out_key(o, "kv");
    if (r->all->opt->kv_admission == 0) {
        json_out_null(o);
        return;
    }
    json_out_obj(o);
    json_out_key(o, "state");
    json_out_cstr(o, kv_state_name(r));
    json_out_key(o, "capacity");
    json_out_i64(o, (int64_t)r->kv.told.capacity);
    json_out_key(o, "limit");
    json_out_i64(o, (int64_t)kv_limit(r));
    json_out_key(o, "used");
    json_out_i64(o, (int64_t)r->kv.told.used);
    json_out_key(o, "leased");
    json_out_i64(o, (int64_t)kv_leased(r));
    json_out_end_obj(o);
}

static const char *state_of(const struct replica *r)
{
    if (r->stage == REPLICA_OUT)
        return "draining";
    return r->up ? "up" : "down";
}

static void put_replica(const struct replica *r, struct json_out *out)
{
    json_out_obj(out);
    json_out_key(out, "name");
    json_out_cstr(out, r->target.name);
    json_out_key(out, "kind");
    json_out_cstr(out, r->target.kind);
    json_out_key(out, "engine");
    json_out_cstr(out, r->text);
    json_out_key(out, "place");
    json_out_i64(out, r->number);
    json_out_key(out, "state");
    json_out_cstr(out, state_of(r));
    json_out_key(out, "up");
    json_out_bool(out, r->up);
    json_out_key(out, "logprobs");
    json_out_obj(out);
    json_out_key(out, "asked");
    json_out_str(out, r->adapter->asks_basis ? str_cstr(r->adapter->asks_basis) : (struct str){0});
    json_out_key(out, "given");
    json_out_cstr(out, logprob_basis_name(replica_basis(r)));
    json_out_end_obj(out);
    if (r->adapter->describe)
        r->adapter->describe(r->impl, out);
    json_out_key(out, "vision");
    json_out_str(out, str_cstr(vision_probe_told(r)));
    json_out_key(out, "inflight");
    json_out_i64(out, r->inflight);
    json_out_key(out, "queued");
    json_out_i64(out, r->queued);
    json_out_key(out, "requests");
    json_out_i64(out, (int64_t)r->requests);
    json_out_key(out, "retries");
    json_out_i64(out, (int64_t)r->retries);
    json_out_key(out, "errors");
    json_out_i64(out, (int64_t)r->errors);
    put_answers(r, out);
    put_kv(r, out);
    json_out_end_obj(out);
}

void engine_pool_write(const struct engine_pool *p, struct buf *json)
{
    struct json_out o = json_out_to(json);

    json_out_arr(&o);
    for (size_t i = 0; i < p->replicas.n; i++)
        put_replica(p->replicas.at[i], &o);
    for (size_t i = 0; i < p->replicas.out.n; i++)
        put_replica(p->replicas.out.at[i], &o);
    json_out_end_arr(&o);
}
