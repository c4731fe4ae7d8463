/*
 * struct call_bulk: the long bytes of a call, as the fragments before its commit bring them
 * (RECORD_BULK, commit.h). They are in pieces, which the commit names by number and length:
 *
 *     BULK_TEXTS   JSON of new messages, then of messages of answers: read with the commit
 *     BULK_TOLD replay texts of the answers
 *     others       payloads (payload.h): ids, logprobs, odds and short rows of answers, or one long
 *                  block of rows
 *
 * A fragment says nothing but whose bytes it has and what is before them. A call that is recorded,
 * one that is read back and one that is copied collect them here. The commit moves what it names
 * into the session without a copy; the rest is freed. A zeroed struct is valid and empty.
 */
#ifndef RG_SESSION_CALL_BULK_H
#define RG_SESSION_CALL_BULK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/base/vec.h"

struct payload_part;
struct record_in;

enum { BULK_TEXTS, BULK_TOLD, BULK_PAYLOADS, BULK_PIECES_MAX = 1024 };

struct bulk_piece {
    struct str bytes; /* p is NULL if they are not kept */
    size_t cap;       /* size of its memory, as payload_resize makes it */
    bool named;       /* by the commit */
    VEC(struct payload_part) parts;
};

struct call_bulk {
    uint64_t call;    /* its number */
    uint64_t len;     /* bytes of all pieces */
    bool skips_texts; /* the texts are not kept: the call that is recorded has them ready */
    VEC(struct bulk_piece) pieces;
};

/* A fragment, read. `bytes` is borrowed from the record. */
struct bulk_fragment {
    uint64_t call, before; /* before: bytes of the call's fragments so far; 0: they begin again */
    uint32_t piece;
    struct str bytes;
};

/* Reads the body of RECORD_BULK. Returns false if it is torn. */
bool bulk_fragment_read(struct record_in *r, struct bulk_fragment *ret);

/* Copies a fragment, which is that record of the session, to the end of its piece. Returns false,
 * without a change, if it does not follow the fragments before it. */
bool bulk_add(struct call_bulk *b, const struct bulk_fragment *f, uint32_t record);

/* The piece; an empty one if there is no such piece. */
struct str bulk_bytes(const struct call_bulk *b, uint32_t piece);

/* Marks a piece of `len` bytes as named by the commit. Returns false if it has another length, or
 * was named before. */
bool bulk_name(struct call_bulk *b, uint32_t piece, size_t len);

/* Bytes of memory that the pieces take. */
size_t bulk_memory(const struct call_bulk *b);

/* Frees what is left. The struct is empty afterwards. */
void bulk_done(struct call_bulk *b);

#endif
