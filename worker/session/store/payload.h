/*
 * struct payload: numbers of a call: the context ids that it added, and of each answer ids,
 * logprobs, routed experts, odds and indexer's rows. They come with the commit record, or are a
 * piece of its bulk (call_bulk.h): then several answers have several payloads, and a long block of
 * rows has its own. Everything else of a checkpoint always stays in memory while its session does;
 * a payload may be evicted, the least recently used first, because the record that brought it is in
 * the journal. A reader recalls it first (recall.h) and reads it in the same loop iteration. Only a
 * later iteration may evict it again, and never while it is held. A running call holds its path,
 * and a recall in several steps holds what it has read.
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
    struct list_item lru;              /* in store->payload_lru */
    char *bytes;                       /* NULL: evicted */
    const struct payload_parts *parts; /* then the bytes lie as payload_resize says; NULL: it is
                                          all in `record`, and they are of the heap */
    uint64_t used;                     /* session_store.clock then */
    uint32_t held;                     /* by running calls, and by recalls that go on */
    uint32_t size;
    bool fixed;  /* the record alone cannot give it back: it stays */
    bool wanted; /* a recall that is just noting what is missing has noted it */

    uint64_t call;   /* its number: the record must say the same */
    uint32_t record; /* number of its record in the session */

    /* While it is read back, which recall.c does, and is not there yet. */
    char *room;         /* memory for its bytes; NULL: it is not being read */
    uint32_t n_came;    /* number of its first fragments that are in `room` */
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

/* Grows the memory of a payload that comes in fragments, from `had` bytes (NULL: none) to n; it may
 * move. Very long ones have pages of their own, which grow without a copy (only few, since a
 * process may have a limited number of mappings). Others are in the heap. payload_free_buffer frees
 * it.
 */
char *payload_resize(char *room, size_t had, size_t n);
void payload_free_buffer(char *room, size_t n);

/* A payload of so many bytes, all of which the caller fills in; of the record that the session
 * applies now. The struct is in the forest's arena. */
struct payload *payload_new(struct session *s, uint64_t call, size_t size);

/* A payload of a piece of the call's bulk, whose bytes become the payload's own. */
struct call_bulk;
struct payload *payload_of_piece(struct session *s, struct call_bulk *b, uint32_t piece,
                                 bool fixed);

/* Evicts it; it is in the store's order, so it is not held. */
void payload_evict(struct payload *p);

/* Room for the bytes of an evicted one that is read back, which counts as the session's memory;
 * then either takes what is in the room for its bytes, all of which must be there, or gives it up.
 */
void payload_make_buffer(struct payload *p);
void payload_adopt_buffer(struct payload *p);
void payload_drop_buffer(struct payload *p);

/* Marks it as used just now: it is evicted last. */
void payload_touch(struct payload *p);

/* Takes all payloads of the session out of the order of use. */
void payloads_displace(struct session *s);

/* Frees the bytes of one that is in no order, on any thread. The struct lies in an arena. */
void payload_drop_bytes(struct payload *p);

/* Holds it in memory until it is released as often as it was held. An evicted one is held from the
 * moment when it is read back. */
void payload_hold(struct payload *p);
void payload_release(struct payload *p);

/* Holds all of the path that ends in t, like a running call. t may be NULL. */
void payload_hold_path(const struct session *s, const struct checkpoint *t);
void payload_release_path(const struct checkpoint *t);

#endif
