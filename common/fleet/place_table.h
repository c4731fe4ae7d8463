/*
 * struct place_table: which node owns which place, in shared memory made before the first fork.
 * The keeper writes it, except the reports of workers about their own places. All processes read
 * it without a lock.
 *
 *     router   place_table_find(t, index, &place), place_table_node(t, place.node, &node)
 *     worker   epoch = place_table_own_epoch(t, index); 0: it answers nothing
 *              place_table_may_read(t, index, clock_boot_ms(), lease_ms): without asking the store
 *
 * Times are of clock_boot_ms, which counts while the machine sleeps. An index names its place; the
 * dispatcher has the place FLEET_DISPATCHER.
 */
#ifndef RG_FLEET_PLACE_TABLE_H
#define RG_FLEET_PLACE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FLEET_NODES_MAX = 256,
    FLEET_PLACES_MAX = 65536,
    FLEET_OWN_MAX = 256, /* places that one node serves; the dispatcher's is one more */
    FLEET_NO_NODE = FLEET_NODES_MAX,
    FLEET_BLOCK_SIZE = 256, /* indexes */
    FLEET_BLOCKS = 3906,    /* w0 to w999999 */
    FLEET_NAME_MAX = 64,    /* bytes of a node's name, with the terminator */
    FLEET_ADDRESS_MAX = 256,
    FLEET_BASE_OLDEST = 1, /* base of records that no claim is known of (fleet_store.h) */
};

#define FLEET_DISPATCHER UINT32_MAX
#define FLEET_EPOCH_MAX ((UINT64_C(1) << 52) - 1)

enum fleet_node_state { FLEET_UP, FLEET_DRAINING, FLEET_LOST };

struct fleet_place {
    uint32_t index;
    uint32_t node; /* slot of the owner; FLEET_NO_NODE: no owner */
    uint64_t epoch;
    bool whole;
    bool taken; /* it was claimed although the store lacked records of it, or may lack some */
};

struct fleet_node {
    char name[FLEET_NAME_MAX];
    char address[FLEET_ADDRESS_MAX]; /* "host:port" of its routers */
    enum fleet_node_state state;
    uint32_t load;     /* in thousandths of what it may have */
    uint32_t sessions; /* number of live sessions */
    uint32_t calls;    /* number of running calls */
    uint32_t capacity; /* most live sessions; 0: unknown, or it accepts no new ones */
    uint32_t block;    /* that it makes ids from */
    uint64_t edition;  /* of the orders that it obeys */
    uint64_t model;    /* hash of its tokenizer's fingerprint */
    uint64_t since_ms; /* wall clock: when this node saw it join, or saw its state change */
    bool is_self;
};

/* A place that this node owns, or has owned. */
struct fleet_own_place {
    uint32_t index;
    uint64_t epoch;        /* 0: not owned */
    uint64_t base;         /* the claim that its records stem from (fleet_store.h) */
    uint64_t answers_ms;   /* nothing is answered before: the store had forgotten the place */
    uint64_t renewed_ms;   /* when the last renewal that succeeded was sent; 0: claimed just now */
    uint64_t whole_epoch;  /* reported by the worker: everything was sent under this epoch */
    uint64_t fenced_epoch; /* reported by the worker: the store has refused this epoch; 0: none */
    uint64_t left_epoch;   /* reported by a worker that ends: as whole_epoch, and no more follows */
    uint64_t empty_epoch;  /* reported by the worker: no session has records; 0: some have */
    uint64_t abandoned_epoch; /* this node gives up the place that it owns under this epoch */
    uint64_t failed_epoch;    /* as abandoned_epoch, because its worker died again and again */
    uint64_t behind;          /* reported by the worker: records that the store lacks */
    uint64_t version;         /* reported by the worker: newest version of a record; 0: none */
    uint64_t bare_epoch;      /* this node claimed the place without records of it; 0: none */
    uint64_t
        server; /* reported with whole_epoch: the store's server that has all (fleet_store.h) */
    uint64_t doubt_ms; /* sessions may lack records since this time, until whole; 0: none does */
};

struct log_field;
struct place_table;

/* Returns a field of a log line: the index of a place, or "dispatcher". */
struct log_field place_table_log(const char *key, uint32_t index);

/* Maps an empty table; aborts without memory. place_table_free unmaps, and accepts NULL. */
struct place_table *place_table_new(void);
void place_table_free(struct place_table *t);

/* --- every process reads --- */

/* Grows with each change of a place, of a node, or of what this node owns. */
uint32_t place_table_generation(const struct place_table *t);

/* Grows with each change of a place. A node's load, which changes with each beat, does not count.
 */
uint32_t place_table_place_changes(const struct place_table *t);

/* False: the store has no such place, or this node has not read the store yet. */
bool place_table_find(const struct place_table *t, uint32_t index, struct fleet_place *ret);

/* True if the store has such a place, or had it when the table was read before. False for a vacant
 * place. */
bool place_table_had(const struct place_table *t, uint32_t index);

/* True if the place has neither an owner nor sessions. place_table_find does not find it. */
bool place_table_is_vacant(const struct place_table *t, uint32_t index);

/* True if the place was claimed although the store lacked records of it, so that ids which nobody
 * knows are of lost sessions. Also for a place that the store has no entry of any longer. */
bool place_table_is_taken(const struct place_table *t, uint32_t index);

/* False: no node has this slot. A node keeps its slot while this gateway runs, unless it is lost,
 * owns no place, and others need the slot. */
bool place_table_node(const struct place_table *t, uint32_t slot, struct fleet_node *ret);

/* Slot of this node; FLEET_NO_NODE before it has joined. */
uint32_t place_table_self(const struct place_table *t);

/* True if another node is up that can serve the places of this one. */
bool place_table_has_successor(const struct place_table *t);

/* Returns the next known place from *at on, and advances *at, which begins at 0. False: no more. */
bool place_table_next(const struct place_table *t, size_t *at, struct fleet_place *ret);

/* Like place_table_next, but returns the indexes, also of places that the store has lost. */
bool place_table_next_had(const struct place_table *t, size_t *at, uint32_t *ret);

/* False: this node has never owned the place, or its row was used for another place. */
bool place_table_find_own(const struct place_table *t, uint32_t index, struct fleet_own_place *ret);

/* Returns the next own place, like place_table_next. */
bool place_table_next_own(const struct place_table *t, size_t *at, struct fleet_own_place *ret);

/* Epoch under which this node records to the place; 0: it does not own it. */
uint64_t place_table_own_epoch(const struct place_table *t, uint32_t index);

/* False: the place is not owned, or the store has forgotten the claim within the last lease.
 * Records are sent, but no answer. */
bool place_table_may_answer(const struct place_table *t, uint32_t index, uint64_t now_ms);

/* True if the place was renewed within 0.8 of the lease, so that no other node has claimed it:
 * requests that record nothing are answered without asking the store. */
bool place_table_may_read(const struct place_table *t, uint32_t index, uint64_t now_ms,
                          uint64_t lease_ms);

/* When the last call that the store answered was sent; 0: it has not answered yet. */
uint64_t place_table_reached_ms(const struct place_table *t);

/* The store's server that answered the last renewal (fleet_store.h); 0: it does not say. */
uint64_t place_table_server(const struct place_table *t);

/* False: places and nodes of the store may be missing here, because changes are not reported now,
 * or the keeper has not run for a lease. */
bool place_table_is_complete(const struct place_table *t, uint64_t now_ms);

/* 1 + the edition of the fleet's orders that the store had when it was asked last; 0: not yet. */
uint64_t place_table_orders(const struct place_table *t);

/* --- the worker of an own place reports --- */

/* This server of the store has all records of the place that were made before `epoch`, and since.
 */
void place_table_report_whole(struct place_table *t, uint32_t index, uint64_t epoch,
                              uint64_t server);

/* The store has refused records under `epoch`. */
void place_table_report_fenced(struct place_table *t, uint32_t index, uint64_t epoch);

/* The worker ends, and the store has all records that were made under `epoch`; 0: it begins. */
void place_table_report_left(struct place_table *t, uint32_t index, uint64_t epoch);

/* Number of records that the store lacks. */
void place_table_report_behind(struct place_table *t, uint32_t index, uint64_t records);

/* Newest version of the place's records. */
void place_table_report_version(struct place_table *t, uint32_t index, uint64_t version);

/* Epoch under which no session of the place has records; 0: some have. Counts as a change. */
void place_table_report_empty(struct place_table *t, uint32_t index, uint64_t epoch);

/* --- the supervisor decides --- */

/* This node gives up the place: the keeper releases it when its worker has left. `failed`: this
 * node does not claim it for a while. Epoch 0: it keeps the place. */
void place_table_abandon(struct place_table *t, uint32_t index, uint64_t epoch, bool failed);

/* --- the keeper writes --- */

/* Repairs what a keeper that died within a change has left. Call it before the first change. */
void place_table_begin(struct place_table *t);

/* False: FLEET_PLACES_MAX places are known, or the epoch is above FLEET_EPOCH_MAX. */
bool place_table_set(struct place_table *t, const struct fleet_place *place);

/* The place has neither an owner nor sessions. False: FLEET_PLACES_MAX places are known. */
bool place_table_set_vacant(struct place_table *t, uint32_t index, bool taken);

/* The store has no entry of the place. A vacant one stays vacant. */
void place_table_remove(struct place_table *t, uint32_t index);

/* Slot of the node of that name; a free slot if it has no slot yet; FLEET_NO_NODE: all are used. */
uint32_t place_table_slot(const struct place_table *t, const char *name);

void place_table_set_node(struct place_table *t, uint32_t slot, const struct fleet_node *node);
void place_table_remove_node(struct place_table *t, uint32_t slot);
void place_table_set_self(struct place_table *t, uint32_t slot);

/* Epoch 0: the place is not owned any longer. Before answers_ms nothing of the place is answered.
 * False: FLEET_OWN_MAX places are owned. */
bool place_table_set_own(struct place_table *t, uint32_t index, uint64_t epoch,
                         uint64_t answers_ms);

/* Sessions of the place may lack records since this time; 0: none does. Call it before
 * place_table_set_own. */
void place_table_set_doubt(struct place_table *t, uint32_t index, uint64_t doubt_ms);

/* This node has no records of the place that it claims under this epoch: the store has them. */
void place_table_set_bare(struct place_table *t, uint32_t index, uint64_t epoch);

/* The claim that the records of an own place stem from; 0: unknown. It is set before the epoch. A
 * keeper that begins anew has it from the one before. */
void place_table_set_base(struct place_table *t, uint32_t index, uint64_t base);
uint64_t place_table_own_base(const struct place_table *t, uint32_t index);

/* A renewal of the place that was sent at sent_ms succeeded. */
void place_table_set_renewed(struct place_table *t, uint32_t index, uint64_t sent_ms);

/* The table has all until then; 0: it may lack some. Counts as a change if it had not, or had. */
void place_table_set_complete(struct place_table *t, uint64_t now_ms, uint64_t until_ms);

void place_table_set_orders(struct place_table *t, uint64_t edition);
void place_table_set_server(struct place_table *t, uint64_t server);

/* The store has answered a call that was sent at sent_ms. */
void place_table_set_reached(struct place_table *t, uint64_t sent_ms);

#endif
