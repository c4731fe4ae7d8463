/* The companions of calls that run at decode halves (pool_call.h). A companion is an ordinary
 * attempt whose answer is dropped. If it fails before the decode half has returned a token, the
 * call's own attempt is cancelled, too. The call handles the failure like its own replica's, and
 * both are tried again, with a different room. When the decode half returns tokens, it has
 * everything that it needs from the prefill half, and a failure there changes nothing. */

#include "common/base/log.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/pool_call.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"

bool halves_wanted(const struct engine_call *c, const struct replica *r)
{
    return replicas_split(c->pool->replicas) && replica_half(r) == HALF_DECODE;
}

/* Draws 63 bits, because the servers use a signed number; 0: the kernel gives no randomness. */
static uint64_t draw_room_id(struct engine_pool *p)
{
    struct err e = {0};
    uint64_t room = 0;

    if (!p->ids)
        p->ids = ids_new(&e);
    if (p->ids)
        ids_random(p->ids, &room, sizeof(room));
    return room >> 1;
}

bool halves_reserve(struct engine_call *c)
{
    struct replica_wish w = {
        .session_id = c->req.session_id, .avoid = c->half.avoid, .request = &c->req};
    struct replica *r = replicas_prefill(c->pool->replicas, &w);
    uint64_t room = draw_room_id(c->pool);

    if (!r || room == 0 || !replica_begin(r))
        return false;
    c->half.replica = r;
    c->half.version = (struct str){0};
    c->half.given = c->given;
    c->half.pair = r->adapter->pairing(r->impl, &c->req);
    c->half.pair.room = room;
    c->req.pair = &c->half.pair;
    return true;
}

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct engine_call *c = ctx;

    (void)d;
    replica_alive(c->half.replica);
}

/* Reports whether the decode half has begun, which it does when it has the prompt's cache. */
static bool has_begun(const struct engine_call *c)
{
    return c->given > c->half.given;
}

static void abandon_pair(struct engine_call *c, const struct err *e, enum engine_failure how)
{
    struct replica *r = c->half.replica;

    c->half.avoid = r;
    log_warn(NULL, "a prefill half failed: its call is given up at the decode half",
             LOG_T("engine", r->target.name), LOG_T("why", e->text));
    c->replica->adapter->cancel(c->attempt);
    pool_failed_at(c, r, e, how);
}

static void on_done(void *ctx, const struct engine_result *r)
{
    struct engine_call *c = ctx;
    struct err e = {0};

    c->half.attempt = NULL;
    if (r->finish == ENGINE_ABORTED && !has_begun(c)) {
        (void)err_set(&e, ERR_ENGINE_UNAVAILABLE, "the prefill half aborted its part");
        abandon_pair(c, &e, ENGINE_SAID_5XX);
        return;
    }
    if (r->n_versions > 0)
        c->half.version = arena_str(&c->arena, r->versions[r->n_versions - 1].version);
    replica_answered(c->half.replica, r);
}

/* Ignores the answer of the prefill half, which has done its work; its one token is not checked. */
static void on_failed(void *ctx, const struct err *e, enum engine_failure how)
{
    struct engine_call *c = ctx;
    struct replica *r = c->half.replica;

    c->half.attempt = NULL;
    if (has_begun(c) || e->kind == ERR_ENGINE_INVALID)
        log_info(NULL, "the answer of a prefill half is not understood, or broke off: not needed",
                 LOG_T("engine", r->target.name), LOG_T("why", e->text));
    else
        abandon_pair(c, e, how);
}

static const struct engine_attempt_events events = {on_delta, on_done, on_failed};

void halves_start(struct engine_call *c)
{
    struct replica *r = c->half.replica;

    if (r)
        c->half.attempt = r->adapter->start(r->impl, &c->req, &events, c);
}

void halves_end(struct engine_call *c)
{
    struct replica *r = c->half.replica;

    if (!r)
        return;
    if (c->half.attempt)
        r->adapter->cancel(c->half.attempt);
    c->half.attempt = NULL;
    c->half.replica = NULL;
    c->req.pair = NULL;
    replica_end(r);
}

void halves_compare(struct engine_call *c, const struct engine_result *r)
{
    struct str decode;

    if (c->half.version.len == 0 || r->n_versions == 0)
        return;
    decode = r->versions[0].version;
    if (decode.len == 0 || str_eq(decode, c->half.version))
        return;
    metrics_count(c->pool->opt.metrics, METRIC_mixed_halves, 1);
    log_warn(NULL, "the halves of an answer have different weights",
             LOG_T("engine", c->replica->target.name), LOG_S("decode", decode),
             LOG_S("prefill", c->half.version));
}

void halves_forget(struct engine_call *c, const struct replica *r)
{
    if (c->half.avoid == r)
        c->half.avoid = NULL;
}
