/*
 * struct engine_pool from the inside, for the files that are the pool: engine.c (as a whole),
 * pool.c, pool_moves.c and pool_answers.c (its calls: pool_call.h), pool_abilities.c,
 * pool_weights.c, pool_set.c,
 * passing.c and version_round.c.
 */
#ifndef RG_ENGINE_POOL_INTERNAL_H
#define RG_ENGINE_POOL_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/os/loop.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/fair_queue.h"

struct admission;
struct engine_call;
struct loop;
struct ids;
struct lora_book;
struct replica;
struct replicas;
struct session_homes;
struct version_round;

struct engine_pool {
    struct loop *loop;
    struct engine_options opt;
    struct arena arena;        /* memory of the options */
    struct replicas *replicas; /* own */
    struct engine_pool *next;  /* another pool; the policy's is the first */
    struct engine_pool *first;
    bool known;        /* some set had it; the policy's always is */
    size_t on_trial;   /* number of the first pools, whose trial is not over */
    size_t queue_told; /* to the metrics */
    uint64_t edition;  /* edition of the set */
    void (*tried)(void *ctx, struct str silent);
    void *tried_ctx;
    struct session_homes *homes; /* own: pool_moves.c */
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
    struct version_round *telling; /* round that sets it on engines; or NULL */
    struct lora_book *loras;       /* own: pool_weights.c */
    struct ids *ids;               /* own: of rooms (halves.c); NULL: none was needed */
    size_t expert_row_bytes;       /* bytes of a row of routed experts (experts.h); 0: unknown; */
    size_t indexer_row_bytes;      /* bytes of a row of the indexer's top-k */
};

/* A pool beside the first: known only once a set has it. */
struct engine_pool *pool_open_beside(struct engine_pool *first, const char *name);

/* The set becomes that of the first pool and all beside it. -1: nothing has changed. */
int pools_set(struct engine_pool *first, const struct engine_set *set, struct err *e);

/* Lets waiting calls run, at the end of this turn of the loop. */
void pool_dispatch(struct engine_pool *p);

/* Counts waiting calls where their sessions belong now. */
void pool_count_waiting(struct engine_pool *p);

/* Ends all calls with ERR_DRAINING. */
void pool_fail_all(struct engine_pool *p);

/* Notifies waiting calls and the health hook that the pool (ctx) may have changed. */
void pool_changed(void *ctx);

/* Admission of new sessions (kv_admission.h): made if the options ask for it, and ended when no
 * call is held; a session has ended, or is complete. */
void admission_open(struct engine_pool *p);
void admission_done(struct engine_pool *p);
void admission_end_session(struct engine_pool *p, struct str session);
void admission_complete_session(struct engine_pool *p, struct str session);

/* Records of the replicas of sessions' calls (pool_moves.c), and of the trainer's versions
 * (pool_weights.c): made with the pool, ended with it. */
void pool_moves_init(struct engine_pool *p);
void pool_moves_done(struct engine_pool *p);
void pool_weights_init(struct engine_pool *p);
void pool_weights_done(struct engine_pool *p);

/* Calls forget a replica that is about to be freed; none runs there. */
void pool_forget(void *pool, struct replica *r);

#endif
