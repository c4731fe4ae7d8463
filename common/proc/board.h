/*
 * struct board: what the processes of one gateway know of each other, in shared memory made before
 * the first fork. One slot per process: the supervisor, then routers, then workers, then the
 * dispatcher. Slot numbers
 * are the same as those of the metric pages.
 * Writers: the supervisor writes states, pids and adoption; a process writes its own heartbeat,
 * engines_up and last words; workers that obey an order write `paused`. Everybody reads. Every
 * field stands alone (relaxed atomics).
 *
 * A worker is named by its index: worker_base + place. Indexes outside, and those that were
 * retired, resolve through the adoption table (board_resolve) or belong to nobody.
 */
#ifndef RG_PROC_BOARD_H
#define RG_PROC_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run_board;

enum {
    BOARD_ROUTERS_MAX = 64,
    BOARD_WORKERS_MAX = 256,
    BOARD_SUPERVISOR = 0,
    BOARD_ROUTER0 = 1,
    BOARD_WORKER0 = BOARD_ROUTER0 + BOARD_ROUTERS_MAX,
    BOARD_DISPATCHER = BOARD_WORKER0 + BOARD_WORKERS_MAX,
    BOARD_SLOTS = BOARD_DISPATCHER + 1,
    BOARD_WORDS_MAX = 256,
    BOARD_ENGINES_MAX = 32, /* further replicas are not counted across workers */
    BOARD_WORKS_MAX = 16,   /* what further threads of a worker work at is not noted */
    BOARD_BASIS_ASKED = 16, /* the first bit of engines_basis that tells of what is asked for */
    BOARD_QUARANTINE_MAX = 64,
    BOARD_QUARANTINE_MS = 3600 * 1000, /* who was blamed wrongly is not so for ever */
};

enum board_state {
    BOARD_EMPTY,    /* no such process */
    BOARD_STARTING, /* forked (or about to be, after a crash), not yet serving */
    BOARD_READY,    /* serves */
    BOARD_RETIRING, /* scaled away: finishes what runs, gets nothing new */
};

struct board_slot {
    _Atomic uint32_t state; /* enum board_state */
    _Atomic int32_t pid;
    _Atomic uint64_t beat_ms;       /* monotonic time of the last sign of life; 0: none yet */
    _Atomic uint32_t engines_up;    /* worker: engine replicas it sees healthy */
    _Atomic uint32_t engines_drift; /* worker: those that make other tokens of images */
    _Atomic uint32_t engines_basis; /* worker: a bit for each basis of logprobs that they give, and
                                     * from BOARD_BASIS_ASKED on that they are asked for */
    _Atomic uint32_t engines_lack;  /* worker: a bit for each line of engine_lacks.def */
    _Atomic uint32_t adopter; /* worker: 1 + place of the worker that has its sessions; 0: none */
    _Atomic uint32_t refused_call; /* 1 + the last system call that the sandbox refused; 0: none */
    _Atomic uint32_t paused;       /* worker: 1 while it holds its model calls */
    _Atomic uint32_t waiting;      /* worker: calls running or queued, for `rollgate top` */
    /* worker: its requests at each engine replica; the limit is one for all workers */
    _Atomic uint32_t engine_inflight[BOARD_ENGINES_MAX];
    /* worker, with --kv-admission: tokens that its sessions hold of each replica's KV cache; how
     * many new sessions it holds back, since when the oldest (clock_us; 0: none); replicas that do
     * not tell of their cache */
    _Atomic uint64_t kv_leased[BOARD_ENGINES_MAX];
    _Atomic uint64_t kv_held_since_us;
    _Atomic uint32_t kv_held, kv_untold;
    /* worker: hashes of the request bodies that its threads work at, the loop's first; 0: none */
    _Atomic uint64_t works[BOARD_WORKS_MAX];
    char last_words[BOARD_WORDS_MAX]; /* text of a failed CHECK */
    _Atomic uint64_t died_ms; /* wall clock: when its last process died, which cut calls; 0: none */
};

struct board {
    char instance[33];           /* this gateway's id: 32 hex */
    uint32_t worker_base;        /* index of worker place 0 */
    _Atomic uint32_t draining;   /* the whole service is stopping */
    _Atomic uint32_t paused;     /* the last order was a pause: workers that start hold, too */
    _Atomic uint32_t routers;    /* how many there should be */
    _Atomic uint32_t workers;    /* how many there should be */
    _Atomic uint32_t generation; /* counts reloads */
    _Atomic uint32_t counting;   /* workers in places before it may count requests at engines: what
                                  * stands behind need not be looked at, each time a call begins */
    /* Hashes of request bodies that nobody works at for a while; the oldest gives way. */
    _Atomic uint64_t quarantine[BOARD_QUARANTINE_MAX];
    _Atomic uint64_t quarantine_until_ms[BOARD_QUARANTINE_MAX]; /* clock_ms */
    _Atomic uint32_t quarantined;                               /* how many there were, ever */
    _Atomic uint32_t
        unreached; /* 1 + place of a worker that the dispatcher cannot reach; 0: none */
    _Atomic uint64_t
        started_ms;        /* wall clock: when the gateway began; 0: it took an upgrade over */
    struct run_board *run; /* mapped by board_new, at the same address in all processes */
    uint64_t hash_seed;    /* of those hashes; no client knows it; board_new draws it */
    struct board_slot slots[BOARD_SLOTS];
};

/* Maps a zeroed board; aborts without memory. board_free unmaps. */
struct board *board_new(void);
void board_free(struct board *b);

/* Whether the slot's process serves. */
static inline bool board_ready(const struct board *b, unsigned slot)
{
    return atomic_load_explicit(&b->slots[slot].state, memory_order_relaxed) == BOARD_READY;
}

/* The worker in that slot will count its requests at engines. */
void board_count_engines(struct board *b, unsigned slot);

/* Requests of all workers at an engine replica (its place in the configuration). */
uint32_t board_engine_inflight(const struct board *b, unsigned engine);

/* Tokens that sessions of all workers hold of a replica's KV cache. */
uint64_t board_kv_leased(const struct board *b, unsigned engine);

/* New sessions that all workers hold back for want of room in a KV cache. */
uint32_t board_kv_held(const struct board *b);

/* Whether another worker than that of the slot holds a session back for longer than since_us. */
bool board_kv_older(const struct board *b, unsigned slot, uint64_t since_us);

/* Whether a worker sees a replica that does not tell of its KV cache. */
bool board_kv_untold(const struct board *b);

/* A worker that is no more, or not yet, has none, holds nothing, and is not paused. */
void board_forget_engines(struct board *b, unsigned slot);

/* How many workers serve. (After scaling their places need not be 0..n-1.) */
unsigned board_workers_ready(const struct board *b);

/* How many workers hold their model calls (POST /admin/pause). */
unsigned board_workers_paused(const struct board *b);

/* No worker works at a body of this hash for BOARD_QUARANTINE_MS from now_ms (clock_ms) on. Any
 * process may say so. 0 is the hash of no body, and ignored. */
void board_quarantine(struct board *b, uint64_t body_hash, uint64_t now_ms);
bool board_is_quarantined(const struct board *b, uint64_t body_hash, uint64_t now_ms);

/* A worker that is no more, or not yet, works at nothing. */
void board_forget_works(struct board *b, unsigned slot);

/* Whether any worker sees an engine that answers. */
bool board_engine_answers(const struct board *b);

/* The most engines that a worker sees make other tokens of images than they are sent. */
uint32_t board_engines_drift(const struct board *b);

/* Which distributions the engines' logprobs come from, in the order of enum logprob_basis (worker).
 * Returns the name of number i, NULL behind the last, and whether some worker's engine gives it, or
 * (asked) is asked for it. */
const char *board_engines_basis(const struct board *b, unsigned i, bool asked, bool *ret_some);

/* Returns the name of number i of engine_lacks.def, NULL after the last, and whether an engine of
 * some worker lacks it. */
const char *board_engines_lack(const struct board *b, unsigned i, bool *ret_some);

/* The place (0..) of the worker that owns sessions of `index`, adoption followed, or -1 when the
 * index belongs to nobody here. The worker may be starting. */
int board_resolve(const struct board *b, uint32_t index);

/* /ready: 0 when every router and worker serves and a worker sees an engine, else -1 and a short
 * reason. */
int board_check_ready(const struct board *b, const char **ret_reason);

#endif
