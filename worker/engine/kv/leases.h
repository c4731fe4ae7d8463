/*
 * struct leases: what this worker's sessions hold of the replicas' KV caches (kv_room.h). A session
 * has at most one lease, on the replica that its calls go to; it moves with them. Between calls it
 * stays: what was computed for the session is to be there for its next call. It ends with the
 * session, or when no call has run for long (leases_sweep).
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
    struct replica *at; /* NULL: it was taken out of the set */
    uint64_t tokens;    /* held there, */
    uint64_t extra;     /* and so many more while calls run or wait: */
    uint64_t promised;  /* part of `extra` for which call number `first` has no answer yet */
    uint64_t first;     /* `first` will */
    uint64_t size;      /* size of the longest prompt with its answers so far */
    uint64_t call;      /* the last one that had an answer of several, */
    uint64_t answered;  /* and the tokens of those it has had */
    uint64_t used_ms;   /* end of the last call */
    uint64_t borne;     /* the call for whose first answer `tokens` stand, */
    bool bears;         /* if there is one */
    uint32_t calls;     /* running or waiting */
    bool over;          /* the session was said to be complete: no call is to be expected */
    size_t len;
    char session[];
};

/* Zeroed: there are none. */
struct leases {
    struct map by_session;
    struct list_head by_use; /* without calls, least recently used first */
    size_t n;
};

/* Finds the session's lease, or NULL. */
struct lease *lease_of(const struct leases *l, struct str session);

/* The session has none. Its tokens, and extra ones, are counted at the replica already (kv_take);
 * or its tokens are now. */
struct lease *lease_new(struct leases *l, struct str session, struct replica *at, uint64_t tokens,
                        uint64_t extra, uint64_t now_ms);
struct lease *lease_force(struct leases *l, struct str session, struct replica *at, uint64_t tokens,
                          uint64_t now_ms);

/* The session's calls go to another replica now. */
void lease_to(struct lease *s, struct replica *at);

/* The session has been seen to have so many tokens. */
void lease_grow(struct lease *s, uint64_t size);

/* Call number `call` holds so many tokens more, until it gives them back by lease_shrink; those
 * that the lease was made with (lease_new's extra, for its first call) are taken of first. */
void lease_stretch(struct lease *s, uint64_t call, uint64_t extra);
void lease_shrink(struct lease *s, uint64_t extra);

/* Whether the session's own tokens stand for the first answer of the call, which runs now: they do
 * for one call at a time, until lease_unbear of it. */
bool lease_bears(struct lease *s, uint64_t call);
void lease_unbear(struct lease *s, uint64_t call);

/* Another answer of a call of several has come. Returns the tokens of those that it has had; of two
 * such calls at a time, since the other's last. */
uint64_t lease_answered(struct lease *s, uint64_t call, uint64_t tokens);

/* One of the two ends of a call. */
void lease_begin(struct lease *s);
void lease_end(struct leases *l, struct lease *s, uint64_t now_ms);

/* Gives all back. The size that it had. */
uint64_t lease_drop(struct leases *l, struct lease *s);

/* Drops those without a call since before_ms. */
void leases_sweep(struct leases *l, uint64_t before_ms);

/* The replica is about to be freed. */
void leases_forget(struct leases *l, const struct replica *r);

/* Drops all leases. */
void leases_done(struct leases *l);

#endif
