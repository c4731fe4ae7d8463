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
struct image_part;
struct session;
struct session_store;

enum { SNAPSHOT_VERSION = 1 };

/* A session on its way out, record by record: those that it has when that begins. */
struct snapshot_writer {
    struct session *session; /* the caller pins it */
    uint32_t at, end;        /* numbers of records */
    uint32_t n, crc;         /* frames so far, and the checksum of all their bytes */
};

/* -1: it has no journal, or lost records of it. The bytes of its pictures are no records: see
 * snapshot_images. */
int snapshot_begin(struct session *s, struct snapshot_writer *ret, struct err *e);

/* Appends the next frame, if its record travels. Returns 1 when there are no more, -1 when it
 * cannot be read back. */
int snapshot_next(struct snapshot_writer *w, struct buf *frames, struct err *e);

/* Calls `each` for the pictures that the session's messages show; one may come several times.
 * What it is given is the session's. */
void snapshot_images(const struct session *s,
                     void (*each)(void *ctx, const struct image_part *image), void *ctx);

struct snapshot_records {
    VEC(struct str) all;           /* in the arena */
    VEC(struct image_part) images; /* images that they name, each once; in the arena */
};

/* What an import is made with. */
struct snapshot_target {
    struct session_store *trial; /* snapshot_trial's, used once: the records are applied to it */
    struct str id;
    uint64_t now_ms; /* the newest record's time; the others keep their distance to it */
};

/* An empty store as the one that an import is to go to. The caller frees it. */
struct session_store *snapshot_trial(const struct session_store *to);

/* The records of a session of that id. They have been applied once, to the trial store: what comes
 * from outside is refused here (ERR_INVALID with the field "records", ERR_FOREIGN), and
 * session_apply takes each of them afterwards. Long work, which touches nothing but what it is
 * given. The caller frees both lists, also after an error. */
int snapshot_read(const struct snapshot_target *to, struct str frames, struct arena *a,
                  struct snapshot_records *ret, struct err *e);

#endif
