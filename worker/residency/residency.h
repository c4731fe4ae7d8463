/*
 * Which sessions are in memory: the least recently used are evicted when all together come near
 * --max-worker-memory, since the journal has them, and read back when they are needed. A task reads
 * each, with a helper for long texts (session_texts.h); whoever needs the session waits and is
 * notified. Of sessions in use, the ids, logprobs and experts of calls on branches not used lately
 * are evicted, too; those are read back within the step that needs them, a path at a time. Without
 * a journal nothing can be evicted: the limit then only refuses. What requests hold (bodies,
 * arenas, answers that wait) is counted, too, beyond what any worker needs for them: sessions make
 * room for it.
 */
#ifndef RG_RESIDENCY_RESIDENCY_H
#define RG_RESIDENCY_RESIDENCY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/str.h"

struct loop;
struct metrics_page;
struct places;
struct residency_load;
struct residency_posts;
struct session;
struct session_store;
struct tasks;

struct residency {
    struct loop *loop;
    struct session_store *store;
    struct metrics_page *page;
    struct places *places;           /* where sessions are read back from */
    struct tasks *tasks;             /* tasks that read sessions back */
    uint64_t limit;                  /* bytes of sessions and requests; 0: none */
    uint64_t (*requests)(void *ctx); /* bytes that requests hold; or NULL */
    void *requests_ctx;
    /* In a fleet: whether records of the session must come from the store first. They are asked
     * for, and residency_fetched follows. NULL: no fleet */
    bool (*fetch)(void *ctx, struct str session_id);
    void *fetch_ctx;
    uint64_t fetch_ms;             /* longest wait for that */
    bool full;                     /* at the limit, and nothing can be evicted */
    bool watching;                 /* the task is posted */
    struct residency_posts *posts; /* own; made on first use */

    struct { /* in the metrics so far */
        uint64_t evictions, payload_evictions, payload_loads;
    } told;
    struct list_head fetches;  /* loads that wait for the fleet's store */
    struct list_head loads;    /* being read, or waiting for that */
    unsigned n_reading;        /* number of loads that are being read */
    atomic_size_t texts_bytes; /* bytes of long texts that helpers make */
};

/* A waiter for a session. Embedded in its owner. */
struct residency_waiter {
    /* It is in memory, or is gone; with e: it cannot be read. */
    void (*fn)(void *ctx, const struct err *e);
    void *ctx;
    struct residency_load *load; /* NULL: waits for nothing */
    struct list_item item;       /* in load->waiters */
};

/* Sessions, and parts of those that are in use, may be evicted from now on: there is a journal. */
void residency_evicts(struct residency *r);

/* Reports whether the session is in memory, or unknown. False: it is being read, and residency_wait
 * reports the end. With `ended`, finalized sessions whose memory was freed are read back, too. */
bool residency_ready(struct residency *r, struct str session_id, bool ended);

/* Waits for a session that is being read. The caller has set fn and ctx. */
void residency_wait(struct residency *r, struct str session_id, struct residency_waiter *w);

/* The waiter waits no longer; fine when it does not wait. */
void residency_leave(struct residency_waiter *w);

/* The journal has all records of the session that the fleet's store has; e: that cannot be. Not on
 * a task's stack. */
void residency_fetched(struct residency *r, struct str session_id, const struct err *e);

/* After sessions grew or came back: evicts others, soon. */
void residency_watch(struct residency *r);

/* Refuses, with e, what would need more memory: a new session (`called` NULL), or a call of one
 * that exists when the others take an eighth more than the limit. What an idle session itself takes
 * does not count: between its calls it is evicted. Nor do the own_bytes that the call's request
 * holds so far. */
int residency_room(struct residency *r, const struct session *called, uint64_t own_bytes,
                   struct err *e);

/* Checks the space of a request that is about to hold more_bytes in addition, which count. */
int residency_room_more(struct residency *r, const struct session *called, uint64_t own_bytes,
                        uint64_t more_bytes, struct err *e);

/* Frees all loads without calling their waiters. The tasks have ended. */
void residency_done(struct residency *r);

#endif
