/*
 * struct known_body: the beginning of a request's body, as bytes and as the values read from them.
 * The next body of the conversation begins with the same bytes: up to the last common message it is
 * compared and not read again. The values depend on those bytes alone (json_trace.h), and on the
 * dialect, which makes each message of its item without reading others. So a request that is read
 * with its help is the same, to the used bytes of its arena.
 *
 * It may have several holders; the last one frees it, on any thread. One reading at a time uses it
 * (known_body_begin); values that a reading took from it do not change.
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

/* The messages of a body that are known, as the dialect made them. */
struct known_messages {
    const struct json *made;
    const uint32_t *made_bytes; /* bytes of the arena that making each message used */
    uint32_t n;
    uint32_t with_calls; /* how many have tool_calls: 0, 1, or 2 for more */
};

/* The state from which one reading continues. Zeroed: from the start. */
struct known_part {
    struct json_known state;
    struct known_messages messages; /* n 0: the dialect makes none by itself */
    struct str head;                /* in which the members before the list lie, from byte 0 on */
    struct hash128 hashed;          /* hash of the known bytes, or fewer */
};

/* The reader of a body. */
struct known_reader {
    const struct dialect *dialect;
    atomic_size_t *sum; /* counts the memory of known bodies, with that of others */
    uint64_t number;    /* no two readings of a process have the same (chat_stretch) */
};

void known_body_hold(struct known_body *k);

/* `known`: a struct known_body, or NULL. Fits arena_hold. */
void known_body_release(void *known);

/* False: another reading works with it. */
bool known_body_begin(struct known_body *k);
void known_body_end(struct known_body *k);

/* How many items of the body's list are known. Compares bytes. */
size_t known_body_match(const struct known_body *k, const struct dialect *d, struct str body);

/* Gets the state after the first n items, n > 0. Arrays are borrowed until known_body_keep. */
void known_body_state(const struct known_body *k, size_t n, struct known_part *ret);

/* Lists the readings that recorded its first n items (chat_known), for a dialect that makes one
 * message of each item. Leaves ret->messages to the caller. */
void known_body_stretches(const struct known_body *k, size_t n, struct chat_known *ret);

/* Bytes of memory that it takes, as of the last known_body_keep. Asked on any thread. */
size_t known_body_bytes(const struct known_body *k);

/* Result of known_body_keep. */
struct known_kept {
    struct known_body *body; /* held once more; NULL: nothing */
    bool replaces;           /* it replaces the given one, which is no longer of use */
};

/* Records a body that was read without error. k knew its first n items (NULL: there was no known
 * body), and `trace` has the others. The body has no pictures. */
struct known_kept known_body_keep(struct known_body *k, size_t n, const struct known_reader *by,
                                  struct str body, const struct json_trace *trace);

/* How many items it has. */
size_t known_body_items(const struct known_body *k);

#endif
