/*
 * Where each trajectory of a spooled msgpack export lies, so that it can be sent alone without
 * being packed anew. Reads the envelope that worker/export writes (a map whose "trajectories" is an
 * array of maps); format: the public msgpack specification. Bytes in, ranges out.
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

/* Appends the trajectories of `envelope` in order; vec_done frees. ERR_IO: it is not such an
 * envelope, or is cut short. */
int pieces_find(struct str envelope, struct pieces *ret, struct err *e);

/* Appends the text of a string, or the digits of a whole number of 0 or more, that is a member of
 * the envelope before its trajectories, or of a trajectory before its ids. false: there is no such
 * member. */
bool pieces_note(struct str envelope, const char *key, struct buf *ret);

#endif
