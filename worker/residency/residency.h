/*
 * struct residency: decides which sessions are in memory. When sessions and requests together come
 * near --max-worker-memory, the least recently used sessions are evicted, because the journal has
 * them. A session that is needed again is read back by a task, with a helper for long texts
 * (session_texts.h). Its waiters are called when it is in memory. Of sessions in use, the ids,
 * logprobs and experts of calls on branches that were not used lately are evicted, too. They are
 * read back one path at a time, within the step that needs them.
 *
 * Without a journal nothing can be evicted, so the limit only refuses requests. Memory of requests
 * (bodies, arenas, waiting answers) counts, except for what every worker needs for them.
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
    struct places *places;           /* places whose journals have the sessions */
    struct tasks *tasks;             /* tasks that read sessions back */
    uint64_t limit;                  /* most bytes of sessions and requests; 0: no limit */
    uint64_t (*requests)(void *ctx); /* returns the bytes that requests hold; may be NULL */
    void *requests_ctx;
    /* Returns whether the fleet's store has records of the session that the journal lacks. Requests
     * them; residency_fetched follows. NULL: no fleet. */
    bool (*fetch)(void *ctx, struct str session_id);
    void *fetch_ctx;
    uint64_t fetch_ms;             /* longest wait for residency_fetched */
    bool full;                     /* memory is at the limit, and nothing can be evicted */
    bool watching;                 /* on_evict is posted */
    struct residency_posts *posts; /* owned; made on first use */

    struct { /* figures that were already added to the metrics */
        uint64_t evictions, payload_evictions, payload_loads;
    } counted;
    struct list_head fetches;  /* loads that wait for the fleet's store */
    struct list_head loads;    /* loads that are being read, or wait for their turn */
    unsigned n_reading;        /* number of loads that are being read */
    atomic_size_t texts_bytes; /* bytes of long texts that helpers are making */
};

/* A waiter for a session. Embedded in its owner. */
struct residency_waiter {
    /* Called when the session is in memory or has ended; with e: when it cannot be read. */
    void (*fn)(void *ctx, const struct err *e);
    void *ctx;
    struct residency_load *load; /* load that it waits for; NULL: none */
    struct list_item item;       /* in load->waiters */
};

/* Allows evictions from now on: of sessions, and of payloads of sessions in use. The sessions must
 * have a journal. */
void residency_evicts(struct residency *r);

/* Returns true if the session is in memory, or unknown. Otherwise begins to read it and returns
 * false; residency_add_waiter then gets the end. With `ended`, finalized sessions whose memory was
 * freed are read back, too. */
bool residency_ready(struct residency *r, struct str session_id, bool ended);

/* Adds a waiter to a session that is being read, and returns at once. Only for use right after
 * residency_ready has returned false. The caller has set fn and ctx. */
void residency_add_waiter(struct residency *r, struct str session_id, struct residency_waiter *w);

/* Ends the wait without calling the waiter. Does nothing if it does not wait. */
void residency_leave(struct residency_waiter *w);

/* Ends the wait for the fleet's store: the journal has all records of the session now; with e: it
 * cannot get them. Must not be called on a task's stack. */
void residency_fetched(struct residency *r, struct str session_id, const struct err *e);

/* Evicts sessions soon if memory is near the limit. For use after sessions have grown or were read
 * back. */
void residency_watch(struct residency *r);

/* Checks the memory for a new session (`called` NULL) or a call of a session. Returns -1 with
 * ERR_MEMORY_FULL if memory is full and nothing can be evicted, or if requests alone exceed the
 * limit by an eighth. A call is refused only if the others, too, exceed the limit by an eighth. The
 * others are all sessions and requests, except own_bytes, which the call's request holds so far,
 * and what evicting the called session would free. */
int residency_room(struct residency *r, const struct session *called, uint64_t own_bytes,
                   struct err *e);

/* Like residency_room, for a request that is about to hold more_bytes in addition. */
int residency_room_more(struct residency *r, const struct session *called, uint64_t own_bytes,
                        uint64_t more_bytes, struct err *e);

/* Frees all loads without calling their waiters. All tasks must have ended, except those that wait
 * for a hung thread. */
void residency_done(struct residency *r);

#endif
