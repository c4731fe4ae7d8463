/*
 * Finds the trajectories in a spooled msgpack export, so that each can be sent alone without being
 * packed again. Reads the envelope that worker/export writes: a map whose "trajectories" is an
 * array of maps. Format: the public msgpack specification.
 */
#ifndef RG_SINK_PIECES_H
#define RG_SINK_PIECES_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"
#include "common/base/vec.h"

struct piece {
    size_t start, len; /* bytes of one trajectory's map */
};

struct pieces {
    struct piece *at;
    size_t n, cap;
};

/* Appends the byte ranges of the trajectories, in order. The caller frees *ret with vec_done. Fails
 * with ERR_IO if the bytes are not a whole envelope. */
int pieces_find(struct str envelope, struct pieces *ret, struct err *e);

/* Appends the value of a member as text: a string, or the digits of a whole number >= 0.
 * `envelope`: a whole export or one trajectory's map. Searches only members before "trajectories"
 * and "prompt_ids". Returns false if no such member exists. */
bool pieces_note(struct str envelope, const char *key, struct buf *ret);

#endif
