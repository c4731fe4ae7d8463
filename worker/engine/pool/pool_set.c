/* struct engine_pool: the pools of other models than the policy's, the set of engines of all pools,
 * and its changes while calls run. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/proc/board.h"
#include "worker/engine/kv/kv_room.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"
#include "worker/engine/pool/vision_probe.h"
#include "worker/text/model/model.h"

/* --- pools --- */

struct engine_pool *engine_pool_named(struct engine_pool *p, struct str name)
{
    if (!name.len)
        return NULL;
    if (str_eq_c(name, ENGINE_POOL_POLICY))
        return p->first;
    for (p = p->first->next; p; p = p->next) {
        if (p->known && str_eq_c(name, p->opt.pool))
            return p;
    }
    return NULL;
}

const char *engine_pool_name(const struct engine_pool *p)
{
    return p->opt.pool;
}

int engine_pool_check_manned(const struct engine_pool *p, struct err *e)
{
    if (!p->opt.pool || p->replicas->n > 0)
        return 0;
    return err_set(e, ERR_ENGINE_UNAVAILABLE,
                   "model: the pool \"%s\" has no engine: all were taken out (/admin/engines)",
                   p->opt.pool);
}

void engine_pool_each_name(const struct engine_pool *p, void (*fn)(void *ctx, const char *name),
                           void *ctx)
{
    for (p = p->first->next; p; p = p->next) {
        if (p->known)
            fn(ctx, p->opt.pool);
    }
}

static struct engine_pool *find_pool(struct engine_pool *first, const char *name)
{
    for (struct engine_pool *p = first->next; p; p = p->next) {
        if (strcmp(p->opt.pool, name) == 0)
            return p;
    }
    return NULL;
}

/* Checks the served model, whose name agents use: that must be the policy's. */
static int check_served(const struct engine_pool *first, const struct engine_set *set,
                        struct err *e)
{
    const char *served = first->opt.model ? model_info(first->opt.model)->name : NULL;

    if (served && set->pools.n > 0 && strcmp(served, ENGINE_POOL_POLICY) == 0)
        return err_field(e, "served_model_name",
                         "served_model_name: \"%s\" is what sessions of a pool ask the policy by: "
                         "where there are pools, serve the model by another name",
                         served);
    if (!served || !engine_set_knows_pool(set, served))
        return 0;
    return err_field(e, "engines",
                     "engines: the pool \"%s\" has the name of the served model, which is the "
                     "policy's: give the pool another one",
                     served);
}

/* Opens the set's engines for trial in each pool. Makes pools that the set is the first to name.
 * Returns -1 if that fails; then everything was undone. */
static int stage_all(struct engine_pool *first, const struct engine_set *set, struct err *e)
{
    int rc = check_served(first, set, e);

    for (size_t i = 0; rc == 0 && i < set->pools.n; i++) {
        if (!find_pool(first, set->pools.at[i]))
            (void)pool_open_beside(first, set->pools.at[i]);
    }
    for (struct engine_pool *p = first; rc == 0 && p; p = p->next) {
        struct engine_set part;

        engine_set_part(set, p->opt.pool, &part);
        rc = replicas_stage(p->replicas, &part, e);
        engine_set_done(&part);
    }
    if (rc)
        engine_pool_untry(first);
    return rc;
}

int pools_set(struct engine_pool *first, const struct engine_set *set, struct err *e)
{
    if (stage_all(first, set, e))
        return -1;
    for (struct engine_pool *p = first; p; p = p->next) {
        struct engine_set part;

        engine_set_part(set, p->opt.pool, &part);
        if (replicas_set(p->replicas, &part, e)) /* all are open already, so nothing can fail */
            log_error(NULL, "an engine cannot be opened", LOG_T("error", e->text));
        engine_set_done(&part);
        p->edition = set->edition;
        p->known = !p->opt.pool || engine_set_knows_pool(set, p->opt.pool);
    }
    return 0;
}

int engine_pool_set(struct engine_pool *p, const struct engine_set *set, struct err *e)
{
    if (pools_set(p, set, e))
        return -1;
    log_info(NULL, "the set of engines has changed", LOG_U("edition", set->edition),
             LOG_U("engines", set->n), LOG_U("pools", set->pools.n + 1));
    for (; p; p = p->next)
        pool_changed(p);
    return 0;
}

/* --- trials --- */

static void put_silent(const struct engine_pool *p, struct buf *silent)
{
    for (size_t i = 0; i < p->replicas->staged.n; i++) {
        const struct replica *r = p->replicas->staged.at[i];

        if (!r->adapter->probe || r->proven)
            continue;
        buf_puts(silent, silent->len > 0 ? ", " : "");
        buf_puts(silent, r->target.name);
    }
}

void pool_tried(struct engine_pool *one)
{
    struct engine_pool *first = one->first;
    struct buf silent = {0};

    if (--first->on_trial > 0)
        return;
    for (const struct engine_pool *p = first; p; p = p->next)
        put_silent(p, &silent);
    first->tried(first->tried_ctx, buf_str(&silent));
    buf_done(&silent);
}

int engine_pool_try(struct engine_pool *p, const struct engine_set *set,
                    void (*tried)(void *ctx, struct str silent), void *ctx, struct err *e)
{
    if (stage_all(p, set, e))
        return -1;
    p->tried = tried;
    p->tried_ctx = ctx;
    p->on_trial = 0;
    for (struct engine_pool *one = p; one; one = one->next) {
        p->on_trial++;
        replicas_try(one->replicas);
    }
    return 0;
}

bool engine_pool_tried(const struct engine_pool *p, const char *text)
{
    for (; p; p = p->next) {
        for (size_t i = 0; i < p->replicas->staged.n; i++) {
            const struct replica *r = p->replicas->staged.at[i];

            if (strcmp(r->text, text) == 0)
                return r->proven || !r->adapter->probe;
        }
    }
    return false;
}

void engine_pool_untry(struct engine_pool *p)
{
    for (; p; p = p->next)
        replicas_unstage(p->replicas);
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
    for (; p; p = p->next) {
        for (size_t i = 0; i < p->replicas->out.n; i++)
            n += p->replicas->out.at[i]->number == number ? p->replicas->out.at[i]->inflight : 0;
    }
    return n;
}

/* Writes facts of the last answers: null before the first answer. */
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

/* Writes the state of the KV cache; null if sessions do not wait for space. */
static void put_kv(const struct replica *r, struct json_out *o)
{
    json_out_key(o, "kv");
    if (r->all->opt->kv_admission == 0) {
        json_out_null(o);
        return;
    }
    json_out_obj(o);
    json_out_member_cstr(o, "state", kv_state_name(r));
    json_out_member_i64(o, "capacity", (int64_t)r->kv.told.capacity);
    json_out_member_i64(o, "limit", (int64_t)kv_limit(r));
    json_out_member_i64(o, "used", (int64_t)r->kv.told.used);
    json_out_member_i64(o, "leased", (int64_t)kv_leased(r));
    json_out_end_obj(o);
}

static const char *state_of(const struct replica *r)
{
    if (r->stage == REPLICA_OUT)
        return "draining";
    if (!r->up)
        return "down";
    return replica_unpaired(r) ? "unpaired" : "up";
}

/* Returns the name like engine_set_name: the only engine of a pool has the pool's name. */
static const char *shown_name(const struct replica *r)
{
    const struct replicas *all = r->all;

    return r->target.pool && !r->target.own && all->n == 1 && all->at[0] == r ? r->target.pool
                                                                              : r->target.name;
}

bool engine_pool_has(const struct engine_pool *p, struct str name, struct buf *known)
{
    for (p = p->first; p; p = p->next) {
        for (size_t i = 0; i < p->replicas->n; i++) {
            const struct replica *r = p->replicas->at[i];
            const char *pool = r->target.pool ? r->target.pool : ENGINE_POOL_POLICY;

            if (str_eq_c(name, shown_name(r)) || str_eq_c(name, pool) || str_eq_c(name, r->text))
                return true;
            buf_printf(known, "%s%.200s", known->len > 0 ? ", " : "", shown_name(r));
        }
    }
    return false;
}

/* Returns the name of the basis of logprobs that its adapter asks for; absent if the engine has no
 * field for that. */
static struct str asked_basis(const struct replica *r)
{
    enum logprob_basis asked = r->adapter->asks_basis;
    struct str none = {0};

    return asked == BASIS_UNKNOWN ? none : str_cstr(logprob_basis_name(asked));
}

static void put_replica(const struct replica *r, struct json_out *out)
{
    json_out_obj(out);
    json_out_member_cstr(out, "name", shown_name(r));
    json_out_member_cstr(out, "pool", r->target.pool ? r->target.pool : ENGINE_POOL_POLICY);
    json_out_member_cstr(out, "kind", r->target.kind);
    json_out_member_cstr(out, "engine", r->text);
    json_out_member_i64(out, "place", r->number);
    json_out_member_cstr(out, "state", state_of(r));
    json_out_member_bool(out, "up", r->up);
    json_out_key(out, "answers"); /* needed because `up` is true even before the first probe */
    json_out_bool(out, replica_serves(r));
    json_out_member_obj(out, "logprobs");
    json_out_member_str(out, "asked", asked_basis(r));
    json_out_member_cstr(out, "given", logprob_basis_name(replica_basis(r)));
    json_out_end_obj(out);
    if (r->adapter->describe)
        r->adapter->describe(r->impl, out);
    json_out_member_str(out, "vision", str_cstr(vision_probe_told(r)));
    json_out_member_i64(out, "inflight", r->inflight);
    json_out_member_i64(out, "queued", r->queued);
    json_out_member_i64(out, "requests", (int64_t)r->requests);
    json_out_member_i64(out, "retries", (int64_t)r->retries);
    json_out_member_i64(out, "errors", (int64_t)r->errors);
    put_answers(r, out);
    put_kv(r, out);
    json_out_end_obj(out);
}

/* Returns the next living replica of all pools, ordered by number. */
static const struct replica *next_replica(const struct engine_pool *first, size_t *at)
{
    const struct replica *found = NULL;
    size_t k = 0, of = 0;

    for (const struct engine_pool *p = first; p; p = p->next, k++) {
        if (at[k] < p->replicas->n && (!found || p->replicas->at[at[k]]->number < found->number)) {
            found = p->replicas->at[at[k]];
            of = k;
        }
    }
    at[of]++;
    return found;
}

void engine_pool_write(const struct engine_pool *p, struct buf *json)
{
    struct json_out o = json_out_to(json);
    const struct replica *r;
    size_t n = 0, *at;

    for (const struct engine_pool *one = p; one; one = one->next)
        n++;
    at = mem_calloc(n, sizeof(*at));
    json_out_arr(&o);
    while ((r = next_replica(p, at)))
        put_replica(r, &o);
    free(at);
    for (; p; p = p->next) {
        for (size_t i = 0; i < p->replicas->out.n; i++)
            put_replica(p->replicas->out.at[i], &o);
    }
    json_out_end_arr(&o);
}
