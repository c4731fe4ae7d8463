/*
 * struct engine_pool from the inside, for the files that are the pool: engine.c (as a whole),
 * pool.c, pool_moves.c and pool_answers.c (its calls: pool_call.h), pool_abilities.c,
 * pool_weights.c, pool_set.c, passing.c and version_round.c.
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
    struct replicas *replicas; /* owned */
    struct engine_pool *next;  /* next pool of the list, whose first is the policy's */
    struct engine_pool *first;
    bool known; /* a set had the pool before; always true for the policy's */
    /* number of the new pools at the front of the list, whose trial is not over */
    size_t on_trial;
    size_t queue_told; /* queue length that was last published in the metrics */
    uint64_t edition;  /* edition of the set */
    void (*tried)(void *ctx, struct str silent);
    void *tried_ctx;
    struct session_homes *homes; /* owned (pool_moves.c) */
    struct fair_queue queue;
    struct admission *admission; /* NULL: admission is off */
    struct list_head calls;      /* calls, the newest first */
    size_t n_calls, running;
    struct loop_task dispatch;
    struct loop_timer look; /* checks for slots that other workers have released */
    enum engine_pause pause;
    void (*drained)(void *ctx);
    void *drained_ctx;
    struct buf version;            /* the trainer's version; len 0: none */
    struct version_round *telling; /* round that sets the version on engines; or NULL */
    struct lora_book *loras;       /* owned (pool_weights.c) */
    /* owned; source of rooms (halves.c); NULL: none was needed so far */
    struct ids *ids;
    size_t expert_row_bytes;  /* bytes of a row of routed experts (experts.h); 0: unknown */
    size_t indexer_row_bytes; /* bytes of a row of the indexer's top-k */
};

/* Opens a pool in addition to the first. It counts as known only when a set has it. */
struct engine_pool *pool_open_beside(struct engine_pool *first, const char *name);

/* Makes this the set of the first pool and of all others. Returns -1 if it fails; then nothing has
 * changed. */
int pools_set(struct engine_pool *first, const struct engine_set *set, struct err *e);

/* Starts waiting calls at the end of this loop iteration. */
void pool_dispatch(struct engine_pool *p);

/* Counts waiting calls at the replicas to which their sessions belong now. */
void pool_count_waiting(struct engine_pool *p);

/* Ends all calls with ERR_DRAINING. */
void pool_fail_all(struct engine_pool *p);

/* Admission of new sessions (kv_admission.h). admission_open makes it if the options ask for it.
 * The other functions end it when no call is held, and report that a session has ended or is
 * complete. */
void admission_open(struct engine_pool *p);
void admission_done(struct engine_pool *p);
void admission_end_session(struct engine_pool *p, struct str session);
void admission_complete_session(struct engine_pool *p, struct str session);

/* Make and free the records of the replicas of sessions' calls (pool_moves.c), and of the trainer's
 * versions (pool_weights.c), together with the pool. */
void pool_moves_init(struct engine_pool *p);
void pool_moves_done(struct engine_pool *p);
void pool_weights_init(struct engine_pool *p);
void pool_weights_done(struct engine_pool *p);

#endif
