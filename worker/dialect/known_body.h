/*
 * struct known_body: the beginning of a request's body, as bytes and as the values read from them.
 *
 * The next body of a conversation begins with the same bytes. Up to the last common message, these
 * bytes are compared instead of parsed. The values depend only on the bytes (json_trace.h) and on
 * the dialect, which makes each message from its item alone. So the result of a reading is the same
 * with and without a known body, including the used bytes of its arena.
 *
 * Nothing of the text is kept: its blocks are compared by hashes (block_hash.h), and long values
 * are mostly those that the session stores (known_body_share).
 *
 * A known body may have several holders. The last one frees it, on any thread. One reading at a
 * time may use it (known_body_begin). Values that a reading took from it do not change.
 */
#ifndef RG_DIALECT_KNOWN_BODY_H
#define RG_DIALECT_KNOWN_BODY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/codec/json_trace.h"

struct chat_known;
struct dialect;
struct known_body;

/* Known messages of a body, as the dialect made them. */
struct known_messages {
    const struct json *made;
    const uint32_t *made_bytes; /* bytes of the arena that each message used */
    uint32_t n;
    uint32_t with_calls; /* number of messages with tool_calls; 2 means 2 or more */
};

/* State from which a reading continues. Zeroed: from the start. */
struct known_part {
    struct json_known state;
    struct known_messages messages; /* n = 0: the dialect does not make one message per item */
    uint32_t n_obeyed;              /* number of leading items without members without effect */
    struct str head; /* bytes of the body from 0 on; they contain the members before the list */
    struct hash128 hashed; /* hash of the known bytes, or of a prefix of them */
};

/* Properties of one reading of a body. */
struct known_reader {
    const struct dialect *dialect;
    atomic_size_t *sum; /* counter for the memory of all known bodies; shared */
    uint64_t number;    /* number of the reading (chat_stretch); unique in the process */
};

/* Adds a holder, who calls known_body_release. */
void known_body_hold(struct known_body *k);

/* Drops a hold on a struct known_body (or NULL). Has the type that arena_hold needs. */
void known_body_release(void *known);

/* Acquires k for one reading. Returns false if a different reading uses it. */
bool known_body_begin(struct known_body *k);
void known_body_end(struct known_body *k);

/* Returns how many items of the body's list are known. Compares bytes. */
size_t known_body_match(const struct known_body *k, const struct dialect *d, struct str body);

/* Sets *ret to the state after the first n items, n > 0. Its arrays are borrowed until
 * known_body_keep. */
void known_body_state(const struct known_body *k, size_t n, struct known_part *ret);

/* Sets *ret to the readings that recorded the first n items (chat_known). Only for a dialect that
 * makes one message per item. The caller sets ret->messages. */
void known_body_stretches(const struct known_body *k, size_t n, struct chat_known *ret);

/* Returns its memory in bytes at the last known_body_keep. May be called on any thread. */
size_t known_body_bytes(const struct known_body *k);

/* Returns the number of the reading that recorded the last item. */
uint64_t known_body_reading(const struct known_body *k);

/* Reports whether so much of its memory is its own that known_body_share is worthwhile. */
bool known_body_wants_sharing(const struct known_body *k);

/* Returns a copy whose values are those of `stored`, an array of the session's messages, wherever
 * they are the same. The copy calls `release` with `held`, by which it keeps `stored`, when it is
 * freed. The caller is its only holder. */
struct known_body *known_body_share(const struct known_body *k, const struct json *stored,
                                    void (*release)(void *held), void *held);

/* Returns the `held` with which it was made. NULL: it shares no messages. */
const void *known_body_shared(const struct known_body *k);

/* Result of known_body_keep. */
struct known_kept {
    struct known_body *body; /* with one more hold for the caller; NULL: nothing was recorded */
    bool replaces;           /* the given known body is no longer useful */
};

/* Records a body that was read without error. The first n items came from k (NULL: no known body),
 * the others from `trace`. The body must have no images. */
struct known_kept known_body_keep(struct known_body *k, size_t n, const struct known_reader *by,
                                  struct str body, const struct json_trace *trace);

/* Returns its number of items. */
size_t known_body_items(const struct known_body *k);

#endif
