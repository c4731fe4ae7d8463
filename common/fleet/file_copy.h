/*
 * struct file_copy: the files of sessions (images, notes of URLs) in the store of a fleet, next to
 * the records of a second copy (second_copy.h). A file is a log "SESSION~NAME" of pieces of at most
 * FILE_COPY_PIECE bytes. It never changes.
 *
 *   send   The records of a session wait until the store has its files. So the store never has a
 *          record whose images it lacks.
 *   read   Before the records of a session are read back, its files are.
 *   drop   Files of sessions that need no second copy are deleted (file_copy_sweep).
 *
 * The second copy compares lengths, and decides about fences and lost connections.
 */
#ifndef RG_FLEET_FILE_COPY_H
#define RG_FLEET_FILE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct buf;
struct err;
struct file_call; /* a reading that `finish` ends */
struct file_copy;
struct loop;
struct second_copy;
struct store;

enum { FILE_COPY_PIECE = 1 << 20, FILE_COPY_UNREADABLE = -2 };

struct file_copy_options {
    struct loop *loop;
    struct store *store; /* the second copy's */
    struct second_copy *copy;
    /* Appends at most n bytes of a file from `at` on. Returns its size; -1: it does not exist;
     * FILE_COPY_UNREADABLE: it cannot be read now, and is tried again after a pause. */
    int64_t (*read)(void *ctx, struct str session, struct str name, uint64_t at, size_t n,
                    struct buf *out);
    bool (*has)(void *ctx, struct str session, struct str name);
    /* Calls file_copy_add for files that are new here. Cheap if there are none. */
    void (*collect)(void *ctx);
    /* Stores a piece of a file that only the store has. `at`: 0 for the first piece. Returns -1
     * with ERR_STORAGE_FULL, ERR_STORAGE_FAILED or ERR_CANCELLED: the reading is tried again after
     * a pause. Returns -1 with another error: the file is incomplete or damaged, and the store
     * deletes it. */
    int (*add)(void *ctx, struct str session, struct str name, uint64_t at, struct str bytes,
               struct err *e);
    /* Makes the file durable after its last piece. file_copy_end_read follows, now or later. */
    void (*finish)(void *ctx, struct str session, struct str name, struct file_call *call);
    /* Reports whether another node would need the session's files. */
    bool (*is_needed)(void *ctx, struct str session);
    void *ctx;
};

/* Makes the files of the second copy, and sets its hooks. */
struct file_copy *file_copy_new(const struct file_copy_options *o);

/* Call it after second_copy_free, which frees the store. Accepts NULL. */
void file_copy_free(struct file_copy *c);

/* Adds a file that the session has here. */
void file_copy_add(struct file_copy *c, uint32_t place, struct str session, struct str name);

/* Ends the reading of a file. e: an error like those of `add`; NULL: the file is here. Frees the
 * call. */
void file_copy_end_read(struct file_call *k, const struct err *e);

/* Deletes the files of sessions that are not needed from the store, and forgets them. */
void file_copy_sweep(struct file_copy *c);

#endif
