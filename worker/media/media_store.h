/*
 * struct media_store: stores the bytes of images by their SHA-256 in the state folder:
 *
 *     media/ab/abcd...            the node's only copy, a hard link
 *     media/sessions/ID/abcd...   a link to the same file, while the session is kept
 *     media/sessions/ID/ef01....url  a note: the image that the session got from the URL with that
 *                                    SHA-256
 *
 * Only a session's folder says which images belong to the session. So nothing is moved when a
 * different worker adopts the session, and deleting a session removes its links. The copy is
 * removed with the last link. A file with a final name is always complete. The struct is immutable,
 * so helpers may use it; only media_store_sweep must run on the loop.
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
    uint64_t session_bytes; /* limit for the bytes of all images of a session; 0: no limit */
    /* Called by any thread when a session has got a file, which has its name then; NULL: never */
    void (*on_stored)(void *ctx, struct str session_id, struct str name);
    void *ctx;
};

/* Makes a store. Reads and writes no file yet. */
struct media_store *media_store_new(const struct media_options *o);
void media_store_free(struct media_store *m); /* accepts NULL */

/* Stores the bytes for the session under their hash. Returns 0 also if they are already stored.
 * Replaces a file with different bytes (after a power failure). Returns -1 with ERR_STORAGE_FULL,
 * ERR_STORAGE_FAILED, or ERR_BODY_TOO_LARGE if the session has no space left. */
int media_store_put(const struct media_store *m, struct str session_id, struct str media,
                    struct str bytes, struct err *e);

/* Stores one of many images. After the last one, media_store_settle makes the names of all of
 * them durable at once. If media_store_settle fails, the caller drops the new images
 * (media_store_drop). */
int media_store_bring(const struct media_store *m, struct str session_id, struct str media,
                      struct str bytes, struct err *e);
/* Makes the names of the session's stored images and notes durable. */
int media_store_settle(const struct media_store *m, struct str session_id, struct err *e);

/* Checks the session's image against its hash. Takes long, so it is for helpers. Returns -1 with
 * ERR_NOT_FOUND if the session has no such image. Returns -1 with ERR_STORAGE_FAILED if the file
 * cannot be read or has different bytes. */
int media_store_check(const struct media_store *m, struct str session_id, struct str media,
                      struct err *e);

/* A note of the image that a session got from a URL: the JSON of its part, recorded after the image
 * was stored. */
struct media_pin {
    struct str session_id, url;
    /* Reports whether a note is complete. An incomplete one is ignored: power failed while it was
     * written. */
    bool (*is_whole)(struct str text);
    struct str hash; /* the URL's SHA-256, if the URL itself is unknown; else absent */
};

/* Limit for the notes of URLs of one session, over all writers. */
enum { MEDIA_PINS_MAX = 4096 };

/* Checks, before a new URL is fetched, that the session may have one more note. If not, returns -1
 * with ERR_BODY_TOO_LARGE. */
int media_store_pin_room(const struct media_store *m, struct str session_id, struct err *e);

/* Records `part` as the note. Returns 0 if it is recorded. Returns 1 if a different writer's
 * earlier note is valid; that one is appended to `out`. Returns -1 with the errors of put, pin_room
 * and pinned. */
int media_store_pin(const struct media_store *m, const struct media_pin *pin, struct str part,
                    struct buf *out, struct err *e);

/* Records one of many notes; media_store_settle makes them durable. */
int media_store_bring_pin(const struct media_store *m, const struct media_pin *pin, struct str part,
                          struct buf *out, struct err *e);

/* Appends the note and returns 1, or returns 0 if there is no complete note. Returns -1 with
 * ERR_STORAGE_FAILED if it cannot be read, or ERR_CANCELLED if cancelled work could not check it.
 */
int media_store_pinned(const struct media_store *m, const struct media_pin *pin, struct buf *out,
                       struct err *e);

/* Iterates over a session's notes. */
struct media_pins {
    void *dir; /* NULL: the session has no folder */
};

/* Begins the iteration. End it with media_pins_close. Returns -1 with ERR_STORAGE_FAILED. */
int media_store_pins(const struct media_store *m, struct str session_id, struct media_pins *ret,
                     struct err *e);

enum { MEDIA_HASH_MAX = 65 };

/* Appends the next note's text, and sets `url` to the SHA-256 of its URL. Returns 1, or 0 after the
 * last note, or -1 with ERR_STORAGE_FAILED. */
int media_pins_next(struct media_pins *p, char url[MEDIA_HASH_MAX], struct buf *out, struct err *e);

/* Ends the iteration. */
void media_pins_close(struct media_pins *p);

/* Returns the path of a session's image, in the arena. */
const char *media_store_path(const struct media_store *m, struct arena *a, struct str session_id,
                             struct str media);

/* An image that is read piece by piece. */
struct media_file {
    int fd;
    uint64_t left; /* bytes that have not been read */
};

/* Opens a session's image without checking its hash. Close it with media_file_close. Fails like
 * media_store_check. */
int media_store_open(const struct media_store *m, struct str session_id, struct str media,
                     struct media_file *ret, struct err *e);

/* Appends at most n more bytes. Returns -1 if the file has become shorter. */
int media_file_read(struct media_file *f, size_t n, struct buf *out);

void media_file_close(struct media_file *f);

/* --- files that go to the store of a fleet, or come from there: images and notes of URLs --- */

/* Reports whether the session has the file. */
bool media_store_has(const struct media_store *m, struct str session_id, struct str name);

/* Appends at most n bytes of the file from `at` on. Returns its size, or -1 with
 * ERR_NOT_FOUND if the session has no such file, or with ERR_STORAGE_FAILED. */
int64_t media_store_read(const struct media_store *m, struct str session_id, struct str name,
                         uint64_t at, size_t n, struct buf *out, struct err *e);

/* Calls fn with each file of each session that `wants` returns true for. */
void media_store_each(const struct media_store *m, bool (*wants)(void *ctx, struct str session_id),
                      void (*fn)(void *ctx, struct str session_id, struct str name), void *ctx);

/* A file that comes in pieces. It gets its name at the end. */
struct media_arrival;

/* Begins a file. Returns NULL with ERR_STORAGE_FULL or ERR_STORAGE_FAILED, or with ERR_IO if no
 * file has such a name. */
struct media_arrival *media_arrival_new(const struct media_store *m, struct str session_id,
                                        struct str name, struct err *e);

/* Returns "SESSION/NAME". */
struct str media_arrival_path(const struct media_arrival *a);

/* Adds bytes. Returns -1 with errors like media_arrival_new. */
int media_arrival_add(struct media_arrival *a, struct str bytes, struct err *e);

/* Gives the file its name if it is complete. With `sync` it takes long. Returns -1 with errors like
 * media_arrival_new, or with ERR_IO if an image has other bytes than its hash says. */
int media_arrival_finish(struct media_arrival *a, struct err *e);

/* Frees a, and removes the file if it has no name yet. Accepts NULL. */
void media_arrival_free(struct media_arrival *a);

/* Reports whether the session may have images. */
bool media_store_holds(const struct media_store *m, struct str session_id);

/* Links all images and notes of session `from` for the new session `to`, without copies. Takes
 * long. Fails like media_store_put. */
int media_store_lend(const struct media_store *m, struct str from, struct str to, struct err *e);

/* Removes all images of a session, and its notes of URLs. */
void media_store_drop(const struct media_store *m, struct str session_id);

/* Decides which sessions media_store_sweep removes: those for which `ours` is true and `kept` is
 * false. */
struct media_sweep {
    bool (*ours)(void *ctx, struct str session_id);
    bool (*kept)(void *ctx, struct str session_id);
    void *ctx;
};

/* Removes the images of those sessions. Returns the number of sessions. */
size_t media_store_sweep(const struct media_store *m, const struct media_sweep *w);

#endif
