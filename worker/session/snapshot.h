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

/* A session on its way out, record by record: those that it has when that begins. */
struct snapshot_writer {
    struct session *session; /* the caller pins it */
    uint32_t at, end;        /* numbers of records */
    uint32_t n, crc;         /* frames so far, and the checksum of all their bytes */
};

/* -1: it has no journal, or pictures, whose bytes are no records. */
int snapshot_begin(struct session *s, struct snapshot_writer *ret, struct err *e);

/* Appends the next frame, if its record travels. Returns 1 when there are no more, -1 when it
 * cannot be read back. */
int snapshot_next(struct snapshot_writer *w, struct buf *frames, struct err *e);

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
