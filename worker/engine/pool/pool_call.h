/*
 * struct engine_call: one sample in queue, replica and retries. pool.c moves it; pool_answers.c
 * handles the replica's answers.
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
struct replica;
struct sampling;
struct splice;
struct ticket;

enum call_state {
    CALL_QUEUED,  /* in the queue */
    CALL_RUNNING, /* running at a replica */
    CALL_RESTING, /* between two tries, held, or about to be refused */
};

/* The trainer's version was `version` from answer token `start` on. */
struct stamp {
    struct str version; /* in the memory of the call's arena */
    uint32_t start;
};

struct engine_call {
    struct engine_pool *pool;
    struct list_item in_pool; /* in pool->calls */
    struct fair_item item;
    struct list_item held; /* in its ticket's calls (kv_admission.h) */
    /* place among the held calls; none if the call is about to be refused */
    struct fair_item place;
    struct ticket *ticket; /* ticket while it is held, or NULL */
    bool leased;           /* the call counts in its session's lease */
    uint64_t stretch;      /* additional tokens of the lease for this call */
    enum call_state state;
    struct sampling *sampling; /* a copy of its own of req.sampling, in the arena */
    struct engine_request req; /* strings are copies in `arena`; values are in the caller's arena */
    /* prompt with the pieces of a spliced answer; empty: there are no pieces yet */
    struct token_vec prompt;
    struct token_span spliced; /* its ids, as the only part of req.prompt */
    size_t n_prompt;           /* length of the prompt without pieces */
    const struct engine_events *events;
    void *ctx;
    struct replica *replica, *avoid;
    struct replica *home; /* replica at which it is counted while it waits, or NULL */
    void *attempt;

    struct {
        struct replica *replica; /* NULL: the call has no companion */
        struct replica *avoid;
        void *attempt; /* NULL: the companion's attempt has ended */
        struct engine_pairing pair;
        struct str version;  /* version of the companion's weights, in the arena */
        uint32_t given;      /* tokens of the call when the companion began */
    } half;                  /* companion attempt of a call at a decode half (halves.c) */
    struct loop_timer timer; /* timer of the queue, or of the next try */
    struct splice *splice;   /* joined pieces, in the arena; or NULL */

    struct {
        struct stamp *at;
        size_t n, cap;
    } stamps;

    /* First and last version that engines reported around pieces without versions of their own
     * tokens, in the arena; absent: none. */
    struct str heard_first, heard_last;

    uint32_t given; /* number of tokens sent by deltas */
    bool has_sent;  /* output was sent, which a repetition would send again */
    uint32_t retries, resumes;
    uint32_t fruitless;    /* number of engine-side aborts in a row that brought no token */
    uint64_t fruitless_us; /* time of the first of them */
    uint32_t anew;         /* how often an engine wanted a different request */
    /* number of replicas that answered 429 so that the call went to others */
    uint32_t full;
    uint64_t lost_us; /* since when no engine could be reached; 0: the last one could be */
    uint64_t asked_us, queued_us, queue_us;
    struct arena arena;
};

/* Makes the call wait for a replica. If the queue is full, refuses it soon. */
void pool_queue(struct engine_call *c);

/* Refuses, soon, a call that is not in the queue, because as many answers of its session wait as
 * may. */
void pool_refuse_session(struct engine_call *c);

/* Returns how many tokens each of its answers may have. */
uint64_t pool_answer_tokens(const struct engine_call *c);

/* Ends the call with an error. Its owner is notified at once, so this must not be called from
 * inside engine_start. */
void pool_fail(struct engine_call *c, const struct err *e);

/* Ends the call with its answer. Otherwise like pool_fail. */
void pool_delivered(struct engine_call *c, const struct engine_result *r);

/* Removes a running call from its replica. It is queued again after delay_ms (0: at once). */
void pool_again(struct engine_call *c, uint64_t delay_ms);

/* Returns how long a call may still wait for an engine: the full time while one can be reached. */
uint64_t pool_patience_ms(const struct engine_call *c);

/* Ends the call's attempt without an answer, because of an event at that replica: its own, or its
 * companion's. */
void pool_failed_at(struct engine_call *c, struct replica *at, const struct err *e,
                    enum engine_failure how);

/* The pool's callbacks for an attempt, whose ctx is the call. */
extern const struct engine_attempt_events pool_answer_events;

/* pool_weights.c: returns the trainer's version of the weights with which the call is sampled;
 * absent or empty: none. */
struct str pool_told_version(const struct engine_call *c);

/* pool_moves.c: counts and logs a session's move with its reason, because its computed prompt is
 * lost. The call is about to run at r. */
void pool_note_home(struct engine_call *c, const struct replica *r);

/* Records that the pool's version applies from the call's next token on. */
void pool_stamp(struct engine_call *c);

/* halves.c: SGLang servers may each compute one half of a request, prefill or decode. A call runs
 * at a decode half, like at any replica, and at the same time at a prefill half of the same pool:
 * its companion. Both get the same request with the same pairing. The answer is the decode half's.
 * The companion's answer only shows whether it failed. It has a slot of its replica, so that load,
 * metrics and draining count it. */

/* Reports whether a call that runs at r needs a companion. */
bool halves_wanted(const struct engine_call *c, const struct replica *r);

/* Takes a slot of a prefill half for the call, and makes a pairing. Returns false if none has a
 * free slot. */
bool halves_reserve(struct engine_call *c);

/* Starts the companion, if the call has one. The call has just started at its replica. */
void halves_start(struct engine_call *c);

/* Ends the companion, because the call leaves its replica: cancels it and releases its slot. */
void halves_end(struct engine_call *c);

/* Logs that the two halves of an answer were computed under different weights. */
void halves_compare(struct engine_call *c, const struct engine_result *r);

/* Forgets a replica that is about to be freed; nothing runs there. */
void halves_forget(struct engine_call *c, const struct replica *r);

#endif
