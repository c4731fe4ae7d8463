/*
 * A snapshot: the records that made a session, from which it can continue elsewhere or later, token
 * by token: those of its beginning and of its calls, rewards and scores, each after its length (32
 * bits, little-endian). The session's end, and what sinks have of it, is not included: an imported
 * session is open.
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

/* Writes a session record by record: those that exist at the begin. */
struct snapshot_writer {
    struct session *session; /* the session, pinned by the caller */
    uint32_t at, end;        /* numbers of the next record, and of the end */
    uint32_t n, crc;         /* frames so far, and the checksum of all their bytes */
};

/* Returns -1 if the session has no journal, or records of it were lost. The bytes of its pictures
 * are not in records: see snapshot_images. */
int snapshot_begin(struct session *s, struct snapshot_writer *ret, struct err *e);

/* Appends the next frame, if its record belongs into a snapshot. Returns 1 when there are no more,
 * -1 when it cannot be read back. */
int snapshot_next(struct snapshot_writer *w, struct buf *frames, struct err *e);

/* Calls `each` for the pictures that the session's messages show; it may be called several times
 * for one picture. Its argument is the session's memory. */
void snapshot_images(const struct session *s,
                     void (*each)(void *ctx, const struct image_part *image), void *ctx);

struct snapshot_records {
    VEC(struct str) all;           /* the records, in the arena */
    VEC(struct image_part) images; /* pictures that the records name, each once; in the arena */
};

/* Input of an import. */
struct snapshot_target {
    /* made by snapshot_trial, used once: the records are applied to it */
    struct session_store *trial;
    struct str id;
    uint64_t now_ms; /* time for the newest record; the others keep their distance to it */
};

/* Makes an empty store with the settings of the store into which the import will be written. The
 * caller frees it. */
struct session_store *snapshot_trial(const struct session_store *to);

/* Makes the records of a session with that id. They have been applied to the trial store, so that
 * invalid data from outside is refused here (ERR_INVALID with the field "records", ERR_FOREIGN),
 * and session_apply accepts each of them later. Takes long, and uses only its arguments. The caller
 * frees both lists, also after an error. */
int snapshot_read(const struct snapshot_target *to, struct str frames, struct arena *a,
                  struct snapshot_records *ret, struct err *e);

#endif
