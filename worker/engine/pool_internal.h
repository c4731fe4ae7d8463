/* struct engine_pool from the inside: pool.c (calls) and engine.c (the pool as a whole). */
#ifndef RG_ENGINE_POOL_INTERNAL_H
#define RG_ENGINE_POOL_INTERNAL_H

#include "common/base/list.h"
#include "common/os/loop.h"
#include "worker/engine/experts.h"
#include "worker/engine/fair_queue.h"
#include "worker/engine/lora.h"
#include "worker/engine/replicas.h"
#include "worker/engine/session_homes.h"
#include "worker/engine/splice.h"

enum call_state {
    CALL_QUEUED,  /* in the queue */
    CALL_RUNNING, /* at a replica */
    CALL_RESTING, /* between two tries, or about to be refused */
};

/* From answer token `start` on the trainer's word for the weights was `version`. */
struct stamp {
    struct str version; /* in the call's arena */
    uint32_t start;
};

struct engine_call {
    struct engine_pool *pool;
    struct list_item in_pool; /* of pool->calls */
    struct fair_item item;
    enum call_state state;
    struct engine_request req; /* strings are copies in `arena`; values of the caller's arena */
    struct token_vec prompt;   /* with the pieces of a spliced answer; empty: there are none yet */
    size_t n_prompt;           /* without them */
    const struct engine_events *events;
    void *ctx;
    struct replica *replica, *avoid;
    struct replica *home; /* where it is counted while it waits, or NULL */
    void *attempt;
    struct loop_timer timer; /* of the queue, or until the next try */
    struct splice splice;

    struct {
        struct stamp *at;
        size_t n, cap;
    } stamps;

    uint32_t given; /* tokens told by deltas */
    bool told;      /* something was: a repetition would tell it again */
    uint32_t retries, resumes;
    uint32_t fruitless;    /* engine-side aborts in a row that brought no token */
    uint64_t fruitless_us; /* when the first of them came */
    uint32_t anew;         /* times that an engine wanted to be asked differently */
    uint64_t lost_us;      /* since when no engine could be reached, 0: the last one could */
    uint64_t asked_us, queued_us, queue_us, first_us;
    struct arena arena;
};

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
    struct list_head calls; /* newest first */
    size_t n_calls, running;
    struct loop_task dispatch;
    struct loop_timer look; /* for places that other workers give back */
    enum engine_pause pause;
    void (*drained)(void *ctx);
    void *drained_ctx;
    struct buf version; /* len 0: none */
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

/* Calls forget a replica that is about to be freed; none runs there. */
void pool_forget(void *pool, struct replica *r);

/* Notes that the pool's version holds from the call's next token on. */
void pool_stamp(struct engine_call *c);

#endif
