/*
 * struct leases: the tokens that this worker's sessions hold in the replicas' KV caches
 * (kv_room.h). A session has at most one lease, at the replica to which its calls go, and the lease
 * moves with them. It remains between calls, so that what was computed for the session is still
 * there for its next call. It ends with the session, or when no call has run for long
 * (leases_sweep).
 */
#ifndef RG_ENGINE_LEASES_H
#define RG_ENGINE_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/str.h"

struct replica;

struct lease {
    struct list_item by_use;
    struct replica *at; /* replica; NULL: it was removed from the set */
    uint64_t tokens;    /* tokens held there */
    uint64_t extra;     /* additional tokens while calls run or wait */
    /* part of `extra` that is reserved until call number `first` has an answer */
    uint64_t promised;
    uint64_t first;    /* number of that call */
    uint64_t size;     /* length of the longest prompt with its answers so far */
    uint64_t call;     /* last call with several answers of which one has arrived */
    uint64_t answered; /* tokens of its answers so far */
    uint64_t used_ms;  /* end of the last call */
    uint64_t borne;    /* call whose first answer is counted in `tokens` */
    bool bears;        /* whether `borne` is set */
    uint32_t calls;    /* number of running or waiting calls */
    bool over;         /* the session was reported complete: no further call is expected */
    size_t len;
    char session[];
};

/* A zeroed struct has no leases. */
struct leases {
    struct map by_session;
    struct list_head by_use; /* leases without calls, least recently used first */
    size_t n;
};

/* Finds the session's lease, or NULL. */
struct lease *lease_of(const struct leases *l, struct str session);

/* Makes a lease; the session must have none. With kv_take, its tokens and the extra ones are
 * counted at the replica already. Otherwise they are counted now. */
struct lease *lease_new(struct leases *l, struct str session, struct replica *at, uint64_t tokens,
                        uint64_t extra, uint64_t now_ms);
struct lease *lease_force(struct leases *l, struct str session, struct replica *at, uint64_t tokens,
                          uint64_t now_ms);

/* Moves the lease to a different replica, to which the session's calls go now. */
void lease_to(struct lease *s, struct replica *at);

/* Records that the session has this number of tokens. */
void lease_grow(struct lease *s, uint64_t size);

/* Adds tokens for call number `call`, until lease_shrink releases them. If it is the call for which
 * the lease was made, the extra tokens of lease_new are used first. */
void lease_stretch(struct lease *s, uint64_t call, uint64_t extra);
void lease_shrink(struct lease *s, uint64_t extra);

/* Reports whether the session's own tokens cover the first answer of the call, which runs now. They
 * do so for one call at a time, until its lease_unbear. */
bool lease_bears(struct lease *s, uint64_t call);
void lease_unbear(struct lease *s, uint64_t call);

/* Records a further answer of a call with several. Returns the tokens of the call's answers so far.
 * Of two such calls at a time, only those after the other's last answer. */
uint64_t lease_answered(struct lease *s, uint64_t call, uint64_t tokens);

/* Begin and end a call of the session. */
void lease_begin(struct lease *s);
void lease_end(struct leases *l, struct lease *s, uint64_t now_ms);

/* Releases all tokens and frees the lease. Returns its size. */
uint64_t lease_drop(struct leases *l, struct lease *s);

/* Drops leases that had no call since before_ms. */
void leases_sweep(struct leases *l, uint64_t before_ms);

/* Forgets a replica that is about to be freed. */
void leases_forget(struct leases *l, const struct replica *r);

/* Drops all leases. */
void leases_done(struct leases *l);

#endif
