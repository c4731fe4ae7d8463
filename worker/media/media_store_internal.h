/*
 * What the files of the store of images share: media_store.c (images), media_pins.c (notes of URLs)
 * and media_transfer.c (files that go to a fleet's store, or come from there).
 */
#ifndef RG_MEDIA_MEDIA_STORE_INTERNAL_H
#define RG_MEDIA_MEDIA_STORE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "worker/media/media_store.h"

#define PIN_END STR(".url") /* end of the name of a URL's note */

enum { MEDIA_PATH_MAX = 4096 };

struct media_store {
    char *root;
    bool sync;
    _Atomic uint64_t *durable; /* hashes of paths that this process has made durable */
    uint64_t session_bytes;
    void (*on_stored)(void *ctx, struct str session_id, struct str name);
    void *ctx;
    pthread_mutex_t *pinning; /* locked from the count of notes to the next note */
    pthread_mutex_t *names;   /* locks of names, then `pinning`; locked until a name is durable */
};

/* The paths of one image. A name that is too long is cut to one that no file has. */
struct media_place {
    char folder[MEDIA_PATH_MAX]; /* folder of the session */
    char own[MEDIA_PATH_MAX];    /* path of the image in that folder */
    char part[MEDIA_PATH_MAX];   /* path in that folder while this thread writes the image */
    char shelf[MEDIA_PATH_MAX];  /* folder media/ab */
    char copy[MEDIA_PATH_MAX];   /* path of the node's copy */
};

void media_fill_paths(const struct media_store *m, struct str id, struct str media,
                      struct media_place *ret);

/* Locks the names of an image or a note. A thread that holds it may lock `pinning`. */
pthread_mutex_t *media_lock_name(const struct media_store *m, const struct media_place *p);
void media_unlock_name(pthread_mutex_t *lock);

/* Set the error of errno. Return -1. */
int media_fail_storage(struct err *e);
int media_fail_reading(struct err *e);

int media_make_folders(const struct media_store *m, const struct media_place *p, struct err *e);

/* Makes the names of the session's images, and of its folder, durable if `sync` is set. */
int media_sync_names(const struct media_store *m, const struct media_place *p, struct err *e);

/* Reports whether the file is durable with its name, as far as this process knows. A file that a
 * killed process or one without `sync` has left may only be in the page cache. True without `sync`.
 * The memory is small: it may forget. */
bool media_is_durable(const struct media_store *m, const char *path);
void media_mark_durable(const struct media_store *m, const char *path);

/* Writes the file's bytes to the disk, unless it is durable. Returns -1 with errno. */
int media_sync_file(const struct media_store *m, const char *path);

/* Reports whether this is the file name of a note. */
bool media_is_pin(struct str name);

/* Reports whether this is the file name of an image or a note. */
bool media_is_file_name(struct str name);

/* Adds up the bytes of a session's files, or the number of its notes. */
int media_sum_folder(const char *path, bool notes, uint64_t *ret, struct err *e);

/* Calls on_stored, if it is set, for a file that has its final name. */
void media_report_stored(const struct media_store *m, struct str session_id, struct str name);

#endif
