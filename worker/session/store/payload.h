/*
 * struct payload: numbers of a call: the context ids that it added, and of each answer ids,
 * logprobs, routed experts, odds and indexer's rows. They come with the commit record, or are a
 * piece of its bulk (call_bulk.h): then several answers have several payloads, and a long block of
 * rows has its own. Everything else of a checkpoint always stays in memory while its session does;
 * a payload may be evicted, the least recently used first, because the record that brought it is in
 * the journal. Who needs one asks for it before (recall.h) and reads it in the same breath: only
 * the eviction of a later turn of the loop takes it away again, and never while it is held: a
 * running call holds its path, and a recall in several steps what it has read.
 *
 * Layout: context ids, then each answer's ids, logprobs, experts, odds, indexer's rows, each at
 * a multiple of 4 bytes. Owned by its session (session.payloads); the bytes are its own, so that
 * they can go.
 */
#ifndef RG_SESSION_PAYLOAD_H
#define RG_SESSION_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/check.h"
#include "common/base/list.h"

struct arena;
struct checkpoint;
struct session;

/* Where a part of a payload's bytes is: which record of its session's has it, and at which byte of
 * the payload it begins. It ends where the next one begins. */
struct payload_part {
    uint32_t record, at;
};

struct payload_parts {
    uint32_t n;
    struct payload_part at[];
};

struct payload {
    struct session *session;
    struct list_item lru;              /* of store->payload_lru */
    char *bytes;                       /* NULL: evicted */
    const struct payload_parts *parts; /* then the bytes lie as payload_resize says; NULL: it is
                                          all in `record`, and they are of the heap */
    uint64_t used;                     /* session_store.clock then */
    uint32_t held;                     /* by running calls, and by recalls that go on */
    uint32_t size;
    bool fixed;  /* the record alone cannot give it back: it stays */
    bool wanted; /* a recall that is just noting what is missing has noted it */

    uint64_t call;   /* its number: the record must say the same */
    uint32_t record; /* which one of its session's */

    /* While it is read back, which recall.c does, and is not there yet. */
    char *room;         /* where its bytes come to lie; NULL: nobody reads it */
    uint32_t n_came;    /* of its parts, the first: they are in `room` */
    uint32_t n_readers; /* recalls that go on with it in their next step */
};

/* A part of a payload begins at a multiple of 4 bytes. */
static inline size_t payload_padded(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

/* The one way to the bytes. */
static inline const char *payload_bytes(const struct payload *p)
{
    CHECK(p->bytes);
    return p->bytes;
}

/* Where the bytes of one lie that was brought in parts: very long ones in pages of their own, which
 * grow without a copy (few, for a process may have only so many mappings), others in the heap.
 * Makes room of `had` bytes (NULL: none) one of n, which may be another place; payload_free_room
 * frees it.
 */
char *payload_resize(char *room, size_t had, size_t n);
void payload_free_room(char *room, size_t n);

/* A payload of so many bytes, all of which the caller fills in; of the record that the session
 * applies now. The struct is in the forest's arena. */
struct payload *payload_new(struct session *s, uint64_t call, size_t size, bool fixed);

/* A payload of a piece of the call's bulk, whose bytes become the payload's own. */
struct call_bulk;
struct payload *payload_of_piece(struct session *s, struct call_bulk *b, uint32_t piece,
                                 bool fixed);

/* Evicts it; it is in the store's order, so nobody holds it. */
void payload_evict(struct payload *p);

/* Room for the bytes of an evicted one that is read back, which counts as the session's memory;
 * then either takes what is in the room for its bytes, all of which must be there, or gives it up.
 */
void payload_make_room(struct payload *p);
void payload_take_room(struct payload *p);
void payload_drop_room(struct payload *p);

/* It was used just now: of those that may be evicted it is the last one. */
void payload_touch(struct payload *p);

/* Takes all payloads of the session out of the order of use. */
void payloads_displace(struct session *s);

/* Frees the bytes of one that is in no order, on any thread. The struct lies in an arena. */
void payload_drop_bytes(struct payload *p);

/* It stays in memory until it is let go, as often as it was held; or, evicted, from the moment on
 * when it is read back. */
void payload_hold(struct payload *p);
void payload_let(struct payload *p);

/* The same of all of the path that ends in t: a running call holds its path. t may be NULL. */
void payload_hold_path(const struct session *s, const struct checkpoint *t);
void payload_let_path(const struct checkpoint *t);

#endif
