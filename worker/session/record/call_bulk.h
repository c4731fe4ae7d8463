/*
 * struct call_bulk: the long values of a call, from the fragments before its commit (RECORD_BULK,
 * commit.h). They are in pieces, which the commit names by number and length:
 *
 *     BULK_TEXTS   JSON of new messages, then of messages of answers: read with the commit
 *     BULK_TOLD    replay texts of the answers
 *     others       payloads (payload.h): ids, logprobs, odds and short rows of answers, or one long
 *                  block of rows
 *
 * A fragment contains only its call, the number of bytes before it, and its bytes. Whether a call
 * is being recorded, read back or copied, its fragments are collected here. The commit moves what
 * it names into the session without a copy; the rest is freed. A zeroed struct is valid and empty.
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
    struct str bytes; /* p is NULL if the bytes are not kept */
    size_t cap;       /* size of its memory, as payload_resize makes it */
    bool named;       /* the commit has named the piece */
    VEC(struct payload_part) parts;
};

struct call_bulk {
    uint64_t call; /* number of the call */
    uint64_t len;  /* bytes of all pieces */
    /* the texts are not kept, because the call that is recorded has prepared them */
    bool skips_texts;
    VEC(struct bulk_piece) pieces;
};

/* A fragment that was read. `bytes` is borrowed from the record. */
struct bulk_fragment {
    /* before: bytes of the call's fragments so far; 0: the fragments start anew */
    uint64_t call, before;
    uint32_t piece;
    struct str bytes;
};

/* Reads the body of RECORD_BULK. Returns false if it is incomplete. */
bool bulk_fragment_read(struct record_in *r, struct bulk_fragment *ret);

/* Appends a fragment, which is that record of the session, to its piece. Returns false, without a
 * change, if it does not follow the fragments before it. */
bool bulk_add(struct call_bulk *b, const struct bulk_fragment *f, uint32_t record);

/* Returns the bytes of a piece. Empty if there is no such piece. */
struct str bulk_bytes(const struct call_bulk *b, uint32_t piece);

/* Marks a piece of `len` bytes as named by the commit. Returns false if it has a different length,
 * or was named before. */
bool bulk_name(struct call_bulk *b, uint32_t piece, size_t len);

/* Returns the bytes of memory that the pieces use. */
size_t bulk_memory(const struct call_bulk *b);

/* Frees the pieces that are left. The struct is empty afterwards. */
void bulk_done(struct call_bulk *b);

#endif
