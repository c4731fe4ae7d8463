/*
 * A snapshot: all that made a session, to go on somewhere else or another day, token by token: the
 * records of its beginning and of its calls, rewards and scores, each behind its length (32 bits,
 * little-endian). How it ended, and what sinks have of it, stays behind: what is imported is open.
 */
#ifndef RG_SESSION_SNAPSHOT_H
#define RG_SESSION_SNAPSHOT_H

#include <stdint.h>

#include "common/base/str.h"
#include "common/base/vec.h"

struct arena;
struct buf;
struct err;
struct session;
struct session_store;

/* Appends the frames; *ret_n: how many. -1: the records cannot be read back, or the session has
 * pictures, whose bytes are no records. */
int snapshot_write(struct session *s, struct buf *ret, uint32_t *ret_n, struct err *e);

struct snapshot_records {
    VEC(struct str) all; /* in the arena */
};

/* What an import is made with. */
struct snapshot_target {
    const struct session_store *store; /* where it is to go: nothing in it is changed */
    struct str id;
    uint64_t now_ms; /* the newest record's time; the others keep their distance to it */
};

/* The records of a session of that id. They have been applied once, to a store of their own: what
 * comes from outside is refused here (ERR_INVALID with the field "records", ERR_FOREIGN), and
 * session_apply takes each of them afterwards. The caller frees ret->all. */
int snapshot_read(const struct snapshot_target *to, struct str frames, struct arena *a,
                  struct snapshot_records *ret, struct err *e);

#endif
