/*
 * struct engine_call: one sample on its way through queue, replica and retries; pool.c moves it,
 * pool_answers.c handles the replica's answers.
 */
#ifndef RG_ENGINE_POOL_CALL_H
#define RG_ENGINE_POOL_CALL_H

#include "common/base/arena.h"
#include "common/base/list.h"
#include "common/os/loop.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/fair_queue.h"
#include "worker/text/tokens/span.h"

struct engine_pool;
struct engine_result;
struct err;
struct replica;
struct sampling;
struct splice;
struct ticket;

enum call_state {
    CALL_QUEUED,  /* in the queue */
    CALL_RUNNING, /* at a replica */
    CALL_RESTING, /* between two tries, held, or about to be refused */
};

/* From answer token `start` on the trainer's word for the weights was `version`. */
struct stamp {
    struct str version; /* in the call's arena */
    uint32_t start;
};

struct engine_call {
    struct engine_pool *pool;
    struct list_item in_pool; /* in pool->calls */
    struct fair_item item;
    struct list_item held;  /* in its ticket (kv_admission.h) */
    struct fair_item place; /* among the held ones; it has none when it is about to be refused */
    struct ticket *ticket;  /* while it is held, or NULL */
    bool leased;            /* its session's lease counts it, */
    uint64_t stretch;       /* with so many tokens more */
    enum call_state state;
    struct sampling *sampling; /* req.sampling: its own copy, in the arena */
    struct engine_request req; /* strings are copies in `arena`; values of the caller's arena */
    struct token_vec prompt;   /* with the pieces of a spliced answer; empty: there are none yet */
    size_t n_prompt;           /* without them */
    const struct engine_events *events;
    void *ctx;
    struct replica *replica, *avoid;
    struct replica *home; /* where it is counted while it waits, or NULL */
    void *attempt;

    struct {
        struct replica *replica; /* NULL: it has none */
        struct replica *avoid;
        void *attempt; /* NULL: over */
        struct engine_pairing pair;
        struct str version;  /* version of its weights, in the arena */
        uint32_t given;      /* tokens of the call when it began */
    } half;                  /* the companion attempt at a decode half: halves.c */
    struct loop_timer timer; /* timer of the queue, or until the next try */
    struct splice *splice;   /* in the arena */

    struct {
        struct stamp *at;
        size_t n, cap;
    } stamps;

    /* Versions that engines reported around pieces without versions of their tokens: the first and
     * the last, in the arena; absent: none. */
    struct str heard_first, heard_last;

    uint32_t given; /* tokens sent by deltas */
    bool told;      /* output was sent: a repetition would send it again */
    uint32_t retries, resumes;
    uint32_t fruitless;    /* engine-side aborts in a row that brought no token */
    uint64_t fruitless_us; /* when the first of them came */
    uint32_t anew;         /* times that an engine wanted to be asked differently */
    uint32_t full;         /* replicas that answered 429 and gave way to another one */
    uint64_t lost_us;      /* since when no engine could be reached, 0: the last one could */
    uint64_t asked_us, queued_us, queue_us, first_us;
    struct arena arena;
};

/* Lets the call wait for a replica, or refuses it, soon, when the queue is full. */
void pool_queue(struct engine_call *c);

/* Refuses, soon, a call that is not in the queue: as many answers of its session wait as may. */
void pool_refuse_session(struct engine_call *c);

/* How many tokens each of its answers may have. */
uint64_t pool_answer_tokens(const struct engine_call *c);

/* Ends the call; its owner is notified at once, so not from inside engine_start. */
void pool_fail(struct engine_call *c, const struct err *e);

/* Ends the call with its answer; as pool_fail. */
void pool_delivered(struct engine_call *c, const struct engine_result *r);

/* Takes a running call off its replica; it is queued again after delay_ms (0: at once). */
void pool_again(struct engine_call *c, uint64_t delay_ms);

/* Returns the time that a call may still wait for an engine: all of it while one can be reached. */
uint64_t pool_patience_ms(const struct engine_call *c);

/* The call's attempt is over without an answer, for what happened at that replica: its own, or its
 * companion's. */
void pool_failed_at(struct engine_call *c, struct replica *at, const struct err *e,
                    enum engine_failure how);

/* The pool's callbacks of an attempt; their ctx is the call. */
extern const struct engine_attempt_events pool_answer_events;

/* pool_weights.c: the trainer's word for the weights that the call is sampled with; absent or
 * empty: none. */
struct str pool_told_version(const struct engine_call *c);

/* pool_moves.c: counts and logs a session's move with its reason, since its computed prompt is
 * lost. The call is about to run at r. */
void pool_note_home(struct engine_call *c, const struct replica *r);

/* Notes that the pool's version holds from the call's next token on. */
void pool_stamp(struct engine_call *c);

/* halves.c: SGLang servers may each do one part of a request, prefill or decode. A call runs at a
 * decode half, as at any replica, and beside it, at once, at a prefill half of the same pool: its
 * companion. Both get the same request with the same pairing. The answer is the decode half's; the
 * companion's only says whether it failed. It has a slot of its replica of its own, so that load,
 * metrics and draining count it. */

/* Whether a call that runs at r needs a companion. */
bool halves_wanted(const struct engine_call *c, const struct replica *r);

/* Takes a slot of a prefill half for the call and a pairing of its own. False: none has room. */
bool halves_reserve(struct engine_call *c);

/* The call has started at its replica: so does its companion, if it has one. */
void halves_start(struct engine_call *c);

/* The call leaves its replica: what still runs of its companion is given up, the slot given back.
 */
void halves_end(struct engine_call *c);

/* Logs that the two halves of an answer were computed under different weights. */
void halves_compare(struct engine_call *c, const struct engine_result *r);

/* The replica is about to be freed; nothing runs there. */
void halves_forget(struct engine_call *c, const struct replica *r);

#endif
