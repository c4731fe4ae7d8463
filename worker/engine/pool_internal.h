/*
 * struct engine_pool from the inside, for the files that are the pool: engine.c (as a whole),
 * pool.c and pool_answers.c (its calls: pool_call.h), pool_abilities.c, pool_weights.c, pool_set.c,
 * passing.c and version_round.c.
 */
#ifndef RG_ENGINE_POOL_INTERNAL_H
#define RG_ENGINE_POOL_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/os/loop.h"
#include "worker/engine/engine_pool.h"
#include "worker/engine/experts.h"
#include "worker/engine/fair_queue.h"
#include "worker/engine/lora.h"
#include "worker/engine/replicas.h"
#include "worker/engine/session_homes.h"

struct admission;
struct loop;
struct version_round;

struct engine_pool {
    struct loop *loop;
    struct engine_options opt;
    struct arena arena; /* of the options */
    struct replicas replicas;
    uint64_t edition; /* of the set */
    void (*tried)(void *ctx, struct str silent);
    void *tried_ctx;
    struct session_homes homes;
    struct fair_queue queue;
    struct admission *admission; /* NULL: off */
    struct list_head calls;      /* newest first */
    size_t n_calls, running;
    struct loop_task dispatch;
    struct loop_timer look; /* for places that other workers give back */
    enum engine_pause pause;
    void (*drained)(void *ctx);
    void *drained_ctx;
    struct buf version;            /* len 0: none */
    struct version_round *telling; /* engines are told it; or NULL */
    struct lora_book loras;
    struct experts experts;
};

/* Lets waiting calls run, at the end of this turn of the loop. */
void pool_dispatch(struct engine_pool *p);

/* Counts waiting calls where their sessions belong now. */
void pool_count_waiting(struct engine_pool *p);

/* Ends all calls with ERR_DRAINING. */
void pool_fail_all(struct engine_pool *p);

/* What the pool (ctx) has to offer may have changed: waiting calls and the health hook are told. */
void pool_changed(void *ctx);

/* Which new sessions may begin (kv_admission.h): made where the options say so, and ended when no
 * call is held any more; a session has ended, or is complete. */
void admission_open(struct engine_pool *p);
void admission_done(struct engine_pool *p);
void admission_end_session(struct engine_pool *p, struct str session);
void admission_complete_session(struct engine_pool *p, struct str session);

/* Calls forget a replica that is about to be freed; none runs there. */
void pool_forget(void *pool, struct replica *r);

#endif
