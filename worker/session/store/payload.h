/*
 * struct payload: the numbers of a call: the context ids that it added, and of each answer ids,
 * logprobs, routed experts, odds and indexer's rows. They are from the commit record, or a piece of
 * its bulk (call_bulk.h): several answers then have several payloads, and a long block of rows has
 * its own. Everything else of a checkpoint stays in memory while its session does. A payload may be
 * evicted, the least recently used first, because its record is in the journal. A reader recalls it
 * first (recall.h) and reads it in the same loop iteration; only a later iteration may evict it
 * again, and never while it is held. A running call holds its path, and a recall in several steps
 * holds what it has read.
 *
 * Layout: context ids, then each answer's ids, logprobs, experts, odds, indexer's rows, each at a
 * multiple of 4 bytes. Owned by its session (session.payloads). The bytes are allocated separately,
 * so that they can be freed.
 */
#ifndef RG_SESSION_PAYLOAD_H
#define RG_SESSION_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/check.h"
#include "common/base/list.h"

struct checkpoint;
struct session;

/* Where a part of a payload's bytes is stored: which record of its session contains it, and at
 * which byte of the payload it begins. It ends where the next part begins. */
struct payload_part {
    uint32_t record, at;
};

struct payload_parts {
    uint32_t n;
    struct payload_part at[];
};

/* An evicted payload that recall.c reads back. */
struct payload_reading {
    uint32_t n_came;    /* number of its leading fragments that are in `buffer` */
    uint32_t n_readers; /* number of recalls that continue with it in their next step */
    char *buffer;       /* memory for its bytes, allocated like them */
};

struct payload {
    struct session *session;
    struct list_item lru; /* in store->payload_lru */
    char *bytes;          /* NULL: evicted */
    /* set: the bytes are allocated as by payload_resize; NULL: all of them are in `record`, and
     * the memory is from the heap */
    const struct payload_parts *parts;
    uint64_t used; /* session_store.clock at the last use */
    uint64_t call; /* number of its call: the record must have the same */
    uint32_t size;
    uint32_t record; /* number of its record in the session */
    /* number of holders: running calls, recalls in progress, and payloads that lead */
    uint32_t held;
    bool fixed;  /* cannot be evicted, because the record alone does not contain all of it */
    bool wanted; /* a recall that is collecting missing payloads has this one already */
    struct payload_reading *reading; /* owned; NULL: it is not being read back */
    /* its answer, if it holds what reading the path to that answer needs: all of it is in memory as
     * long as this payload is; NULL: it holds nothing */
    const struct checkpoint *leads;
};

/* Rounds up to a multiple of 4, where a part of a payload begins. */
static inline size_t payload_padded(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

/* Returns the bytes. All readers use this function. */
static inline const char *payload_bytes(const struct payload *p)
{
    CHECK(p->bytes);
    return p->bytes;
}

/* Grows the memory of a payload that is read in fragments, from `had` bytes (NULL: none) to n; it
 * may move. Very long ones have pages of their own, which grow without a copy (only few, because a
 * process may have a limited number of mappings). Others are in the heap. payload_free_buffer frees
 * it. */
char *payload_resize(char *room, size_t had, size_t n);
void payload_free_buffer(char *room, size_t n);

/* Makes a payload of so many bytes, which the caller must fill, for the record that the session
 * applies now. The struct is in the forest's arena. */
struct payload *payload_new(struct session *s, uint64_t call, size_t size);

/* Makes a payload of a piece of the call's bulk, and takes over its bytes. */
struct call_bulk;
struct payload *payload_of_piece(struct session *s, struct call_bulk *b, uint32_t piece,
                                 bool fixed);

/* Evicts the first payload in the store's order of use, which is not held. */
void payload_evict(struct payload *p);

/* The first makes memory for the bytes of an evicted payload that is read back; it counts as the
 * session's. Then either the second makes this memory, which must be complete, the payload's bytes,
 * or the third frees it. */
void payload_make_buffer(struct payload *p);
void payload_adopt_buffer(struct payload *p);
void payload_drop_buffer(struct payload *p);

/* Marks it as used just now: it is evicted last. */
void payload_touch(struct payload *p);

/* Takes all payloads of the session out of the order of use. */
void payloads_displace(struct session *s);

/* Frees the bytes of a payload that is in no order, on any thread. The struct is in an arena. */
void payload_drop_bytes(struct payload *p);

/* Holds the payload in memory until it is released as often as it was held. An evicted payload is
 * held from the moment when it is read back. */
void payload_hold(struct payload *p);
void payload_release(struct payload *p);

/* Makes the payload of t, and each before it, hold the payloads of the path before it until it is
 * evicted. All of the path must be in memory, and have ids. */
void payload_lead(struct checkpoint *t);

/* Does that for a new answer whose parent and context are set, if the path is in memory. */
void payload_lead_new(struct checkpoint *t);

#endif
