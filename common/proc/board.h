/*
 * struct board: what the processes of one gateway know of each other, in shared memory made before
 * the first fork. One slot per process: the supervisor, then routers, then workers, then the
 * dispatcher and the keeper. Slot numbers are the same as those of the metric pages. Writers: the
 * supervisor writes states, pids and adoption. A process writes its own heartbeat, engines_up and
 * last words. A worker that obeys an order writes `paused`. Every process reads. Fields are
 * independent of each other (relaxed atomics).
 *
 * A worker is named by its index: worker_base + place. In a fleet a place may serve a different
 * index, of a lost node (board_index). Other indexes, and those of retired workers, resolve through
 * the adoption table (board_resolve) or have no worker.
 */
#ifndef RG_PROC_BOARD_H
#define RG_PROC_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct run_board;

enum {
    BOARD_ROUTERS_MAX = 64,
    BOARD_WORKERS_MAX = 256,
    BOARD_SUPERVISOR = 0,
    BOARD_ROUTER0 = 1,
    BOARD_WORKER0 = BOARD_ROUTER0 + BOARD_ROUTERS_MAX,
    BOARD_DISPATCHER = BOARD_WORKER0 + BOARD_WORKERS_MAX,
    BOARD_KEEPER = BOARD_DISPATCHER + 1, /* with --fleet */
    BOARD_SLOTS = BOARD_KEEPER + 1,
    BOARD_WORDS_MAX = 256,
    BOARD_ENGINES_MAX = 32, /* further replicas are not counted across workers */
    BOARD_WORKS_MAX = 16,   /* what further threads of a worker work at is not recorded */
    BOARD_BASIS_ASKED = 16, /* first bit of engines_basis that is about requested bases */
    BOARD_QUARANTINE_MAX = 64,
    /* time after which a quarantine ends, because the blame may have been wrong */
    BOARD_QUARANTINE_MS = 3600 * 1000,
};

enum board_state {
    BOARD_EMPTY,    /* no such process */
    BOARD_STARTING, /* forked (or about to be, after a crash), not yet serving */
    BOARD_READY,    /* serves */
    BOARD_RETIRING, /* removed by scaling: finishes what runs, gets nothing new */
};

struct board_slot {
    _Atomic uint32_t state; /* an enum board_state */
    _Atomic int32_t pid;
    _Atomic uint64_t beat_ms;    /* monotonic time of the last sign of life; 0: none yet */
    _Atomic uint32_t engines_up; /* worker: engine replicas it sees healthy */
    /* worker: engine replicas that make different tokens of images than they are sent */
    _Atomic uint32_t engines_drift;
    /* worker: one bit for each basis of logprobs that its engines return; from BOARD_BASIS_ASKED
     * on, for each that they are asked for */
    _Atomic uint32_t engines_basis;
    _Atomic uint32_t engines_lack; /* worker: a bit for each line of engine_lacks.def */
    /* worker: 1 + place of the worker that adopted its sessions; 0: none */
    _Atomic uint32_t adopter;
    _Atomic uint32_t index; /* worker: 1 + the index that it serves; 0: worker_base + place */
    _Atomic uint32_t came;  /* worker: 1 if its index came from another node of the fleet */
    _Atomic uint32_t refused_call; /* 1 + the last system call that the sandbox refused; 0: none */
    _Atomic uint32_t paused;       /* worker: 1 while it is paused, so that model calls wait */
    _Atomic uint32_t full;         /* worker: 1 while its disk, sinks or tokens refuse sessions */
    /* worker: 1 + the edition of the fleet's orders that it obeys; 0: it has read none */
    _Atomic uint64_t orders;
    _Atomic uint32_t waiting; /* worker: calls running or queued, for `rollgate top` */
    /* worker: its pending requests at each engine replica; the limit is one for all workers */
    _Atomic uint32_t engine_inflight[BOARD_ENGINES_MAX];
    /* worker, with --kv-admission: tokens that its sessions hold in each replica's KV cache; number
     * of new sessions that it delays, and since when the oldest waits (clock_us; 0: none); replicas
     * that do not report their cache */
    _Atomic uint64_t kv_leased[BOARD_ENGINES_MAX];
    _Atomic uint64_t kv_held_since_us;
    _Atomic uint32_t kv_held, kv_untold;
    /* worker: hashes of the request bodies that its threads process, the loop's first; 0: none */
    _Atomic uint64_t works[BOARD_WORKS_MAX];
    char last_words[BOARD_WORDS_MAX]; /* text of a failed CHECK */
    /* wall clock: when the slot's last process died, which aborted calls; 0: never */
    _Atomic uint64_t died_ms;
};

struct board {
    char instance[33];         /* this gateway's id: 32 hex */
    uint32_t worker_base;      /* index of worker place 0 */
    _Atomic uint32_t draining; /* 1: the whole service is stopping */
    _Atomic uint32_t failed;   /* 1: because its start failed: some requests wait in vain */
    /* 1: the node gives its places to the others of its fleet, and ends then. A worker may set it
     */
    _Atomic uint32_t leaving;
    /* 1: the last order was a pause, so that workers that start are paused, too */
    _Atomic uint32_t paused;
    /* edition of the fleet's orders that are in the state folder */
    _Atomic uint64_t orders;
    _Atomic uint32_t routers;    /* configured number of routers */
    _Atomic uint32_t workers;    /* configured number of workers */
    _Atomic uint32_t generation; /* number of reloads */
    /* number of worker places that may count requests at engines; places after these are not read
     * when a call begins */
    _Atomic uint32_t counting;
    /* Hashes of request bodies that no worker may process for a while; a new hash replaces the
     * oldest. */
    _Atomic uint64_t quarantine[BOARD_QUARANTINE_MAX];
    /* clock_ms at which each quarantine ends */
    _Atomic uint64_t quarantine_until_ms[BOARD_QUARANTINE_MAX];
    /* number of quarantines since the start */
    _Atomic uint32_t quarantined;
    _Atomic uint32_t
        unreached; /* 1 + place of a worker that the dispatcher cannot reach; 0: none */
    _Atomic uint64_t
        started_ms; /* wall clock: when the gateway began; 0: it continues after an upgrade */
    struct run_board *run; /* mapped by board_new, at the same address in all processes */
    uint64_t hash_seed;    /* secret seed of those hashes; board_new draws it */
    struct board_slot slots[BOARD_SLOTS];
};

/* Maps a zeroed board. board_free unmaps it. Aborts if there is no memory. */
struct board *board_new(void);
void board_free(struct board *b);

/* Reports whether the slot's process serves. */
static inline bool board_ready(const struct board *b, unsigned slot)
{
    return atomic_load_explicit(&b->slots[slot].state, memory_order_relaxed) == BOARD_READY;
}

/* Marks that the worker in the slot will count its requests at engines. */
void board_count_engines(struct board *b, unsigned slot);

/* Returns the pending requests of all workers at an engine replica (its place in the
 * configuration). */
uint32_t board_engine_inflight(const struct board *b, unsigned engine);

/* Returns the tokens that sessions of all workers hold in a replica's KV cache. */
uint64_t board_kv_leased(const struct board *b, unsigned engine);

/* Returns the number of new sessions that all workers delay because a KV cache has no space. */
uint32_t board_kv_held(const struct board *b);

/* Reports whether a worker in a different slot has delayed a session since before since_us. */
bool board_kv_older(const struct board *b, unsigned slot, uint64_t since_us);

/* Reports whether a worker has a replica that does not report its KV cache. */
bool board_kv_untold(const struct board *b);

/* Resets the engine figures of the slot, whose worker has ended or not begun: no engines, nothing
 * held, not paused, not full, no orders read. */
void board_forget_engines(struct board *b, unsigned slot);

/* Returns the number of workers that serve indexes of this node's block. After scaling their places
 * need not be 0..n-1. */
unsigned board_workers_ready(const struct board *b);

/* Returns the number of workers that are paused (POST /admin/pause). */
unsigned board_workers_paused(const struct board *b);

/* Returns the number of workers of this node's block that take no new sessions. */
unsigned board_workers_full(const struct board *b);

/* Returns 1 + the edition of the fleet's orders that all serving workers obey. Returns 0 if there
 * is no such worker, or one has read no orders. */
uint64_t board_orders(const struct board *b);

/* Quarantines the body hash: no worker processes such a body for BOARD_QUARANTINE_MS from now_ms
 * (clock_ms). Any process may call this. 0 is the hash of no body, and is ignored. */
void board_quarantine(struct board *b, uint64_t body_hash, uint64_t now_ms);
bool board_is_quarantined(const struct board *b, uint64_t body_hash, uint64_t now_ms);

/* Clears the hashes of the slot, whose worker has ended or not begun. */
void board_forget_works(struct board *b, unsigned slot);

/* Reports whether any worker has an engine that answers. */
bool board_engine_answers(const struct board *b);

/* Returns the largest number of engines of one worker that make different tokens of images than
 * they are sent. */
uint32_t board_engines_drift(const struct board *b);

/* Returns the name of basis number i of the engines' logprobs, in the order of enum logprob_basis
 * (worker); NULL after the last. *ret_some: some worker's engine returns it or, with `asked`, is
 * asked for it. */
const char *board_engines_basis(const struct board *b, unsigned i, bool asked, bool *ret_some);

/* Returns the name of number i of engine_lacks.def, NULL after the last. *ret_some: some worker's
 * engine lacks it. */
const char *board_engines_lack(const struct board *b, unsigned i, bool *ret_some);

/* Returns the index that the worker place serves. */
uint32_t board_index(const struct board *b, uint32_t place);

/* Returns the place that serves the index, now or when a worker runs there; -1: none here. The
 * place of a retired worker is its own. */
int board_place(const struct board *b, uint32_t index);

/* Sets the index that the worker place serves from now on. */
void board_set_index(struct board *b, uint32_t place, uint32_t index);

/* Marks whether the index of the worker place came from another node. */
void board_set_came(struct board *b, uint32_t place, bool came);

/* Reports whether the worker place serves an index that is of another node's block, or came from
 * another node: no new session gets it. */
bool board_is_foreign(const struct board *b, uint32_t place);

/* Returns the place (0..) of the worker that owns the sessions of `index`, following adoptions. -1:
 * the index belongs to no worker here. The worker may be starting. */
int board_resolve(const struct board *b, uint32_t index);

/* Answers /ready: returns 0 if every router and worker serves and some worker has an engine that
 * answers. Otherwise -1 and a short reason. */
int board_check_ready(const struct board *b, const char **ret_reason);

#endif
