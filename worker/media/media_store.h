/*
 * struct media_store: the bytes of pictures, by their SHA-256, in the state folder:
 *
 *     media/ab/abcd...            the one copy of this node, a hard link
 *     media/sessions/ID/abcd...   the same file, as long as the session is kept
 *     media/sessions/ID/ef01....url  the picture that it got from the URL with that SHA-256
 *
 * Only a session's folder says which pictures belong to the session, so when a different worker
 * adopts the session nothing is moved, and a session that is deleted takes its links along; the
 * copy is removed with the last link. A file with a final name is always complete. The struct is
 * immutable once made, so helpers may use it; only media_store_sweep must run on the loop.
 */
#ifndef RG_MEDIA_MEDIA_STORE_H
#define RG_MEDIA_MEDIA_STORE_H

#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"

struct media_store;

struct media_options {
    const char *state_dir;
    bool sync;              /* files are durable before media_store_put returns */
    uint64_t session_bytes; /* most bytes of all pictures of a session; 0: no limit */
};

/* Makes a store. Reads and writes no file yet. */
struct media_store *media_store_new(const struct media_options *o);
void media_store_free(struct media_store *m); /* accepts NULL */

/* Stores the bytes for the session under their hash. Returns 0 also if they are stored already. A
 * file with different bytes (after a power failure) is written anew. Returns -1 with
 * ERR_STORAGE_FULL, ERR_STORAGE_FAILED, or ERR_BODY_TOO_LARGE if the session has no space. */
int media_store_put(const struct media_store *m, struct str session_id, struct str media,
                    struct str bytes, struct err *e);

/* Stores one of many pictures. The names of all of them are durable when media_store_settle, which
 * writes them at once, has returned 0. If media_store_settle fails, the caller drops the new
 * pictures (media_store_drop). */
int media_store_bring(const struct media_store *m, struct str session_id, struct str media,
                      struct str bytes, struct err *e);
int media_store_settle(const struct media_store *m, struct str session_id, struct err *e);

/* Appends a session's picture, checked against its hash. Takes long, so it is for helpers. Returns
 * -1 with ERR_NOT_FOUND if the session has no picture of that hash, with ERR_STORAGE_FAILED if the
 * file cannot be read or has different bytes. */
int media_store_get(const struct media_store *m, struct str session_id, struct str media,
                    struct buf *out, struct err *e);

/* Checks the session's picture against its hash, without keeping it. Takes long; the errors are
 * those of media_store_get. */
int media_store_check(const struct media_store *m, struct str session_id, struct str media,
                      struct err *e);

/* The picture that a session got from a URL, noted as its part's JSON after the picture was
 * stored. */
struct media_pin {
    struct str session_id, url;
    /* reports whether a note is complete; else it is ignored, because power failed while it was
     * written */
    bool (*is_whole)(struct str text);
    struct str hash; /* the URL's SHA-256, if the URL itself is not known; else absent */
};

/* Most notes of URLs of one session, across all writers. */
enum { MEDIA_PINS_MAX = 4096 };

/* Checks, before a new URL is fetched, that the session may have one more. Returns -1 with
 * ERR_BODY_TOO_LARGE if not. */
int media_store_pin_room(const struct media_store *m, struct str session_id, struct err *e);

/* Notes `part`. Returns 0; or 1 if an earlier note of a different writer is valid, which is
 * appended to `out`; or -1 with the errors of put, pin_room and pinned. */
int media_store_pin(const struct media_store *m, const struct media_pin *pin, struct str part,
                    struct buf *out, struct err *e);

/* Notes one of many, like media_store_bring. */
int media_store_bring_pin(const struct media_store *m, const struct media_pin *pin, struct str part,
                          struct buf *out, struct err *e);

/* Appends the note. Returns 1; or 0 if there is none, or no complete one; or -1 with
 * ERR_STORAGE_FAILED if this is unknown. */
int media_store_pinned(const struct media_store *m, const struct media_pin *pin, struct buf *out,
                       struct err *e);

/* Iterates over a session's notes. */
struct media_pins {
    void *dir; /* NULL: there are none */
};

int media_store_pins(const struct media_store *m, struct str session_id, struct media_pins *ret,
                     struct err *e);

enum { MEDIA_HASH_MAX = 65 };

/* Appends the next note's text and sets `url` to the SHA-256 of its URL. Returns 1, 0 if there are
 * no more, -1 with ERR_STORAGE_FAILED. */
int media_pins_next(struct media_pins *p, char url[MEDIA_HASH_MAX], struct buf *out, struct err *e);

void media_pins_close(struct media_pins *p);

/* Returns the path of a session's picture, in the arena. */
const char *media_store_path(const struct media_store *m, struct arena *a, struct str session_id,
                             struct str media);

/* A picture that is read piece by piece. */
struct media_file {
    int fd;
    uint64_t left; /* bytes that were not read yet */
};

/* Opens a session's picture. The errors are those of media_store_get, but the hash is not
 * checked. */
int media_store_open(const struct media_store *m, struct str session_id, struct str media,
                     struct media_file *ret, struct err *e);

/* Appends at most n more bytes. Returns -1 if the file has fewer than at its opening. */
int media_file_read(struct media_file *f, size_t n, struct buf *out);

void media_file_close(struct media_file *f);

/* Reports whether the session may have pictures. */
bool media_store_holds(const struct media_store *m, struct str session_id);

/* Gives a new session all pictures of a different one as links, not copies. The errors are those of
 * media_store_put. Takes long. */
int media_store_lend(const struct media_store *m, struct str from, struct str to, struct err *e);

/* Drops all pictures of a session, and its notes of URLs. */
void media_store_drop(const struct media_store *m, struct str session_id);

/* Drops the pictures of sessions that do not exist any more: of those for which `ours` is true, all
 * for which `kept` is false. Returns how many sessions were dropped. */
struct media_sweep {
    bool (*ours)(void *ctx, struct str session_id);
    bool (*kept)(void *ctx, struct str session_id);
    void *ctx;
};

size_t media_store_sweep(const struct media_store *m, const struct media_sweep *w);

#endif
